"""Is it worth it? Predict, before training, how much log loss choosing by refinement saves.

The spectrum and the signal are estimated from the rows (:mod:`refinecal.theory.estimate`). The theory of
logistic regression (section 7 of the paper) then gives the best penalty for loss, calibration and
refinement, and the log loss of each choice. No model is trained.
"""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from numbers import Real
from operator import attrgetter
from typing import Any

import numpy as np

from refinecal._core.checks import check_whole
from refinecal._core.format import number, percent, significant
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
SMALLEST = 5e-5  # of the log loss, which is shown as 0.01%

Ends = tuple[float, float]


def _chosen(name: str, doc: str) -> Any:
    """Return a property that is read from the choices."""
    return property(attrgetter(f"choices.{name}"), doc=doc)


def _C_of(name: str) -> Any:
    """Return a property with a λ in the terms of scikit-learn."""
    doc = f"``lam_{name}`` for scikit-learn: 1 / (lam n)."
    return property(lambda self: 1 / (getattr(self, f"lam_{name}") * self.n_rows), doc=doc)


@dataclass(frozen=True, repr=False)
class GainPrediction:
    """Predicted effect of choosing the penalty of logistic regression by refinement.

    Attributes
    ----------
    n_rows, n_features : int
        Number of training rows in question, and of directions in which rows vary.
    prevalence : float
        Frequency of the second of ``classes``.
    spectrum : EmpiricalSpectrum
        Eigenvalues of the covariance within classes, and the distribution of the signal over them.
    choices : Choices
        The λ chosen by loss, calibration and refinement, and their losses.
    intervals : dict of (float, float)
        Intervals for "gain", "gain_calibrated", "gain_affine", "log10_gap", "C_risk", "C_calibration",
        "C_refinement" and "bayes_error": a fraction ``level`` of the predictions from other rows of the same
        distribution would lie inside. Those of "C_risk" and "C_refinement" include values whose loss is up
        to 0.1% higher, since the best C is arbitrary where the loss hardly depends on it. The intervals
        cover the noise of the class means and of the covariance, and an uneven signal. They do not cover
        violated assumptions, the noise of choosing on few validation rows, or the difference between one
        training set and the mean over many. In 216 simulated data sets of 400 rows, 89% of the 90% intervals
        contained the true gain. If no difference between the classes is detected, they cover differences too
        small to detect, and an error rate of 1/2.
    assumptions : tuple of Assumption
        The assumptions of the theory, with what was measured.
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
        """Number of balanced rows that estimate the class means equally well."""
        return 4 * self.prevalence * (1 - self.prevalence) * self.n_rows

    @property
    def ratio(self) -> float:
        """Number of features per effective row."""
        return self.n_features / self.effective_rows

    @property
    def signal(self) -> float:
        """Norm of half the difference of the class means, corrected for noise."""
        assert self.spectrum.signal is not None, "estimated with labels"
        return self.spectrum.signal

    @property
    def bayes_error(self) -> float:
        """Error rate of the best linear classifier for balanced classes; NaN if no signal is detected."""
        return float(self.spectrum.bayes_error_of(self.signal)) if self.spectrum.seen else np.nan

    lam_risk = _chosen("lam_risk", "The λ with the smallest log loss.")
    lam_calibration = _chosen("lam_calibration", "The λ at which the model is calibrated.")
    lam_refinement = _chosen(
        "lam_refinement", "The λ with the smallest log loss after calibration."
    )
    C_risk, C_calibration, C_refinement = map(_C_of, ("risk", "calibration", "refinement"))
    log10_gap = _chosen("log10_gap", "log10 of ``lam_calibration / lam_refinement``.")
    at_bound_risk = _chosen("at_bound_risk", "Whether ``lam_risk`` is an end of the search range.")
    at_bound_calibration = _chosen("at_bound_calibration", "The same for ``lam_calibration``.")
    at_bound_refinement = _chosen(
        "at_bound_refinement",
        "The same for ``lam_refinement``: often if the loss hardly depends on it.",
    )
    gain = _chosen(
        "gain",
        "Fraction of the log loss saved by choosing by refinement, then temperature scaling.",
    )
    gain_calibrated = _chosen(
        "gain_calibrated", "The same, compared with choosing by loss, then temperature scaling."
    )
    gain_affine = _chosen(
        "gain_affine",
        "The same as ``gain`` if calibration has an intercept; it differs for unbalanced classes.",
    )
    loss_by_risk = _chosen("risk", "Expected log loss if chosen by loss.")
    loss_by_risk_calibrated = _chosen(
        "risk_calibrated", "Expected log loss if chosen by loss, then calibrated."
    )
    loss_by_refinement = _chosen(
        "refinement", "Expected log loss if chosen by refinement, then calibrated."
    )

    @property
    def doubts(self) -> tuple[str, ...]:
        """The assumptions that the data violate, in words."""
        return tuple(each.doubt for each in self.assumptions if each.doubt)

    @property
    def trust(self) -> str:
        """Reliability: "good", "fair" if assumptions are violated, or "poor" if a violation is serious."""
        if any(each.serious for each in self.assumptions):
            return "poor"
        return "fair" if self.doubts else "good"

    @property
    def sentence(self) -> str:
        """The prediction in words; if trust is poor, preceded by the reasons."""
        losses = (self.loss_by_refinement, self.loss_by_risk)
        reasons = [each.doubt for each in self.assumptions if each.serious]
        return describe_gain(self.gain, self.intervals["gain"], self.level, losses, reasons)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists, for JSON."""
        return {
            **{name: getattr(self, name) for name in NUMBERS},
            "classes": list(self.classes),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "assumptions": [asdict(each) for each in self.assumptions],
            "spectrum": self.spectrum.to_dict(),
        }

    def __repr__(self) -> str:
        best = "not determined" if isnan(self.bayes_error) else number(self.bayes_error, 3)
        width = f"{significant(100 * self.level, 6)}% interval"
        lines = [
            self.sentence,
            f"{'chosen by':<12}{'lam':>11}{'C':>11}{width:>22}{'log loss':>10}{'calibrated':>12}",
        ]
        for by, lam, C, (low, high), loss, calibrated in tabulate_choices(self):
            ends = "" if isnan(low) else f"{low:.2g} to {high:.2g}"
            before = "" if loss is None else f"{loss:#.4g}"
            lines.append(
                f"{by:<12}{lam:>11.3g}{C:>11.3g}{ends:>22}{before:>10}{calibrated:>#12.4g}"
            )
        lines.append(
            f"{self.n_features} features, {self.n_rows} rows, Bayes error {best}; trust: {self.trust}"
        )
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
    """Predict how much log loss choosing by refinement saves, for logistic regression on these rows.

    Parameters
    ----------
    X : array_like of shape (n, p)
        Training rows: numbers without missing values; categories one-hot.
    y : array_like of shape (n,)
        Labels of two classes.
    standardize : bool, default True
        Divide columns by their standard deviation, as ``StandardScaler`` does; λ is for these columns then.
    positive : label, optional
        Predict this class against all others.
    n_train : int, optional
        Number of rows to train on; by default those of ``X``. More than twice as many is extrapolation,
        which ``doubts`` reports.
    n_draws : int, default 60
        Number of simulations for the intervals; 0 for no intervals (NaN).
    level : float, default 0.9
        Coverage of the intervals.
    seed : int, default 0
        The same seed gives the same intervals.

    Returns
    -------
    GainPrediction

    Notes
    -----
    Assumes Gaussian classes of the same covariance, many rows and features, and L2 logistic regression with
    an intercept; ``assumptions`` shows how far that holds. If ``trust`` is "poor", predictions failed on
    similar data, or there is nothing to predict from. The prediction is the mean over training sets, for λ
    chosen exactly. With few validation rows, the noise of choosing and calibrating can cancel the gain. The
    accuracy on real tables is in ``benchmarks/results/predict-gain.md`` of the source repository.

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
    if n_train is not None:
        n_train = check_whole("n_train", n_train, 1, ", or None for the rows of X")
    n_draws = check_whole("n_draws", n_draws, 0, "; 0 for no intervals")
    seed = check_whole("seed", seed, 0)
    allowed = f"level is {level!r}: it must be a number between 0 and 1, such as 0.9"
    if not isinstance(level, Real):
        raise TypeError(allowed)
    if not 0 < (level := float(level)) < 1:
        raise ValueError(allowed)
    rows, labels, classes = check_rows(X, y, standardize=standardize, positive=positive)
    summary = Summary.of(rows, labels)
    spectrum = EmpiricalSpectrum.of(summary)
    prevalence, n = float(labels.mean()), n_train or summary.n_rows

    def predict(law: EmpiricalSpectrum) -> Choices:
        assert law.signal is not None, "estimated with labels"
        return choose(law, law.signal, n, law.n_features, prevalence)

    choices, rng = predict(spectrum), np.random.default_rng(seed)
    redrawn = (spectrum.redrawn(rng) for _ in range(n_draws))
    drawn = [_find_ends(law, predict(law), n) for law in redrawn]
    intervals = _make_intervals(_find_ends(spectrum, choices, n), drawn, level, spectrum.seen)
    assumptions = tuple(check_assumptions(rows, labels, spectrum, choices, n))
    about = n, summary.n_features, prevalence, classes
    return GainPrediction(*about, spectrum, choices, intervals, level, assumptions)


def _find_ends(spectrum: EmpiricalSpectrum, found: Choices, n: int) -> dict[str, Ends]:
    """Return the numbers that have an interval, each as the range of equally good values."""
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


def _make_intervals(
    own: dict[str, Ends], drawn: list[dict[str, Ends]], level: float, seen: bool
) -> dict[str, Ends]:
    """Return the range of predictions from other rows of the same law, widened to include this one."""
    if not drawn:
        return dict.fromkeys(own, (np.nan, np.nan))
    found = {}
    for name, (low, high) in own.items():
        lowest, highest = np.array([each[name] for each in drawn]).T
        ends = np.quantile(lowest, 0.5 - level / 2), np.quantile(highest, 0.5 + level / 2)
        found[name] = (float(min(ends[0], low)), float(max(ends[1], high)))
    if not seen:
        found["bayes_error"] = (found["bayes_error"][0], CHANCE)
    return found


# ---- text --------------------------------------------------------------------------------------------------

VERDICTS = {
    "unreliable": "The prediction is not reliable for these data: {why}. Theory predicts ",
    "yes": "Worthwhile: theory predicts ",
    "maybe": "Possibly worthwhile: theory predicts ",
    "hardly": "Hardly worthwhile: theory predicts ",
    "no": "Not worthwhile: theory predicts ",
}
EFFECTS = {
    "none": "no difference in four digits{interval} between choosing C by refinement, then calibrating, and "
    "choosing C by loss: log loss {usual} either way.",
    "less": "{size} less log loss{interval} from choosing C by refinement, then calibrating, than from "
    "choosing C by loss: {ours} instead of {usual}.",
}


def describe_gain(
    gain: float, ends: Ends, level: float, losses: tuple[float, float], reasons: Sequence[str]
) -> str:
    """Return the prediction in words.

    ``losses`` are those of choosing by refinement and by loss; ``reasons`` are those not to rely on it.
    """
    ours, usual = map(number, losses)
    effect = "none" if ours == usual else "less"
    low, high = (gain, gain) if isnan(ends[0]) else ends
    verdict = "yes" if low >= WORTHWHILE else "maybe" if high >= WORTHWHILE else "hardly"
    if verdict == "hardly" and effect == "none":
        verdict = "no"
    return (VERDICTS["unreliable" if reasons else verdict] + EFFECTS[effect]).format(
        why="; ".join(reasons),
        size=f"about {show_percent(gain)}" if gain >= SMALLEST else "less than 0.01%",
        interval=describe_interval(ends, level, " less" * (effect == "none")),
        ours=ours,
        usual=usual,
    )


def describe_interval(ends: Ends, level: float, more: str = "") -> str:
    """Return an interval of fractions in percent, in parentheses; empty if it is unknown.

    >>> describe_interval((0.00001, 0.002), 0.9)
    ' (90% interval: 0 to 0.2%)'
    """
    if isnan(ends[0]):
        return ""
    low, high = map(show_percent, ends)
    between = f"{low.rstrip('%')} to {high}" if ends[1] >= SMALLEST else "below 0.01%"
    return f" ({significant(100 * level, 6)}% interval: {between}{more})"


def tabulate_choices(
    found: GainPrediction,
) -> list[tuple[str, float, float, Ends, float | None, float]]:
    """Return a row for each choice: name, lam, C, interval of C, log loss before and after calibration."""
    usual = found.lam_risk, found.C_risk, found.intervals["C_risk"]
    ours = found.lam_refinement, found.C_refinement, found.intervals["C_refinement"]
    return [
        ("loss", *usual, found.loss_by_risk, found.loss_by_risk_calibrated),
        ("refinement", *ours, None, found.loss_by_refinement),
    ]


def show_percent(part: float) -> str:
    """Return a fraction in percent, with one decimal or two.

    >>> show_percent(0.0783), show_percent(0.0004), show_percent(1e-7)
    ('7.8%', '0.04%', '0%')
    """
    return "0%" if part < SMALLEST else percent(part, 1 if part >= 0.001 else 2)
