"""Data sets of the tabular experiment: where they are, and what identifies their content."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from refinecal._core.format import list_names
from refinecal.experiments.tabular.dataset import Dataset, apply_rules, split, split_fold

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Dataset",
    "Source",
    "describe",
    "find_tables",
    "find_talent",
    "openml_sets",
    "split",
    "split_fold",
    "survey",
]


READ_AT_ONCE = 1 << 20  # bytes
PROSE = ".txt"  # in a folder most likely a readme; a table if it is named
MOST_NAMES = 5  # columns that a message names


def tables_in(folder: Path) -> dict[str, Path]:
    """Return the files of a folder that may be tables, by name; or the one file that is given."""
    from refinecal.tabular.files import CODECS, ENDINGS

    if folder.is_file():
        paths = [folder]
    else:
        check_folder(folder)
        endings = tuple(each + codec for each in _usual(ENDINGS) for codec in ("", *CODECS))
        paths = [
            path
            for path in sorted(folder.iterdir())
            if path.name.lower().endswith(endings) and path.is_file() and path.name[0] != "."
        ]
    found: dict[str, Path] = {}
    for path in paths:
        name = path.name
        while Path(name).suffix.lower() in (*ENDINGS, *CODECS):
            name = name[: -len(Path(name).suffix)]
        if name in found:
            raise ValueError(
                f"{found[name]} and {path.name} would both be named {name!r}: rename or remove one of them"
            )
        found[name] = path
    if not found:
        raise ValueError(f"{folder} has no tables: their names end in {', '.join(_usual(ENDINGS))}")
    return found


def _usual(endings: Iterable[str]) -> list[str]:
    return [ending for ending in endings if ending != PROSE]


def check_folder(folder: Path) -> None:
    if folder.is_file():
        raise ValueError(f"{folder} is a file: name the folder that holds the data sets")
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")


def select_sets(paths: dict[str, Path], only: Iterable[str], folder: Path) -> dict[str, Path]:
    from refinecal.tabular.files import nearest

    wanted = list(dict.fromkeys([only] if isinstance(only, str) else only))
    for name in wanted:
        if name not in paths:
            near = nearest(name, paths)
            meant = f" Did you mean {near!r}?" if near else f" There are {list_names(list(paths))}."
            raise ValueError(f"{folder} has no data set {name!r}.{meant}")
    return {name: path for name, path in paths.items() if name in wanted}


def explain_unfit(path: Path, target: str) -> str:
    """Return why a file is not a data set; nothing if it is one."""
    from refinecal.tabular.files import nearest, open_table

    try:
        names = open_table(path).names
    except (OSError, ValueError) as error:
        return str(error)
    if target in names:
        return ""
    near = nearest(target, names)
    more = f"Did you mean {near!r}?" if near else f"It has {list_names(names, MOST_NAMES)}."
    return f"{path} has no column {target!r}. {more}"


def digest_of(kind: str, path: str) -> str:
    """Return a digest of the content; OpenML never changes a data set with a number."""
    if kind == "openml":
        return f"openml {path}"
    place = Path(path)
    files = [place] if kind == "table" else [*sorted(place.glob("*.npy")), place / "info.json"]
    digest = blake2b(digest_size=16)
    for file in files:
        if kind == "talent":
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        with file.open("rb") as stream:
            while piece := stream.read(READ_AT_ONCE):
                digest.update(piece)
    return digest.hexdigest()


Kind = Literal["table", "talent", "openml"]

MIN_ROWS, MAX_ROWS = 1_000, 100_000  # appendix F


@dataclass(frozen=True, slots=True)
class Source:
    """Where a data set is; nothing is read before :meth:`load`."""

    name: str
    kind: Kind
    path: str  # the file, the folder, or OpenML's number
    target: str = "target"  # the column to predict, of a table
    digest: str = ""  # of the content, so that a run does not resume with changed files

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"kind is {self.kind!r}: it must be one of {', '.join(get_args(Kind))}"
            )

    def load(self, min_rows: int = MIN_ROWS, max_rows: int = MAX_ROWS) -> Dataset:
        """Read the set and apply the rules.

        A set with fewer complete rows than ``min_rows`` is refused; of a set with more than ``max_rows``,
        that many are drawn at random.

        Raises
        ------
        ValueError
            If the set is refused, cannot be read, or has changed since it was found.
        """
        if self.kind != "openml" and not Path(self.path).exists():
            raise FileNotFoundError(
                f"{self.path} does not exist on {platform.node()}: the data set {self.name!r} must have the "
                "same path on every machine that trains. If it moved, continue with --resume "
                f"{'--talent' if self.kind == 'talent' else '--data'} NEWFOLDER --retry-failed"
            )
        if self.digest and self.digest != digest_of(self.kind, self.path):
            raise ValueError(
                f"{self.path} has changed since the data set {self.name!r} was found: restore the old file, "
                "or start a new run"
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


# ---- where sets are --------------------------------------------------------------------------------------


Found = tuple[list[Source], dict[str, str]]  # data sets, and by name why others were left out


def find_tables(
    folder: str | Path, target: str = "target", only: Iterable[str] | None = None
) -> Found:
    """Return the tables of a folder that have the target among their columns, and why others do not fit.

    Parameters
    ----------
    folder : str or Path
        A folder with Parquet, CSV, TSV or Feather files; or one such file.
    target : str, default "target"
        The column to predict.
    only : iterable of str, optional
        Names of the sets to use: those of their files without the ending.
    """
    folder = Path(folder)
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


def find_talent(folder: str | Path, only: Iterable[str] | None = None) -> Found:
    """Return the classification sets of a folder in the layout of TALENT, and why others cannot be read.

    Parameters
    ----------
    folder : str or Path
        A folder with one folder for each set, with ``y_*.npy``, ``N_*.npy`` or ``C_*.npy`` or both, in the
        parts train, val and test, and ``info.json``; or one such folder. Regression sets are left out.
    only : iterable of str, optional
        Names of the sets to use: those of their folders.
    """
    from refinecal.experiments.tabular._talent import read_info

    folder = Path(folder)
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
    """Return data sets of OpenML, each with its own default target, named such as "credit-g-31".

    ``which`` has numbers of data sets: 31, [31, 1461] or "31,1461"; or a suite: by its name, "OpenML-CC18",
    or by its number as in its address, "s/99". This needs a network, and so does the first
    :meth:`Source.load` of each set; a ``ConnectionError`` says that OpenML was not reached.
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
    """Return the size of a set, its columns, its classes, the share of the rarest, and what was dropped."""
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
    """Load every set once; return what :func:`describe` returns for usable sets, and why others are not."""
    rows, refused = [], {}
    for source in sources:
        try:
            rows.append(describe(source.load(min_rows, max_rows)))
        except (OSError, ValueError) as error:
            refused[source.name] = str(error)
    return rows, refused
