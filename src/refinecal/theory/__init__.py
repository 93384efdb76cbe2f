"""Theory of calibration and refinement for linear classifiers: sections 6 and 7 of the paper.

:func:`gaussian_decomposition` decomposes the loss of a linear classifier on two Gaussian classes.
:func:`logistic`, :func:`lda` and :func:`ridge` give the classifiers learned in the high-dimensional limit.
:func:`minimise` finds the λ that minimize risk, calibration and refinement. :func:`predict_gain` applies the
theory to your data. Names are loaded when first used.

>>> from refinecal.theory import BetaSpectrum, minimise
>>> best = minimise(ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))  # the paper's figure 7
>>> print(f"{best.gain:.1%} less log loss")
2.2% less log loss
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # so that editors and type checkers see what __getattr__ imports
    from refinecal.theory.asymptotics import Solution as Solution
    from refinecal.theory.asymptotics import logistic as logistic
    from refinecal.theory.curves import Minimisers as Minimisers
    from refinecal.theory.curves import minimise as minimise
    from refinecal.theory.curves import path as path
    from refinecal.theory.discriminant import lda as lda
    from refinecal.theory.discriminant import ridge as ridge
    from refinecal.theory.empirical import Check as Check
    from refinecal.theory.empirical import check as check
    from refinecal.theory.estimate import EmpiricalSpectrum as EmpiricalSpectrum
    from refinecal.theory.explorer import explorer_page as explorer_page
    from refinecal.theory.explorer import write_explorer as write_explorer
    from refinecal.theory.gain import GainPrediction as GainPrediction
    from refinecal.theory.gain import predict_gain as predict_gain
    from refinecal.theory.gaussian import GaussianDecomposition as GaussianDecomposition
    from refinecal.theory.gaussian import gaussian_decomposition as gaussian_decomposition
    from refinecal.theory.gaussian import optimal_rescaling as optimal_rescaling
    from refinecal.theory.heatmaps import HeatMap as HeatMap
    from refinecal.theory.heatmaps import heatmap as heatmap
    from refinecal.theory.model import GaussianModel as GaussianModel
    from refinecal.theory.model import sample as sample
    from refinecal.theory.spectrum import BetaSpectrum as BetaSpectrum
    from refinecal.theory.spectrum import MarchenkoPastur as MarchenkoPastur
    from refinecal.theory.spectrum import PointSpectrum as PointSpectrum
    from refinecal.theory.spectrum import QuadratureSpectrum as QuadratureSpectrum
    from refinecal.theory.spectrum import Spectrum as Spectrum
    from refinecal.theory.spectrum import UniformSpectrum as UniformSpectrum
    from refinecal.theory.spectrum import parse_spectrum as parse_spectrum

_NAMES = {
    "asymptotics": ("Solution", "logistic"),
    "curves": ("Minimisers", "minimise", "path"),
    "discriminant": ("lda", "ridge"),
    "empirical": ("Check", "check"),
    "estimate": ("EmpiricalSpectrum",),
    "explorer": ("explorer_page", "write_explorer"),
    "fixed_point": (),
    "gain": ("GainPrediction", "predict_gain"),
    "gaussian": ("GaussianDecomposition", "gaussian_decomposition", "optimal_rescaling"),
    "heatmaps": ("HeatMap", "heatmap"),
    "model": ("GaussianModel", "sample"),
    "spectrum": (
        *("BetaSpectrum", "MarchenkoPastur", "PointSpectrum", "QuadratureSpectrum", "Spectrum"),
        *("UniformSpectrum", "parse_spectrum"),
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOME)  # noqa: PLE0605

if not TYPE_CHECKING:  # else every misspelt name would have a type

    def __getattr__(name: str) -> Any:
        if name in _NAMES:
            return import_module(f"refinecal.theory.{name}")
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"refinecal.theory.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return list(__all__)
