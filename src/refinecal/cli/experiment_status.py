"""``refinecal experiment status``: what is finished, what failed and why, how long the rest takes."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._console import Console, command, count, describe_error, show_path
from refinecal.cli._experiments import reason
from refinecal.cli._options import Json, Quiet, Verbose

if TYPE_CHECKING:
    from refinecal.experiments.folder import RunFolder

SOME_FAILED = 3  # the exit code
MOST = 10  # reasons and warnings that are listed
MOST_LEFT_OUT = 3  # data sets
NOT_FOUND = "FileNotFoundError"
COUNTED = {"tabular": ("method",), "vision": ("model", "dataset")}  # training runs counted together
FAILED = {"tabular": ("method", "set"), "vision": ("model", "dataset")}  # what names a failure
DATA = {"tabular": "tables", "vision": "images"}


@command("refinecal experiment status run")
def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show the progress of a run, even while it is running."""
    from refinecal.experiments.folder import RunFolder

    console = Console(as_json, quiet, verbose)
    found = summary(RunFolder(run))
    show_status(console, found)
    console.result(found)


def show_outcome(console: Console, folder: RunFolder) -> None:
    """Show the status at the end of a command; raise the exit code for training runs that failed."""
    found = summary(folder)
    show_status(console, found)
    console.result(found)
    if found["failed"] or found["ended_early"]:
        raise typer.Exit(SOME_FAILED)


def summary(folder: RunFolder) -> dict[str, Any]:
    """Return the progress of a run, for programs."""
    from refinecal.experiments.rates import seconds_left
    from refinecal.experiments.vision.work import read_progress

    failed, (damaged, unreadable) = folder.failed(), _find_damaged(folder)
    there = [key for key in folder.finished() if key not in damaged]
    early = _find_diverged(folder, there) if folder.kind == "vision" else {}
    finished = [key for key in there if key not in early]
    missing = [*folder.missing(), *damaged]  # a resumed run computes these again
    under_way = read_progress(folder, missing) if folder.kind == "vision" else {}
    rates, begun = folder.rates(), folder.sessions()
    width = begun[-1].get("width", 1) if begun else 1

    def group(key: Any) -> tuple[str, ...]:
        return tuple(getattr(key, name) for name in COUNTED[folder.kind])

    methods = []
    for name in dict.fromkeys(map(group, folder.plan.units())):
        left = [key for key in missing if group(key) == name]
        states = {"finished": finished, "failed": failed, "ended_early": early}
        methods.append(
            {
                "method": " on ".join(name),
                **{what: sum(group(key) == name for key in keys) for what, keys in states.items()},
                "missing": len(left),
                "mean_seconds": rates.mean(name),
                "seconds_left": seconds_left(left, rates, under_way, width),
            }
        )
    waiting: list[Any] = [each["seconds_left"] for each in methods if each["missing"]]
    lost = [key for key, each in failed.items() if each.get("kind") == NOT_FOUND]
    return {
        "run": folder.path,
        "kind": folder.kind,
        "running": folder.is_running(),
        "planned": len(folder.plan.units()),
        "finished": len(finished),
        "failed": len(failed),
        "ended_early": len(early),
        "missing": len(missing),
        "damaged": len(damaged),
        "unreadable": unreadable,
        "width": width,
        "seconds_left": None if None in waiting else float(sum(waiting)),
        "methods": methods,
        "under_way": [
            {**key._asdict(), "epoch": each.epoch, "epochs": each.epochs}
            for key, each in under_way.items()
        ],
        "failures": [
            {**key._asdict(), "kind": each.get("kind"), "message": each.get("message")}
            for key, each in failed.items()
        ],
        "endings": [{**key._asdict(), "message": said} for key, said in early.items()],
        "not_found": {key.dataset: "images" for key in lost}
        if folder.kind == "vision"
        else {key.set: folder.plan.source(key.set).get("kind") for key in lost},
        "left_out": folder.left_out(),
        "warnings": dict(folder.warnings().most_common()),
    }


def _find_damaged(folder: RunFolder) -> tuple[list[Any], list[str]]:
    """Return the training runs whose results are damaged, and errors of results that cannot be read."""
    from refinecal.experiments.folder import is_whole

    damaged, unreadable = [], []
    for key in folder.finished():
        try:
            if not is_whole(folder.unit_path(key)):
                damaged.append(key)
        except OSError as error:
            unreadable.append(describe_error(error))
    return damaged, unreadable


def _find_diverged(folder: RunFolder, keys: list[Any]) -> dict[Any, str]:
    """Return the training runs on images that ended with NaN, and why."""
    from refinecal.experiments.units import VisionUnit

    found = dict.fromkeys(keys, "")
    for key in keys:
        with suppress(ValueError, OSError):  # damaged inside, which the report shows
            found[key] = VisionUnit.read_divergence(folder.unit_path(key))
    return {key: said for key, said in found.items() if said}


