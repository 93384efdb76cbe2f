"""Section 7 of the paper as an experiment: how much to regularize logistic regression on Gaussian data.

Strengths are chosen on validation rows and evaluated on test rows, as in practice, next to what
:mod:`refinecal.theory` predicts.
"""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refinecal.decomposition import Decomposition, decompose
from refinecal.theory.asymptotics import Solution
from refinecal.theory.curves import Minimisers, minimise, path
from refinecal.theory.model import GaussianModel
from refinecal.theory.spectrum import BetaSpectrum, Spectrum

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LAMBDAS = np.logspace(-3, 2, 16)
N_EVALUATED = 5000  # rows to validate, and as many to test
POINTS = 151  # of theory's curves
NAMES = ("risk", "calibration", "refinement")


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of the data: the decomposition at every strength, and three test losses."""

    steps: list[Decomposition]  # on validation rows, one for each strength
    # on test rows: chosen by loss; the same, calibrated; chosen by refinement, calibrated
    losses: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Several draws, averaged."""

    lams: NDArray[np.float64]  # regularization strengths
    curves: dict[
        str, NDArray[np.float64]
    ]  # mean risk, calibration and refinement, on validation rows
    losses: NDArray[np.float64]  # (draws, 3) test losses, as in Draw
    theory: Solution  # the curves that theory predicts, at more strengths
    best: Minimisers  # the strengths that theory recommends, and the gain that it predicts

    @property
    def gain(self) -> float:
        """By what part refinement and calibration lower the test loss."""
        by_loss, _, refined = self.losses.mean(axis=0)
        return float(1 - refined / by_loss)

    @property
    def predicted_gain(self) -> float:
        """The gain by theory, for many rows and features."""
        return float(self.best.gain)

    @property
    def standard_error(self) -> float:
        """Of the mean gain, as a part of the loss; NaN for one draw."""
        gaps = self.losses[:, 0] - self.losses[:, 2]
        if len(gaps) < 2:
            return float("nan")
        return float(gaps.std(ddof=1) / np.sqrt(len(gaps)) / self.losses[:, 0].mean())

    @property
    def deviation(self) -> float:
        """How far the mean gain is from theory, in standard errors; NaN for one draw."""
        error = self.standard_error
        return (self.gain - self.predicted_gain) / error if error else float("nan")

    @property
    def chance(self) -> float:
        """How probable a deviation this large is if theory is right, by Student's law; NaN for one draw."""
        from scipy.special import stdtr

        return float(2 * stdtr(max(len(self.losses) - 1, 1), -abs(self.deviation)))


def run_draw(
    seed: int,
    n: int = 500,
    ratio: float = 1.0,
    bayes_error: float = 0.1,
    spectrum: Spectrum | None = None,
    lams: NDArray[np.float64] = LAMBDAS,
) -> Draw:
    """Fit logistic regression at every regularization strength; choose by loss, and by refinement.

    There are ``n`` training rows with ``ratio * n`` features; ``bayes_error`` is the error rate of the best
    classifier, and ``spectrum`` the law of the eigenvalues, by default ``BetaSpectrum(5, 1)``.
    """
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(seed)
    law = BetaSpectrum(5, 1) if spectrum is None else spectrum
    truth = GaussianModel.from_spectrum(law, round(ratio * n), bayes_error=bayes_error, seed=rng)
    train, val, test = (truth.sample(rows, rng) for rows in (n, N_EVALUATED, N_EVALUATED))
    steps, scores = [], []
    for lam in lams:
        model = LogisticRegression(C=1 / (lam * n), fit_intercept=False, max_iter=1000).fit(*train)
        steps.append(decompose(val[1], logits=model.decision_function(val[0])))
        scores.append(model.decision_function(test[0]))
    by_loss = int(np.argmin([step.risk for step in steps]))
    by_refinement = int(np.argmin([step.refinement for step in steps]))
    losses = (
        decompose(test[1], logits=scores[by_loss]).risk,
        *(
            decompose(test[1], steps[place].calibrator.predict_proba_logits(scores[place])).risk
            for place in (by_loss, by_refinement)
        ),
    )
    return Draw(steps, losses)  # type: ignore[arg-type]


def run(
    draws: int = 5,
    seed: int = 0,
    n: int = 500,
    ratio: float = 1.0,
    bayes_error: float = 0.1,
    spectrum: Spectrum | None = None,
    lams: NDArray[np.float64] = LAMBDAS,
) -> Experiment:
    """Repeat :func:`run_draw` with several seeds, and ask theory about the same problem.

    Examples
    --------
    >>> found = run(draws=1, n=60, lams=np.array([0.1, 1.0]))
    >>> found.losses.shape
    (1, 3)
    """
    law = BetaSpectrum(5, 1) if spectrum is None else spectrum
    found = [run_draw(seed + number, n, ratio, bayes_error, law, lams) for number in range(draws)]
    curves = {
        name: np.mean([[getattr(step, name) for step in each.steps] for each in found], axis=0)
        for name in NAMES
    }
    strengths = np.geomspace(lams.min(), lams.max(), POINTS)
    theory = path(strengths, ratio=ratio, bayes_error=bayes_error, spectrum=law)
    best = minimise(ratio=ratio, bayes_error=bayes_error, spectrum=law)
    losses = np.array([each.losses for each in found])
    return Experiment(np.asarray(lams), curves, losses, theory, best)


def draw_curves(found: Experiment, canvas: Canvas) -> None:
    """Draw risk, calibration and refinement against the strength: theory as lines, measured means as dots.

    The lowest values that were measured are larger.
    """
    from matplotlib.lines import Line2D

    from refinecal.plots.style import PALETTE, dress, sizes

    ax = canvas.add_subplot()
    dress(ax)
    handles = []
    for name, values in found.curves.items():
        theory = getattr(found.theory, name)
        handles += ax.plot(found.theory.lam, theory, color=PALETTE[name], linewidth=1.4, label=name)
        ax.plot(found.lams, values, "o", color=PALETTE[name], markersize=4)
        lowest = int(values.argmin())
        big: Any = {"color": PALETTE[name], "markersize": 8, "clip_on": False, "zorder": 4}
        ax.plot(found.lams[lowest], values[lowest], "o", **big)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    top = 1.5 * found.curves["risk"].min() + 0.15
    ax.set_ylim(-0.02 * top, top)
    ax.set_yticks([tick for tick in ax.get_yticks() if 0 <= tick <= top])
    ax.set_xlabel("regularization strength λ", fontsize=sizes(ax)[0])
    ax.set_ylabel("log loss", fontsize=sizes(ax)[0])
    plain: Any = {"color": PALETTE["before"]}
    handles += [
        Line2D([], [], linewidth=1.4, label="line: theory", **plain),
        Line2D([], [], marker="o", linestyle="none", markersize=4, label="dots: measured", **plain),
    ]
    canvas.legend(
        handles=handles,
        loc="outside upper center",
        ncols=5,
        frameon=False,
        fontsize=sizes(ax)[1],
        labelcolor=PALETTE["text"],
    )
