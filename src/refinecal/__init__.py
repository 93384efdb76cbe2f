"""Refine, then calibrate: better probabilities from any classifier.

A mean loss is calibration error, which one number corrects after training, plus refinement error, which
is what the model cannot tell apart. ``decompose`` tells them apart; ``fit_temperature`` is the number;
``RefinementMonitor`` says when to stop training, ``RefineThenCalibrateClassifier`` does the whole job, and
``refinecal.integrations`` has the callbacks of each framework. Names are loaded when first used, so that
importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refinecal import calibrators as calibrators
    from refinecal import evaluation as evaluation
    from refinecal import losses as losses
    from refinecal import metrics as metrics
    from refinecal import plots as plots
    from refinecal import theory as theory
    from refinecal.calibrators import make_calibrator as make_calibrator
    from refinecal.calibrators.temperature import TemperatureScaling as TemperatureScaling
    from refinecal.decomposition import Decomposition as Decomposition
    from refinecal.decomposition import calibration_error as calibration_error
    from refinecal.decomposition import decompose as decompose
    from refinecal.decomposition import refinement_error as refinement_error
    from refinecal.ensembles import SelectedEnsemble as SelectedEnsemble
    from refinecal.ensembles import select_ensemble as select_ensemble
    from refinecal.estimator import (
        RefineThenCalibrateClassifier as RefineThenCalibrateClassifier,
    )
    from refinecal.postmortem import PostMortem as PostMortem
    from refinecal.postmortem import post_mortem as post_mortem
    from refinecal.scoring import refinement_scorer as refinement_scorer
    from refinecal.selection import select as select
    from refinecal.stopping import RefinementMonitor as RefinementMonitor
    from refinecal.temperature.fit import TemperatureFit as TemperatureFit
    from refinecal.temperature.fit import fit_temperature as fit_temperature

__version__ = "0.1.0.dev0"

_HOME = {
    "Decomposition": "decomposition",
    "PostMortem": "postmortem",
    "RefineThenCalibrateClassifier": "estimator",
    "RefinementMonitor": "stopping",
    "SelectedEnsemble": "ensembles",
    "TemperatureFit": "temperature",
    "TemperatureScaling": "temperature",
    "calibration_error": "decomposition",
    "decompose": "decomposition",
    "fit_temperature": "temperature",
    "make_calibrator": "calibrators",
    "post_mortem": "postmortem",
    "refinement_error": "decomposition",
    "refinement_scorer": "scoring",
    "select": "selection",
    "select_ensemble": "ensembles",
}
_MODULES = ("calibrators", "evaluation", "losses", "metrics", "plots", "theory")
__all__ = [*sorted(_HOME), *_MODULES]  # noqa: PLE0604


if not TYPE_CHECKING:  # else every misspelt name would have a type

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"refinecal.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'refinecal' has no attribute {name!r}")
        value = getattr(import_module(f"refinecal.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
