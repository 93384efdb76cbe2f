"""``refinecal experiment status``: what is finished, what failed and why, how long the rest takes."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._console import Console, command, count, describe_error, show_path
from refinecal.cli._options import Json, Quiet, Verbose
from refinecal.cli._running import reason

if TYPE_CHECKING:
    from refinecal.experiments.rates import TrainingProgress
    from refinecal.experiments.store import RunFolder

MOST = 10  # reasons and warnings that are listed
MOST_LEFT_OUT = 3  # data sets
NOT_FOUND = "FileNotFoundError"
COUNTED = {"tabular": "method", "vision": "model"}  # the first column
FAILED = {"tabular": ("method", "set"), "vision": ("model", "dataset")}  # what names a failure
DATA = {"tabular": "tables", "vision": "images"}
GROUPS: dict[str, Callable[[Any], tuple[str, ...]]] = {  # of trainings that are counted together
    "tabular": lambda key: (key.method,),
    "vision": lambda key: (key.model, key.dataset),
}


@command("refinecal experiment status run")
def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show how far a run is; it may be running."""
    from refinecal.experiments.store import RunFolder

    console = Console(as_json, quiet, verbose)
    found = summary(RunFolder(run))
    show_status(console, found)
    console.result(found)


def summary(folder: RunFolder) -> dict[str, Any]:
    """Return how far a run is, for programs."""
    from refinecal.experiments.rates import seconds_left

    failed, (damaged, unreadable) = folder.failed(), _find_damaged(folder)
    there = [key for key in folder.finished() if key not in damaged]
    early = _find_diverged(folder, there)
    finished = [key for key in there if key not in early]
    missing = [*folder.missing(), *damaged]  # a resumed run trains these again
    rates, begun = folder.rates(), folder.sessions()
    width = begun[-1].get("width", 1) if begun else 1
    group, under_way = GROUPS[folder.kind], _read_progress(folder, missing)
    methods = []
    for name in dict.fromkeys(map(group, folder.plan.units())):
        left = [key for key in missing if group(key) == name]
        methods.append(
            {
                "method": " on ".join(name),
                "finished": sum(group(key) == name for key in finished),
                "failed": sum(group(key) == name for key in failed),
                "ended_early": sum(group(key) == name for key in early),
                "missing": len(left),
                "mean_seconds": rates.mean(name),
                "seconds_left": seconds_left(left, rates, under_way, width),
            }
        )
    waiting: list[Any] = [each["seconds_left"] for each in methods if each["missing"]]
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
        "not_found": _find_missing_sets(folder, failed),
        "left_out": folder.left_out(),
        "warnings": dict(folder.warnings().most_common()),
    }


def _find_damaged(folder: RunFolder) -> tuple[list[Any], list[str]]:
    """Return the trainings whose results are damaged, and what is said of results that cannot be read."""
    from refinecal.experiments._unit_files import is_whole

    damaged, unreadable = [], []
    for key in folder.finished():
        try:
            if not is_whole(folder.unit_path(key)):
                damaged.append(key)
        except OSError as error:
            unreadable.append(describe_error(error))
    return damaged, unreadable


def _find_diverged(folder: RunFolder, keys: list[Any]) -> dict[Any, str]:
    """Return the trainings that came to no numbers, with why; only those on images can be told."""
    if folder.kind != "vision":
        return {}
    from refinecal.experiments.vision.unit import VisionUnit

    found = dict.fromkeys(keys, "")
    for key in keys:
        with suppress(ValueError, OSError):  # damaged within, which the report tells
            found[key] = VisionUnit.read_divergence(folder.unit_path(key))
    return {key: said for key, said in found.items() if said}


def _find_missing_sets(folder: RunFolder, failed: dict[Any, Any]) -> dict[str, str]:
    """Return the data sets that are no longer where they were, with where they come from."""
    missed = [key for key, each in failed.items() if each.get("kind") == NOT_FOUND]
    if folder.kind == "vision":
        return {key.dataset: "images" for key in missed}
    return {key.set: folder.plan.source(key.set).get("kind") for key in missed}


def _read_progress(folder: RunFolder, missing: list[Any]) -> dict[Any, TrainingProgress]:
    """Return how far trainings are that can go on in the middle."""
    if folder.kind != "vision":
        return {}
    from refinecal.experiments.vision.under_way import read_progress

    return read_progress(folder, missing)


