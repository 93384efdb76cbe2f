"""Warnings at the user's line, errors that name the nearest right word, and packages that are missing."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import update_wrapper
from types import FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar, cast, is_typeddict


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


P = ParamSpec("P")
R = TypeVar("R")

SYNONYMS = (  # what different frameworks call the same thing
    (
        "patience",
        "rounds",
        "stopping_rounds",
        "early_stopping_rounds",
        "early_stopping_round",
        "early_stopping_patience",
        "n_iter_no_change",
    ),
    ("restore_best", "restore_best_weights", "load_best", "save_best"),
)


def check_keywords(*options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function refuse keywords other than its own, and than those of ``options``, with a hint.

    ``options`` are the callables and typed dictionaries that its ``**options`` are for.

    >>> @check_keywords()
    ... def stop(patience=None, metric="refinement"): ...
    >>> stop(patince=5)
    Traceback (most recent call last):
    TypeError: stop() got an unexpected keyword argument 'patince'. Did you mean 'patience'?
    >>> stop(rounds=5)
    Traceback (most recent call last):
    TypeError: rounds is called patience here: pass patience=5
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = dict.fromkeys(name for one in (function, *options) for name in _names_of(one))
        fail = _fail

        def call(*args: P.args, **given: P.kwargs) -> R:
            for name, value in given.items():
                if name not in known:
                    fail(function, args, name, value, list(known))
            return function(*args, **given)

        # Of the function's own module, else doctest would pass over its examples.
        made = FunctionType(
            call.__code__, cast("Any", function).__globals__, closure=call.__closure__
        )
        return cast("Callable[P, R]", update_wrapper(made, function))

    return decorate


def _names_of(source: Any) -> list[str]:
    if is_typeddict(source):
        return list(source.__annotations__)
    parameters = inspect.signature(source).parameters.values()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.kind in by_name and one.name != "self"]


def _fail(function: Any, args: Any, name: str, value: Any, known: list[str]) -> NoReturn:
    for words in SYNONYMS:
        ours = [word for word in words if word in known]
        if name in words and ours:
            raise TypeError(f"{name} is called {ours[0]} here: pass {ours[0]}={value!r}")
    who = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
    near = get_close_matches(name, known, 1)
    hint = f". Did you mean {near[0]!r}?" if near else f": it takes {', '.join(known)}"
    raise TypeError(f"{who}() got an unexpected keyword argument {name!r}{hint}")
