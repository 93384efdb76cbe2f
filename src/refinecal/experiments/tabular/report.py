"""The report of a tabular experiment: one page with the paper's figures, and its tables as CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from refinecal._core.format import number, tidy_sentence
from refinecal.experiments._pages import PAGE, is_page, write_all
from refinecal.experiments.tabular import figures
from refinecal.experiments.tabular.analysis import (
    METRIC_WORDS,
    SCORE_WORDS,
    Analysis,
    method_word,
    procedure_word,
)
from refinecal.experiments.tabular.differences import FEW_SETS, FEW_SPLITS, Summary
from refinecal.experiments.tabular.judging import MODES, REFERENCE, TUNED
from refinecal.experiments.tabular.regimes import Regime
from refinecal.experiments.tabular.tables import write_tables
from refinecal.experiments.tabular.words import (
    APART,
    count_wins,
    describe_cut_short,
    lead,
    sentence,
    signed,
    span,
)
from refinecal.report import Card, Column, Figure, Page, Section, Table
from refinecal.report.of_evaluation import facts_of

__all__ = ["PAGE", "is_report", "page", "write_report"]

TITLE = "Stopping by refinement, on tables"
CARDS = 4  # comparisons at the top of the page
Blocks = list[Table | Figure]
Columns = list[str | Column]
Cells = list[Any]


def write_report(analysis: Analysis, folder: Path, pictures: str | None = None) -> Path:
    """Write the page, the tables and, if asked for, pictures into a folder; return the page."""
    return write_all(page(analysis), folder, partial(write_tables, analysis), pictures)


def is_report(folder: Path) -> bool:
    """Tell whether a folder holds what :func:`write_report` wrote, by the title of its page."""
    return is_page(folder / PAGE, TITLE)


def page(analysis: Analysis) -> Page:
    """Return the report: the answer first, then where it holds, then everything else."""
    compared = bool(analysis.headlines)
    sections = [
        *([headline_section(analysis)] if compared else []),
        procedures_section(analysis),
        *([regimes_section(analysis)] if compared else []),
        questions_section(analysis),
        scores_section(analysis),
        stopping_section(analysis),
        *([sets_section(analysis)] if compared else []),
        costs_section(analysis),
        run_section(analysis),
    ]
    return Page(
        TITLE,
        tidy_sentence(lead(analysis)),
        cards=cards(analysis),
        points=[
            *(tidy_sentence(sentence(each)) for each in analysis.headlines),
            *filter(None, [describe_cut_short(analysis.ends)]),
        ],
        sections=sections,
        facts=_facts(analysis),
    )


def cards(analysis: Analysis) -> list[Card]:
    """Return the numbers that matter most."""
    results = analysis.results
    splits = max(row.split for row in results.rows) + 1
    each_set = "1 split each" if splits == 1 else f"up to {splits} splits each"
    made = [
        Card("data sets", len(analysis.sets), each_set),
        Card("trainings", results.done, _unfinished(analysis)),
    ]
    for each in analysis.headlines[:CARDS]:
        about = f"of test log loss by refinement: {method_word(each.method, each.mode)}"
        made.append(Card("mean change", tidy_sentence(signed(each.summary.mean)), about))
    return made


def _unfinished(analysis: Analysis) -> str:
    results = analysis.results
    said = [f"{len(results.failed)} failed"] if results.failed else []
    said += [f"{number(results.missing)} not yet run"] if results.missing else []
    return ", ".join(said) or "none failed"


def _facts(analysis: Analysis) -> dict[str, str]:
    plans = analysis.results.plans
    return facts_of(
        sets=len(analysis.sets),
        methods=", ".join(analysis.methods),
        splits=", ".join(str(plan.splits) for plan in plans),
        configurations=", ".join(str(plan.configs) for plan in plans),
        **{"max-steps": plans[0].max_steps or "each method's own"},
        seed=plans[0].seed,
        plan=", ".join(plan.key for plan in plans),
    )


# ---- tables of comparisons ---------------------------------------------------------------------------------

WON = "win/tie/loss"
SUMMARY: dict[str, Column] = {
    each.name: each
    for each in (
        Column(
            "all told",
            help="Over all sets. Lower or higher if interval and test both leave out chance; with mean "
            "before it, only the interval does, which few sets may rule; with ranks, only the test. Fewer "
            f"than {FEW_SETS} sets are too few.",
        ),
        Column("sets", digits=0),
        Column(
            "mean", digits=2, help="Of the relative differences, in percent; negative is better."
        ),
        Column("95 %", help="The interval of the mean, from 10 000 resampled sets."),
        Column("median", digits=2),
        Column("−/0/+", help="Sets whose difference is negative, exactly 0, and positive."),
        Column(
            WON,
            help="Sets by themselves: better, no difference, or worse by the test within the set; – if it "
            "cannot be told.",
        ),
        Column(
            "p", digits=3, help="Of Wilcoxon's signed-rank test over the sets that differ at all."
        ),
    )
}
AS_ABOVE = "Columns as in the first table."
SIGNS = ("−/0/+",)  # left out of wide tables; the CSV has them


def _table(
    title: str,
    names: Columns,
    rows: Sequence[tuple[Cells, Summary]],
    note: str = AS_ABOVE,
    without: Sequence[str] = (),
    explained: bool = False,
) -> Table:
    """Return a table of summaries, without some columns; say what they mean if that was not said before.

    What only tells rows of one and the same method apart is left out, too.
    """
    first = {about[0] for about, _ in rows}
    if len(names) > 1 and names[0] == "method" and len(first) == 1:
        names, title = names[1:], f"{first.pop()}: {title[0].lower()}{title[1:]}"
        rows = [(about[1:], found) for about, found in rows]
    columns = [each for name, each in SUMMARY.items() if name not in without]
    if not explained:
        columns = [replace(each, help="") for each in columns]
    cells = [
        [*about, *(_keep_together(_cells(found)[each.name]) for each in columns)]
        for about, found in rows
    ]
    return Table(title, [*names, *columns], cells, note)


def _cells(found: Summary) -> dict[str, Any]:
    """Return a summary by column."""
    return {
        "all told": found.verdict,
        "sets": found.sets,
        "mean": found.mean,
        "95 %": span(found),
        "median": found.median,
        "−/0/+": f"{found.lower}/{found.equal}/{found.higher}",
        WON: count_wins(found),
        "p": found.p,
    }


def _keep_together(cell: Any) -> Any:
    """Keep a few words, or a number among them, on one line."""
    if not isinstance(cell, str):
        return cell
    whole = cell.replace(" ", "\N{NO-BREAK SPACE}").replace(".", "\N{WORD JOINER}.")
    return whole.replace("/", "/\N{WORD JOINER}")


# ---- sections ----------------------------------------------------------------------------------------------


def headline_section(analysis: Analysis) -> Section:
    """Return refinement against log loss for each method."""
    rows = [([method_word(each.method, each.mode)], each.summary) for each in analysis.headlines]
    title = "Refinement + TS against log loss + TS: relative difference in test log loss, %"
    text: tuple[str, ...] = (
        "Both procedures choose from the same trainings by the same validation rows, and both are followed "
        "by temperature scaling (TS) on these rows. So the difference is what the choice alone changes. "
        "Where both choose the same step, or steps that are equally good, it is a tie.",
        "If nothing differed at all, the test within a set, at the 5 % level, would still call one set in 40 "
        "better and one in 40 worse.",
    )
    if any(one.splits < FEW_SPLITS for each in analysis.headlines for one in each.sets):
        text += (FEW,)
    note = tidy_sentence(APART) if any(each.mode == TUNED for each in analysis.headlines) else ""
    table = _table(title, ["method"], rows, note, explained=True)
    return Section("Refinement or log loss", [tidy_sentence(each) for each in text], (table,))


FEW = (
    "Sets with one or two splits are tested by their test rows: whether these models differ, not whether "
    "others trained in the same way would. So more of them than by chance may seem to differ."
)


def procedures_section(analysis: Analysis) -> Section:
    """Return every procedure against log loss + TS (figures 6 and F.2 of the paper)."""
    drawn = [figures.boxes(analysis, method, "log_loss") for method in analysis.methods]
    text = (
        "A procedure is what chooses the step, and for tuned models the configuration, with what calibrates "
        "afterwards: nothing, temperature scaling with Laplace smoothing (TS), or auto.",
    )
    blocks: Blocks = [*drawn, _procedures_table(analysis, "log_loss")]
    return Section("Every procedure against log loss + TS", text, blocks)


def _procedures_table(analysis: Analysis, score: str) -> Table:
    rows: list[tuple[Cells, Summary]] = []
    for method, mode in analysis.pairs:
        for one in analysis.procedures(method, mode, score):
            found = analysis.compare(method, mode, one, REFERENCE, score)
            rows.append(([method_word(method, mode), procedure_word(one)], found.summary))
    title = f"Relative difference to log loss + TS, %: {SCORE_WORDS[score]}"
    return _table(title, ["method", "procedure"], rows, without=SIGNS)


def regimes_section(analysis: Analysis) -> Section:
    """Return where refinement helps (figure F.1 of the paper), by sets and by trainings."""
    by_set = [each for each in analysis.regimes if each.mode in MODES]
    by_training = [each for each in analysis.regimes if each.mode not in MODES]
    note = (
        "Each training with random parameters is stopped by either metric; no configuration is chosen. In "
        f"each class the losses of a set are averaged first, so that every set counts once. {AS_ABOVE}"
    )
    drawn = (figures.by_rise(analysis), figures.by_learning_rate(analysis))
    blocks: Blocks = [
        figures.by_size(analysis),
        *_regimes_tables("Data sets by", by_set, AS_ABOVE),
        *(each for each in drawn if each is not None),
        *_regimes_tables("Trainings with random parameters by", by_training, note),
    ]
    text = (
        "Relative difference in test log loss of refinement + TS to log loss + TS, in percent; negative is "
        "better. The rise is how far the validation log loss climbs from its minimum to the end of the "
        "training, as a part of the minimum: how much the model over-fits if it is not stopped.",
    )
    return Section("Where it helps, and where it does not", text, blocks)


def _regimes_tables(title: str, regimes: Sequence[Regime], note: str) -> list[Table]:
    """Return a table for each property that sets or trainings were sorted by."""
    rows: dict[str, list[tuple[Cells, Summary]]] = {}
    for each in regimes:
        name = method_word(each.method, each.mode if each.mode in MODES else None)
        about = [name, _keep_together(each.name), each.trainings]
        rows.setdefault(each.by, []).append((about, each.summary))
    columns: Columns = ["method", "class", Column("trainings", digits=0)]
    told = any(each.summary.wins is not None for each in regimes)
    without = SIGNS if told else (*SIGNS, WON)
    return [
        _table(f"{title} {by}", columns, some, note=note, without=without)
        for by, some in rows.items()
    ]


def questions_section(analysis: Analysis) -> Section:
    """Return direct comparisons of procedures that a user may hesitate between."""
    rows: list[tuple[Cells, Summary]] = []
    for method, mode in analysis.pairs:
        for one in analysis.questions(method, mode):
            words = procedure_word(one.procedure), procedure_word(one.reference)
            rows.append(([method_word(method, mode), *words], one.found.summary))
    title = "Relative difference in test log loss of the first to the second, %"
    text = (
        "Does calibration help, does refinement help, by which estimate, and which calibrator should "
        "follow? Below 0 the first is better.",
    )
    return Section(
        "Which to use", text, (_table(title, ["method", "first", "second"], rows, without=SIGNS),)
    )


def scores_section(analysis: Analysis) -> Section:
    """Return Brier's score, errors and AUROC (figures F.3, F.4 and F.5 of the paper)."""
    blocks: Blocks = []
    for score in ("brier", "error", "auroc"):
        blocks += [figures.boxes(analysis, method, score) for method in analysis.methods]
        blocks.append(_procedures_table(analysis, score))
    text = (
        "The same choices, judged by other scores. AUROC is one class against the rest, and compared as "
        "1 − AUROC, so that less is better everywhere.",
    )
    return Section("Brier score, error rate and AUROC", text, blocks)