def show_status(console: Console, found: dict[str, Any]) -> None:
    """Show a summary to people."""
    from refinecal.experiments.rates import duration

    console.tell(_headline(found), "bold")
    unfinished = found["missing"] or found["failed"] or found["ended_early"]
    if unfinished or len(found["methods"]) > 1 or console.verbose:
        early = ("ended_early",) if found["ended_early"] else ()
        counts = ("finished", "failed", *early, "missing")
        names = [name.replace("_", " ") for name in (*counts[:-1], "left")]
        console.table(
            [COUNTED[found["kind"]], *names, "each", "time left"],
            [
                [
                    each["method"],
                    *(str(each[name]) for name in counts),
                    *(
                        "" if each[name] is None or not number else duration(each[name])
                        for name, number in (("mean_seconds", 1), ("seconds_left", each["missing"]))
                    ),
                ]
                for each in found["methods"]
            ],
            spare=("each",),
        )
    for each in found["under_way"]:
        console.tell(
            f"{each['model']} on {each['dataset']}, seed {each['seed']}: "
            f"{each['epoch']} of {count(each['epochs'], 'epoch')}"
        )
    for said in found["unreadable"][:MOST]:
        console.tell(f"A result cannot be read: {said}")
    show_failures(console, found)
    if found["endings"]:
        about = [(each, each["message"]) for each in found["endings"]]
        _show_alike(console, found["kind"], "ended early", about)
        they = "It" if len(about) == 1 else "They"
        console.tell(f"{they} would end so again: begin a new run with a smaller --lr")
    _show_left_out(console, found["left_out"])
    if console.verbose:
        for text, n in list(found["warnings"].items())[:MOST]:
            console.tell(f"Warned in {count(n, 'training')}: {reason(text)}")
    for line in _next_step(found):
        console.say(line)


def show_failures(console: Console, found: dict[str, Any]) -> None:
    """Show why trainings failed: equal reasons once, the most frequent first."""
    if found["failures"]:
        about = [(each, f"{each['kind']}: {each['message']}") for each in found["failures"]]
        _show_alike(console, found["kind"], "failed", about)
        console.tell(f"Tracebacks: {show_path(Path(found['run']) / 'failures')}")


def _show_alike(
    console: Console, kind: str, what: str, reasons: list[tuple[dict[str, Any], str]]
) -> None:
    """Show equal reasons once, the most frequent first."""
    alike = defaultdict(list)
    for each, said in reasons:
        first, on = (each[name] for name in FAILED[kind])
        alike[reason(said)].append(f"{first} on {on}")
    ordered = sorted(alike.items(), key=lambda item: -len(item[1]))
    for said, which in ordered[:MOST]:
        names = ", ".join(list(Counter(which))[:3]) + ", …" * (len(set(which)) > 3)
        console.tell(f"{count(len(which), 'training')} {what} ({names}): {said}")
    if len(ordered) > MOST:
        console.tell(f"… and for {count(len(ordered) - MOST, 'other reason')}")


def _show_left_out(console: Console, reasons: dict[str, str]) -> None:
    most = len(reasons) if console.verbose else MOST_LEFT_OUT
    for name, why in list(reasons.items())[:most]:
        console.tell(f"Left out: {name}: {reason(why)}")
    if len(reasons) > most:
        console.tell(f"… and {count(len(reasons) - most, 'other data set')} left out; -v shows all")


def _headline(found: dict[str, Any]) -> str:
    from refinecal.experiments.rates import duration

    planned = count(found["planned"], "training")
    said = f"{show_path(Path(found['run']))}: {found['finished']} of {planned} finished"
    if found["failed"]:
        said += f", {found['failed']} failed"
    if found["ended_early"]:
        one = found["ended_early"] == 1
        why = "its loss was not a number" if one else "their losses were not numbers"
        said += f", {found['ended_early']} ended early ({why})"
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
        lines.append(f"Go on:   {again}")
    if found["failed"] and not found["running"]:
        lines.append(f"Again:   {again} --retry-failed")
    if found["not_found"] and not found["running"]:
        option = "--talent" if "talent" in found["not_found"].values() else "--data"
        lines[-1:] = [
            f"Again, with the folder in which the {DATA[found['kind']]} are now:",
            f"{again} {option} NEWFOLDER --retry-failed",
        ]
    if found["finished"]:
        lines.append(f"Report:  refinecal experiment report {run}")
    return lines
