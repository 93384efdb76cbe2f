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
from refinecal.evaluation.verdict import BRIER, advice, is_flat, standard_errors, verdict
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
    "refinement": "The part that remains, since the model does not separate the classes fully.",
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
    "the predicted probabilities. The ECE in this figure uses {bins} bins with equal numbers of rows; the "
    "tables use 15 bins of equal width."
)
METRICS = (
    "ECE = overconf. + underconf., its parts from over- and underconfident bins. Chance alone makes it "
    "positive, more so on few rows."
)


# ---- parts -------------------------------------------------------------------------------------------------


def terms_section(named: Mapping[str, Evaluation], one: bool = False, terminal: int = 0) -> Section:
    """Return the terms of the losses of some predictions; ``one`` draws the first alone."""
    title = "Where the loss comes from"
    order = dict(zip(MEANINGS, (0, 6, 5, 3, 4), strict=True))  # in which terms may be hidden
    digits = _digits(next(iter(named.values())))
    columns = [Column(t, digits=digits, help=h, spare=order[t]) for t, h in MEANINGS.items()]
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
        ", ".join(f"{term} {number(getattr(first.log, term), digits)}" for term in MEANINGS),
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
                "The probability of each class against its observed frequency. The ECE in "
                f"this figure uses {bins} bins of equal width; the tables use 15.",
                "One reliability diagram for each class.",
                wide=(7.2, grid.height(7.2)),
                narrow=(3.6, grid.height(3.6)),
            )
        )
    return Section(f"Are the probabilities{of} calibrated?", (), tuple(figures))


def classes_table(found: Evaluation, terminal: int = 0) -> Table:
    """Return one row for each class."""
    digits = _digits(found)
    columns: list[str | Column] = [
        "class",
        Column("rows", digits=0),
        Column("share", percent=True, spare=4),
        Column("mean prob.", percent=True, spare=1, help="Mean predicted probability."),
        Column("recall", digits=3, spare=2, help="Share of its rows that are predicted as it."),
        Column("AUROC", digits=digits, spare=5, help="One-vs-rest."),
        Column("ECE", digits=digits, spare=3, help="Calibration error in 15 bins of equal width."),
        Column("log loss", digits=digits, help="Mean over its rows."),
        Column("calibr.", digits=digits, spare=6, help="What calibration takes off it."),
        Column("refin.", digits=digits, spare=7, help="Refinement: what is left."),
    ]
    names = (
        *("n", "share", "mean_probability", "recall", "auroc", "ece"),
        *("log_loss", "calibration", "refinement"),
    )
    rows = [[str(each.label), *(getattr(each, n) for n in names)] for each in found.per_class]
    return Table("Classes", columns, rows, terminal=terminal)


def losses_table(named: Mapping[str, Evaluation], title: str, first: str, rows: bool) -> Table:
    """Return losses, their terms and metrics, one line for each model or subgroup."""
    some = next(iter(named.values()))
    digits = _digits(some)
    columns: list[str | Column] = [
        first,
        *([Column("rows", digits=0, spare=6)] if rows else []),
        Column("log loss", digits=digits),
        Column("calibr.", digits=digits, spare=7, help="Calibration error."),
        Column("refin.", digits=digits, spare=5, help="Refinement."),
        BETA,
        Column("Brier", digits=digits, spare=1, help=BRIER),
        Column("accuracy", digits=digits, spare=3),
        Column("AUROC", digits=digits, spare=4),
        Column("ECE", digits=digits, spare=8, help=_ece(some)),
    ]
    lines: list[list[Cell]] = []
    for name, each in named.items():
        start: list[Cell] = [str(name), each.n] if rows else [str(name)]
        terms = (each.log.risk, each.log.calibration, each.log.refinement)
        metrics = (each.brier.risk, each.accuracy, each.auroc, each.ece)
        lines.append([*start, *terms, _beta(each), *metrics])
    return Table(title, columns, lines, terminal=MOST_ROWS)


def metrics_table(
    named: Mapping[str, Evaluation], first: str, short: bool = False, terminal: int = 0
) -> Table:
    """Return accuracy, AUROC and calibration errors, one line each; ``short`` has the errors only."""
    some = next(iter(named.values()))
    about = {
        "accuracy": ("accuracy", 5, ""),
        "auroc": ("AUROC", 6, ""),
        "ece": ("ECE", 4, _ece(some)),
        "overconfidence": ("overconf.", 2, "Part of the ECE from overconfident bins."),
        "underconfidence": ("underconf.", 1, "Part of the ECE from underconfident bins."),
        "smooth_ece": ("smooth ECE", 3, "Calibration error without bins."),
    }
    shown = list(about)[2:] if short else list(about)
    digits = _digits(some)
    columns = [
        Column(name, digits=digits, spare=spare, help=text)
        for name, spare, text in (about[each] for each in shown)
    ]
    rows = [[name, *(getattr(each, part) for part in shown)] for name, each in named.items()]
    title = "Calibration errors" if short else "Metrics"
    return Table(title, [first, *columns], rows, METRICS, terminal)


