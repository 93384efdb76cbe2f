"""Metrics of probabilities, called as ``metric(y_true, probs)`` or ``metric(y_true, logits=z)``."""

from refinecal.metrics._breakdown import MetricTable, per_class, per_group
from refinecal.metrics._metric import BUILT_IN as BUILT_IN
from refinecal.metrics._metric import Metric
from refinecal.metrics._metric import Step as Step
from refinecal.metrics._metric import get_metric as get_metric
from refinecal.metrics._metric import get_metrics as get_metrics
from refinecal.metrics._metric import is_built_in as is_built_in
from refinecal.metrics._metric import value_of as value_of
from refinecal.metrics._scores import (
    PrecisionRecall,
    accuracy,
    auroc,
    average_precision,
    brier_score,
    confusion_matrix,
    error_rate,
    log_loss,
    precision_recall_curve,
    spherical_loss,
)
from refinecal.metrics._statistics import (
    CalibrationTest,
    ks_statistic,
    ks_test,
    kuiper_statistic,
    kuiper_test,
    spiegelhalter,
)
from refinecal.metrics._variational import lp_calibration_error
from refinecal.metrics.bins import ece, mce, overconfidence, underconfidence
from refinecal.metrics.smoothing import smooth_ece

__all__ = [
    "CalibrationTest",
    "Metric",
    "MetricTable",
    "PrecisionRecall",
    "accuracy",
    "auroc",
    "average_precision",
    "brier_score",
    "confusion_matrix",
    "ece",
    "error_rate",
    "ks_statistic",
    "ks_test",
    "kuiper_statistic",
    "kuiper_test",
    "log_loss",
    "lp_calibration_error",
    "mce",
    "overconfidence",
    "per_class",
    "per_group",
    "precision_recall_curve",
    "smooth_ece",
    "spherical_loss",
    "spiegelhalter",
    "underconfidence",
]
