"""How far somebody's data are from what the theory assumes: measured, and described."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refinecal.theory._sample_covariance import ZERO
from refinecal.theory._strengths import Choices
from refinecal.theory.estimate import EmpiricalSpectrum

Floats = NDArray[np.float64]

FEW_FEATURES = 20
FEW_ROWS = 200
BEYOND = 2  # times the rows that were seen: further on, 90 % intervals held 56 % instead of 80 % (simulated)
RARE = 0.1
HEAVY = 3  # excess kurtosis
SEPARABLE = 0.05  # nats: predictions of smaller losses were seen to fail
STEEP = 0.5  # exponent of the variance, from where on the signal is not called even
CHOSEN = "with few held-out rows, the noise of choosing C and of calibrating can eat the gain"


@dataclass(frozen=True)
class Assumption:
    """One thing that the theory takes for granted.

    Attributes
    ----------
    text : str
        What is assumed.
    evidence : str
        What was measured.
    doubt : str
        What was measured and why not to rely on it, in a sentence; empty if nothing speaks against it.
    serious : bool
        Whether predictions were seen to fail where there is this doubt, or have nothing to go by.
    measured : bool
        Whether it was looked at; what only training shows was not.
    """

    text: str
    evidence: str
    doubt: str = ""
    serious: bool = False
    measured: bool = True

    @property
    def mark(self) -> str:
        """A cross if it is doubtful, a tick if it holds, a question mark if nobody looked."""
        if self.doubt:
            return "✗"
        return "✓" if self.measured else "?"

    def __str__(self) -> str:
        return f"{self.mark} {self.text}: {self.doubt or self.evidence}"


def check_assumptions(
    X: Floats,
    labels: NDArray[np.int64],
    spectrum: EmpiricalSpectrum,
    choices: Choices,
    n_train: int,
) -> list[Assumption]:
    """Return what is assumed, and what the rows say about it."""
    return [
        _check_features(spectrum.n_features),
        _check_rows(n_train),
        _check_seen_rows(n_train, len(X)),
        _check_balance(float(labels.mean())),
        *_check_shapes(X, labels),
        _check_signal(spectrum),
        _check_overlap(choices.risk),
        _check_range(choices),
        _check_sizes(X, spectrum),
        Assumption(
            "a linear model is good enough",
            "the prediction is for logistic regression with an L2 penalty and an intercept; what curves or "
            "products of columns would add is not known",
            measured=False,
        ),
        Assumption("C is chosen exactly", CHOSEN, measured=False),
    ]


def _doubt(
    text: str, evidence: str, is_doubtful: bool, doubt: str, serious: bool = False
) -> Assumption:
    """Return an assumption that is in doubt, or not."""
    return Assumption(text, evidence, doubt if is_doubtful else "", serious and is_doubtful)


def _check_features(p: int) -> Assumption:
    doubt = (
        f"there {'is 1 feature' if p == 1 else f'are {p} features'}, and with fewer than {FEW_FEATURES} such "
        "predictions were further off on real tables than saying that nothing is gained"
    )
    evidence = f"{p} that do not follow from others"
    return _doubt("there are many features", evidence, p < FEW_FEATURES, doubt, serious=True)


def _check_rows(n: int) -> Assumption:
    doubt = f"with {n} training rows, one data set gains much more or less than the next"
    return _doubt("there are many training rows", f"{n}", n < FEW_ROWS, doubt)


def _check_seen_rows(n: int, seen: int) -> Assumption:
    doubt = (
        f"{n} rows to train on are {n / seen:.3g} times the {seen} that were looked at: what only more "
        "rows would show is extrapolated, and intervals are too narrow"
    )
    text = "not far more rows will be trained on than were seen"
    return _doubt(text, f"predicted from {seen} for {n}", n > BEYOND * seen, doubt)


def _check_overlap(risk: float) -> Assumption:
    doubt = (
        f"the classes hardly overlap (expected log loss {risk:.1g}): what is left depends on a few extreme "
        f"rows, and predictions of log losses below {SEPARABLE} were seen to fail"
    )
    evidence = f"expected log loss {risk:.3f}"
    return _doubt("the classes overlap", evidence, not risk > SEPARABLE, doubt, serious=True)


def _check_range(choices: Choices) -> Assumption:
    what = " and ".join({"risk": "loss"}.get(each, each) for each in choices.cut_off)
    doubt = (
        f"the best strength for {what} lies beyond those that were looked at, since columns differ too much "
        "in size: divide them by their standard deviation (standardize=True)"
    )
    text = "the best strengths are among those looked at"
    return _doubt(text, "they are", bool(choices.cut_off), doubt, serious=True)


def _check_sizes(X: Floats, spectrum: EmpiricalSpectrum) -> Assumption:
    spread = X.std(axis=0)
    lost = int((spread**2 < ZERO * spectrum.nodes[-1]).sum())
    doubt = (
        f"{lost} of {len(spread)} columns vary so little beside the others that nothing is seen of them: "
        "divide columns by their standard deviation (standardize=True)"
    )
    evidence = f"standard deviations from {spread.min():.2g} to {spread.max():.2g}"
    return _doubt("no column is too small to be seen", evidence, lost > 0, doubt, serious=True)


def _check_balance(prevalence: float) -> Assumption:
    smaller = min(prevalence, 1 - prevalence)
    doubt = f"only {smaller:.1%} of the rows are of one class: the theory is about balanced ones"
    evidence = f"the smaller one has {smaller:.0%} of the rows"
    return _doubt("the classes are about equally frequent", evidence, smaller < RARE, doubt)


def _measure_column(*groups: Floats) -> tuple[float, bool, float]:
    """Return the shape of a column within the classes: tails, whether it has two values, doublings.

    Tails are the excess kurtosis. Doublings say how often the variance in one class must be doubled to be
    that in the other; 10 if it is 0.
    """
    both = np.concatenate(groups)
    within = np.concatenate([group - group.mean() for group in groups])
    spread = np.sqrt(np.mean(within**2)) or 1.0
    variances = [float(group.var()) for group in groups]
    doublings = abs(np.log2(variances[1] / variances[0])) if min(variances) > 0 else 10.0
    return (
        float(np.mean((within / spread) ** 4)) - 3,
        bool(((both == both.min()) | (both == both.max())).all()),
        float(doublings) if max(variances) > 0 else 0.0,
    )


def _check_shapes(X: Floats, labels: NDArray[np.int64]) -> list[Assumption]:
    """Look at each column within each class."""
    one = labels == 1
    columns = [_measure_column(column[~one], column[one]) for column in X.T]
    tails, is_two_valued, doublings = np.array(columns).T
    heavy, two_values = np.mean(tails > HEAVY), np.mean(is_two_valued)
    factor = float(2 ** np.median(doublings))
    found = f"{heavy:.0%} have far more extreme values, {two_values:.0%} have two values only"
    return [
        _doubt(
            "columns look like bell curves within each class (Gaussian)",
            found,
            bool(heavy > 0.5 or two_values > 0.5),
            f"most columns are far from a bell curve: {found}",
        ),
        _doubt(
            "columns vary as much in one class as in the other",
            f"variances typically differ by a factor of {factor:.2f}",
            factor > 2,
            f"columns vary more in one class than in the other, typically by a factor of {factor:.2f}",
        ),
    ]


def _check_signal(spectrum: EmpiricalSpectrum) -> Assumption:
    found = spectrum.found
    assert found is not None, "estimated with labels"
    text = "the classes differ by more than noise"
    if not found.seen:
        return Assumption(
            text,
            f"by {max(found.strength, 0):.1f} standard errors",
            "no difference between the classes is seen above noise (below 2 standard errors of it)",
            serious=True,
        )
    if found.kind == "free":
        where = "in some directions far more than in others"
    elif abs(found.exponent) < STEEP:
        where = "about evenly in all directions"
    else:
        much = "much" if found.exponent > 0 else "little"
        where = f"more so in directions in which rows vary {much}"
    return Assumption(text, f"by {found.strength:.1f} standard errors of it, {where}")
