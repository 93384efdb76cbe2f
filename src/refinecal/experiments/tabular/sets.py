"""Data sets of the tabular experiment: where they are, what is kept of them, and how they are split.

The rules are those of the paper's appendix F, and the same for every set: rows with a missing number are left
out, a missing category is a category of its own, sets of fewer than 1 000 rows are refused, and of more than
100 000 rows that many are drawn at random, not by class, with a fixed seed. Besides, rows without a label are
left out, as are columns that :class:`refinecal.tabular.schema.Schema` does not use, such as constant ones.
"""

from __future__ import annotations  # so that help() shows types by name

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from refinecal._core.errors import warn
from refinecal._core.format import list_names
from refinecal.experiments.tabular._finding import (
    check_folder,
    digest_of,
    explain_unfit,
    select_sets,
    tables_in,
)
from refinecal.experiments.tabular._rules import Dataset, apply_rules
from refinecal.experiments.tabular._splits import split

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Dataset",
    "Source",
    "describe",
    "find_sets",
    "openml_sets",
    "split",
    "survey",
    "talent_sets",
]

Kind = Literal["table", "talent", "openml"]

MIN_ROWS, MAX_ROWS = 1_000, 100_000  # appendix F


@dataclass(frozen=True, slots=True)
class Source:
    """Where a data set is; nothing is read before :meth:`load`.

    Attributes
    ----------
    name : str
    kind : {"table", "talent", "openml"}
    path : str
        The file, the folder, or OpenML's number.
    target : str
        The column to predict, of a table.
    digest : str
        Another one for another content, so that a run does not go on with files that were changed.
    """

    name: str
    kind: Kind
    path: str
    target: str = "target"
    digest: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"kind is {self.kind!r}, but must be one of {', '.join(get_args(Kind))}"
            )

    def load(self, min_rows: int = MIN_ROWS, max_rows: int = MAX_ROWS) -> Dataset:
        """Read the set and apply the rules.

        Parameters
        ----------
        min_rows : int, default 1000
            A set with fewer complete rows is refused.
        max_rows : int, default 100000
            Of more complete rows, so many are drawn at random.

        Returns
        -------
        Dataset

        Raises
        ------
        ValueError
            If the set is refused, cannot be read, or has another content than when it was found.
        """
        if min(min_rows, max_rows) < 1:
            raise ValueError(
                f"min_rows is {min_rows} and max_rows {max_rows}: both must be 1 or more"
            )
        if self.kind != "openml" and not Path(self.path).exists():
            raise FileNotFoundError(
                f"{self.path} is not there on {platform.node()}: the data set {self.name!r} must be at the "
                "same place on every machine that trains. If it moved, go on with --resume "
                f"{'--talent' if self.kind == 'talent' else '--data'} NEWFOLDER --retry-failed"
            )
        if self.digest and self.digest != digest_of(self.kind, self.path):
            raise ValueError(
                f"{self.path} was changed since the data set {self.name!r} was found: put the old file back, "
                "or begin a new run"
            )
        table, target, lists = self._read()
        return apply_rules(self.name, table, target, lists, min_rows, max_rows)

    def _read(self) -> tuple[pa.Table, str, dict[str, list[str]]]:
        """Return all rows, the name of the target, and the columns whose kind is known."""
        if self.kind == "table":
            from refinecal.tabular.files import open_table

            return open_table(self.path).read(), self.target, {}
        if self.kind == "talent":
            from refinecal.experiments.tabular import _talent

            table, numeric, categorical = _talent.read_talent(Path(self.path))
            return table, _talent.TARGET, {"numeric": numeric, "categorical": categorical}
        from refinecal.experiments.tabular import _openml

        return _openml.read_openml(int(self.path)), _openml.TARGET, {}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as texts, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the source that :meth:`to_dict` stored."""
        known = {field.name for field in fields(cls)}
        if not {"name", "kind", "path"} <= set(state) <= known:
            raise ValueError(
                f"a data set is stored with {', '.join(sorted(known))}, not {list_names(sorted(state))}"
            )
        return cls(**state)


# ---- where sets are --------------------------------------------------------------------------------------


def find_sets(
    folder: str | Path, target: str = "target", only: Iterable[str] | None = None
) -> list[Source]:
    """Return the tables of a folder that have the target among their columns, by name.

    Parameters
    ----------
    folder : str or Path
        A folder with Parquet, CSV, TSV or Feather files; or one such file. Tables without the target, and
        files that cannot be read, are left out with a warning.
    target : str, default "target"
        The column to predict.
    only : iterable of str, optional
        The names of the sets to take, which are those of their files without the ending.

    Returns
    -------
    list of Source
    """
    return _warn_left_out(tables_of(Path(folder), target, only))


def tables_of(
    folder: Path, target: str, only: Iterable[str] | None
) -> tuple[list[Source], dict[str, str]]:
    """Return what :func:`find_sets` does, and by name why other tables were left out."""
    paths = tables_in(folder)
    if only is not None:
        paths = select_sets(paths, only, folder)
    found, left_out = [], {}
    for name, path in paths.items():
        why = explain_unfit(path, target)
        if why:
            left_out[name] = why
        else:
            digest = digest_of("table", str(path))
            found.append(Source(name, "table", str(path.absolute()), target, digest))
    if not found:
        why = "\n  ".join(["", *list(left_out.values())[:5]])
        raise ValueError(f"{folder} has no table with the target {target!r}:{why}")
    return found, left_out


def _warn_left_out(found: tuple[list[Source], dict[str, str]]) -> list[Source]:
    sources, left_out = found
    for why in left_out.values():
        warn(f"left out: {why}")
    return sources


def talent_sets(folder: str | Path, only: Iterable[str] | None = None) -> list[Source]:
    """Return the classification sets of a folder in the layout of the TALENT benchmark, by name.

    Parameters
    ----------
    folder : str or Path
        A folder with one folder for each set, in which are ``y_*.npy``, ``N_*.npy`` or ``C_*.npy`` or both,
        in the parts train, val and test, and ``info.json``; or one such folder. Regression sets are left out,
        as are, with a warning, those whose ``info.json`` cannot be read.
    only : iterable of str, optional
        The names of the sets to take, which are those of their folders.

    Returns
    -------
    list of Source
    """
    return _warn_left_out(talent_in(Path(folder), only))


def talent_in(folder: Path, only: Iterable[str] | None) -> tuple[list[Source], dict[str, str]]:
    """Return what :func:`talent_sets` does, and by name why other sets were left out."""
    from refinecal.experiments.tabular._talent import read_info

    check_folder(folder)
    inside = [folder] if (folder / "info.json").exists() else sorted(folder.iterdir())
    paths = {path.absolute().name: path for path in inside if (path / "info.json").exists()}
    if not paths:
        raise ValueError(
            f"{folder} has no folders with an info.json: it is not in the layout of TALENT"
        )
    if only is not None:
        paths = select_sets(paths, only, folder)
    found, left_out = [], {}
    for name, path in paths.items():
        try:
            if read_info(path)["task_type"] != "regression":
                digest = digest_of("talent", str(path))
                found.append(Source(name, "talent", str(path.absolute()), "y", digest))
        except (OSError, ValueError) as error:
            left_out[name] = str(error)
    if not found:
        raise ValueError(
            "; ".join(list(left_out.values())[:5])
            or f"{folder} has only regression sets: refinecal predicts classes"
        )
    return found, left_out


def openml_sets(which: str | int | Sequence[int]) -> list[Source]:
    """Return data sets of OpenML, each with its own default target.

    Parameters
    ----------
    which : str, int or sequence of int
        Numbers of data sets: 31, [31, 1461] or "31,1461"; or a suite of them: by its name, "OpenML-CC18", or
        by its number as in its address, "s/99".

    Returns
    -------
    list of Source
        Called by their names and numbers, such as "credit-g-31".

    Raises
    ------
    ConnectionError
        If OpenML is not reached.

    Notes
    -----
    A network is needed here, and for the first :meth:`Source.load` of each set.
    """
    from refinecal.experiments.tabular import _openml

    ids = _numbers(which)
    if ids is None:
        ids = _openml.suite_ids(str(which).strip().removeprefix("s/"))
    names = _openml.names_of(ids)
    return [
        Source(f"{names[i]}-{i}", "openml", str(i), _openml.TARGET, digest_of("openml", str(i)))
        for i in ids
    ]


def _numbers(which: str | int | Sequence[int]) -> list[int] | None:
    """Return numbers of data sets, each once; ``None`` if a suite is named."""
    if isinstance(which, str):
        if which.strip() and "," not in which and not which.strip().isdecimal():
            return None
        texts = [text.strip() for text in which.split(",")]
    else:
        texts = [str(each) for each in ([which] if isinstance(which, int) else which)]
    if not texts or not all(text.isdecimal() and int(text) for text in texts):
        raise ValueError(
            f"{which!r} names no data sets of OpenML: give their numbers, such as 31,1461, or a suite by its "
            "name, OpenML-CC18, or its number, s/99"
        )
    return list(dict.fromkeys(map(int, texts)))


# ---- what there is ---------------------------------------------------------------------------------------


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return one row about a set: its size, its columns, its classes, and what was left out.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    dict
        ``minority`` is the part of the rows that the rarest class has.
    """
    categorical = len(dataset.X.select_dtypes("category").columns)
    return {
        "set": dataset.name,
        "rows": len(dataset.y),
        "numeric": dataset.X.shape[1] - categorical,
        "categorical": categorical,
        "classes": len(dataset.classes),
        "minority": float(np.bincount(dataset.y).min() / len(dataset.y)),
        **{what: dataset.dropped[what] for what in ("unlabelled", "missing_numbers", "subsampled")},
        "columns_left_out": len(dataset.dropped["columns"]),
    }


def survey(
    sources: Iterable[Source], min_rows: int = MIN_ROWS, max_rows: int = MAX_ROWS
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Load every set once; return what :func:`describe` says of those of use, and why the others are not.

    Parameters
    ----------
    sources : iterable of Source
    min_rows, max_rows : int
        As for :meth:`Source.load`.

    Returns
    -------
    rows : list of dict
    refused : dict
        The reasons by the names of the sets.
    """
    rows, refused = [], {}
    for source in sources:
        try:
            rows.append(describe(source.load(min_rows, max_rows)))
        except (OSError, ValueError) as error:
            refused[source.name] = str(error)
    return rows, refused
