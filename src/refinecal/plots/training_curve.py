"""Figure 1 of the paper: risk, calibration and refinement during training, their smallest values marked."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._optional import needs_extra
from refinecal._text import shortened
from refinecal.stopping import RefinementMonitor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

# Okabe and Ito's colours, which colour-blind people tell apart, nearest to those of the paper.
COLOURS = {"risk": "#009E73", "refinement": "#D55E00", "calibration": "#0072B2"}
AXIS_NAMES = {"log": "log loss", "brier": "Brier score"}
MOST_DOTS = 30  # so many steps can be told apart as dots
DOT_SIZE = 7
CHOSEN = "0.35"  # a grey that is read on white and stays behind the curves
CROP = 3.0  # the first steps may leave the picture above this many times the smallest risk
ROOM = 1.6  # inches for the labels, right of the curves
GAP = 0.13  # between labels, as a part of the height: they have two lines
HEADROOM = 0.1  # above the curves for what is written there, as a part of the height


class TrainingCurveDisplay:
    """Risk, calibration and refinement against steps.

    Made by :meth:`from_monitor` or ``RefinementMonitor.plot()``.

    Parameters
    ----------
    steps : array-like of int
        The number of each step, increasing.
    risk, calibration, refinement : array-like of float
        Their values; NaN and infinite ones leave a gap.
    loss : str, default "log"
        The name of the loss, for the axis.
    chosen : int, optional
        The step that was chosen, to be marked.
    chosen_by : str, default "refinement"
        The metric that chose it.

    Attributes
    ----------
    curves : dict
        The three curves by name, as arrays.
    smallest : dict
        For each curve by name, the step where it is smallest, and its value there. A curve that is never
        finite is left out.
    figure_, ax_ : Figure, Axes
        Where it was drawn.
    lines_, marks_, texts_ : dict
        The lines, the dots where they are lowest, and their labels, by name; the line and label of the step
        that was chosen are called "chosen".

    Examples
    --------
    >>> display = TrainingCurveDisplay(
    ...     [1, 2, 3], risk=[0.7, 0.5, 0.6], calibration=[0.2, 0.1, 0.3], refinement=[0.5, 0.4, 0.3]
    ... )
    >>> display.smallest["risk"], display.smallest["refinement"]
    ((2, 0.5), (3, 0.3))
    >>> display.plot().figure_.savefig("curve.png")  # doctest: +SKIP
    """

    figure_: Figure
    ax_: Axes
    lines_: dict[str, Line2D]
    marks_: dict[str, Line2D]
    texts_: dict[str, Text]

    def __init__(
        self,
        steps: ArrayLike,
        *,
        risk: ArrayLike,
        calibration: ArrayLike,
        refinement: ArrayLike,
        loss: str = "log",
        chosen: int | None = None,
        chosen_by: str = "refinement",
    ) -> None:
        self.steps = np.asarray(steps, dtype=np.int64)
        given = {"risk": risk, "refinement": refinement, "calibration": calibration}
        self.curves = {name: self._check(name, values) for name, values in given.items()}
        self.loss = loss
        self.chosen, self.chosen_by = chosen, chosen_by
        self.smallest = {
            name: (int(self.steps[at]), float(self.curves[name][at]))
            for name in self.curves
            if (at := _argmin(self.curves[name])) is not None
        }

    def _check(self, name: str, given: ArrayLike) -> NDArray[np.float64]:
        """Return one value per step, NaN where it is not finite."""
        values = np.asarray(given, dtype=np.float64)
        if values.shape != self.steps.shape:
            raise ValueError(
                f"{name} has shape {values.shape}, but steps has {self.steps.shape}: pass one value per "
                "step"
            )
        return np.where(np.isfinite(values), values, np.nan)

    @classmethod
    def from_monitor(cls, monitor: RefinementMonitor, ax: Axes | None = None) -> Self:
        """Draw what a monitor has seen, and mark the step that it chose.

        Parameters
        ----------
        monitor : RefinementMonitor
            After one step at least.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        TrainingCurveDisplay
        """
        if not monitor.history:
            raise ValueError("the monitor has seen no step yet: call update before plot")
        columns = ("risk", "calibration", "refinement")
        given: dict[str, Any] = {
            name: [record[name] for record in monitor.history] for name in columns
        }
        given |= {"chosen": monitor.best_step, "chosen_by": monitor.metric.name}
        steps = [record["step"] for record in monitor.history]
        return cls(steps, **given, loss=monitor.loss.name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        self
        """
        if ax is None:
            with needs_extra("plot", package="matplotlib"):
                import matplotlib.pyplot as plt
            ax = plt.subplots(figsize=(7, 4.2), layout="constrained")[1]
        self.ax_, self.figure_ = ax, cast("Figure", ax.get_figure(root=True))
        self._draw_curves(ax)
        self._set_limits(ax)
        self._write_labels(ax)
        return self

    def _draw_curves(self, ax: Axes) -> None:
        dot = "." if len(self.steps) <= MOST_DOTS else ""
        ax.fill_between(
            self.steps,
            self.curves["refinement"],
            self.curves["risk"],  # above refinement by the calibration error
            color=COLOURS["calibration"],
            alpha=0.12,
            linewidth=0,
        )
        self.lines_, self.marks_ = {}, {}
        for name, values in self.curves.items():
            look: dict[str, Any] = {"color": COLOURS[name], "label": name, "marker": dot}
            (self.lines_[name],) = ax.plot(self.steps, values, **look)
        for name, (step, value) in self.smallest.items():
            look = {"color": COLOURS[name], "markersize": DOT_SIZE, "clip_on": False}
            if name == "refinement" and self.smallest.get("risk") == (step, value):
                look |= {
                    "fillstyle": "right",
                    "markerfacecoloralt": COLOURS["risk"],
                }  # a half for each
            (self.marks_[name],) = ax.plot(step, value, "o", markeredgewidth=0, **look)

    def _set_limits(self, ax: Axes) -> None:
        """Leave room for labels right of the last step, and none for the heights of the first steps."""
        first, last = int(self.steps[0]), int(self.steps[-1])
        width, (low, high) = max(last - first, 1), self._heights()
        inches = ax.get_window_extent().width / self.figure_.dpi
        room = ROOM / max(inches - ROOM, ROOM)  # as a part of the width of the curves
        ax.set_xlim(first - 0.03 * width, last + room * width)
        above = 0.03 if self.chosen is None else HEADROOM
        ax.set_ylim(low - 0.03 * (high - low), high + above * (high - low))
        ax.set_xticks(_whole_ticks(first, last))
        ax.spines["bottom"].set_bounds(first - 0.03 * width, last)
        ax.spines[["top", "right"]].set_visible(False)

    def _heights(self) -> tuple[float, float]:
        """Return the lowest and highest value to show."""
        main = self.smallest.get("risk") or self.smallest.get("refinement")
        if main is None:
            return 0.0, 1.0
        values = np.array(list(self.curves.values()))
        late = np.nanmax(values[:, self.steps >= main[0]])
        high = min(np.nanmax(values), max(late, CROP * main[1]))
        return min(0.0, np.nanmin(values)), float(high) or 1.0

    def _write_labels(self, ax: Axes) -> None:
        """Write each curve's name beside its end, and the step where it is lowest."""
        left, right = ax.get_xlim()
        middle = (self.steps[0] + self.steps[-1]) / 2
        ax.set_xlabel("step", x=(middle - left) / (right - left))
        ax.set_ylabel(AXIS_NAMES.get(self.loss, f"{self.loss} loss"))
        ends = {
            name: _last(values) for name, values in self.curves.items() if name in self.smallest
        }
        self.texts_ = {}
        for name, height in _apart(ends, ax.get_ylim()[0], self._top(ax)).items():
            step, value = self.smallest[name]
            self.texts_[name] = ax.annotate(
                f"{name}\nmin {round(value, 4) + 0.0:.4f} at step {step}",  # never -0.0000
                (self.steps[-1], height),
                xytext=(10, 0),
                textcoords="offset points",
                verticalalignment="center",
                color=COLOURS[name],
                fontsize="small",
            )
        if self.chosen is not None:
            self._mark_chosen(ax, self.chosen)

    def _top(self, ax: Axes) -> float:
        """Return the height above which only the chosen step is named."""
        low, high = ax.get_ylim()
        return high if self.chosen is None else high - 0.6 * HEADROOM * (high - low)

    def _mark_chosen(self, ax: Axes, step: int) -> None:
        """Draw a thin line at the chosen step, and write above the curves what chose it."""
        low, top = ax.get_ylim()[0], self._top(ax)
        look: dict[str, Any] = {"color": CHOSEN, "linewidth": 0.8, "zorder": 0.5}
        (self.lines_["chosen"],) = ax.plot([step, step], [low, top], **look)
        place = (step - self.steps[0]) / max(self.steps[-1] - self.steps[0], 1)
        self.texts_["chosen"] = ax.annotate(
            f"step {step}, chosen by {shortened(self.chosen_by, 20)}",
            (step, top),
            xytext=(0, 2),
            textcoords="offset points",
            horizontalalignment="left" if place < 0.3 else "right" if place > 0.7 else "center",
            color=CHOSEN,
            fontsize="small",
        )


def _argmin(values: NDArray[np.float64]) -> int | None:
    """Return where the smallest number is, the first of several; ``None`` if all are NaN."""
    return None if np.isnan(values).all() else int(np.nanargmin(values))


def _last(values: NDArray[np.float64]) -> float:
    """Return the last number that is not NaN."""
    return float(values[~np.isnan(values)][-1])


def _whole_ticks(first: int, last: int) -> list[int]:
    from matplotlib.ticker import MaxNLocator

    if first == last:
        return [first]
    ticks = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=True).tick_values(first, last)
    return [int(tick) for tick in ticks if first <= tick <= last]


def _apart(heights: dict[str, float], low: float, high: float) -> dict[str, float]:
    """Return heights for labels that overlap neither each other nor the ends of the axis."""
    gap = GAP * (high - low)
    names = list(heights)[::-1]  # so that refinement stays below a risk that equals it
    names.sort(key=lambda name: heights[name])
    found: dict[str, float] = {}
    below = low - gap / 2
    for name in names:
        found[name] = below = max(heights[name], below + gap)
    above = high + gap / 2
    for name in reversed(names):
        found[name] = above = min(found[name], above - gap)
    return found
