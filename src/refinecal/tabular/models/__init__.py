"""The models that ``refinecal fit`` trains: each in its own file, imported when asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from refinecal._core.errors import fail_choice

if TYPE_CHECKING:
    from refinecal.tabular.models._base import TableModel

__all__ = ["FILES", "MODELS", "get_model"]

_CLASSES = {
    "xgboost": ("xgboost", "XGBoostModel"),
    "lightgbm": ("lightgbm", "LightGBMModel"),
    "catboost": ("catboost", "CatBoostModel"),
    "hist-gb": ("hist_gb", "HistGradientBoostingModel"),
    "logistic": ("logistic", "LogisticModel"),
    "mlp": ("mlp", "MLPModel"),
}
MODELS = tuple(_CLASSES)
FILES = {  # in which each is saved, known without importing its library
    "xgboost": "model.ubj",
    "lightgbm": "model.txt",
    "catboost": "model.cbm",
    "hist-gb": "model.npz",
    "logistic": "model.npz",
    "mlp": "model.safetensors",
}


def get_model(name: str) -> type[TableModel]:
    """Return the class of a model by its name, one of ``MODELS``.

    >>> get_model("logistic").step_name
    'strength'
    """
    if name not in _CLASSES:
        fail_choice("model", name, list(MODELS), "left out")
    module, class_name = _CLASSES[name]
    found: type[TableModel] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return found
