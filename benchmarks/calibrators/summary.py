"""What the judged rows show: mean losses, paired differences, ranks, times."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import entropy, rankdata, sem, t

from benchmarks.calibrators.contestants import NONE, OURS, REFERENCES, package

LOSSES = ("log", "brier")
NOISE = 1.96  # standard errors over the test rows within which two methods are tied
EQUAL = 1e-5  # differences of normalised loss below this are ties whatever their error
LARGE = 10_000  # validation rows from which times are averaged, as in the paper's figures
SMALL = 1_000  # validation rows below which a set is small
DIGITS = 5


@dataclass(frozen=True)
class Summary:
    """Arrays with a row per method and a column per case; NaN where a method failed or was not run.

    Losses are divided by that of the best constant. ``error[loss][reference]`` holds standard errors of the
    difference to a reference.
    """

    methods: Sequence[str]
    cases: Sequence[dict[str, Any]]  # table, model, n_val, n_test, k
    loss: dict[str, np.ndarray]
    error: dict[str, dict[str, np.ndarray]]
    fit: np.ndarray
    predict: np.ndarray
    clipped: np.ndarray
    unit: dict[str, np.ndarray]  # the loss of the best constant of each case
    failures: dict[str, dict[str, str]]

    def at(self, method: str) -> int:
        """Return the row of a method."""
        return list(self.methods).index(method)

    def where(self, keep: Callable[[dict[str, Any]], bool]) -> np.ndarray:
        """Return which cases to keep."""
        return np.array([keep(case) for case in self.cases], dtype=bool)

    @cached_property
    def reference(self) -> str:
        """The method that all others are compared with: auto, or what there is."""
        return next(name for name in (*REFERENCES, NONE) if name in self.methods)

    @cached_property
    def rivals(self) -> list[str]:
        """The methods of other packages, and none."""
        return [name for name in self.methods if package(name) != OURS]

    def has_failed(self, method: str) -> np.ndarray:
        """Return where a method failed."""
        failed = self.failures.get(method, {})
        return self.where(lambda case: f"{case['table']} {case['model']}" in failed)

    def seconds(self) -> np.ndarray:
        """Return the seconds of fit and prediction together."""
        return self.fit + self.predict

    def verdicts(self, method: str, loss: str = "log", reference: str = "") -> np.ndarray:
        """Return, case by case, whether the reference wins (1), ties (0) or loses (-1); NaN if not run."""
        reference = reference or self.reference
        rows = self.loss[loss]
        difference = rows[self.at(reference)] - rows[self.at(method)]
        error = self.error[loss][reference][self.at(method)]
        beyond = np.abs(difference) > np.maximum(NOISE * error, EQUAL)
        return np.where(np.isnan(difference), np.nan, np.where(beyond, -np.sign(difference), 0.0))

    def ranks(self, loss: str) -> np.ndarray:
        """Return the rank of every method in every case; those that failed share the last."""
        filled = np.where(np.isnan(self.loss[loss]), np.inf, self.loss[loss])
        return np.asarray(rankdata(filled, axis=0))


def read(folder: Path) -> Summary:
    """Return everything that was judged."""
    abouts = {(path.parent.name, path.stem): path for path in folder.glob("*/*.npz")}
    names = sorted({case for _, case in abouts})
    methods = sorted({method for method, _ in abouts})
    shape = (len(methods), len(names))
    blank = np.full(shape, np.nan)
    found = Summary(
        methods,
        [{} for _ in names],
        {loss: blank.copy() for loss in LOSSES},
        {loss: {name: blank.copy() for name in REFERENCES if name in methods} for loss in LOSSES},
        *(blank.copy() for _ in range(3)),
        {loss: np.full(len(names), np.nan) for loss in LOSSES},
        {},
    )
    for column, name in enumerate(names):
        outcomes = {m: _load(abouts[m, name]) for m in methods if (m, name) in abouts}
        _fill(found, column, outcomes)
    return found


def _load(file: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with np.load(file) as stored:
        about = json.loads(str(stored["about"]))
        return about, {loss: stored[loss].astype(np.float64) for loss in LOSSES if loss in stored}


def _fill(found: Summary, column: int, outcomes: dict[str, Any]) -> None:
    """Enter the outcomes of one case."""
    first = next(iter(outcomes.values()))[0]
    found.cases[column].update({k: first[k] for k in ("table", "model", "n_val", "n_test", "k")})
    unit = _constants(np.array(first["shares"]))
    for loss in LOSSES:
        found.unit[loss][column] = unit[loss]
    for method, (about, rows) in outcomes.items():
        row = found.at(method)
        if "error" in about:
            case = f"{about['table']} {about['model']}"
            found.failures.setdefault(method, {})[case] = about["error"]
            continue
        for name in ("fit", "predict", "clipped"):
            getattr(found, name)[row, column] = about[name]
        for loss in LOSSES:
            found.loss[loss][row, column] = about[loss] / unit[loss]
            for reference, errors in found.error[loss].items():
                theirs = outcomes.get(reference, (None, {}))[1].get(loss)
                if theirs is not None:
                    gaps = (theirs - rows[loss]) / unit[loss]
                    errors[row, column] = gaps.std() / np.sqrt(len(gaps))


def _constants(shares: np.ndarray) -> dict[str, float]:
    """Return the losses of the best constant prediction."""
    return {"log": float(entropy(shares[shares > 0])), "brier": float(1 - (shares**2).sum())}


def to_json(found: Summary) -> str:
    """Return all numbers as JSON, a line per method, a number per case, null where a method failed."""
    parts = []
    for row, name in enumerate(found.methods):
        numbers = {loss: _plain(found.loss[loss][row]) for loss in LOSSES}
        for loss in LOSSES:
            errors = found.error[loss].get(found.reference)
            if errors is not None:
                numbers[f"{loss}: standard error of {found.reference} minus this"] = _plain(
                    errors[row], 3
                )
        numbers |= {"fit": _plain(found.fit[row], 3), "predict": _plain(found.predict[row], 3)}
        numbers |= {"clipped": _plain(found.clipped[row])}
        failures = {"failures": found.failures.get(name, {})}
        parts.append(f"{json.dumps(name)}: {json.dumps(numbers | failures)}")
    return f'{{"cases": {json.dumps(found.cases)},\n"methods": {{\n' + ",\n".join(parts) + "\n}}\n"


def _plain(values: np.ndarray, digits: int = DIGITS) -> list[float | None]:
    rounded = (None if np.isnan(v) else float(f"{v:.{digits}g}") for v in values)
    return [int(v) if v is not None and v.is_integer() else v for v in rounded]


def mean(values: np.ndarray) -> float:
    """Return the mean of what is there; NaN if nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


