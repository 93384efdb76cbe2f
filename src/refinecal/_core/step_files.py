"""Stored predictions, read one step at a time: .npz, safetensors, Parquet. No pickle is loaded."""

import glob
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refinecal._core.arrays import Array
from refinecal._core.errors import needs_extra

SUFFIXES = (".npz", ".safetensors", ".parquet")
LABELS = ("y", "labels", "target", "y_true", "y_val", "label")
WEIGHTS = ("sample_weight",)
MODELS = ("models", "model_names", "members")
STEPS = ("step", "steps", "epoch", "epochs", "iteration", "round")


class Stage(NamedTuple):
    """The predictions of one step, with labels and weights if the file has them."""

    step: int
    kind: str  # "probs" or "logits"
    predictions: Any
    labels: Any
    weights: Any
    path: Path  # for messages


class Layout(NamedTuple):
    """The user's description of the files."""

    kind: str | None = None
    target: str | None = None
    columns: Sequence[str] | None = None
    step_column: str | None = None
    otherwise: str | None = None  # what predictions are if neither kind nor names say so

    def find_labels(self, names: Iterable[str]) -> str | None:
        """Return the name of the labels, or ``None``."""
        return _first(LABELS if self.target is None else (self.target,), names)

    def find_predictions(self, names: Iterable[str]) -> tuple[list[str], str]:
        """Return the names of the predictions and their kind; logits are preferred if there are both."""
        known = (self.target, self.step_column, *LABELS, *WEIGHTS, *STEPS, *MODELS)
        names = [name for name in names if name not in known]
        kinds = {kind_of(name) for name in names} - {None}
        kind = self.kind or _first(("logits", "probs"), kinds) or self.otherwise
        if not names:
            raise ValueError(
                "there are no predictions: save them under the name 'logits' or 'probs'"
            )
        if kind is None:
            raise ValueError(
                f"the names {names} do not say whether these are logits or probabilities: pass "
                "kind='logits' or kind='probs'"
            )
        if kinds and kind not in kinds:
            raise ValueError(f"kind is {kind!r}, but the names say otherwise: {names}")
        return [name for name in names if not kinds or kind_of(name) == kind], kind


def kind_of(name: str) -> str | None:
    """Return whether a name means logits or probabilities.

    >>> kind_of("val_logits/3"), kind_of("prob_cat"), kind_of("epoch_3")
    ('logits', 'probs', None)
    """
    name = name.lower()
    return "logits" if "logit" in name else "probs" if "prob" in name else None


def _first(wanted: Iterable[str], names: Iterable[Any]) -> str | None:
    return next((name for name in wanted if name in names), None)


# ---- which files -----------------------------------------------------------------------------------------


def read_stages(files: Any, layout: Layout) -> Iterator[Stage]:
    """Yield the stages of all files, in the order of their steps."""
    for path in sort_by_step(find_files(files)):
        yield from read_file(path, layout)


def read_file(path: Path, layout: Layout) -> Iterator[Stage]:
    """Yield the stages of one file."""
    if path.suffix == ".parquet":
        yield from _read_parquet(path, layout)
        return
    with _open_archive(path) as archive:
        yield from _read_archive(archive, path, layout)


def read_names(path: Path) -> list[str]:
    """Return the names of the models of an archive, or nothing."""
    if path.suffix == ".parquet":
        return []
    with _open_archive(path) as archive:
        name = _first(MODELS, archive.shapes)
        return [] if name is None else [str(each) for each in archive.read(name).reshape(-1)]


def find_files(files: Any) -> list[Path]:
    """Return the files of a folder, a pattern or a list."""
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths = [path for one in given for path in _expand(os.fspath(one))]
    if not paths:
        raise ValueError("files is empty: pass at least one file, a folder or a pattern")
    for path in paths:
        if path.suffix not in SUFFIXES:
            raise ValueError(
                f"{path} ends in {path.suffix!r}: it must end in {', '.join(SUFFIXES)}, for example "
                "written by numpy.savez(path, logits=z, y=labels)"
            )
    return paths


