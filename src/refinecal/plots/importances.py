"""Importance of columns: dots with standard errors, by refinement and by log loss."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal._core.format import shorten_name
from refinecal.plots import style
from refinecal.plots.style import PALETTE, THIN, Display, add_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer

    from refinecal.evaluation import Importance

MOST = 20  # columns that are drawn
APART = 0.16  # of the rows, between the two dots of a column
TERMS = {"refinement": "refinement", "loss": "risk"}  # by colour


class ImportanceDisplay(Display):
    """How much the refinement error and the log loss rise when a column is shuffled.

    Parameters
    ----------
    found : Importance
        From :func:`refinecal.evaluation.permutation_importance`; at most 20 columns are drawn.
    """

    bars_: dict[str, ErrorbarContainer]

    def __init__(self, found: Importance) -> None:
        if not found.columns:
            raise ValueError("found has no columns: there is nothing to draw")
        self.columns = found.columns[:MOST]

    def _size(self) -> tuple[float, float]:
        return 7, 1.2 + 0.3 * len(self.columns)

    def _draw(self, ax: Axes) -> None:
        rows, self.bars_ = np.arange(len(self.columns)), {}
        for shift, (term, color) in zip((-APART, APART), TERMS.items(), strict=True):
            found = [getattr(each, term) for each in self.columns]
            look: Any = {"color": PALETTE[color], "fmt": "o", "markersize": 4, "elinewidth": 1.2}
            self.bars_[term] = ax.errorbar(
                [each.mean for each in found],
                rows + shift,
                xerr=[each.standard_error for each in found],
                label={"loss": "log loss"}.get(term, term),
                **look,
            )
        ax.plot([0, 0], [-0.6, rows[-1] + 0.6], zorder=0.5, **THIN)
        style.name_rows(ax, [shorten_name(str(each.column), 18) for each in self.columns])
        above = style.lines_of(ax, 2.8) if style.is_narrow(ax) else 0.0
        ax.set_ylim(rows[-1] + 0.6, -0.6 - above / (1 - above) * (len(rows) + 0.2))
        ax.set_xticks(style.round_ticks(*ax.get_xlim(), 4))
        ax.set_xlabel("rise when the column is shuffled")
        add_key(ax, list(self.bars_.values()), beside=not style.is_narrow(ax))
