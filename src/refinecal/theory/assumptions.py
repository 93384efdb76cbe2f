"""How far a user's data are from what the theory assumes: measured, and described."""

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
BEYOND = 2  # times the rows of X: further on, 90% intervals covered 56% instead of 80% (simulated)
RARE = 0.1
HEAVY = 3  # excess kurtosis
SEPARABLE = 0.05  # nats: predictions of smaller losses failed
STEEP = 0.5  # exponent of the variance from which the signal is not called even
CHOSEN = "with few validation rows, the noise of choosing C and of calibrating can cancel the gain"
STANDARDIZE = "divide columns by their standard deviation (standardize=True)"


@dataclass(frozen=True)
class Assumption:
    """One assumption of the theory.

    Attributes
    ----------
    text : str
        What is assumed.
    evidence : str
        What was measured.
    doubt : str
        How the data violate the assumption, in words; empty if they do not.
    serious : bool
        Whether predictions failed on data that violate it, or have nothing to go by.
    measured : bool
        Whether it was checked; some assumptions cannot be checked before training.
    """

    text: str
    evidence: str
    doubt: str = ""
    serious: bool = False
    measured: bool = True

    @property
    def mark(self) -> str:
        """A cross if the data violate it, a tick if they do not, a question mark if it was not checked."""
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
    """Return the assumptions, and how far the rows meet them."""
    return [
        _check_features(spectrum.n_features),
        *_check_rows(n_train, len(X)),
        _check_balance(float(labels.mean())),
        *_check_shapes(X, labels),
        _check_signal(spectrum),
        _check_overlap(choices.risk),
        *_check_scales(X, spectrum, choices),
        Assumption(
            "a linear model is adequate",
            "the prediction is for logistic regression with an L2 penalty and an intercept; the effect of "
            "nonlinear terms or interactions is unknown",
            measured=False,
        ),
        Assumption("C is chosen exactly", CHOSEN, measured=False),
    ]


def _assume(
    text: str, evidence: str, is_violated: bool, doubt: str, serious: bool = False
) -> Assumption:
    """Return an assumption that is violated, or not."""
    return Assumption(text, evidence, doubt if is_violated else "", serious and is_violated)


def _check_features(p: int) -> Assumption:
    doubt = (
        f"there {'is 1 feature' if p == 1 else f'are {p} features'}; with fewer than {FEW_FEATURES}, such "
        "predictions were less accurate on real tables than predicting no gain"
    )
    evidence = f"{p} linearly independent features"
    return _assume("there are many features", evidence, p < FEW_FEATURES, doubt, serious=True)


def _check_rows(n: int, seen: int) -> list[Assumption]:
    extrapolation = (
        f"{n} training rows are {n / seen:.3g} times the {seen} rows of the data: effects that only more "
        "rows would show are extrapolated, and intervals are too narrow"
    )
    return [
        _assume(
            "there are many training rows",
            f"{n}",
            n < FEW_ROWS,
            f"with {n} training rows, the gain varies a lot from one data set to the next",
        ),
        _assume(
            "there are not many more training rows than rows in the data",
            f"predicted from {seen} for {n}",
            n > BEYOND * seen,
            extrapolation,
        ),
    ]


def _check_overlap(risk: float) -> Assumption:
    doubt = (
        f"the classes hardly overlap (expected log loss {risk:.1g}): the loss depends on a few extreme rows, "
        f"and predictions of log losses below {SEPARABLE} have failed"
    )
    evidence = f"expected log loss {risk:.3f}"
    return _assume("the classes overlap", evidence, not risk > SEPARABLE, doubt, serious=True)


def _check_scales(X: Floats, spectrum: EmpiricalSpectrum, choices: Choices) -> list[Assumption]:
    """Check that λ was searched widely enough, and that no column is negligible next to the others."""
    outside = " and ".join({"risk": "loss"}.get(each, each) for each in choices.cut_off)
    spread = X.std(axis=0)
    lost = int((spread**2 < ZERO * spectrum.nodes[-1]).sum())
    return [
        _assume(
            "the best λ lie in the search range",
            "they do",
            bool(choices.cut_off),
            f"the best λ for {outside} lies outside the search range, since columns differ in scale: "
            f"{STANDARDIZE}",
            serious=True,
        ),
        _assume(
            "no column is negligible in scale",
            f"standard deviations from {spread.min():.2g} to {spread.max():.2g}",
            lost > 0,
            f"{lost} of {len(spread)} columns vary too little compared with the others: {STANDARDIZE}",
            serious=True,
        ),
    ]


def _check_balance(prevalence: float) -> Assumption:
    smaller = min(prevalence, 1 - prevalence)
    doubt = f"only {smaller:.1%} of the rows are in one class: the theory is for balanced classes"
    evidence = f"the smaller class has {smaller:.0%} of the rows"
    return _assume("the classes are about equally frequent", evidence, smaller < RARE, doubt)


def _measure_column(*groups: Floats) -> tuple[float, bool, float]:
    """Return a column's excess kurtosis within classes, whether it is binary, and the gap of variances.

    The gap is the absolute log2 of the ratio of the two variances; 10 if one of them is 0.
    """
    both = np.concatenate(groups)
    within = np.concatenate([group - group.mean() for group in groups])
    spread = np.sqrt(np.mean(within**2)) or 1.0
    variances = [float(group.var()) for group in groups]
    gap = abs(np.log2(variances[1] / variances[0])) if min(variances) > 0 else 10.0
    return (
        float(np.mean((within / spread) ** 4)) - 3,
        bool(((both == both.min()) | (both == both.max())).all()),
        float(gap) if max(variances) > 0 else 0.0,
    )


def _check_shapes(X: Floats, labels: NDArray[np.int64]) -> list[Assumption]:
    """Check the distribution of each column within each class."""
    one = labels == 1
    columns = [_measure_column(column[~one], column[one]) for column in X.T]
    tails, is_binary, gaps = np.array(columns).T
    heavy, binary = np.mean(tails > HEAVY), np.mean(is_binary)
    factor = float(2 ** np.median(gaps))
    found = f"{heavy:.0%} have heavy tails, {binary:.0%} have only two values"
    return [
        _assume(
            "columns are Gaussian within each class",
            found,
            bool(heavy > 0.5 or binary > 0.5),
            f"most columns are far from Gaussian: {found}",
        ),
        _assume(
            "columns have the same variance in both classes",
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
            f"{max(found.strength, 0):.1f} times the standard error",
            "no difference between the classes is detected (less than twice the standard error)",
            serious=True,
        )
    if found.kind == "free":
        where = "in some directions far more than in others"
    elif abs(found.exponent) < STEEP:
        where = "about evenly in all directions"
    else:
        where = f"mostly in directions of {'large' if found.exponent > 0 else 'small'} variance"
    return Assumption(text, f"{found.strength:.1f} times the standard error, {where}")