def stopping_section(analysis: Analysis) -> Section:
    """Return when each metric stops (figure F.6 of the paper)."""
    from numpy import quantile

    rows: list[Cells] = [
        [
            *(method_word(method, mode), METRIC_WORDS[metric], len(steps)),
            *(float(each) for each in quantile(steps, (0.25, 0.5, 0.75))),
            analysis.most_steps(method),
        ]
        for method, mode in analysis.pairs
        for metric, steps in analysis.steps(method, mode).items()
    ]
    counts = [Column(name, digits=0) for name in ("sets", "25 %", "median", "75 %", "last")]
    columns: Columns = ["method", "metric", *counts]
    note = "Of each set, the median over splits."
    table = Table("Best steps: quartiles over data sets", columns, rows, note)
    drawn = [figures.stopping(analysis, method) for method in analysis.methods]
    return Section("When each metric stops", (), (*drawn, table, *_ends_table(analysis)))


def _ends_table(analysis: Analysis) -> Blocks:
    """Return how many trainings end at their best, if there are any whose last step is an end."""
    names = ("trainings", "steps", "by log loss", "by refinement")
    columns: Columns = ["method", *(Column(name, digits=0) for name in names)]
    rows: list[Cells] = [
        [
            *(method_word(each.method, each.mode), each.trainings, each.steps),
            *(each.log_loss, each.refinement),
        ]
        for each in analysis.ends
    ]
    note = (
        "Where these are many, trainings may have been too short. Steps: of the longest training."
    )
    return [Table("Trainings whose best step is the last", columns, rows, note)] if rows else []


