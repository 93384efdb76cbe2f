"""What the report on images says of the trainings: what they took, what failed, how it was done."""

from __future__ import annotations

from typing import Any

from refinecal._core.format import number, tidy_sentence
from refinecal.experiments.rates import duration
from refinecal.experiments.vision import cost
from refinecal.experiments.vision._cells import (
    GROUP_COLUMN,
    Blocks,
    Cells,
    Columns,
    finite_or_none,
    format_value,
    group_cell,
    keep_together,
)
from refinecal.experiments.vision.analysis import (
    DATASET_WORDS,
    IMAGES,
    MODEL_WORDS,
    PROTOCOL,
    Analysis,
    count_stopped,
)
from refinecal.experiments.vision.published import RUNS
from refinecal.experiments.vision.results import Results, Training
from refinecal.report import Column, Section, Table, Written

__all__ = ["costs_section", "run_section"]


def costs_section(analysis: Analysis) -> Section:
    """Return run time and memory, and an estimate for the full protocol."""
    columns: Columns = [
        GROUP_COLUMN,
        Column("each training", help="Median, everything included."),
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
            group_cell((each.dataset, each.model)),
            Written(keep_together(duration(60 * each.minutes)), each.minutes),
            *(finite_or_none(part) for part in (each.evaluating, each.metrics)),
            *(
                finite_or_none(each.images_per_second),
                finite_or_none(each.gflops),
                each.memory / 1e6,
            ),
        ]
        for each in analysis.costs
    ]
    blocks = (Table("What trainings took here", columns, rows), _estimate_table())
    return Section("Time and memory", [tidy_sentence(each) for each in cost.words()], blocks)


def _estimate_table() -> Table:
    """Return the hours of the full protocol by GPU."""
    rows: list[Cells] = [
        [
            *(keep_together(MODEL_WORDS[each.model]), keep_together(DATASET_WORDS[each.dataset])),
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
    least, most = cost.UTILISATION, cost.MOST
    note = (
        f"Peaks in TFLOPS: {peaks}. Hours are those if {100 * least:.0f} % of the peak are reached, which is "
        f"cautious; if {100 * most:.0f} % are, they are {least / most:.2g} times as many."
    )
    return Table(
        "Estimate: the paper's full protocol on one GPU", columns, rows, tidy_sentence(note)
    )


def run_section(analysis: Analysis) -> Section:
    """Return what was run, what failed, and how it was done."""
    blocks: Blocks = [_recipes_table(analysis, model) for model in analysis.models]
    results = analysis.results
    wrong: list[Cells] = [[str(key), said] for key, said in results.failed.items()]
    wrong += [[str(key), f"ended early: {said}"] for key, said in results.stopped.items()]
    if wrong:
        blocks.append(Table("What failed", ["training", "what happened"], wrong))
    return Section(
        "What was run, and how", [tidy_sentence(each) for each in _method(results)], blocks
    )


def _recipes_table(analysis: Analysis, model: str) -> Table:
    """Return how a model was trained, with a column for each data set, beside the paper's protocol."""
    groups = [group for group in analysis.groups if group[1] == model]
    about = [_shared_settings(analysis.results.of(group)) for group in groups]
    recipe = {name.replace("_", " "): value for name, value in PROTOCOL.items()}
    paper = {"runs": RUNS, **_paper_images([dataset for dataset, _ in groups]), **recipe}
    rows: list[Cells] = [
        [name, *(format_value(each.get(name)) for each in about), format_value(paper.get(name))]
        for name in dict.fromkeys(name for each in about for name in each)
    ]
    sets = [keep_together(DATASET_WORDS.get(dataset, dataset)) for dataset, _ in groups]
    title = f"What was run: {MODEL_WORDS.get(model, model)}"
    help = "Appendix E; precision is that of the published script."
    return Table(title, ["setting", *sets, Column("the paper", help=help)], rows)


def _paper_images(datasets: list[str]) -> dict[str, str]:
    """Return how many images of each kind the paper had, of those data sets that it had."""
    share = PROTOCOL["validation"]
    assert isinstance(share, float)
    sizes: dict[str, list[int]] = {}
    for train, test in (IMAGES[name] for name in datasets if name in cost.DATASETS):
        n_val = round(share * train)
        for name, n in (("training", train - n_val), ("validation", n_val), ("test", test)):
            sizes.setdefault(f"{name} images", []).append(n)
    return {name: " or ".join(map(number, dict.fromkeys(each))) for name, each in sizes.items()}


def _shared_settings(trainings: list[Training]) -> dict[str, Any]:
    """Return by name what trainings of one group share."""
    first = trainings[0]
    short = count_stopped(trainings)
    return {
        "runs": len(trainings),
        **({"ended before the last epoch": short} if short else {}),
        "training images": number(first.n_train),
        "validation images": number(first.n_val),
        "test images": number(first.n_test),
        **{name.replace("_", " "): first.recipe.get(name) for name in PROTOCOL},
        "parameters": keep_together(f"{first.parameters / 1e6:.2f} million"),
        "one image forward": keep_together(f"{first.flops / 1e9:.3g} GFLOP"),
    }


def _method(results: Results) -> list[str]:
    """Say how it was done, and which trainings are not compared."""
    shares = dict.fromkeys(each.recipe.get("validation", 0.1) for each in results.trainings)
    share = " or ".join(f"{100 * each:g} %" for each in shares)
    short = count_stopped(results.trainings)
    ends = f", but for {short}, ended by the patience of a monitor" if short else ""
    said = [
        f"Every training runs to its last epoch{ends}; epochs are counted from 1. After each, every metric "
        f"is measured on validation images ({share} of the training images, drawn by the seed) and test "
        "images, before and after temperature scaling with Laplace smoothing, whose temperature is that of "
        "the validation images. Each metric chooses the epoch where it is best on validation images, of "
        "equal values the first; test images are used for nothing but the scores shown here.",
    ]
    if results.lost:
        said.append(
            "Trainings that ended early, because a loss was no number, are not compared, and are named below."
        )
    if results.repeated:
        said.append(f"Of several runs: {'. '.join(map(str, results.repeated))}.")
    return said
