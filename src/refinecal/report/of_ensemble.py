"""The page of ``refinecal ensemble``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal._core.format import count, number, with_error
from refinecal.report.of_evaluation import facts_of
from refinecal.report.page import Card, Cell, Column, Figure, Page, Section, Table

if TYPE_CHECKING:
    from refinecal.ensembles import SelectedEnsemble

MOST_ROWS = 30  # of members, on the terminal
SURE = (
    "The ensemble's log loss is {gain} (standard error) below that of the best single model, {best}"
)
UNSURE = (
    "The ensemble is within noise of the best single model, {best}: its log loss is lower by {gain}"
)
ALONE = "No ensemble is better than {best} alone, by cross-validation."
PICKED = "Only {best} was picked."
OUTSIDE = ", after temperature scaling, by cross-validation."
INSIDE = ", after temperature scaling, on the rows that chose it, which flatters it."
MEMBER = (
    "Refinement is the log loss after temperature scaling, on all rows. Members are chosen for what they add "
    "to the others, so a member may have a weight although others are better alone."
)
PATH = (
    "Each pick is the member that makes the pool best, and may be picked again. By cross-validation: picked "
    "on some rows, evaluated on the others. The dotted line is the number of picks used."
)


def ensemble_page(
    found: SelectedEnsemble, rows: int, notes: Sequence[str] = (), **more: Any
) -> Page:
    """Return the page of an ensemble; ``more`` is added to its data."""
    used = int(np.count_nonzero(found.weights))
    gain = -found.gain.mean
    cards = [
        Card(
            "log loss",
            number(found.log_loss, 4),
            f"after temperature scaling, {'by cross-validation' if found.kinds else 'in sample'}",
        ),
        Card("members", f"{used} of {len(found.names)}", f"{found.pool} pool, {found.members}"),
        Card("gain", number(gain, 4), f"log loss below {found.best_single}"),
    ]
    blocks: list[Table | Figure] = [leaderboard(found)]
    sections = [Section("Leaderboard", (), blocks)]
    if len(found.path) > 1:
        from refinecal.plots import EnsemblePathDisplay

        figure = Figure(
            EnsemblePathDisplay.of(found),
            "The metric after each pick",
            PATH,
            f"{found.metric} after each of {len(found.path)} picks.",
        )
        sections.append(Section("How it was chosen", (), (figure, *_kinds(found))))
    title = (
        f"{count(len(found.names), 'model')} on the same {count(rows, 'row')}: {found.describe()}"
    )
    return Page(
        title,
        _lead(found),
        cards=cards,
        sections=sections,
        facts=facts_of(rows=rows, classes=len(found.classes)),
        notes=notes,
        data={**found.to_dict(), **more},
    )


def _lead(found: SelectedEnsemble) -> str:
    if found.choice == "best single":
        n_picks = sum(step["used"] for step in found.path)  # several may all be of one member
        text = ALONE if found.kinds and n_picks == 1 else PICKED
        return text.format(best=found.best_single)
    text = SURE if found.gain.high < 0 else UNSURE
    gain = with_error(-found.gain.mean, found.gain.standard_error)
    text = text.format(gain=gain, best=found.best_single)
    return text + (OUTSIDE if found.kinds else INSIDE)


def leaderboard(found: SelectedEnsemble) -> Table:
    """Return a row for each member, the best alone first."""
    columns: list[str | Column] = [
        "model",
        Column("refinement", digits=4),
        Column("log loss", digits=4, spare=1),
        Column("weight", digits=3),
    ]
    rows: list[list[Cell]] = [
        [each["member"], each["refinement"], each["log_loss"], each["weight"]]
        for each in found.table
    ]
    return Table("Models, lowest refinement first", columns, rows, MEMBER, MOST_ROWS)


def _kinds(found: SelectedEnsemble) -> list[Table]:
    if len(found.kinds) < 2:
        return []
    columns: list[str | Column] = ["pool", Column(f"{found.metric} by cross-validation", digits=5)]
    rows: list[list[Cell]] = [
        [f"{each['pool']}, {each['members']} members", each["cv_value"]] for each in found.kinds
    ]
    return [Table("Kinds of pool", columns, rows, terminal=4)]
