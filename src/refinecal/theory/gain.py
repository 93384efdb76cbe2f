"""Will it pay? What choosing by refinement would save of somebody's log loss, predicted before training.

The spectrum and the signal are estimated from the rows (:mod:`refinecal.theory.estimate`); the theory of
logistic regression (section 7 of the paper) then says which penalty is best for loss, calibration and
refinement, and what each choice costs. Nothing is trained.
"""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass
from typing import Any

import numpy as np

from refinecal.theory._choices import Choices, choose
from refinecal.theory._doubts import Assumption, assumptions
from refinecal.theory._rows import check_rows
from refinecal.theory._summary import Summary
from refinecal.theory.estimate import EmpiricalSpectrum

NUMBERS = (
    *("n_rows", "n_features", "prevalence", "effective_rows", "ratio", "signal", "bayes_error"),
    *("lam_risk", "lam_calibration", "lam_refinement", "C_risk", "C_calibration", "C_refinement"),
    *(
        "log10_gap",
        "gain",
        "gain_calibrated",
        "gain_affine",
        "loss_by_risk",
        "loss_by_risk_calibrated",
    ),
    *("loss_by_refinement", "level", "at_bound", "trust"),
)
WORTHWHILE = 0.01  # of the log loss
UNCERTAIN = ("gain", "gain_calibrated", "gain_affine", "log10_gap")


