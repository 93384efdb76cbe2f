"""Figure 3 of the paper: early stopping by risk or by refinement, before and after calibration."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refinecal.plots import _steps, style
from refinecal.plots.style import PALETTE, THIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.text import Annotation

    from refinecal.stopping import RefinementMonitor

DOT_SIZE = 6.5


class EarlyStoppingDisplay(_steps.LossCurvesDisplay):
    """Two stopping rules: where each stops, and the risk there before and after calibration.

    An arrow at each of the two steps points from the risk to the risk after calibration, which is the
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
        The unit of a step, such as "round" or "epoch".

    Attributes
    ----------
    chosen : dict
        For "loss" and "refinement", the step chosen, the risk there, and the risk after calibration.
    gain : float
        Reduction of the risk after calibration by stopping on refinement.
    figure_, ax_, lines_, arrows_, texts_, legend_
        The figure, its axes and artists.

    Examples
    --------
    >>> display = EarlyStoppingDisplay([1, 2, 3], risk=[0.75, 0.5, 0.625], refinement=[0.5, 0.375, 0.25])
    >>> display.chosen["loss"], display.chosen["refinement"], display.gain
    ((2, 0.5, 0.375), (3, 0.625, 0.25), 0.125)
    """

    arrows_: dict[str, Annotation]
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
        super().__init__(steps, {"risk": risk, "refinement": refinement}, loss, step_name)
        raw = np.asarray(risk, dtype=np.float64)
        self.chosen = {
            "loss": self._choose("loss", by_loss, "risk", raw),
            "refinement": self._choose("refinement", by_refinement, "refinement", raw),
        }
        self.gain = self.chosen["loss"][2] - self.chosen["refinement"][2]

    def _choose(
        self, rule: str, given: int | None, curve: str, risk: Any
    ) -> tuple[int, float, float]:
        """Return the step given, else the best one; its risk, which may be infinite; its refinement."""
        step = _steps.check_step(f"by_{rule}", given, self.steps)
        row = _steps.find_lowest(self.curves[curve])
        if step is not None:
            row = int(np.searchsorted(self.steps, step))
        elif row is None:
            raise ValueError(f"no step can be chosen by {rule}: it is never finite")
        step, before = int(self.steps[row]), float(risk[row])
        after = float(self.curves["refinement"][row])
        if np.isnan(before) or np.isnan(after):
            raise ValueError(
                f"{self.step_name} {step}, chosen by {rule}, has no finite loss after calibration: choose "
                "another"
            )
        return step, before, after

    @classmethod
    def _read_choice(cls, monitor: RefinementMonitor) -> dict[str, Any]:
        best = monitor.bests.get("refinement")
        return {"by_refinement": None if best is None else best.step}

    def _draw(self, ax: Axes) -> None:
        """Draw both curves, and an arrow at each step chosen."""
        after = "risk after calibration (refinement)"
        self._draw_lines(ax, {"risk": "risk", "refinement": after})
        step, risk, _ = self.chosen["loss"]
        _, high = _steps.find_heights(self.steps, self.curves.values(), (step, risk))
        high = max([high, *(before for _, before, _ in self.chosen.values() if before < np.inf)])
        low = float(np.nanmin(list(self.curves.values())))
        low -= 0.08 * ((high - low) or 1.0)
        above = style.lines_of(ax, 4.8 if style.is_narrow(ax) else 2.8)
        _steps.set_axes(ax, self.steps, self.step_name, (low, high), above)
        ax.set_ylabel(style.loss_name(self.loss))
        _steps.cut_above(ax, self.lines_.values())
        self.arrows_ = {rule: self._draw_arrow(ax, rule) for rule in self.chosen}
        (first, _, level), (second, *_) = self.chosen["loss"], self.chosen["refinement"]
        look: Any = THIN | {"linestyle": ":", "zorder": 0.5}  # below it is the gain
        (self.lines_["gain"],) = ax.plot([first, second], [level, level], **look)
        self._write(ax)

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

    def _write(self, ax: Axes) -> None:
        """Write the legend above the curves, and next to it or below the choice of each rule."""
        self.legend_ = style.add_key(ax, [self.lines_["risk"], self.lines_["refinement"]])
        narrow = style.is_narrow(ax)
        place, first, verb = (0.0, 2.2, "") if narrow else (0.45, 0.0, "stopped ")
        self.texts_ = {}
        for line, (rule, (step, before, after)) in enumerate(self.chosen.items()):
            losses = f"{style.format_loss(before)} → {style.format_loss(after)}"
            text = f"{verb}by {rule}: {self.step_name} {step}, {losses}"
            self.texts_[rule] = style.write_line(ax, first + line, text, x=place)
