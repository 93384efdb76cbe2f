"""The pages of ``refinecal evaluate`` and ``refinecal compare``, and the parts that all pages share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import refinecal
from refinecal._core.checks import check_sample
from refinecal._core.format import count, format_beta, number, percent
from refinecal.evaluation import paired_difference, row_losses
from refinecal.evaluation.verdict import BRIER, advice, is_flat, verdict
from refinecal.report.page import Card, Cell, Column, Figure, Page, Section, Table, Written

if TYPE_CHECKING:
    from refinecal.evaluation import Comparison, Evaluation
    from refinecal.tabular.predictions import Predictions

ROWS_PER_BIN = 60  # of reliability diagrams, so that noise does not dominate them
MOST_ROWS = 30  # of classes, groups or models, on the terminal
SQUARE: dict[str, tuple[float, float]] = {"wide": (5.2, 5.2), "narrow": (3.6, 3.9)}
MEANINGS = {
    "risk": "Mean loss of the predictions: calibration + refinement.",
    "calibration": "The part that temperature scaling removes.",
    "refinement": "The part that remains: classes that the model does not distinguish.",
    "sharpness": "What the model knows: uncertainty - refinement.",
    "uncertainty": "Mean loss of always predicting the class frequencies.",
}
CALIBRATOR = (
    "A calibrator other than temperature scaling, and averaging, may lower refinement too. "
)
BETA = Column("beta", spare=2, help="Inverse of the best temperature.")
RELIABILITY = (
    "Points on the diagonal are calibrated: a predicted probability of 70% is right for 70% of the rows. If "
    "the probabilities are calibrated, a point is within its band with probability 90%. The histogram shows "
    "the predicted probabilities. The ECE uses {bins} bins with equal numbers of rows."
)


# ---- parts -------------------------------------------------------------------------------------------------


def terms_section(named: Mapping[str, Evaluation], one: bool = False, terminal: int = 0) -> Section:
    """Return the terms of the losses of some predictions; ``one`` draws the first alone."""
    title = "Where the loss comes from"
    order = dict(zip(MEANINGS, (0, 6, 5, 3, 4), strict=True))  # in which terms may be hidden
    columns = [Column(t, digits=5, help=text, spare=order[t]) for t, text in MEANINGS.items()]
    rows: list[list[Cell]] = []
    for name, each in named.items():
        start = "" if len(named) == 1 else f"{name}, "
        log, brier = ([getattr(part, term) for term in MEANINGS] for part in (each.log, each.brier))
        rows.append([f"{start}log loss", *log, _beta(each)])
        rows.append([f"{start}Brier score", *brier, None])
    note = CALIBRATOR + BRIER if one else BRIER
    table = Table("Terms", ["loss", *columns, BETA], rows, note, terminal)
    first = next(iter(named.values()))
    drawn = {"": first.log} if one else {name: each.log for name, each in named.items()}
    if not all(math.isfinite(each.log.risk) for each in named.values()):
        return Section(title, (), (table,))

    from refinecal.plots import WaterfallDisplay

    height = 3.4 if len(drawn) == 1 else 1.2 + 0.7 * len(drawn)
    figure = Figure(
        WaterfallDisplay(drawn),
        "From uncertainty to the loss",
        "Sharpness is what the model knows; calibration error is the cost of over- or underconfidence.",
        ", ".join(f"{term} {number(getattr(first.log, term), 4)}" for term in MEANINGS),
        wide=(7.2, height),
        narrow=(3.6, height),
    )
    return Section(title, (), (figure, table))


def reliability_section(
    labels: Any, probs: Any, calibrated: Any, classes: Any, weights: Any, of: str = ""
) -> Section:
    """Return the reliability diagrams before and after calibration, and those of the classes."""
    from refinecal.plots.reliability import (
        ClassDiagrams,
        ReliabilityDisplay,
        add_calibrated,
        compute_curve,
    )

    bins = int(np.clip(len(labels) // ROWS_PER_BIN, 5, 15))
    named = np.array(classes, dtype=object)[labels]
    states = add_calibrated(check_sample(named, probs, None, weights, classes), calibrated)
    curves = [compute_curve(each, "auto", bins, "quantile") for each in states]
    several = len(classes) > 2
    what = "confidence against accuracy" if several else f"probability of {classes[1]!r}"
    figures = [
        Figure(
            ReliabilityDisplay(*curves),
            f"Reliability: {what}",
            RELIABILITY.format(bins=bins),
            "Reliability diagram before and after calibration.",
            **SQUARE,
        )
    ]
    if several:
        grid = ClassDiagrams(states, bins, "uniform")
        figures.append(
            Figure(
                grid.draw,
                "Reliability by class",
                "The probability of each class against its observed frequency. The ECE uses "
                f"{bins} bins of equal width.",
                "One reliability diagram for each class.",
                wide=(7.2, grid.height(7.2)),
                narrow=(3.6, grid.height(3.6)),
            )
        )
    return Section(f"Are the probabilities{of} calibrated?", (), tuple(figures))


def classes_table(found: Evaluation, terminal: int = 0) -> Table:
    """Return one row for each class."""
    columns: list[str | Column] = [
        "class",
        Column("rows", digits=0),
        Column("share", percent=True, spare=4),
        Column("mean prob.", percent=True, spare=1, help="Mean predicted probability."),
        Column("recall", digits=3, spare=2, help="Share of its rows that are predicted as it."),
        Column("AUROC", digits=4, spare=5, help="One-vs-rest."),
        Column("ECE", digits=4, spare=3, help="Calibration error in 15 bins of equal width."),
        Column("log loss", digits=4, help="Mean over its rows."),
    ]
    names = ("n", "share", "mean_probability", "recall", "auroc", "ece", "log_loss")
    rows = [[str(each.label), *(getattr(each, n) for n in names)] for each in found.per_class]
    return Table("Classes", columns, rows, terminal=terminal)


def losses_table(named: Mapping[str, Evaluation], title: str, first: str) -> Table:
    """Return the losses and their terms, one row for each model or subgroup."""
    columns: list[str | Column] = [
        first,
        Column("rows", digits=0, spare=1),
        Column("log loss", digits=4),
        Column("calibration", digits=4, spare=5),
        Column("refinement", digits=4, spare=4),
        BETA,
        Column("Brier", digits=4, spare=3, help=BRIER),
    ]
    rows: list[list[Cell]] = []
    for name, each in named.items():
        terms = (each.log.risk, each.log.calibration, each.log.refinement)
        rows.append([str(name), each.n, *terms, _beta(each), each.brier.risk])
    return Table(title, columns, rows, terminal=MOST_ROWS)


def _beta(found: Evaluation) -> Written:
    return Written(format_beta(found.log.beta), found.log.beta)


def metrics_table(named: Mapping[str, Evaluation], first: str) -> Table:
    """Return accuracy, AUROC and calibration errors, one row for each model or subgroup."""
    k = next(iter(named.values())).k
    of = "the second class" if k == 2 else "the most likely class"
    columns: list[str | Column] = [
        first,
        Column("accuracy", digits=4, spare=5),
        Column("AUROC", digits=4, spare=6),
        Column(
            "ECE",
            digits=4,
            spare=4,
            help=f"Expected calibration error of {of}, in 15 bins of equal width.",
        ),
        Column("overconf.", digits=4, spare=2, help="Part of the ECE from overconfident bins."),
        Column("underconf.", digits=4, spare=1, help="Part of the ECE from underconfident bins."),
        Column("smooth ECE", digits=4, spare=3, help="Calibration error without bins."),
    ]
    names = ("accuracy", "auroc", "ece", "overconfidence", "underconfidence", "smooth_ece")
    rows = [[name, *(getattr(each, n) for n in names)] for name, each in named.items()]
    note = (
        "Calibrated probabilities have errors above 0 too, by chance: the fewer rows, the larger."
    )
    return Table("Metrics", columns, rows, note, MOST_ROWS)


def differences_table(found: Comparison) -> Table:
    """Return the differences to the best model, before and after calibration."""
    columns: list[str | Column] = [f"above {found.best}"]
    for place, name in enumerate(("log loss", "calibrated", "Brier")):
        spare = 3 - place if place else 0
        columns.append(Column(name, digits=4, sign=True, spare=2 * spare))
        columns.append(Column("± s.e.", digits=4, spare=max(2 * spare - 1, 0)))
    rows: list[list[Cell]] = []
    for name in found.ranking[1:]:
        parts = (found.log[name], found.refinement[name], found.brier[name])
        rows.append([name, *(x for part in parts for x in (part.mean, part.standard_error))])
    note = "Mean difference per row and its standard error; below two standard errors it may be chance."
    return Table(f"Differences to {found.best}", columns, rows, note, MOST_ROWS)


def facts_of(**more: Any) -> dict[str, str]:
    """Return how a report was made, for its last lines."""
    facts = {"refinecal": refinecal.__version__}
    for name, value in more.items():
        if value is not None:
            is_count = isinstance(value, int) and name != "seed"
            facts[name.replace("_", " ")] = number(value) if is_count else str(value)
    return facts


# ---- pages -------------------------------------------------------------------------------------------------


def page(
    found: Evaluation,
    given: Predictions,
    path: Path,
    by: str | None = None,
    notes: Sequence[str] = (),
    **more: Any,
) -> Page:
    """Return the page of ``refinecal evaluate``; ``more`` is added to its data."""
    calibrated, name = found.log.calibrator.predict_proba(given.probs), path.stem
    sections = [
        terms_section({name: found}, terminal=MOST_ROWS),
        reliability_section(
            given.labels, given.probs, calibrated, list(given.classes), given.weights
        ),
        Section("Metrics", (), (metrics_table({name: found}, "predictions"),)),
        Section("Classes", (), (classes_table(found, MOST_ROWS),)),
    ]
    if by is not None:
        tables = (losses_table(found.groups, "Losses", by), metrics_table(found.groups, by))
        sections.append(
            Section(f"By {by}", ("Each subgroup has its own best temperature.",), tables)
        )
    how = "removed by equal probabilities" if is_flat(found) else "removed by temperature scaling"
    if found.log.beta is not None:
        how += f" (beta {format_beta(found.log.beta)})"
    return Page(
        f"{path.name}: {count(found.n, 'row')}, {count(found.k, 'class', 'classes')}",
        verdict(found, _standard_error(found, given, calibrated)),
        cards=[
            Card("log loss", _four_decimals(found.log.risk)),
            Card("calibration error", _four_decimals(found.log.calibration), how),
            Card("accuracy", percent(found.accuracy)),
            Card("AUROC", _four_decimals(found.auroc)),
        ],
        points=advice(found),
        sections=sections,
        facts=facts_of(file=path.name, rows=found.n, classes=found.k),
        notes=notes,
        data={**found.to_dict(), **more},
    )


def _standard_error(found: Evaluation, given: Predictions, calibrated: Any) -> float:
    """Return the standard error of the calibration error: of the mean loss that calibration removes."""
    if not math.isfinite(found.log.risk):
        return math.nan
    before, after = (
        row_losses(given.labels, probs, classes=range(found.k))
        for probs in (given.probs, calibrated)
    )
    return paired_difference(before, after, given.weights).standard_error


def _four_decimals(value: float) -> str:
    return "< 0.0001" if 0 < value < 0.00005 else number(float(value), 4)


def comparison_page(
    found: Comparison, models: Mapping[str, Predictions], notes: Sequence[str] = (), **more: Any
) -> Page:
    """Return the page of ``refinecal compare``; ``more`` is added to its data."""
    best, given = found.evaluations[found.best], models[found.best]
    ordered = {name: found.evaluations[name] for name in found.ranking}
    tables = (
        losses_table(ordered, "Losses, best model first", "model"),
        metrics_table(ordered, "model"),
        differences_table(found),
    )
    classes = count(best.k, "class", "classes")
    return Page(
        f"{len(ordered)} models on the same {count(best.n, 'row')}, {classes}",
        f"{found.best} has the lowest log loss: {number(best.log.risk, 4)}.",
        cards=[
            Card(name, _four_decimals(each.log.risk), "log loss") for name, each in ordered.items()
        ][:4],
        points=[found.verdict],
        sections=[
            Section("Comparison", (), tables),
            terms_section(ordered),
            reliability_section(
                given.labels,
                given.probs,
                best.log.calibrator.predict_proba(given.probs),
                list(given.classes),
                given.weights,
                f" of {found.best}",
            ),
        ],
        facts=facts_of(rows=best.n, classes=best.k),
        notes=notes,
        data={**found.to_dict(), **more},
    )
