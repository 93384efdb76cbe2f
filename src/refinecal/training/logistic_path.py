r"""Logistic regression along a path of penalties, from strong to weak.

With rows on one scale, step s minimizes
:math:`\frac1n \sum_i \ell(z_i, y_i) + \frac{\lambda_s}{2} \|w\|^2` over weights w and intercepts, where
:math:`\lambda_s` falls from 100 to :math:`10^{-6}`. Strong penalties give underconfident
probabilities, which calibration corrects: so refinement may prefer them where the loss does not.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal.training.encoding import SCALINGS, Encoding
from refinecal.training.table_model import TableModel, check_params, read_npz, to_npz
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd

STRONGEST, WEAKEST = 1e2, 1e-6
# On the largest slope of the mean loss; 1e-4 changes the fourth digit of refinement
TOLERANCE = 1e-5
MOST_ITERATIONS = 300  # per strength, each starting from the one before
DENSE_CELLS = 20_000_000  # a larger matrix with categories is stored sparse

logger = logging.getLogger(__name__)


class LogisticModel(TableModel):
    """Multinomial logistic regression with an L2 penalty; a step is one strength of the penalty."""

    name = "logistic"
    step_name = "strength"
    default_steps = 30
    default_patience = None

    def __init__(
        self, encoding: Encoding, path: list[tuple[NDArray[np.float64], NDArray[np.float64]]]
    ) -> None:
        self.encoding = encoding
        self.path = path  # weights by output and column, intercepts by output
        self.n_classes = max(2, len(path[0][1]))
        self.n_features = len(encoding.is_category)
        self.n_steps = len(path)

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # of scikit-learn

        check_params("logistic", run.params, ["scaling"])
        scaling = run.params.get("scaling", "standard")
        if scaling not in SCALINGS:
            fail_choice("scaling", scaling, list(SCALINGS), "left out")
        encoding = Encoding.learn(run.rows.X, scaling)
        rows = encoding.numbers(run.val.X), encoding.positions(run.val.X)
        path: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []

        def steps() -> Iterator[NDArray[Any]]:
            for solution in _solutions(run, encoding):
                path.append(solution)
                yield _predict(*rows, *solution)

        with threadpool_limits(run.n_threads), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # _solutions logs it
            run.follow(steps())
        return cls(encoding, path)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        encoding = self.encoding
        return _predict(encoding.numbers(X), encoding.positions(X), *self.path[step - 1])

    def _to_bytes(self, step: int) -> bytes:
        weights, intercepts = self.path[step - 1]
        own = {"weights": weights, "intercepts": intercepts}
        return to_npz(self.encoding.to_arrays() | own)

    @classmethod
    def _load(cls, path: Path) -> Self:
        arrays = read_npz(path)
        return cls(Encoding.from_arrays(arrays), [(arrays["weights"], arrays["intercepts"])])


def _solutions(run: TrainingRun, encoding: Encoding) -> Any:
    """Yield weights and intercepts for each strength, each search starting from the last result."""
    from sklearn.linear_model import LogisticRegression

    matrix = _matrix(encoding.numbers(run.rows.X), encoding.positions(run.rows.X), encoding.n_codes)
    outputs = 1 if len(run.classes) == 2 else len(run.classes)
    if matrix.shape[1] == 0:  # no column varies: only class frequencies can be learned
        counts = np.bincount(run.rows.y, weights=run.rows.weights, minlength=len(run.classes))
        logs = np.log(np.maximum(counts, np.finfo(np.float64).tiny))
        shares = logs[1:] - logs[:1] if len(run.classes) == 2 else logs - logs.mean()
        yield np.zeros((outputs, 0)), shares
        return
    total = len(run.rows.y) if run.rows.weights is None else float(np.sum(run.rows.weights))
    model = LogisticRegression(tol=TOLERANCE, max_iter=MOST_ITERATIONS, warm_start=True)
    for strength in np.geomspace(STRONGEST, WEAKEST, run.max_steps):
        model.set_params(C=1 / (strength * total)).fit(
            matrix, run.rows.y, sample_weight=run.rows.weights
        )
        if model.n_iter_.max() >= MOST_ITERATIONS:
            logger.info("penalty %.3g: stopped after %d iterations", strength, MOST_ITERATIONS)
        yield model.coef_.copy(), model.intercept_.copy()


def _matrix(numbers: NDArray[Any], positions: NDArray[Any], n_codes: int) -> Any:
    """Return numbers and one-hot categories side by side."""
    from scipy import sparse

    n, columns = positions.shape
    if not columns:
        return numbers
    ones = np.ones(positions.size)
    starts = np.arange(n + 1) * columns
    one_hot = sparse.csr_matrix((ones, positions.ravel(), starts), shape=(n, n_codes + 1))
    one_hot = one_hot[:, :n_codes]  # without the column of those that have none
    if n * (numbers.shape[1] + n_codes) <= DENSE_CELLS:
        return np.concatenate([numbers, one_hot.toarray()], axis=1)
    return sparse.hstack([sparse.csr_matrix(numbers), one_hot], format="csr")


def _predict(
    numbers: NDArray[Any],
    positions: NDArray[Any],
    weights: NDArray[np.float64],
    intercepts: NDArray[np.float64],
) -> NDArray[np.float64]:
    n_numbers = numbers.shape[1]
    logits = numbers @ weights[:, :n_numbers].T + intercepts
    of_code = np.concatenate([weights[:, n_numbers:].T, np.zeros((1, len(weights)))])
    for column in positions.T:
        logits += of_code[column]
    return np.asarray(logits[:, 0] if len(intercepts) == 1 else logits)
