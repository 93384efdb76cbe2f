"""The metric of an ensemble after each pick."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.format import shorten_name
from refinecal.plots import _steps, style
from refinecal.plots.style import PALETTE, THIN, Display, check_floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation

    from refinecal.ensembles import SelectedEnsemble

MOST_NAMES = 4  # of the first picks that are written
LONGEST = 18  # letters of a name
MANY = 14  # picks, from where names need no room to the right
ROOM = 1.6  # inches
LABELS = {"values": "on the rows that choose", "cv_values": "by cross-validation"}
COLORS = {"values": "before", "cv_values": "refinement"}


class EnsemblePathDisplay(Display):
    """The metric of a pool after each pick, on the rows that choose and by cross-validation.

    Parameters
    ----------
    values : array-like of float
        The metric after each pick.
    cv_values : array-like of float, optional
        The same by cross-validation; NaN leaves a gap.
    names : sequence of str, optional
        The member picked each time; the first are written as far as there is room.
    n_used : int, optional
        How many picks the ensemble uses; marked by a line.
    metric : str, default "refinement"
        The name of the metric, for the axis.

    Attributes
    ----------
    figure_, ax_, lines_, texts_, legend_
        The figure, its axes and artists.

    Examples
    --------
    >>> display = EnsemblePathDisplay([0.5, 0.4, 0.39], [0.5, 0.42, 0.43], ["a", "b", "a"], n_used=2)
    >>> display.curves["cv_values"].tolist()
    [0.5, 0.42, 0.43]
    """

    lines_: dict[str, Line2D]
    texts_: list[Annotation]
    legend_: Legend

    def __init__(
        self,
        values: ArrayLike,
        cv_values: ArrayLike | None = None,
        names: Any = (),
        *,
        n_used: int | None = None,
        metric: str = "refinement",
    ) -> None:
        first = check_floats("values", values, (None,), ": pass one value per pick")
        if not first.size:
            raise ValueError("values is empty: pass the metric after at least one pick")
        second = np.full(first.shape, np.nan) if cv_values is None else cv_values
        wanted = f", but values has {first.shape}: pass one value per pick"
        self.curves = {
            "values": first,
            "cv_values": check_floats("cv_values", second, first.shape, wanted),
        }
        self.names, self.n_used, self.metric = list(names), n_used, metric

    @classmethod
    def from_ensemble(cls, ensemble: SelectedEnsemble, ax: Axes | None = None) -> Self:
        """Draw the path of a selected ensemble.

        Parameters
        ----------
        ensemble : SelectedEnsemble
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        """
        return cls.of(ensemble).plot(ax)

    @classmethod
    def of(cls, ensemble: SelectedEnsemble) -> Self:
        """Return the path of a selected ensemble, not drawn yet."""
        path = ensemble.path
        return cls(
            [step["value"] for step in path],
            [step["cv_value"] for step in path],
            [step["member"] for step in path],
            n_used=sum(step["used"] for step in path) or None,
            metric=ensemble.metric,
        )

    def _draw(self, ax: Axes) -> None:
        picks = np.arange(1, len(self.curves["values"]) + 1)
        shown = {name: each for name, each in self.curves.items() if np.isfinite(each).any()}
        self.lines_ = {
            name: ax.plot(picks, each, marker=".", color=PALETTE[COLORS[name]], label=LABELS[name])[
                0
            ]
            for name, each in shown.items()
        }
        every = np.concatenate([each[np.isfinite(each)] for each in shown.values()])
        low, high = float(every.min()), float(every.max())
        margin = 0.06 * ((high - low) or abs(high) or 1.0)
        above = style.lines_of(ax, 1.4 * len(shown) + 1)
        room, heights = ROOM if len(picks) < MANY else 0.0, (low - margin, high + margin)
        _steps.set_axes(ax, picks, "picks", heights, above, room)
        ax.set_ylabel(self.metric)
        self.legend_ = style.add_key(ax, list(self.lines_.values()))
        if self.n_used is not None:
            used: Any = THIN | {"linestyle": ":", "zorder": 0.5}
            heights = ax.spines["left"].get_bounds()
            (self.lines_["used"],) = ax.plot([self.n_used, self.n_used], heights, **used)
        self._write_names(ax, np.fmax(*self.curves.values()))

    def _write_names(self, ax: Axes, heights: Any) -> None:
        """Write the first members that are picked, unless their names would overlap."""
        low, high = ax.get_ylim()
        line = style.lines_of(ax, 1.1) * (high - low)
        self.texts_ = []
        last = np.inf
        for pick, (name, height) in enumerate(zip(self.names, heights, strict=False), 1):
            if len(self.texts_) < MOST_NAMES and last - height > line:
                text = shorten_name(name, LONGEST)
                self.texts_.append(style.write_near(ax, (pick, height), text, (6, 4)))
                last = height
