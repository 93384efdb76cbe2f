"""``refinecal experiment report``: the paper's figures and tables from the results of a run."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._options import MODEL, Json, Quiet, Verbose, file, flag, number
from refinecal.cli._theory_options import show_progress

if TYPE_CHECKING:
    from refinecal.experiments.tabular.table_analysis import Analysis as TableAnalysis
    from refinecal.experiments.vision.image_analysis import Analysis as ImageAnalysis

REPORT = "report"  # the folder within the run
OF_A_RUN = ("units", "failures", "checkpoints")  # its other folders
OF = {"tabular": "an experiment on tables", "vision": "an experiment on images"}
FAILED_SHOWN = 3  # failures that are named without -v


@command("refinecal experiment report RUN --min-rows 10000 -o large")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="The folder of a run. Several are combined into -o: on tables, if they share --seed and "
            "--max-rows, and each method its steps; on images, if these are the same: a network that was "
            "trained in several ways counts as several.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        file(
            "--out",
            "-o",
            help="The folder for the page and its tables: new, empty, or an older report. By default "
            "RUN/report; required for several runs.",
        ),
    ] = None,
    figures: Annotated[
        str | None,
        file("--figures", metavar="png|svg|pdf", help="Also write each figure as a picture."),
    ] = None,
    min_rows: Annotated[
        int,
        number(
            "--min-rows",
            "Tables: leave out smaller ones; the paper's figures use 10000.",
            min=0,
        ),
    ] = 0,
    no_auto: Annotated[
        bool,
        flag(
            "--no-auto",
            help="Tables: skip calibration by auto, which takes most of the time.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    processes: Annotated[
        int, number("--processes", "Tables: splits computed at the same time.", min=1)
    ] = 1,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare stopping metrics by the results of a run: a page with figures, and tables as CSV.

    An unfinished run is reported as far as it is.
    """
    from refinecal.experiments.folder import RunFolder
    from refinecal.experiments.report import write_report
    from refinecal.report.figures import PICTURES

    console = Console(as_json, quiet, verbose)
    if figures not in (None, *PICTURES):
        raise typer.BadParameter(
            f"{figures!r} is not one of png, svg and pdf", param_hint="--figures"
        )
    kind = _kind(runs)
    analysis: Any
    report_of: Any
    show: Any
    to_dict: Any
    if kind == "vision":
        from refinecal.experiments.vision import image_report as report_of
        from refinecal.experiments.vision.image_analysis import Analysis as ImageAnalysis

        given = {"--min-rows": min_rows, "--no-auto": no_auto, "--processes": processes > 1}
        for option in (option for option, value in given.items() if value):
            raise ValueError(f"{option} is for runs on tables, and this one is on images: omit it")
        folder = report_folder(out, runs, kind, report_of.TITLE)
        analysis = ImageAnalysis(_read(console, runs, "reading"))
        show, to_dict = show_images, images_to_dict
    else:
        from refinecal.experiments.results import check_together
        from refinecal.experiments.tabular import table_report as report_of
        from refinecal.experiments.tabular.table_analysis import Analysis as TableAnalysis

        check_together([RunFolder(run).plan for run in runs])
        folder = report_folder(out, runs, kind, report_of.TITLE)
        results = _read(console, runs, "computing scores", not no_auto, processes)
        analysis = TableAnalysis(results.at_least(min_rows) if min_rows else results)
        show, to_dict = show_tables, tables_to_dict
    page = write_report(report_of.page(analysis), analysis.tables(), folder, figures)
    show(console, analysis)
    found = to_dict(analysis)
    console.say(f"\nReport:  {show_path(page)}\nTables:  {show_path(folder)}/*.csv")
    if figures is not None:
        console.say(f"Figures: {show_path(folder)}/figures/*.{figures}")
    console.result({**found, "report": page, "tables": sorted(folder.glob("*.csv"))})


def _kind(runs: list[Path]) -> str:
    """Return which experiment all runs are of."""
    from refinecal.experiments.folder import RunFolder

    first = RunFolder(runs[0]).kind
    for run in runs[1:]:
        if (kind := RunFolder(run).kind) != first:
            raise ValueError(
                f"{show_path(runs[0])} is a run of the {first} experiment and {show_path(run)} of the {kind} "
                "experiment: report them separately"
            )
    return first


