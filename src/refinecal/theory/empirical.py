r"""Does the theory hold? Compare classifiers trained on samples of the Gaussian model with the equations.

Each draw has its own eigenvalues and class mean, as in section 7 of the paper, and n rows. Expertise and
confidence of the learned weights need no test rows, since :math:`\mu` and :math:`\Sigma` are known;
:mod:`refinecal.theory.gaussian` computes risk, calibration and refinement from them.

They are compared with theory twice. First, with the theory of the *law* of the eigenvalues, as in the paper's
figure 7; then the measurements also vary with the eigenvalues (the mean of :math:`1/\sigma` over 1,000 of
them from 0.001 + Beta(1, 1) varies by 14%). Second, with the theory of the *draws*: each fit is compared with
the theory of its own eigenvalues and mean, which removes this noise. The second comparison is more sensitive
and decides: with n = 2,000 and 50 draws, theory for a ratio of 0.51 instead of 0.5 deviates by 3.9 standard
errors from the draws, and by 2.4 from the law.

Theory is for :math:`n \to \infty`. In that example the risk at :math:`\lambda = 0.001`, where the classifier
is most overconfident, is 1.8% ± 0.4% (± s.e.) lower than predicted for n = 250 and 1.5% ± 0.3% for n = 500.
For n = 1,000 the difference is within chance over 200 draws (0.0% ± 0.4%).
"""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.checks import check_whole
from refinecal.losses import ProperLoss, get_loss
from refinecal.theory._number_checks import check_positive
from refinecal.theory._parallel import run_tasks
from refinecal.theory.asymptotics import Solution
from refinecal.theory.curves import METHOD_NAMES, METHODS, find_method
from refinecal.theory.deviations import QUANTITIES, Comparison, compare
from refinecal.theory.model import GaussianModel
from refinecal.theory.spectrum import BetaSpectrum, QuadratureSpectrum, Spectrum

__all__ = ["Check", "check", "fit_path"]

Floats = NDArray[np.float64]

LAMS = np.logspace(-3, 1, 17)  # the minima of the paper's example lie in 0.01 … 0.3
TOLERANCE = 1e-10  # of scikit-learn's gradient; its tolerance of the loss stops it earlier
FLAT = 1e-5  # the gradient must have fallen to this part of its length at zero weights
MOST_ROUNDS = 20_000
WIDTH = 88  # of what is printed
LEAST_ROWS, LEAST_FEATURES = 10, 2  # theory is for many of both


