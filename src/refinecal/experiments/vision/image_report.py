"""The report of an experiment on images: one page with the paper's figures and tables, and CSV files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from refinecal._core.format import number
from refinecal.experiments.comparing import Mean, welch_difference
from refinecal.experiments.plan import VisionPlan
from refinecal.experiments.rates import duration
from refinecal.experiments.report import Blocks, Cells, Columns, keep_together, number_columns
from refinecal.experiments.results import ImageResults
from refinecal.experiments.vision import cost
from refinecal.experiments.vision import image_analysis as words
from refinecal.experiments.vision import image_figures as figures
from refinecal.experiments.vision.cost import IMAGES, PROTOCOL, RUNS, TABLE
from refinecal.experiments.vision.history import Group, History
from refinecal.experiments.vision.image_analysis import Analysis
from refinecal.experiments.vision.recipe import ONLY_SGD
from refinecal.report import Card, Column, Page, Section, Table, Written
from refinecal.report.of_evaluation import facts_of

TITLE = "Stopping by refinement, on images"
GROUP_COLUMN = "model and data set"
CARDS = 3  # comparisons at the top of the page
WHEN = {True: "after temperature scaling", False: "as they are"}
COMPARED = ("log_loss", "brier", "accuracy")  # in pairs; the tables as files have all scores
FEWER = (*COMPARED, "ece")  # of metrics that the paper's tables do not have


def page(analysis: Analysis) -> Page:
    """Return the report: the answer first, then the curves and tables of the paper, then everything else."""
    sections = (
        *((headline_section,) if analysis.headlines else ()),
        curves_section,
        tables_section,
        pairs_section,
        epochs_section,
        unscaled_section,
        costs_section,
        run_section,
    )
    points = [words.sentence(analysis, group) for group in analysis.headlines]
    return Page(
        TITLE,
        words.lead(analysis),
        cards=cards(analysis),
        points=[*points, *words.describe_flat(analysis)],
        sections=[make(analysis) for make in sections],
        facts=facts_of(
            **{
                "data sets": ", ".join(
                    dict.fromkeys(words.DATASET_WORDS[d] for d, _ in analysis.groups)
                ),
                "models": ", ".join(words.model_word(model) for model in analysis.models),
                "plan": ", ".join(plan.key for plan in analysis.results.plans),
            }
        ),
    )


def cards(analysis: Analysis) -> list[Card]:
    """Return the most important numbers."""
    results = analysis.results
    early = [f"{len(results.lost)} ended early"] if results.lost else []
    said = ", ".join(filter(None, [results.unfinished(), *early]))
    made = [Card("training runs", len(results.trainings), said or "none failed")]
    for group in list(analysis.headlines)[:CARDS]:
        change = words.percent(analysis.relative_headline(group))
        made.append(
            Card("change of test log loss", change, f"by refinement: {words.group_word(group)}")
        )
    return made


# ---- cells of tables ---------------------------------------------------------------------------------------


def _group_cell(group: Group) -> str:
    """Return the name of a group, with no break within that of a model or data set."""
    return words.group_word(group).replace("-", "\N{NON-BREAKING HYPHEN}")


def _mean_cell(found: Mean, score: str, is_best: bool) -> Written:
    return Written(keep_together(words.format_mean(found, score)), found.mean, strong=is_best)


def _gap_cell(found: Any, score: str = "log_loss", digits: int = 4) -> Written:
    return Written(keep_together(words.format_gap(found, score, digits)), found.mean)


def _metric(name: str) -> str:
    return str(keep_together(words.METRIC_WORDS[name]))


# ---- stopping by refinement, and the paper's tables --------------------------------------------------------


def headline_section(analysis: Analysis) -> Section:
    """Return refinement against log loss, and figure 5 of the paper."""
    columns: Columns = [
        GROUP_COLUMN,
        Column(
            "log loss + TS", digits=4, help="Mean test log loss of the epoch that log loss chose."
        ),
        Column("refinement + TS", digits=4),
        Column("difference ± s.e.", help="Paired; s.e. is the standard error over runs."),
        Column("95% interval", help="Of the difference, by Student's t over runs."),
        Column(
            "%", digits=2, help="The difference relative to the first loss; negative is better."
        ),
        Column(
            keep_together("− · 0 · +"),
            help="Runs whose difference is negative, exactly 0, and positive.",
        ),
        Column("p", help="Of the paired t-test."),
        Column("verdict", help="Whether the interval excludes 0."),
    ]
    rows: list[Cells] = [
        [
            _group_cell(group),
            *(
                analysis.mean(group, one).mean
                for one in (words.REFERENCE, words.Procedure("refinement"))
            ),
            *(_gap_cell(found), keep_together(words.format_interval(found))),
            analysis.relative_headline(group),
            keep_together(f"{found.lower} · {found.equal} · {found.higher}"),
            *(
                Written(keep_together(words.format_p(found.p)), found.p),
                keep_together(found.verdict),
            ),
        ]
        for group, found in analysis.headlines.items()
    ]
    text = (
        "Both choose an epoch of the same training run by the same validation images, and both are followed "
        "by temperature scaling (TS) on these images. So the difference is what the choice alone changes.",
        "Test images are the same in all runs: an interval covers what another seed would change, not what "
        "other test images would.",
    )
    table = Table("Refinement + TS against log loss + TS: test log loss", columns, rows)
    return Section("Refinement or log loss", text, (table, figures.differences(analysis)))


def curves_section(analysis: Analysis) -> Section:
    """Return figure 1 of the paper for every group, and the same over all runs."""
    blocks: Blocks = []
    for group in analysis.groups:
        blocks += [figures.first_run(analysis, group), figures.over_runs(analysis, group)]
    text = (
        "Risk is the log loss of the validation images; refinement is what is left of it after the best "
        "temperature, and calibration is what that removes. If their minima are at different epochs, the "
        "epoch of smallest risk has calibration error, and is not the best for refinement.",
    )
    return Section("While training", text, blocks)


def tables_section(analysis: Analysis) -> Section:
    """Return the tables of appendix E, next to the published numbers where there are any."""
    text = [
        "Test scores after temperature scaling, of the epoch that each metric chose on the validation "
        "images: mean over runs ± standard error. The paper prints 95% intervals, from which its standard "
        "errors are computed. Bold is the best of the paper's four metrics, with the decimals shown, unless "
        "all here are equal. ECE has 15 bins.",
    ]
    blocks: Blocks = []
    for group in analysis.groups:
        blocks.append(_scores_table(analysis, group))
        if analysis.published(group, "log_loss"):
            blocks.append(_against_table(analysis, group))
            said = words.departures(analysis.results.of(group))
            text.append(
                f"{words.group_word(group)} was not trained by the paper's protocol ({', '.join(said)}): its "
                "numbers are shown next to the paper's, but are not a replication."
                if said
                else f"{words.group_word(group)} was trained by the paper's protocol."
            )
    return Section("The tables of appendix E", text, [*blocks, *_other_tables(analysis)])


def _scores_table(analysis: Analysis, group: Group, scaled: bool = True) -> Table:
    """Return the means of a group by the paper's metrics, and below them those of the paper."""
    best = {score: analysis.best(group, score, scaled) for score in TABLE}
    rows: list[Cells] = [
        [
            _metric(name),
            "here",
            *_means(analysis, group, words.Procedure(name, scaled), TABLE, best),
        ]
        for name in analysis.metrics(group)
        if name in words.PAPER
    ]
    printed = {score: analysis.published(group, score) for score in TABLE if scaled}
    names = [words.METRIC_WORDS[each] for each in TABLE]
    title = f"{words.group_word(group)}: test scores {WHEN[scaled]}, ± s.e."
    if not printed.get("log_loss"):
        return Table(title, ["stopping metric", *names], [[row[0], *row[2:]] for row in rows])
    bold = {score: words.best_of(means, score) for score, means in printed.items()}
    for name in printed["log_loss"]:
        cells = (_mean_cell(printed[score][name], score, name in bold[score]) for score in TABLE)
        rows.append([_metric(name), "paper", *cells])
    return Table(title, ["stopping metric", "from", *names], rows)


