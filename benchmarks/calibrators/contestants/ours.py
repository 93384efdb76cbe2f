"""Every calibrator of refinecal that is not a wrapper of another, with its default parameters."""

from functools import lru_cache, partial
from importlib.util import find_spec

import numpy as np

from benchmarks.calibrators.contestants import OURS, Method, Part, Predict
from refinecal.calibrators.base import KINDS, make_calibrator
from refinecal.calibrators.temperature import TemperatureScaling

WRAPPERS = ("one-vs-rest", "one-vs-one", "laplace")


def fit(name: str, part: Part) -> Predict:
    """Fit on logits; what is for two classes is fitted to one class against the rest."""
    calibrator = make_calibrator(name if takes(name, part.k) else f"{name}-ovr")
    calibrator.fit_logits(part.logits, part.labels)
    return lambda new: calibrator.predict_proba_logits(new.logits)


@lru_cache
def takes(name: str, k: int) -> bool:
    """Tell whether a calibrator takes k classes as it is; those that do not say what would."""
    logits = 2.0 * np.tile(np.eye(k), (5, 1))
    try:
        make_calibrator(name).fit_logits(logits, np.tile(np.arange(k), 5))
    except ValueError as error:
        if f"{name}-ovr" in str(error):
            return False
        raise
    return True


def _is_there(module: str) -> bool:
    return find_spec(f"refinecal.calibrators.{module}") is not None


def fit_unsmoothed(part: Part) -> Predict:
    """Fit plain temperature scaling, as most packages have it."""
    calibrator = TemperatureScaling(laplace=False).fit_logits(part.logits, part.labels)
    return lambda new: calibrator.predict_proba_logits(new.logits)


METHODS: dict[str, Method] = {
    f"{OURS} {name}": partial(fit, name)
    for name, (module, _, _) in KINDS.items()
    if name not in WRAPPERS and _is_there(module)
}
PAPER: dict[str, Method] = {f"{OURS} temperature, unsmoothed": fit_unsmoothed}  # of its figure 4
