"""The methods of the experiment by name: each one's model, last step and search space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refinecal._core.errors import fail_choice
from refinecal.training.spaces import draw
from refinecal.training.table_model import TableModel, get_model


@dataclass(frozen=True, slots=True)
class Method:
    """A way to train on a table; its framework is imported when :attr:`model` is read."""

    name: str
    max_steps: int  # of every training run: rounds, epochs, or penalties
    step_name: str = "round"
    from_paper: bool = False  # whether the paper has it too, with these steps and this search space

    @property
    def model(self) -> type[TableModel]:
        """The class that trains it."""
        return get_model(self.name)

    def params(self, config: int, seed: int) -> dict[str, Any]:
        """Return the parameters of a configuration, drawn with a seed; none for number 0, the default.

        >>> METHODS["xgboost"].params(0, seed=1)
        {}
        >>> sorted(METHODS["mlp"].params(1, seed=1))
        ['dropout', 'learning_rate', 'weight_decay']
        """
        if config == 0:
            return {}
        return draw(self.name, np.random.default_rng(seed))


METHODS = {
    method.name: method
    for method in (
        Method("xgboost", 1000, from_paper=True),
        Method("mlp", 256, "epoch", from_paper=True),
        Method("realmlp", 256, "epoch", from_paper=True),
        Method("lightgbm", 1000),
        Method("catboost", 1000),
        Method("hist-gb", 1000),
        Method("logistic", 30, "strength"),
    )
}


def get_method(name: str) -> Method:
    """Return a method by its name, one of ``METHODS``.

    >>> get_method("mlp").max_steps
    256
    """
    if name not in METHODS:
        fail_choice("method", name, list(METHODS), "left out")
    return METHODS[name]