def show_status(console: Console, found: dict[str, Any]) -> None:
    """Show a summary to people."""
    console.tell(_headline(found), "bold")
    unfinished = found["missing"] or found["failed"] or found["ended_early"]
    if unfinished or len(found["methods"]) > 1 or console.verbose:
        _show_methods(console, found)
    for each in found["under_way"]:
        console.tell(
            f"{each['model']} on {each['dataset']}, seed {each['seed']}: "
            f"{each['epoch']} of {count(each['epochs'], 'epoch')}"
        )
    for said in found["unreadable"][:MOST]:
        console.tell(f"A result cannot be read: {said}")
    if found["failures"]:
        said = [f"{each['kind']}: {each['message']}" for each in found["failures"]]
        _show_alike(console, found["kind"], "failed", found["failures"], said)
        console.tell(f"Tracebacks: {show_path(Path(found['run']) / 'failures')}")
    if found["endings"]:
        said = [each["message"] for each in found["endings"]]
        _show_alike(console, found["kind"], "ended early", found["endings"], said)
        console.tell("The same would happen again: start a new run with a smaller --lr")
    reasons = list(found["left_out"].items())
    most = len(reasons) if console.verbose else MOST_LEFT_OUT
    for name, why in reasons[:most]:
        console.tell(f"Left out: {name}: {reason(why)}")
    if len(reasons) > most:
        console.tell(f"… and {count(len(reasons) - most, 'other data set')} left out; -v shows all")
    if console.verbose:
        for text, n in list(found["warnings"].items())[:MOST]:
            console.tell(f"Warning in {count(n, 'training run')}: {reason(text)}")
    for line in _next_step(found):
        console.say(line)


def _show_methods(console: Console, found: dict[str, Any]) -> None:
    from refinecal.experiments.rates import duration

    early = ("ended_early",) if found["ended_early"] else ()
    counts = ("finished", "failed", *early, "missing")
    names = [name.replace("_", " ") for name in (*counts[:-1], "left")]
    rows = []
    for each in found["methods"]:
        times = (each["mean_seconds"], each["seconds_left"] if each["missing"] else None)
        cells = ("" if seconds is None else duration(seconds) for seconds in times)
        rows.append([each["method"], *(str(each[name]) for name in counts), *cells])
    first = COUNTED[found["kind"]][0]
    console.table([first, *names, "each", "time left"], rows, spare=("each",))


def _show_alike(
    console: Console, kind: str, what: str, keys: Sequence[dict[str, Any]], reasons: Sequence[str]
) -> None:
    """Show equal reasons once, the most frequent first."""
    alike = defaultdict(list)
    for each, said in zip(keys, reasons, strict=True):
        alike[reason(said)].append(" on ".join(each[name] for name in FAILED[kind]))
    ordered = sorted(alike.items(), key=lambda item: -len(item[1]))
    for said, which in ordered[:MOST]:
        different = list(dict.fromkeys(which))
        names = ", ".join(different[:3]) + ", …" * (len(different) > 3)
        console.tell(f"{count(len(which), 'training run')} {what} ({names}): {said}")
    if len(ordered) > MOST:
        console.tell(f"… and for {count(len(ordered) - MOST, 'other reason')}")


def _headline(found: dict[str, Any]) -> str:
    from refinecal.experiments.rates import duration

    planned = count(found["planned"], "training run")
    said = f"{show_path(Path(found['run']))}: {found['finished']} of {planned} finished"
    if found["failed"]:
        said += f", {found['failed']} failed"
    if found["ended_early"]:
        said += f", {found['ended_early']} ended early (loss not finite)"
    if not found["missing"]:
        return said
    said += f", {found['missing']} left"
    if found["damaged"]:
        said += f" ({count(found['damaged'], 'result')} damaged)"
    if found["seconds_left"] is not None:
        processes = count(found["width"], "process", "processes")
        said += f": about {duration(found['seconds_left'])} with {processes}"
    return said + (", running now" if found["running"] else "")


def _next_step(found: dict[str, Any]) -> list[str]:
    """Return what can be done with the run now."""
    run = shlex.quote(show_path(Path(found["run"])))
    again = f"refinecal experiment {found['kind']} --out {run} --resume"
    lines = []
    if found["missing"] and not found["running"]:
        lines.append(f"Resume:  {again}")
    if found["failed"] and not found["running"]:
        lines.append(f"Retry:   {again} --retry-failed")
    if found["not_found"] and not found["running"]:
        option = "--talent" if "talent" in found["not_found"].values() else "--data"
        lines[-1:] = [
            f"Retry, with the folder in which the {DATA[found['kind']]} are now:",
            f"{again} {option} NEWFOLDER --retry-failed",
        ]
    if found["finished"]:
        lines.append(f"Report:  refinecal experiment report {run}")
    return lines
