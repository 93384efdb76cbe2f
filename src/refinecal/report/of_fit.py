"""The page of ``refinecal fit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal._core.format import count, list_names, number, percent, significant
from refinecal.report.of_decisions import PaidCosts, confusion_section, costs_of
from refinecal.report.of_evaluation import (
    SQUARE,
    classes_table,
    facts_of,
    reliability_section,
    terms_section,
)
from refinecal.report.page import Card, Column, Figure, Page, Section, Table, Written
from refinecal.tabular.fit_folder import REPORT
from refinecal.tabular.job import leaderboard, metrics
from refinecal.tabular.judgement import (
    FEW_ROWS,
    METRIC_NAMES,
    UNCERTAIN,
    describe_calibration,
    describe_certainty,
    describe_delivered,
    describe_pool,
    lead,
    recommend,
)

if TYPE_CHECKING:
    from refinecal.tabular.fitting import Fit
    from refinecal.tabular.job import FinishedRun, FitRequest
    from refinecal.tabular.judgement import Judgement
    from refinecal.tabular.schema import Schema

MOST_LEAKS = 5  # that are named at the top
MOST_COLUMNS = 10  # of the table, on the terminal
MOST_NOTES = 40  # columns with a note, on the terminal
MOST_CLASSES = 10  # that are named
NO_TEST_ROWS = (
    "The log loss on validation rows is {}, where one model predicts each row. Without test rows, the loss "
    "of the averaged models is unknown."
)


def page(finished: FinishedRun, request: FitRequest, costs: Any = None) -> Page:
    """Return what was gained by a fit, how certain that is, what to do, and the evidence."""
    fit, judged = finished.fit, finished.judged
    points = [f"Warning: {leak.message(request.target)}." for leak in fit.data.leaks[:MOST_LEAKS]]
    sections, data = [training_section(fit)], dict[str, Any]()
    if fit.members:
        sections.insert(0, leaderboard_section(fit))
    if judged is None:
        points.append("What to do: pass --test or a --test-fraction to measure the gain.")
    else:
        if judged.ours.n < FEW_ROWS:
            points.append(UNCERTAIN.format(count(judged.ours.n, "row")))
        points.append(describe_certainty(judged))
        if advice := " ".join(recommend(fit, judged)):
            points.append(f"What to do: {advice[0].lower()}{advice[1:]}")
        sections = judged_sections(fit, judged, sections)
        extra, said, data = decisions(fit, costs)
        sections, points = [*sections, *extra], [*points, *said]
    points += [describe_delivered(fit, judged), describe_calibration(fit)]
    if fit.members:
        points.append(describe_pool(fit, judged))
    elif len(fit.candidates) > 1:
        points.append(f"Chosen: {configuration(fit)}")
    return Page(
        f"Predicting {request.target!r} from {request.table.name}",
        NO_TEST_ROWS.format(number(fit.validation_loss, 4))
        if judged is None
        else lead(judged, fit.data.leaks),
        cards=() if judged is None else cards(judged),
        points=points,
        sections=[*sections, data_section(fit)],
        facts=facts_of(
            table=request.table.name,
            model=fit.options.model,
            calibrator=fit.options.calibrator,
            configurations=len(fit.candidates),
            judged_models=len(fit.tested),
            delivered_models=len(fit.delivered),
            seed=fit.options.seed,
            seconds=number(finished.seconds, 0),
            predict=f"refinecal predict {finished.path.name} NEW.csv -o predictions.csv",
        ),
        data={
            "run": finished.path,
            "report": finished.path / REPORT,
            **metrics(request, finished),
            **data,
        },
    )


def cards(judged: Judgement) -> list[Card]:
    """Return the most important numbers."""
    error = judged.log.standard_error / judged.usual if judged.usual else 0.0
    error_of_loss = number(judged.level.standard_error, 4)
    change = percent(-judged.gain, sign="+")
    return [
        Card("log loss", number(judged.level.mean, 4), f"± {error_of_loss} s.e."),
        Card("early stopping", number(judged.usual, 4), "one model, stopped on validation loss"),
        Card("change", change, f"± {percent(error)} s.e."),
        Card("accuracy", percent(judged.ours.accuracy), f"AUROC {number(judged.ours.auroc, 4)}"),
    ]


def judged_sections(fit: Fit, judged: Judgement, training: list[Section]) -> list[Section]:
    """Return the sections on test rows, around those on training."""
    from refinecal.plots import CalibrationMapDisplay, map_probabilities

    test, before, classes = fit.data.test, fit.final.before, list(fit.data.schema.classes)
    assert test is not None, "it was judged by them"
    terms = {"before calibration": judged.uncalibrated, "after": judged.ours}
    found = map_probabilities(fit.ensemble.calibrator, before)
    figure = Figure(
        CalibrationMapDisplay(replace(found, label=classes[1])),
        "Calibration map",
        "Probability after calibration against the probability before.",
        "The calibrated probability as a function of the uncalibrated one.",
        **SQUARE,
    )
    after = "On test rows, after calibration."
    return [
        gain_section(fit, judged),
        stopping_section(fit, judged),
        *training,
        terms_section(terms, one=True),
        reliability_section(test.y, before, fit.final.after, classes, test.weights),
        Section("What calibration does", (), (figure,)),
        Section("Classes", (after,), (classes_table(judged.ours),)),
    ]


def decisions(fit: Fit, costs: Any) -> tuple[list[Section], Sequence[str], dict[str, Any]]:
    """Return which classes of the test rows are confused, and what decisions cost."""
    test, probs = fit.data.test, fit.chosen.after
    assert test is not None, "it was judged by them"
    given = (test.y, probs, list(fit.data.schema.classes), test.weights)
    confused, counts = confusion_section(*given)
    paid = PaidCosts() if costs is None else costs_of(*given, costs, test.groups)
    return [confused, *paid.sections], paid.points, {"test_decisions": counts | dict(paid.data)}


def gain_section(fit: Fit, judged: Judgement) -> Section:
    """Return where the gain comes from."""
    columns: list[str | Column] = [
        f"test log loss ({count(judged.ours.n, 'row')})",
        fit.step_name,
        Column("log loss", digits=4),
        Column("gain", digits=4, sign=True, help="How much lower than in the row above."),
        Column("± s.e.", digits=4, help="Standard error of the gain over test rows."),
    ]
    rows: list[list[Any]] = []
    for place, stage in enumerate(judged.stages):
        names = [each.name for each in judged.stages[1 : place + 1]] or [stage.name]
        if stage.name.startswith("ensemble"):  # of models that have all of this
            names = [stage.name]
        elif len(names) > 1:
            names[0] = names[0].partition(" of ")[0]
        change = stage.change
        gain = (None, None) if change is None else (-change.mean, change.standard_error)
        rows.append([", ".join(names), _steps(stage.steps), stage.loss, *gain])
    text = (
        "From one model with early stopping on validation loss to the calibrated average of models chosen by "
        "refinement. Each row of the table adds one step to the row above it. None of these models has seen "
        "the test rows.",
    )
    table = Table("Test log loss, step by step", columns, rows, terminal=len(rows))
    return Section("Where the gain comes from", text, (table,))


def _steps(steps: Sequence[int] | None) -> Written | None:
    """Return the chosen step, or the smallest and largest over several folds."""
    if steps is None:
        return None
    low, high = min(steps), max(steps)
    return Written(str(low) if low == high else f"{low}–{high}", float(np.median(steps)))


def stopping_section(fit: Fit, judged: Judgement) -> Section:
    """Return what choosing by each metric leads to."""
    from refinecal.plots import StoppingMetricsDisplay

    ways = list(judged.ways.values())
    names = [METRIC_NAMES.get(way.metric, way.metric) for way in ways]
    members = {each.tested.candidate: each.name for each in fit.members}
    better = "How much lower the calibrated log loss is if refinement chooses."
    columns: list[str | Column] = [
        "chosen by",
        "configuration",
        fit.step_name,
        Column("log loss", digits=4),
        Column("calibrated", digits=4),
        Column("gain", digits=4, sign=True, help=better),
        Column("± s.e.", digits=4, help="Standard error of the gain over test rows."),
    ]
    rows: list[list[Any]] = []
    for name, way in zip(names, ways, strict=True):
        gap = way.difference_after
        gain = (None, None) if way.metric == "refinement" else (-gap.mean, gap.standard_error)
        rows.append(
            [
                name,
                members.get(way.candidate, way.candidate),
                _steps(way.steps),
                way.before,
                way.after,
                *gain,
            ]
        )
    if len(fit.candidates) == 1:
        columns, rows = [columns[0], *columns[2:]], [[row[0], *row[2:]] for row in rows]
    folds = f"Range over {len(fit.units)} folds, each with its own {fit.step_name}."
    table = Table(
        "Test log loss by stopping metric", columns, rows, folds if len(fit.units) > 1 else ""
    )
    display = StoppingMetricsDisplay(
        names,
        [int(np.median(way.steps)) for way in ways],
        [way.before for way in ways],
        [way.after for way in ways],
        errors=[way.difference_after.standard_error for way in ways],
        step_name=fit.step_name,
    )
    figure = Figure(
        display,
        "Test log loss at the step chosen by each metric",
        "Hollow: before calibration; filled: after. Bars: standard errors of the difference from refinement."
        + f" Each {fit.step_name} is the median over folds." * (len(fit.units) > 1),
        "; ".join(
            f"{name}: {number(way.before, 4)}, calibrated {number(way.after, 4)}"
            for name, way in zip(names, ways, strict=True)
        ),
        wide=(7.2, 3.2),
        narrow=(3.6, 3.4),
    )
    text = (
        "All metrics were computed in the same training runs, on the same validation rows. Each chose a "
        f"{fit.step_name}{' and a configuration' * (len(fit.candidates) > 1)}, without using the "
        "labels of the test rows.",
    )
    return Section("What each metric would have chosen", text, (figure, table))


def training_section(fit: Fit) -> Section:
    """Return the training curve of the chosen configuration."""
    from refinecal.plots import EarlyStoppingDisplay, TrainingCurveDisplay

    steps_of = [[u.choices[name].step for name in ("log_loss", "refinement")] for u in fit.units]
    at = int(
        np.argmax(np.ptp(steps_of, axis=1))
    )  # the fold in which loss and refinement differ most
    unit, (usual, chosen) = fit.units[at], steps_of[at]
    steps, risk, calibration, refinement = (
        [record[name] for record in unit.history]
        for name in ("step", "risk", "calibration", "refinement")
    )
    name = fit.step_name

    about: dict[str, Any] = {"risk": risk, "refinement": refinement, "step_name": name}
    display: Any
    if len(steps) == 1:
        display = TrainingCurveDisplay(steps, **about, calibration=calibration, chosen=chosen)
    else:
        display = EarlyStoppingDisplay(steps, **about, by_loss=usual, by_refinement=chosen)
    figure = Figure(
        display,
        "Stopping on loss and on refinement",
        "On validation rows. The gap between loss and refinement is calibration error; arrows show how much "
        "calibration lowers the loss at each chosen step.",
        f"The loss is lowest at {name} {usual}, refinement at {name} {chosen}.",
    )
    text = [*fit.plan, configuration(fit)]
    if len(fit.units) > 1:
        text.append(
            f"The figure shows fold {unit.fold + 1} of {len(fit.units)}, in which loss and refinement "
            "disagree most; history.parquet has all folds."
        )
    several = len(fit.candidates) > 1 and not fit.members
    tables = [candidates_table(fit)] if several else []
    return Section("Training", text, (figure, *tables))


def leaderboard_section(fit: Fit) -> Section:
    """Return every candidate of the ensemble, with its weight."""
    columns: list[str | Column] = [
        "member",
        Column("weight", digits=2),
        Column("refinement", digits=4, help="On validation rows, each predicted by one model."),
        Column("log loss", digits=4, help="On validation rows, before calibration."),
        Column("test loss", digits=4, help="On test rows: calibrated and averaged."),
        Column("seconds", digits=1, help="Of training."),
    ]
    rows: list[list[Any]] = [
        [
            row["member"],
            row["weight"],
            row["validation_refinement"],
            row["validation_log_loss"],
            row.get("test_log_loss"),
            row["seconds"],
        ]
        for row in leaderboard(fit)
    ]
    if fit.data.test is None:
        columns, rows = [*columns[:4], columns[5]], [[*row[:4], row[5]] for row in rows]
    text = (
        "Members were picked one after the other, with replacement, each time the one that gives the pool "
        "the smallest refinement error on validation rows; cross-validation chose how many.",
    )
    table = Table("Leaderboard", columns, rows, terminal=len(rows))
    return Section("The members of the ensemble", text, (table,))


def candidates_table(fit: Fit) -> Table:
    """Return every configuration of ``--tune`` with its best values on validation rows."""
    import pandas as pd

    best = pd.DataFrame(fit.history).groupby(["candidate", "fold"])[["refinement", "risk"]].min()
    rows: list[list[Any]] = [
        [
            f"{int(candidate)}{' (chosen)' * (candidate == fit.chosen.candidate)}",
            float(values["refinement"]),
            float(values["risk"]),
            Written(
                _parameters(fit.candidates[int(candidate)].params) if candidate else "the default"
            ),
        ]
        for candidate, values in best.groupby("candidate").mean().iterrows()
    ]
    columns: list[str | Column] = [
        "configuration",
        Column("refinement", digits=4),
        Column("log loss", digits=4),
        "parameters",
    ]
    note = "Smallest values on validation rows, averaged over folds. Refinement chooses."
    return Table("Configurations", columns, rows, note)


def _parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {significant(value, 3)}" if isinstance(value, float) else f"{name} {value}"
        for name, value in params.items()
    )


def configuration(fit: Fit) -> str:
    """Return which parameters were chosen."""
    kind, chosen, is_random, *_ = fit.candidates[fit.chosen.candidate]
    params = _parameters(chosen)
    if not is_random:
        return f"{kind} with its default parameters{f' ({params})' if params else ''}."
    if fit.options.model == "auto":
        return f"{kind} with other parameters than its defaults: {params}."
    n_random = sum(each.is_random for each in fit.candidates)
    which = f"configuration {fit.chosen.candidate} of {n_random} random ones"
    return f"{kind}, {which}: {params}."


def data_section(fit: Fit) -> Section:
    """Return what was found in the table."""
    schema = fit.data.schema
    n_test = 0 if fit.data.test is None else fit.data.test.n
    rows = f"{count(fit.data.n_train, 'row')} for training and validation, {number(n_test)} for testing"
    classes = list_names(schema.classes, MOST_CLASSES)
    return Section("Data", (f"{rows}. Classes: {classes}.",), (columns_table(schema),))


def columns_table(schema: Schema, terminal: int = 0) -> Table:
    """Return one row for each column of a table: what it is used as."""
    columns: list[str | Column] = [
        "column",
        "kind",
        Column("missing", digits=0, spare=3),
        Column("distinct", digits=0, spare=2),
        Column("note", spare=1),
    ]
    rows = [list(row.values()) for row in schema.table_of_kinds()]
    if 0 < terminal < len(rows) - 1:  # hides no note, nor the target, weight and group
        noted = [column.note != "" for column in schema.columns]
        noted = [True] * (len(rows) - len(noted)) + noted
        rows = [
            row for _, row in sorted(zip(noted, rows, strict=True), key=lambda each: not each[0])
        ]
        terminal = max(terminal, min(sum(noted), MOST_NOTES))
    return Table("Columns", columns, rows, terminal=terminal)


def describe_table(name: str, schema: Schema) -> str:
    """Return how many rows and features of each kind a table has."""
    kinds = ["date" if each.form == "date" else each.kind for each in schema.features]
    parts = [count(schema.n_rows, "row"), count(kinds.count("number"), "number")]
    if "date" in kinds:
        parts.append(count(kinds.count("date"), "date"))
    parts.append(count(kinds.count("category"), "category", "categories"))
    return f"{name}: {', '.join(parts)}"