@dataclass(frozen=True, repr=False)
class GainPrediction:
    """What is expected of choosing the penalty of logistic regression by refinement.

    Attributes
    ----------
    n_rows, n_features : int
        Training rows that were asked about, and directions in which rows vary.
    prevalence : float
        How frequent the second of ``classes`` is.
    spectrum : EmpiricalSpectrum
        Eigenvalues of the covariance within classes, and how the signal is spread over them.
    choices : Choices
        Strengths chosen by loss, calibration and refinement, and what they cost.
    intervals : dict of (float, float)
        Of "gain", "gain_calibrated", "gain_affine", "log10_gap" and "bayes_error": where ``level`` of the
        predictions from other rows of the same law would lie. They cover the noise of the class means and
        of the covariance, but neither failing assumptions, nor the noise of a choice on few validation rows,
        nor how the gain of one training set differs from the mean over many.
    assumptions : tuple of Assumption
        What the theory takes for granted, with what was measured.
    """

    n_rows: int
    n_features: int
    prevalence: float
    classes: tuple[Any, ...]
    spectrum: EmpiricalSpectrum
    choices: Choices
    intervals: dict[str, tuple[float, float]]
    level: float
    assumptions: tuple[Assumption, ...]

    @property
    def effective_rows(self) -> float:
        """The number of balanced rows that know as much of the class means."""
        return 4 * self.prevalence * (1 - self.prevalence) * self.n_rows

    @property
    def ratio(self) -> float:
        """Features for each effective row."""
        return self.n_features / self.effective_rows

    @property
    def signal(self) -> float:
        """The length of half the difference of the class means, freed from noise."""
        assert self.spectrum.signal is not None, "estimated with labels"
        return self.spectrum.signal

    @property
    def bayes_error(self) -> float:
        """The error rate of the best linear classifier if both classes were equally frequent."""
        return float(self.spectrum.bayes_error_of(self.signal))

    @property
    def lam_risk(self) -> float:
        """The strength with the smallest log loss."""
        return self.choices.lam_risk

    @property
    def lam_calibration(self) -> float:
        """The strength at which the model is calibrated."""
        return self.choices.lam_calibration

    @property
    def lam_refinement(self) -> float:
        """The strength with the smallest log loss after calibration."""
        return self.choices.lam_refinement

    @property
    def C_risk(self) -> float:
        """``lam_risk`` for scikit-learn: 1 / (lam n)."""
        return 1 / (self.lam_risk * self.n_rows)

    @property
    def C_calibration(self) -> float:
        """``lam_calibration`` for scikit-learn."""
        return 1 / (self.lam_calibration * self.n_rows)

    @property
    def C_refinement(self) -> float:
        """``lam_refinement`` for scikit-learn."""
        return 1 / (self.lam_refinement * self.n_rows)

    @property
    def log10_gap(self) -> float:
        """Decades from ``lam_refinement`` up to ``lam_calibration``."""
        return self.choices.log10_gap

    @property
    def at_bound(self) -> bool:
        """Whether refinement still falls at the end of the range of strengths."""
        return self.choices.at_bound

    @property
    def gain(self) -> float:
        """The part of the log loss saved by choosing by refinement, then scaling the temperature."""
        return self.choices.gain

    @property
    def gain_calibrated(self) -> float:
        """The same where what is chosen by loss is calibrated as well."""
        return self.choices.gain_calibrated

    @property
    def gain_affine(self) -> float:
        """The same as ``gain`` if calibration has an intercept; another number if classes are unequal."""
        return self.choices.gain_affine

    @property
    def loss_by_risk(self) -> float:
        """Expected log loss if chosen by loss."""
        return self.choices.risk

    @property
    def loss_by_risk_calibrated(self) -> float:
        """Expected log loss if chosen by loss, then calibrated."""
        return self.choices.risk_calibrated

    @property
    def loss_by_refinement(self) -> float:
        """Expected log loss if chosen by refinement, then calibrated."""
        return self.choices.refinement

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against relying on the prediction."""
        return tuple(each.doubt for each in self.assumptions if each.doubt)

    @property
    def trust(self) -> str:
        """How far to rely on it: "good", "fair" if there are doubts, or "poor" if one is serious."""
        if any(each.serious for each in self.assumptions):
            return "poor"
        return "fair" if self.doubts else "good"

    @property
    def _verdict(self) -> str:
        low, high = self.intervals["gain"]
        if np.isnan(low):
            low = high = self.gain
        if low >= WORTHWHILE:
            return "It pays"
        return "It hardly pays" if high < WORTHWHILE else "It may pay"

    @property
    def sentence(self) -> str:
        """The answer in words."""
        low, high = self.intervals["gain"]
        between = "" if np.isnan(low) else f" ({_percent(low)} to {_percent(high)} %)"
        return (
            f"{self._verdict}: expect about {_percent(self.gain)} %{between} less log loss from choosing C "
            "by refinement, then calibrating, than from choosing it by loss: "
            f"{self.loss_by_refinement:.4f} instead of {self.loss_by_risk:.4f}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, texts and lists, for JSON."""
        return {
            **{name: getattr(self, name) for name in NUMBERS},
            "classes": list(self.classes),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "assumptions": [
                {
                    "text": each.text,
                    "evidence": each.evidence,
                    "doubt": each.doubt,
                    "serious": each.serious,
                }
                for each in self.assumptions
            ],
            "spectrum": self.spectrum.to_dict(),
        }

    def __repr__(self) -> str:
        lines = [
            self.sentence,
            f"{'chosen by':<14}{'lam':>11}{'C':>11}{'log loss':>10}{'calibrated':>12}",
            _line(
                "loss", self.lam_risk, self.C_risk, self.loss_by_risk, self.loss_by_risk_calibrated
            ),
            _line(
                "refinement", self.lam_refinement, self.C_refinement, None, self.loss_by_refinement
            ),
            f"{self.n_features} features, {self.n_rows} rows, Bayes error {self.bayes_error:.3f}; "
            f"trust: {self.trust}",
        ]
        return "\n".join([*lines, *(f"- {doubt}" for doubt in self.doubts)])


