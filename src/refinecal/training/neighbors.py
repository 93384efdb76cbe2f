"""Nearest neighbors: the training rows most like a new one vote, closer ones more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal.training.encoding import SCALINGS, Encoding
from refinecal.training.predictions import logits_of_votes
from refinecal.training.table_model import TableModel, check_params, read_npz, to_npz
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # neighbors of each step
# Rows that can be neighbors: each validation row is compared with all of them, which takes about 10 ns each.
FEWEST_ROWS, MOST_ROWS, MOST_PAIRS = 1_000, 40_000, 100_000_000
LARGEST = 1e6  # of a number on its scale, so that distances stay finite
CHUNK = 256  # new rows that are compared at once
NEAR = (
    0.1  # of the usual distance of the nearest neighbor: all that are closer count about the same
)


class NeighborsModel(TableModel):
    """Nearest neighbors by Euclidean distance, in which two different categories are 1 apart.

    A step is a number of neighbors. Their votes are weighted by the inverse of their distance. No vote does
    not mean impossible, as in forests.
    """

    name = "knn"
    step_name = "size"
    default_steps = len(SIZES)
    default_patience = None

    def __init__(self, encoding: Encoding, known: dict[str, NDArray[Any]], n_steps: int) -> None:
        self.encoding, self.known, self.n_steps = encoding, known, n_steps
        self.n_features = len(encoding.is_category)
        self.n_classes = int(known["k"])
        self._seen: tuple[Any, dict[int, NDArray[Any]]] = None, {}  # validation rows, at every step

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        check_params(cls.name, run.params, ["scaling"])
        scaling = run.params.get("scaling", "quantile")
        if scaling not in SCALINGS:
            fail_choice("scaling", scaling, list(SCALINGS), "left out")
        encoding = Encoding.learn(run.rows.X, scaling)
        numbers, codes = _encode(encoding, run.rows.X)
        weights = np.ones(len(numbers)) if run.rows.weights is None else run.rows.weights
        most = np.clip(MOST_PAIRS // max(1, len(run.val.y)), FEWEST_ROWS, MOST_ROWS)
        order = np.random.default_rng(run.seed).permutation(np.flatnonzero(weights))[:most]
        known: dict[str, NDArray[Any]] = {
            "numbers": numbers[order],
            "codes": codes[order],
            "y": run.rows.y[order].astype(np.int32),
            "weights": weights[order].astype(np.float32),
            "k": np.array(len(run.classes)),
            "n_val": np.array(len(run.val.y)),
            "near": np.array(0.0),
        }
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # of scikit-learn

        model = cls(encoding, known, min(run.max_steps, len(SIZES)))
        some = order[: 4 * CHUNK]
        first = model._find(numbers[some], codes[some], 2)[1][:, 1]  # the nearest is the row itself
        known["near"] = np.array(max(NEAR * float(np.median(first)), 1e-6))

        def steps() -> Iterator[NDArray[Any]]:
            yield from model._logits_at(run.val.X, range(1, model.n_steps + 1)).values()

        with threadpool_limits(run.n_threads):
            run.follow(steps())
        model.n_steps = run.step
        return model

    def _find(
        self, numbers: NDArray[np.float32], codes: NDArray[np.int32], most: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the places of the nearest rows that are known, the nearest first, and their distances."""
        known, most = self.known, min(most, len(self.known["y"]))
        lengths = np.einsum("ij,ij->i", known["numbers"], known["numbers"])
        places = np.empty((len(numbers), most), dtype=np.int64)
        distances = np.empty((len(numbers), most), dtype=np.float32)
        for start in range(0, len(numbers), CHUNK):
            part = slice(start, start + CHUNK)
            found = lengths - 2 * (numbers[part] @ known["numbers"].T)
            found += np.einsum("ij,ij->i", numbers[part], numbers[part])[:, None]
            for own, others in zip(codes[part].T, known["codes"].T, strict=True):
                found += own[:, None] != others
            near = np.argpartition(found, most - 1, axis=1)[:, :most]
            squares = np.take_along_axis(found, near, axis=1)
            order = np.argsort(squares, axis=1, kind="stable")
            places[part] = np.take_along_axis(near, order, axis=1)
            distances[part] = np.sqrt(np.maximum(np.take_along_axis(squares, order, axis=1), 0))
        return places, distances

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        return self._logits_at(X, [step])[step]

    def _logits_at(self, X: pd.DataFrame, steps: Any) -> dict[int, NDArray[Any]]:
        known, k, n_val = self.known, self.n_classes, int(self.known["n_val"])
        if X is self._seen[0]:
            return {step: self._seen[1][step] for step in steps}
        places, distances = self._find(*_encode(self.encoding, X), SIZES[max(steps) - 1])
        votes = known["weights"][places] / (distances + float(known["near"]))
        labels, rows = known["y"][places], np.arange(len(places))[:, None]
        total, first, found = np.zeros((len(places), k)), 0, {}
        for step in steps:
            some = slice(first, SIZES[step - 1])
            np.add.at(total, (rows, labels[:, some]), votes[:, some])
            first, found[step] = SIZES[step - 1], logits_of_votes(total, n_val)
        if len(steps) == len(SIZES):
            self._seen = X, found
        return found

    def _to_bytes(self, step: int) -> bytes:
        own = {f"known.{name}": each for name, each in self.known.items()}
        return to_npz(self.encoding.to_arrays() | own | {"step": np.array(step)})

    @classmethod
    def _load(cls, path: Path) -> Self:
        arrays = read_npz(path)
        known = {
            name.removeprefix("known."): each
            for name, each in arrays.items()
            if name.startswith("known.")
        }
        return cls(Encoding.from_arrays(arrays), known, int(arrays["step"]))


def _encode(encoding: Encoding, X: pd.DataFrame) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    numbers = encoding.numbers(X).clip(-LARGEST, LARGEST)
    return numbers.astype(np.float32), encoding.positions(X).astype(np.int32)
