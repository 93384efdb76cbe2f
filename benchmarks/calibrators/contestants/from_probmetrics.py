"""The calibrators of probmetrics, by its own names.

Three are left out: "platt-logits" of version 1.3.0 refuses its own input, and "dircal" and "dircal-cv" need
the package dirichletcal, which needs a version of jax older than our NumPy allows.
"""

from functools import partial

import numpy as np
from probmetrics.calibrators import get_calibrator

from benchmarks.calibrators.contestants import Method, Part, Predict, one_vs_rest

ANY = (
    *("temp-scaling", "ts-mix", "guo-ts", "torchcal-ts", "torchunc-ts", "autogluon-ts"),
    *("autogluon-inv-ts", "svs", "sms", "logistic", "logistic-mix"),
    *("platt", "isotonic", "cir", "ivap", "ivap-ovo"),
)
TWO = ("affine-scaling", "quadratic-scaling", "beta")
QUIET = {"svs": {"svs_print_init_info": False}, "sms": {"sms_print_init_info": False}}


def fit(name: str, part: Part) -> Predict:
    """Fit on probabilities, the input of its scikit-learn interface."""
    calibrator = get_calibrator(name, **QUIET.get(name, {}))
    calibrator.fit(part.probs, part.labels)
    return lambda new: np.asarray(calibrator.predict_proba(new.probs))


METHODS: dict[str, Method] = {f"probmetrics {name}": partial(fit, name) for name in ANY}
METHODS |= {f"probmetrics {name}": one_vs_rest(partial(fit, name)) for name in TWO}
