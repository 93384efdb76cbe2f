"""What every calibrator shares: the four public methods, checks, smoothing, parameters, a readable repr."""

import inspect
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._checks import Sample, check_sample, check_scores, column_names, in_order


class Calibrator(ABC):
    """A map from probabilities to better ones, learned from labels.

    A subclass has ``laplace`` among its parameters and provides ``_fit_sample`` and ``_log_proba``.
    """

    laplace: bool
    classes_: NDArray[Any]
    n_samples_: float
    n_classes_: int

    @abstractmethod
    def _fit_sample(self, sample: Sample) -> Self:
        """Learn from checked data."""

    @abstractmethod
    def _log_proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        """Return the logarithms of the calibrated probabilities of checked logits."""

    def fit(
        self, probs: Any, y: Any, sample_weight: Any = None, *, classes: ArrayLike | None = None
    ) -> Self:
        """Learn from probabilities, ``(n, k)`` or ``(n,)`` for two classes, and labels."""
        return self.fit_sample(check_sample(y, probs, None, sample_weight, classes, "y"))

    def fit_logits(
        self, logits: Any, y: Any, sample_weight: Any = None, *, classes: ArrayLike | None = None
    ) -> Self:
        """Learn from logits, ``(n, k)`` or ``(n,)`` log-odds, and labels."""
        return self.fit_sample(check_sample(y, None, logits, sample_weight, classes, "y"))

    def fit_sample(self, sample: Sample) -> Self:
        """Learn from data that has passed the checks."""
        self._fit_sample(sample)
        return self._set_sample(sample)

    def _set_sample(self, sample: Sample) -> Self:
        self.n_samples_ = sample.total
        self.n_classes_ = sample.k
        self.classes_ = np.arange(sample.k) if sample.classes is None else sample.classes
        return self

    def predict_proba(self, probs: Any) -> NDArray[Any]:
        """Return calibrated probabilities, shape ``(n, k)``."""
        return np.asarray(np.exp(self.log_proba(self._check(probs, "probs"))))

    def predict_proba_logits(self, logits: Any) -> NDArray[Any]:
        """Return calibrated probabilities for logits, shape ``(n, k)``."""
        return np.asarray(np.exp(self.log_proba(self._check(logits, "logits"))))

    def log_proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        """Return the logarithms of the calibrated probabilities of checked logits."""
        logs = self._log_proba(logits)
        if not self.laplace:
            return logs
        n = self.n_samples_
        return np.asarray(
            np.logaddexp(
                logs + np.log(n / (n + 1)), -np.log((n + 1) * self.n_classes_), dtype=logs.dtype
            )
        )

    def _check(self, given: Any, name: str) -> NDArray[Any]:
        if not hasattr(self, "classes_"):
            raise ValueError(
                f"this {type(self).__name__} is not fitted yet: call fit or fit_logits first"
            )
        scores = in_order(check_scores(given, name), column_names(given), self.classes_.tolist())
        if scores.shape[1] != self.n_classes_:
            raise ValueError(
                f"{name} has {scores.shape[1]} columns, but the calibrator was fitted with {self.n_classes_}"
            )
        return scores

    # What sklearn.base.clone and set_params need, without importing scikit-learn.

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters of the constructor."""
        for name, value in params.items():
            if name not in self._parameter_names():
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}: it has {self._parameter_names()}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        learned = f" with beta_={self.beta_:.6g}" if hasattr(self, "beta_") else ""
        return f"{type(self).__name__}({given}){learned}"
