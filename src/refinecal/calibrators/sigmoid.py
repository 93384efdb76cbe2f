"""Binary calibrators: a sigmoid of a few features of the log-odds."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample, clipped_odds, gap_limit, log_rows_of_odds, shares_of
from refinecal.calibrators._newton import Advice, fit_logistic
from refinecal.calibrators._pairs import Curve
from refinecal.calibrators.base import Calibrator, Floats, check_two_classes
from refinecal.calibrators.scaling import PolynomialScaling

LOG2 = float(np.log(2))
BETA = Advice("beta calibration", "use parameters='am', or calibrator='affine' with ridge=1")


class QuadraticScaling(PolynomialScaling):
    r"""Calibrate two classes by a parabola in the log-odds x.

    The probability of class 1 is :math:`\sigma(a + b x + c x^2)`. Minimizes the mean log loss plus
    :math:`\frac{\rho}{n} (a^2 + (b - 1)^2 + c^2)`. The curve treats confident predictions of the two
    classes differently; it may decrease.

    Parameters
    ----------
    laplace, ridge
        As for :class:`AffineScaling`.

    Attributes
    ----------
    intercept_, slope_, curve_ : float
        a, b and c.
    limit_ : float
        As for :class:`AffineScaling`.

    References
    ----------
    E. Berta, D. Holzmüller, M. Jordan, F. Bach, Structured matrix scaling, arXiv 2511.03685.

    Examples
    --------
    At log-odds -1 and 1, three samples in four are of class 1; at 0, one in two.

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
    _kind, _main = "quadratic", ("intercept_", "slope_", "curve_")


class BetaCalibration(Calibrator):
    r"""Calibrate two classes by the map that is correct if scores follow a Beta distribution in each class.

    The probability of class 1 is :math:`\sigma(a \log p - b \log(1 - p) + c)` with :math:`a, b \ge 0`, so it
    never decreases. With a = b it is affine scaling; a = b = 1 and c = 0 change nothing.

    Parameters
    ----------
    parameters : {"abm", "ab", "am", "a"}, default "abm"
        The free parameters: "am" has a = b; "ab" and "a" keep 1/2 fixed, so c = (a - b) log 2.
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.

    Attributes
    ----------
    shape_a_, shape_b_, intercept_ : float
        a, b and c. The letter m is where the map is 1/2: :math:`c = b \log(1 - m) - a \log m`.
    limit_ : float
        As for :class:`AffineScaling`.

    References
    ----------
    M. Kull, T. Silva Filho, P. Flach, Beta calibration, AISTATS 2017.

    Examples
    --------
    A model that predicts 80% and is right half of the time: with "a" alone, the best a is 0.

    >>> import refinecal as rc
    >>> beta = rc.make_calibrator("beta", parameters="a").fit([0.8] * 4, [0, 1, 0, 1])
    >>> beta.predict_proba([0.9]).round(6)
    array([[0.5, 0.5]])
    """

    shape_a_: float
    shape_b_: float
    intercept_: float
    limit_: float
    _main = ("shape_a_", "shape_b_", "intercept_")

    def __init__(
        self, parameters: Literal["abm", "ab", "am", "a"] = "abm", laplace: bool = True
    ) -> None:
        self.parameters = parameters
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """One for each letter of ``parameters``."""
        return len(self.parameters)

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        if self.parameters not in ("abm", "ab", "am", "a"):
            fail_choice("parameters", self.parameters, ["abm", "ab", "am", "a"], "one of them")
        check_two_classes(sample, "beta calibration", "beta", "vector")
        self.limit_ = gap_limit(sample)
        down, up = log_rows_of_odds(clipped_odds(sample.logits, self.limit_)).T
        middle = 0.0 if self.parameters.endswith("m") else LOG2
        slopes = [up + middle, -down - middle]
        if "b" not in self.parameters:
            slopes = [slopes[0] + slopes[1]]
        *found, intercept = _fit_rising(sample, slopes, self.parameters.endswith("m")).tolist()
        self.shape_a_, self.shape_b_ = found[0], found[-1]
        self.intercept_ = intercept + middle * (self.shape_a_ - self.shape_b_)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        down, up = log_rows_of_odds(clipped_odds(logits, self.limit_)).T
        return log_rows_of_odds(self.shape_a_ * up - self.shape_b_ * down + self.intercept_)

    def _curve(self) -> Curve:
        """Return the curve with log p as min(x, 0) and log(1 - p) as -max(x, 0), plus their bend at 0."""
        a, b = self.shape_a_, self.shape_b_
        lines = np.array([[self.intercept_, a], [self.intercept_, b]])
        return Curve(np.zeros(1), lines, limit=self.limit_, bend=b - a)


def _fit_rising(sample: Sample, slopes: list[Floats], with_intercept: bool) -> Floats:
    """Return nonnegative coefficients of increasing features, and the intercept.

    A negative coefficient becomes 0. If both are negative, the better fit with one of them is used.
    """
    n, shares, features = len(slopes), shares_of(sample), [*slopes, np.ones(sample.n)]

    def fit(kept: Iterable[int]) -> Floats:
        places, found = [*kept, *[n] * with_intercept], np.zeros(n + 1)
        if places:
            found[places] = fit_logistic(sample, [features[i] for i in places], BETA)
        return found

    def loss(found: Floats) -> float:
        logs = log_rows_of_odds(found @ np.stack(features))
        return -sample.mean(shares * logs[:, 1] + (1 - shares) * logs[:, 0])

    found = fit(range(n))
    negative = np.flatnonzero(found[:n] < 0)
    if not negative.size:
        return found
    trials = [fit(i for i in range(n) if i != gone) for gone in negative]
    legal = [trial for trial in trials if trial[:n].min() >= 0]
    return min(legal, key=loss) if legal else fit([])