def _means(
    analysis: Analysis,
    group: Group,
    procedure: words.Procedure,
    scores: Sequence[str],
    best: Mapping[str, set[str]],
) -> Cells:
    """Return the mean of each score, bold where the metric is among the best."""
    return [
        _mean_cell(
            analysis.mean(group, procedure, score), score, procedure.metric in best.get(score, ())
        )
        for score in scores
    ]


def _other_tables(analysis: Analysis, scaled: bool = True) -> list[Table]:
    """Return by model the means of metrics that the paper's tables do not have, of which none is bold."""
    columns: Columns = ["data set", "metric", *(words.METRIC_WORDS[each] for each in FEWER)]
    tables = []
    for model in analysis.models:
        rows: list[Cells] = [
            [
                *(keep_together(words.DATASET_WORDS.get(group[0], group[0])), _metric(name)),
                *_means(analysis, group, words.Procedure(name, scaled), FEWER, {}),
            ]
            for group in analysis.groups
            for name in analysis.metrics(group)
            if group[1] == model and name not in words.PAPER
        ]
        about = f"test scores {WHEN[scaled]}, ± s.e."
        title = f"{words.model_word(model)}, stopped by other metrics: {about}"
        tables += [Table(title, columns, rows)] if rows else []
    return tables


def _against_table(analysis: Analysis, group: Group) -> Table:
    """Return how far the means are from the published ones."""
    printed = {score: analysis.published(group, score) for score in TABLE}
    rows: list[Cells] = [
        [
            _metric(name),
            *(
                _gap_cell(welch_difference(mean, printed[score][name]), score, 3)
                for score in TABLE
                for mean in [analysis.mean(group, words.Procedure(name), score)]
            ),
        ]
        for name in printed["log_loss"]
        if name in analysis.metrics(group)
    ]
    note = (
        "Mean here less mean in the paper, ± standard error; accuracy in percentage points. "
        "The published numbers are rounded, which alone may change these by 0.0005, or 0.05 points."
    )
    columns: Columns = ["stopping metric", *(words.METRIC_WORDS[each] for each in TABLE)]
    return Table(f"{words.group_word(group)}: here less the paper, ± s.e.", columns, rows, note)


