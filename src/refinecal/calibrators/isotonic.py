"""Isotonic regression: the best increasing map of a binary classifier's scores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._calibrator import Calibrator
from refinecal._sample import Sample

LARGEST = 1e300  # stands for an infinite score, which scikit-learn does not take


class IsotonicCalibration(Calibrator):
    r"""Calibrate two classes by the increasing step function with the smallest loss.

    The fit is scikit-learn's, on the log-odds; with Laplace smoothing,
    :math:`g(p) = \frac{n}{n+1} \mathrm{iso}(p) + \frac{1}{n+1} \frac12`, so that log loss stays finite.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth.

    Attributes
    ----------
    log_odds_, shares_ : ndarray
        The corners of the map: log-odds of class 1, and the share of class 1 there.

    References
    ----------
    Section 3 and appendix D of the paper.

    Examples
    --------
    >>> import refinecal as rc
    >>> iso = rc.make_calibrator("isotonic", laplace=False).fit([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1])
    >>> iso.predict_proba([0.2, 0.5, 0.8])[:, 1]
    array([0. , 0.5, 1. ])
    """

    def __init__(self, laplace: bool = True) -> None:
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """The number of its steps."""
        return len(np.unique(self.shares_))

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        from sklearn.isotonic import IsotonicRegression

        if sample.k != 2:
            raise ValueError(
                f"isotonic calibration is for 2 classes, found {sample.k}: use calibrator='temperature'"
            )
        shares = sample.labels if sample.soft is None else sample.soft[:, 1]
        regression = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        regression.fit(_log_odds(sample.logits), shares.astype(np.float64), sample.weights)
        self.log_odds_ = np.asarray(regression.X_thresholds_, dtype=np.float64)
        self.shares_ = np.asarray(regression.y_thresholds_, dtype=np.float64)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        share = np.interp(_log_odds(logits), self.log_odds_, self.shares_)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.stack([1 - share, share], axis=1)))


def _log_odds(logits: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        odds = logits[:, 1].astype(np.float64) - logits[:, 0].astype(np.float64)
    return np.clip(odds, -LARGEST, LARGEST)
