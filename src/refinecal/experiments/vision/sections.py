"""What the report on images says of ways to stop: the paper's figures and tables, and what they leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refinecal._core.format import tidy_sentence
from refinecal.experiments.vision import figures
from refinecal.experiments.vision._cells import (
    GROUP_COLUMN,
    Blocks,
    Cells,
    Columns,
    chance_cell,
    group_cell,
    keep_together,
    measured_cell,
)
from refinecal.experiments.vision.analysis import (
    DATASET_WORDS,
    METRIC_WORDS,
    MODEL_WORDS,
    PAPER,
    REFERENCE,
    SCORE_WORDS,
    TABLE,
    Analysis,
    Procedure,
    best_of,
    group_word,
    procedure_word,
)
from refinecal.experiments.vision.intervals import welch_difference
from refinecal.experiments.vision.results import Group
from refinecal.experiments.vision.words import format_gap
from refinecal.report import Column, Section, Table, Written

__all__ = [
    "curves_section",
    "epochs_section",
    "headline_section",
    "pairs_section",
    "tables_section",
    "unscaled_section",
]

PAPER_WORD = "paper"
HERE_WORD = "here"
WHEN = {True: "after temperature scaling", False: "as they are"}
COMPARED = ("log_loss", "brier", "accuracy")  # in pairs; the tables as files have all scores
FEWER = (*COMPARED, "ece")  # of metrics that the paper's tables do not have


def headline_section(analysis: Analysis) -> Section:
    """Return refinement against log loss, and figure 5 of the paper."""
    columns: Columns = [
        GROUP_COLUMN,
        Column(
            "log loss + TS", digits=4, help="Mean test log loss of the epoch that log loss chose."
        ),
        Column("refinement + TS", digits=4),
        Column("difference", help="Paired, with the 95 % interval of Student's t over runs."),
        Column(
            "%", digits=2, help="The difference as a part of the first loss; negative is better."
        ),
        Column(
            keep_together("− · 0 · +"),
            help="Runs whose difference is negative, exactly 0, and positive.",
        ),
        Column("p", help="Of the paired t-test."),
        Column(keep_together("all told"), help="Whether the interval leaves out 0."),
    ]
    rows: list[Cells] = [
        [
            group_cell(group),
            *(analysis.mean(group, one).mean for one in (REFERENCE, Procedure("refinement"))),
            Written(keep_together(format_gap(found)), found.mean),
            analysis.relative_headline(group),
            keep_together(f"{found.lower} · {found.equal} · {found.higher}"),
            *(chance_cell(found.p), keep_together(found.verdict)),
        ]
        for group, found in analysis.headlines.items()
    ]
    text = (
        "Both choose an epoch of the same training by the same validation images, and both are followed by "
        "temperature scaling (TS) on these images. So the difference is what the choice alone changes.",
        "Test images are the same in all runs: an interval tells what another seed would change, not what "
        "other test images would.",
    )
    table = Table("Refinement + TS against log loss + TS: test log loss", columns, rows)
    blocks = (table, figures.differences(analysis))
    return Section("Refinement or log loss", [tidy_sentence(each) for each in text], blocks)


def curves_section(analysis: Analysis) -> Section:
    """Return figure 1 of the paper for every group, and the same over all runs."""
    blocks: Blocks = []
    for group in analysis.groups:
        blocks += [figures.first_run(analysis, group), figures.over_runs(analysis, group)]
    text = (
        "Risk is the log loss of the validation images; refinement is what is left of it after the best "
        "temperature, and calibration is what that removes. Where they are not smallest at the same epoch, "
        "the epoch of the smallest risk has calibration error, and is not the best for refinement.",
    )
    return Section("While training", text, blocks)


def tables_section(analysis: Analysis) -> Section:
    """Return the tables of appendix E, beside the published numbers where there are any."""
    text = [
        "Test scores after temperature scaling, of the epoch that each metric chose on the validation "
        "images: means over runs ± half of the 95 % interval of Student's t. Bold is the best of the paper's "
        "four metrics, with the decimals that are shown, unless all here are equal. ECE has 15 bins.",
    ]
    blocks: Blocks = []
    for group in analysis.groups:
        blocks.append(_scores_table(analysis, group))
        if analysis.published(group, "log_loss"):
            blocks.append(_against_table(analysis, group))
            text.append(_comparable(analysis, group))
    blocks += _others(analysis)
    return Section("The tables of appendix E", [tidy_sentence(each) for each in text], blocks)


def _scores_table(analysis: Analysis, group: Group, scaled: bool = True) -> Table:
    """Return the means of a group by the paper's metrics, and below them those of the paper."""
    best = {score: analysis.best(group, score, scaled) for score in TABLE}
    rows: list[Cells] = [
        [
            *(keep_together(METRIC_WORDS[metric]), HERE_WORD),
            *_means(analysis, group, Procedure(metric, scaled), TABLE, best),
        ]
        for metric in analysis.metrics(group)
        if metric in PAPER
    ]
    printed = _paper_rows(analysis, group) if scaled else []
    names = [SCORE_WORDS[each] for each in TABLE]
    columns: Columns = ["stopping metric", *(["from"] if printed else []), *names]
    if not printed:
        rows = [[row[0], *row[2:]] for row in rows]
    return Table(f"{group_word(group)}: test scores {WHEN[scaled]}", columns, rows + printed)


def _means(
    analysis: Analysis,
    group: Group,
    procedure: Procedure,
    scores: Sequence[str],
    best: Mapping[str, set[str]] | None = None,
) -> Cells:
    """Return the mean of each score, bold where the metric is among the best."""
    means = {score: analysis.mean(group, procedure, score) for score in scores}
    bold = {score for score, names in (best or {}).items() if procedure.metric in names}
    return [measured_cell(mean, score, score in bold) for score, mean in means.items()]


