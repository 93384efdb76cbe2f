"""How far somebody's data are from what the theory assumes: measured, and said in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refinecal.theory._choices import Choices
from refinecal.theory._gain_words import CHOSEN
from refinecal.theory._summary import ZERO
from refinecal.theory.estimate import EmpiricalSpectrum

Floats = NDArray[np.float64]

FEW_FEATURES = 20
FEW_ROWS = 200
BEYOND = 2  # times the rows that were seen: further on, 90 % intervals held 56 % instead of 80 % (simulated)
RARE = 0.1
HEAVY = 3  # excess kurtosis
SEPARABLE = 0.05  # nats: predictions of smaller losses were seen to fail
STEEP = 0.5  # exponent of the variance, from where on the signal is not called even


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


def assumptions(
    X: Floats,
    labels: NDArray[np.int64],
    spectrum: EmpiricalSpectrum,
    choices: Choices,
    n_train: int,
) -> list[Assumption]:
    """Return what is assumed, and what the rows say about it."""
    return [
        _features(spectrum.n_features),
        _rows(n_train),
        _seen_rows(n_train, len(X)),
        _balance(float(labels.mean())),
        *_shape(X, labels),
        _signal(spectrum),
        _overlap(choices.risk),
        _range(choices),
        _sizes(X, spectrum),
        Assumption(
            "a linear model is good enough",
            "the prediction is for logistic regression with an L2 penalty and an intercept; what curves or "
            "products of columns would add is not known",
            measured=False,
        ),
        Assumption("C is chosen exactly", CHOSEN, measured=False),
    ]


def _features(p: int) -> Assumption:
    text, evidence = "there are many features", f"{p} that do not follow from others"
    if p >= FEW_FEATURES:
        return Assumption(text, evidence)
    doubt = (
        f"there {_are(p)}, and with fewer than {FEW_FEATURES} such predictions were further off on real "
        "tables than saying that nothing is gained"
    )
    return Assumption(text, evidence, doubt, serious=True)


def _are(p: int) -> str:
    return "is 1 feature" if p == 1 else f"are {p} features"


def _rows(n: int) -> Assumption:
    doubt = ""
    if n < FEW_ROWS:
        doubt = f"with {n} training rows, one data set gains much more or less than the next"
    return Assumption("there are many training rows", f"{n}", doubt)


def _seen_rows(n: int, seen: int) -> Assumption:
    doubt = ""
    if n > BEYOND * seen:
        doubt = (
            f"{n} rows to train on are {n / seen:.3g} times the {seen} that were looked at: what only more "
            "rows would show is extrapolated, and intervals are too narrow"
        )
    evidence = f"predicted from {seen} for {n}"
    return Assumption("not far more rows will be trained on than were seen", evidence, doubt)


def _overlap(risk: float) -> Assumption:
    text, evidence = "the classes overlap", f"expected log loss {risk:.3f}"
    if risk > SEPARABLE:
        return Assumption(text, evidence)
    doubt = (
        f"the classes hardly overlap (expected log loss {risk:.1g}): what is left depends on a few extreme "
        f"rows, and predictions of log losses below {SEPARABLE} were seen to fail"
    )
    return Assumption(text, evidence, doubt, serious=True)


def _range(choices: Choices) -> Assumption:
    text, evidence = "the best strengths are among those looked at", "they are"
    if not choices.cut_off:
        return Assumption(text, evidence)
    what = " and ".join(
        {"risk": "loss", "refinement": "refinement"}[each] for each in choices.cut_off
    )
    doubt = (
        f"the best strength for {what} lies beyond those that were looked at, since columns differ too much "
        "in size: divide them by their standard deviation (standardize=True)"
    )
    return Assumption(text, evidence, doubt, serious=True)


def _sizes(X: Floats, spectrum: EmpiricalSpectrum) -> Assumption:
    spread = X.std(axis=0)
    lost = int((spread**2 < ZERO * spectrum.nodes[-1]).sum())
    doubt = ""
    if lost:
        doubt = (
            f"{lost} of {len(spread)} columns vary so little beside the others that nothing is seen of them: "
            "divide columns by their standard deviation (standardize=True)"
        )
    evidence = f"standard deviations from {spread.min():.2g} to {spread.max():.2g}"
    return Assumption("no column is too small to be seen", evidence, doubt, serious=bool(doubt))


def _balance(prevalence: float) -> Assumption:
    smaller = min(prevalence, 1 - prevalence)
    doubt = ""
    if smaller < RARE:
        doubt = (
            f"only {smaller:.1%} of the rows are of one class: the theory is about balanced ones"
        )
    evidence = f"the smaller one has {smaller:.0%} of the rows"
    return Assumption("the classes are about equally frequent", evidence, doubt)


@dataclass(frozen=True)
class Column:
    """The shape of one column within the classes.

    Attributes
    ----------
    tails : float
        Excess kurtosis.
    two_values : bool
        Whether there are no more.
    doublings : float
        How often the variance in one class must be doubled to be that in the other; 10 if it is 0.
    """

    tails: float
    two_values: bool
    doublings: float

    @classmethod
    def of(cls, *groups: Floats) -> Column:
        """Look at the values in each class."""
        both = np.concatenate(groups)
        within = np.concatenate([group - group.mean() for group in groups])
        spread = np.sqrt(np.mean(within**2)) or 1.0
        variances = [float(group.var()) for group in groups]
        doublings = abs(np.log2(variances[1] / variances[0])) if min(variances) > 0 else 10.0
        return cls(
            float(np.mean((within / spread) ** 4)) - 3,
            bool(((both == both.min()) | (both == both.max())).all()),
            float(doublings) if max(variances) > 0 else 0.0,
        )


def _shape(X: Floats, labels: NDArray[np.int64]) -> list[Assumption]:
    """Look at each column within each class."""
    one = labels == 1
    columns = [Column.of(column[~one], column[one]) for column in X.T]
    two_values = np.mean([each.two_values for each in columns])
    heavy = np.mean([each.tails > HEAVY for each in columns])
    evidence = f"{heavy:.0%} have far more extreme values, {two_values:.0%} have two values only"
    bell = Assumption(
        "columns look like bell curves within each class (Gaussian)",
        evidence,
        f"most columns are far from a bell curve: {evidence}"
        if heavy > 0.5 or two_values > 0.5
        else "",
    )
    factor = float(2 ** np.median([each.doublings for each in columns]))
    equal = Assumption(
        "columns vary as much in one class as in the other",
        f"variances typically differ by a factor of {factor:.2f}",
        f"columns vary more in one class than in the other, typically by a factor of {factor:.2f}"
        if factor > 2
        else "",
    )
    return [bell, equal]


def _signal(spectrum: EmpiricalSpectrum) -> Assumption:
    found = spectrum.found
    assert found is not None, "estimated with labels"
    text = "the classes differ by more than noise"
    if not found.seen:
        doubt = (
            "no difference between the classes is seen above noise (below 2 standard errors of it)"
        )
        return Assumption(text, f"by {max(found.strength, 0):.1f} standard errors", doubt, True)
    if found.kind == "free":
        where = "in some directions far more than in others"
    elif abs(found.exponent) < STEEP:
        where = "about evenly in all directions"
    else:
        where = (
            f"more so in directions in which rows vary {'much' if found.exponent > 0 else 'little'}"
        )
    return Assumption(text, f"by {found.strength:.1f} standard errors of it, {where}")
