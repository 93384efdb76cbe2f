"""The result of one training run on images."""

from refinecal.experiments.units import VisionUnit

__all__ = ["VisionUnit"]
