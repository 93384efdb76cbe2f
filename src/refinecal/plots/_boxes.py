"""Boxes with a dot for each value, in rows, and the axis of differences in percent that they stand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.format import shortened
from refinecal.plots._style import PALETTE, inches, is_narrow, sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
LINEAR = 0.1  # percent: closer to 0 the axis is not logarithmic
LINSCALE = 0.5  # of matplotlib: how much room that part has
HEIGHT = 1.3  # of the line of a label, in letters of its size
NAMES = 0.8  # inches of axes that the names of rows will take
ROOM = 1.25  # times the largest value, at either end of an axis of differences
GOLDEN = 0.6180339887498949  # multiples of it, less whole numbers, are never close together
SPREAD = 0.56  # of the distance of two boxes, over which the dots of one are spread
HALF_BOX = 0.32
LONGEST = 24  # characters of a name
LINE: Any = {"color": PALETTE["text"], "zorder": 3, "solid_capstyle": "butt"}
FEW = 5  # runs: fewer have no quartiles worth a box


def quantiles_of(values: Mapping[str, Floats]) -> dict[str, tuple[float, ...]]:
    """Return where boxes and whiskers end; not of rows without a value."""
    return {
        name: tuple(np.quantile(each, QUANTILES).tolist())
        for name, each in values.items()
        if each.size
    }


def spread(values: Floats) -> Floats:
    """Return how far each dot is from the middle of its row, so that neighbours are apart."""
    shifts = np.empty(len(values))
    order = np.argsort(values, kind="stable")
    shifts[order] = SPREAD * ((np.arange(len(values)) * GOLDEN + 0.5) % 1 - 0.5)
    return shifts


def draw_box(ax: Axes, row: int, at: tuple[float, ...], colour: str, whole: bool = True) -> None:
    """Draw a box with its median and whiskers at five quantiles; or if not ``whole``, the median alone."""
    low, first, middle, third, high = at
    if not whole:
        _draw_median(ax, row, middle)
        return
    ax.fill_between(
        [first, third],
        row - HALF_BOX,
        row + HALF_BOX,
        color=colour,
        alpha=0.22,
        linewidth=0,
        zorder=1,
    )
    edges = [first, third, third, first, first], row + HALF_BOX * np.array([-1, -1, 1, 1, -1])
    ax.plot(*edges, **LINE, linewidth=0.8)
    _draw_median(ax, row, middle)
    for end, start in ((low, first), (high, third)):
        ax.plot([start, end], [row, row], **LINE, linewidth=0.8)
        ax.plot([end, end], [row - HALF_BOX / 2, row + HALF_BOX / 2], **LINE, linewidth=0.8)


def _draw_median(ax: Axes, row: int, middle: float) -> None:
    ax.plot([middle, middle], [row - HALF_BOX, row + HALF_BOX], **LINE, linewidth=2.0)


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Write the names of rows beside them, the first on top."""
    ax.set_ylim(len(names) - 0.45, -0.55)
    ax.set_yticks(range(len(names)), [shortened(name, LONGEST) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def percent_axis(ax: Axes, axis: Any, reach: float) -> None:
    """Make an axis logarithmic either side of 0, with few ticks that reach as far as the values do."""
    end = ROOM * max(reach, 2 * LINEAR)
    across = axis is ax.xaxis
    scale, limits = (ax.set_xscale, ax.set_xlim) if across else (ax.set_yscale, ax.set_ylim)
    scale("symlog", linthresh=LINEAR, linscale=LINSCALE)
    limits(-end, end)
    positive = _ticks(ax, end, across)
    ticks = [*(-tick for tick in reversed(positive)), 0.0, *positive]
    axis.set_ticks(ticks, labels=[_tick_word(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def _ticks(ax: Axes, end: float, across: bool) -> list[float]:
    """Return ticks above 0, as far as their labels have room: the outermost, powers of ten, some between."""
    half = (inches(ax)[0] - NAMES if across else inches(ax)[1]) / 2
    letter = sizes(ax)[1] / 72  # inches
    chosen = [0.0]

    def fits(tick: float) -> bool:
        return all(
            half * (_bent(tick) - _bent(other)) / _bent(end)
            >= letter * (_width(tick, other) if across else HEIGHT)
            for other, tick in (sorted((tick, other)) for other in chosen)
        )

    for tick in _wanted(end):
        if tick <= end and tick not in chosen and fits(tick):
            chosen.append(tick)
    return sorted(chosen[1:])


def _wanted(end: float) -> list[float]:
    """Return ticks by how much they are wanted on an axis that goes so far.

    >>> _wanted(0.8), _wanted(8.0)
    ([0.5, 0.1, 0.2], [5.0, 1.0, 0.1])
    """
    powers = [float(f"1e{n}") for n in range(int(np.floor(np.log10(end))), -2, -1)]
    two, five = (float(f"{times}e{np.log10(powers[0]):.0f}") for times in (2, 5))
    if len(powers) == 1:  # 0.1 alone says little
        return [five, *powers, two] if end >= five else [two, *powers]
    if end >= five:
        return [five, *powers]
    return [*powers, two, *([0.5] if len(powers) == 2 else [])]


def _bent(value: float) -> float:
    """Return where a value is on the axis of matplotlib's scale "symlog", up to a factor."""
    linear = LINSCALE / 0.9  # 1 - 1 / base
    return linear * value / LINEAR if value < LINEAR else linear + float(np.log10(value / LINEAR))


def _width(one: float, other: float) -> float:
    """Return how far apart the middles of two labels must be, in letters of their size."""
    return 0.2 + sum(0.64 * len(_tick_word(tick)) + 0.1 for tick in (one, other)) / 2


def _tick_word(tick: float) -> str:
    return f"{tick:+g}".replace("-", "−") if tick else "0"


def axis_name(ax: Axes, what: str) -> str:
    """Return what an axis of differences is called."""
    return f"{what}, %\n(← better)" if is_narrow(ax) else f"difference in {what}, %  (← better)"