def _read(
    console: Console, runs: list[Path], doing: str, auto: bool = True, processes: int = 1
) -> Any:
    """Return the results of all runs together."""
    from refinecal.experiments.results import merge_results, read_results

    with console.show_warnings(), show_progress(console, doing) as bar:
        found = [read_results(run, None, auto, processes, bar) for run in runs]
    return merge_results(found)


def report_folder(out: Path | None, runs: list[Path], kind: str, title: str) -> Path:
    """Return where the report goes: never into a folder of a run, nor among files of another kind."""
    from refinecal.experiments.report import is_report

    if out is None and len(runs) > 1:
        raise typer.BadParameter(
            "the report of several runs needs a separate folder: name one, such as -o together",
            param_hint="--out",
        )
    folder = runs[0] / REPORT if out is None else out
    shown = show_path(folder)
    if folder.is_file():
        raise ValueError(f"--out {shown} is a file: name a folder")
    for run in runs:
        if folder.resolve() in (run.resolve(), *((run / name).resolve() for name in OF_A_RUN)):
            raise ValueError(
                f"--out {shown} is a folder of the run: name another, or omit --out for "
                f"{show_path(run / REPORT)}"
            )
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):  # before hours are spent
        why = "is not writable" if there.is_dir() else "is a file"
        raise ValueError(
            f"the report cannot go to {shown}: {show_path(there)} {why}. Name another folder with -o"
        )
    visible = folder.exists() and any(not each.name.startswith(".") for each in folder.iterdir())
    if visible and not is_report(folder, title):
        raise ValueError(
            f"{shown} holds files, but not a report of {OF[kind]}, so nothing is written there: name a new "
            "folder with -o"
        )
    return folder


# ---- what is shown -----------------------------------------------------------------------------------------


def _show_unfinished(console: Console, results: Any, sets: int, wrong: list[str]) -> None:
    """Show how many training runs there are, how many are missing, and which failed."""
    runs = count(results.done, "training run")
    console.say(f"{runs} on {count(sets, 'data set')}", "bold")
    if results.missing:
        console.note(f"{count(results.missing, 'training run')} of the plan not yet run")
    for said in wrong if console.verbose else wrong[:FAILED_SHOWN]:
        console.note(said.splitlines()[0])
    more = len(wrong) - FAILED_SHOWN
    if more > 0 and not console.verbose:
        console.note(f"{more} more failed or ended early (-v names them)")


def show_tables(console: Console, analysis: TableAnalysis) -> None:
    """Show refinement against log loss for each method, and what that means."""
    from refinecal.experiments.report import signed
    from refinecal.experiments.tabular import table_analysis as words
    from refinecal.experiments.tabular.procedures import TUNED

    failed = [f"failed: {key}: {said}" for key, said in analysis.results.failed.items()]
    _show_unfinished(console, analysis.results, len(analysis.sets), failed)
    if analysis.headlines:
        interval = "95% interval"
        header = ["method", "mode", "sets", "mean", interval, "median", "win/tie/loss", "verdict"]
        rows = [
            [
                *(words.method_word(each.method, short=True), each.mode, str(over.sets)),
                *(signed(over.mean), words.span(over), signed(over.median)),
                *(words.count_wins(over), over.verdict),
            ]
            for each in analysis.headlines
            for over in [each.summary]
        ]
        spare = ("median", "sets", interval, "win/tie/loss")
        console.table(header, rows, left=(0, 1, 7), spare=spare)
        console.tell(
            "Relative difference in test log loss of refinement + TS to log loss + TS, in percent: negative "
            "is better. Sets are won or lost by a test within the set, at the 5% level."
        )
        if any(each.mode.startswith(TUNED) for each in analysis.headlines):
            console.tell(words.APART)
    console.tell(words.lead(analysis), "bold")
    if too_short := words.describe_cut_short(analysis.ends):
        console.note(f"{too_short[0].lower()}{too_short[1:]}")


def tables_to_dict(analysis: TableAnalysis) -> dict[str, Any]:
    """Return for programs: refinement against log loss, and the other questions."""

    def summary(found: Any) -> dict[str, Any]:
        return {**asdict(found), "median": found.median, "verdict": found.verdict}

    results = analysis.results
    return {
        "sets": len(analysis.sets),
        "trainings": results.done,
        "failed": len(results.failed),
        "missing": results.missing,
        "refinement_against_log_loss": [
            {"method": each.method, "mode": each.mode, **summary(each.summary)}
            for each in analysis.headlines
        ],
        "folds_against_one_model": [
            {
                **{
                    name: getattr(each, name)
                    for name in ("method", "mode", "metric", "calibration")
                },
                **summary(each.summary),
            }
            for each in analysis.against_holdout
        ],
        "best_step_is_last": [each._asdict() for each in analysis.ends],
        "comparisons": [
            {
                "method": method,
                "mode": mode,
                "first": list(one.procedure),
                "second": list(one.reference),
                **summary(one.found.summary),
            }
            for method, mode in analysis.pairs
            for one in analysis.questions(method, mode)
        ],
    }


