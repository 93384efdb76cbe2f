"""Keywords that a function does not take: refused with the one that was meant, as by Python 3.13."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import update_wrapper
from types import FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar, cast, is_typeddict

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
