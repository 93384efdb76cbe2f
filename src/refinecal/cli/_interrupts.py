"""Ctrl-C or SIGTERM at any moment: one word, exit code 130 or 143, nothing left behind.

While Python starts and loads the command line there is nothing to clear away, so the program ends at once.
Later both are a ``KeyboardInterrupt``, but a library that is just being imported may swallow it, or
take it for a missing package. So it waits until no import is under way, and comes again if it was swallowed.
"""

from __future__ import annotations

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
    asked: int | None = None  # the signal that came first while it ran
    ended = False  # and the command has come to its end


def install() -> None:
    """Begin to watch for signals; called before anything that takes time."""
    if threading.current_thread() is threading.main_thread():
        for number in WORDS:
            signal.signal(number, _pressed)
        sys.unraisablehook = _unraisable


def begin() -> None:
    """Tell that a command begins."""
    _State.running, _State.asked, _State.ended = True, None, False


def end() -> bool:
    """Tell that the command is over, whatever came of it; return whether it was interrupted."""
    _State.ended = True
    return _State.asked is not None


def word() -> str:
    """Return the word on a line of its own: a terminal shows ``^C`` before it."""
    said = WORDS[signal.Signals(_State.asked or signal.SIGINT)]
    return f"\n{said}" if sys.stderr.isatty() else said


def code() -> int:
    """Return the exit code that shells expect."""
    return 128 + (_State.asked or signal.SIGINT)


def _pressed(number: int, frame: FrameType | None) -> None:
    if _State.ended:
        return
    _State.asked = _State.asked or number  # the first; then it comes again as ctrl-C
    if not _State.running:
        os.write(2, f"{word()}\n".encode())
        os._exit(code())
    _come_again()
    if not (_is_clearing_away() or _is_importing(frame)):
        raise KeyboardInterrupt


def _unraisable(about: sys.UnraisableHookArgs) -> None:
    """Stay silent about an interrupt that a library's callback could not pass on: it comes again."""
    if not (_State.asked and isinstance(about.exc_value, KeyboardInterrupt)):
        sys.__unraisablehook__(about)


def _come_again() -> None:
    timer = threading.Timer(AGAIN, _poke)
    timer.daemon = True
    timer.start()


def _poke() -> None:
    import _thread

    if _State.ended:
        return
    if hasattr(signal, "pthread_kill"):  # which wakes a program that waits for something, too
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _is_clearing_away() -> bool:
    """Tell whether a KeyboardInterrupt is on its way up, which must not be interrupted itself."""
    error: BaseException | None = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(IMPORTER):
            return True
        frame = frame.f_back
    return False
