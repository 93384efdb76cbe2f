"""The report of ``refinecal fit``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal._core.errors import needs_extra
from refinecal._core.format import number, tidy_sentence
from refinecal.report.of_evaluation import (
    SQUARE,
    classes_table,
    facts_of,
    reliability_section,
    terms_section,
)
from refinecal.report.page import Card, Column, Figure, Page, Section, Table
from refinecal.report.render import write
from refinecal.tabular.fit_folder import REPORT
from refinecal.tabular.judgement import (
    describe_calibration,
    describe_certainty,
    describe_delivered,
    lead,
    name_of,
    recommend,
    sort_metrics,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from refinecal.tabular.fitting import Fit
    from refinecal.tabular.job import FinishedRun, FitRequest
    from refinecal.tabular.judgement import Judgement


MOST_LEAKS = 5  # that are named at the top


def check_packages() -> None:
    """Raise if a package for reports is missing: before the training, not after it."""
    with needs_extra("cli", "jinja2", "matplotlib"):
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401


def write_report(finished: FinishedRun, given: FitRequest, folder: Path) -> None:
    """Add the report to the folder of a run."""
    write(page(finished, given), folder / REPORT)


def page(finished: FinishedRun, given: FitRequest) -> Page:
    """Return the report of a fit: what was gained, how sure, what to do, and the evidence."""
    fit, judged = finished.fit, finished.judged
    name = given.table.name
    title = f"Probabilities of {given.target} from {name}"
    sections = [training_section(fit)]
    doubts = [
        tidy_sentence(f"Look twice: {leak.message(given.target)}.")
        for leak in fit.data.leaks[:MOST_LEAKS]
    ]
    facts = facts_of(
        table=name,
        model=fit.options.model,
        calibrator=fit.options.calibrator,
        configurations=len(fit.candidates),
        judged_models=len(fit.units),
        delivered_models=len(fit.delivered),
        seed=fit.options.seed,
        seconds=f"{finished.seconds:.0f}",
    )
    if judged is None:
        return Page(
            title,
            f"The log loss of validation rows, each predicted by one model, is {fit.validation_loss:.4f}; "
            "there are no test rows to judge the average of models by.",
            points=[
                *doubts,
                tidy_sentence(describe_delivered(fit, None)),
                tidy_sentence(describe_calibration(fit)),
                "What to do: pass --test or a --test-fraction to learn what was gained.",
            ],
            sections=[*sections, data_section(fit)],
            facts=facts,
        )
    probs, calibrated = fit.chosen.before, fit.chosen.after
    assert fit.data.test is not None, "it was judged by them"
    classes = list(fit.data.schema.classes)
    labels = np.array(classes, dtype=object)[fit.data.test.y]
    weights = fit.data.test.weights
    sections = [
        gain_section(fit, judged),
        stopping_section(fit, judged),
        *sections,
        terms_section({"before calibration": judged.uncalibrated, "after": judged.ours}, one=True),
        reliability_section(labels, probs, calibrated, classes, weights),
        calibrator_section(fit, probs),
        Section(
            "Class by class", ("On test rows, after calibration.",), (classes_table(judged.ours),)
        ),
        data_section(fit),
    ]
    advice = [tidy_sentence(f"What to do: {text}") for text in recommend(fit, judged)]
    use = f"Use it: refinecal predict {finished.path.name} NEW.csv -o predictions.csv"
    return Page(
        title,
        tidy_sentence(lead(judged)),
        cards=cards(judged),
        points=[
            *doubts,
            tidy_sentence(f"How sure: {describe_certainty(judged)}"),
            tidy_sentence(describe_delivered(fit, judged)),
            *advice,
            use,
        ],
        sections=sections,
        facts=facts,
    )


def cards(judged: Judgement) -> list[Card]:
    """Return the numbers that matter most."""
    error = judged.log.standard_error / judged.usual if judged.usual else 0.0
    return [
        Card("log loss", f"{judged.level.mean:.4f}", f"± {judged.level.standard_error:.4f} s.e."),
        Card("early stopping", f"{judged.usual:.4f}", "one model, stopped on validation loss"),
        Card(
            "change",
            tidy_sentence(f"{-judged.gain:+.1%}".replace("-", "−")),
            tidy_sentence(f"± {error:.1%} s.e."),
        ),
        Card(
            "accuracy",
            tidy_sentence(f"{judged.ours.accuracy:.1%}"),
            f"AUROC {judged.ours.auroc:.4f}",
        ),
    ]


def gain_section(fit: Fit, judged: Judgement) -> Section:
    """Return where the gain comes from, one thing after the other."""
    rows: list[list[Any]] = [
        [
            stage.name,
            "" if stage.steps is None else float(np.median(stage.steps)),
            stage.loss,
            "" if stage.change is None else -stage.change.mean,
            "" if stage.change is None else stage.change.standard_error,
        ]
        for stage in judged.stages
    ]
    columns: list[str | Column] = [
        "",
        Column(fit.model.step_name, digits=0),
        Column("log loss", digits=4),
        Column("gain", digits=4, help="By how much the log loss is lower than in the row before."),
        Column("± s.e.", digits=4),
    ]
    note = "Each row adds one thing to the row before it; standard errors are over test rows."
    table = Table("Test log loss, one thing at a time", columns, rows, note)
    text = [
        "From one model with early stopping on validation loss to the calibrated average of models chosen by "
        "refinement: what each step adds, on the test rows. None of these models had seen them."
    ]
    return Section("Where the gain comes from", text, (table,))


def stopping_section(fit: Fit, judged: Judgement) -> Section:
    """Return what choosing by each metric leads to."""
    from refinecal.plots import StoppingMetricsDisplay

    ways = sort_metrics(judged)
    step_name = fit.model.step_name
    rows: list[list[Any]] = [
        [
            name_of(way.metric),
            float(np.median(way.steps)),
            way.before,
            way.after,
            -way.difference_after.mean,
            way.difference_after.standard_error,
        ]
        for way in ways
    ]
    columns: list[str | Column] = [
        "chosen by",
        Column(step_name, digits=0),
        Column("log loss", digits=4),
        Column("calibrated", digits=4),
        Column(
            "gain",
            digits=4,
            help="By how much refinement, calibrated, is better than the column before.",
        ),
        Column("± s.e.", digits=4),
    ]
    if len(fit.candidates) > 1:
        columns.insert(1, Column("configuration", digits=0))
        for row, way in zip(rows, ways, strict=True):
            row.insert(1, way.candidate)
    note = ""
    if len(fit.units) > 1:
        note = (
            f"Each of {len(fit.units)} folds chose its own {step_name}; the table has the median."
        )
    table = Table("Test log loss by what chose the model", columns, rows, note)
    display = StoppingMetricsDisplay(
        [name_of(way.metric) for way in ways],
        [int(np.median(way.steps)) for way in ways],
        [way.before for way in ways],
        [way.after for way in ways],
        errors=[way.difference_after.standard_error for way in ways],
        step_name=step_name,
    )
    figure = Figure(
        lambda canvas: display.plot(canvas.add_subplot()),
        "Every metric chooses another moment",
        "Test log loss at the moment that each metric chose: hollow before calibration, filled after. Bars "
        "are standard errors of the difference to refinement.",
        "; ".join(
            f"{name_of(way.metric)}: {way.before:.4f}, calibrated {way.after:.4f}" for way in ways
        ),
        wide=(7.2, 3.2),
        narrow=(3.6, 3.4),
    )
    text = (
        "All metrics were followed in the same training runs, on the same validation rows. Each chose its "
        "own moment to stop, and among configurations; the labels of test rows played no part.",
    )
    return Section("What each metric would have chosen", text, (figure, table))


def training_section(fit: Fit) -> Section:
    """Return the training curve of the chosen configuration."""
    from refinecal.plots import EarlyStoppingDisplay, TrainingCurveDisplay

    unit = max(  # in which loss and refinement disagree most
        fit.units,
        key=lambda unit: abs(unit.choices["refinement"].step - unit.choices["log_loss"].step),
    )
    curves: dict[str, Any] = {
        name: [record[name] for record in unit.history]
        for name in ("step", "risk", "calibration", "refinement")
    }
    steps, name = curves.pop("step"), fit.model.step_name
    chosen, usual = unit.choices["refinement"].step, unit.choices["log_loss"].step

    def draw(canvas: Canvas) -> None:
        display: Any
        if len(steps) == 1:
            display = TrainingCurveDisplay(steps, **curves, chosen=chosen, step_name=name)
        else:
            display = EarlyStoppingDisplay(
                steps,
                risk=curves["risk"],
                refinement=curves["refinement"],
                by_loss=usual,
                by_refinement=chosen,
                step_name=name,
            )
        display.plot(canvas.add_subplot())

    figure = Figure(
        draw,
        "Stopping by loss, and by refinement",
        "On validation rows. The gap between loss and refinement is calibration error; arrows lead from the "
        "loss at each chosen moment to what calibration makes of it.",
        f"The loss is lowest at {name} {usual}, refinement at {name} {chosen}.",
    )
    text = [configuration(fit)]
    if len(fit.units) > 1:
        text.append(
            f"Fold {unit.fold + 1} of {len(fit.units)} is shown, in which loss and refinement disagree most; "
            "all are in history.parquet."
        )
    tables = [candidates_table(fit)] if len(fit.candidates) > 1 else []
    return Section("Training", text, (figure, *tables))


def candidates_table(fit: Fit) -> Table:
    """Return every configuration of ``--tune`` with the best that it came to on validation rows."""
    lowest: dict[int, dict[float, tuple[float, float]]] = {}
    for record in fit.history:
        folds = lowest.setdefault(int(record["candidate"]), {})
        refinement, risk = folds.get(record["fold"], (np.inf, np.inf))
        folds[record["fold"]] = (
            min(refinement, record["refinement"]),
            min(risk, record["risk"]),
        )
    rows: list[list[Any]] = [
        [
            f"{candidate} (chosen)" if candidate == fit.chosen.candidate else str(candidate),
            *(float(value) for value in np.mean(list(folds.values()), axis=0)),
            _parameters(fit.candidates[candidate]) if candidate else "the default",
        ]
        for candidate, folds in lowest.items()
    ]
    columns: list[str | Column] = [
        "configuration",
        Column("refinement", digits=4),
        Column("log loss", digits=4),
        "parameters",
    ]
    note = "The smallest values on validation rows, averaged over folds; refinement chose."
    return Table("Configurations", columns, rows, note)


def _parameters(params: Mapping[str, Any]) -> str:
    """Return parameters as text."""
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in params.items()
    )


def configuration(fit: Fit) -> str:
    """Say which parameters were chosen."""
    params = fit.candidates[fit.chosen.candidate]
    if fit.chosen.candidate == 0:
        listed = f" ({_parameters(params)})" if params else ""
        return f"{fit.options.model} with its default parameters{listed}."
    which = f"configuration {fit.chosen.candidate} (0 is the default, {len(fit.candidates) - 1} the last)"
    return f"{fit.options.model}, {which}: {_parameters(params)}."


def calibrator_section(fit: Fit, probs: Any) -> Section:
    """Return what the calibrator does to probabilities."""
    from refinecal.plots import CalibrationMapDisplay

    calibrator = fit.ensemble.calibrator
    beta = getattr(calibrator, "beta_", None)
    names = list(fit.data.schema.classes)
    text = [describe_calibration(fit)]
    if beta is not None:
        how = (
            "pulls in probabilities that were too extreme" if beta < 1 else "sharpens probabilities"
        )
        text.append(f"The temperature is {1 / max(beta, 1e-9):.3g}: calibration {how}.")
    figure = Figure(
        lambda canvas: CalibrationMapDisplay.from_calibrator(
            calibrator, probs, class_names=names, ax=canvas.add_subplot()
        ),
        "The calibration map",
        "Probability before calibration, and after.",
        "The calibrated probability as a function of the model's own.",
        **SQUARE,
    )
    return Section("What calibration does", text, (figure,))


def data_section(fit: Fit) -> Section:
    """Return what was found in the table."""
    schema = fit.data.schema
    columns: list[str | Column] = [
        "column",
        "kind",
        Column("missing", digits=0),
        Column("distinct", digits=0),
        "note",
    ]
    found = [list(row.values()) for row in schema.table_of_kinds()]
    table = Table("Columns", columns, [[*row[:-1], tidy_sentence(str(row[-1]))] for row in found])
    n_test = 0 if fit.data.test is None else fit.data.test.n
    rows = f"{number(fit.data.n_train)} rows to train and validate, {number(n_test)} to test"
    text = f"{rows}; classes: {_some(schema.classes)}."
    return Section("The data", (text,), (table,))


def _some(names: tuple[str, ...]) -> str:
    most = ", ".join(names[:10])
    return most if len(names) <= 10 else f"{most} and {len(names) - 10} more"
