"""Ctrl-C or SIGTERM at any moment: one word, exit code 130 or 143, nothing left behind.

While Python starts and loads the command line there is nothing to clear away, so the program ends at once.
Later both are a ``KeyboardInterrupt``, but a library that is just being imported may swallow it, or
take it for a missing package. So it waits until no import is under way, and comes again if it was swallowed.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from types import FrameType

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
AGAIN = 0.05  # seconds
IMPORTER = "importlib._bootstrap"


class _State:
    """How far the program is, and whether it was interrupted."""

    running = False  # a command has begun: it may have something to clear away
    received: int | None = None  # the signal that came first while it ran
    ended = False  # and the command has come to its end


def install() -> None:
    """Begin to watch for signals; called before anything that takes time."""
    if threading.current_thread() is threading.main_thread():
        for number in WORDS:
            signal.signal(number, _handle_signal)
        sys.unraisablehook = _hide_unraisable


def begin() -> None:
    """Tell that a command begins."""
    _State.running, _State.received, _State.ended = True, None, False


def end() -> bool:
    """Tell that the command is over, whatever came of it; return whether it was interrupted."""
    _State.ended = True
    return _State.received is not None


def message() -> str:
    """Return the word on a line of its own: a terminal shows ``^C`` before it."""
    word = WORDS[signal.Signals(_State.received or signal.SIGINT)]
    return f"\n{word}" if sys.stderr.isatty() else word


def exit_code() -> int:
    """Return the exit code that shells expect."""
    return 128 + (_State.received or signal.SIGINT)


def _handle_signal(number: int, frame: FrameType | None) -> None:
    if _State.ended:
        return
    _State.received = _State.received or number  # the first; then it comes again as ctrl-C
    if not _State.running:
        os.write(2, f"{message()}\n".encode())
        os._exit(exit_code())
    timer = threading.Timer(AGAIN, _interrupt_again)
    timer.daemon = True
    timer.start()
    if _may_raise(frame):
        raise KeyboardInterrupt


def _hide_unraisable(about: sys.UnraisableHookArgs) -> None:
    """Stay silent once the program is interrupted.

    A library's callback may have been unable to pass the interrupt on, which then comes again; and objects
    that were cut off in the making may fail when they are collected.
    """
    if not _State.received:
        sys.__unraisablehook__(about)


def _interrupt_again() -> None:
    if _State.ended:
        return
    if hasattr(signal, "pthread_kill"):  # which wakes a program that waits for something, too
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _may_raise(frame: FrameType | None) -> bool:
    """Tell whether nothing is being imported, nor a KeyboardInterrupt on its way up already."""
    error = sys.exception()
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return False
        error = error.__context__
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(IMPORTER):
            return False
        frame = frame.f_back
    return True
