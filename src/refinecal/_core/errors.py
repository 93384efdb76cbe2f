"""Warnings at the user's line, errors that name the nearest right word, and packages that are missing."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NoReturn


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the line of the user's code, however deep in the package this is called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(
        "refinecal."
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def needs_extra(extra: str, package: str, *others: str) -> Iterator[None]:
    """Say how to get ``package``, or one of the others, if importing it in the block fails for want of it.

    A package that is there but broken shows its own error; of blocks within blocks, the innermost is heard.

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


# ---- names that there are not -----------------------------------------------------------------------------

ELSEWHERE = {  # what others call it
    "auc": "auroc",
    "roc_auc": "auroc",
    "acc": "accuracy",
    **dict.fromkeys(["loss", "logloss", "log_loss", "neg_log_loss", "nll", "cross_entropy"], "log"),
}


def fail_choice(name: str, value: object, choices: list[str], otherwise: str) -> NoReturn:
    """Raise for an unknown name, with the known ones and the nearest to it."""
    ours = ELSEWHERE.get(str(value).lower(), value)
    near = [one for one in (ours, f"{ours}_loss") if one in choices]
    near = near or get_close_matches(str(value), choices, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    known = ", ".join(map(repr, choices))
    raise ValueError(f"{name} is {value!r}: it must be one of {known}, or {otherwise}.{hint}")
