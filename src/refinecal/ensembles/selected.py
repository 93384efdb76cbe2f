"""The ensemble that was chosen: its weights, its calibrator, and how it came about."""

from __future__ import annotations  # so that help() shows types by name

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.files import plain, write_json
from refinecal._core.format import format_fixed, number, shorten_name, with_error
from refinecal._core.sample import log_softmax
from refinecal.calibrators import from_dict
from refinecal.calibrators.base import Calibrator
from refinecal.ensembles.members import iterate, read_logs, smooth_logs
from refinecal.evaluation import Difference

FORMAT = 1
WIDTH = 80


@dataclass(frozen=True, repr=False)
class SelectedEnsemble:
    """A weighted pool of models, calibrated; made by :func:`select_ensemble`.

    Attributes
    ----------
    names : tuple of str
        The members that it was chosen from.
    weights : ndarray of shape (m,)
        The weight of each; they sum to 1.
    pool : str
        "arithmetic" (the mean of probabilities) or "geometric" (the mean of log-probabilities).
    members : str
        "raw", or "calibrated": each by its own temperature first.
    betas : ndarray of shape (m,)
        The inverse temperature of each member; 1 if they are raw.
    smoothing : ndarray of shape (m,)
        Members that called an observed label impossible are mixed with the uniform prediction, weighted as
        one row next to this number of rows; 0 for the others.
    calibrator : Calibrator
        Of the pool.
    classes : ndarray
        The label of each column.
    metric : str
        What was optimized.
    path : list of dict
        For each pick its ``member``, the ``value`` of the metric of the pool with it, and ``cv_value``, the
        same by cross-validation (NaN without).
    kinds : list of dict
        Each ``pool`` and ``members`` compared by cross-validation, and the best ``cv_value`` of each.
    choice : str
        "greedy", "bagged", "best single" or "uniform".
    best_single : str
        The member that is best alone.
    gain : Difference
        Log loss of the ensemble minus that of the best member, both calibrated, by cross-validation; negative
        if the ensemble is better.
    table : list of dict
        Each member with its ``refinement``, ``log_loss`` and ``weight``, the best first.
    """

    names: tuple[str, ...]
    weights: NDArray[np.float64]
    pool: str
    members: str
    betas: NDArray[np.float64]
    smoothing: NDArray[np.float64]
    calibrator: Calibrator
    classes: NDArray[Any]
    metric: str
    path: list[dict[str, Any]]
    choice: str
    best_single: str
    gain: Difference
    kinds: list[dict[str, Any]] = field(default_factory=list)
    table: list[dict[str, Any]] = field(default_factory=list)

    # ---- predictions -------------------------------------------------------------------------------------

    def predict_proba(self, stack: Any = None, *, logits: Any = None) -> NDArray[np.float64]:
        """Return the calibrated probabilities ``(n, k)`` of the ensemble for new rows.

        Parameters
        ----------
        stack, logits : array-like of shape (m, n, k), mapping, or iterable
            The predictions of all members in the order of ``names``; or a mapping from names to predictions,
            which only needs those with a positive weight.
        """
        return self.calibrator.predict_proba_logits(self.pool_logits(stack, logits=logits))

    def pool_logits(self, stack: Any = None, *, logits: Any = None) -> NDArray[np.float64]:
        """Return the logits of the pool for new rows, before its calibration."""
        total: Any = None
        needed = self._needed()
        for place, kind, values in self._match(iterate(stack, logits), stack, logits):
            if place not in needed:
                continue
            needed.remove(place)
            n = None if total is None else len(total)
            logs = read_logs(values, kind, n, len(self.classes), None, self.names[place])
            logs = smooth_logs(logs, self.smoothing[place]).astype(np.float64)
            logs = self.betas[place] * logs
            if self.pool == "arithmetic":
                logs = np.exp(log_softmax(logs))
            total = (0 if total is None else total) + self.weights[place] * logs
        if needed:
            raise ValueError(
                f"predictions of {self.names[min(needed)]!r} are missing: it has a weight"
            )
        if self.pool == "arithmetic":
            return np.asarray(np.log(np.maximum(total, np.finfo(np.float32).tiny)))
        return log_softmax(total)

    def _needed(self) -> set[int]:
        return set(np.flatnonzero(self.weights).tolist())

    def _match(self, given: Any, *sources: Any) -> Any:
        """Yield the place of each member with its predictions."""
        count = 0
        named = any(isinstance(one, Mapping) for one in sources)
        for name, kind, values in given:
            if named:
                if name in self.names:
                    yield self.names.index(name), kind, values
            elif count < len(self.names):
                yield count, kind, values
            count += 1
        if not named and count != len(self.names):
            raise ValueError(
                f"stack holds {count} members, but the ensemble was chosen from {len(self.names)}: pass all "
                "in the same order, or a mapping from their names"
            )

    # ---- texts -------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """Return in one line what was chosen."""
        used, m = int(np.count_nonzero(self.weights)), len(self.names)
        if self.choice == "best single":
            return f"{self.best_single} alone"
        which = f"all {m}" if self.choice == "uniform" else f"{used} of {m}"
        return f"{self.choice} {self.pool} pool of {which} members, {self.members}"

    def __repr__(self) -> str:
        width = max(len("member"), *(len(shorten_name(name, 30)) for name in self.names))
        lines = [f"SelectedEnsemble: {shorten_name(self.describe(), 60)}"]
        lines += self._show_kinds()
        lines.append(
            f"  log loss against {shorten_name(self.best_single, 30)}: {self._show_gain()}"
        )
        lines.append(f"  {'member':{width}}  weight  refinement   log loss")
        for row in self.table:
            refinement, loss = format_fixed(row["refinement"]), format_fixed(row["log_loss"])
            name, weight = shorten_name(row["member"], 30), number(row["weight"], 3)
            lines.append(f"  {name:{width}}  {weight:>6}   {refinement}  {loss}")
        return "\n".join(lines)

    def _show_kinds(self) -> list[str]:
        """Return what cross-validation says of each kind of pool."""
        if not self.kinds:
            return []
        values = [
            f"{each['pool']}, {each['members']} {format_fixed(each['cv_value']).strip()}"
            for each in self.kinds
        ]
        name = shorten_name(self.metric, 30)
        lines = [f"  {name} by cross-validation: {'; '.join(values[:1])}"]
        for value in values[1:]:
            if len(lines[-1]) + len(value) + 2 > WIDTH:
                lines.append(f"    {value}")
            else:
                lines[-1] += f"; {value}"
        return lines

    def _show_gain(self) -> str:
        return with_error(self.gain.mean, self.gain.standard_error, sign="+") + " (s.e.)"

    # ---- files -------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists, ready for JSON."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found["classes"] = {"dtype": self.classes.dtype.str, "values": self.classes.tolist()}
        found |= {"gain": self.gain.to_dict(), "calibrator": self.calibrator.to_dict()}
        return {"format": FORMAT, **plain(found)}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """Return the ensemble that :meth:`to_dict` described; no code is executed."""
        try:
            if state["format"] != FORMAT:
                raise ValueError(f"it has format {state['format']!r}, this version reads {FORMAT}")
            given = {key: value for key, value in state.items() if key != "format"}
            for name in ("weights", "betas", "smoothing"):
                given[name] = np.array(given[name], dtype=np.float64)
            classes = given["classes"]
            given["classes"] = np.array(classes["values"], dtype=np.dtype(classes["dtype"]))
            given["names"] = tuple(given["names"])
            gain: Any = {k: np.nan if v is None else v for k, v in given["gain"].items()}
            given["gain"] = Difference(**gain)
            given["calibrator"] = from_dict(given["calibrator"])
            return cls(**given)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"this is not the state of an ensemble, or it is damaged ({error}): pass what to_dict() "
                "returned"
            ) from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write the ensemble as JSON, which :meth:`load` reads."""
        write_json(Path(path), self.to_dict())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the ensemble that :meth:`save` wrote; no code is executed."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