@dataclass(frozen=True, repr=False)
class Check:
    """Trained classifiers compared with theory; ``print`` shows the largest deviations and the verdict.

    Attributes
    ----------
    theory : Solution
        Predictions of the law of the eigenvalues at each λ.
    n, n_features, seeds, seed : int
        Training rows, features, draws of the data, and the random seed.
    expertise, confidence : ndarray of shape (seeds, m)
        Measurements at m λ.
    draws : Comparison
        Each fit compared with the theory of its own eigenvalues and class mean; this one decides.
    law : Comparison
        Comparison with the theory of the law of the eigenvalues, as in the paper.
    """

    theory: Solution
    n: int
    n_features: int
    seeds: int
    seed: int
    expertise: Floats
    confidence: Floats
    draws: Comparison
    law: Comparison

    @property
    def lam(self) -> Floats:
        """Regularization strengths, increasing."""
        return np.asarray(self.theory.lam)

    @property
    def holds(self) -> bool | None:
        """Whether the deviations are within sampling error; ``None`` with too few draws to tell."""
        return self.draws.holds

    @property
    def verdict(self) -> str:
        """The meaning of the largest deviation, in words."""
        if self.holds is not False:
            return self.draws.verdict
        return (
            f"{self.draws.verdict} Theory is for n → ∞: if the deviation shrinks with more rows than "
            f"{self.n}, these were too few."
        )

    def predict(self, lams: ArrayLike) -> Solution:
        """Return the predictions of the law of the eigenvalues at other λ."""
        asked = self.theory.problem
        return METHODS[self.theory.method](
            lams,
            ratio=asked.ratio[0],
            bayes_error=asked.bayes_error[0],
            spectrum=asked.spectrum,
            loss=self.theory.loss,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists."""
        problem = self.theory.problem
        return {
            "method": self.theory.method,
            "n": self.n,
            "n_features": self.n_features,
            "ratio": self.n_features / self.n,
            "bayes_error": float(problem.bayes_error.flat[0]),
            "spectrum": problem.spectrum.to_dict(),
            "loss": self.theory.parts.loss,
            "seeds": self.seeds,
            "seed": self.seed,
            "holds": self.holds,
            "verdict": self.verdict,
            **{
                name: {
                    "chance": each.chance,
                    "largest": each.largest._asdict(),
                    "verdict": each.verdict,
                    **each.columns(),
                }
                for name, each in self.comparisons.items()
            },
        }

    @property
    def comparisons(self) -> dict[str, Comparison]:
        """Both comparisons by name."""
        return {"draws": self.draws, "law": self.law}

    def columns(self) -> dict[str, list[Any]]:
        """Return a row for each comparison, quantity and λ, as the columns of a table."""
        draws, law = self.draws.columns(), self.law.columns()
        rows = len(law["lam"])
        return {
            "against": ["draws"] * rows + ["law"] * rows,
            **{name: draws[name] + law[name] for name in law},
        }

    @property
    def setting(self) -> str:
        """The experiment, in a line."""
        problem = self.theory.problem
        return (
            f"{METHOD_NAMES[self.theory.method]}, {self.seeds} draws of n = {self.n}, p = {self.n_features}, "
            f"Bayes error {100 * problem.bayes_error.flat[0]:.3g}%, spectrum: {problem.spectrum.label}"
        )

    def __repr__(self) -> str:
        header = ("lam", "expected", "measured", "s.e.")
        head = "".join(f"{each:>10}" for each in header)
        lines = [self.setting, f"{'largest':<12}{head}{'deviation':>11}"]
        for name in QUANTITIES:
            quantity, lam, _, *means, deviation = self.draws.largest_of(name).to_cells()
            numbers = "".join(f"{each:>10}" for each in (lam, *means))
            lines.append(f"{quantity:<12}{numbers}{deviation:>11}")
        return "\n".join([*lines, fill(self.verdict, WIDTH)])


def check(
    lams: ArrayLike | None = None,
    *,
    ratio: float = 0.5,
    bayes_error: float = 0.1,
    spectrum: Spectrum | None = None,
    n: int = 2000,
    seeds: int = 50,
    method: str = "logistic",
    loss: str | ProperLoss = "log",
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    seed: int = 0,
) -> Check:
    """Train classifiers on samples of the Gaussian model, and compare them with theory (figure 7).

    Parameters
    ----------
    lams : array_like, optional
        Regularization strengths; by default 17 from 0.001 to 10.
    ratio, bayes_error, spectrum, loss
        As for :func:`logistic`; the number of features is rounded, and at least 2. The default spectrum is
        ``BetaSpectrum(1, 1)``.
    n : int, default 2000
        Training rows, at least 10.
    seeds : int, default 50
        Draws of the data, each with its own eigenvalues, class mean and rows; with fewer than 20, the check
        can fail but not succeed.
    method : {"logistic", "lda", "ridge"}
        The classifier: scikit-learn's ``LogisticRegression(C=1 / (lam * n), fit_intercept=False)``, or the
        formulas of :func:`lda` and :func:`ridge`.
    processes : int, optional
        Number of processes; by default the number of cores. It does not change the result.
    progress : callable, optional
        Called with the number of finished draws and of all draws.
    seed : int, default 0
        The same seed gives the same result.

    Returns
    -------
    Check
        With both comparisons, ``holds`` (true, false, or ``None`` if undecided) and ``verdict``.

    Examples
    --------
    >>> from refinecal.theory import check
    >>> found = check([0.01, 0.1, 1.0], n=200, seeds=20, processes=1)
    >>> found.holds, found.law.holds
    (True, True)
    """
    from joblib import cpu_count  # type: ignore[import-untyped]

    solve = find_method(method)
    get_loss(loss)
    n, seeds = check_whole("n", n, LEAST_ROWS), check_whole("seeds", seeds, 2)
    seed = check_whole("seed", seed, 0)
    strengths = np.unique(check_positive("lams", LAMS if lams is None else lams))
    if not strengths.size:
        raise ValueError("lams is empty: pass at least one lam, or omit it")
    spectrum = BetaSpectrum(1, 1) if spectrum is None else spectrum
    p = _count_features(ratio, n)
    theory = solve(strengths, ratio=p / n, spectrum=spectrum, bayes_error=bayes_error, loss=loss)

    draw = partial(_draw, theory, n, p, seed)
    workers = cpu_count() if processes is None else check_whole("processes", processes, 1)
    found = np.stack(run_tasks(draw, [(number,) for number in range(seeds)], workers, progress))
    expertise, confidence, own_expertise, own_confidence = np.moveaxis(found, 1, 0)
    measured = strengths, expertise, confidence
    draws = compare(*measured, own_expertise, own_confidence, loss)
    law = compare(*measured, theory.expertise, theory.confidence, loss)
    return Check(theory, n, p, seeds, seed, expertise, confidence, draws, law)


def fit_path(X: Floats, y: NDArray[np.int64], lams: Floats, method: str = "logistic") -> Floats:
    """Return the learned weights, of shape (m, p), at m increasing λ, without an intercept."""
    oriented = np.where(y, 1.0, -1.0)[:, None] * X  # all that the three methods depend on
    if method == "logistic":
        return _fit_logistic(X, y, oriented, lams)
    return _fit_linear(oriented, lams, method)


def _fit_logistic(X: Floats, y: NDArray[np.int64], oriented: Floats, lams: Floats) -> Floats:
    """Fit scikit-learn's model from the largest λ to the smallest, with warm starts."""
    import warnings

    from scipy.special import expit
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    n = len(y)
    if y.min() == y.max():
        # scikit-learn needs both classes; without an intercept (-x, 1 - y) is the same row as (x, y)
        X, y = np.vstack([-X[:1], X[1:]]), np.append(1 - y[:1], y[1:])
    model = LogisticRegression(
        fit_intercept=False, warm_start=True, tol=TOLERANCE, max_iter=MOST_ROUNDS
    )
    steepest = np.abs(oriented.mean(axis=0)).max() / 2  # the gradient at zero weights
    found = []
    for lam in lams[::-1]:
        with warnings.catch_warnings():
            # the tolerance is below rounding errors, so the gradient is checked below
            warnings.simplefilter("ignore", ConvergenceWarning)
            weights = model.set_params(C=1 / (lam * n)).fit(X, y).coef_[0].copy()
        slope = lam * weights - expit(-(oriented @ weights)) @ oriented / n
        if np.abs(slope).max() > FLAT * steepest:
            raise RuntimeError(
                f"logistic regression did not converge at lam = {lam:.4g} on {n} rows of {X.shape[1]} "
                "features: use a larger lam"
            )
        found.append(weights)
    return np.stack(found[::-1])


def _fit_linear(oriented: Floats, lams: Floats, method: str) -> Floats:
    r"""Return :math:`w = (A^\top A / n + \lambda I)^{-1} \hat\mu`, where :math:`\hat\mu` is the mean row.

    Discriminant analysis takes :math:`\hat\mu\hat\mu^\top` from the matrix, which makes w longer.
    """
    n, p = oriented.shape
    mean = oriented.mean(axis=0)
    if p <= n:
        values, vectors = np.linalg.eigh(oriented.T @ oriented / n)
        weights = (vectors @ ((vectors.T @ mean)[:, None] / (values[:, None] + lams))).T
    else:  # the same by way of a smaller matrix
        values, vectors = np.linalg.eigh(oriented @ oriented.T / n)
        rows = vectors @ (vectors.sum(axis=0)[:, None] / (values[:, None] + lams))
        weights = rows.T @ oriented / n
    factor = 1.0 if method == "ridge" else 2 / (1 - weights @ mean)[:, None]
    return np.asarray(factor * weights)


# ---- draws -----------------------------------------------------------------------------------------------


def _draw(asked: Solution, n: int, p: int, seed: int, number: int) -> Floats:
    """Return expertise and confidence of one draw: measured, then predicted by its own theory."""
    rng = np.random.default_rng([seed, number])
    law, error = asked.spectrum, asked.bayes_error[0]
    model = GaussianModel.from_spectrum(law, p, bayes_error=error, seed=rng, exact=False)
    X, y = model.sample(n, seed=rng)
    weights = fit_path(X, y, asked.lam, asked.method)
    signal, law = np.linalg.norm(model.mu), QuadratureSpectrum(model.sigma, np.ones(p), model.mu**2)
    own = METHODS[asked.method](asked.lam, ratio=p / n, signal=signal, spectrum=law)
    measured = model.expertise(weights), model.confidence(weights)
    return np.stack([*measured, own.expertise, own.confidence])


def _count_features(ratio: float, n: int) -> int:
    """Return the number of features."""
    if np.ndim(ratio):
        raise TypeError(f"ratio has shape {np.shape(ratio)}: pass one number")
    p = round(float(check_positive("ratio", ratio)) * n)
    if p < LEAST_FEATURES:
        found = "one feature" if p else "no feature"
        raise ValueError(
            f"ratio is {float(ratio):g}, which is {found} for {n} rows: use more rows or a larger ratio, to "
            f"have at least {LEAST_FEATURES} features"
        )
    return p
