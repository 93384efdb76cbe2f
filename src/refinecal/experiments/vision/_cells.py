"""Cells of the tables in the report: numbers as people write them, in one piece."""

from __future__ import annotations

from math import isfinite
from typing import Any

from refinecal.experiments.vision.analysis import group_word
from refinecal.experiments.vision.intervals import Mean
from refinecal.experiments.vision.results import Group
from refinecal.experiments.vision.words import chance, format_mean
from refinecal.report import Column, Figure, Table, Written

GROUP_COLUMN = "model and data set"
Blocks = list[Table | Figure]
Columns = list[str | Column]
Cells = list[Any]

UNBROKEN = str.maketrans(
    {" ": "\N{NO-BREAK SPACE}", "-": "\N{NON-BREAKING HYPHEN}", ".": "\N{WORD JOINER}."}
)


def keep_together(text: str) -> str:
    """Keep a few words, or a number among them, on one line."""
    return text.translate(UNBROKEN)


def group_cell(group: Group) -> str:
    """Return what a group of trainings is called, with no break within the name of a model or data set."""
    return group_word(group).replace("-", "\N{NON-BREAKING HYPHEN}")


def measured_cell(found: Mean, score: str, is_best: bool) -> Written:
    """Return a mean with its interval; bold if it is the best."""
    return Written(keep_together(format_mean(found, score)), found.mean, strong=is_best)


def chance_cell(p: float) -> Written:
    """Return a p-value as people write it."""
    return Written(keep_together(chance(p)), p)


def finite_or_none(value: float) -> float | None:
    """Return a number, or nothing for what is none."""
    return value if isfinite(value) else None


def format_value(value: Any) -> Any:
    """Return a number of the recipe as people write it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return f"{value:g}" if isinstance(value, int | float) else value
