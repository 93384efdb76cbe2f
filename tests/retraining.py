"""A new model with the parameters of another, trained for a known number of steps."""

import numpy as np

from refinecal.training.rows import Rows
from refinecal.training.trainer import new_model, retrain


def refit(estimator, X, y, n_steps, sample_weight=None, like=None):
    """Return a new model, trained for exactly this many steps."""
    return retrain(new_model(estimator), Rows(X, np.asarray(y), sample_weight), n_steps, like)
