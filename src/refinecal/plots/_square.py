"""Probabilities against probabilities: the unit square, its diagonal, and a histogram below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal.plots.display import Floats
from refinecal.plots.style import THIN, inches

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import StepPatch

SIZE = (4.6, 4.6)  # inches of a new figure
EDGE = 0.02  # around the square, so that marks on its border are whole
GAP = 0.05  # between the square and the strip
STRIP = 0.16  # height of the strip
FILLED = 0.45  # how much of its colour shows in a cell of the strip
TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)
WIDE = 1.5  # times the height: wider axes become a square with room for a legend


def leaves_room(ax: Axes) -> bool:
    """Tell whether axes are wide enough for text next to the square."""
    width, height = inches(ax)
    return width > WIDE * height


def lay_out(
    ax: Axes, strip: bool, above: float, ticks: Sequence[float] = TICKS, name: str = "rows"
) -> None:
    """Draw the square with its diagonal, and the name of the histogram below it.

    ``above`` is room for text, as a fraction of the height of the axes.
    """
    low = -EDGE - strip * (GAP + STRIP)
    ax.set(xlim=(-EDGE, 1 + EDGE), ylim=(low, low + (1 + EDGE - low) / (1 - above)))
    names = [f"{tick:g}" for tick in ticks]
    ax.set_xticks(ticks, names)
    ax.set_yticks(ticks, names)
    ax.spines["left"].set_bounds(0, 1)
    ax.spines["bottom"].set_bounds(0, 1)
    ax.yaxis.label.set_y((0.5 - low) / (1 + EDGE - low) * (1 - above))
    if leaves_room(ax):
        ax.set_aspect("equal", adjustable="box", anchor=(0.3, 0.5))  # the key is on the right
    ax.plot([0, 1], [0, 1], zorder=1, linestyle="--", **THIN)
    if strip and name:  # as if it were a tick
        ax.set_yticks([-GAP - STRIP / 2, *ticks], [name, *names])
        ax.yaxis.get_major_ticks()[0].tick1line.set_visible(False)


def draw_strip(ax: Axes, histogram: Floats, largest: float, colour: str, filled: bool) -> StepPatch:
    """Draw a histogram of scores below the square; ``largest`` fills its height."""
    floor = -GAP - STRIP
    tops = floor + STRIP * histogram / largest
    edges = np.linspace(0, 1, len(histogram) + 1)
    look: dict[str, Any] = {"baseline": floor, "color": colour, "fill": filled}
    look |= {"alpha": FILLED, "linewidth": 0} if filled else {"linewidth": 1.0}
    return ax.stairs(tops, edges, zorder=2, **look)
