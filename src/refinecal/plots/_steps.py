"""Curves against training steps: checks, axes and labels, and the base class of their displays."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal.plots.style import (
    PALETTE,
    Display,
    Floats,
    check_floats,
    inches,
    lines_of,
    round_ticks,
    write_line,
    write_near,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    from refinecal.stopping import RefinementMonitor

Steps = NDArray[np.int64]

MOST_DOTS = 30  # steps that can be distinguished as dots
CROP = 3.0  # times the smallest risk: higher values of the first steps are cut off
MARGIN = 0.03  # around the curves, as a part of their extent
GAP = 2.3  # lines from label to label: each has two


class LossCurvesDisplay(Display):
    """Loss and its parts against the steps of one training run."""

    lines_: dict[str, Line2D]
    texts_: dict[str, Text]

    _terms: ClassVar[tuple[str, ...]] = ("risk", "refinement")

    def __init__(
        self, steps: ArrayLike, curves: Mapping[str, ArrayLike], loss: str, step_name: str
    ) -> None:
        self.steps = check_steps(steps)
        wanted = f", but steps has {self.steps.shape}: pass one value per step"
        given = {
            name: check_floats(name, curves[name], self.steps.shape, wanted) for name in self._terms
        }
        self.curves = {
            name: np.where(np.isfinite(each), each, np.nan) for name, each in given.items()
        }
        self.loss, self.step_name = loss, step_name

    @classmethod
    def from_monitor(
        cls, monitor: RefinementMonitor, ax: Axes | None = None, *, step_name: str = "step"
    ) -> Self:
        """Draw the history of a monitor, and mark the chosen steps.

        Parameters
        ----------
        monitor : RefinementMonitor
            After at least one step.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        step_name : str, default "step"
            The unit of a step, such as "round" or "epoch".
        """
        if not monitor.history:
            raise ValueError("the monitor has seen no step yet: call update before plot")
        given: dict[str, Any] = {
            name: [record[name] for record in monitor.history] for name in cls._terms
        }
        given |= {"steps": [record["step"] for record in monitor.history], "step_name": step_name}
        return cls(**given, **cls._read_choice(monitor), loss=monitor.loss.name).plot(ax)

    @classmethod
    def _read_choice(cls, monitor: RefinementMonitor) -> dict[str, Any]:
        """Return the arguments for the chosen step."""
        raise NotImplementedError

    def _draw_lines(self, ax: Axes, labels: Mapping[str, str]) -> None:
        """Draw the curves, with dots if there are few steps."""
        marker = "." if len(self.steps) <= MOST_DOTS else ""
        self.lines_ = {
            name: ax.plot(
                self.steps, values, label=labels[name], color=PALETTE[name], marker=marker
            )[0]
            for name, values in self.curves.items()
        }


# ---- checks ------------------------------------------------------------------------------------------------


def check_steps(given: ArrayLike) -> Steps:
    """Return the numbers of the steps, increasing."""
    steps = np.asarray(given, dtype=np.int64)
    if steps.ndim != 1 or not steps.size:
        raise ValueError(f"steps has shape {steps.shape}: pass the number of at least one step")
    if (np.diff(steps) <= 0).any():
        at = int(np.flatnonzero(np.diff(steps) <= 0)[0]) + 1
        raise ValueError(
            f"steps[{at}] is {steps[at]}, after {steps[at - 1]}: steps must increase, so sort them"
        )
    return steps


def check_step(name: str, step: int | None, steps: Steps) -> int | None:
    """Return a step that is one of ``steps``, or ``None``."""
    if step is not None and step not in steps:
        raise ValueError(
            f"{name} is {step}, which is not among steps {steps[0]} to {steps[-1]}: pass one of them"
        )
    return step


# ---- the axes ----------------------------------------------------------------------------------------------


def find_lowest(values: Floats) -> int | None:
    """Return the index of the smallest number, the first of several; ``None`` if all are NaN."""
    return None if np.isnan(values).all() else int(np.nanargmin(values))


def find_heights(
    steps: Steps, curves: Iterable[Floats], main: tuple[int, float]
) -> tuple[float, float]:
    """Return the lowest and highest value to show: at most 0, and without a steep start.

    ``main`` is the step where the main curve is lowest, and its value there.
    """
    values = np.array(list(curves))
    late = np.nanmax(values[:, steps >= main[0]])
    high = min(np.nanmax(values), max(late, CROP * main[1]))
    return min(0.0, float(np.nanmin(values))), float(high) or 1.0


def set_axes(
    ax: Axes,
    steps: Steps,
    name: str,
    heights: tuple[float, float],
    above: float,
    room: float = 0.0,
) -> None:
    """Lay out both axes: that of the steps and, for the lowest and the highest value, that of values.

    Leaves ``room`` inches for labels right of the last step, and room above, a part of the whole height.
    """
    first, final = int(steps[0]), int(steps[-1])
    width = max(final - first, 1)
    part = room / max(inches(ax)[0] - room, room) if room else 0.0
    left, right = first - MARGIN * width, final + max(part, MARGIN) * width
    ax.set_xlim(left, right)
    ax.set_xticks([first] if first == final else round_ticks(first, final, 6, integer=True))
    ax.spines["bottom"].set_bounds(left, final)
    ax.set_xlabel(name, x=((first + final) / 2 - left) / (right - left))
    low, high = heights
    low -= MARGIN * (high - low)
    ax.set_ylim(low, low + (high - low) / (1 - above))
    ax.set_yticks(round_ticks(low, high, 6))
    ax.spines["left"].set_bounds(low, high)


def cut_above(ax: Axes, artists: Iterable[Artist], more: float = 0.01) -> None:
    """Clip curves at the top of the axis of values, or slightly above it."""
    from matplotlib.transforms import Bbox, TransformedBbox

    left, right = ax.get_xlim()
    low, high = ax.spines["left"].get_bounds()
    box = TransformedBbox(Bbox([[left, low], [right, high + more * (high - low)]]), ax.transData)
    for artist in artists:
        artist.set_clip_box(box)


# ---- labels ------------------------------------------------------------------------------------------------


def label_curves(
    ax: Axes,
    at: int,
    curves: Mapping[str, Floats],
    labels: Mapping[str, str],
    top: float | None,
) -> dict[str, Text]:
    """Label each curve: in a line above all, or in two lines next to its end, below ``top``."""
    if top is None:
        return {
            name: write_line(ax, line, text, name, x=0.03)
            for line, (name, text) in enumerate(labels.items())
        }
    ends = {name: float(curves[name][~np.isnan(curves[name])][-1]) for name in labels}
    low, high = ax.get_ylim()
    places = _move_apart(ends, low, top, lines_of(ax, GAP) * (high - low))
    return {
        name: write_near(
            ax, (at, height), labels[name].replace(": ", "\n", 1), (10, 0), name, va="center"
        )
        for name, height in places.items()
    }


def _move_apart(wanted: dict[str, float], low: float, high: float, gap: float) -> dict[str, float]:
    """Return heights at which labels overlap neither each other nor the ends of the axis."""
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
