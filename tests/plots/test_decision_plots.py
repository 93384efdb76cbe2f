"""Figures of decisions and importance: readable at both widths, in our colours."""

import numpy as np
import pytest
from pictures import SIZES, assert_in_palette, assert_readable, blank
from strategies import drawn

from refinecal.evaluation import evaluate_costs, permutation_importance
from refinecal.metrics import confusion_matrix, precision_recall_curve
from refinecal.plots import (
    ConfusionDisplay,
    CostDisplay,
    ImportanceDisplay,
    PrecisionRecallDisplay,
)

LONG = "a class with a name that is long"


def displays():
    """Yield each kind of display, small and large."""
    for k in (2, 12):
        y, logits = drawn(400, k)
        matrix = confusion_matrix(y, logits=logits, classes=range(k))
        yield ConfusionDisplay(matrix * 100, [f"{j} {LONG}" for j in range(k)])
        each = (precision_recall_curve(y, logits=logits, label=j) for j in range(min(k, 6)))
        yield PrecisionRecallDisplay(list(each))
    y, logits = drawn(400, 2)
    probs = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    for costs in ((1, 99), (1, 1), (99, 1)):
        yield CostDisplay(evaluate_costs(y, probs, costs, names=[f"no {LONG}", f"yes {LONG}"]))
    for d in (1, 25):
        X = np.random.default_rng(0).normal(size=(200, d))
        p = 1 / (1 + np.exp(-X.sum(axis=1)))
        y = np.random.default_rng(1).random(200) < p
        found = permutation_importance(
            lambda X: 1 / (1 + np.exp(-X.sum(axis=1))), X, y, n_repeats=1
        )
        yield ImportanceDisplay(found)


@pytest.mark.parametrize("size", SIZES)
def test_figures_can_be_read(size):
    for display in displays():
        drawing = display.plot(blank(size)).figure_
        if isinstance(display, ImportanceDisplay):
            drawing.set_figheight(1.4 + 0.26 * len(display.columns))
        assert_readable(drawing)
        assert_in_palette(drawing)