def pairs_section(analysis: Analysis) -> Section:
    """Return direct comparisons of stopping metrics, and of scaling with none."""
    columns: Columns = [
        *("first", "second", *(words.METRIC_WORDS[score] for score in COMPARED)),
        Column("verdict", help="Of log loss: whether its 95% interval excludes 0."),
    ]
    tables = []
    for group in analysis.groups:
        rows: list[Cells] = []
        for pair in analysis.pairs(group):
            found = {score: analysis.compare(group, *pair, score) for score in COMPARED}
            names = [keep_together(words.procedure_word(each)) for each in pair]
            cells = [_gap_cell(each, score) for score, each in found.items()]
            rows.append([*names, *cells, keep_together(found["log_loss"].verdict)])
        title = f"{words.group_word(group)}: paired differences in test scores, ± s.e."
        tables.append(Table(title, columns, rows))
    text = (
        "First less second in the same training runs: mean over runs ± standard error. Below 0 the first is "
        "better, except for accuracy, which is in percentage points. Many comparisons are shown: of 20 "
        "without any difference, one will seem to have one.",
    )
    return Section("Each metric against the others", text, tables)


def epochs_section(analysis: Analysis) -> Section:
    """Return which epochs each metric chose."""
    rows: list[Cells] = []
    for group in analysis.groups:
        last = max(each.epochs for each in analysis.results.of(group))
        for name in analysis.metrics(group):
            chosen = analysis.chosen_epochs(group, name)
            spread = [float(each(chosen)) for each in (np.nanmin, np.nanmedian, np.nanmax)]
            cells = (Written(f"{epoch:g}", epoch) for epoch in spread)
            rows.append([_group_cell(group), _metric(name), *cells, last])
    columns: Columns = [
        GROUP_COLUMN,
        "metric",
        *number_columns("earliest", "median", "latest", "of"),
    ]
    note = "ECE and smooth ECE are small before anything is learned: do not stop by them."
    table = Table("Best epochs over runs", columns, rows, note)
    return Section("When each metric stops", (), (figures.epochs(analysis), table))


def unscaled_section(analysis: Analysis) -> Section:
    """Return the same tables without temperature scaling."""
    blocks = [_scores_table(analysis, group, scaled=False) for group in analysis.groups]
    text = (
        "The same choices without temperature scaling: the cost of not calibrating afterwards.",
    )
    blocks += _other_tables(analysis, scaled=False)
    return Section("Without temperature scaling", text, blocks)


# ---- cost, recipe and failures -----------------------------------------------------------------------------


def costs_section(analysis: Analysis) -> Section:
    """Return run time and memory, and an estimate for the full protocol."""
    columns: Columns = [
        GROUP_COLUMN,
        Column("each run", help="Median, everything included."),
        Column(
            "evaluating", percent=True, help="Part of it: predicting validation and test images."
        ),
        Column("metrics", percent=True, help="Part of it: all metrics, before and after scaling."),
        Column("images/s", digits=0, help="While training."),
        Column("GFLOPS", digits=1, help="While training: three forward passes for each image."),
        Column("memory, MB", digits=0, help="The most of any run."),
    ]
    rows: list[Cells] = [
        [
            _group_cell((each.dataset, each.model)),
            Written(keep_together(duration(60 * each.minutes)), each.minutes),
            *(
                part if isfinite(part) else None
                for part in (each.evaluating, each.metrics, each.images_per_second, each.gflops)
            ),
            each.memory / 1e6,
        ]
        for each in analysis.costs
    ]
    blocks = (Table("Cost of the training runs here", columns, rows), _estimate_table())
    return Section("Time and memory", cost.describe_cost(), blocks)