def interval(found: Summary, gaps: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval (Student's t) of a mean over tables, each the mean of its models."""
    tables = np.array([case["table"] for case in found.cases])
    means = [mean(gaps[tables == table]) for table in np.unique(tables)]
    known = np.array([value for value in means if not np.isnan(value)])
    if len(known) < 2:
        return -np.inf, np.inf
    half = t.ppf(0.975, len(known) - 1) * sem(known)
    return float(known.mean() - half), float(known.mean() + half)


def by_loss(found: Summary, loss: str = "log") -> Iterator[str]:
    """Yield the methods from the smallest mean excess over the reference on common cases."""
    excess = found.loss[loss] - found.loss[loss][found.at(found.reference)]
    means = np.array([mean(row) for row in excess])
    for row in np.argsort(np.where(np.isnan(means), np.inf, means), kind="stable"):
        yield found.methods[row]


def best_or_tied(found: Summary) -> np.ndarray:
    """Return where the reference is not beaten beyond noise by the rival with the smallest log loss there."""
    rows = [found.at(name) for name in found.rivals]
    losses = np.where(np.isnan(found.loss["log"][rows]), np.inf, found.loss["log"][rows])
    verdicts = np.array([found.verdicts(name) for name in found.rivals])
    best = losses.argmin(axis=0)
    return np.asarray(verdicts[best, np.arange(losses.shape[1])] >= 0)
