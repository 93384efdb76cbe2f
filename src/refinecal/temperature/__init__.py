"""Temperature scaling: the best inverse temperature, and its calibrator."""

from typing import TYPE_CHECKING, Any

from refinecal.temperature.fit import MAX_BETA, TemperatureFit, fit_temperature

if TYPE_CHECKING:
    from refinecal.calibrators.temperature import TemperatureScaling as TemperatureScaling

__all__ = ["MAX_BETA", "TemperatureFit", "TemperatureScaling", "fit_temperature"]


def __getattr__(name: str) -> Any:
    if name != "TemperatureScaling":  # defined in calibrators, which imports this
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from refinecal.calibrators.temperature import TemperatureScaling

    return TemperatureScaling
