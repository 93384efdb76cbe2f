"""Ctrl-C or SIGTERM at any moment: one word, exit code 130 or 143, no files left behind.

Before a command starts there is nothing to clean up, so the program exits at once. Later both signals raise
``KeyboardInterrupt``; but a library may swallow it, above all while it is imported, where it looks like a
missing package. So it is raised again until the command has ended, and not where it would do damage: during
imports, and while Numba compiles or loads a loop (LLVM's objects would be freed twice, a segmentation fault)
or a thread starts (nobody would wait for it).
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
AGAIN = 0.05  # seconds
DELICATE = (
    *("importlib._bootstrap", "llvmlite.", "numba."),
    *("threading.Thread.start", "concurrent.futures.thread.ThreadPoolExecutor.submit"),
)


class _State:
    """Whether a command is running, has ended, or was interrupted."""

    running = False
    received: int | None = None  # the first signal
    ended = False


def install() -> None:
    """Handle signals; called before anything that takes time."""
    if threading.current_thread() is threading.main_thread():
        for number in WORDS:
            signal.signal(number, _handle_signal)
        sys.unraisablehook = _hide_unraisable


def owns_process() -> bool:
    """Tell whether the process is a command of the shell, so that no other Python code runs in it."""
    path = Path(sys.argv[0])  # of the console script, or of the module
    return path.stem == "refinecal" or path.parts[-2:] == ("refinecal", "__main__.py")


def begin() -> None:
    """Mark the start of a command."""
    _State.running, _State.received, _State.ended = True, None, False


def end() -> bool:
    """Mark the end of a command; return whether it was interrupted."""
    _State.ended = True
    return _State.received is not None


def message() -> str:
    """Return the message, on a new line of a terminal, which shows ``^C`` before it."""
    word = WORDS[signal.Signals(_State.received or signal.SIGINT)]
    return f"\n{word}" if sys.stderr.isatty() else word


def exit_code() -> int:
    """Return the exit code that shells expect of a signal."""
    return 128 + (_State.received or signal.SIGINT)


def _handle_signal(number: int, frame: FrameType | None) -> None:
    if _State.ended:
        return
    _State.received = _State.received or number
    if not _State.running:
        os.write(2, f"{message()}\n".encode())
        os._exit(exit_code())
    _thread.start_new_thread(_interrupt_again, ())
    if _may_raise(frame):
        raise KeyboardInterrupt


def _hide_unraisable(about: sys.UnraisableHookArgs) -> None:
    """Show nothing after an interrupt, since half-built objects may fail when they are deleted."""
    if not _State.received:
        sys.__unraisablehook__(about)


def _interrupt_again() -> None:
    time.sleep(AGAIN)
    if _State.ended:
        return
    if hasattr(signal, "pthread_kill"):  # which also wakes a program that waits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _may_raise(frame: FrameType | None) -> bool:
    """Return whether nothing delicate is in progress, nor a KeyboardInterrupt being handled."""
    error = sys.exception()
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return False
        error = error.__context__
    while frame is not None:
        place = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
        if place.startswith(DELICATE):
            return False
        frame = frame.f_back
    return True
