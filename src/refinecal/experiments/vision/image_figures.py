"""The figures of the report on images: figures 1 and 5 of the paper, for every run that there is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refinecal.experiments.vision import image_analysis as words
from refinecal.experiments.vision.history import VARIANT, Group, History
from refinecal.experiments.vision.image_analysis import Analysis
from refinecal.plots.boxes import FEW, RelativeDifferencesDisplay, StoppingTimesDisplay
from refinecal.plots.run_curves import RunCurvesDisplay
from refinecal.plots.style import draw_panels
from refinecal.plots.training_curve import TrainingCurveDisplay
from refinecal.report import Figure

COLORS = {"log_loss": "risk", "refinement": "refinement"}  # or that of calibration
TERMS = ("risk", "calibration", "refinement")


def training_curve(training: History) -> TrainingCurveDisplay:
    """Return figure 1 of the paper for one training run: the validation loss and its two parts."""
    return TrainingCurveDisplay(
        np.arange(1, training.epochs + 1),
        risk=training.curve("val.log_loss"),
        calibration=training.curve("val.calibration"),
        refinement=training.curve("val.refinement"),
        step_name="epoch",
    )


def first_run(analysis: Analysis, group: Group) -> Figure:
    """Return figure 1 of the paper for the first seed of a group."""
    first = analysis.results.of(group)[0]
    display = training_curve(first)
    said = ", ".join(
        f"{name} {display.smallest[name][1]:.4f} at epoch {display.smallest[name][0]}"
        for name in TERMS
        if name in display.smallest
    )
    return Figure(
        lambda canvas: training_curve(first).plot(canvas.add_subplot()),
        f"{words.group_word(group)}: the validation loss and its parts (seed {first.key.seed})",
        "As figure 1 of the paper. Dots mark where each curve is lowest. The shade between risk and "
        "refinement is the calibration error.",
        f"Smallest: {said}." if said else "No curve is finite.",
        wide=(7.2, 3.6),
        narrow=(3.6, 3.4),
    )


def on_validation(analysis: Analysis, group: Group) -> RunCurvesDisplay:
    """Return risk, refinement and calibration of the validation images, of all runs."""
    curves = {
        "risk": analysis.curves(group, "val.log_loss"),
        "refinement": analysis.curves(group, "val.refinement"),
        "calibration": analysis.curves(group, "val.calibration"),
    }
    return RunCurvesDisplay(np.arange(1, curves["risk"].shape[1] + 1), curves)


def on_test(analysis: Analysis, group: Group) -> RunCurvesDisplay:
    """Return the test loss before and after scaling, of all runs, and which epochs were chosen."""
    curves = {
        "risk": analysis.curves(group, "test.log_loss"),
        "refinement": analysis.curves(group, "test.log_loss_ts"),
    }
    return RunCurvesDisplay(
        np.arange(1, curves["risk"].shape[1] + 1),
        curves,
        labels={"risk": "as it is", "refinement": "after TS"},
        chosen={COLORS[name]: analysis.chosen_epochs(group, name) for name in COLORS},
        choosers={COLORS[name]: words.METRIC_WORDS[name] for name in COLORS},
        what="test log loss",
    )


def over_runs(analysis: Analysis, group: Group) -> Figure:
    """Return the curves of all runs: of validation images, and next to them of test images."""
    runs = len(analysis.results.of(group))
    panels = {
        "Validation images": on_validation(analysis, group),
        "Test images": on_test(analysis, group),
    }
    many = "thin lines are runs, thick ones" if runs <= 5 else "bands hold all runs, lines are"
    each = f"{runs} runs: {many} their mean. " if runs > 1 else ""
    ranges = " Epochs that are named are medians over runs, with the range in parentheses."
    said = "; ".join(
        f"{title}: {', '.join(display.describe().values())}" for title, display in panels.items()
    )
    return Figure(
        lambda canvas: draw_panels(canvas, panels),
        f"{words.group_word(group)}: {'all runs' if runs > 1 else 'validation and test images'}",
        f"{each}Left, a dot where each run is lowest. Right, the test log loss as it is, and after "
        "temperature scaling (TS) by the validation images; dots on the latter are the epochs that log loss "
        f"and refinement chose, of validation images.{ranges * (runs > 1)}",
        said,
        wide=(7.2, 3.5),
        narrow=(3.6, 6.4),
    )


def differences(analysis: Analysis) -> Figure:
    """Return figure 5 of the paper: a panel per data set, a box per network, one dot per run."""
    panels = {}
    for dataset in dict.fromkeys(dataset for dataset, _ in analysis.groups):
        groups = [group for group in analysis.groups if group[0] == dataset]
        names = _short_names(analysis.groups)
        rows = {
            _row_name(procedure, names[group], len(groups) > 1): (procedure, group)
            for procedure in analysis.procedures()
            for group in groups
            if procedure.metric in analysis.metrics(group)
        }
        panels[words.DATASET_WORDS.get(dataset, dataset)] = RelativeDifferencesDisplay(
            {
                name: analysis.relative(group, procedure)
                for name, (procedure, group) in rows.items()
            },
            colours={
                name: COLORS.get(procedure.metric, "calibration")
                for name, (procedure, _) in rows.items()
            },
            least=FEW,
        )
    rows_most = max(len(each.names) for each in panels.values())
    height = 0.8 + 0.27 * rows_most
    said = "; ".join(
        f"{title}: "
        + ", ".join(f"{name} median {at[2]:+.2f}%" for name, at in each.quantiles.items())
        for title, each in panels.items()
    )
    most = max(len(analysis.results.of(group)) for group in analysis.groups)
    return Figure(
        lambda canvas: draw_panels(canvas, panels),
        "Test log loss relative to log loss + TS",
        f"As figure 5 of the paper, turned on its side. One dot per run. {_marks(most)} Left of 0 is better "
        "than stopping by log loss and temperature scaling (TS), which also follows the other metrics. The "
        f"axis is logarithmic beyond 0.1%.{_explain_numbers(analysis.groups)}",
        said,
        wide=(7.2, 0.2 + height * -(-len(panels) // 2)),
        narrow=(3.6, len(panels) * (height + 0.2)),
    )


def _row_name(procedure: words.Procedure, name: str, has_model: bool) -> str:
    """Return the name of a row: of several networks it is that of the network, too."""
    if not has_model:
        return words.procedure_word(procedure)
    metric = words.METRIC_WORDS[procedure.metric] if procedure.scaled else "without TS"
    return f"{metric}, {name}"


def _short_names(groups: Sequence[Group]) -> dict[Group, str]:
    """Return short names of networks, with a number for each way to train one, if there are several."""
    ways = _ways(groups)
    names = {}
    for group in groups:
        name, *how = group[1].split(VARIANT)
        number = f" ({1 + ways.index(how[0])})" if how else ""
        names[group] = f"{words.SHORT_WORDS.get(name, name)}{number}"
    return names


def _ways(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(how for _, model in groups for how in model.split(VARIANT)[1:]))


def _explain_numbers(groups: Sequence[Group]) -> str:
    """Return what the numbers of :func:`_short_names` mean."""
    said = "; ".join(f"({number}) {how}" for number, how in enumerate(_ways(groups), 1))
    return f" Ways to train: {said}." if said else ""


def epochs(analysis: Analysis) -> Figure:
    """Return which epochs each metric chose."""
    panels = {
        words.group_word(group): StoppingTimesDisplay(
            {
                words.METRIC_WORDS[metric]: [
                    epoch
                    for epoch in analysis.chosen_epochs(group, metric).tolist()
                    if not np.isnan(epoch)
                ]
                for metric in analysis.metrics(group)
            },
            max(each.epochs for each in analysis.results.of(group)),
            "epoch",
            {
                words.METRIC_WORDS[metric]: COLORS.get(metric, "calibration")
                for metric in analysis.metrics(group)
            },
            least=FEW,
        )
        for group in analysis.groups
    }
    most = max(len(analysis.results.of(group)) for group in analysis.groups)
    rows = max(len(each.names) for each in panels.values())
    height = 0.8 + 0.27 * rows
    said = "; ".join(
        f"{title}: " + ", ".join(f"{name} {at[2]:g}" for name, at in each.quantiles.items())
        for title, each in panels.items()
    )
    return Figure(
        lambda canvas: draw_panels(canvas, panels),
        "Epochs that each metric chose",
        f"One dot per run. {_marks(most)}",
        said,
        wide=(7.2, 0.2 + height * -(-len(panels) // 2)),
        narrow=(3.6, len(panels) * (height + 0.2)),
    )


def _marks(runs: int) -> str:
    """Return what is drawn over the dots of at most this many runs."""
    if runs < FEW:
        return "A line is the median."
    return (
        "A line is the median; boxes end at the quartiles, whiskers at the 10% and 90% quantiles, of "
        f"{FEW} runs or more."
    )
