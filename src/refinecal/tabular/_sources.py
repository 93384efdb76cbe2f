"""Tables in files, read in chunks: what all formats share, Parquet and Arrow."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from refinecal._core.errors import needs_extra
from refinecal._core.format import list_names
from refinecal.tabular.names import check_column

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

ROWS = 65_536  # in a chunk, if nothing else is said
PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # not a column for those who wrote it


class Source(ABC):
    """A table in a file, of which no more than a chunk is in memory at a time.

    Made by :func:`refinecal.tabular.files.open_table`.

    Attributes
    ----------
    path : Path
        The file.
    names : list of str
        The columns, in order.
    """

    def __init__(self, path: Path, names: Sequence[str], has_rows: bool) -> None:
        self.path = path
        self.names = list(names)
        self._check_names()
        if not has_rows:
            raise ValueError(f"{path} has columns but no rows: there is nothing to read")

    def _check_names(self) -> None:
        twice = [name for name, n in Counter(self.names).items() if n > 1]
        if twice:
            raise ValueError(
                f"{self.path} has more than one column called {list_names(twice)}: give each a name of its "
                "own. If the first line holds data and not names, put a line of names above it."
            )
        if not self.names:
            raise ValueError(f"{self.path} has no columns: there is nothing to read")

    def chunks(self, columns: Sequence[str] | None = None, rows: int = ROWS) -> Iterator[pa.Table]:
        """Return an iterator over the table in pieces of so many rows; the last may be shorter.

        Parameters
        ----------
        columns : sequence of str, optional
            Which columns to read, in this order; by default all.
        rows : int, default 65536
            How many rows a piece has.

        Returns
        -------
        iterator of Arrow tables
        """
        wanted = self.names if columns is None else list(columns)
        if not wanted:
            raise ValueError("columns is empty: name at least one column")
        for name in set(wanted) - set(self.names):
            check_column(name, self.names, "columns", str(self.path))
        if rows < 1:
            raise ValueError(f"rows is {rows}: a chunk needs at least one")
        return rechunk((table.select(wanted) for table in self._tables(wanted, rows)), rows)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the whole table.

        Parameters
        ----------
        columns : sequence of str, optional
            As for :meth:`chunks`.

        Returns
        -------
        Arrow table
        """
        return pa.concat_tables(self.chunks(columns))

    @abstractmethod
    def _tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        """Yield the table in pieces of any size, with these columns at least."""


def rechunk(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield tables of so many rows each, the last shorter, from tables of any size."""
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


class ParquetSource(Source):
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        with explain_errors(path, "Parquet"), parquet.ParquetFile(path, pre_buffer=False) as file:
            names = [name for name in file.schema_arrow.names if not PANDAS_INDEX.fullmatch(name)]
            has_rows = file.metadata.num_rows > 0
        super().__init__(path, names, has_rows)

    def _tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        from pyarrow import parquet

        # Without pre_buffer=False, pyarrow would keep all of the file in memory.
        with (
            explain_errors(self.path, "Parquet"),
            parquet.ParquetFile(self.path, pre_buffer=False) as file,
        ):
            for batch in file.iter_batches(batch_size=min(rows, ROWS), columns=columns):
                yield pa.Table.from_batches([batch])


class ArrowSource(Source):
    """An Arrow file, which Feather is too, or a stream of Arrow batches in a file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            start = file.read(6)
        if start.startswith(b"FEA1"):
            raise ValueError(
                f"{path} is a Feather file of the old version 1: read it with pandas 2 or pyarrow and "
                "write it anew, as Feather or Parquet"
            )
        self.path, self._is_stream = path, start != b"ARROW1"
        with explain_errors(path, "Arrow or Feather"), pa.OSFile(str(path)) as raw:
            self._all = self._reader(raw, None).schema.names  # with pandas' index
        names = [name for name in self._all if not PANDAS_INDEX.fullmatch(name)]
        has_rows = any(table.num_rows for table in self._tables(names[:1], 1))
        super().__init__(path, names, has_rows)

    def _reader(self, raw: pa.NativeFile, fields: list[int] | None) -> pa.RecordBatchReader:
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        opened = pa.ipc.open_stream if self._is_stream else pa.ipc.open_file
        return opened(raw, options=options)

    def _tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        fields = [self._all.index(name) for name in columns]
        with explain_errors(self.path, "Arrow or Feather"), pa.OSFile(str(self.path)) as raw:
            reader = self._reader(raw, fields)
            if self._is_stream:
                yield from (pa.Table.from_batches([batch]) for batch in reader)
                return
            for i in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(i)])


@contextmanager
def explain_errors(path: Path, kind: str) -> Iterator[None]:
    """Say what is wrong with a file where pyarrow says which of its bytes is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as {kind}: it is cut off, damaged or of another format than its "
            f"ending says. Copy or write it again. ({first_line(error)})"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the beginning of another library's message, without its final stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
