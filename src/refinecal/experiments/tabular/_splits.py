"""Training, validation and test rows: 64%, 16% and 20%, as in the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]

TEST, VALIDATION = 0.20, 0.16  # parts of the rows


def split(y: ArrayLike, number: int, seed: int = 0) -> tuple[Indices, Indices, Indices]:
    """Return the rows of split ``number`` to train, validate and test on: 64%, 16% and 20%, drawn at random.

    The same labels, number and seed give the same rows, for every method. Each class has a training row, if
    there are as many training rows as classes: where the draw left one out, one of its rows is exchanged with
    a training row of a class that has others.

    >>> train, val, test = split([0, 1] * 50, number=0)
    >>> len(train), len(val), len(test)
    (64, 16, 20)
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise TypeError(
            f"y has shape {labels.shape} and type {labels.dtype}: it must be integer labels"
        )
    if min(number, seed) < 0:
        raise ValueError(f"number is {number} and seed {seed}: neither may be negative")
    n = len(labels)
    n_test, n_val = round(TEST * n), round(VALIDATION * n)
    if n_val < 1:
        raise ValueError(f"y has {n} rows: too few to split in three")
    order = np.random.default_rng([seed, number]).permutation(n)
    n_train = n - n_test - n_val
    _bring_all_classes(labels, order, n_train)
    return order[:n_train], order[n_train : n_train + n_val], order[n_train + n_val :]


def _bring_all_classes(labels: NDArray[Any], order: Indices, n_train: int) -> None:
    """Exchange rows until the first ``n_train`` of the order have all classes, or no class to spare."""
    classes, codes = np.unique(labels, return_inverse=True)
    counts = np.bincount(codes[order[:n_train]], minlength=len(classes))
    for absent in np.flatnonzero(counts == 0):
        spare = np.flatnonzero(counts[codes[order[:n_train]]] > 1)
        if not spare.size:
            return
        here = spare[0]  # the order is random already
        there = n_train + np.flatnonzero(codes[order[n_train:]] == absent)[0]
        counts[codes[order[here]]] -= 1
        counts[absent] += 1
        order[[here, there]] = order[[there, here]]