def sort_by_step(paths: list[Path]) -> list[Path]:
    """Return files in the order of the step in their names or in the files."""
    if len(paths) == 1:
        return paths
    steps: dict[int, Path] = {}
    for path in paths:
        step = step_in(path.stem)
        if step is None and path.suffix != ".parquet":
            with _open_archive(path) as archive:
                step = _find_step(archive)
        if step is None:
            raise ValueError(
                f"{path} has no number in its name: name it after its step, as in epoch_12.npz, or save the "
                "step in it, as in numpy.savez(path, logits=z, epoch=12)"
            )
        if step in steps:
            raise ValueError(f"{steps[step]} and {path} are both step {step}: keep one of them")
        steps[step] = path
    return [steps[step] for step in sorted(steps)]


def _expand(one: str) -> list[Path]:
    path = Path(one)
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if not found:
            raise FileNotFoundError(
                f"the folder {path} holds no file that ends in {', '.join(SUFFIXES)}"
            )
        return found
    if path.exists():
        return [path]
    found = sorted(Path(file) for file in glob.glob(one, recursive=True))
    if not found:
        raise FileNotFoundError(f"{one} does not exist: pass a file, a folder, or a pattern with *")
    return found


def step_in(name: str) -> int | None:
    """Return the last number in a name.

    >>> step_in("run2_epoch_012"), step_in("logits")
    (12, None)
    """
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers else None


@contextmanager
def _name_file(path: Path, *damage: type[Exception]) -> Iterator[None]:
    """Add the file to errors; the given exceptions mean that it is damaged."""
    try:
        yield
    except damage as error:
        raise ValueError(f"{path} cannot be read ({error}): is the file complete?") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


# ---- archives of arrays: .npz and safetensors ------------------------------------------------------------


class _Npz:
    """Arrays by name, read on demand."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self.file = file
        names = [name[:-4] for name in file.namelist() if name.endswith(".npy")]
        self.shapes = {}
        for name in names:
            with file.open(f"{name}.npy") as stream:
                self.shapes[name] = _read_header(stream, name)[0]

    def read(self, name: str) -> Array:
        """Return a whole array."""
        with self.file.open(f"{name}.npy") as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))

    def entries(self, name: str) -> Iterator[Array]:
        """Yield the entries along the first axis, one at a time in memory."""
        with self.file.open(f"{name}.npy") as stream:
            shape, by_columns, dtype = _read_header(stream, name)
            if by_columns:  # the entries are interleaved
                yield from self.read(name)
                return
            size = dtype.itemsize * math.prod(shape[1:])
            for _ in range(shape[0]):
                yield np.frombuffer(stream.read(size), dtype).reshape(shape[1:])


def _read_header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and dtype."""
    form = np.lib.format
    old = form.read_magic(stream) == (1, 0)
    read = form.read_array_header_1_0 if old else form.read_array_header_2_0
    shape, by_columns, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError(
            f"the array {name!r} holds Python objects, which need pickle, and pickle may run code: save "
            "numbers or strings, such as labels.astype(str)"
        )
    return shape, by_columns, dtype


class _Safetensors:
    """The same for safetensors."""

    def __init__(self, file: Any) -> None:
        self.file = file
        names = file.keys()  # not a mapping
        self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}

    def read(self, name: str) -> Array:
        self._check(name)
        return np.asarray(self.file.get_tensor(name))

    def entries(self, name: str) -> Iterator[Array]:
        self._check(name)
        return (self.file.get_slice(name)[entry] for entry in range(self.shapes[name][0]))

    def _check(self, name: str) -> None:
        if self.file.get_slice(name).get_dtype() == "BF16":
            raise ValueError(
                f"the array {name!r} is bfloat16, which NumPy lacks: save it as float32"
            )


Archive = _Npz | _Safetensors


@contextmanager
def _open_archive(path: Path) -> Iterator[Archive]:
    if path.suffix == ".npz":
        damage = (zipfile.BadZipFile, zlib.error, EOFError)
        with _name_file(path, *damage), zipfile.ZipFile(path) as npz:
            yield _Npz(npz)
        return
    with needs_extra("safetensors", package="safetensors"):
        from safetensors import SafetensorError, safe_open
    with _name_file(path, SafetensorError), safe_open(path, framework="numpy") as tensors:
        yield _Safetensors(tensors)


