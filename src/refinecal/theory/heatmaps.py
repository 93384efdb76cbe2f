"""The paper's figure 8 as a table: the distance between the minima and the gain, on a grid of problems.

Cells are independent and are distributed over processes, always in the same pieces, so the numbers do not
depend on the number of processes.
"""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.checks import check_whole
from refinecal._core.errors import needs_extra
from refinecal.losses import ProperLoss
from refinecal.theory._eigenvalues import check_spectrum
from refinecal.theory._number_checks import check_positive, check_vector
from refinecal.theory._parallel import Progress, run_tasks
from refinecal.theory.curves import minimise
from refinecal.theory.spectrum import BetaSpectrum, Spectrum

__all__ = ["BAYES_ERRORS", "RATIOS", "HeatMap", "heatmap", "paper_spectra"]

Floats = NDArray[np.float64]

RATIOS = np.logspace(-1, 1, 21)  # the paper's
BAYES_ERRORS = (0.001, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
PIECE = 64  # cells solved together: enough to make the overhead of NumPy small
WORTH = 8  # pieces that take as long as starting a process


def paper_spectra() -> tuple[Spectrum, ...]:
    """Return the paper's three spectra: many informative features, balanced, few."""
    return BetaSpectrum(1, 5), BetaSpectrum(2, 2), BetaSpectrum(5, 1)


@dataclass(frozen=True, eq=False, repr=False)
class HeatMap:
    """Minima and gains on a grid of spectra, Bayes errors and ratios.

    Attributes
    ----------
    spectra : tuple of Spectrum
        One map each.
    bayes_errors, ratios : ndarray
        Rows and columns of each map.
    columns : dict of ndarray
        One flat array for each quantity of :meth:`refinecal.theory.Minimisers.to_dict`, and ``spectrum``, the
        label of the law: ordered by spectrum, then by Bayes error, then by ratio.
    method, loss : str
        Names of the classifier and of the loss.
    """

    spectra: tuple[Spectrum, ...]
    bayes_errors: Floats
    ratios: Floats
    columns: dict[str, NDArray[Any]] = field(repr=False)
    method: str = "logistic"
    loss: str = "log"

    def grid(self, name: str) -> NDArray[Any]:
        """Return a quantity as an array of shape (spectra, Bayes errors, ratios)."""
        if name not in self.columns:
            raise KeyError(f"there is no column {name!r}: use one of {', '.join(self.columns)}")
        shape = len(self.spectra), len(self.bayes_errors), len(self.ratios)
        return self.columns[name].reshape(shape)

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Return the columns of the table, with one row for each cell."""
        return dict(self.columns)

    def to_frame(self) -> Any:
        """Return the table as a pandas frame."""
        with needs_extra("pandas", package="pandas"):
            import pandas as pd
        return pd.DataFrame(self.columns)

    def write(self, path: str | Path) -> None:
        """Write the table to a .csv, .parquet or .feather file, completely or not at all."""
        with needs_extra("parquet", package="pyarrow"):
            import pyarrow as pa

        from refinecal.tabular.files import create_table

        with create_table(path) as out:
            out.write(pa.table(self.columns))

    def __repr__(self) -> str:
        gains = 100 * self.columns["gain"]
        size = f"{len(self.bayes_errors)} Bayes errors and {len(self.ratios)} ratios"
        names = ", ".join(spectrum.label for spectrum in self.spectra)
        return f"HeatMap of {names} at {size}: gain {gains.min():.3g} to {gains.max():.3g}%"


def heatmap(
    spectra: Sequence[Spectrum] | Spectrum | None = None,
    ratios: ArrayLike = RATIOS,
    bayes_errors: ArrayLike = BAYES_ERRORS,
    *,
    method: str = "logistic",
    loss: str | ProperLoss = "log",
    lam_range: tuple[float, float] | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> HeatMap:
    """Return minima and gains on a grid: the maps of the paper's figure 8.

    Parameters
    ----------
    spectra : Spectrum or sequence of Spectrum, optional
        Laws of the eigenvalues; by default the paper's three.
    ratios : array_like, default 21 from 0.1 to 10
        Features per training row.
    bayes_errors : array_like, default 12 from 0.001 to 0.45
        Error rates of the best classifier.
    method, loss, lam_range
        As for :func:`refinecal.theory.minimise`. With several processes, a custom loss must be picklable.
    processes : int, optional
        Number of processes; by default one for each 512 cells, but at most one per core.
    progress : function of two int, optional
        Called with the number of finished cells and of all cells.

    Examples
    --------
    >>> from refinecal.theory import BetaSpectrum, heatmap
    >>> found = heatmap(BetaSpectrum(5, 1), ratios=[0.5, 2.0], bayes_errors=[0.1, 0.3], processes=1)
    >>> found.grid("log10_gap").shape
    (1, 2, 2)
    >>> bool((found.grid("log10_gap") < 0).all())  # few informative features: refinement is smallest first
    True
    """
    from joblib import cpu_count  # type: ignore[import-untyped]

    laws = _check_spectra(spectra)
    columns = check_vector("ratios", check_positive("ratios", ratios))
    rows = check_vector("bayes_errors", check_positive("bayes_errors", bayes_errors))
    options = {"method": method, "loss": loss, "lam_range": lam_range}
    error, ratio = (each.ravel() for each in np.meshgrid(rows, columns, indexing="ij"))
    edges = np.linspace(0, len(ratio), -(-len(ratio) // PIECE) + 1).round().astype(int).tolist()
    parts = [slice(start, stop) for start, stop in pairwise(edges)]
    tasks = [(law, ratio[part], error[part], options) for law in laws for part in parts]
    for law in laws:
        law.signal_for(rows)  # check the errors before processes start
    if processes is None:
        processes = min(int(cpu_count()), max(len(tasks) // WORTH, 1))
    workers = check_whole("processes", processes, 1, ", or None to choose by the size of the grid")
    found = run_tasks(_solve, tasks, workers, progress, [len(part) for _, part, *_ in tasks])
    names = np.repeat([law.label for law in laws], len(ratio))
    table = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
    loss_name = loss if isinstance(loss, str) else loss.name
    return HeatMap(laws, rows, columns, {"spectrum": names, **table}, method, loss_name)


def _solve(
    spectrum: Spectrum, ratio: Floats, error: Floats, options: dict[str, Any]
) -> dict[str, NDArray[Any]]:
    """Return the columns of some cells."""
    return minimise(ratio=ratio, bayes_error=error, spectrum=spectrum, **options).to_dict()


def _check_spectra(given: Sequence[Spectrum] | Spectrum | None) -> tuple[Spectrum, ...]:
    if given is None:
        return paper_spectra()
    laws = (given,) if isinstance(given, Spectrum) else tuple(given)
    if not laws:
        raise ValueError("spectra is empty: pass at least one law of eigenvalues")
    for place, law in enumerate(laws):
        check_spectrum(f"spectra[{place}]", law, "refinecal.theory.BetaSpectrum(1, 5).")
    return laws
