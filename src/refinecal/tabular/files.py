"""Tables in files: CSV, TSV, Parquet, Feather and spreadsheets, read in chunks and written whole or not.

CSV and TSV may be compressed (gz, zst, bz2). Their columns are read as Arrow strings, as they are written,
null where a value is missing; those of Parquet and Feather keep their types.
:class:`refinecal.tabular.schema.Schema` infers what both mean.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write, suggest_path
from refinecal._core.format import list_names
from refinecal.tabular.delimited import DelimitedText, suspect_delimiter
from refinecal.tabular.values import TEXTS

if TYPE_CHECKING:
    from refinecal.tabular.workbook import Workbook

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

__all__ = ["Source", "Writer", "create_table", "open_table"]

ROWS = 65_536  # in a chunk, by default
ENDINGS = (
    dict.fromkeys((".csv", ".tsv", ".txt"), "text")
    | dict.fromkeys((".parquet", ".pq"), "parquet")
    | dict.fromkeys((".feather", ".arrow", ".ipc"), "arrow")
    | dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), "workbook")
)
CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
TABS = (".tsv", ".txt")  # written with tabs; the delimiter of a .txt that is read is inferred
FIXES = {
    **dict.fromkeys((".numbers", ".xlsb"), "Save the sheet as .xlsx or CSV."),
    ".zip": "Unpack it.",
    ".json": "Convert it to CSV or Parquet.",
    ".pkl": "Pickles may run code and are never read: write Parquet instead.",
}
PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # not a column for those who wrote it


def open_table(
    path: str | Path,
    delimiter: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
) -> Source:
    """Open a table, to ``read()`` it or go through its ``chunks()``; its ending tells the format.

    Parameters
    ----------
    path : str or Path
        A file ending in .csv, .tsv or .txt, each perhaps with .gz, .zst or .bz2 after it, in .parquet,
        in .feather, .arrow or .ipc, or in .xlsx, .xlsm, .xls or .ods.
    delimiter : str, optional
        The character between the values of a text file. By default a tab in .tsv, else the one of comma,
        semicolon, tab and bar that splits the first rows evenly.
    decimal : {".", ","}, optional
        The decimal mark of a text file; by default inferred from its first rows.
    sheet : str, optional
        The sheet of a spreadsheet; by default the first one.

    Notes
    -----
    A text file has its column names in the first line; spaces around them are left out, and a column
    without a name is called after its place: "column 3". Encodings are UTF-8, UTF-16 with its mark, and
    Windows-1252 (with a warning). Empty values and NA, N/A, NaN, null and ? are missing, quoted or not.
    Empty lines are skipped if there are several columns.
    """
    path = Path(path)
    if path.is_dir() or not path.exists():
        _fail_path(path)
    kind, ending, _ = format_of(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes): there is nothing to read")
    if sheet is not None and kind != "workbook":
        raise ValueError(f"sheet is {sheet!r}, but {path} is not a spreadsheet: leave it out")
    if kind == "text":
        delimiter = "\t" if delimiter is None and ending == ".tsv" else delimiter
        return Source(DelimitedText(path, delimiter, decimal))
    for name, given in (("delimiter", delimiter), ("decimal", decimal)):
        if given is not None:
            raise ValueError(f"{name} is {given!r}, but {path} is not a text file: leave it out")
    if kind == "workbook":
        from refinecal.tabular.workbook import Workbook

        return Source(Workbook(path, sheet))
    return Source(ParquetTable(path) if kind == "parquet" else ArrowTable(path))


@contextmanager
def create_table(path: str | Path) -> Iterator[Writer]:
    """Write a table; its ending tells the format.

    Parameters
    ----------
    path : str or Path
        As for :func:`open_table`, with a comma between the values of .csv, else a tab. An existing file is
        replaced by the finished one; it stays as it was if an error or Ctrl-C ends the ``with`` statement.

    Yields
    ------
    Writer
        Its ``write(table)`` adds rows.

    Examples
    --------
    >>> with create_table("probs.csv.gz") as out:  # doctest: +SKIP
    ...     out.write(table)
    """
    path = Path(path)
    if format_of(path)[0] == "workbook":
        raise ValueError(f"{path}: spreadsheets are read but not written. Write .csv instead.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist: make it first")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path  # the link itself stays
    with atomic_write(target) as part, ExitStack() as stack:
        writer = Writer(path, part, stack)
        yield writer
        if writer.schema is None:
            raise ValueError(f"nothing was written to {path}: write a table, even without rows")


def format_of(path: Path) -> tuple[str, str, str | None]:
    """Return the format that a file's name tells: text, parquet or arrow; its ending; its compression."""
    name = path.name.lower()
    packing = next((each for each in CODECS if name.endswith(each)), "")
    ending = Path(name.removesuffix(packing)).suffix
    kind = ENDINGS.get(ending)
    if kind is not None and packing and kind != "text":
        raise ValueError(
            f"{path}: {ending} files are compressed inside. Unpack it, without {packing}."
        )
    if kind is None:
        fix = FIXES.get(ending or packing, "Give it the ending that tells its format.")
        raise ValueError(
            f"{path} ends in {ending or packing or 'nothing'!r}, which is not known: tables end in "
            f"{', '.join(ENDINGS)}, the first three perhaps with {', '.join(CODECS)}. {fix}"
        )
    return kind, ending, CODECS.get(packing)


