"""How far somebody's data are from what the theory assumes: measured, and said in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refinecal.theory._choices import Choices
from refinecal.theory.estimate import EmpiricalSpectrum

Floats = NDArray[np.float64]

MOST_ROWS = 20_000  # are looked at for the shape of columns
FEW_FEATURES = 20
FEW_ROWS = 200
SEPARABLE = 0.05  # nats: predictions of smaller losses were seen to fail


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
        Why not to rely on it; empty if nothing speaks against it.
    serious : bool
        Whether predictions were seen to fail where there is this doubt.
    """

    text: str
    evidence: str
    doubt: str = ""
    serious: bool = False

    def __str__(self) -> str:
        return f"{self.text}: {self.evidence}"


def assumptions(
    X: Floats, labels: NDArray[np.int64], spectrum: EmpiricalSpectrum, choices: Choices
) -> list[Assumption]:
    """Return what is assumed, and what the rows say about it."""
    return [
        _size(len(X), spectrum.n_features),
        _balance(float(labels.mean()), len(X)),
        *_shape(X[:MOST_ROWS], labels[:MOST_ROWS]),
        _signal(spectrum),
        _overlap(choices.risk),
        Assumption(
            "the model is linear",
            "logistic regression with an L2 penalty and an intercept; log-odds that bend are not modelled",
        ),
    ]


def _size(n: int, p: int) -> Assumption:
    text = "rows and features are many"
    evidence = f"{n} rows, {p} features that vary independently"
    if p < FEW_FEATURES:
        many = f"with {p} features the limit of many is far"
        return Assumption(text, evidence, many, serious=True)
    few = f"with {n} rows single data sets differ much from their mean" if n < FEW_ROWS else ""
    return Assumption(text, evidence, few)


def _overlap(risk: float) -> Assumption:
    text, evidence = "classes overlap", f"expected log loss {risk:.3f}"
    if risk > SEPARABLE:
        return Assumption(text, evidence)
    doubt = "so small a loss depends on tails, which are not Gaussian in practice"
    return Assumption(text, evidence, doubt, serious=True)


def _balance(prevalence: float, n: int) -> Assumption:
    smaller = min(prevalence, 1 - prevalence)
    worth = 4 * prevalence * (1 - prevalence) * n
    evidence = (
        f"the smaller class has {smaller:.0%} of the rows; they count as {worth:.0f} balanced ones"
    )
    doubt = ""
    if smaller < 0.1:
        doubt = (
            f"only {smaller:.1%} of the rows are of one class: the theory is about balanced ones"
        )
    return Assumption("classes are equally frequent", evidence, doubt)


def _shape(X: Floats, labels: NDArray[np.int64]) -> list[Assumption]:
    """Look at each column within each class."""
    groups = [X[labels == k] for k in (0, 1)]
    within = np.concatenate([group - group.mean(axis=0) for group in groups])
    spread = np.sqrt((within**2).mean(axis=0))
    tails = ((within / np.where(spread > 0, spread, 1)) ** 4).mean(axis=0) - 3
    two_values = np.mean([len(np.unique(column[:1000])) <= 2 for column in X.T])
    typical, heavy = float(np.median(tails)), float(np.mean(tails > 3))
    gaussian = Assumption(
        "classes are Gaussian",
        f"excess kurtosis {typical:.1f} in the median column (0 if Gaussian), above 3 in {heavy:.0%}; "
        f"{two_values:.0%} have two values only",
        "most columns are far from Gaussian" if heavy > 0.5 or two_values > 0.5 else "",
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log2(groups[1].var(axis=0) / groups[0].var(axis=0))
    factor = float(2 ** np.median(np.abs(np.nan_to_num(logs, posinf=10, neginf=-10))))
    equal = Assumption(
        "both classes have the same covariance",
        f"variances differ by a factor of {factor:.2f} in the median column",
        "the classes have different variances" if factor > 2 else "",
    )
    return [gaussian, equal]


def _signal(spectrum: EmpiricalSpectrum) -> Assumption:
    found = spectrum.found
    assert found is not None, "estimated with labels"
    text = "the signal is seen"
    evidence = f"{found.strength:.1f} standard errors above noise; "
    if found.kind == "power":
        evidence += f"directions of larger variance have it with the power {found.exponent:.1f}"
    else:
        evidence += "it follows no power of the variance"
    doubt = ""
    if found.strength < 2:
        doubt = "no difference between the classes is seen above noise"
    return Assumption(text, evidence, doubt)