def show_images(console: Console, analysis: ImageAnalysis) -> None:
    """Show the main table, refinement against log loss, and what that means."""
    from refinecal.experiments.report import signed
    from refinecal.experiments.vision import image_analysis as words
    from refinecal.experiments.vision.cost import TABLE
    from refinecal.experiments.vision.image_analysis import METRIC_WORDS, PAPER, group_word

    results = analysis.results
    for each in results.repeated:
        console.note(str(each))
    wrong = [f"failed: {key}: {said}" for key, said in results.failed.items()]
    wrong += [f"ended early: {key}: {said}" for key, said in results.stopped.items()]
    _show_unfinished(console, results, len({dataset for dataset, _ in analysis.groups}), wrong)
    for line in words.describe_flat(analysis):
        console.note(f"{line[0].lower()}{line[1:]}")
    header = ["stopping metric", *(METRIC_WORDS[score] for score in TABLE)]
    for group in analysis.groups:
        console.say(f"\n{group_word(group)}", "bold")
        rows = [_scores(analysis, group, metric) for metric in analysis.metrics(group)]
        spare = ("smooth ECE", "ECE", "Brier score", "accuracy")
        console.table(header, [row for row in rows if row], spare=spare)
    four = ", ".join(METRIC_WORDS[name] for name in PAPER)
    console.tell(
        "Test scores after temperature scaling (TS), of the epoch that each metric chose: mean over runs "
        f"± standard error. * is the best of the paper's four metrics ({four}), unless all are equal."
    )
    if analysis.headlines:
        header = ["refinement against log loss", "runs", "difference", "%"]
        rows = [
            [
                *(group_word(group), str(found.runs), words.format_gap(found)),
                signed(analysis.relative_headline(group), 2),
                f"{found.lower} · {found.equal} · {found.higher}",
                *(words.format_p(found.p) or "–", found.verdict),
            ]
            for group, found in analysis.headlines.items()
        ]
        console.table(
            [*header, "− · 0 · +", "p", "verdict"],
            rows,
            left=(0, 6),
            spare=("p", "− · 0 · +", "runs", "%"),
        )
        console.tell(
            "Paired differences in test log loss + TS, ± standard error; negative is better. − · 0 · + are "
            "the runs in which the difference is negative, exactly 0, and positive."
        )
    console.tell(words.lead(analysis), "bold")


def _scores(analysis: ImageAnalysis, group: tuple[str, str], metric: str) -> list[str]:
    """Return the scores of one of the paper's metrics, the best with a star; nothing for other metrics."""
    from refinecal.experiments.vision.cost import TABLE
    from refinecal.experiments.vision.image_analysis import (
        METRIC_WORDS,
        PAPER,
        Procedure,
        format_mean,
    )

    if metric not in PAPER:
        return []
    cells = [
        format_mean(analysis.mean(group, Procedure(metric), score), score)
        + ("*" if metric in analysis.best(group, score) else " ")
        for score in TABLE
    ]
    return [METRIC_WORDS[metric], *cells]


def images_to_dict(analysis: ImageAnalysis) -> dict[str, Any]:
    """Return for programs: means next to the published ones, and refinement against log loss."""
    from refinecal.experiments.vision.cost import TABLE
    from refinecal.experiments.vision.image_analysis import Procedure

    def mean(group: tuple[str, str], metric: str, score: str) -> dict[str, Any]:
        paper = analysis.published(group, score).get(metric)
        return {
            **analysis.mean(group, Procedure(metric), score)._asdict(),
            "best": metric in analysis.best(group, score),
            "published": None if paper is None else {"mean": paper.mean, "half": paper.half},
        }

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
            {"dataset": group[0], "model": group[1], "metric": metric, "score": score}
            | mean(group, metric, score)
            for group in analysis.groups
            for metric in analysis.metrics(group)
            for score in TABLE
        ],
    }
