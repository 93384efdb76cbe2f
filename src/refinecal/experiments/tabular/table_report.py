"""The report of a tabular experiment: one page with the paper's figures, and its tables as CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from refinecal._core.format import number
from refinecal.experiments.comparing import FEW_SETS, Summary
from refinecal.experiments.plan import Plan
from refinecal.experiments.report import Blocks, Cells, Columns, keep_together, number_columns
from refinecal.experiments.tabular import table_analysis as words
from refinecal.experiments.tabular import table_figures as figures
from refinecal.experiments.tabular.differences import EACH, FEW_SPLITS, Regime
from refinecal.experiments.tabular.procedures import REFERENCE, TUNED
from refinecal.experiments.tabular.table_analysis import Analysis
from refinecal.report import Card, Column, Page, Section, Table
from refinecal.report.of_evaluation import facts_of

TITLE = "Stopping by refinement, on tables"
CARDS = 4  # comparisons at the top of the page
WON = "win/tie/loss"
SIGNS = "−/0/+"
SUMMARY = (
    Column(
        "verdict",
        help="Over all sets. Lower or higher: interval and test both exclude chance. Mean lower or higher: "
        "only the interval does, and a few sets may drive it. Ranks lower or higher: only the test does. "
        f"Fewer than {FEW_SETS} sets are too few.",
    ),
    Column("sets", digits=0),
    Column("mean", digits=2, help="Of the relative differences, in percent; negative is better."),
    Column("95% interval", help="Of the mean, from 10,000 resamples of the sets."),
    Column("median", digits=2),
    Column(SIGNS, help="Sets whose difference is negative, exactly 0, and positive."),
    Column(
        WON,
        help="Single sets: better, no difference, or worse by the test within the set; – if unknown.",
    ),
    Column("p", digits=3, help="Of Wilcoxon's signed-rank test over the sets that differ at all."),
)
AS_ABOVE = "Columns as in the first table."
FEW = (
    "Sets with one or two splits are tested on their test rows: whether these models differ, not whether "
    "others trained in the same way would. So more of them than by chance may seem to differ."
)
METHOD = (
    "Every training run continues to its last step. Each metric chooses its best step on validation rows "
    "(16% of the data), and for tuned models the best of the random configurations, which do not include the "
    "default parameters. Of equal values the first is taken; of steps of one run without any error, whose "
    "refinement is 0, the one of smallest log loss. Temperature scaling and auto are fitted on the same "
    "validation rows. Test rows (20%) are used only for the scores shown here. Test rows of a class that no "
    "training row has are left out.",
    "The relative difference on a set is that of the means over its splits, clipped to 100% either way. A "
    "set is won or lost by the paired t-test over its splits at the 5% level, with Nadeau and Bengio's "
    "correction, since the splits share rows; otherwise it is a tie. With one or two splits, the standard "
    "error over test rows decides instead, or the scatter of the two if that is larger, for log loss only: "
    "whether these models differ, not whether others would.",
    "Over sets, the 95% interval is the range of the means of 10,000 resamples of the sets, expanded as "
    "Student's quantiles are for few sets. p is that of Wilcoxon's signed-rank test, which needs at least "
    f"{FEW_SETS} sets. A difference is within noise if neither excludes 0. Many comparisons are shown: of 20 "
    "without any difference, one will seem to have one.",
)


def page(analysis: Analysis) -> Page:
    """Return the report: the answer first, then where it holds, then everything else."""
    results, plans = analysis.results, analysis.results.plans
    splits = max(row.split for row in results.rows) + 1
    cards = [
        Card("data sets", len(analysis.sets), f"up to {number(splits)} splits each"),
        Card("training runs", results.done, results.unfinished() or "none failed"),
    ]
    for each in analysis.headlines[:CARDS]:
        about = f"of test log loss by refinement: {words.method_word(each.method, each.mode)}"
        cards.append(Card("mean change", words.percent(each.summary.mean), about))
    points = [words.sentence(each) for each in analysis.headlines]
    sections = (
        headline_section,
        procedures_section,
        regimes_section,
        folds_section,
        questions_section,
        scores_section,
        stopping_section,
        sets_section,
        costs_section,
        run_section,
    )
    needs_both = (headline_section, regimes_section, sets_section)
    return Page(
        TITLE,
        words.lead(analysis),
        cards=cards,
        points=[*points, *filter(None, [words.describe_cut_short(analysis.ends)])],
        sections=[
            make(analysis)
            for make in sections
            if (analysis.headlines or make not in needs_both)
            and (analysis.against_holdout or make is not folds_section)
        ],
        facts=facts_of(
            sets=len(analysis.sets),
            methods=", ".join(analysis.methods),
            splits=", ".join(str(plan.splits) for plan in plans),
            configurations=", ".join(str(plan.configs) for plan in plans),
            **{"max-steps": _describe_steps(plans)},
            seed=plans[0].seed,
            plan=", ".join(plan.key for plan in plans),
        ),
    )


# ---- tables of comparisons ---------------------------------------------------------------------------------


def _table(
    title: str,
    names: Columns,
    rows: Sequence[tuple[Cells, Summary]],
    note: str = AS_ABOVE,
    without: Sequence[str] = (SIGNS,),
    explained: bool = False,
) -> Table:
    """Return a table of summaries, without some columns; with their meaning if ``explained``.

    A first column "method" that is the same in all rows moves into the title.
    """
    first = {about[0] for about, _ in rows}
    if len(names) > 1 and names[0] == "method" and len(first) == 1:
        names, title = names[1:], f"{first.pop()}: {title[0].lower()}{title[1:]}"
        rows = [(about[1:], found) for about, found in rows]
    columns = [each for each in SUMMARY if each.name not in without]
    if not explained:
        columns = [replace(each, help="") for each in columns]
    cells = [
        [*about, *(keep_together(_cells(found)[each.name]) for each in columns)]
        for about, found in rows
    ]
    return Table(title, [*names, *columns], cells, note)


def _cells(found: Summary) -> dict[str, Any]:
    """Return a summary by column."""
    return {
        "verdict": found.verdict,
        "sets": found.sets,
        "mean": found.mean,
        "95% interval": words.span(found),
        "median": found.median,
        SIGNS: f"{found.lower}/{found.equal}/{found.higher}",
        WON: words.count_wins(found),
        "p": found.p,
    }


# ---- sections ----------------------------------------------------------------------------------------------


def headline_section(analysis: Analysis) -> Section:
    """Return refinement against log loss for each method."""
    rows = [
        ([words.method_word(each.method, each.mode)], each.summary) for each in analysis.headlines
    ]
    title = "Refinement + TS against log loss + TS: relative difference in test log loss, %"
    text = [
        "Both procedures choose from the same training runs by the same validation rows, and both are "
        "followed by temperature scaling (TS) on these rows. So the difference is what the choice alone "
        "changes. Where both choose the same step, or steps that are equally good, it is a tie.",
        "If nothing differed at all, the test within a set, at the 5% level, would still call one set in 40 "
        "better and one in 40 worse.",
    ]
    if any(one.splits < FEW_SPLITS for each in analysis.headlines for one in each.sets):
        text.append(FEW)
    note = words.APART if any(each.mode.startswith(TUNED) for each in analysis.headlines) else ""
    table = _table(title, ["method"], rows, note, without=(), explained=True)
    return Section("Refinement or log loss", text, (table,))


def procedures_section(analysis: Analysis) -> Section:
    """Return every procedure against log loss + TS (figures 6 and F.2 of the paper)."""
    text = (
        "A procedure is what chooses the step, and for tuned models the configuration, with what calibrates "
        "afterwards: nothing, temperature scaling with Laplace smoothing (TS), or auto.",
    )
    return Section("Every procedure against log loss + TS", text, _procedures(analysis, "log_loss"))


def _procedures(analysis: Analysis, score: str) -> Blocks:
    """Return every procedure against log loss + TS by one score: figures by method, and a table."""
    rows: list[tuple[Cells, Summary]] = []
    for method, mode in analysis.pairs:
        for one in analysis.procedures(method, mode, score):
            found = analysis.compare(method, mode, one, REFERENCE, score)
            rows.append(
                ([words.method_word(method, mode), words.procedure_word(one)], found.summary)
            )
    title = f"Relative difference to log loss + TS, %: {words.SCORE_WORDS[score]}"
    drawn = [figures.boxes(analysis, method, score) for method in analysis.methods]
    return [*drawn, _table(title, ["method", "procedure"], rows)]


def regimes_section(analysis: Analysis) -> Section:
    """Return where refinement helps (figure F.1 of the paper), by sets and by training runs."""
    by_set = [each for each in analysis.regimes if each.mode != EACH]
    by_training = [each for each in analysis.regimes if each.mode == EACH]
    note = (
        "Each training run with random parameters is stopped by either metric; no configuration is chosen. "
        f"In each class the losses of a set are averaged first, so that every set counts once. {AS_ABOVE}"
    )
    drawn = (figures.by_property(analysis, "rise"), figures.by_property(analysis, "learning_rate"))
    blocks: Blocks = [
        figures.by_size(analysis),
        *_regimes_tables("Data sets by", by_set, AS_ABOVE),
        *(each for each in drawn if each is not None),
        *_regimes_tables("Training runs with random parameters by", by_training, note),
    ]
    text = (
        "Relative difference in test log loss of refinement + TS to log loss + TS, in percent; negative is "
        "better. The rise is how far the validation log loss climbs from its minimum to the end of the "
        "training run, relative to the minimum: how much the model overfits if it is not stopped.",
    )
    return Section("Where it helps, and where it does not", text, blocks)


def _regimes_tables(title: str, regimes: Sequence[Regime], note: str) -> list[Table]:
    """Return a table for each property of sets or training runs."""
    rows: dict[str, list[tuple[Cells, Summary]]] = {}
    for each in regimes:
        name = words.method_word(each.method, each.mode if each.mode != EACH else None)
        about = [name, keep_together(each.name.replace(" %", "%")), each.trainings]
        rows.setdefault(each.by, []).append((about, each.summary))
    columns: Columns = ["method", "class", *number_columns("training runs")]
    known = any(each.summary.wins is not None for each in regimes)
    without = (SIGNS,) if known else (SIGNS, WON)
    return [_table(f"{title} {by}", columns, some, note, without) for by, some in rows.items()]


def folds_section(analysis: Analysis) -> Section:
    """Return how the average of folds compares with one model and the usual validation rows."""
    rows: list[tuple[Cells, Summary]] = [
        (
            [
                words.method_word(each.method, each.mode),
                words.procedure_word((each.metric, each.calibration)),
            ],
            each.summary,
        )
        for each in analysis.against_holdout
    ]
    text = (
        "Every row that is not a test row is held out of one model of the average. A metric chooses the best "
        "step of each model on these rows, which then calibrate all of them; the average is the geometric "
        "mean, with and without TS. Both are tested on the same rows.",
    )
    title = "Folds against one model by the same metric: relative difference in test log loss, %"
    table = _table(title, ["method", "procedure"], rows)
    return Section("Cross-validation instead of a holdout", text, (table,))


def questions_section(analysis: Analysis) -> Section:
    """Return direct comparisons of procedures that a user may hesitate between."""
    rows: list[tuple[Cells, Summary]] = [
        (
            [
                words.method_word(*pair),
                *map(words.procedure_word, (one.procedure, one.reference)),
            ],
            one.found.summary,
        )
        for pair in analysis.pairs
        for one in analysis.questions(*pair)
    ]
    title = "Relative difference in test log loss of the first to the second, %"
    text = (
        "Does calibration help, does refinement help, by which estimate, and which calibrator should "
        "follow? Below 0 the first is better.",
    )
    return Section("Which to use", text, (_table(title, ["method", "first", "second"], rows),))


def scores_section(analysis: Analysis) -> Section:
    """Return Brier score, errors and AUROC (figures F.3, F.4 and F.5 of the paper)."""
    text = (
        "The same choices, by other scores. AUROC is one-vs-rest, and compared as 1 − AUROC, so that less is "
        "better everywhere.",
    )
    blocks = [
        block for score in ("brier", "error", "auroc") for block in _procedures(analysis, score)
    ]
    return Section("Brier score, error rate and AUROC", text, blocks)


def stopping_section(analysis: Analysis) -> Section:
    """Return when each metric stops (figure F.6 of the paper), and how many runs end at their best step."""
    rows: list[Cells] = [
        [
            *(words.method_word(method, mode), words.METRIC_WORDS[metric], len(steps)),
            *np.quantile(steps, (0.25, 0.5, 0.75)).tolist(),
            analysis.most_steps(method, mode),
        ]
        for method, mode in analysis.pairs
        for metric, steps in analysis.steps(method, mode).items()
    ]
    columns: Columns = ["method", "metric", *number_columns("runs", "25%", "median", "75%", "last")]
    note = "A run is a split of a data set."
    blocks: Blocks = [figures.stopping(analysis, method) for method in analysis.methods]
    blocks.append(Table("Best steps: quartiles over data sets and splits", columns, rows, note))
    ends: list[Cells] = [
        [
            *(words.method_word(each.method, each.mode), each.trainings, each.steps),
            *(each.log_loss, each.refinement),
        ]
        for each in analysis.ends
    ]
    if ends:
        columns = [
            "method",
            *number_columns("training runs", "steps", "by log loss", "by refinement"),
        ]
        note = "Where these are many, runs may have been too short. Steps: of the longest run."
        blocks.append(Table("Training runs whose best step is the last", columns, ends, note))
    return Section("When each metric stops", (), blocks)


def sets_section(analysis: Analysis) -> Section:
    """Return refinement against log loss, set by set."""
    outcomes = {-1: "win", 0: "tie", 1: "loss", None: "–"}
    error = (
        "Standard error of the difference, over splits that share rows; with one or two splits, over test "
        "rows unless the two scatter more."
    )
    columns: Columns = [
        *("data set", "outcome", Column("difference, %", digits=2)),
        Column("standard error, %", digits=2, help=error),
        *(Column(name, digits=4) for name in ("log loss + TS", "refinement + TS")),
        *number_columns("rows", "validation", "classes", "splits"),
    ]
    tables = []
    for each in analysis.headlines:
        rows: list[Cells] = [
            [
                *(one.set, outcomes[one.verdict], one.relative),
                100 * one.error / one.reference if one.reference > 0 else None,
                *(one.reference, one.value),
                *(one.n_rows, one.n_val, one.n_classes, one.splits),
            ]
            for one in each.sets
        ]
        tables.append(
            Table(f"{words.method_word(each.method, each.mode)}: test log loss", columns, rows)
        )
    return Section("Set by set", ("Means over splits.",), tables)


def costs_section(analysis: Analysis) -> Section:
    """Return run time and memory."""
    columns: Columns = [
        "method",
        *number_columns("training runs"),
        Column("training, s", digits=2, help="Median of one run."),
        Column("tracking", percent=True, help="Of all metrics, as a part of all training."),
        Column("predicting, s", digits=2, help="Median: predictions of the chosen steps."),
        Column("memory, MB", digits=0, help="The most that a process had used by then."),
        Column("hours", digits=2, help="Of all training runs, one after another."),
    ]
    rows: list[Cells] = [
        [
            *(
                words.method_word(each.method, each.mode),
                each.trainings,
                each.training,
                each.tracking,
            ),
            *(each.predicting, each.memory / 1e6, each.hours),
        ]
        for each in analysis.costs
    ]
    return Section("Time and memory", (), (Table("Cost of the training runs", columns, rows),))


def run_section(analysis: Analysis) -> Section:
    """Return what was run, what failed, and how differences were tested."""
    names = number_columns("sets", "splits", "configurations", "training runs", "steps")
    rows: list[Cells] = [
        [
            words.method_word(each.method, each.mode),
            *analysis.extent(each.method, each.mode),
            each.trainings,
            analysis.most_steps(each.method, each.mode),
        ]
        for each in analysis.costs
    ]
    longest = _describe_steps(analysis.results.plans)
    note = f"Splits and configurations: the most of any set. Steps: {longest}."
    if any(each.mode.startswith(TUNED) for each in analysis.costs):
        note += f" {words.APART}"
    blocks: Blocks = [Table("What was run", ["method", *names], rows, note)]
    if analysis.results.failed:
        failed: list[Cells] = [[str(key), said] for key, said in analysis.results.failed.items()]
        blocks.append(Table("What failed", ["training run", "error"], failed))
    return Section("What was run, and how it was tested", METHOD, blocks)


def _describe_steps(plans: Sequence[Plan]) -> str:
    """Return which limits ``--max-steps`` set."""
    given = dict.fromkeys(plan.max_steps for plan in plans)
    return ", ".join("each method's own" if n is None else f"at most {number(n)}" for n in given)
