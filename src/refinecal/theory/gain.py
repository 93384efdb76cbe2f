"""Will it pay? What choosing by refinement would save of somebody's log loss, predicted before training.

The spectrum and the signal are estimated from the rows (:mod:`refinecal.theory.estimate`); the theory of
logistic regression (section 7 of the paper) then says which penalty is best for loss, calibration and
refinement, and what each choice costs. Nothing is trained.
"""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from numbers import Real
from typing import Any

import numpy as np

from refinecal._core.format import four_digits
from refinecal.theory._number_checks import check_whole
from refinecal.theory._sample_covariance import Summary
from refinecal.theory._strengths import Choices, choose
from refinecal.theory.assumptions import Assumption, check_assumptions
from refinecal.theory.estimate import EmpiricalSpectrum
from refinecal.theory.feature_rows import check_rows

NUMBERS = (
    *("n_rows", "n_features", "prevalence", "effective_rows", "ratio", "signal", "bayes_error"),
    *("lam_risk", "lam_calibration", "lam_refinement", "C_risk", "C_calibration", "C_refinement"),
    *("log10_gap", "gain", "gain_calibrated", "gain_affine"),
    *("loss_by_risk", "loss_by_risk_calibrated", "loss_by_refinement", "level"),
    *("at_bound_risk", "at_bound_calibration", "at_bound_refinement", "trust"),
)
UNCERTAIN = ("gain", "gain_calibrated", "gain_affine", "log10_gap")
CHANCE = 0.5  # error rate
WORTHWHILE = 0.01  # of the log loss
SMALLEST = 5e-5  # of the log loss, which is shown as 0.01 %

