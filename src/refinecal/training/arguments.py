"""What a scikit-learn user passes to ``fit``: checked as rows, the features left to the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from refinecal._core.checks import check_weights
from refinecal.training.predictions import show_label
from refinecal.training.rows import Rows


def check_rows(X: Any, y: Any, sample_weight: Any, groups: Any, suffix: str = "") -> Rows:
    """Return the arguments of ``fit`` as rows; X is left to the estimator."""
    if y is None:
        raise ValueError("this classifier requires y to be passed, but the target y is None")
    X, y, groups = indexable(check_table(X), y, groups)
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    weights = check_weights(sample_weight, len(y), f"X{suffix}")
    return Rows(X, y, weights, None if groups is None else np.asarray(groups))


def check_known(y_val: NDArray[Any], classes: NDArray[Any]) -> None:
    strange = np.setdiff1d(y_val, classes)
    if strange.size:
        raise ValueError(
            f"y_val holds {show_label(strange[0])}, which y does not: no model can learn it. Drop these rows."
        )


def check_frozen(known: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse a fitted model that knows a class of which there are no rows to calibrate by."""
    strange = np.setdiff1d(known, classes)
    if strange.size:
        raise ValueError(
            f"the frozen estimator knows the class {show_label(strange[0])}, but y has no row of it: pass "
            "rows of every class"
        )


def check_table(X: Any) -> Any:
    """Return features whose rows can be taken; what they may hold is the estimator's to say."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    if hasattr(X, "columns"):  # a DataFrame
        return X
    values = np.asarray(X)
    if values.dtype.kind in "OUT" and values.ndim != 2:  # texts, or rows of several lengths
        return X
    return check_array(values, dtype=None, ensure_all_finite=False)
