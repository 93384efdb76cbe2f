"""Two classes: a logistic curve in a few features of the log-odds."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample
from refinecal.calibrators._features import check_strength, gap_limit, log_odds
from refinecal.calibrators._logistic import fit_logistic
from refinecal.calibrators._newton import Advice
from refinecal.calibrators._two import log_shares
from refinecal.calibrators._two_classes import shares_of, two_classes
from refinecal.calibrators.base import Calibrator

if TYPE_CHECKING:
    from refinecal.calibrators._curves import Curve

LOG2 = float(np.log(2))
POWERS = [Advice(f"{name} scaling", "raise ridge, say to 1") for name in ("affine", "quadratic")]
BETA = Advice("beta calibration", "use parameters='am', or calibrator='affine' with ridge=1")


class AffineScaling(Calibrator):
    r"""Calibrate two classes by an intercept and a slope: Platt scaling of the log-odds x.

    The probability of class 1 is :math:`\sigma(a + b x)`, with the smallest mean log loss plus
    :math:`\frac{\rho}{n} (a^2 + (b - 1)^2)`. Unlike temperature scaling it can correct a wrong share of
    class 1.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.
    ridge : float, default 0
        The strength :math:`\rho`, which pulls towards the predictions as they are.

    Attributes
    ----------
    intercept_, slope_ : float
        a and b.
    limit_ : float
        Log-odds beyond this are cut: what a probability of 0 stands for.

    References
    ----------
    J. Platt, Probabilistic outputs for support vector machines, 1999.

    Examples
    --------
    Of the samples with log-odds 0, one in four is of class 1; of those with log-odds 1, three in four.
    So the log-odds should be -log(3) and log(3).

    >>> import refinecal as rc
    >>> affine = rc.make_calibrator("affine")
    >>> affine = affine.fit_logits([0.0] * 4 + [1.0] * 4, [0, 0, 0, 1, 0, 1, 1, 1])
    >>> print(round(affine.intercept_ / np.log(3), 6), round(affine.slope_ / np.log(3), 6))
    -1.0 2.0
    """

    intercept_: float
    slope_: float
    limit_: float

    def __init__(self, laplace: bool = True, ridge: float = 0.0) -> None:
        self.laplace = laplace
        self.ridge = ridge

    @property
    def n_parameters(self) -> int:
        """Two: intercept and slope."""
        return 2

    def _summary(self) -> str:
        return f"intercept_={self.intercept_:.4g}, slope_={self.slope_:.4g}"

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        sample = two_classes(sample, "affine scaling", "affine", "vector")
        self.limit_ = gap_limit(sample)
        self.intercept_, self.slope_ = _fit_powers(sample, self.limit_, 1, self.ridge)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        return log_shares(self.intercept_ + self.slope_ * log_odds(logits, self.limit_))

    def _curve(self) -> Curve:
        from refinecal.calibrators._curves import polynomial

        return polynomial(self.intercept_, self.slope_, limit=self.limit_)


class QuadraticScaling(Calibrator):
    r"""Calibrate two classes by a parabola in the log-odds x.

    The probability of class 1 is :math:`\sigma(a + b x + c x^2)`, with the smallest mean log loss plus
    :math:`\frac{\rho}{n} (a^2 + (b - 1)^2 + c^2)`. The curve treats confident predictions of the two
    classes differently; it need not increase.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.
    ridge : float, default 0
        The strength :math:`\rho`, which pulls towards the predictions as they are.

    Attributes
    ----------
    intercept_, slope_, curve_ : float
        a, b and c.
    limit_ : float
        Log-odds beyond this are cut: what a probability of 0 stands for.

    References
    ----------
    E. Berta, D. Holzmüller, M. Jordan, F. Bach, Structured matrix scaling, arXiv 2511.03685.

    Examples
    --------
    At log-odds -1 and 1, three samples in four are of class 1; at 0, one of two: a parabola can do that.

    >>> import refinecal as rc
    >>> logits = [-1.0] * 4 + [0.0] * 2 + [1.0] * 4
    >>> y = [0, 1, 1, 1, 0, 1, 0, 1, 1, 1]
    >>> quadratic = rc.make_calibrator("quadratic", laplace=False).fit_logits(logits, y)
    >>> quadratic.predict_proba_logits([-1.0, 0.0, 1.0])[:, 1].round(6)
    array([0.75, 0.5 , 0.75])
    """

    intercept_: float
    slope_: float
    curve_: float
    limit_: float

    def __init__(self, laplace: bool = True, ridge: float = 0.0) -> None:
        self.laplace = laplace
        self.ridge = ridge

    @property
    def n_parameters(self) -> int:
        """Three: intercept, slope and curve."""
        return 3

    def _summary(self) -> str:
        return (
            f"intercept_={self.intercept_:.4g}, slope_={self.slope_:.4g}, curve_={self.curve_:.4g}"
        )

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        sample = two_classes(sample, "quadratic scaling", "quadratic", "vector")
        self.limit_ = gap_limit(sample)
        found = _fit_powers(sample, self.limit_, 2, self.ridge)
        self.intercept_, self.slope_, self.curve_ = found

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        x = log_odds(logits, self.limit_)
        return log_shares(self.intercept_ + (self.slope_ + self.curve_ * x) * x)

    def _curve(self) -> Curve:
        from refinecal.calibrators._curves import polynomial

        return polynomial(self.intercept_, self.slope_, self.curve_, limit=self.limit_)


class BetaCalibration(Calibrator):
    r"""Calibrate two classes by the map that is right when scores follow a Beta law in each class.

    The probability of class 1 is :math:`\sigma(a \log p - b \log(1 - p) + c)` with :math:`a, b \ge 0`, so it
    never decreases. With a = b it is affine scaling; a = b = 1 and c = 0 change nothing.

    Parameters
    ----------
    parameters : {"abm", "ab", "am", "a"}, default "abm"
        What is free: "am" has a = b; "ab" and "a" leave 1/2 where it is, so c = (a - b) log 2.
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.

    Attributes
    ----------
    shape_a_, shape_b_, intercept_ : float
        a, b and c. The m of the letters is where the map is 1/2: :math:`c = b \log(1 - m) - a \log m`.
    limit_ : float
        Log-odds beyond this are cut: what a probability of 0 stands for.

    References
    ----------
    M. Kull, T. Silva Filho, P. Flach, Beta calibration, AISTATS 2017.

    Examples
    --------
    Always 80 % sure of class 1, and right half of the time: with "a" alone, only a = 0 says so.

    >>> import refinecal as rc
    >>> beta = rc.make_calibrator("beta", parameters="a").fit([0.8] * 4, [0, 1, 0, 1])
    >>> beta.predict_proba([0.9]).round(6)
    array([[0.5, 0.5]])
    """

    shape_a_: float
    shape_b_: float
    intercept_: float
    limit_: float

    def __init__(
        self, parameters: Literal["abm", "ab", "am", "a"] = "abm", laplace: bool = True
    ) -> None:
        self.parameters = parameters
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """One for each letter of ``parameters``."""
        return len(self.parameters)

    def _summary(self) -> str:
        return (
            f"shape_a_={self.shape_a_:.4g}, shape_b_={self.shape_b_:.4g}, "
            f"intercept_={self.intercept_:.4g}"
        )

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        if self.parameters not in ("abm", "ab", "am", "a"):
            fail_choice("parameters", self.parameters, ["abm", "ab", "am", "a"], "one of them")
        sample = two_classes(sample, "beta calibration", "beta", "vector")
        self.limit_ = gap_limit(sample)
        down, up = log_shares(log_odds(sample.logits, self.limit_)).T
        middle = 0.0 if self.parameters.endswith("m") else LOG2
        slopes = [up + middle, -down - middle]
        if "b" not in self.parameters:
            slopes = [slopes[0] + slopes[1]]
        found, intercept = _fit_rising(sample, slopes, self.parameters.endswith("m"))
        self.shape_a_, self.shape_b_ = found[0], found[-1]
        self.intercept_ = intercept + middle * (self.shape_a_ - self.shape_b_)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        down, up = log_shares(log_odds(logits, self.limit_)).T
        return log_shares(self.shape_a_ * up - self.shape_b_ * down + self.intercept_)

    def _curve(self) -> Curve:
        """Return log p as min(x, 0) and log(1 - p) as -max(x, 0), less what bends them at 0."""
        from refinecal.calibrators._curves import Curve

        a, b = self.shape_a_, self.shape_b_
        lines = np.array([[self.intercept_, a], [self.intercept_, b]])
        return Curve(np.zeros(1), lines, limit=self.limit_, bend=b - a)


def _fit_powers(sample: Sample, limit: float, degree: int, ridge: Any) -> list[float]:
    """Return the coefficients of 1, x, ..., x**degree; a ridge pulls them towards x itself."""
    strength = check_strength("ridge", ridge)
    x = log_odds(sample.logits, limit)
    features = np.stack([x**power for power in range(degree + 1)]).T
    found = fit_logistic(
        features,
        shares_of(sample),
        sample.weights,
        ridge=np.full(degree + 1, 2 * strength / sample.total),
        centre=np.eye(degree + 1)[1],
        advice=POWERS[degree - 1],
    )
    return [float(v) for v in found]


def _fit_rising(
    sample: Sample, slopes: list[NDArray[np.float64]], with_intercept: bool
) -> tuple[list[float], float]:
    """Return coefficients of at least 0 of increasing features, and the intercept.

    One that would be negative is 0. If both would be, either alone may still be positive: the better.
    """
    shares, n = shares_of(sample), len(slopes)

    def fit(kept: list[int]) -> tuple[list[float], float]:
        columns = [slopes[i] for i in kept] + [np.ones(sample.n)] * with_intercept
        if not columns:
            return [0.0] * n, 0.0
        found = fit_logistic(np.stack(columns).T, shares, sample.weights, advice=BETA)
        full = [0.0] * n
        for place, value in zip(kept, found, strict=False):
            full[place] = float(value)
        return full, float(found[-1]) if with_intercept else 0.0

    def loss(found: tuple[list[float], float]) -> float:
        odds = sum(
            (c * s for c, s in zip(found[0], slopes, strict=True)), np.full(sample.n, found[1])
        )
        logs = log_shares(odds)
        return -sample.mean(shares * logs[:, 1] + (1 - shares) * logs[:, 0])

    found = fit(list(range(n)))
    negative = [i for i, value in enumerate(found[0]) if value < 0]
    if not negative:
        return found
    trials = [fit([i for i in range(n) if i != gone]) for gone in negative]
    legal = [trial for trial in trials if min(trial[0]) >= 0]
    return min(legal, key=loss) if legal else fit([])
