"""The ensemble that was chosen: its weights, its calibrator, and how it came about."""

from __future__ import annotations  # so that help() shows types by name

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.files import plain, write_json
from refinecal._core.format import format_fixed, number, shorten_name, with_error
from refinecal._core.sample import log_softmax, mix_with_uniform
from refinecal.calibrators import from_dict
from refinecal.calibrators.base import Calibrator
from refinecal.ensembles.members import Given, iterate, naming, read_logs
from refinecal.evaluation import Difference

if TYPE_CHECKING:
    from refinecal.plots import EnsemblePathDisplay

FORMAT = 1
POOLS = ("arithmetic", "geometric")
TREATMENTS = ("raw", "calibrated")
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
        For each pick its ``member``, the ``value`` of the metric of the pool with it, ``cv_value``, the same
        by cross-validation (NaN without), and whether it is ``used``.
    kinds : list of dict
        Each ``pool`` and ``members`` compared by cross-validation, and the best ``cv_value`` of each, which
        is optimistic as the best of many.
    choice : str
        "greedy", "bagged", "best single" or "uniform".
    best_single : str
        The member that is best alone.
    log_loss : float
        Of the ensemble, after temperature scaling (whatever ``calibrator`` is), by cross-validation: for each
        fold, the members, the kind of pool and the number of picks are those that are best by ``metric`` on
        the other folds. Without cross-validation, on the rows given.
    gain : Difference
        This log loss minus that of the best member, chosen and scaled likewise; negative if the ensemble is
        better, and 0 if it is that member.
    table : list of dict
        Each member with its ``refinement``, ``log_loss`` and ``weight``, the best first.
    columns : list of (list of str or None)
        The names of the columns of each member that was a table, in the order of the classes.
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
    log_loss: float
    gain: Difference
    kinds: list[dict[str, Any]] = field(default_factory=list)
    table: list[dict[str, Any]] = field(default_factory=list)
    columns: list[list[str] | None] = field(default_factory=list)

    # ---- predictions -------------------------------------------------------------------------------------

    def predict_proba(self, stack: Any = None, *, logits: Any = None) -> NDArray[np.float64]:
        """Return the calibrated probabilities ``(n, k)`` of the ensemble for new rows.

        Parameters
        ----------
        stack, logits : array-like of shape (m, n, k), mapping, or iterable
            The predictions of all members in the order of ``names``; or a mapping from names to predictions,
            which only needs those with a positive weight. Columns of tables may be in any order, but must
            have the names that they had.
        """
        return self.calibrator.predict_proba_logits(self.pool_logits(stack, logits=logits))

    def pool_logits(self, stack: Any = None, *, logits: Any = None) -> NDArray[np.float64]:
        """Return the logits of the pool for new rows, before its calibration."""
        total: Any = None
        needed = set(np.flatnonzero(self.weights).tolist())
        for place, one in self._places(iterate(stack, logits)):
            if place not in needed:
                continue
            needed.remove(place)
            n = None if total is None else len(total)
            columns = self.columns[place] if self.columns else None
            with naming(self.names[place], one.kind):
                logs = read_logs(one.values, one.kind, n, len(self.classes), columns, strict=True)
            logs = mix_with_uniform(logs, self.smoothing[place]).astype(np.float64)
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

    def _places(self, given: Iterable[Given]) -> Iterator[tuple[int, Given]]:
        """Yield the place of each member with its predictions."""
        places = {name: place for place, name in enumerate(self.names)}
        count = 0
        for one in given:
            if one.name is None:
                yield count, one
                count += 1
            elif one.name in places:
                yield places[one.name], one
        if count not in (0, len(self.names)):
            raise ValueError(
                f"stack holds {count} members, but the ensemble was chosen from {len(self.names)}: pass all "
                "in the same order, or a mapping from their names"
            )

    # ---- texts -------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """Return in one line what was chosen."""
        used, m = int(np.count_nonzero(self.weights)), len(self.names)
        if self.choice == "best single":
            return f"{shorten_name(self.best_single, 30)} alone"
        which = f"all {m}" if self.choice == "uniform" else f"{used} of {m}"
        return f"{self.choice} {self.pool} pool of {which} members, {self.members}"

    def __repr__(self) -> str:
        width = max(len("member"), *(len(shorten_name(name, 30)) for name in self.names))
        lines = [f"SelectedEnsemble: {self.describe()}"]
        lines += self._show_kinds()
        gain = with_error(self.gain.mean, self.gain.standard_error, sign="+")
        best = shorten_name(self.best_single, 20)
        lines.append(f"  log loss {number(self.log_loss, 4)}; against {best} {gain} (s.e.)")
        rows = "by cross-validation" if self.kinds else "on the rows given"
        lines.append(f"    (after temperature scaling, {rows})")
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

    # ---- files -------------------------------------------------------------------------------------------

    def plot(self, ax: Any = None) -> EnsemblePathDisplay:
        """Plot the metric after each pick, on the rows that choose and by cross-validation.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default a new figure.
        """
        from refinecal.plots import EnsemblePathDisplay

        return EnsemblePathDisplay.from_ensemble(self, ax)

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
            for name in ("path", "kinds", "table"):
                given[name] = [_with_nan(each) for each in given[name]]
            given["log_loss"] = np.nan if given["log_loss"] is None else given["log_loss"]
            given["gain"] = Difference(**_with_nan(given["gain"]))
            given["calibrator"] = from_dict(given["calibrator"])
            found = cls(**given)
            found._check()
            return found
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ValueError(
                f"this is not the state of an ensemble, or it is damaged ({error}): pass what to_dict() "
                "returned"
            ) from error

    def _check(self) -> None:
        """Raise for an inconsistent state now, not in a later prediction."""
        m = (len(self.names),)
        for name in ("weights", "betas", "smoothing"):
            values = getattr(self, name)
            if values.shape != m or not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{name} must be {m[0]} finite numbers of at least 0")
        if abs(self.weights.sum() - 1) > 1e-6:
            raise ValueError("weights must sum to 1")
        if self.pool not in POOLS or self.members not in TREATMENTS:
            raise ValueError(f"there is no {self.pool!r} pool of {self.members!r} members")
        if (
            self.columns
            and [len(each or self.classes) for each in self.columns] != [len(self.classes)] * m[0]
        ):
            raise ValueError("columns must name those of each class, for each member")
        if self.calibrator.classes_.tolist() != self.classes.tolist():
            raise ValueError("the calibrator has other classes")
        repr(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the ensemble as JSON, which :meth:`load` reads."""
        write_json(Path(path), self.to_dict())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the ensemble that :meth:`save` wrote; no code is executed."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not the file of an ensemble: {error}") from error


def _with_nan(step: dict[str, Any]) -> dict[str, Any]:
    """Return a record with NaN where JSON has nothing."""
    return {name: np.nan if value is None else value for name, value in step.items()}
