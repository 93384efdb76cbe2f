"""``refinecal experiment report`` for runs on images: the tables and figures of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinecal.cli._console import Console, count
from refinecal.cli._theory_options import Bar

if TYPE_CHECKING:
    from refinecal.experiments.vision.analysis import Analysis
    from refinecal.experiments.vision.results import Group, Results

SPARE = ("p", "− · 0 · +", "runs", "%")  # columns to leave out first
SPARE_SCORES = ("smooth ECE", "ECE", "Brier score", "accuracy")
FAILED_SHOWN = 3  # trainings that are named without -v


def report_vision(
    console: Console, runs: Sequence[Path], folder: Path, figures: str | None = None
) -> None:
    """Write the report of one or several runs of the vision experiment, and show what it says."""
    from refinecal.cli.experiment_report import show_files
    from refinecal.experiments.vision.analysis import Analysis
    from refinecal.experiments.vision.merging import merge_results
    from refinecal.experiments.vision.report import write_report
    from refinecal.experiments.vision.results import read_results

    with console.show_warnings(), Bar(console, "reading") as bar:
        found = [read_results(run, bar) for run in runs]
    analysis = Analysis(merge_results(found) if len(found) > 1 else found[0])
    page = write_report(analysis, folder, figures)
    show(console, analysis)
    show_files(console, page, folder, figures)
    console.result({**to_dict(analysis), "report": page, "tables": sorted(folder.glob("*.csv"))})


def show(console: Console, analysis: Analysis) -> None:
    """Show the main table, refinement against log loss, and what that means."""
    from refinecal.experiments.vision.analysis import METRIC_WORDS, PAPER, group_word
    from refinecal.experiments.vision.words import describe_flat, lead

    results = analysis.results
    sets = len({dataset for dataset, _ in analysis.groups})
    trained = count(len(results.trainings), "training")
    console.say(f"{trained} on {count(sets, 'data set')}", "bold")
    _show_missing(console, results)
    for line in describe_flat(analysis):
        console.note(f"{line[0].lower()}{line[1:]}")
    scores = ["log loss", "Brier score", "accuracy", "ECE", "smooth ECE"]
    for group in analysis.groups:
        console.say(f"\n{group_word(group)}", "bold")
        console.table(["stopping metric", *scores], _scores(analysis, group), spare=SPARE_SCORES)
    four = ", ".join(METRIC_WORDS[name] for name in PAPER)
    console.tell(
        "Test scores after temperature scaling (TS), of the epoch that each metric chose: means over runs "
        f"± half of the 95 % interval. * is the best of the paper's four metrics ({four}), unless all are "
        "equal."
    )
    if analysis.headlines:
        header = [
            "refinement against log loss",
            "runs",
            "difference",
            "%",
            "− · 0 · +",
            "p",
            "all told",
        ]
        console.table(header, _headlines(analysis), left=(0, 6), spare=SPARE)
        console.tell(
            "Paired differences in test log loss + TS; negative is better. − · 0 · + are the runs in which "
            "the difference is negative, exactly 0, and positive."
        )
    console.tell(lead(analysis), "bold")


def _scores(analysis: Analysis, group: Group) -> list[list[str]]:
    from refinecal.experiments.vision.analysis import METRIC_WORDS, PAPER, TABLE, Procedure
    from refinecal.experiments.vision.words import format_mean

    best = {score: analysis.best(group, score) for score in TABLE}
    return [
        [
            METRIC_WORDS[metric],
            *(
                format_mean(analysis.mean(group, Procedure(metric), score), score)
                + ("*" if metric in best[score] else " ")
                for score in TABLE
            ),
        ]
        for metric in analysis.metrics(group)
        if metric in PAPER
    ]


def _headlines(analysis: Analysis) -> list[list[str]]:
    from refinecal.experiments.vision.analysis import group_word
    from refinecal.experiments.vision.words import chance, format_gap, signed

    return [
        [
            group_word(group),
            str(found.runs),
            format_gap(found),
            signed(analysis.relative_headline(group), 2),
            f"{found.lower} · {found.equal} · {found.higher}",
            chance(found.p) or "–",
            found.verdict,
        ]
        for group, found in analysis.headlines.items()
    ]


def _show_missing(console: Console, results: Results) -> None:
    """Say what is not there, and what is there twice."""
    for each in results.repeated:
        console.note(str(each))
    if results.missing:
        console.note(f"{count(results.missing, 'training')} of the plan not yet run")
    wrong = [(key, f"failed: {key}: {said}") for key, said in results.failed.items()]
    wrong += [(key, f"ended early: {key}: {said}") for key, said in results.stopped.items()]
    for _, said in wrong if console.verbose else wrong[:FAILED_SHOWN]:
        console.note(said.splitlines()[0])
    more = len(wrong) - FAILED_SHOWN
    if more > 0 and not console.verbose:
        console.note(f"{more} more failed or ended early (-v names them)")


def to_dict(analysis: Analysis) -> dict[str, Any]:
    """Return what a program wants to know: means beside the published ones, and what was compared."""
    from refinecal.experiments.vision.analysis import TABLE

    results = analysis.results
    return {
        "trainings": len(results.trainings),
        "failed": len(results.failed),
        "stopped": len(results.stopped),
        "missing": results.missing,
        "repeated": [each._asdict() for each in results.repeated],
        "refinement_against_log_loss": [
            {
                "dataset": group[0],
                "model": group[1],
                **found._asdict(),
                "percent": analysis.relative_headline(group),
                "verdict": found.verdict,
            }
            for group, found in analysis.headlines.items()
        ],
        "means": [
            {"dataset": group[0], "model": group[1], "metric": metric, "score": score, **found}
            for group in analysis.groups
            for metric in analysis.metrics(group)
            for score in TABLE
            for found in [_mean(analysis, group, metric, score)]
        ],
    }


def _mean(analysis: Analysis, group: tuple[str, str], metric: str, score: str) -> dict[str, Any]:
    from refinecal.experiments.vision.analysis import Procedure

    paper = analysis.published(group, score).get(metric)
    return {
        **analysis.mean(group, Procedure(metric), score)._asdict(),
        "best": metric in analysis.best(group, score),
        "published": None if paper is None else {"mean": paper.mean, "half": paper.half},
    }
