"""What the commands of the experiments share: their options, the folder of a run, and its progress."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import typer

from refinecal.cli._console import FILE_RULES, Console, clean, count, show_path, use_option_names
from refinecal.cli._options import MODEL

if TYPE_CHECKING:
    from refinecal.experiments.folder import RunFolder
    from refinecal.experiments.plan import Plan, VisionPlan
    from refinecal.experiments.running import State


LINE = 60.0  # seconds
LONGEST = 1_000  # characters of a reason


def option(
    name: str,
    help: str,
    default: str | None = None,
    metavar: str = "N",
    panel: str = MODEL,
    **more: Any,
) -> Any:
    """Return an option of an experiment; ``default`` is shown, since ``None`` means not given."""
    shown: dict[str, Any] = {} if default is None else {"show_default": default}
    return typer.Option(name, help=help, metavar=metavar, rich_help_panel=panel, **shown, **more)


def split_names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Return the names of a list; ``None`` if there is none.

    >>> split_names("--methods", "xgboost, mlp")
    ('xgboost', 'mlp')
    """
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise typer.BadParameter("name at least one", param_hint=option)
    return tuple(dict.fromkeys(names))


class RunProgress:
    """Called with the state of a run after each change."""

    def __init__(self, console: Console) -> None:
        from rich import progress as bars

        self._console = console
        self._bar = bars.Progress(
            bars.TextColumn("training runs"),
            bars.BarColumn(bar_width=20),
            bars.TextColumn("{task.fields[about]}"),
            bars.TimeElapsedColumn(),
            console=console.err,
            transient=True,
            disable=console.quiet or not console.err.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, about="")
        self._next_line = time.monotonic() + LINE
        self._failed = 0

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._bar.stop()

    def __call__(self, state: State) -> None:
        """Show the progress."""
        if state.failed > self._failed:
            self._failed = state.failed
            self._console.note(f"failed: {reason(state.last_failure)}")
        done, total, said = self.progress(state)
        self._bar.update(self._task, completed=done, total=total, about=said)
        if self._bar.disable and not self._console.quiet and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE
            self._console.err.print(f"training runs {said}", markup=False)

    def progress(self, state: State) -> tuple[float, float, str]:
        """Return how much is done, of how much, and the same in words."""
        return (
            state.finished + state.failed,
            state.total,
            describe_progress(state, state.seconds_left),
        )


def reason(text: str) -> str:
    r"""Return why something failed, as a line that ends with a word.

    >>> reason("ValueError: no\nclasses")
    'ValueError: no classes'
    """
    return clean(shorten(use_option_names(text, FILE_RULES), LONGEST, placeholder=" …"))


def describe_progress(state: State, left: float | None, under_way: Sequence[str] = ()) -> str:
    """Return what is done, what failed, the time that is left, and what is under way, in words."""
    from refinecal.experiments.rates import duration

    parts = [
        f"{state.finished + state.failed}/{state.total}",
        f"{state.failed} failed" if state.failed else "",
        "" if left is None else f"{duration(left)} left",
        *under_way,
    ]
    return "  ".join(part for part in parts if part)


def announce(
    console: Console, folder: RunFolder, sizes: Mapping[str, int], todo: int, each: str = ""
) -> None:
    """Show the size of a run, how much of it is to do, and which packages have changed."""
    total = len(folder.plan.units())
    rest = "" if todo == total else f", {todo} to do"
    product = " × ".join(count(n, noun) for noun, n in sizes.items())
    console.tell(f"{product} = {count(total, 'training run')}{each}{rest}", "bold")
    for line in folder.changed_versions():
        console.note(line)


def check_retry(retry_failed: bool, resume: bool) -> None:
    """Raise if there is nothing to retry, in a new run."""
    if retry_failed and not resume:
        raise typer.BadParameter("needs --resume", param_hint="--retry-failed")


@contextmanager
def suggest_resume(
    experiment: str, out: Path, kept: str, option: str, value: str | None
) -> Iterator[None]:
    """Tell how to resume, if the run is interrupted."""
    try:
        yield
    except KeyboardInterrupt as error:
        words = ["refinecal", "experiment", experiment, "--out", show_path(out), "--resume"]
        if value is not None:
            words += [option, value]
        error.add_note(f"{kept} kept; resume with: {shlex.join(words)}")
        raise


# ---- the folder of a run -----------------------------------------------------------------------------------


def open_existing_run(out: Path, kind: str) -> RunFolder:
    """Return the run of an experiment in a folder; raise if another process is running it."""
    from refinecal.experiments.folder import PLAN, RunFolder

    if not (out / PLAN).is_file():
        raise ValueError(f"{show_path(out)} has no run to resume: omit --resume to start one")
    folder = RunFolder(out)
    folder.check_kind(kind)
    folder.check_idle()
    return folder


def grow(console: Console, folder: RunFolder, plan: Plan | VisionPlan) -> None:
    """Give a run another plan, and tell if it is larger."""
    before = len(folder.plan.units())
    folder.grow(plan)
    if len(plan.units()) > before:
        console.tell(
            f"{show_path(folder.path)} had {count(before, 'training run')}; more are added"
        )


def remove_damaged(console: Console, folder: RunFolder) -> None:
    """Remove damaged results, so that they are computed again, and say so."""
    damaged = folder.remove_damaged()
    if damaged:
        which = f"{damaged[0]}" + ", …" * (len(damaged) > 1)
        console.note(f"{count(len(damaged), 'damaged result')} will be computed again: {which}")