def _fail_path(path: Path) -> NoReturn:
    """Raise for a folder, or a file that does not exist."""
    if path.is_dir():
        inside = sorted(each.name for each in path.iterdir() if each.suffix in (*ENDINGS, *CODECS))
        some = f", such as {list_names(inside, 3)}" if inside else ""
        raise ValueError(f"{path} is a folder: name a file in it{some}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} does not exist, nor does the folder {path.parent}")
    raise FileNotFoundError(f"{path} does not exist.{suggest_path(path, Path.is_file)}")


# ---- reading ---------------------------------------------------------------------------------------------


class Source:
    """A table in a file, of which no more than a chunk is in memory at a time.

    Made by :func:`open_table`. ``path`` is the file, ``names`` are its columns in order, and ``format`` is a
    :class:`DelimitedText`, :class:`ParquetTable`, :class:`ArrowTable` or a workbook.
    """

    def __init__(self, format: DelimitedText | ParquetTable | ArrowTable | Workbook) -> None:
        self.path, self.names, self.format = format.path, format.names, format
        twice = [name for name, n in Counter(self.names).items() if n > 1]
        if twice:
            raise ValueError(
                f"{self.path} has more than one column called {list_names(twice)}: rename all but one. If "
                "the first line holds data and not names, put a line of names above it."
            )
        if not self.names:
            raise ValueError(f"{self.path} has no columns: there is nothing to read")
        if not format.has_rows:
            raise ValueError(f"{self.path} has columns but no rows: there is nothing to read")

    def chunks(self, columns: Sequence[str] | None = None, rows: int = ROWS) -> Iterator[pa.Table]:
        """Return an iterator over Arrow tables of some number of rows each; the last may be shorter.

        They have these columns, in this order; by default all.
        """
        if rows < 1:
            raise ValueError(f"rows is {rows}: a chunk needs at least one")
        wanted = self._check(columns)
        return _rechunk((table.select(wanted) for table in self.format.tables(wanted, rows)), rows)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the whole table, with these columns in this order; by default all."""
        wanted = self._check(columns)
        if isinstance(self.format, ParquetTable):
            return self.format.read(wanted)
        return pa.concat_tables(self.format.tables(wanted, ROWS)).select(wanted)

    def _check(self, columns: Sequence[str] | None) -> list[str]:
        wanted = self.names if columns is None else list(columns)
        if not wanted:
            raise ValueError("columns is empty: name at least one column")
        for name in set(wanted) - set(self.names):
            check_column(name, self.names, "columns", str(self.path))
        return wanted


def _rechunk(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield tables of this many rows each, the last shorter, from tables of any size."""
    kept: list[pa.Table] = []
    n = 0
    for table in tables:
        kept.append(table)
        n += table.num_rows
        if n >= rows:
            whole, full = pa.concat_tables(kept), n - n % rows
            for start in range(0, full, rows):
                yield whole.slice(start, rows)
            n -= full
            kept = [whole.slice(full)] if n else []  # an empty slice would keep the whole in memory
    if n:
        yield pa.concat_tables(kept)


class ParquetTable:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open(pre_buffer=False) as file:
            names = file.schema_arrow.names
            self.has_rows = file.metadata.num_rows > 0
        self.names = [name for name in names if not PANDAS_INDEX.fullmatch(name)]

    @contextmanager
    def _open(self, **options: bool) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        with _explain_errors(self.path, "Parquet"), ParquetFile(self.path, **options) as file:
            yield file

    def tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        # Without pre_buffer=False, pyarrow would keep all of the file in memory.
        with self._open(pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=min(rows, ROWS), columns=columns):
                yield pa.Table.from_batches([batch])

    def read(self, columns: list[str]) -> pa.Table:
        """Return all rows at once, read by all threads; parquet.read_table would import pandas first."""
        with self._open(memory_map=True) as file:
            return file.read(columns=columns).select(columns)


