"""Values against steps: checks, places of ticks and labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

MOST_DOTS = 30  # so many steps can be told apart as dots
CROP = 3.0  # the first steps may leave the picture above this many times the smallest risk
MARGIN = 0.03  # around the curves, as a part of their extent


def check_steps(given: ArrayLike) -> Steps:
    """Return the numbers of the steps, increasing."""
    steps = np.asarray(given, dtype=np.int64)
    if steps.ndim != 1 or not steps.size:
        raise ValueError(f"steps has shape {steps.shape}: pass the numbers of one step at least")
    if (np.diff(steps) <= 0).any():
        at = int(np.flatnonzero(np.diff(steps) <= 0)[0]) + 1
        raise ValueError(
            f"steps[{at}] is {steps[at]}, after {steps[at - 1]}: steps must increase, so sort them"
        )
    return steps


def check_curve(name: str, given: ArrayLike, steps: Steps) -> Floats:
    """Return one value per step, NaN where it is not finite."""
    values = np.asarray(given, dtype=np.float64)
    if values.shape != steps.shape:
        raise ValueError(
            f"{name} has shape {values.shape}, but steps has {steps.shape}: pass one value per step"
        )
    return np.where(np.isfinite(values), values, np.nan)


def check_step(name: str, step: int | None, steps: Steps) -> int | None:
    """Return a step that is one of those seen, or ``None``."""
    if step is not None and step not in steps:
        raise ValueError(
            f"{name} is {step}, which is not among steps {steps[0]} to {steps[-1]}: pass one of them"
        )
    return step


def lowest(values: Floats) -> int | None:
    """Return where the smallest number is, the first of several; ``None`` if all are NaN."""
    return None if np.isnan(values).all() else int(np.nanargmin(values))


def last(values: Floats) -> float:
    """Return the last number that is not NaN."""
    return float(values[~np.isnan(values)][-1])


def heights(steps: Steps, curves: Iterable[Floats], main: tuple[int, float]) -> tuple[float, float]:
    """Return the lowest and highest value to show: 0 at least, and no steep start.

    ``main`` is the step where the main curve is lowest, and its value there.
    """
    values = np.array(list(curves))
    late = np.nanmax(values[:, steps >= main[0]])
    high = min(np.nanmax(values), max(late, CROP * main[1]))
    return min(0.0, float(np.nanmin(values))), float(high) or 1.0


def set_steps(ax: Axes, steps: Steps, name: str, room: float = 0.0) -> None:
    """Lay out the axis of steps, with ``room`` right of it as a part of the width of the curves."""
    first, final = int(steps[0]), int(steps[-1])
    width = max(final - first, 1)
    left, right = first - MARGIN * width, final + max(room, MARGIN) * width
    ax.set_xlim(left, right)
    ax.set_xticks(_whole_ticks(first, final))
    ax.spines["bottom"].set_bounds(left, final)
    ax.set_xlabel(name, x=((first + final) / 2 - left) / (right - left))


def _whole_ticks(first: int, final: int) -> list[int]:
    from matplotlib.ticker import MaxNLocator

    if first == final:
        return [first]
    ticks = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=True).tick_values(first, final)
    return [int(tick) for tick in ticks if first <= tick <= final]


def set_heights(ax: Axes, low: float, high: float, above: float) -> None:
    """Lay out the axis of values, with room above it, as a part of the height of the axes."""
    from matplotlib.ticker import MaxNLocator

    low -= MARGIN * (high - low)
    ax.set_ylim(low, low + (high - low) / (1 - above))
    ticks = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    ax.set_yticks([tick for tick in ticks if low <= tick <= high])
    ax.spines["left"].set_bounds(low, high)


def cut_above(ax: Axes, artists: Iterable[Artist]) -> None:
    """Let curves end at the top of the axis of values, below the text above it."""
    from matplotlib.transforms import Bbox, TransformedBbox

    left, right = ax.get_xlim()
    low, high = ax.spines["left"].get_bounds()
    high += 0.01 * (high - low)  # the width of a line
    box = TransformedBbox(Bbox([[left, low], [right, high]]), ax.transData)
    for artist in artists:
        artist.set_clip_box(box)


def line_look(steps: Steps, colour: str) -> dict[str, Any]:
    """Return how a curve looks: few steps are dots too."""
    return {"color": colour, "marker": "." if len(steps) <= MOST_DOTS else ""}


def apart(wanted: dict[str, float], low: float, high: float, gap: float) -> dict[str, float]:
    """Return heights for labels that overlap neither each other nor the ends of the axis."""
    names = list(wanted)[::-1]  # so that refinement stays below a risk that equals it
    names.sort(key=lambda name: wanted[name])
    found: dict[str, float] = {}
    below = low - gap / 2
    for name in names:
        found[name] = below = max(wanted[name], below + gap)
    above = high + gap / 2
    for name in reversed(names):
        found[name] = above = min(found[name], above - gap)
    return found
