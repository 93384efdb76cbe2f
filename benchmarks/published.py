"""The published heat maps beside ours, and the loop that gave them, for ``benchmarks.theory``.

The tables are not part of this repository: github.com/eugeneberta/RefineThenCalibrate-Theory, heatmap_csv,
one line for each cell. The loop is written from the equations, with the settings that the tables were made
with: λ falls from 1000 in steps of 0.01 in log10 λ, each solution starts from the last, and the loop ends
after the first step in which neither calibration nor refinement falls below its best.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.contestants import damped_fixed_point
from refinecal.losses import ProperLoss
from refinecal.theory.gaussian import gaussian_decomposition
from refinecal.theory.heatmaps import HeatMap
from refinecal.theory.spectrum import Spectrum

Floats = NDArray[np.float64]

FILES = ("ratios_easy.csv", "ratios_unif.csv", "ratios_hard.csv")  # in the order of paper_spectra()
MINIMISERS = {"calibration": "cal_mzr", "refinement": "ref_mzr", "risk": "ce_mzr"}
ROUNDED = 0.01  # points of gain, and steps in log10 lam: the tables know no less
COUNTS = ("cells", "equal", "above", "exact_equal", "unlike", "endless")
EASIEST = 0.001  # the Bayes error of the row in which the maps differ

START, STEP, LAST = 3.0, 0.01, -12.0  # of log10 lam
TOLERANCE = 1e-7
MOST_ROUNDS = 100_000


# ---- all cells ---------------------------------------------------------------------------------------------


def read(folder: Path, maps: HeatMap) -> dict[str, Floats]:
    """Return the columns of the three tables, each of shape (spectra, Bayes errors, ratios)."""
    tables = []
    for file in FILES:
        path = folder / file
        if not path.is_file():
            raise FileNotFoundError(
                f"there is no {file} in {folder}: copy heatmap_csv of "
                "github.com/eugeneberta/RefineThenCalibrate-Theory to it"
            )
        with path.open(encoding="utf-8", newline="") as lines:
            tables.append(list(csv.DictReader(lines)))
    shape = (len(FILES), len(maps.bayes_errors), len(maps.ratios))
    names = ("sep", "log_r", "loss_decrease", *MINIMISERS.values())
    found = {
        name: np.array([[float(row[name]) for row in table] for table in tables]).reshape(shape)
        for name in names
    }
    same_rows = np.allclose(found["sep"], maps.bayes_errors[:, None])
    if not (same_rows and np.allclose(found["log_r"], np.log10(maps.ratios), atol=1e-6)):
        raise ValueError(
            f"the tables in {folder} are not in the order of Bayes error, then log10 ratio"
        )
    return found


@dataclass(frozen=True)
class Compared:
    """One map: gains in points, minimisers in decades; differences are published - squeezed."""

    spectrum: str
    cells: int
    equal: int  # cells whose gains differ by no more than rounding
    above: int  # cells whose gains differ by more than 0.1
    easiest: tuple[
        float, float
    ]  # the largest difference of gains in the easiest row, and elsewhere
    exact_equal: int  # cells whose gains differ from the exact ones by no more than rounding
    minimisers: dict[str, tuple[float, float]]  # likewise in the easiest row, and elsewhere
    unlike: int  # cells with a minimiser of refinement whose gap differs by more than 0.1
    endless: int  # cells in which refinement has no minimiser
    ends: tuple[float, float] | None  # smallest and largest published log10 of λ in these


def compare(published: dict[str, Floats], exact: HeatMap, squeezed: HeatMap) -> list[Compared]:
    easiest = squeezed.bayes_errors <= EASIEST
    assert easiest.any()
    found = []
    for place, law in enumerate(squeezed.spectra):
        gains = published["loss_decrease"][place]
        gap = gains - 100 * squeezed.grid("gain")[place]
        exact_gap = gains - 100 * exact.grid("gain")[place]
        endless = squeezed.grid("at_bound_refinement")[place].astype(bool)
        ends = published[MINIMISERS["refinement"]][place][endless]
        shifts = {
            name: published[column][place] - np.log10(squeezed.grid(f"lam_{name}")[place])
            for name, column in MINIMISERS.items()
        }
        shifts["refinement"] = np.where(endless, 0.0, shifts["refinement"])
        between = np.where(endless, 0.0, shifts["calibration"] - shifts["refinement"])
        found.append(
            Compared(
                law.label,
                gap.size,
                int((np.abs(gap) <= ROUNDED).sum()),
                int((np.abs(gap) > 10 * ROUNDED).sum()),
                (_furthest(gap[easiest]), _furthest(gap[~easiest])),
                int((np.abs(exact_gap) <= ROUNDED).sum()),
                {
                    name: (_furthest(shift[easiest]), _furthest(shift[~easiest]))
                    for name, shift in shifts.items()
                },
                int((np.abs(between) > 10 * ROUNDED).sum()),
                int(endless.sum()),
                (float(ends.min()), float(ends.max())) if ends.size else None,
            )
        )
    return found


def _furthest(values: Floats) -> float:
    return float(values.flat[np.abs(values).argmax()])


def lines(maps: Sequence[Compared], stored: bool) -> list[str]:
    """Return what the comparison says, as Markdown; stored says that it is of an earlier run."""
    if not maps:
        return [
            "The whole tables are compared by `--published FOLDER`, which this run was not given.",
            "",
        ]
    total = {name: sum(getattr(one, name) for one in maps) for name in COUNTS}
    source = " (stored from the last run with `--published`)" if stored else ""
    ends = [one.ends for one in maps if one.ends]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return [
        f"All {total['cells']} cells, published against squeezed{source}: {total['equal']} gains agree "
        f"within {ROUNDED:g} points, the digits of the tables; {total['above']} differ by more than "
        f"{10 * ROUNDED:g}, all at a Bayes error of {100 * EASIEST:g} %. With the exact gains, "
        f"{total['exact_equal']} agree so well. Largest differences published − squeezed, gains in points "
        f"and minimisers in decades of λ, at a Bayes error of {100 * EASIEST:g} % / at all others:",
        "",
        f"| eigenvalues | cells within {ROUNDED:g} | gain | λ of calibration | λ of refinement | λ of risk |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *(_line(one) for one in maps),
        "",
        f"Refinement is compared without the {total['endless']} cells in which it has no minimiser "
        f"(published: where the loop ended, log10 λ from {low:.2f} to {high:.2f}). The map of the gap "
        f"between calibration and refinement differs by more than {10 * ROUNDED:g} decades in "
        f"{total['unlike']} other cells.",
        "",
    ]


def _line(one: Compared) -> str:
    pairs = [one.easiest, *(one.minimisers[name] for name in MINIMISERS)]
    cells = [" / ".join(f"{round(value, 2) + 0.0:+.2f}" for value in pair) for pair in pairs]
    return f"| {one.spectrum} | {one.equal} of {one.cells} | {' | '.join(cells)} |"


# ---- the loop that gave them -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scanned:
    """Where the loop ended: gain in percent, minimisers as log10 lam."""

    gain: float
    calibration: float
    risk: float
    smallest_calibration: float


def scan(
    spectrum: Spectrum, bayes_error: float, ratio: float, loss: ProperLoss, *, relative: bool
) -> Scanned:
    """Return what the loop finds if its tolerance is relative to eta, gamma and tau, or is not."""
    signal = float(spectrum.signal_for(bayes_error))
    state = np.full(3, 0.5)
    best = dict.fromkeys(MINIMISERS, (np.inf, np.nan))
    for power in START - STEP * np.arange(round((START - LAST) / STEP)):
        state, inner, norm = _solve(state, power, ratio, signal, spectrum, relative)
        parts = gaussian_decomposition(inner / norm, norm, loss)
        now = {name: float(getattr(parts, name)) for name in MINIMISERS}
        better = {name for name in MINIMISERS if now[name] < best[name][0]}
        best |= {name: (now[name], float(power)) for name in better}
        if not better & {"calibration", "refinement"}:
            gain = 100 * (1 - best["refinement"][0] / best["risk"][0])
            at = (best["calibration"][1], best["risk"][1])
            return Scanned(gain, *at, best["calibration"][0])
    raise RuntimeError(f"the loop went on to log10 lam = {LAST:g}")


def _solve(
    state: Floats, power: float, ratio: float, signal: float, spectrum: Spectrum, relative: bool
) -> tuple[Floats, float, float]:
    """Return eta, gamma and tau, then <w, w*> and |w|: damped more the smaller lam is."""
    sigma, by_f, by_g = spectrum.nodes, spectrum.weights, spectrum.signal_weights
    lam = 10**power
    damping = min(0.7, 1 / max(1e-6, -power))
    slope = state[2]
    for _ in range(MOST_ROUNDS):
        eta, gamma, tau = state
        once = 1 / (lam + tau * sigma)
        m = eta * signal**2 * (by_g @ once)
        v = (eta * signal) ** 2 * (by_g @ (sigma * once**2))
        v += gamma * ratio * (by_f @ (sigma * once) ** 2)
        s, slope = _solve_kappa(m, v, slope, lam, ratio, spectrum)
        weights = damped_fixed_point.WEIGHTS
        change = np.array([weights @ s, weights @ s**2, slope]) - state
        if np.abs(change / state if relative else change).max() < TOLERANCE:
            return state, 2 * m, float(np.sqrt(v))
        state = state + damping * change
    raise RuntimeError(f"no solution at log10 lam = {power:g} after {MOST_ROUNDS} rounds")


def _solve_kappa(
    m: float, v: float, slope: float, lam: float, ratio: float, spectrum: Spectrum
) -> tuple[Floats, float]:
    """Return s(x) at the nodes, and the mean slope that belongs to kappa."""
    sigma, by_f = spectrum.nodes, spectrum.weights
    t = m + np.sqrt(v) * damped_fixed_point.T
    kappa = ratio * (by_f @ (sigma / (lam + slope * sigma)))
    for _ in range(MOST_ROUNDS):
        s = expit(-damped_fixed_point._proximal(t, kappa))
        q = s * (1 - s)
        slope = float(damped_fixed_point.WEIGHTS @ (q / (1 + kappa * q)))
        last, kappa = kappa, ratio * (by_f @ (sigma / (lam + slope * sigma)))
        if abs(kappa - last) < 1e-9 * kappa:
            return s, slope
    raise RuntimeError(f"no kappa at log10 lam = {np.log10(lam):g} after {MOST_ROUNDS} rounds")
