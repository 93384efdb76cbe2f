"""Parameters of estimators, whatever their names."""

from __future__ import annotations

import inspect
from typing import Any

from refinecal.training.predictions import library_of
from refinecal.training.rows import Rows

LENGTHS = ("n_estimators", "max_iter")

# What did best on 49 tables, averaged and chosen by refinement, within the time of the libraries' own.
DEFAULTS: dict[str, dict[str, Any]] = {
    "xgboost": {"learning_rate": 0.1, "colsample_bynode": 0.6},
}
OTHER_NAMES = {"learning_rate": "eta"}


def unset_defaults(model: Any) -> dict[str, Any]:
    """Return values for what a user has left unset, which ``XGBClassifier`` tells by ``None``."""
    params = model.get_params()
    given = {name for name, value in params.items() if value is not None}
    found = {
        name: value
        for name, value in DEFAULTS.get(library_of(model), {}).items()
        if name in params and not given & {name, OTHER_NAMES.get(name)}
    }
    if params.get("booster") not in (None, "gbtree"):
        return {}
    samples = any(name.startswith("colsample_") for name in given)
    if samples or params.get("tree_method") == "exact":  # shares multiply; not by node there
        found.pop("colsample_bynode", None)
    return found


def takes(method: Any, name: str) -> bool:
    """Tell whether a method has a parameter of this name."""
    return name in inspect.signature(method).parameters


def weights_for(method: Any, rows: Rows) -> dict[str, Any]:
    """Return the weights as a keyword of ``fit`` or ``partial_fit``, if there are any.

    A method that takes any keyword hands them on to the models inside, or says itself that it cannot.
    """
    if rows.weights is None:
        return {}
    kinds = [parameter.kind for parameter in inspect.signature(method).parameters.values()]
    if not (takes(method, "sample_weight") or inspect.Parameter.VAR_KEYWORD in kinds):
        raise TypeError(
            f"{type(method.__self__).__name__}.{method.__name__} takes no sample_weight: leave it out, or "
            "pass whole numbers of at most 4 on average, which are taken as repetitions"
        )
    return {"sample_weight": rows.weights}


def length_name(estimator: Any) -> str:
    """Return the parameter that says how many rounds to train."""
    params = estimator.get_params(deep=False)
    found = [name for name in LENGTHS if name in params]
    if not found:
        raise TypeError(
            f"{type(estimator).__name__} has stages, but neither n_estimators nor max_iter"
        )
    return found[0]


def switch_off_stopping(estimator: Any) -> None:
    """Let an estimator of scikit-learn train as long as it is told."""
    params = estimator.get_params(deep=False)
    if "early_stopping" in params:
        estimator.set_params(early_stopping=False)
    elif "n_iter_no_change" in params:
        estimator.set_params(n_iter_no_change=None)
