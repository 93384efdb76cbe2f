"""The parts of pages on decisions: confused classes, rare classes, and given costs of mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refinecal._core.checks import check_sample
from refinecal._core.format import number, percent, with_error
from refinecal.metrics import confusion_matrix, precision_recall_curve
from refinecal.report.page import Cell, Column, Figure, Section, Table, Written

if TYPE_CHECKING:
    from refinecal.evaluation import CostEvaluation

MOST_CELLS = 12  # classes of a matrix with every number
MOST_TERMINAL = 8
MOST_PAIRS = 15  # of more classes
RARE = 0.2  # share of the rows
MOST_RARE = 6
MATRIX: Any = {"wide": (5.6, 5.2), "narrow": (3.6, 3.6)}
CONFUSION = "Each row is predicted as its most likely class."
RECALL = (
    "Share of the label that is predicted as it. Precision: share of the prediction that is right."
)
CURVES = (
    "Precision is the share of alarms that are right, recall the share of the class that is found, at every "
    "threshold of the probability. Dashed: random predictions."
)
COSTS = (
    "Expected costs follow from the probabilities, realized ones from the labels; ± is one standard error "
    "over rows. If the probabilities are calibrated, the smallest expected cost is the best rule."
)
DECISIONS = {
    "threshold": "At these costs, predict {label!r} above a probability of {threshold}: ",
    "rule": "At these costs, predict the class with the smallest expected cost: ",
    "paid": "the cost per row is {cost}",
    "less": ", {change} less than by the most likely class.",
    "same": ", as by the most likely class.",
    "chance": "; by the most likely class it is {likeliest}: the difference may be chance.",
    "more": ", {change} more than by the most likely class: calibrate the probabilities first.",
    "always": " {always} costs {constant} less.",
    "wrong": " The probabilities expect {expected}, which differs beyond chance: calibrate them first.",
}
NOISE = 1.96  # standard errors


def confusion_section(
    labels: Any, probs: Any, classes: Sequence[str], weights: Any
) -> tuple[Section, dict[str, Any]]:
    """Return which classes are confused and how well rare ones are found, and both as plain data."""
    sample = check_sample(labels, probs, None, weights, range(len(classes)))
    matrix = confusion_matrix(sample)
    blocks: list[Table | Figure] = [_matrix_table(matrix, classes)]
    if len(classes) > MOST_CELLS:
        blocks = [_pairs_table(matrix, classes)]
    elif len(classes) > 2:
        from refinecal.plots import ConfusionDisplay

        about = (
            "Rows of each label by their most likely class; the darker, the larger the part of the label.",
            "How many rows of each label have each class as the most likely one; the table has the numbers.",
        )
        display = ConfusionDisplay(matrix, classes)
        blocks.insert(0, Figure(display, "Confusion matrix", *about, **MATRIX))
    rare = [int(j) for j in np.argsort(sample.frequencies) if 0 < sample.frequencies[j] < RARE]
    curves = [
        replace(precision_recall_curve(sample, label=j), label=classes[j]) for j in rare[:MOST_RARE]
    ]
    if curves:
        blocks += _curves(curves)
    data: dict[str, Any] = {"confusion_matrix": matrix.tolist()}
    if curves:
        data["average_precision"] = {each.label: each.average_precision for each in curves}
    return Section("Which classes are confused?", (), tuple(blocks)), data


def _matrix_table(matrix: Any, classes: Sequence[str]) -> Table:
    with np.errstate(invalid="ignore"):
        recall, precision = (
            np.diag(matrix) / matrix.sum(axis=1),
            np.diag(matrix) / matrix.sum(axis=0),
        )
    digits = 0 if (matrix == matrix.round()).all() else 1
    names = [f"as {name}" for name in classes]
    columns = [
        Column("label", help=CONFUSION),
        *(Column(name, digits, spare=len(names) + 2 - j) for j, name in enumerate(names)),
        Column("recall", percent=True, help=RECALL, spare=1),
    ]
    rows: list[list[Cell]] = [
        [name, *row, share]
        for name, row, share in zip(classes, matrix, recall.tolist(), strict=True)
    ]
    right = np.diag(matrix).sum() / matrix.sum()
    shares = [None if np.isnan(each) else Written(percent(each), each) for each in precision]
    rows.append(["precision", *shares, Written(f"{percent(right)} right", float(right))])
    shown = len(rows) * (len(classes) <= MOST_TERMINAL)
    return Table("Confusion matrix", columns, rows, "", shown)


def _pairs_table(matrix: Any, classes: Sequence[str]) -> Table:
    """Return the most frequent mistakes."""
    wrong = matrix * (1 - np.eye(len(matrix)))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    places = [np.unravel_index(each, matrix.shape) for each in order]
    columns: list[str | Column] = ["label", "predicted as", Column("rows", digits=0)]
    columns.append(Column("share", percent=True, help="Of the rows with this label."))
    rows: list[list[Cell]] = [
        [classes[i], classes[j], float(wrong[i, j]), float(wrong[i, j] / matrix[i].sum())]
        for i, j in places
        if wrong[i, j] > 0
    ]
    return Table("Most frequent mistakes", columns, rows, CONFUSION, min(len(rows), 5))


def _curves(curves: Sequence[Any]) -> list[Figure | Table]:
    from refinecal.plots import PrecisionRecallDisplay

    columns: list[str | Column] = [
        "rare class",
        Column("share", percent=True),
        Column("average precision", digits=3, help="Random predictions have that of the share."),
    ]
    rows = [[each.label, each.share, each.average_precision] for each in curves]
    figure = Figure(
        PrecisionRecallDisplay(curves),
        "Precision and recall of rare classes",
        CURVES,
        "; ".join(f"{each.label}: {number(each.average_precision, 3)}" for each in curves),
        wide=(7.2, 3.6),
    )
    return [figure, Table("Rare classes", columns, rows, terminal=len(rows))]


class PaidCosts(NamedTuple):
    """What given costs add to a page: nothing if there are none."""

    sections: tuple[Section, ...] = ()
    points: tuple[str, ...] = ()
    data: Mapping[str, Any] = {}


def costs_of(
    labels: Any, probs: Any, classes: Sequence[str], weights: Any, costs: Any, groups: Any = None
) -> PaidCosts:
    """Return what decisions cost on labelled rows, for a page."""
    from refinecal.evaluation import evaluate_costs

    about: dict[str, Any] = {"sample_weight": weights, "names": classes, "groups": groups}
    found = evaluate_costs(labels, probs, costs, classes=range(len(classes)), **about)
    return PaidCosts((_costs_section(found),), (describe_costs(found),), {"costs": found.to_dict()})


def _costs_section(found: CostEvaluation) -> Section:
    """Return what ways to decide cost."""
    columns: list[str | Column] = [
        "predicting",
        "expected cost",
        "cost",
        "± s.e.",
        Column("change", sign=True, help="Cost minus that in the first line."),
        "± s.e.",
    ]
    rows: list[list[Cell]] = []
    for place, (name, way) in enumerate(found.ways.items()):
        paid, change = way.realized, way.change
        rest = (change.mean, change.standard_error) if place else (None, None)
        rows.append([name, way.expected, paid.mean, paid.standard_error, *rest])
    blocks: list[Figure | Table] = [Table("Cost per row", columns, rows, terminal=len(rows))]
    if found.threshold is not None:
        from refinecal.plots import CostDisplay

        figure = Figure(
            CostDisplay(found),
            "Cost by threshold",
            "Where the curves differ, the probabilities are not calibrated.",
            f"The threshold for these costs is {percent(found.threshold)}.",
            wide=(7.2, 3.4),
        )
        blocks.insert(0, figure)
    return Section("Decisions at given costs", (COSTS,), tuple(blocks))


def describe_costs(found: CostEvaluation) -> str:
    """Return how to decide and what it costs, in a sentence or two."""
    likeliest, best = list(found.ways.values())[1], found.best
    paid, change = best.realized, likeliest.change
    case = "chance"
    if not change.mean and not change.standard_error:
        case = "same"
    elif change.is_sure:
        case = "less" if change.mean > 0 else "more"
    text = DECISIONS["rule" if found.threshold is None else "threshold"] + DECISIONS["paid"]
    text += DECISIONS[case]
    always, constant = [*found.ways.items()][2]
    if constant.change.mean < 0 and constant.change.is_sure:
        text += DECISIONS["always"]
    if abs(best.expected - paid.mean) > NOISE * paid.standard_error:
        text += DECISIONS["wrong"]
    second = found.threshold or 0.0
    return text.format(
        label=found.classes[second <= 0.5],
        threshold=percent(min(second, 1 - second)),
        cost=f"{with_error(paid.mean, paid.standard_error)} (s.e.)",
        change=with_error(abs(change.mean), change.standard_error),
        likeliest=with_error(likeliest.realized.mean, likeliest.realized.standard_error),
        always=always.capitalize(),
        constant=with_error(-constant.change.mean, constant.change.standard_error),
        expected=number(best.expected),
    )
