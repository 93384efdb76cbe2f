"""Relative differences against a property of the data sets: dots, and medians of neighbours."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.format import MINUS
from refinecal.plots.boxes import check_line, check_mask, set_percent
from refinecal.plots.style import PALETTE, THIN, Display, Floats, inches, log_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D

MOST = 1500  # dots that are drawn: of more, every second, third ... from left to right
LEAST = 8  # dots of which a median is drawn


class DependenceDisplay(Display):
    """Relative differences in percent against a property of the data sets, with medians of groups.

    Parameters
    ----------
    x : array-like
        Positive numbers, such as the rows of each data set; others are drawn at the left or right end. Of
        more than 1,500 dots, some are omitted; the medians are those of all.
    values : array-like
        The differences in percent; negative is better.
    x_name : str
        Label of the horizontal axis.
    what : str, default "test log loss"
        The quantity that differs, for the vertical axis.
    faint : array-like of bool, optional
        The dots to draw faintly.
    """

    dots_: PathCollection
    line_: Line2D | None

    def __init__(
        self,
        x: ArrayLike,
        values: ArrayLike,
        x_name: str,
        what: str = "test log loss",
        faint: ArrayLike | None = None,
    ) -> None:
        across, up = check_line("x", x), check_line("values", values)
        if across.shape != up.shape:
            raise ValueError(f"x has {across.size} numbers, but values {up.size}: pass one each")
        hidden = check_mask("faint", faint, up)
        kept = ~np.isnan(across) & np.isfinite(up)
        if not (kept & np.isfinite(across) & (across > 0)).any():
            raise ValueError("x holds no positive number with a value: there is nothing to draw")
        self.x, self.values, self._faint = across[kept], up[kept], hidden[kept]
        self.x_name, self.what = x_name, what
        self.medians = _find_medians(self.x, self.values)

    def _size(self) -> tuple[float, float]:
        return 7, 4

    def _draw(self, ax: Axes) -> None:
        set_percent(ax, ax.yaxis, float(np.abs(self.values).max()))
        proper = self.x[np.isfinite(self.x) & (self.x > 0)]
        low, high = float(proper.min()), float(proper.max())
        ax.set_xscale("log")
        margin = (high / low) ** 0.06 if high > 1.0001 * low else 2.0
        ax.set_xlim(low / margin, high * margin)
        _set_ticks(ax, low / margin, high * margin)
        ax.axhline(0, zorder=1, **THIN)
        some = np.argsort(self.x, kind="stable")[:: -(-len(self.x) // MOST)]
        size, faint, clear = (8, 0.22, 0.4) if len(some) >= 200 else (16, 0.35, 0.75)
        alpha: Any = np.where(self._faint[some], faint, clear)
        dot: Any = {"s": size, "color": PALETTE["refinement"], "alpha": alpha, "linewidths": 0}
        self.dots_ = ax.scatter(
            np.clip(self.x[some], low, high), self.values[some], zorder=2, **dot
        )
        self.line_ = None
        if self.medians[0].size:
            look: Any = {"color": PALETTE["text"], "linewidth": 1.6, "zorder": 3}
            (self.line_,) = ax.plot(*self.medians, **look, marker="o", markersize=3)
        ax.set_xlabel(self.x_name)
        ax.set_ylabel(f"difference in {self.what}, %")


def _set_ticks(ax: Axes, low: float, high: float) -> None:
    """Put ticks at 1, 2 and 5 times powers of ten, or fewer if there are many."""
    for steps in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        ticks = log_ticks(low, high, steps)
        if len(ticks) <= max(2, inches(ax)[0] / 0.75):
            break
    ticks = ticks[:: max(1, -(-len(ticks) // 6))]
    ax.set_xticks(ticks, [_tick_label(tick) for tick in ticks])
    ax.minorticks_off()


def _tick_label(tick: float) -> str:
    """Return a tick in few letters.

    >>> _tick_label(20000.0), _tick_label(0.001), _tick_label(1e-6)
    ('20k', '0.001', '1e−6')
    """
    if 1000 <= tick < 1e6:
        return f"{tick / 1000:g}k"
    return f"{tick:g}".replace("e-0", f"e{MINUS}").replace("e+0", "e")


def _find_medians(x: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return medians of groups of neighbours, of eight dots at least and at most ten groups."""
    groups = min(10, len(x) // LEAST)
    if groups < 2:
        return np.empty(0), np.empty(0)
    parts = np.array_split(np.argsort(x, kind="stable"), groups)
    inside = np.clip(x, x[x > 0].min(), x[np.isfinite(x)].max())
    return (
        np.array([np.median(inside[part]) for part in parts]),
        np.array([np.median(values[part]) for part in parts]),
    )
