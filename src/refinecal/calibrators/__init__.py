"""Calibrators: maps from probabilities to better ones, each with ``fit`` and ``predict_proba``.

Made by name with :func:`make_calibrator`; the classes are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from refinecal.calibrators._json import from_dict, from_json
from refinecal.calibrators.base import KINDS, Calibrator, make_calibrator

if TYPE_CHECKING:  # so that editors and type checkers see what __getattr__ imports
    from refinecal.calibrators.auto import AutoCalibrator as AutoCalibrator
    from refinecal.calibrators.binning import HistogramBinning as HistogramBinning
    from refinecal.calibrators.binning import ScalingBinning as ScalingBinning
    from refinecal.calibrators.isotonic import (
        CentredIsotonicCalibration as CentredIsotonicCalibration,
    )
    from refinecal.calibrators.isotonic import IsotonicCalibration as IsotonicCalibration
    from refinecal.calibrators.scaling import AffineScaling as AffineScaling
    from refinecal.calibrators.scaling import DirichletCalibration as DirichletCalibration
    from refinecal.calibrators.scaling import MatrixScaling as MatrixScaling
    from refinecal.calibrators.scaling import StructuredMatrixScaling as StructuredMatrixScaling
    from refinecal.calibrators.scaling import StructuredVectorScaling as StructuredVectorScaling
    from refinecal.calibrators.scaling import VectorScaling as VectorScaling
    from refinecal.calibrators.sigmoid import BetaCalibration as BetaCalibration
    from refinecal.calibrators.sigmoid import QuadraticScaling as QuadraticScaling
    from refinecal.calibrators.spline import SplineCalibration as SplineCalibration
    from refinecal.calibrators.temperature import (
        EnsembleTemperatureScaling as EnsembleTemperatureScaling,
    )
    from refinecal.calibrators.temperature import TemperatureScaling as TemperatureScaling
    from refinecal.calibrators.venn_abers import CrossVennAbers as CrossVennAbers
    from refinecal.calibrators.venn_abers import VennAbers as VennAbers
    from refinecal.calibrators.wrappers import LaplaceSmoothing as LaplaceSmoothing
    from refinecal.calibrators.wrappers import OneVsOne as OneVsOne
    from refinecal.calibrators.wrappers import OneVsRest as OneVsRest

_CLASSES = {kind: module for module, kind, _ in KINDS.values()}
__all__ = [  # noqa: PLE0604 (the table has the names)
    "Calibrator",
    "from_dict",
    "from_json",
    "make_calibrator",
    *_CLASSES,
]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_CLASSES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
