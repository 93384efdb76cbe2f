"""The metrics of a model's predictions, as a table and as JSON."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

from refinecal._core.files import plain
from refinecal._core.format import format_beta, format_fixed, shorten_name
from refinecal.decomposition import TERMS, Decomposition

CONFIDENCE = ("overconfidence", "underconfidence")
NUMBERS = ("beta", "accuracy", "auroc", "ece", *CONFIDENCE, "smooth_ece")
MOST_LINES = 20  # of classes or groups to print


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """Metrics of one class.

    Weighted by the shares, losses and their terms add up to those of all classes.

    Attributes
    ----------
    label : object
        Its name.
    n : int
        Number of rows with this label (soft labels: rows where it is the likeliest).
    share : float
        Weighted share of the rows.
    mean_probability : float
        Its mean predicted probability.
    recall : float
        Share of its rows where it is the likeliest class; NaN without rows.
    auroc, ece : float
        One-vs-rest area under the ROC curve, and calibration error in 15 bins of equal width.
    log_loss : float
        Mean log loss of its rows.
    refinement : float
        The same after calibration by the calibrator of all classes.
    """

    label: Any
    n: int
    share: float
    mean_probability: float
    recall: float
    auroc: float
    ece: float
    log_loss: float
    refinement: float = math.nan

    @property
    def calibration(self) -> float:
        """How much calibration lowers the log loss of its rows: negative if other classes gain from it."""
        equal = self.log_loss == self.refinement  # both may be infinite
        return 0.0 if equal else self.log_loss - self.refinement

    @property
    def uncertainty(self) -> float:
        """The log loss of its rows if only the shares of the classes are known."""
        return -math.log(self.share) if self.share > 0 else math.inf

    @property
    def part(self) -> float:
        """Its part of the total log loss: ``share * log_loss``."""
        return self.share * self.log_loss if self.share > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON; numbers that are not finite become ``None``."""
        more = {name: getattr(self, name) for name in ("calibration", "uncertainty", "part")}
        found: dict[str, Any] = plain(asdict(self) | more)
        return found


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All metrics of one model's predictions.

    Attributes
    ----------
    n, k : int
        Number of rows and of classes.
    classes : tuple
        The name of each column.
    log, brier : Decomposition
        The decompositions of log loss and Brier score, both with the calibrator that is fitted by log loss.
    accuracy : float
        Share of rows whose likeliest class is the label.
    auroc : float
        Area under the ROC curve; for several classes the one-vs-rest mean.
    ece : float
        Calibration error in 15 bins of equal width: of the second of two classes, else of the likeliest.
    overconfidence, underconfidence : float
        The two parts of ``ece``.
    smooth_ece : float
        Smooth calibration error, which needs no bins.
    per_class : tuple of ClassSummary
    groups : dict of str to Evaluation
        The evaluation of each group, each with its own calibrator.
    n_effective : float
        Kish's effective sample size.
    """

    n: int
    k: int
    classes: tuple[Any, ...]
    log: Decomposition
    brier: Decomposition
    accuracy: float
    auroc: float
    ece: float
    overconfidence: float
    underconfidence: float
    smooth_ece: float
    per_class: tuple[ClassSummary, ...]
    groups: dict[str, Evaluation] = field(default_factory=dict)
    n_effective: float = math.nan

    @property
    def beta(self) -> float | None:
        """Inverse temperature, if the calibrator is temperature scaling."""
        return self.log.beta

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON; numbers that are not finite become ``None``."""
        numbers = {name: getattr(self, name) for name in ("n", "k", "classes")}
        for loss in ("log", "brier"):
            numbers[loss] = {term: getattr(getattr(self, loss), term) for term in TERMS}
        found: dict[str, Any] = plain(numbers | {name: getattr(self, name) for name in NUMBERS})
        found["per_class"] = [one.to_dict() for one in self.per_class]
        if self.groups:
            found["groups"] = {name: one.to_dict() for name, one in self.groups.items()}
        return found

    def __repr__(self) -> str:
        lines = [f"Evaluation of {self.n} rows, {self.k} classes", *_terms(self), *_metrics(self)]
        classes = [(str(one.label), one) for one in self.per_class]
        lines += _table("class", classes, CLASS_COLUMNS)
        if self.groups:
            lines += _table("group", list(self.groups.items()), GROUP_COLUMNS)
        return "\n".join(lines)


# ---- as text ---------------------------------------------------------------------------------------------

CLASS_COLUMNS = {  # attributes by heading
    "share": "share",
    "recall": "recall",
    "AUROC": "auroc",
    "ECE": "ece",
    "log loss": "log_loss",
    "refin.": "refinement",
}
GROUP_COLUMNS = {
    "log loss": "log.risk",
    "calibr.": "log.calibration",
    "refinem.": "log.refinement",
    "accuracy": "accuracy",
    "AUROC": "auroc",
    "ECE": "ece",
}


def _terms(found: Evaluation) -> list[str]:
    lines = [f"  {'':<14}{'log loss':>10}{'Brier':>10}"]
    signs = {"calibration": "= ", "refinement": "+ "}
    for term in TERMS:
        name = signs.get(term, "") + term
        values = (getattr(parts, term) for parts in (found.log, found.brier))
        lines.append(f"  {name:<14}" + "".join(f" {format_fixed(value)}" for value in values))
    return lines


def _metrics(found: Evaluation) -> list[str]:
    values = {
        "accuracy": found.accuracy,
        "AUROC": found.auroc,
        "ECE": found.ece,
        "smooth ECE": found.smooth_ece,
    }
    known = {} if found.beta is None else {"beta": format_beta(found.beta)}
    known |= {name: f"{value:.4g}" for name, value in values.items()}
    parts = (
        f"of the ECE, {found.overconfidence:.4g} is overconfidence, "
        f"{found.underconfidence:.4g} underconfidence"
    )
    return ["  " + ", ".join(f"{name} {value}" for name, value in known.items()), f"  {parts}"]


def _table(first: str, rows: Sequence[tuple[str, Any]], columns: Mapping[str, str]) -> list[str]:
    """Return one line per named row, at most 80 characters wide."""
    lines = [f"  {first:<12}{'rows':>10}" + "".join(f"{title:>9}" for title in columns)]
    for name, row in rows[:MOST_LINES]:
        values = (attrgetter(path)(row) for path in columns.values())
        numbers = (f"{value:.4f}" if not abs(value) >= 1000 else f"{value:.2g}" for value in values)
        cells = "".join(f"{number:>9}" for number in numbers)
        lines.append(f"  {shorten_name(name, 12):<12}{row.n:>10}{cells}")
    if len(rows) > MOST_LINES:
        lines.append(f"  ... and {len(rows) - MOST_LINES} more")
    return lines
