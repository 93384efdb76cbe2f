"""``refinecal experiment report``: the paper's figures and tables from the results of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._options import MODEL, Json, Quiet, Verbose, file, flag, number
from refinecal.cli._theory_options import Bar

if TYPE_CHECKING:
    from refinecal.experiments.tabular.analysis import Analysis
    from refinecal.experiments.tabular.differences import Summary
    from refinecal.experiments.tabular.results import Results

REPORT = "report"  # the folder within the run
OF_A_RUN = ("units", "failures", "checkpoints")  # its other folders
OF = {"tabular": "an experiment on tables", "vision": "an experiment on images"}
SPARE = ("median", "sets", "95 %", "win/tie/loss")  # columns to leave out first
FAILED_SHOWN = 3  # failures that are named without -v


@command("refinecal experiment report RUN --min-rows 10000 -o large")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="The folder of a run. Several are put together, into -o: on tables, if they share "
            "--seed, --max-steps and --max-rows; on images, if each network has one recipe and the "
            "same images.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        file(
            "--out",
            "-o",
            help="The folder that the page and its tables go to: new, empty, or an older report. By "
            "default RUN/report; of several runs it has to be named.",
        ),
    ] = None,
    figures: Annotated[
        str | None,
        file("--figures", metavar="png|svg|pdf", help="Write each figure as a picture, too."),
    ] = None,
    min_rows: Annotated[
        int,
        number(
            "--min-rows",
            "Of tables, leave out smaller ones; the paper's figures have 10000.",
            min=0,
        ),
    ] = 0,
    no_auto: Annotated[
        bool,
        flag(
            "--no-auto",
            help="Of tables: do not calibrate by auto, which takes most of the time.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    processes: Annotated[
        int, number("--processes", "Of tables: splits that are judged at the same time.", min=1)
    ] = 1,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare stopping metrics by the results of a run: a page with figures, and tables as CSV.

    A run that is not finished is reported as far as it is.
    """
    from refinecal.experiments.store import RunFolder
    from refinecal.experiments.tabular.analysis import Analysis
    from refinecal.experiments.tabular.report import write_report
    from refinecal.experiments.tabular.results import check_together, merge_results, read_results
    from refinecal.report.figures import PICTURES

    console = Console(as_json, quiet, verbose)
    if figures not in (None, *PICTURES):
        raise typer.BadParameter(
            f"{figures!r} is not one of png, svg and pdf", param_hint="--figures"
        )
    if _kind(runs) == "vision":
        from refinecal.cli._vision_report import report_vision

        _refuse_tabular_options(
            {"--min-rows": min_rows, "--no-auto": no_auto, "--processes": processes > 1}
        )
        report_vision(console, runs, report_folder(out, runs, "vision"), figures)
        return
    check_together([RunFolder(run).plan for run in runs])
    folder = report_folder(out, runs, "tabular")
    with console.show_warnings(), Bar(console, "judging") as bar:
        found = [read_results(run, not no_auto, processes, bar) for run in runs]
    results = merge_results(found) if len(found) > 1 else found[0]
    if min_rows:
        results = results.at_least(min_rows)
    analysis = Analysis(results)
    page = write_report(analysis, folder, figures)
    show(console, analysis)
    show_files(console, page, folder, figures)
    console.result({**to_dict(analysis), "report": page, "tables": sorted(folder.glob("*.csv"))})


def show_files(console: Console, page: Path, folder: Path, figures: str | None) -> None:
    """Say which files there are now."""
    console.say(f"\nReport:  {show_path(page)}\nTables:  {show_path(folder)}/*.csv")
    if figures is not None:
        console.say(f"Figures: {show_path(folder)}/figures/*.{figures}")


def report_folder(out: Path | None, runs: list[Path], kind: str) -> Path:
    """Return where the report goes: never into what is read, nor among files that are no such report."""
    from refinecal.experiments.tabular import report as on_tables
    from refinecal.experiments.vision import report as on_images

    is_report = on_images.is_report if kind == "vision" else on_tables.is_report
    if out is None and len(runs) > 1:
        raise typer.BadParameter(
            "the report of several runs belongs to none of them: name a folder for it, such as -o together",
            param_hint="--out",
        )
    folder = runs[0] / REPORT if out is None else out
    if folder.is_file():
        raise ValueError(f"--out {show_path(folder)} is a file: name a folder")
    for run in runs:
        if folder.resolve() in (run.resolve(), *((run / name).resolve() for name in OF_A_RUN)):
            raise ValueError(
                f"--out {show_path(folder)} is a folder of the run: name another, or leave --out away for "
                f"{show_path(run / REPORT)}"
            )
    _check_writable(folder)
    visible = folder.exists() and any(not each.name.startswith(".") for each in folder.iterdir())
    if visible and not is_report(folder):
        raise ValueError(
            f"{show_path(folder)} holds files, but no report of {OF[kind]}, so nothing is written there: "
            "name a new folder with -o"
        )
    return folder