def _digits(found: Evaluation) -> int:
    """Return the decimals of losses and metrics: the more rows, the smaller their standard errors."""
    return 3 if found.n < 1000 else 4 if found.n < 100_000 else 5


def _decimals(found: Evaluation, value: float) -> str:
    digits = _digits(found)
    least = 10**-digits
    return f"< {least:.{digits}f}" if 0 < value < least / 2 else number(float(value), digits)


def _beta(found: Evaluation) -> Written:
    return Written(format_beta(found.log.beta, _digits(found)), found.log.beta)


def _ece(found: Evaluation) -> str:
    of = "the second class" if found.k == 2 else "the most likely class"
    return f"Expected calibration error of {of}, in 15 bins of equal width."


def differences_table(found: Comparison) -> Table:
    """Return the differences to the best model, before and after calibration."""
    digits = _digits(found.evaluations[found.best])
    columns: list[str | Column] = [f"above {found.best}"]
    for place, name in enumerate(("log loss", "calibrated", "Brier")):
        spare = 3 - place if place else 0
        columns.append(Column(name, digits=digits, sign=True, spare=2 * spare))
        columns.append(Column("± s.e.", digits=digits, spare=max(2 * spare - 1, 0)))
    rows: list[list[Cell]] = []
    for name in found.ranking[1:]:
        parts = (found.log[name], found.refinement[name], found.brier[name])
        rows.append([name, *(x for part in parts for x in (part.mean, part.standard_error))])
    note = (
        "Mean difference per row and its standard error: less than two standard errors may be chance. "
        "Calibrated: log loss after temperature scaling."
    )
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
    costs: Any = None,
    **more: Any,
) -> Page:
    """Return the page of ``refinecal evaluate``; ``more`` is added to its data."""
    from refinecal.report.of_decisions import PaidCosts, confusion_section, costs_of

    rows = (given.labels, given.probs, list(given.classes), given.weights)
    calibrated, name = found.log.calibrator.predict_proba(given.probs), path.stem
    errors = standard_errors(found, given.labels, given.probs, calibrated, given.weights)
    sections = [
        terms_section({name: found}, terminal=MOST_ROWS),
        reliability_section(
            given.labels, given.probs, calibrated, list(given.classes), given.weights
        ),
        Section("Metrics", (), (metrics_table({name: found}, "predictions", terminal=1),)),
        Section("Classes", (), (classes_table(found, MOST_ROWS),)),
    ]
    confused, counts = confusion_section(*rows)
    paid = PaidCosts() if costs is None else costs_of(*rows, costs)
    sections += [confused, *paid.sections]
    if by is not None:
        losses = losses_table(found.groups, "Losses and metrics", by, rows=True)
        tables = (losses, metrics_table(found.groups, by, short=True))
        sections.append(
            Section(f"By {by}", ("Each subgroup has its own best temperature.",), tables)
        )
    how = "removed by equal probabilities" if is_flat(found) else "removed by temperature scaling"
    if found.log.beta is not None:
        how += f" (beta {_beta(found).text})"
    return Page(
        f"{path.name}: {count(found.n, 'row')}, {count(found.k, 'class', 'classes')}",
        verdict(found, errors),
        cards=[
            Card("log loss", _decimals(found, found.log.risk)),
            Card("calibration error", _decimals(found, found.log.calibration), how),
            Card("accuracy", percent(found.accuracy)),
            Card("AUROC", _decimals(found, found.auroc)),
        ],
        points=[*advice(found, errors), *paid.points],
        sections=sections,
        facts=facts_of(file=path.name, rows=found.n, classes=found.k),
        notes=notes,
        data={**found.to_dict(), **counts, **paid.data, **more},
    )


def comparison_page(
    found: Comparison, models: Mapping[str, Predictions], notes: Sequence[str] = (), **more: Any
) -> Page:
    """Return the page of ``refinecal compare``; ``more`` is added to its data."""
    best, given = found.evaluations[found.best], models[found.best]
    ordered = {name: found.evaluations[name] for name in found.ranking}
    tables = (
        losses_table(ordered, "Losses and metrics, lowest log loss first", "model", rows=False),
        differences_table(found),
        metrics_table(ordered, "model", short=True),
    )
    classes = count(best.k, "class", "classes")
    return Page(
        f"{len(ordered)} models on the same {count(best.n, 'row')}, {classes}; lowest log loss first",
        found.verdict,
        cards=[
            Card(name, _decimals(each, each.log.risk), "log loss") for name, each in ordered.items()
        ][:4],
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
