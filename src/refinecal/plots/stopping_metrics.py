"""Stopping metrics compared: the loss at the step that each chose, before and after calibration."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.format import shorten_name
from refinecal.plots import style
from refinecal.plots.style import PALETTE, THIN, Display, check_floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

DOT_SIZE = 6.0
NUMBERS = 0.75  # inches to the right of the dots, for numbers
FAR = 3.0  # losses before calibration are off the chart if this many times farther than the median


class StoppingMetricsDisplay(Display):
    """A dot plot of losses, hollow before calibration and filled after; the best metric first.

    Parameters
    ----------
    names : sequence of str
        The metrics.
    steps : array-like of int
        The step that each metric chose.
    before, after : array-like of float
        The loss at that step on rows not used for choosing, before and after calibration. An infinite loss
        before calibration is drawn as an arrow.
    loss : str, default "log"
        The name of the loss, for the axis.
    errors : array-like of float, optional
        Standard errors of ``after``, drawn as bars of ± one standard error.
    step_name : str, default "step"
        The unit of a step, such as "round" or "epoch".

    Attributes
    ----------
    names, steps, before, after, errors
        As given, sorted by the loss after calibration.
    best : str
        The first name.
    figure_, ax_, before_, after_, texts_, legend_
        The figure, its axes, dots, labels by name ("... before" for a loss off the chart), and legend.

    Examples
    --------
    >>> display = StoppingMetricsDisplay(
    ...     ["log loss", "refinement"], steps=[12, 40], before=[0.5, 0.6], after=[0.45, 0.4]
    ... )
    >>> display.best, display.names
    ('refinement', ['refinement', 'log loss'])
    """

    before_: Line2D
    after_: Line2D
    texts_: dict[str, Text]
    legend_: Legend

    def __init__(
        self,
        names: Sequence[str],
        steps: ArrayLike,
        before: ArrayLike,
        after: ArrayLike,
        loss: str = "log",
        errors: ArrayLike | None = None,
        step_name: str = "step",
    ) -> None:
        given = [str(name) for name in names]
        if not given:
            raise ValueError("names is empty: pass at least one metric")
        if len(set(given)) < len(given):
            raise ValueError("names holds a metric twice: each must have one row")
        shape = (len(given),)
        wanted = f", but there are {len(given)} names: pass one value per metric"
        after = check_floats("after", after, shape, wanted)
        order = np.argsort(np.nan_to_num(after, nan=np.inf), kind="stable")
        self.names = [given[row] for row in order]
        self.steps = check_floats("steps", steps, shape, wanted)[order].astype(np.int64)
        self.before = check_floats("before", before, shape, wanted)[order]
        self.after = after[order]
        self.errors = None
        if errors is not None:
            self.errors = check_floats("errors", errors, shape, wanted)[order]
            if (self.errors < 0).any():
                raise ValueError(
                    f"errors holds {self.errors.min()}: standard errors are never negative"
                )
        if not np.isfinite(self.after[0]):
            raise ValueError("after is never finite: there is nothing to compare")
        self.best = self.names[0]
        self.loss, self.step_name = loss, step_name

    def _size(self) -> tuple[float, float]:
        return 7, 1.3 + 0.42 * len(self.names)

    def _draw(self, ax: Axes) -> None:
        self.texts_ = {}
        self._set_limits(ax)
        rows = np.arange(len(self.names))
        ax.plot([self.after[0]] * 2, [-0.5, rows[-1] + 0.5], linestyle=":", zorder=1, **THIN)
        self._draw_links(ax)
        if self.errors is not None:
            bars: Any = {"color": PALETTE["after"], "elinewidth": 1.2, "capsize": 2.5}
            ax.errorbar(self.after, rows, xerr=self.errors, fmt="none", zorder=2, **bars)
        dot: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": DOT_SIZE, "zorder": 3}
        shown = np.where(self.before <= self._right, self.before, np.nan)
        hollow: dict[str, Any] = {"color": PALETTE["before"], "markerfacecolor": PALETTE["paper"]}
        (self.before_,) = ax.plot(shown, rows, **dot, **hollow, label="before calibration")
        label = "after calibration"
        (self.after_,) = ax.plot(self.after, rows, **dot, color=PALETTE["after"], label=label)
        self._write(ax)

    def _set_limits(self, ax: Axes) -> None:
        """Leave room for numbers right of the dots, and for the key above them."""
        errors = np.zeros(len(self.names)) if self.errors is None else np.nan_to_num(self.errors)
        shown = np.concatenate([self.after - errors, self.after + errors])
        shown = shown[np.isfinite(shown)]
        before = sorted(self.before[np.isfinite(self.before)])
        if before:  # losses far above the others are off the chart
            usual = before[(len(before) - 1) // 2]
            far = max(usual + FAR * (usual - shown.min()), shown.max())
            shown = np.append(shown, [value for value in before if value <= far])
        low, high = float(shown.min()), float(shown.max())
        margin = 0.05 * ((high - low) or 1.0)
        self._left, self._right = low - margin, high + margin
        room = min(NUMBERS / style.inches(ax)[0], 0.4)
        ax.set_xlim(self._left, self._left + (self._right - self._left) / (1 - room))
        above = style.lines_of(ax, 2.8)
        rows = len(self.names)
        ax.set_ylim(rows - 0.4, -0.6 - above / (1 - above) * rows)

    def _draw_links(self, ax: Axes) -> None:
        """Join the two dots of each metric; an arrow points to a loss that is off the chart."""
        for row, (before, after) in enumerate(zip(self.before, self.after, strict=True)):
            if not np.isfinite(after) or np.isnan(before):
                continue
            ending = "-" if before <= self._right else "-|>"
            look = {"arrowstyle": ending, "color": PALETTE["before"], "shrinkA": 0, "shrinkB": 0}
            ends = (min(before, self._right), row), (after, row)
            ax.annotate("", *ends, arrowprops={**look, "linewidth": 1.0}, zorder=1)
            if before > self._right:
                place, name = (self._right, row), f"{self.names[row]} before"
                self.texts_[name] = style.write_near(
                    ax, place, style.format_loss(before), (-2, 3), "before", ha="right"
                )

    def _write(self, ax: Axes) -> None:
        for row, name in enumerate(self.names):
            place, text = (ax.get_xlim()[1], row), style.format_loss(self.after[row])
            look = {"ha": "right", "va": "center", "fontweight": "normal" if row else "bold"}
            self.texts_[name] = style.write_near(ax, place, text, (0, 0), **look)
        low, high = ax.get_ylim()
        roomy = 1 / (low - high) > style.lines_of(ax, 2.2)  # for two lines
        between, end = ("\n", "") if roomy else (" (", ")")
        choices = zip(self.names, self.steps, strict=True)
        texts = [f"{shorten_name(n, 18)}{between}{self.step_name} {at}{end}" for n, at in choices]
        style.name_rows(ax, texts)
        ax.get_yticklabels()[0].set_fontweight("bold")
        style.set_losses(ax, self._left, self._right, 4, self.loss)
        self.legend_ = style.add_key(ax, [self.before_, self.after_])
