"""Warnings at the user's line, errors that suggest a valid name, and missing packages."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NoReturn


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the line of the user's code that called the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(
        "refinecal."
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def needs_extra(extra: str, package: str, *others: str) -> Iterator[None]:
    """Say how to install ``package``, or one of the others, if it is missing in the block.

    An installed but broken package shows its own error; in nested blocks, the innermost message is kept.

    >>> with needs_extra("nowhere", package="no_such_package"):
    ...     import no_such_package
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: no_such_package is not installed; get it with: pip install 'refinecal[nowhere]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        said = f"{error.name} is not installed; get it with: pip install "
        if error.name in (package, *others) and not str(error).startswith(said):
            error.msg = f"{said}'refinecal[{extra}]'"
        raise


ELSEWHERE = {  # names in other packages
    "auc": "auroc",
    "roc_auc": "auroc",
    "acc": "accuracy",
    **dict.fromkeys(["loss", "logloss", "log_loss", "neg_log_loss", "nll", "cross_entropy"], "log"),
}


def fail_choice(
    name: str, value: object, choices: Sequence[str | None], otherwise: str = ""
) -> NoReturn:
    """Raise for an unknown name, with the known ones, the closest of them, and what else is allowed."""
    ours = ELSEWHERE.get(str(value).lower(), value)
    near = [one for one in (ours, f"{ours}_loss") if one in choices]
    near += get_close_matches(str(value), [one for one in choices if one], 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    known = [repr(choice) for choice in choices]
    last = otherwise or known.pop()
    raise ValueError(f"{name} is {value!r}: it must be one of {', '.join(known)}, or {last}.{hint}")
