"""Figure 1 of the paper: risk, calibration and refinement during training, their smallest values marked."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from refinecal._core.format import shortened
from refinecal.plots._curves import (
    apart,
    check_curve,
    check_step,
    check_steps,
    cut_above,
    heights,
    last,
    line_look,
    lowest,
    set_heights,
    set_steps,
)
from refinecal.plots._style import (
    PALETTE,
    decimals,
    dressed,
    inches,
    is_narrow,
    lines_of,
    loss_name,
    new_axes,
    sizes,
)
from refinecal.stopping import RefinementMonitor

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

DOT_SIZE = 7
ROOM = 1.6  # inches for the labels, right of the curves
GAP = 2.3  # lines from label to label: each has two


class TrainingCurveDisplay:
    """Risk, calibration and refinement against steps.

    Made by :meth:`from_monitor` or ``RefinementMonitor.plot()``.

    Parameters
    ----------
    steps : array-like of int
        The number of each step, increasing; one at least.
    risk, calibration, refinement : array-like of float
        Their values; NaN and infinite ones leave a gap.
    loss : str, default "log"
        The name of the loss, for the axis.
    chosen : int, optional
        The step that was chosen, to be marked.
    chosen_by : str, default "refinement"
        The metric that chose it.
    step_name : str, default "step"
        What a step is: "round", "epoch" ...

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
        step_name: str = "step",
    ) -> None:
        self.steps = check_steps(steps)
        given = {"risk": risk, "refinement": refinement, "calibration": calibration}
        self.curves = {name: check_curve(name, given[name], self.steps) for name in given}
        self.loss, self.step_name = loss, step_name
        self.chosen = check_step("chosen", chosen, self.steps)
        self.chosen_by = chosen_by
        self.smallest = {
            name: (int(self.steps[at]), float(self.curves[name][at]))
            for name in self.curves
            if (at := lowest(self.curves[name])) is not None
        }

    @classmethod
    def from_monitor(
        cls, monitor: RefinementMonitor, ax: Axes | None = None, *, step_name: str = "step"
    ) -> Self:
        """Draw what a monitor has seen, and mark the step that it chose.

        Parameters
        ----------
        monitor : RefinementMonitor
            After one step at least.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        step_name : str, default "step"
            What a step is: "round", "epoch" ...

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
        return cls(steps, **given, loss=monitor.loss.name, step_name=step_name).plot(ax)

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
        self.ax_ = ax = new_axes((7, 4.2)) if ax is None else ax
        self.figure_ = dressed(ax)
        shade = self._draw_curves(ax)
        self._set_limits(ax)
        cut_above(ax, [shade, *self.lines_.values()])
        self._write_labels(ax)
        return self

    def _draw_curves(self, ax: Axes) -> Artist:
        """Draw the curves and their lowest points; return the shade between two of them."""
        shade = ax.fill_between(
            self.steps,
            self.curves["refinement"],
            self.curves["risk"],  # above refinement by the calibration error
            color=PALETTE["calibration"],
            alpha=0.12,
            linewidth=0,
        )
        self.lines_, self.marks_ = {}, {}
        for name, values in self.curves.items():
            look = line_look(self.steps, PALETTE[name])
            (self.lines_[name],) = ax.plot(self.steps, values, label=name, **look)
        for name, (step, value) in self.smallest.items():
            look = {"color": PALETTE[name], "markersize": DOT_SIZE, "clip_on": False}
            if name == "refinement" and self.smallest.get("risk") == (step, value):
                look |= {  # a half for each
                    "fillstyle": "right",
                    "markerfacecoloralt": PALETTE["risk"],
                }
            (self.marks_[name],) = ax.plot(step, value, "o", markeredgewidth=0, **look)
        return shade

    def _set_limits(self, ax: Axes) -> None:
        """Leave room for the labels right of the last step; on narrow axes above the curves."""
        width = inches(ax)[0]
        room = 0.0 if is_narrow(ax) else ROOM / max(width - ROOM, ROOM)
        set_steps(ax, self.steps, self.step_name, room)
        main = self.smallest.get("risk") or self.smallest.get("refinement")
        low, high = (0.0, 1.0) if main is None else heights(self.steps, self.curves.values(), main)
        self._above = lines_of(ax, self._lines(ax))
        set_heights(ax, low, high, self._above)
        ax.set_ylabel(loss_name(self.loss))

    def _lines(self, ax: Axes) -> float:
        """Return how many lines are written above the curves."""
        return 0.4 + (self.chosen is not None) + (len(self.smallest) if is_narrow(ax) else 0)

    def _write_labels(self, ax: Axes) -> None:
        self.texts_ = {}
        (self._label_above if is_narrow(ax) else self._label_ends)(ax)
        if self.chosen is not None:
            self._mark_chosen(ax, self.chosen)

    def _label(self, name: str, between: str) -> str:
        step, value = self.smallest[name]
        return f"{name}{between}min {decimals(value)} at {self.step_name} {step}"

    def _label_ends(self, ax: Axes) -> None:
        """Write each curve's name beside its end, and the step where it is lowest."""
        ends = {name: last(values) for name, values in self.curves.items() if name in self.smallest}
        low, high = ax.get_ylim()
        gap = lines_of(ax, GAP) * (high - low)
        for name, height in apart(ends, low, self._top(ax), gap).items():
            self.texts_[name] = ax.annotate(
                self._label(name, "\n"),
                (self.steps[-1], height),
                xytext=(10, 0),
                textcoords="offset points",
                verticalalignment="center",
                color=PALETTE[name],
                fontsize=sizes(ax)[1],
            )

    def _label_above(self, ax: Axes) -> None:
        """Write the same in lines above the curves."""
        for line, name in enumerate(self.smallest):
            self.texts_[name] = ax.text(
                0.03,
                1 - lines_of(ax, line),
                self._label(name, ": "),
                transform=ax.transAxes,
                verticalalignment="top",
                color=PALETTE[name],
                fontsize=sizes(ax)[1],
            )

    def _top(self, ax: Axes) -> float:
        """Return the height above which nothing but text is drawn."""
        low, high = ax.get_ylim()
        return high - (self._above - lines_of(ax, 0.4)) * (high - low)

    def _mark_chosen(self, ax: Axes, step: int) -> None:
        """Draw a thin line at the chosen step, and write above the curves what chose it."""
        low, top = ax.get_ylim()[0], self._top(ax)
        look: dict[str, Any] = {"color": PALETTE["axis"], "linewidth": 0.8, "zorder": 0.5}
        (self.lines_["chosen"],) = ax.plot([step, step], [low, top], **look)
        place = (step - self.steps[0]) / max(self.steps[-1] - self.steps[0], 1)
        self.texts_["chosen"] = ax.annotate(
            f"{self.step_name} {step}, chosen by {shortened(self.chosen_by, 20)}",
            (step, top),
            xytext=(0, 2),
            textcoords="offset points",
            horizontalalignment="left" if place < 0.3 else "right" if place > 0.7 else "center",
            color=PALETTE["axis"],
            fontsize=sizes(ax)[1],
        )
