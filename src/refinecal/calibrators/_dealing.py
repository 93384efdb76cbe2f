"""Copies of equal rows, dealt to folds."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
COUNTABLE = 2.0**53  # copies that are dealt one by one


def at_random(copies: Floats, cv: int, seed: int = 0) -> Floats:
    """Return how many copies of each row, which has at least one, are in each fold, (n, cv).

    Dealt in turn, equal rows would be as many in each fold, and with them the share of a label at a score:
    what was learned in some folds would be true in the others by design, and overfitting could not show.
    """
    rng = np.random.default_rng(seed)
    dealt = np.minimum(copies, COUNTABLE)
    whole = np.floor(dealt)
    parts = rng.multinomial(whole.astype(np.int64), np.full(cv, 1 / cv)).astype(np.float64)
    parts[np.arange(len(copies)), rng.integers(cv, size=len(copies))] += dealt - whole
    return np.asarray(parts * (copies / dealt)[:, None])