def sets_section(analysis: Analysis) -> Section:
    """Return refinement against log loss, set by set."""
    words = {-1: "win", 0: "tie", 1: "loss", None: "–"}
    counts = [Column(name, digits=0) for name in ("rows", "validation", "classes", "splits")]
    losses = [Column(name, digits=4) for name in ("log loss + TS", "refinement + TS")]
    error = (
        "Standard error of the difference, over splits that share rows; of one or two splits, over test rows "
        "unless the two scatter more."
    )
    gaps = [Column("difference, %", digits=2), Column("error, %", digits=2, help=error)]
    columns: Columns = ["data set", "outcome", *gaps, *losses, *counts]
    tables = []
    for each in analysis.headlines:
        rows: list[Cells] = [
            [
                *(one.set, words[one.verdict], one.relative),
                100 * one.error / one.reference if one.reference > 0 else None,
                *(one.reference, one.value),
                *(one.n_rows, one.n_val, one.n_classes, one.splits),
            ]
            for one in each.sets
        ]
        tables.append(Table(f"{method_word(each.method, each.mode)}: test log loss", columns, rows))
    return Section("Set by set", ("Means over splits.",), tables)


def costs_section(analysis: Analysis) -> Section:
    """Return run time and memory."""
    columns: Columns = [
        "method",
        Column("trainings", digits=0),
        Column("training, s", digits=2, help="Median of one training."),
        Column("tracking", percent=True, help="Of all metrics, as a part of all training."),
        Column("predicting, s", digits=2, help="Median: predictions of the chosen steps."),
        Column("memory, MB", digits=0, help="The most that a process had used by then."),
        Column("hours", digits=2, help="Of all trainings, one after another."),
    ]
    rows: list[Cells] = [
        [
            *(method_word(each.method, each.mode), each.trainings, each.training, each.tracking),
            *(each.predicting, each.memory / 1e6, each.hours),
        ]
        for each in analysis.costs
    ]
    return Section("Time and memory", (), (Table("What trainings took", columns, rows),))


