"""Figures: each class holds the data of a figure and draws them on matplotlib Axes.

Constructors and functions that return data do not need matplotlib. ``plot`` and the ``from_...`` methods
draw immediately, on ``ax`` or on a new figure.
"""

from refinecal.plots.calibration_map import (
    CalibrationMap,
    CalibrationMapDisplay,
    map_probabilities,
)
from refinecal.plots.decisions import ConfusionDisplay, CostDisplay, PrecisionRecallDisplay
from refinecal.plots.early_stopping import EarlyStoppingDisplay
from refinecal.plots.ensemble_path import EnsemblePathDisplay
from refinecal.plots.importances import ImportanceDisplay
from refinecal.plots.reliability import (
    Reliability,
    ReliabilityDisplay,
    draw_classes,
    reliability_curve,
)
from refinecal.plots.stopping_metrics import StoppingMetricsDisplay
from refinecal.plots.training_curve import TrainingCurveDisplay
from refinecal.plots.waterfall import WaterfallDisplay

__all__ = [
    "CalibrationMap",
    "CalibrationMapDisplay",
    "ConfusionDisplay",
    "CostDisplay",
    "EarlyStoppingDisplay",
    "EnsemblePathDisplay",
    "ImportanceDisplay",
    "PrecisionRecallDisplay",
    "Reliability",
    "ReliabilityDisplay",
    "StoppingMetricsDisplay",
    "TrainingCurveDisplay",
    "WaterfallDisplay",
    "draw_classes",
    "map_probabilities",
    "reliability_curve",
]
