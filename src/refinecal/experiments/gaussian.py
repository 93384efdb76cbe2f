"""Section 7 of the paper as an experiment: how much to regularise logistic regression on Gaussian data."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refinecal.decomposition import Decomposition, decompose

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SHIFT = 1e-3  # added to the eigenvalues, as in the paper
LAMBDAS = np.logspace(-3, 2, 16)
N_EVALUATED = 5000  # rows to validate, and as many to test


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of the data: the decomposition at every strength, and three test losses.

    Attributes
    ----------
    steps : list of Decomposition
        On validation rows, one for each strength.
    losses : tuple of float
        On test rows: chosen by loss; the same, calibrated; chosen by refinement, calibrated.
    """

    steps: list[Decomposition]
    losses: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Several draws, averaged.

    Attributes
    ----------
    lams : ndarray
        Strengths of the regularisation.
    curves : dict of ndarray
        Mean risk, calibration and refinement at each, on validation rows.
    losses : ndarray of shape (draws, 3)
        Test losses, as in :class:`Draw`.
    """

    lams: NDArray[np.float64]
    curves: dict[str, NDArray[np.float64]]
    losses: NDArray[np.float64]

    @property
    def gain(self) -> float:
        """By what part refinement and calibration lower the test loss."""
        by_loss, _, refined = self.losses.mean(axis=0)
        return float(1 - refined / by_loss)

    @property
    def standard_error(self) -> float:
        """Of the mean gain, as a part of the loss; NaN for one draw."""
        gaps = self.losses[:, 0] - self.losses[:, 2]
        if len(gaps) < 2:
            return float("nan")
        return float(gaps.std(ddof=1) / np.sqrt(len(gaps)) / self.losses[:, 0].mean())


def draw_data(
    seed: int,
    n: int,
    ratio: float,
    bayes_error: float,
    shape_a: float,
    shape_b: float,
    rows: Sequence[int],
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    r"""Return features and labels of several samples of one Gaussian model.

    Classes are :math:`N(\mu, \Sigma)` and :math:`N(-\mu, \Sigma)`; the eigenvalues of :math:`\Sigma` are
    drawn from a Beta law, and the length of :math:`\mu` makes the Bayes error what it should be.
    """
    from scipy.stats import norm

    rng = np.random.default_rng(seed)
    scales = np.sqrt(SHIFT + rng.beta(shape_a, shape_b, round(ratio * n)))
    mu = rng.standard_normal(len(scales))
    mu *= -norm.ppf(bayes_error) / np.linalg.norm(mu / scales)
    samples = []
    for count in rows:
        y = rng.integers(2, size=count)
        noise = rng.standard_normal((count, len(mu))) * scales
        samples.append((np.where(y, 1, -1)[:, None] * mu + noise, y))
    return samples


def run_draw(
    seed: int,
    n: int = 500,
    ratio: float = 1.0,
    bayes_error: float = 0.1,
    shape_a: float = 5,
    shape_b: float = 1,
    lams: NDArray[np.float64] = LAMBDAS,
) -> Draw:
    """Fit logistic regression at every strength; choose by loss, and by refinement.

    Parameters
    ----------
    seed : int
        Of the data.
    n : int, default 500
        Training rows.
    ratio : float, default 1
        Features for each training row.
    bayes_error : float, default 0.1
        Error rate of the best classifier.
    shape_a, shape_b : float, default 5 and 1
        Of the Beta law of the eigenvalues.
    lams : ndarray
        Strengths of the regularisation.

    Returns
    -------
    Draw
    """
    from sklearn.linear_model import LogisticRegression

    rows = (n, N_EVALUATED, N_EVALUATED)
    train, val, test = draw_data(seed, n, ratio, bayes_error, shape_a, shape_b, rows)
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


def run(draws: int = 5, seed: int = 0, **options: Any) -> Experiment:
    """Repeat :func:`run_draw` with several seeds.

    Examples
    --------
    >>> found = run(draws=1, n=60, lams=np.array([0.1, 1.0]))
    >>> found.losses.shape
    (1, 3)
    """
    found = [run_draw(seed + number, **options) for number in range(draws)]
    curves = {
        name: np.mean([[getattr(step, name) for step in each.steps] for each in found], axis=0)
        for name in ("risk", "calibration", "refinement")
    }
    lams = np.asarray(options.get("lams", LAMBDAS))
    return Experiment(lams, curves, np.array([each.losses for each in found]))


def draw_curves(found: Experiment, canvas: Canvas) -> None:
    """Draw risk, calibration and refinement against the strength, each lowest value marked."""
    from refinecal.plots._style import PALETTE, dressed, sizes

    ax = canvas.add_subplot()
    dressed(ax)
    handles = []
    for name, values in found.curves.items():
        (line,) = ax.plot(found.lams, values, color=PALETTE[name], label=name)
        lowest = int(values.argmin())
        ax.plot(found.lams[lowest], values[lowest], "o", color=PALETTE[name], markersize=7)
        handles.append(line)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_ylim(bottom=0, top=1.5 * found.curves["risk"].min() + 0.15)
    ax.set_xlabel("regularisation strength λ", fontsize=sizes(ax)[0])
    ax.set_ylabel("log loss", fontsize=sizes(ax)[0])
    canvas.legend(
        handles=handles,
        loc="outside upper center",
        ncols=3,
        frameon=False,
        fontsize=sizes(ax)[1],
        labelcolor=PALETTE["text"],
    )
