"""What the report on images says of the trainings: what they took, what failed, how it was done."""

from __future__ import annotations

from refinecal.experiments.vision import cost
from refinecal.experiments.vision._cells import (
    GROUP_COLUMN,
    Blocks,
    Cells,
    Columns,
    known,
    plain,
    unbroken,
)
from refinecal.experiments.vision.analysis import (
    DATASET_WORDS,
    MODEL_WORDS,
    PROTOCOL,
    Analysis,
    group_word,
)
from refinecal.report import Column, Section, Table
from refinecal.report.words import spaced

__all__ = ["costs_section", "run_section"]


def costs_section(analysis: Analysis) -> Section:
    """Return run time and memory, and an estimate for the full protocol."""
    columns: Columns = [
        GROUP_COLUMN,
        Column("parameters, M", digits=2),
        Column("GFLOP", digits=3, help="10⁹ floating point operations of one image forward."),
        Column("minutes", digits=1, help="Median of one training, everything included."),
        Column(
            "evaluating",
            percent=True,
            help="Part of it: predictions of validation and test images.",
        ),
        Column("metrics", percent=True, help="Part of it: all metrics, before and after scaling."),
        Column("images/s", digits=0, help="While training."),
        Column("GFLOPS", digits=1, help="While training: three forward passes for each image."),
        Column("memory, MB", digits=0, help="The most of any training."),
    ]
    rows: list[Cells] = [
        [
            group_word((each.dataset, each.model)),
            *(each.parameters / 1e6, each.flops / 1e9, each.minutes),
            *(known(part) for part in (each.evaluating, each.metrics)),
            *(known(each.images_per_second), known(each.gflops), each.memory / 1e6),
        ]
        for each in analysis.costs
    ]
    blocks = (Table("What trainings took here", columns, rows), _estimate_table())
    return Section("Time and memory", [spaced(each) for each in cost.words()], blocks)


def _estimate_table() -> Table:
    """Return the hours of the full protocol by GPU."""
    rows: list[Cells] = [
        [
            *(MODEL_WORDS[each.model], unbroken(DATASET_WORDS[each.dataset])),
            *(each.runs, each.flops / 1e18),
            *(cost.hours(each.flops, peak) for peak in cost.PEAKS.values()),
        ]
        for each in cost.estimates()
    ]
    total = [sum(row[place] for row in rows) for place in range(2, len(rows[0]))]
    rows.append(["all", "", *total])
    columns: Columns = [
        "model",
        "data set",
        Column("runs", digits=0),
        Column("10¹⁸ FLOP", digits=2, help="Of all runs."),
        *(Column(f"{name}, h", digits=1) for name in cost.PEAKS),
    ]
    peaks = ", ".join(f"{name} {peak:g}" for name, peak in cost.PEAKS.items())
    note = f"Peaks in TFLOPS: {peaks}; {100 * cost.UTILISATION:.0f} % of each are assumed to be reached."
    return Table("Estimate: the paper's full protocol on one GPU", columns, rows, spaced(note))


def run_section(analysis: Analysis) -> Section:
    """Return what was run, what failed, and how it was done."""
    names = ("runs", "training images", "validation", "test")
    recipe = [name for name in PROTOCOL if name != "validation"]
    columns: Columns = [
        GROUP_COLUMN,
        *(Column(name, digits=0) for name in names),
        *(name.replace("_", " ") for name in recipe),
    ]
    rows: list[Cells] = []
    for group in analysis.groups:
        of = analysis.results.of(group)
        counts = (len(of), of[0].n_train, of[0].n_val, of[0].n_test)
        cells = [plain(of[0].recipe.get(name)) for name in recipe]
        rows.append([group_word(group), *counts, *cells])
    blocks: Blocks = [Table("What was run", columns, rows)]
    results = analysis.results
    wrong: list[Cells] = [[str(key), said] for key, said in results.failed.items()]
    wrong += [[str(key), f"ended early: {said}"] for key, said in results.stopped.items()]
    if wrong:
        blocks.append(Table("What failed", ["training", "what happened"], wrong))
    return Section("What was run, and how", [spaced(each) for each in METHOD], blocks)


METHOD = (
    "Every training runs to its last epoch; epochs are counted from 1. After each, every metric is measured "
    "on validation images (a tenth of the training images, drawn by the seed) and test images, before and "
    "after temperature scaling with Laplace smoothing, whose temperature is that of the validation images. "
    "Each metric chooses the epoch where it is best on validation images, of equal values the first; test "
    "images are used for nothing but the scores shown here.",
    "Trainings that ended early, because a loss was no number, are not compared, and are named below.",
)
