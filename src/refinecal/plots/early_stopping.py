"""Figure 3 of the paper: stopping by risk or by refinement, before and after calibration."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from refinecal.plots._curves import (
    Floats,
    Steps,
    check_curve,
    check_step,
    check_steps,
    cut_above,
    heights,
    line_look,
    lowest,
    set_heights,
    set_steps,
)
from refinecal.plots._style import (
    PALETTE,
    decimals,
    dressed,
    is_narrow,
    key,
    lines_of,
    loss_name,
    new_axes,
    sizes,
)
from refinecal.stopping import RefinementMonitor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation, Text

DOT_SIZE = 6.5


class EarlyStoppingDisplay:
    """Two rules of stopping: where each stops, and what calibration makes of the risk there.

    At each of the two steps an arrow leads from the risk to the risk after calibration, which is the
    refinement error.

    Parameters
    ----------
    steps : array-like of int
        The number of each step, increasing.
    risk, refinement : array-like of float
        The loss before and after calibration; NaN and infinite values leave a gap. After calibration it
        must be finite at the steps chosen.
    by_loss, by_refinement : int, optional
        The steps chosen; by default where the two are smallest.
    loss : str, default "log"
        The name of the loss, for the axis.
    step_name : str, default "step"
        What a step is: "round", "epoch" ...

    Attributes
    ----------
    chosen : dict
        For "loss" and "refinement", the step chosen, the risk there, and the risk after calibration.
    gain : float
        By how much refinement-based stopping leaves less risk after calibration.
    figure_, ax_, lines_, arrows_, texts_, legend_
        What was drawn.

    Examples
    --------
    >>> display = EarlyStoppingDisplay([1, 2, 3], risk=[0.75, 0.5, 0.625], refinement=[0.5, 0.375, 0.25])
    >>> display.chosen["loss"], display.chosen["refinement"], display.gain
    ((2, 0.5, 0.375), (3, 0.625, 0.25), 0.125)
    """

    figure_: Figure
    ax_: Axes
    lines_: dict[str, Line2D]
    arrows_: dict[str, Annotation]
    texts_: dict[str, Text]
    legend_: Legend

    def __init__(
        self,
        steps: ArrayLike,
        *,
        risk: ArrayLike,
        refinement: ArrayLike,
        by_loss: int | None = None,
        by_refinement: int | None = None,
        loss: str = "log",
        step_name: str = "step",
    ) -> None:
        self.steps = check_steps(steps)
        self.curves = {
            "risk": check_curve("risk", risk, self.steps),
            "refinement": check_curve("refinement", refinement, self.steps),
        }
        self.loss, self.step_name = loss, step_name
        raw = np.asarray(risk, dtype=np.float64)
        given = {"loss": ("by_loss", by_loss), "refinement": ("by_refinement", by_refinement)}
        self.chosen = {
            rule: self._at(rule, _choice(*given[rule], self.curves[name], self.steps), raw)
            for rule, name in (("loss", "risk"), ("refinement", "refinement"))
        }
        self.gain = self.chosen["loss"][2] - self.chosen["refinement"][2]

    def _at(self, rule: str, step: int, risk: Floats) -> tuple[int, float, float]:
        """Return a step with its risk, which may be infinite, and its refinement, which may not."""
        row = int(np.searchsorted(self.steps, step))
        before, after = float(risk[row]), float(self.curves["refinement"][row])
        if np.isnan(before) or np.isnan(after):
            raise ValueError(
                f"{self.step_name} {step}, chosen by {rule}, has no finite loss after calibration: choose "
                "another"
            )
        return step, before, after

    @classmethod
    def from_monitor(
        cls, monitor: RefinementMonitor, ax: Axes | None = None, *, step_name: str = "step"
    ) -> Self:
        """Draw both rules for what a monitor has seen.

        Parameters
        ----------
        monitor : RefinementMonitor
            After one step at least; whatever metric it follows.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        step_name : str, default "step"
            What a step is.

        Returns
        -------
        EarlyStoppingDisplay
        """
        if not monitor.history:
            raise ValueError("the monitor has seen no step yet: call update before plot")
        columns = {
            name: [record[name] for record in monitor.history]
            for name in ("step", "risk", "refinement")
        }
        best = monitor.bests.get("refinement")
        return cls(
            columns["step"],
            risk=columns["risk"],
            refinement=columns["refinement"],
            by_refinement=None if best is None else best.step,
            loss=monitor.loss.name,
            step_name=step_name,
        ).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw both curves, and an arrow at each step chosen.

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
        self.lines_ = {}
        for name, values in self.curves.items():
            look = line_look(self.steps, PALETTE[name])
            label = "risk" if name == "risk" else "risk after calibration (refinement)"
            (self.lines_[name],) = ax.plot(self.steps, values, label=label, **look)
        self._set_limits(ax)
        cut_above(ax, self.lines_.values())
        self.arrows_ = {rule: self._draw_arrow(ax, rule) for rule in self.chosen}
        self._draw_gain(ax)
        self._write(ax)
        return self

    def _set_limits(self, ax: Axes) -> None:
        set_steps(ax, self.steps, self.step_name)
        step, risk, _ = self.chosen["loss"]
        _, high = heights(self.steps, self.curves.values(), (step, risk))
        high = max([high, *(before for _, before, _ in self.chosen.values() if before < np.inf)])
        low = float(np.nanmin(list(self.curves.values())))
        set_heights(
            ax,
            low - 0.08 * ((high - low) or 1.0),
            high,
            lines_of(ax, 4.8 if is_narrow(ax) else 2.8),
        )
        ax.set_ylabel(loss_name(self.loss))

    def _draw_arrow(self, ax: Axes, rule: str) -> Annotation:
        """Draw what calibration does at the step chosen by this rule."""
        step, before, after = self.chosen[rule]
        look: dict[str, Any] = {"markersize": DOT_SIZE, "markeredgewidth": 0, "clip_on": False}
        if before == np.inf:  # comes from above the picture
            before = ax.spines["left"].get_bounds()[1]
        else:
            ax.plot(step, before, "o", color=PALETTE["risk"], **look)
        ax.plot(step, after, "o", color=PALETTE["refinement"], **look)
        arrow = {"arrowstyle": "-|>", "color": PALETTE["axis"], "shrinkA": 4, "shrinkB": 4}
        return ax.annotate("", (step, after), xytext=(step, before), arrowprops=arrow)

    def _draw_gain(self, ax: Axes) -> None:
        """Continue the level that loss-based stopping reaches, down to which the other has come further."""
        (first, _, level), (second, *_) = self.chosen["loss"], self.chosen["refinement"]
        look: dict[str, Any] = {"color": PALETTE["axis"], "linewidth": 0.8, "linestyle": ":"}
        (self.lines_["gain"],) = ax.plot([first, second], [level, level], zorder=0.5, **look)

    def _write(self, ax: Axes) -> None:
        """Write above the curves what they are, and beside or below that what each rule chose."""
        self.legend_ = key(ax, [self.lines_["risk"], self.lines_["refinement"]])
        self.texts_ = {}
        narrow = is_narrow(ax)
        said = "" if narrow else "stopped "
        for line, (rule, (step, before, after)) in enumerate(self.chosen.items()):
            self.texts_[rule] = ax.text(
                0.0 if narrow else 0.45,
                1 - lines_of(ax, line + (2.2 if narrow else 0.0)),
                f"{said}by {rule}: {self.step_name} {step}, {decimals(before)} → {decimals(after)}",
                transform=ax.transAxes,
                verticalalignment="top",
                color=PALETTE["text"],
                fontsize=sizes(ax)[1],
            )


def _choice(name: str, given: int | None, values: Floats, steps: Steps) -> int:
    """Return the step that was given, else the one where the curve is lowest."""
    step = check_step(name, given, steps)
    if step is not None:
        return int(step)
    at = lowest(values)
    if at is None:
        raise ValueError(
            f"no step can be chosen {name.replace('_', ' ')}: there it is never finite"
        )
    return int(steps[at])
