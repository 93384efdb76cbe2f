"""Boxes with a dot for each value, in rows, and the axis of differences in percent that they stand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refinecal._text import shortened
from refinecal.plots._style import PALETTE, inches, is_narrow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
LINEAR = 0.1  # percent: closer to 0 the axis is not logarithmic
POWERS = (0.1, 1.0, 10.0, 100.0)
ROOM = 1.25  # times the largest value, at either end of an axis of differences
GOLDEN = 0.6180339887498949  # multiples of it, less whole numbers, are never close together
SPREAD = 0.56  # of the distance of two boxes, over which the dots of one are spread
HALF_BOX = 0.32
LONGEST = 24  # characters of a name


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


def draw_box(ax: Axes, row: int, at: tuple[float, ...], colour: str) -> None:
    """Draw a box with its median and whiskers at five quantiles."""
    low, first, middle, third, high = at
    line: Any = {"color": PALETTE["text"], "zorder": 3, "solid_capstyle": "butt"}
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
    ax.plot(*edges, **line, linewidth=0.8)
    ax.plot([middle, middle], [row - HALF_BOX, row + HALF_BOX], **line, linewidth=2.0)
    for end, start in ((low, first), (high, third)):
        ax.plot([start, end], [row, row], **line, linewidth=0.8)
        ax.plot([end, end], [row - HALF_BOX / 2, row + HALF_BOX / 2], **line, linewidth=0.8)


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Write the names of rows beside them, the first on top."""
    ax.set_ylim(len(names) - 0.45, -0.55)
    ax.set_yticks(range(len(names)), [shortened(name, LONGEST) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def percent_axis(ax: Axes, axis: Any, reach: float) -> None:
    """Make an axis logarithmic either side of 0, with few ticks at powers of ten."""
    end = ROOM * max(reach, 2 * LINEAR)
    scale, limits = (
        (ax.set_xscale, ax.set_xlim) if axis is ax.xaxis else (ax.set_yscale, ax.set_ylim)
    )
    scale("symlog", linthresh=LINEAR, linscale=0.5)
    limits(-end, end)
    powers = [power for power in POWERS if power <= end]
    room = inches(ax)[0 if axis is ax.xaxis else 1]
    if room < 3.0 and len(powers) > 2:  # before names of rows take their part of it
        powers = powers[1:]
    ticks = [*(-power for power in reversed(powers)), 0.0, *powers]
    axis.set_ticks(
        ticks, labels=[f"{tick:+g}".replace("-", "−") if tick else "0" for tick in ticks]
    )
    axis.set_ticks([], minor=True)


def axis_name(ax: Axes, what: str) -> str:
    """Return what an axis of differences is called."""
    return f"{what}, %\n(← better)" if is_narrow(ax) else f"difference in {what}, %  (← better)"
