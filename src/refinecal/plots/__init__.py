"""Figures: one class each, which holds the data and draws it on a given Axes."""

from refinecal.plots.training_curve import TrainingCurveDisplay

__all__ = ["TrainingCurveDisplay"]
