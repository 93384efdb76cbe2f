"""Tables of metrics, one row per class or per group."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Unpack, overload

from refinecal._core.checks import check_keywords
from refinecal._core.files import plain
from refinecal._core.format import shorten_name
from refinecal.metrics.events import Inputs

if TYPE_CHECKING:
    from refinecal.evaluation import Evaluation

NAME_WIDTH, WIDTH = 16, 80


class MetricTable(Sequence[dict[str, Any]]):
    """Rows of metrics, each a dictionary with the same keys; the first names the row.

    Convert it with ``pandas.DataFrame(table)`` or ``polars.DataFrame(list(table))``.

    Examples
    --------
    >>> import refinecal as rc
    >>> table = rc.metrics.per_group([0, 1, 1, 1], [0.2, 0.9, 0.6, 0.4], by=["a", "a", "b", "b"])
    >>> [row["accuracy"] for row in table]
    [1.0, 0.5]
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> MetricTable: ...
    def __getitem__(self, place: int | slice) -> dict[str, Any] | MetricTable:
        """Return one row, or several as a table."""
        if isinstance(place, slice):
            return MetricTable(self._rows[place])
        return self._rows[place]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetricTable) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]

    @property
    def columns(self) -> list[str]:
        """The keys of every row."""
        return list(self._rows[0]) if self._rows else []

    def to_dict(self) -> dict[str, list[Any]]:
        """Return plain JSON, one list per column; numbers that are not finite become ``None``."""
        columns = {name: [row[name] for row in self] for name in self.columns}
        return {
            name: plain([one.item() if hasattr(one, "item") else one for one in values])
            for name, values in columns.items()
        }

    def __repr__(self) -> str:
        """Return the table as text, wrapped to the width of a terminal."""
        if not self._rows:
            return "MetricTable without rows"
        columns = [[name, *(_text(row[name]) for row in self)] for name in self.columns]
        first = _align([shorten_name(cell, NAME_WIDTH) for cell in columns[0]], "<")
        blocks = [first]
        for column in columns[1:]:
            cells = _align(column, ">")
            if len(blocks[-1][0]) + 2 + len(cells[0]) > WIDTH:
                blocks.append(first)
            blocks[-1] = ["  ".join(pair) for pair in zip(blocks[-1], cells, strict=True)]
        return "\n\n".join("\n".join(block) for block in blocks)


def _align(cells: list[str], side: str) -> list[str]:
    width = max(map(len, cells))
    return [f"{cell:{side}{width}}" for cell in cells]


@check_keywords(Inputs)
def per_class(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> MetricTable:
    """Return metrics of each class.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

    Returns
    -------
    MetricTable
        With ``label``, ``n``, ``share``, ``mean_probability``, ``recall``, ``auroc``, ``ece``, ``log_loss``,
        ``refinement``, ``calibration``, ``uncertainty`` and ``part``, as in
        :class:`refinecal.evaluation.ClassSummary`: ``auroc`` and ``ece`` are one-vs-rest; the terms are those
        of the rows of the class, weighted by ``share`` they add up to the terms of all rows, as the parts add
        up to the log loss.

    Examples
    --------
    >>> import refinecal as rc
    >>> table = rc.metrics.per_class(["no", "yes", "yes", "yes"], [0.2, 0.9, 0.6, 0.4])
    >>> [(row["label"], row["n"], row["recall"]) for row in table]
    [('no', 1, 1.0), ('yes', 3, 0.6666666666666666)]
    """
    found = _evaluation(y_true, probs, inputs).per_class
    more = ("calibration", "uncertainty", "part")
    return MetricTable([asdict(one) | {name: getattr(one, name) for name in more} for one in found])


@check_keywords(Inputs)
def per_group(y_true: Any, probs: Any = None, *, by: Any, **inputs: Unpack[Inputs]) -> MetricTable:
    """Return metrics of each group of rows, such as hospitals, regions or months.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    by : array-like
        The group of each row; rows with a missing value are a group too.

    Returns
    -------
    MetricTable
        With ``group``, ``n``, ``log_loss`` and its ``calibration`` and ``refinement``, ``beta``, ``brier``,
        ``accuracy``, ``auroc``, ``ece``, ``overconfidence``, ``underconfidence`` and ``smooth_ece``. The
        temperature is fitted to each group separately.

    Examples
    --------
    >>> import refinecal as rc
    >>> table = rc.metrics.per_group([0, 1, 1, 1], [0.2, 0.9, 0.6, 0.4], by=["a", "a", "b", "b"])
    >>> [(row["group"], row["n"], row["accuracy"]) for row in table]
    [('a', 2, 1.0), ('b', 2, 0.5)]
    """
    groups = _evaluation(y_true, probs, inputs, by).groups
    return MetricTable([_of_group(name, one) for name, one in groups.items()])


def _evaluation(y_true: Any, probs: Any, inputs: Inputs, by: Any = None) -> Evaluation:
    from refinecal.evaluation import evaluate  # which needs the metrics itself

    return evaluate(y_true, probs, **inputs, by=by)


def _of_group(name: str, found: Evaluation) -> dict[str, Any]:
    of_log = {"log_loss": found.log.risk, "calibration": found.log.calibration}
    of_log["refinement"] = found.log.refinement
    names = ("ece", "overconfidence", "underconfidence", "smooth_ece")
    return {
        "group": name,
        "n": found.n,
        **of_log,
        "beta": found.beta,
        "brier": found.brier.risk,
        "accuracy": found.accuracy,
        "auroc": found.auroc,
        **{each: getattr(found, each) for each in names},
    }


def _text(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
