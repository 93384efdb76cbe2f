"""The tables of a report on images as CSV files: the same results make the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from refinecal.experiments._tables import write_table
from refinecal.experiments.vision import cost
from refinecal.experiments.vision.analysis import TABLE, Analysis, Cost, Procedure, procedure_word
from refinecal.experiments.vision.results import SCORES, Row

__all__ = ["write_tables"]

Cells = Iterator[tuple[Any, ...]]
MEAN = ("runs", "mean", "half", "low", "high")
ABOUT = ("dataset", "model", "metric", "calibration", "score")


def write_tables(analysis: Analysis, folder: Path) -> list[Path]:
    """Write every table into a folder; return the files.

    ``costs.csv`` tells how long things took, which differs from run to run; nothing else does.
    """
    trainings = analysis.results.trainings
    names = tuple(dict.fromkeys(name for each in trainings for name in each.history))
    tables: dict[str, tuple[tuple[str, ...], Any]] = {
        "runs": (Row._fields, analysis.results.rows),
        "means": (
            (*ABOUT, *MEAN, "best", "published_mean", "published_half"),
            _means(analysis),
        ),
        "paired": (
            (
                *("dataset", "model", "metric", "calibration", "than_metric", "than_calibration"),
                *("score", *MEAN, "p", "lower", "equal", "higher", "verdict"),
            ),
            _paired(analysis),
        ),
        "relative": (("dataset", "model", "seed", "procedure", "percent"), _relative(analysis)),
        "curves": (("dataset", "model", "seed", "epoch", *names), _curves(analysis, names)),
        "estimate": (cost.Estimate._fields, cost.estimates()),
        "costs": (Cost._fields, analysis.costs),
    }
    paths = []
    for name, (columns, rows) in tables.items():
        paths.append(folder / f"{name}.csv")
        write_table(paths[-1], columns, rows)
    return paths


def _calibration(procedure: Procedure) -> str:
    return "temperature" if procedure.scaled else "none"


def _means(analysis: Analysis) -> Cells:
    for group in analysis.groups:
        for scaled in (True, False):
            for score in SCORES:
                best = analysis.best(group, score, scaled)
                printed = analysis.published(group, score) if scaled and score in TABLE else {}
                for metric in analysis.metrics(group):
                    procedure = Procedure(metric, scaled)
                    found, paper = analysis.mean(group, procedure, score), printed.get(metric)
                    yield (
                        *(*group, metric, _calibration(procedure), score),
                        *(*found, found.low, found.high, metric in best),
                        *((None, None) if paper is None else (paper.mean, paper.half)),
                    )


def _paired(analysis: Analysis) -> Cells:
    for group in analysis.groups:
        for first, second in analysis.pairs(group):
            for score in SCORES:
                found = analysis.compare(group, first, second, score)
                yield (
                    *(*group, first.metric, _calibration(first), second.metric),
                    *(_calibration(second), score, found.runs, found.mean, found.half),
                    *(found.low, found.high, found.p, found.lower, found.equal, found.higher),
                    found.verdict,
                )


def _relative(analysis: Analysis) -> Cells:
    for group in analysis.groups:
        seeds = [each.key.seed for each in analysis.results.of(group)]
        for procedure in analysis.procedures():
            if procedure.metric not in analysis.metrics(group):
                continue
            percents = analysis.relative(group, procedure).tolist()
            for seed, percent in zip(seeds, percents, strict=True):
                yield (*group, seed, procedure_word(procedure), percent)


def _curves(analysis: Analysis, names: tuple[str, ...]) -> Cells:
    for each in analysis.results.trainings:
        columns = [each.curve(name) for name in names]
        for epoch, values in enumerate(np.transpose(columns).tolist(), 1):
            yield (*each.key, epoch, *values)
