"""Where curves over the strength of a penalty are lowest, or cross 0, for many problems at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import elementwise

from refinecal.theory.asymptotics import Problem, Solution
from refinecal.theory.fixed_point import Track

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
Measure = Callable[[Solution], Floats]

STEP = 0.6  # of the scan, in log(lam): made of lam / (lam + tau sigma), curves bend over e-folds
TOLERANCE = 1e-9  # of a root, in log(lam)
SLACK = 1e-7  # how much lower than its minimum, relatively, rounding may make a curve


@dataclass(frozen=True)
class Scan:
    """Solutions of n flat problems at k increasing strengths."""

    lams: Floats
    found: list[Solution]

    @classmethod
    def along(cls, start: Solution, bounds: tuple[float, float]) -> Scan:
        """Follow problems, solved at the upper bound, down to the lower."""
        low, high = np.log(bounds)
        steps = max(int(np.ceil((high - low) / STEP)), 1)
        lams = np.exp(np.linspace(high, low, steps + 1))
        lams[[0, -1]] = bounds[::-1]
        problem = _changed(start.problem, np.ravel)
        found = [start.solver(problem, start.loss, start.track)]
        for lam in lams[1:]:
            found.append(found[-1].at(np.full(problem.lam.shape, lam)))
        return cls(lams[::-1], found[::-1])

    @property
    def n(self) -> int:
        """The number of problems."""
        return len(self.found[0].lam)

    def lowest(self, slope: Measure, value: Measure) -> tuple[Floats, Flags]:
        """Return where each problem's curve is lowest, and whether that is an end of the range."""
        slopes = self._measure(slope)
        places, cells = np.nonzero((slopes[:-1] < 0) & (slopes[1:] >= 0))
        inside = self._roots(slope, places, cells)
        parts = [(cells, inside.lam, value(inside))]
        for place, those in ((0, slopes[0] >= 0), (-1, slopes[-1] < 0)):
            end = self.found[place]
            parts.append((np.flatnonzero(those), end.lam[those], value(end)[those]))
        which, lam, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        at_bound = np.arange(len(which)) >= len(cells)
        order = np.lexsort((-lam, values, which))
        _, first = np.unique(which[order], return_index=True)
        best = order[first]  # one for each problem: a curve has a lowest point
        self._check(value, values[best], lam[best])
        return lam[best], at_bound[best]

    def _check(self, value: Measure, lowest: Floats, lam: Floats) -> None:
        """Refuse a curve whose slope does not lead to its lowest point."""
        seen = self._measure(value)
        below = seen.min(axis=0) < lowest - SLACK * np.abs(lowest)
        if below.any():
            cell = int(below.argmax())
            raise ValueError(
                f"by its slope the curve is lowest at lam = {lam[cell]:.4g}, but it is lower at "
                f"{self.lams[seen[:, cell].argmin()]:.4g}: minimisers need a loss that is smooth in the "
                "log-odds, such as log, Brier or spherical"
            )

    def crossing(self, measure: Measure) -> tuple[Floats, Places]:
        """Return the largest strengths at which a measure is 0, and which problems have one."""
        signs = np.signbit(self._measure(measure))
        changes = signs[:-1] != signs[1:]
        cells = np.flatnonzero(changes.any(axis=0))
        places = len(changes) - 1 - changes[::-1, cells].argmax(axis=0)
        return self._roots(measure, places, cells).lam, cells

    def whole(self, lam: Floats, shape: tuple[int, ...]) -> Solution:
        """Return all problems, each at its own strength, in the shape that was asked for."""
        near = np.abs(np.log(lam) - np.log(self.lams)[:, None]).argmin(axis=0)
        first, track = self.found[0], self._track(near, np.arange(self.n))
        problem = _changed(first.problem, lambda each: each.reshape(shape), lam.reshape(shape))
        return first.solver(problem, first.loss, track)

    def _measure(self, measure: Measure) -> Floats:
        """Return something of all solutions, of shape (k, n)."""
        return np.stack([measure(each) for each in self.found])

    def _roots(self, measure: Measure, places: Places, cells: Places) -> Solution:
        """Return the solutions at which a measure is 0, each between two neighbours of the scan."""
        grid = np.log(self.lams)

        def value(x: Floats, which: Places) -> Floats:
            return measure(self._near(places[which], cells[which], np.exp(x)))

        found = elementwise.find_root(
            value,
            (grid[places], grid[places + 1]),
            args=(np.arange(len(cells)),),
            tolerances={"xatol": TOLERANCE, "xrtol": 0},
        )
        if not np.all(found.success):
            raise RuntimeError(f"no root to {TOLERANCE:g} in log(lam): a curve may jump there")
        return self._near(places, cells, np.exp(found.x))

    def _near(self, places: Places, cells: Places, lam: Floats) -> Solution:
        """Return some problems at other strengths, from the solutions of the scan beside them."""
        first = self.found[0]
        problem = _changed(first.problem, lambda each: each[cells], lam)
        return first.solver(problem, first.loss, self._track(places, cells))

    def _track(self, places: Places, cells: Places) -> Track | None:
        tracks = [each.track for each in self.found]
        if tracks[0] is None:
            return None
        names = ("lam", "u", "slope", "constants")
        return Track(
            *(np.stack([getattr(each, name) for each in tracks])[places, cells] for name in names)
        )


def _changed(
    problem: Problem, change: Callable[[Floats], Floats], lam: Floats | None = None
) -> Problem:
    """Return a problem with other arrays, perhaps at other strengths."""
    ratio, signal, error = map(change, (problem.ratio, problem.signal, problem.bayes_error))
    lam = change(problem.lam) if lam is None else lam
    return Problem(lam, ratio, signal, error, problem.spectrum)