def _find_step(archive: Archive) -> int | None:
    """Return the step that is stored with the predictions of one step."""
    name = _first(STEPS, archive.shapes)
    if name is None or archive.shapes[name]:
        return None
    found = archive.read(name)
    return int(found) if found.dtype.kind in "iu" else None


def _read_archive(archive: Archive, path: Path, layout: Layout) -> Iterator[Stage]:
    shapes = archive.shapes
    labels, weights, steps = (
        None if name is None else archive.read(name)
        for name in (layout.find_labels(shapes), _first(WEIGHTS, shapes), _first(STEPS, shapes))
    )
    about = (labels, weights, path)
    names, kind = layout.find_predictions(shapes)
    by_step = {} if kind in names else _number(names)
    if len(by_step) > 1:  # the number of a single array may be NumPy's, as in arr_0
        for step in sorted(by_step):
            yield Stage(step, kind, archive.read(by_step[step]), *about)
        return
    if len(names) > 1 and kind not in names:
        raise ValueError(
            f"which of the arrays {names} are the predictions? Call them 'logits' or 'probs'."
        )
    name = kind if kind in names else names[0]
    if np.ndim(steps) != 1 if steps is not None else len(shapes[name]) != 3:  # one step
        found = (step_in(path.stem), _find_step(archive), step_in(name))
        step = next((number for number in found if number is not None), 0)
        yield Stage(step, kind, archive.read(name), *about)
        return
    numbers = range(shapes[name][0]) if steps is None else steps.tolist()
    if len(numbers) != shapes[name][0]:
        raise ValueError(
            f"there are {len(numbers)} steps, but {name!r} has shape {shapes[name]}: name each step once"
        )
    entries = archive.entries(name)
    for step in numbers:  # none is kept while the next is read
        yield Stage(step, kind, next(entries), *about)


def _number(names: list[str]) -> dict[int, str]:
    """Return the names with a number, by that number."""
    found: dict[int, str] = {}
    for name in names:
        step = step_in(name)
        if step in found:
            raise ValueError(f"{found[step]!r} and {name!r} are both step {step}: keep one of them")
        if step is not None:
            found[step] = name
    return found


# ---- Parquet ---------------------------------------------------------------------------------------------


def _read_parquet(path: Path, layout: Layout) -> Iterator[Stage]:
    with needs_extra("parquet", package="pyarrow"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    read = partial(pq.read_table, path, partitioning=None)
    with _name_file(path, pa.ArrowInvalid, OSError):
        schema = pq.read_schema(path)
        names = [name for name in schema.names if not name.startswith("__index_level_")]
        columns, kind = layout.find_predictions(layout.columns or names)
        columns = list(layout.columns or columns)
        step_column = layout.step_column or _first(STEPS, names)
        missing = [name for name in [*columns, step_column] if name not in [*names, None]]
        if missing:
            raise ValueError(f"there is no column {missing[0]!r}: the columns are {names}")
        other = [name for name in columns if not pa.types.is_floating(schema.field(name).type)]
        if other:
            raise ValueError(
                f"the columns {other} do not hold floating-point numbers: name the predictions with "
                "columns=, the labels with target="
            )
        about = (layout.find_labels(names), _first(WEIGHTS, names))
        wanted = [*columns, *(name for name in about if name is not None)]

        def read_step(number: int, chosen: Any = None) -> Stage:
            table = read(columns=wanted, filters=chosen)
            labels, weights = (
                None if name is None else table.column(name).to_numpy() for name in about
            )
            return Stage(number, kind, table.select(columns), labels, weights, path)

        if step_column is None:
            yield read_step(step_in(path.stem) or 0)
            return
        steps = np.unique(read(columns=[step_column]).column(0).to_numpy())
        if steps.dtype.kind not in "iuf" or not np.array_equal(steps, np.round(steps)):
            raise ValueError(f"the column {step_column!r} must hold whole numbers")
        for step in steps.tolist():
            yield read_step(int(step), [(step_column, "==", step)])