def _check_writable(folder: Path) -> None:
    """Complain of a folder that cannot be made or written to, before hours are spent on what goes there."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        why = (
            f"{show_path(there)} may not be written to"
            if there.is_dir()
            else f"{show_path(there)} is a file"
        )
        raise ValueError(
            f"the report cannot go to {show_path(folder)}: {why}. Name another folder with -o"
        )


def _kind(runs: list[Path]) -> str:
    """Return which experiment all runs are of."""
    from refinecal.experiments.store import RunFolder

    first = RunFolder(runs[0]).kind
    for run in runs[1:]:
        if (kind := RunFolder(run).kind) != first:
            raise ValueError(
                f"{show_path(runs[0])} is a run of the {first} experiment and {show_path(run)} of the {kind} "
                "one: report each of them by itself"
            )
    return first


def _refuse_tabular_options(given: dict[str, Any]) -> None:
    """Refuse options that mean nothing for images."""
    for option, value in given.items():
        if value:
            raise ValueError(
                f"{option} is for runs on tables, and this one is on images: leave it away"
            )


# ---- what is shown -----------------------------------------------------------------------------------------


def show(console: Console, analysis: Analysis) -> None:
    """Show refinement against log loss for each method, and what that means."""
    from refinecal.experiments.tabular.judging import TUNED
    from refinecal.experiments.tabular.words import APART, describe_cut_short, lead

    results = analysis.results
    console.say(
        f"{count(results.done, 'training')} on {count(len(analysis.sets), 'data set')}", "bold"
    )
    _show_missing(console, results)
    if analysis.headlines:
        header = ["method", "mode", "sets", "mean", "95 %", "median", "win/tie/loss", "all told"]
        console.table(header, _rows(analysis), left=(0, 1, 7), spare=SPARE)
        console.tell(
            "Relative difference in test log loss of refinement + TS to log loss + TS, in percent: negative "
            "is better. Sets are won or lost by a test within the set, at the 5 % level."
        )
        if any(each.mode == TUNED for each in analysis.headlines):
            console.tell(APART)
    console.tell(lead(analysis), "bold")
    if too_short := describe_cut_short(analysis.ends):
        console.note(f"{too_short[0].lower()}{too_short[1:]}")


def _rows(analysis: Analysis) -> list[list[str]]:
    from refinecal.experiments.tabular.analysis import method_word
    from refinecal.experiments.tabular.words import count_wins, signed, span

    return [
        [
            method_word(each.method, short=True),
            each.mode,
            str(each.summary.sets),
            signed(each.summary.mean).removesuffix(" %"),
            span(each.summary),
            signed(each.summary.median).removesuffix(" %"),
            count_wins(each.summary),
            each.summary.verdict,
        ]
        for each in analysis.headlines
    ]


def _show_missing(console: Console, results: Results) -> None:
    """Say what is not there."""
    if results.missing:
        console.note(f"{count(results.missing, 'training')} of the plan not yet run")
    failed = list(results.failed.items())
    for key, said in failed if console.verbose else failed[:FAILED_SHOWN]:
        console.note(f"failed: {key}: {said.splitlines()[0] if said else ''}")
    more = len(failed) - FAILED_SHOWN
    if more > 0 and not console.verbose:
        console.note(f"{more} more failed (-v names them)")


def to_dict(analysis: Analysis) -> dict[str, Any]:
    """Return what a program wants to know: refinement against log loss, and the other questions."""
    results = analysis.results
    return {
        "sets": len(analysis.sets),
        "trainings": results.done,
        "failed": len(results.failed),
        "missing": results.missing,
        "refinement_against_log_loss": [
            {"method": each.method, "mode": each.mode, **_summary(each.summary)}
            for each in analysis.headlines
        ],
        "best_step_is_last": [each._asdict() for each in analysis.ends],
        "comparisons": [
            {
                "method": method,
                "mode": mode,
                "first": list(one.procedure),
                "second": list(one.reference),
                **_summary(one.found.summary),
            }
            for method, mode in analysis.pairs
            for one in analysis.questions(method, mode)
        ],
    }


def _summary(found: Summary) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(found), "median": found.median, "verdict": found.verdict}