def run_section(analysis: Analysis) -> Section:
    """Return what was run, what failed, and how differences were tested."""
    names = ("sets", "splits", "configurations", "trainings", "steps")
    columns: Columns = ["method", *(Column(name, digits=0) for name in names)]
    rows: list[Cells] = [
        [
            method_word(each.method, each.mode),
            *analysis.extent(each.method, each.mode),
            each.trainings,
            analysis.most_steps(each.method),
        ]
        for each in analysis.costs
    ]
    note = f"Splits and configurations: the most of any set. Steps: {_longest(analysis)}."
    if any(each.mode == TUNED for each in analysis.costs):
        note += f" {APART}"
    blocks: Blocks = [Table("What was run", columns, rows, note)]
    if analysis.results.failed:
        failed: list[Cells] = [[str(key), said] for key, said in analysis.results.failed.items()]
        blocks.append(Table("What failed", ["training", "error"], failed))
    return Section(
        "What was run, and how it was tested", [tidy_sentence(each) for each in METHOD], blocks
    )


def _longest(analysis: Analysis) -> str:
    given = analysis.results.plans[0].max_steps
    return (
        "each method's own number" if given is None else f"at most {number(given)}, by --max-steps"
    )


METHOD = (
    "Every training runs to its last step. On validation rows (16 % of the data) each metric chooses its "
    "best step, and for tuned models the best of the random configurations (the default parameters are not "
    "among them); of equal values the first, but of steps of one training that are never wrong, whose "
    "refinement is 0, the one of smallest log loss. Temperature scaling and auto are fitted on the same "
    "validation rows, and test rows (20 %) are used for nothing but the scores shown here. Test rows of a "
    "class that no training row has are left out.",
    "The relative difference on a set is that of the means over its splits, clipped to ±100 %. A set is "
    "won or lost if the paired t-test over its splits says so at the 5 % level, with Nadeau and Bengio's "
    "correction, since the splits share rows; else it is a tie. With one or two splits, the standard error "
    "over test rows tells instead, or the scatter of the two if that is larger, for log loss only: whether "
    "these models differ, not whether others would.",
    "Over sets, the 95 % interval is the range of the means of 10 000 resamples of the sets, expanded as "
    "Student's quantiles are for few sets, and p is that of Wilcoxon's signed-rank test, which takes "
    f"{FEW_SETS} sets to tell anything. A difference is within noise if neither tells it from 0. Many "
    "comparisons are shown: of 20 without any difference, one will seem to have one.",
)