class ArrowTable:
    """An Arrow file, which Feather is too, or a stream of Arrow batches in a file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            start = file.read(6)
        if start.startswith(b"FEA1"):
            raise ValueError(
                f"{path} is a Feather file of the old version 1: read it with pandas 2 or pyarrow and "
                "write it again, as Feather or Parquet"
            )
        self.path, self._is_stream = path, start != b"ARROW1"
        with self._open() as reader:
            self._all = reader.schema.names  # with the index of pandas
        self.names = [name for name in self._all if not PANDAS_INDEX.fullmatch(name)]
        self.has_rows = any(table.num_rows for table in self.tables(self.names[:1], 1))

    @contextmanager
    def _open(self, fields: list[int] | None = None) -> Iterator[Any]:
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        open_ipc = pa.ipc.open_stream if self._is_stream else pa.ipc.open_file
        with _explain_errors(self.path, "Arrow or Feather"), pa.OSFile(str(self.path)) as raw:
            yield open_ipc(raw, options=options)

    def tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        with self._open([self._all.index(name) for name in columns]) as reader:
            n_batches = 0 if self._is_stream else reader.num_record_batches
            batches = reader if self._is_stream else map(reader.get_batch, range(n_batches))
            for batch in batches:
                yield pa.Table.from_batches([batch])


@contextmanager
def _explain_errors(path: Path, kind: str) -> Iterator[None]:
    """Say what is wrong with a file where pyarrow says which of its bytes is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(
            f"{path} cannot be read as {kind}: it is cut off, damaged or of another format than its "
            f"ending says. Copy or write it again. ({first})"
        ) from error


# ---- writing ---------------------------------------------------------------------------------------------


class Writer:
    """A table that is being written piece by piece, made by :func:`create_table`."""

    def __init__(self, path: Path, part: Path, stack: ExitStack) -> None:
        self.schema: pa.Schema | None = None
        self._path, self._part, self._stack = path, part, stack
        self._kind, self._ending, self._codec = format_of(path)
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        """Add the rows of an Arrow table, with the same columns every time."""
        if self._kind == "text":
            table = _flatten(table)
        if self.schema is None:
            self.schema = table.schema.remove_metadata()
            self._writer = self._stack.enter_context(self._open(self.schema))
        elif table.schema.names != self.schema.names:
            raise ValueError(
                f"table has the columns {table.schema.names}, but {self._path} began with "
                f"{self.schema.names}: write the same columns every time"
            )
        self._writer.write_table(table.cast(self.schema))

    def _open(self, schema: pa.Schema) -> Any:
        # In a mode that never replaces another file, and with the usual permissions.
        file = self._stack.enter_context(self._part.open("xb"))
        sink: Any = self._stack.enter_context(pa.PythonFile(file, mode="w"))
        if self._kind == "parquet":
            from pyarrow import parquet

            return parquet.ParquetWriter(sink, schema, compression="zstd")
        if self._kind == "arrow":
            return pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        from pyarrow import csv

        if self._codec is not None:
            sink = self._stack.enter_context(pa.CompressedOutputStream(sink, self._codec))
        delimiter = "\t" if self._ending in TABS else ","
        return csv.CSVWriter(sink, schema, write_options=csv.WriteOptions(delimiter=delimiter))


def _flatten(table: pa.Table) -> pa.Table:
    """Return a table that can be written as text: without dictionaries or lists."""
    for i, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_nested(kind):
            raise ValueError(
                f"the column {field.name!r} holds {kind}, which CSV cannot: write Parquet, or leave the "
                "column out"
            )
        kind = pa.string() if kind in TEXTS else kind
        if kind != field.type:
            table = table.set_column(i, field.name, table.column(i).cast(kind))
    return table


# ---- names of columns -------------------------------------------------------------------------------------


def check_column(
    name: str, names: Sequence[str], what: str, where: str = "the table", more: str = ""
) -> None:
    """Raise unless there is such a column; suggest the nearest, and say ``more``.

    >>> check_column("incom", ["age", "income"], "target")
    Traceback (most recent call last):
    ...
    ValueError: target is 'incom', but the table has no such column. Did you mean 'income'? \
The columns are 'age', 'income'.
    """
    if name not in names:
        raise ValueError(
            f"{what} is {name!r}, but {where} has no such column.{hint(name, names)}{more}"
        )


def hint(name: str, names: Sequence[str], likely: Sequence[str] = ()) -> str:
    """Return the end of an error about a column that is not there; ``likely`` are those it may be."""
    listed = "only column is" if len(names) == 1 else "columns are"
    found = f" The {listed} {list_names(names)}."
    suspected = suspect_delimiter(names, name)
    if suspected:
        return f"{found} {suspected}"
    near = nearest(name, likely or names)
    return found if near is None else f" Did you mean {near!r}?{found}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name most like this one, ignoring case; ``None`` if none is.

    >>> nearest("Incom", ["age", "income"])
    'income'
    """
    plain = {each.strip().lower(): each for each in names}
    found = get_close_matches(name.strip().lower(), plain, 1)
    return plain[found[0]] if found else None
