"""Figure 1 of the paper: risk, calibration and refinement during training, with their minima."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import ArrayLike

from refinecal._core.format import shorten_name
from refinecal.plots import _steps, style
from refinecal.plots.style import PALETTE, THIN

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from refinecal.stopping import RefinementMonitor

DOT_SIZE = 7
ROOM = 1.6  # inches for the labels, right of the curves


class TrainingCurveDisplay(_steps.LossCurvesDisplay):
    """Risk, calibration and refinement against steps.

    Create it with :meth:`from_monitor` or ``RefinementMonitor.plot()``.

    Parameters
    ----------
    steps : array-like of int
        The number of each step, increasing; at least one.
    risk, calibration, refinement : array-like of float
        Their values; NaN and infinite ones leave a gap.
    loss : str, default "log"
        The name of the loss, for the axis.
    chosen : int, optional
        The chosen step, which is marked.
    chosen_by : str, default "refinement"
        The metric that chose it.
    step_name : str, default "step"
        The unit of a step, such as "round" or "epoch".

    Attributes
    ----------
    curves : dict
        The three curves by name, as arrays.
    smallest : dict
        By the name of the curve, the step of its minimum and its value there; only for curves with finite
        values.
    figure_, ax_, lines_, marks_, texts_
        The figure, its axes; the curves, dots at their minima and labels, by name. The line and label of
        the chosen step are called "chosen".

    Examples
    --------
    >>> display = TrainingCurveDisplay(
    ...     [1, 2, 3], risk=[0.7, 0.5, 0.6], calibration=[0.2, 0.1, 0.3], refinement=[0.5, 0.4, 0.3]
    ... )
    >>> display.smallest["risk"], display.smallest["refinement"]
    ((2, 0.5), (3, 0.3))
    >>> display.plot().figure_.savefig("curve.png")  # doctest: +SKIP
    """

    marks_: dict[str, Line2D]

    _terms: ClassVar = ("risk", "refinement", "calibration")

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
        step_name: str = "step",
    ) -> None:
        curves = {"risk": risk, "refinement": refinement, "calibration": calibration}
        super().__init__(steps, curves, loss, step_name)
        self.chosen = _steps.check_step("chosen", chosen, self.steps)
        self.chosen_by = chosen_by
        self.smallest = {
            name: (int(self.steps[at]), float(self.curves[name][at]))
            for name in self.curves
            if (at := _steps.find_lowest(self.curves[name])) is not None
        }

    @classmethod
    def _read_choice(cls, monitor: RefinementMonitor) -> dict[str, Any]:
        return {"chosen": monitor.best_step, "chosen_by": monitor.metric.name}

    def _draw(self, ax: Axes) -> None:
        shade = self._draw_curves(ax)
        self._set_limits(ax)
        _steps.cut_above(ax, [shade, *self.lines_.values()])
        self._write_labels(ax)

    def _draw_curves(self, ax: Axes) -> Artist:
        """Draw the curves and their minima; return the shade between risk and refinement."""
        ends = self.curves["refinement"], self.curves["risk"]  # apart by the calibration error
        shade = ax.fill_between(self.steps, *ends, **style.tint("calibration", 0.12))
        self._draw_lines(ax, {name: name for name in self.curves})
        self.marks_ = {}
        for name, (step, value) in self.smallest.items():
            look: Any = {"color": PALETTE[name], "markersize": DOT_SIZE, "markeredgewidth": 0}
            if name == "refinement" and self.smallest.get("risk") == (step, value):
                look |= {"fillstyle": "right", "markerfacecoloralt": PALETTE["risk"]}  # half each
            (self.marks_[name],) = ax.plot(step, value, "o", clip_on=False, **look)
        return shade

    def _set_limits(self, ax: Axes) -> None:
        """Leave room for the labels right of the last step; on narrow axes above the curves."""
        narrow, heights = style.is_narrow(ax), (0.0, 1.0)
        main = self.smallest.get("risk") or self.smallest.get("refinement")
        if main is not None:
            heights = _steps.find_heights(self.steps, self.curves.values(), main)
        above = 0.4 + (self.chosen is not None) + narrow * len(self.smallest)
        self._above = style.lines_of(ax, above)
        room = 0.0 if narrow else ROOM
        _steps.set_axes(ax, self.steps, self.step_name, heights, self._above, room)
        ax.set_ylabel(style.loss_name(self.loss))

    def _write_labels(self, ax: Axes) -> None:
        """Label each curve and its minimum: next to its end, or in lines above all curves."""
        labels = {
            name: f"{name}: min {style.format_loss(value)} at {self.step_name} {step}"
            for name, (step, value) in self.smallest.items()
        }
        top = None if style.is_narrow(ax) else self._top(ax)
        self.texts_ = _steps.label_curves(ax, self.steps[-1], self.curves, labels, top)
        if self.chosen is not None:
            self._mark_chosen(ax, self.chosen)

    def _top(self, ax: Axes) -> float:
        """Return the height above which only text is drawn."""
        low, high = ax.get_ylim()
        return high - (self._above - style.lines_of(ax, 0.4)) * (high - low)

    def _mark_chosen(self, ax: Axes, step: int) -> None:
        """Draw a thin line at the chosen step, with the metric that chose it above the curves."""
        low, top = ax.get_ylim()[0], self._top(ax)
        (self.lines_["chosen"],) = ax.plot([step, step], [low, top], zorder=0.5, **THIN)
        place = (step - self.steps[0]) / max(self.steps[-1] - self.steps[0], 1)
        side = "left" if place < 0.3 else "right" if place > 0.7 else "center"
        text = f"{self.step_name} {step}, chosen by {shorten_name(self.chosen_by, 20)}"
        self.texts_["chosen"] = style.write_near(ax, (step, top), text, (0, 2), "axis", ha=side)
