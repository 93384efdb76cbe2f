"""Theory against measurement (paper, figure 7): curves above, deviations in standard errors below."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal.plots import style
from refinecal.plots.style import PALETTE, THIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from refinecal.theory.empirical import Check

NAMES = ("risk", "calibration", "refinement")
SMALL, LABEL = 8.0, 9.5  # font sizes in points: panels are small, the figure is not
DOTS: Any = {"color": PALETTE["text"], "marker": "o", "markersize": 3.2, "linestyle": "none"}
BAND, USUAL_BAND = style.tint("text", 0.18), style.tint("grid", 0.5)
POINTS = 201  # of theory's curve
USUAL = 2.0  # standard errors that contain 95% of deviations
LEAST = 3.0  # standard errors that the axis of deviations always shows


def draw_check(figure: Figure, found: Check) -> dict[str, list[Axes]]:
    """Draw three columns: risk, calibration and refinement.

    ``figure`` is empty, about 9 by 5 inches, and gets matplotlib's constrained layout. Returns the axes by
    row, "curves" and "deviations", from left to right.
    """
    figure.set_layout_engine("constrained")
    grid = figure.subplots(2, len(NAMES), height_ratios=[1, 0.5], sharex=True)
    rows = {"curves": list(grid[0]), "deviations": list(grid[1])}
    lams = np.geomspace(found.lam[0], found.lam[-1], POINTS)
    theory = found.predict(lams)
    for place, name in enumerate(NAMES):
        for row in rows.values():
            style.dress(row[place], (SMALL, SMALL))
        _draw_curve(rows["curves"][place], found, name, lams, getattr(theory, name))
        _draw_deviations(rows["deviations"][place], found, name)
    _set_axes(rows, found)
    _explain(figure, found)
    return rows


def _draw_curve(ax: Axes, found: Check, name: str, lams: Any, theory: Any) -> None:
    """Draw theory as a line, measured means as dots, and their 95% interval as a band."""
    ax.plot(lams, theory, color=PALETTE[name], linewidth=1.8, zorder=2)
    mean, margin = found.law.measured[name], found.law.margin[name]
    ax.fill_between(found.lam, mean - margin, mean + margin, zorder=1, **BAND)
    ax.plot(found.lam, mean, zorder=3, **DOTS)
    title = f"risk ({style.loss_name(found.theory.parts.loss)})" if name == "risk" else name
    style.write_title(ax, title, LABEL)
    if name == "calibration":
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))


def _draw_deviations(ax: Axes, found: Check, name: str) -> None:
    """Draw both kinds of deviations around 0."""
    ax.axhspan(-USUAL, USUAL, zorder=0, **USUAL_BAND)
    ax.axhline(0, zorder=1, **THIN)
    look: Any = {"color": PALETTE[name], "linewidth": 0.8}
    ax.plot(found.lam, found.law.deviation[name], **look, **_mark("law"))
    ax.plot(found.lam, found.draws.deviation[name], **look, **_mark("draws"))


def _mark(against: str) -> dict[str, Any]:
    """Return the marker of a comparison: filled for the one that decides."""
    if against == "draws":
        return {"marker": "o", "markersize": 3.2, "zorder": 3}
    return {"marker": "D", "markersize": 3.6, "markerfacecolor": PALETTE["paper"], "zorder": 2}


def _set_axes(rows: dict[str, list[Axes]], found: Check) -> None:
    each = [one.deviation[name] for one in found.comparisons.values() for name in NAMES]
    reach = max(LEAST, 1.1 * float(np.abs(each).max()))
    for place, ax in enumerate(rows["deviations"]):
        ax.set_ylim(-reach, reach)
        _set_ticks(ax, 4)
        ax.tick_params(labelleft=place == 0)
        ax.set_xlabel("regularization strength λ")
    powers = style.log_ticks(found.lam[0], found.lam[-1], [1])
    for ax in rows["curves"]:
        ax.set_xscale("log")
        ax.set_xticks(powers[:: max((len(powers) - 1) // 5, 1)] if len(powers) else found.lam[:1])
        ax.minorticks_off()
        _set_ticks(ax, 6)
    rows["curves"][0].set_ylabel(style.loss_name(found.theory.parts.loss))
    rows["deviations"][0].set_ylabel("deviation\n(standard errors)")


def _set_ticks(ax: Axes, most: int) -> None:
    """Put ticks at round values within the limits."""
    low, high = ax.get_ylim()
    ax.set_yticks(style.round_ticks(low, high, most))
    ax.set_ylim(low, high)


def _explain(figure: Figure, found: Check) -> None:
    """Add the legend, and a line about the data."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    neutral = PALETTE["before"]
    thin: Any = {"color": neutral, "linewidth": 0.8}
    handles = [  # by columns: marks of the curves on the first line, of the deviations on the second
        Line2D([], [], color=neutral, linewidth=1.8, label="theory (n → ∞)"),
        Line2D([], [], label="deviation from the theory of the law", **thin, **_mark("law")),
        Line2D([], [], label=f"measured: mean of {found.seeds} draws", **DOTS),
        Line2D([], [], label="deviation from the theory of each draw", **thin, **_mark("draws")),
        Patch(label="95% interval of the mean", **BAND),
        Patch(label="± 2 standard errors", **USUAL_BAND),
    ]
    style.add_legend(figure, handles, SMALL, ncols=3)
    figure.supxlabel(found.setting, fontsize=SMALL, color=PALETTE["axis"])
