"""The figures of the report of a tabular experiment: those of the paper's section 5 and appendix F."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refinecal._core.format import count
from refinecal.experiments.comparing import relative
from refinecal.experiments.tabular import table_analysis as words
from refinecal.experiments.tabular.differences import VERY_LOW, Procedure
from refinecal.experiments.tabular.procedures import REFERENCE, SMOOTH, TUNED
from refinecal.experiments.tabular.table_analysis import Analysis
from refinecal.plots.boxes import RelativeDifferencesDisplay, StoppingTimesDisplay
from refinecal.plots.dependence import DependenceDisplay
from refinecal.plots.style import draw_panels
from refinecal.report import Figure

BOXES = (
    "One dot per data set, faint where the log loss is very low. Boxes end at the quartiles, whiskers at the "
    "10% and 90% quantiles. Left of 0 is better than log loss + TS. The axis is logarithmic beyond 0.1% and "
    "ends at 100% either way. In parentheses, the number of sets if there are fewer: isotonic regression is "
    "for two classes."
)
DOTS = "below 0 refinement is better. The line joins medians of neighbors."
PROPERTIES = {"rise": "rise of the validation loss, %", "learning_rate": "learning rate"}
LEAST_RISE, MOST_RISE = 0.01, 1000.0  # percent: what is beyond is drawn there


def boxes(analysis: Analysis, method: str, score: str) -> Figure:
    """Return a method's relative differences to log loss + TS, default parameters next to tuned ones."""
    panels = {}
    for mode in analysis.modes(method):
        sets = count(len(analysis.compare(method, mode, REFERENCE).sets), "set")
        panels[f"{words.method_word(method, mode)} ({sets})"] = _box(analysis, method, mode, score)
    caption = BOXES
    if score in ("error", "auroc"):
        caption += " One temperature leaves the order of two classes as it is."
    if TUNED in analysis.modes(method):
        caption += f" {words.APART}"
    return _rows_figure(
        panels,
        f"{words.method_word(method)}: {words.SCORE_WORDS[score]} relative to log loss + TS",
        caption,
        "median {:+.2f}%",
    )


def _box(analysis: Analysis, method: str, mode: str, score: str) -> RelativeDifferencesDisplay:
    found = {
        one: analysis.compare(method, mode, one, REFERENCE, score)
        for one in analysis.procedures(method, mode, score)
    }
    reference = analysis.compare(method, mode, REFERENCE)
    low = {each.set for each in reference.sets if each.reference < VERY_LOW}
    names = {}
    for one, each in found.items():
        fewer = len(each.sets) < len(reference.sets)
        names[one] = words.procedure_word(one) + (f" ({len(each.sets)})" if fewer else "")
    return RelativeDifferencesDisplay(
        {names[one]: each.relative for one, each in found.items()},
        words.SCORE_WORDS[score],
        {names[one]: _color(one) for one in found},
        {names[one]: [on.set in low for on in each.sets] for one, each in found.items()},
    )


def _color(procedure: Procedure) -> str:
    if procedure[0].startswith("refinement"):
        return "refinement"
    return "risk" if procedure[0] == "log_loss" else "calibration"


def stopping(analysis: Analysis, method: str) -> Figure:
    """Return the steps that each metric chose."""
    panels = {}
    for mode in analysis.modes(method):
        steps, most = analysis.steps(method, mode), analysis.most_steps(method, mode)
        panels[words.method_word(method, mode)] = StoppingTimesDisplay(
            {words.METRIC_WORDS[metric]: each for metric, each in steps.items()},
            most,
            words.STEP_WORDS.get(method, "round"),
            {words.METRIC_WORDS[metric]: _color((metric, SMOOTH)) for metric in steps},
        )
    caption = "One dot per split of a data set. Boxes and whiskers as above."
    return _rows_figure(
        panels, f"{words.method_word(method)}: best steps by metric", caption, "{:.0f}"
    )


def _rows_figure(panels: Mapping[str, Any], title: str, caption: str, median: str) -> Figure:
    """Return boxes as a figure that is high enough for their names."""
    height = 0.75 + 0.27 * max(len(each.names) for each in panels.values())
    said = (
        f"{name}: "
        + ", ".join(f"{row} {median.format(at[2])}" for row, at in each.quantiles.items())
        for name, each in panels.items()
    )
    return Figure(
        lambda canvas: draw_panels(canvas, panels),
        title,
        caption,
        "; ".join(said),
        wide=(7.2, (height + 0.2) * -(-len(panels) // 2)),
        narrow=(3.6, len(panels) * (height + 0.35)),
    )


# ---- what differences depend on ----------------------------------------------------------------------------


def by_size(analysis: Analysis) -> Figure:
    """Return refinement against log loss by the rows of the data set, for each method and mode."""
    panels = {
        words.method_word(each.method, each.mode): DependenceDisplay(
            [one.n_rows for one in each.sets],
            each.relative,
            "rows of the data set",
            faint=[one.reference < VERY_LOW for one in each.sets],
        )
        for each in analysis.headlines
    }
    return _dependence(
        panels,
        "Refinement against log loss, by the size of the data set",
        f"One dot per data set, means over splits; {DOTS} Faint where the log loss is under {VERY_LOW}, "
        "where relative differences mean little. Validation rows are 16% of the rows, with folds 80%.",
    )


def by_property(analysis: Analysis, field: str) -> Figure | None:
    """Return every training run by the ``rise`` of its validation loss, or by its ``learning_rate``."""
    axis = PROPERTIES[field]
    panels = {}
    for method in analysis.methods:
        of = [each for each in analysis.results.trainings if each.method == method]
        x = np.array([getattr(each, field) for each in of], np.float64)
        if field == "rise":
            x = np.clip(100 * x, LEAST_RISE, MOST_RISE)
        if np.isfinite(x).any():
            panels[words.method_word(method)] = DependenceDisplay(
                x,
                [relative(each.refinement, each.log_loss) for each in of],
                axis,
                faint=[each.log_loss < VERY_LOW for each in of],
            )
    if not panels:
        return None
    caption = f"One dot per training run, stopped by refinement or by log loss; {DOTS}"
    if field == "rise":
        caption += f" Rises under {LEAST_RISE} and over {MOST_RISE:.0f}% are drawn at the ends of the axis."
    return _dependence(panels, f"Every training run, by the {axis.removesuffix(', %')}", caption)


def _dependence(panels: Mapping[str, DependenceDisplay], title: str, caption: str) -> Figure:
    said = (
        f"{name}: {len(each.x)} dots, median {np.median(each.values):+.2f}%"
        for name, each in panels.items()
    )
    return Figure(
        lambda canvas: draw_panels(canvas, panels),
        title,
        caption,
        "; ".join(said),
        wide=(7.2, 2.9 * -(-len(panels) // 2)),
        narrow=(3.6, 2.7 * len(panels)),
    )
