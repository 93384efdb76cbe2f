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
    linear = Assumption(
        "a linear model is adequate",
        "the prediction is for logistic regression with an L2 penalty and an intercept; the effect of "
        "nonlinear terms or interactions is unknown",
        measured=False,
    )
    return [
        *_check_size(n_train, len(X), spectrum.n_features),
        *_check_shapes(X, labels),
        _check_signal(spectrum),
        *_check_choices(X, spectrum, choices),
        linear,
        Assumption("C is chosen exactly", CHOSEN, measured=False),
    ]


def _assume(
    text: str, evidence: str, is_violated: bool, doubt: str, serious: bool = False
) -> Assumption:
    """Return an assumption that is violated, or not."""
    return Assumption(text, evidence, doubt if is_violated else "", serious and is_violated)


def _check_size(n: int, seen: int, p: int) -> list[Assumption]:
    """Check the numbers of features and of training rows."""
    few = (
        f"there {'is 1 feature' if p == 1 else f'are {p} features'}; with fewer than {FEW_FEATURES}, such "
        "predictions were less accurate on real tables than predicting no gain"
    )
    varies = f"with {n} training rows, the gain varies a lot from one data set to the next"
    extrapolated = (
        f"{n} training rows are {n / seen:.3g} times the {seen} rows of the data: effects that only more "
        "rows would show are extrapolated, and intervals are too narrow"
    )
    found = f"{p} linearly independent features"
    many = "there are not many more training rows than rows in the data"
    return [
        _assume("there are many features", found, p < FEW_FEATURES, few, serious=True),
        _assume("there are many training rows", f"{n}", n < FEW_ROWS, varies),
        _assume(many, f"predicted from {seen} for {n}", n > BEYOND * seen, extrapolated),
    ]


def _check_shapes(X: Floats, labels: NDArray[np.int64]) -> list[Assumption]:
    """Check the frequencies of the classes, and the distribution of each column within each class."""
    groups = [X[labels == k] for k in (0, 1)]
    smaller = min(map(len, groups)) / len(X)
    within = np.concatenate([group - group.mean(axis=0) for group in groups])
    lowest, highest = X.min(axis=0), X.max(axis=0)
    binary = float(np.mean(((lowest == X) | (highest == X)).all(axis=0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        within /= np.sqrt(np.mean(within**2, axis=0))
        heavy = float(np.mean(np.mean(within**4, axis=0) - 3 > HEAVY))
        gaps = np.abs(np.log2(groups[1].var(axis=0) / groups[0].var(axis=0)))
    factor = float(2 ** np.median(np.nan_to_num(gaps, posinf=10.0)))  # 0 / 0: both are constant
    rare = f"only {smaller:.1%} of the rows are in one class: the theory is for balanced classes"
    found = f"{heavy:.0%} have heavy tails, {binary:.0%} have only two values"
    far = f"most columns are far from Gaussian: {found}"
    unequal = (
        f"columns vary more in one class than in the other, typically by a factor of {factor:.2f}"
    )
    typical = f"variances typically differ by a factor of {factor:.2f}"
    frequency = f"the smaller class has {smaller:.0%} of the rows"
    gaussian = "columns are Gaussian within each class"
    same = "columns have the same variance in both classes"
    return [
        _assume("the classes are about equally frequent", frequency, smaller < RARE, rare),
        _assume(gaussian, found, heavy > 0.5 or binary > 0.5, far),
        _assume(same, typical, factor > 2, unequal),
    ]


def _check_choices(X: Floats, spectrum: EmpiricalSpectrum, choices: Choices) -> list[Assumption]:
    """Check that classes overlap, that λ was searched widely enough, and that no column is negligible."""
    risk, spread = choices.risk, X.std(axis=0)
    extreme = (
        f"the classes hardly overlap (expected log loss {risk:.1g}): the loss depends on a few extreme rows, "
        f"and predictions of log losses below {SEPARABLE} have failed"
    )
    outside = " and ".join({"risk": "loss"}.get(each, each) for each in choices.cut_off)
    beyond = (
        f"the best λ for {outside} lies outside the search range, since columns differ in scale: "
        f"{STANDARDIZE}"
    )
    lost = int((spread**2 < ZERO * spectrum.nodes[-1]).sum())
    negligible = (
        f"{lost} of {len(spread)} columns vary too little compared with the others: {STANDARDIZE}"
    )
    spreads = f"standard deviations from {spread.min():.2g} to {spread.max():.2g}"
    searched = "the best λ lie in the search range"
    overlap, evidence = "the classes overlap", f"expected log loss {risk:.3f}"
    return [
        _assume(overlap, evidence, not risk > SEPARABLE, extreme, serious=True),
        _assume(searched, "they do", bool(choices.cut_off), beyond, serious=True),
        _assume("no column is negligible in scale", spreads, lost > 0, negligible, serious=True),
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