Ends = tuple[float, float]


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
        Of "gain", "gain_calibrated", "gain_affine", "log10_gap", "C_risk", "C_calibration", "C_refinement"
        and "bayes_error": where ``level`` of the predictions from other rows of the same law would lie. Those
        of "C_risk" and "C_refinement" hold what costs up to 0.1 % more, too: where hardly anything depends
        on C, the best is anywhere. They cover the noise of the class means and of the covariance, and that
        their difference may be uneven from direction to direction; but neither failing assumptions, nor the
        noise of a choice on few validation rows, nor how the gain of one training set differs from the mean
        over many. Of 216 simulated sets of 400 rows, 89 % of the 90 % intervals held the true gain. If no
        difference of the classes is seen, they hold what a difference too small to be seen would give, and
        an error rate of 1/2.
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
        """The error rate of the best linear classifier if both classes were equally frequent.

        NaN if no difference of the classes is seen above noise.
        """
        return float(self.spectrum.bayes_error_of(self.signal)) if self.spectrum.seen else np.nan

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
    def at_bound_risk(self) -> bool:
        """Whether ``lam_risk`` is an end of the range of strengths that were looked at."""
        return self.choices.at_bound_risk

    @property
    def at_bound_calibration(self) -> bool:
        """Whether ``lam_calibration`` is."""
        return self.choices.at_bound_calibration

    @property
    def at_bound_refinement(self) -> bool:
        """Whether ``lam_refinement`` is, as often where hardly anything depends on it."""
        return self.choices.at_bound_refinement

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
        if self._reasons:
            return "poor"
        return "fair" if self.doubts else "good"

    @property
    def _reasons(self) -> tuple[str, ...]:
        return tuple(each.doubt for each in self.assumptions if each.serious)

    @property
    def sentence(self) -> str:
        """The answer in words; where trust is poor, that it cannot be said, and why."""
        losses = (self.loss_by_refinement, self.loss_by_risk)
        return describe_gain(self.gain, self.intervals["gain"], self.level, losses, self._reasons)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, texts and lists, for JSON."""
        return {
            **{name: getattr(self, name) for name in NUMBERS},
            "classes": list(self.classes),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "assumptions": [asdict(each) for each in self.assumptions],
            "spectrum": self.spectrum.to_dict(),
        }

    def __repr__(self) -> str:
        best = "not determined" if np.isnan(self.bayes_error) else f"{self.bayes_error:.3f}"
        width = f"{100 * self.level:g} % interval"
        lines = [
            self.sentence,
            f"{'chosen by':<12}{'lam':>11}{'C':>11}{width:>22}{'log loss':>10}{'calibrated':>12}",
            *(
                f"{by:<12}{lam:>11}{C:>11}{ends:>22}{loss:>10}{calibrated:>12}"
                for by, lam, C, ends, loss, calibrated in tabulate_choices(self)
            ),
            f"{self.n_features} features, {self.n_rows} rows, Bayes error {best}; trust: {self.trust}",
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
        How many rows to train on, if not as many as ``X`` has. More than twice as many is extrapolation,
        which ``doubts`` says.
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
    an intercept; ``assumptions`` says how far that is so. Where ``trust`` is "poor", predictions were seen to
    fail, or there is nothing to predict from. What is predicted is the mean over training sets, with
    strengths taken as chosen exactly: with few held-out rows, the noise of choosing and of calibrating can
    eat the gain. How well that works is measured in ``benchmarks/results/predict-gain.md``.

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
    n_train, n_draws, level, seed = _check_options(n_train, n_draws, level, seed)
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
        tuple(check_assumptions(rows.X, rows.labels, spectrum, choices, n)),
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
) -> dict[str, Ends]:
    """Return where predictions from other rows of the same law would lie, widened to hold this one."""
    rng = np.random.default_rng(seed)
    own = _uncertain(spectrum, n, prevalence)
    drawn = [_uncertain(spectrum.redrawn(rng), n, prevalence) for _ in range(n_draws)]
    if not drawn:
        return dict.fromkeys(own, (np.nan, np.nan))  # nothing is known of how sure it is
    shares = [0.5 - level / 2, 0.5 + level / 2]
    if not spectrum.seen:
        own["bayes_error"] = (own["bayes_error"][0], CHANCE)
    found = {}
    for name, (low, high) in own.items():
        lowest, highest = np.array([each[name] for each in drawn]).T
        ends = (np.quantile(lowest, shares[0]), np.quantile(highest, shares[1]))
        found[name] = (float(min(ends[0], low)), float(max(ends[1], high)))
    return found


def _uncertain(spectrum: EmpiricalSpectrum, n: int, prevalence: float) -> dict[str, Ends]:
    """Return the numbers of which intervals are given: from where to where they are as good."""
    found = _choices(spectrum, n, prevalence)
    strengths = {
        "C_risk": found.as_good_for_risk,
        "C_calibration": (found.lam_calibration, found.lam_calibration),
        "C_refinement": found.as_good_for_refinement,
    }
    error = float(spectrum.bayes_error_of(spectrum.signal or 0.0))
    return {
        **{name: (getattr(found, name),) * 2 for name in UNCERTAIN},
        **{name: (1 / (high * n), 1 / (low * n)) for name, (low, high) in strengths.items()},
        "bayes_error": (error, error),
    }


def _check_options(
    n_train: Any, n_draws: Any, level: Any, seed: Any
) -> tuple[int | None, int, float, int]:
    def check(name: str, value: Any, least: int, meaning: str) -> int:
        allowed = f"it must be a whole number, {least} or more: {meaning}"
        return check_whole(name, value, least, allowed, allowed)

    if n_train is not None:
        meaning = "a number of rows, such as 1000, or None for those of X"
        n_train = check("n_train", n_train, 1, meaning)
    n_draws = check("n_draws", n_draws, 0, "how often to draw, such as 60, or 0 for no intervals")
    seed = check("seed", seed, 0, "any such number, such as 0")
    if not isinstance(level, Real):
        raise TypeError(f"level is {level!r}: it must be a number between 0 and 1, such as 0.9")
    if not 0 < float(level) < 1:
        raise ValueError(f"level is {level}: it must lie between 0 and 1, such as 0.9")
    return n_train, n_draws, float(level), seed


# ---- in words ----------------------------------------------------------------------------------------------


def describe_gain(
    gain: float, ends: Ends, level: float, losses: tuple[float, float], reasons: Sequence[str]
) -> str:
    """Return the answer; ``losses`` are by refinement and by loss, ``reasons`` why not to believe it."""
    ours, usual = map(four_digits, losses)
    if ours == usual:
        interval = describe_interval(ends, level, " less")
        guess = (
            f"no difference in four digits{interval} between choosing C by refinement, then calibrating, and "
            f"choosing it by loss: log loss {usual} either way"
        )
    else:
        much = f"about {show_percent(gain)} %" if gain >= SMALLEST else "less than 0.01 %"
        guess = (
            f"{much} less log loss{describe_interval(ends, level)} from choosing C by refinement, then "
            f"calibrating, than from choosing it by loss: {ours} instead of {usual}"
        )
    if reasons:
        why = "; ".join(reasons)
        return (
            f"For these data it cannot be said whether it pays: {why}. The theory's guess: {guess}."
        )
    low, high = (gain, gain) if isnan(ends[0]) else ends
    if low >= WORTHWHILE:
        verdict = "It pays"
    elif high >= WORTHWHILE:
        verdict = "It may pay"
    else:
        verdict = "It will not matter" if ours == usual else "It hardly pays"
    return f"{verdict}: expect {guess}."


def describe_interval(ends: Ends, level: float, more: str = "") -> str:
    """Return an interval of parts in brackets, or nothing if it is not known.

    >>> describe_interval((0.00001, 0.002), 0.9)
    ' (90 % interval: 0 to 0.2 %)'
    """
    if isnan(ends[0]):
        return ""
    low, high = map(show_percent, ends)
    between = "below 0.01 %" if high == "0" else f"{low} to {high} %"
    return f" ({100 * level:g} % interval: {between}{more})"


def tabulate_choices(found: GainPrediction) -> list[list[str]]:
    """Return a row for each choice: its name, lam, C, the interval of C, log loss as it is and calibrated."""
    risk = ["risk", four_digits(found.loss_by_risk), four_digits(found.loss_by_risk_calibrated)]
    rows = []
    for by, *losses in (risk, ["refinement", "", four_digits(found.loss_by_refinement)]):
        lam, C = getattr(found, f"lam_{by}"), getattr(found, f"C_{by}")
        low, high = found.intervals[f"C_{by}"]
        ends = "" if isnan(low) else f"{low:.2g} to {high:.2g}"
        rows.append([{"risk": "loss"}.get(by, by), f"{lam:.3g}", f"{C:.3g}", ends, *losses])
    return rows


def show_percent(part: float) -> str:
    """Return a part in percent, with one digit or two.

    >>> show_percent(0.0783), show_percent(0.0004), show_percent(1e-7)
    ('7.8', '0.04', '0')
    """
    if part < SMALLEST:
        return "0"
    value = 100 * part
    return f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"