def _others(analysis: Analysis, scaled: bool = True) -> list[Table]:
    """Return by model the means of metrics that the paper's tables do not have, of which none is bold."""
    columns: Columns = ["data set", "metric", *(SCORE_WORDS[each] for each in FEWER)]
    tables = []
    for model in analysis.models:
        rows: list[Cells] = [
            [
                *(
                    keep_together(DATASET_WORDS.get(group[0], group[0])),
                    keep_together(METRIC_WORDS[metric]),
                ),
                *_means(analysis, group, Procedure(metric, scaled), FEWER),
            ]
            for group in analysis.groups
            for metric in analysis.metrics(group)
            if group[1] == model and metric not in PAPER
        ]
        title = (
            f"{MODEL_WORDS.get(model, model)}, stopped by other metrics: test scores {WHEN[scaled]}"
        )
        tables += [Table(title, columns, rows)] if rows else []
    return tables


def _paper_rows(analysis: Analysis, group: Group) -> list[Cells]:
    """Return what the paper printed for a group, if it did; its best is bold, too."""
    printed = {score: analysis.published(group, score) for score in TABLE}
    best = {score: best_of(means, score) for score, means in printed.items()}
    return [
        [
            *(keep_together(METRIC_WORDS[metric]), keep_together(PAPER_WORD)),
            *(
                measured_cell(printed[score][metric], score, metric in best[score])
                for score in TABLE
            ),
        ]
        for metric in printed["log_loss"]
    ]


def _against_table(analysis: Analysis, group: Group) -> Table:
    """Return how far the means are from the published ones."""
    rows: list[Cells] = []
    for metric in analysis.published(group, "log_loss"):
        if metric in analysis.metrics(group):
            gaps = {
                score: welch_difference(
                    analysis.mean(group, Procedure(metric), score),
                    analysis.published(group, score)[metric],
                )
                for score in TABLE
            }
            cells = [
                Written(keep_together(format_gap(gaps[score], score, 3)), gaps[score].mean)
                for score in TABLE
            ]
            rows.append([keep_together(METRIC_WORDS[metric]), *cells])
    columns: Columns = ["stopping metric", *(SCORE_WORDS[each] for each in TABLE)]
    note = (
        "Mean here less mean in the paper, ± half of Welch's 95 % interval. That of accuracy is in "
        "percentage points. The published numbers are rounded, which alone makes up to 0.0005, or 0.05 "
        "points."
    )
    return Table(f"{group_word(group)}: here less the paper", columns, rows, tidy_sentence(note))


def _comparable(analysis: Analysis, group: Group) -> str:
    """Say whether the numbers can be compared with the paper's."""
    said = analysis.departures(group)
    if not said:
        return f"{group_word(group)} was trained by the paper's protocol."
    return (
        f"{group_word(group)} was not trained by the paper's protocol ({', '.join(said)}): its numbers "
        "stand beside, and are not a replication."
    )


def pairs_section(analysis: Analysis) -> Section:
    """Return direct comparisons of stopping metrics, and of scaling with none."""
    text = (
        "First less second in the same trainings: means over runs ± half of the 95 % interval of Student's "
        "t. Below 0 the first is better, but for accuracy, which is in percentage points. Many comparisons "
        "are shown: of 20 without any difference, one will seem to have one.",
    )
    tables = [_pairs_table(analysis, group) for group in analysis.groups]
    return Section("Each metric against the others", [tidy_sentence(each) for each in text], tables)


def _pairs_table(analysis: Analysis, group: Group) -> Table:
    columns: Columns = [
        "first",
        "second",
        *(SCORE_WORDS[score] for score in COMPARED),
        Column(keep_together("all told"), help="Of log loss: whether the interval leaves out 0."),
    ]
    rows: list[Cells] = []
    for first, second in analysis.pairs(group):
        found = {score: analysis.compare(group, first, second, score) for score in COMPARED}
        cells = [
            Written(keep_together(format_gap(each, score)), each.mean)
            for score, each in found.items()
        ]
        about = [keep_together(procedure_word(each)) for each in (first, second)]
        loss = found["log_loss"]
        rows.append([*about, *cells, keep_together(loss.verdict)])
    return Table(f"{group_word(group)}: paired differences in test scores", columns, rows)


def epochs_section(analysis: Analysis) -> Section:
    """Return which epochs each metric chose."""
    from numpy import nanmax, nanmedian, nanmin

    rows: list[Cells] = []
    for group in analysis.groups:
        last = max(each.epochs for each in analysis.results.of(group))
        for metric in analysis.metrics(group):
            chosen = analysis.chosen_epochs(group, metric)
            spread = [float(each(chosen)) for each in (nanmin, nanmedian, nanmax)]
            about = group_cell(group), keep_together(METRIC_WORDS[metric])
            rows.append([*about, *(Written(f"{epoch:g}", epoch) for epoch in spread), last])
    counts = [Column(name, digits=0) for name in ("earliest", "median", "latest", "of")]
    columns: Columns = [GROUP_COLUMN, "metric", *counts]
    note = (
        "ECE and smooth ECE are small before anything is learned: they are no metrics to stop by."
    )
    table = Table("Best epochs over runs", columns, rows, note)
    return Section("When each metric stops", (), (figures.epochs(analysis), table))


def unscaled_section(analysis: Analysis) -> Section:
    """Return the same tables without temperature scaling."""
    blocks = [_scores_table(analysis, group, scaled=False) for group in analysis.groups]
    blocks += _others(analysis, scaled=False)
    text = (
        "The same choices, without temperature scaling: what is not calibrated afterwards costs.",
    )
    return Section("Without temperature scaling", text, blocks)