def _estimate_table() -> Table:
    """Return the hours of the full protocol by GPU."""
    rows: list[Cells] = [
        [
            *(
                keep_together(words.model_word(each.model)),
                keep_together(words.DATASET_WORDS[each.dataset]),
            ),
            *(each.runs, each.flops / 1e18),
            *(cost.hours(each.flops, peak) for peak in cost.PEAKS.values()),
        ]
        for each in cost.estimates()
    ]
    rows.append(["all", "", *(sum(row[place] for row in rows) for place in range(2, len(rows[0])))])
    columns: Columns = [
        "model",
        "data set",
        *number_columns("runs"),
        Column("10¹⁸ FLOP", digits=2, help="Of all runs."),
        *(Column(f"{name}, h", digits=1) for name in cost.PEAKS),
    ]
    peaks = ", ".join(f"{name} {peak:g}" for name, peak in cost.PEAKS.items())
    least, most = cost.UTILISATION, cost.MOST
    note = (
        f"Peaks in TFLOPS: {peaks}. Hours assume that {100 * least:.0f}% of the peak is reached, which is "
        f"cautious. At {100 * most:.0f}%, multiply them by {least / most:.2g}."
    )
    return Table("Estimate: the paper's full protocol on one GPU", columns, rows, note)


def run_section(analysis: Analysis) -> Section:
    """Return what was run, what failed, and how it was done."""
    results = analysis.results
    blocks: Blocks = [_recipes_table(analysis, model) for model in analysis.models]
    wrong: list[Cells] = [[str(key), said] for key, said in results.failed.items()]
    wrong += [[str(key), f"ended early: {said}"] for key, said in results.stopped.items()]
    if wrong:
        blocks.append(Table("What failed", ["training run", "what happened"], wrong))
    return Section("What was run, and how", _method(results), blocks)


def _recipes_table(analysis: Analysis, model: str) -> Table:
    """Return how a model was trained, with a column for each data set, next to the paper's protocol."""
    datasets = [dataset for dataset, name in analysis.groups if name == model]
    about = [_settings(analysis.results.of((dataset, model))) for dataset in datasets]
    recipe = {name.replace("_", " "): value for name, value in PROTOCOL.items()}
    paper = {"runs": RUNS, **_paper_images(datasets), **recipe}
    rows: list[Cells] = [
        [name, *(_setting(each.get(name)) for each in about), _setting(paper.get(name))]
        for name in dict.fromkeys(name for each in about for name in each)
    ]
    sets = [keep_together(words.DATASET_WORDS.get(dataset, dataset)) for dataset in datasets]
    last = Column("the paper", help="Appendix E; precision is that of the published script.")
    return Table(f"What was run: {words.model_word(model)}", ["setting", *sets, last], rows)


def _setting(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return f"{value:g}" if isinstance(value, int | float) else value


def _paper_images(datasets: list[str]) -> dict[str, str]:
    """Return how many images of each kind the paper had, of those data sets that it had."""
    sizes: dict[str, list[int]] = {}
    for train, test in (IMAGES[name] for name in datasets if name in cost.DATASETS):
        kept = round(0.1 * train)
        for part, n in (("training", train - kept), ("validation", kept), ("test", test)):
            sizes.setdefault(f"{part} images", []).append(n)
    return {name: " or ".join(map(number, dict.fromkeys(each))) for name, each in sizes.items()}


def _settings(runs: list[History]) -> dict[str, Any]:
    """Return by name what the training runs of one group share."""
    first, short = runs[0], words.count_stopped(runs)
    recipe = {**VisionPlan.ADDED, **first.recipe}
    names = [name for name in PROTOCOL if recipe["optimizer"] == "sgd" or name not in ONLY_SGD]
    return {
        "runs": len(runs),
        **({"ended before the last epoch": short} if short else {}),
        "training images": number(first.n_train),
        "validation images": number(first.n_val),
        "test images": number(first.n_test),
        **{name.replace("_", " "): recipe.get(name) for name in names},
        "parameters": keep_together(f"{first.parameters / 1e6:.2f} million"),
        "one image forward": keep_together(f"{first.flops / 1e9:.3g} GFLOP"),
    }


def _method(results: ImageResults) -> list[str]:
    """Return how it was done, and which training runs are not compared."""
    shares = dict.fromkeys(each.recipe.get("validation", 0.1) for each in results.trainings)
    share = " or ".join(f"{100 * each:g}%" for each in shares)
    short = words.count_stopped(results.trainings)
    ends = f" (except for {short}, ended by the patience of a monitor)" if short else ""
    said = [
        f"Every training run continues to its last epoch{ends}; epochs are counted from 1. After each, every "
        f"metric is computed on validation images ({share} of the training images, drawn by the seed) and "
        "test images, before and after temperature scaling with Laplace smoothing, which is fitted to the "
        "validation images. Each metric chooses the epoch where it is best on validation images, of equal "
        "values the first. Test images are used only for the scores shown here.",
    ]
    if results.lost:
        said.append(
            "Training runs that ended early with a loss of NaN are listed below, not compared."
        )
    if results.repeated:
        said.append(f"Of several runs: {'. '.join(map(str, results.repeated))}.")
    return said