def predict_gain(
    X: Any,
    y: Any,
    *,
    standardize: bool = True,
    positive: Any = None,
    n_train: int | None = None,
    n_draws: int = 60,
    level: float = 0.9,
    seed: int = 0,
) -> GainPrediction:
    """Predict what choosing by refinement would save, for logistic regression on these rows.

    Parameters
    ----------
    X : array_like of shape (n, p)
        Training rows: numbers, none missing; categories one-hot.
    y : array_like of shape (n,)
        Their labels, of two classes.
    standardize : bool, default True
        Whether columns are to be divided by their standard deviation, as ``StandardScaler`` does; strengths
        are for such columns then.
    positive : label, optional
        Sets this class against all others.
    n_train : int, optional
        How many rows to train on, if not as many as ``X`` has.
    n_draws : int, default 60
        How often the measured values are drawn again for the intervals; 0 gives none (NaN).
    level : float, default 0.9
        What part of the draws an interval holds.
    seed : int, default 0
        The same seed gives the same intervals.

    Returns
    -------
    GainPrediction

    Notes
    -----
    Assumes Gaussian classes of the same covariance, many rows and features, and L2 logistic regression with
    an intercept; ``assumptions`` says how far that is so. What is predicted is the mean over training sets,
    with strengths chosen exactly rather than on a few validation rows. How well that works is measured in
    ``benchmarks/results/predict-gain.md``.

    Examples
    --------
    >>> from refinecal.theory import predict_gain
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(400) % 2
    >>> X = rng.normal(size=(400, 200)) * np.linspace(0.1, 1, 200) + 0.06 * (2 * y[:, None] - 1)
    >>> found = predict_gain(X, y, standardize=False)
    >>> found.gain > 0, found.n_features, found.ratio
    (True, 200, 0.5)
    """
    _check_options(n_train, n_draws, level)
    rows = check_rows(X, y, standardize=standardize, positive=positive)
    summary = Summary.of(rows.X, rows.labels)
    spectrum = EmpiricalSpectrum.of(summary)
    prevalence, n = float(rows.labels.mean()), n_train or summary.n_rows
    choices = _choices(spectrum, n, prevalence)
    return GainPrediction(
        n,
        summary.n_features,
        prevalence,
        rows.classes,
        spectrum,
        choices,
        _intervals(spectrum, n, prevalence, n_draws, level, seed),
        level,
        tuple(assumptions(rows.X, rows.labels, spectrum, choices)),
    )


def _choices(spectrum: EmpiricalSpectrum, n: int, prevalence: float) -> Choices:
    assert spectrum.signal is not None, "estimated with labels"
    return choose(spectrum, spectrum.signal, n, spectrum.n_features, prevalence)


def _intervals(
    spectrum: EmpiricalSpectrum,
    n: int,
    prevalence: float,
    n_draws: int,
    level: float,
    seed: int,
) -> dict[str, tuple[float, float]]:
    """Return where predictions from other rows of the same law would lie, widened to hold this one."""
    rng = np.random.default_rng(seed)
    own = _uncertain(spectrum, n, prevalence)
    drawn = [_uncertain(spectrum.redrawn(rng), n, prevalence) for _ in range(n_draws)]
    if not drawn:
        return dict.fromkeys(own, (np.nan, np.nan))
    shares = [0.5 - level / 2, 0.5 + level / 2]
    ends = {name: np.quantile([each[name] for each in drawn], shares) for name in own}
    return {
        name: (float(min(low, own[name])), float(max(high, own[name])))
        for name, (low, high) in ends.items()
    }


def _uncertain(spectrum: EmpiricalSpectrum, n: int, prevalence: float) -> dict[str, float]:
    """Return the numbers of which intervals are given."""
    found = _choices(spectrum, n, prevalence)
    error = float(spectrum.bayes_error_of(spectrum.signal or 0.0))
    return {**{name: getattr(found, name) for name in UNCERTAIN}, "bayes_error": error}


def _check_options(n_train: int | None, n_draws: int, level: float) -> None:
    if n_train is not None and n_train < 1:
        raise ValueError(f"n_train is {n_train}: it must be a number of rows, 1 or more")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}: it must lie between 0 and 1, such as 0.9")
    if n_draws < 0:
        raise ValueError(f"n_draws is {n_draws}: it must be 0 or more")


def _percent(part: float) -> str:
    value = 100 * part
    return f"{value:.1f}" if abs(value) >= 0.1 else f"{value:.2f}"


def _line(name: str, lam: float, C: float, loss: float | None, calibrated: float) -> str:
    shown = "" if loss is None else f"{loss:.4f}"
    return f"{name:<14}{lam:>11.3g}{C:>11.3g}{shown:>10}{calibrated:>12.4f}"
