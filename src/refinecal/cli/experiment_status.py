"""``refinecal experiment status``: what is finished, what failed and why, how long the rest takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._options import Json, Quiet, Verbose
from refinecal.cli._running import reason
from refinecal.cli._voice import Voice, command, count, shown

if TYPE_CHECKING:
    from refinecal.experiments.store import RunFolder

MOST = 10  # reasons and warnings that are listed
MOST_LEFT_OUT = 3  # data sets
NOT_FOUND = "FileNotFoundError"


@command("refinecal experiment status run")
def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show how far a run is; it may be running."""
    from refinecal.experiments.store import RunFolder

    voice = Voice(as_json, quiet, verbose)
    found = summary(RunFolder(run))
    show_status(voice, found)
    voice.result(found)


def summary(folder: RunFolder) -> dict[str, Any]:
    """Return how far a run is, for programs."""
    from refinecal.experiments.tabular.unit import UnitResult

    failed, damaged = folder.failed(), folder.damaged(UnitResult.is_whole)
    finished = [key for key in folder.finished() if key not in damaged]
    missing = [*folder.missing(), *damaged]  # a resumed run trains these again
    rates, begun = folder.rates(), folder.sessions()
    width = begun[-1]["width"] if begun else 1
    methods = []
    for name in folder.plan.methods:
        left = [key for key in missing if key.method == name]
        seconds, unknown = rates.left(left)
        known = unknown < len(left)
        methods.append(
            {
                "method": name,
                "finished": sum(key.method == name for key in finished),
                "failed": sum(key.method == name for key in failed),
                "missing": len(left),
                "mean_seconds": rates.mean((name,)),
                "seconds_left": seconds / (len(left) - unknown) * len(left) / width
                if known
                else None,
            }
        )
    return {
        "run": folder.path,
        "running": folder.is_running(),
        "planned": len(folder.plan.units()),
        "finished": len(finished),
        "failed": len(failed),
        "missing": len(missing),
        "damaged": len(damaged),
        "width": width,
        "seconds_left": _sum(methods),
        "methods": methods,
        "failures": [
            {**key._asdict(), "kind": each.get("kind"), "message": each.get("message")}
            for key, each in failed.items()
        ],
        "not_found": {
            key.set: folder.plan.source(key.set).get("kind")
            for key, each in failed.items()
            if each.get("kind") == NOT_FOUND
        },
        "left_out": folder.left_out(),
        "warnings": dict(folder.warnings().most_common()),
    }


def _sum(methods: list[dict[str, Any]]) -> float | None:
    """Return the time left of all methods; ``None`` if nothing is known about one of them."""
    waiting = [each["seconds_left"] for each in methods if each["missing"]]
    return None if None in waiting else float(sum(waiting))


def show_status(voice: Voice, found: dict[str, Any]) -> None:
    """Show a summary to people."""
    from refinecal.experiments.rates import duration

    voice.tell(_headline(found), "bold")
    if found["missing"] or found["failed"] or len(found["methods"]) > 1 or voice.verbose:
        voice.table(
            ["method", "finished", "failed", "left", "each", "time left"],
            [
                [
                    each["method"],
                    *(str(each[name]) for name in ("finished", "failed", "missing")),
                    *(
                        "" if each[name] is None or not number else duration(each[name])
                        for name, number in (("mean_seconds", 1), ("seconds_left", each["missing"]))
                    ),
                ]
                for each in found["methods"]
            ],
            spare=("each",),
        )
    show_failures(voice, found)
    _show_left_out(voice, found["left_out"])
    if voice.verbose:
        for text, n in list(found["warnings"].items())[:MOST]:
            voice.tell(f"Warned in {count(n, 'training')}: {reason(text)}")
    for line in _next(found):
        voice.say(line)


def show_failures(voice: Voice, found: dict[str, Any]) -> None:
    """Show why trainings failed: equal reasons once, the most frequent first."""
    alike = defaultdict(list)
    for each in found["failures"]:
        said = reason(f"{each['kind']}: {each['message']}")
        alike[said].append(f"{each['method']} on {each['set']}")
    ordered = sorted(alike.items(), key=lambda item: -len(item[1]))
    for said, which in ordered[:MOST]:
        names = ", ".join(list(Counter(which))[:3]) + ", …" * (len(set(which)) > 3)
        voice.tell(f"{count(len(which), 'training')} failed ({names}): {said}")
    if len(ordered) > MOST:
        voice.tell(f"… and for {count(len(ordered) - MOST, 'other reason')}")
    if ordered:
        voice.tell(f"Tracebacks: {shown(Path(found['run']) / 'failures')}")


def _show_left_out(voice: Voice, reasons: dict[str, str]) -> None:
    most = len(reasons) if voice.verbose else MOST_LEFT_OUT
    for name, why in list(reasons.items())[:most]:
        voice.tell(f"Left out: {name}: {reason(why)}")
    if len(reasons) > most:
        voice.tell(f"… and {count(len(reasons) - most, 'other data set')} left out; -v shows all")


def _headline(found: dict[str, Any]) -> str:
    from refinecal.experiments.rates import duration

    planned = count(found["planned"], "training")
    said = f"{shown(Path(found['run']))}: {found['finished']} of {planned} finished"
    if found["failed"]:
        said += f", {found['failed']} failed"
    if not found["missing"]:
        return said
    said += f", {found['missing']} left"
    if found["damaged"]:
        said += f" ({count(found['damaged'], 'result')} damaged)"
    if found["seconds_left"] is not None:
        processes = count(found["width"], "process", "processes")
        said += f": about {duration(found['seconds_left'])} with {processes}"
    return said + (", running now" if found["running"] else "")


def _next(found: dict[str, Any]) -> list[str]:
    """Return what can be done with the run now."""
    run = shown(Path(found["run"]))
    lines = []
    if found["missing"] and not found["running"]:
        lines.append(f"Go on:   refinecal experiment tabular --out {run} --resume")
    if found["failed"] and not found["running"]:
        lines.append(f"Again:   refinecal experiment tabular --out {run} --resume --retry-failed")
    if found["not_found"] and not found["running"]:
        option = "--talent" if "talent" in found["not_found"].values() else "--data"
        again = f"--resume {option} NEWFOLDER --retry-failed"
        lines[-1:] = [
            "Again, with the folder in which the tables are now:",
            f"refinecal experiment tabular --out {run} {again}",
        ]
    if found["finished"]:
        lines.append(f"Report:  refinecal experiment report {run}")
    return lines
