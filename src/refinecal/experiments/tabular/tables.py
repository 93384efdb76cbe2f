"""The tables of a report as CSV files: the same results make the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refinecal.experiments._tables import write_table
from refinecal.experiments.tabular.analysis import Analysis, Cost
from refinecal.experiments.tabular.differences import SetComparison, Summary
from refinecal.experiments.tabular.judging import Row, Timing, Training

__all__ = ["write_tables"]

SUMMARY = (
    *("sets", "mean", "mean_low", "mean_high", "q10", "q25", "q50", "q75", "q90"),
    *("lower", "equal", "higher", "wins", "ties", "losses", "wilcoxon_p", "verdict"),
)


def write_tables(analysis: Analysis, folder: Path) -> list[Path]:
    """Write every table into a folder; return the files.

    ``timings.csv`` and ``costs.csv`` tell how long things took, which differs from run to run; nothing else
    does.
    """
    results = analysis.results
    tables: dict[str, tuple[tuple[str, ...], Any]] = {
        "results": (Row._fields, results.rows),
        "trainings": (Training._fields, results.trainings),
        "sets": (
            ("method", "mode", "metric", "calibration", "score", *SetComparison._fields),
            _sets(analysis),
        ),
        "summary": (
            ("method", "mode", "metric", "calibration", "score", *SUMMARY),
            _summary(analysis),
        ),
        "questions": (
            (
                "method",
                "mode",
                "metric",
                "calibration",
                "than_metric",
                "than_calibration",
                *SUMMARY,
            ),
            (
                (method, mode, *one.procedure, *one.reference, *_cells(one.found.summary))
                for method, mode in analysis.pairs
                for one in analysis.questions(method, mode)
            ),
        ),
        "regimes": (("method", "mode", "by", "class", "trainings", *SUMMARY), _regimes(analysis)),
        "timings": (Timing._fields, results.timings),
        "costs": (Cost._fields, analysis.costs),
    }
    paths = []
    for name, (columns, rows) in tables.items():
        paths.append(folder / f"{name}.csv")
        write_table(paths[-1], columns, rows)
    return paths


def _sets(analysis: Analysis) -> Iterator[tuple[Any, ...]]:
    for each in analysis.compare_all():
        for one in each.sets:
            yield (each.method, each.mode, each.metric, each.calibration, each.score, *one)


def _summary(analysis: Analysis) -> Iterator[tuple[Any, ...]]:
    for each in analysis.compare_all():
        about = each.method, each.mode, each.metric, each.calibration, each.score
        yield (*about, *_cells(each.summary))


def _regimes(analysis: Analysis) -> Iterator[tuple[Any, ...]]:
    for each in analysis.regimes:
        about = each.method, each.mode, each.by, each.name, each.trainings
        yield (*about, *_cells(each.summary))


def _cells(found: Summary) -> tuple[Any, ...]:
    """Return a summary in the order of its columns."""
    told = found.wins, found.ties, found.losses
    counts = found.lower, found.equal, found.higher
    known = math.isfinite(found.low) and math.isfinite(found.high)  # nothing is known from one set
    ends = (found.low, found.high) if known else (None, None)
    return (found.sets, found.mean, *ends, *found.quantiles, *counts, *told, found.p, found.verdict)
