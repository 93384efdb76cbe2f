"""The page of ``refinecal importance``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refinecal._core.format import count, list_names, number, with_error
from refinecal.report.of_evaluation import facts_of
from refinecal.report.page import Cell, Column, Figure, Page, Section, Table

if TYPE_CHECKING:
    from refinecal.evaluation import ColumnImportance, Importance

MOST_ROWS = 15  # on the terminal
MOST_NAMED = 5
BELOW = 3  # standard errors below the test loss: the model has probably seen the rows
MUCH = 0.5  # of the rise of the loss that is calibration error
TEXT = (
    "Each column was shuffled, which breaks its relation to the label, and all rows were predicted again. "
    "Columns that carry the same information share it: shuffling one of them leaves the others.",
    "The rise of the log loss is that of the refinement error plus that of the calibration error. Refinement "
    "is information that the predictions lose, and closer to what the column is worth. Calibration error is "
    "overconfidence in wrong values: part of the harm of a silent fault of the column, but not of a model "
    "without it.",
)
LEADS = {
    "sure": "Shuffling {first!r} costs most: the refinement error rises by {refinement} (s.e.), the log loss "
    "by {loss}.",
    "none": "No column matters beyond chance on {rows}.",
}
POINTS = {
    "seen": "Warning: the log loss of these rows is {risk}, but that of the test rows of the run was {test} "
    "(s.e.). If the model was trained on these rows, every column looks important: use other rows.",
    "disagree": "By log loss {by_loss!r} comes first, with {loss} (s.e.): a fault of it would do the most "
    "harm, although its information is worth less than that of {first!r}.",
    "trusted": "Mostly overconfidence: of what shuffling {names} costs, more than half is calibration error. "
    "The model relies on {them} more than the information is worth.",
    "nothing": "No effect beyond chance: {names}. Without {them}, the model may be as good: fit again with "
    "--drop and compare.",
}


def page(
    found: Importance,
    path: Path,
    seed: int,
    notes: Sequence[str] = (),
    test_loss: Mapping[str, float] | None = None,
) -> Page:
    """Return what shuffling each column costs; ``test_loss`` is that of the run, with its standard error."""
    from refinecal.plots import ImportanceDisplay

    figure = Figure(
        ImportanceDisplay(found),
        "What shuffling a column costs",
        "Means over permutations; bars are standard errors over rows.",
        "; ".join(
            f"{each.column}: refinement {number(each.refinement.mean, 4)}, log loss "
            f"{number(each.loss.mean, 4)}"
            for each in found.columns[:MOST_NAMED]
        ),
        wide=(7.2, 1.1 + 0.28 * min(len(found.columns), 20)),
        narrow=(3.6, 1.4 + 0.26 * min(len(found.columns), 20)),
    )
    rows = count(found.log.n, "row")
    return Page(
        f"Importance of {count(len(found.columns), 'column')} on {rows} of {path.name}",
        _lead(found, rows),
        points=[*_seen_point(found, test_loss), *_points(found)],
        sections=[
            Section("How much does the model rely on each column?", TEXT, (figure, _table(found)))
        ],
        facts=facts_of(file=path.name, rows=found.log.n, permutations=found.n_repeats, seed=seed),
        notes=notes,
        data=found.to_dict(),
    )


def _table(found: Importance) -> Table:
    error = "Standard error over rows, of the mean over permutations."
    columns: list[str | Column] = ["column"]
    for name, spare in (("refinement", 0), ("log loss", 2)):
        columns.append(Column(name, digits=4, sign=True, spare=spare))
        columns.append(Column("± s.e.", digits=4, spare=spare, help=error if spare else ""))
    columns.append(
        Column("calibration", digits=4, sign=True, spare=1, help="Log loss minus refinement.")
    )
    rows: list[list[Cell]] = []
    for each in found.columns:
        pairs = ((term.mean, term.standard_error) for term in (each.refinement, each.loss))
        rows.append([str(each.column), *(x for pair in pairs for x in pair), each.calibration])
    risk = number(found.log.risk, 4)
    note = (
        f"Rise from a log loss of {risk}, of which {number(found.log.refinement, 4)} is refinement."
    )
    return Table("Rise when shuffled", columns, rows, note, MOST_ROWS)


def _lead(found: Importance, rows: str) -> str:
    first = found.columns[0]
    case = "sure" if _matters(first) else "none"
    return LEADS[case].format(
        first=first.column,
        rows=rows,
        refinement=with_error(first.refinement.mean, first.refinement.standard_error),
        loss=with_error(first.loss.mean, first.loss.standard_error),
    )


def _seen_point(found: Importance, test_loss: Mapping[str, float] | None) -> list[str]:
    """Return a warning if the loss is so far below that of test rows that the model has seen these."""
    if test_loss is None:
        return []
    mean, error = (test_loss[name] or 0.0 for name in ("mean", "standard_error"))
    if found.log.risk >= mean - BELOW * error:
        return []
    return [POINTS["seen"].format(risk=number(found.log.risk, 4), test=with_error(mean, error))]


def _points(found: Importance) -> list[str]:
    """Return what it means where loss and refinement disagree, and which columns may be left out."""
    first, by_loss = found.columns[0], max(found.columns, key=lambda each: each.loss.mean)
    trusted = [
        each
        for each in found.columns
        if each.loss.low > 0 and each.calibration > MUCH * each.loss.mean
    ]
    nothing = [each for each in found.columns if not _matters(each) and each not in trusted]
    points = []
    if by_loss is not first and _matters(first):
        loss = with_error(by_loss.loss.mean, by_loss.loss.standard_error)
        points.append(
            POINTS["disagree"].format(by_loss=by_loss.column, loss=loss, first=first.column)
        )
    for case, columns in (("trusted", trusted), ("nothing", nothing)):
        if columns:
            them = "it" if len(columns) == 1 else "them"
            names = list_names([str(each.column) for each in columns], MOST_NAMED)
            points.append(POINTS[case].format(names=names, them=them))
    return points


def _matters(each: ColumnImportance) -> bool:
    """Return whether the refinement error rises beyond chance."""
    return each.refinement.low > 0
