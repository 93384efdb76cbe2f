"""CSV and its kin: any delimiter, encoding or compression, every column as text."""

from __future__ import annotations

import atexit
import csv
import io
import queue
import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from refinecal._core.errors import needs_extra, warn
from refinecal.tabular._decoding import open_decoded
from refinecal.tabular._names import suspect_delimiter
from refinecal.tabular._sources import Source, first_line
from refinecal.tabular._values import DECIMAL_COMMA, MISSING

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.csv as pacsv

DELIMITERS = "\t;|,"  # the comma last: the others hardly ever occur equally often in all lines
SPELLED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
HEAD = 1 << 22  # bytes at the beginning from which the delimiter and the names are learnt
LOOKED_AT = 100  # rows of these
BLOCK = 1 << 20  # bytes that are parsed at a time, of which pyarrow reads 32 ahead
WIDEST = (
    16  # a row may be longer than a block if it is not so many times longer than the line of names
)
SMALL = 1 << 12  # bytes: for what is read in blocks already
LONGEST_READ = 60.0  # seconds of one block, from the slowest of disks
RAGGED = re.compile(r"(?s)Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")  # of pyarrow
SEPARATOR = re.compile(r"(?i)sep=(.)\r?\n?")  # a first line that spreadsheets understand


class TextSource(Source):
    """A text file with a line of names; all its columns come as strings.

    Attributes
    ----------
    delimiter : str
        What stands between two values.
    """

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        self.path = path
        self._warned = False
        text, whole = self._head()
        said = SEPARATOR.match(text)
        start = said.end() if said else 0
        if delimiter is None:
            delimiter = said[1] if said else sniff(text[start:], whole)
        self.delimiter = _check_delimiter(delimiter)
        names, end = self._header(text[start:], whole)
        self._start = len(text[: start + end].encode())
        self._block = max(BLOCK, WIDEST * self._start)
        super().__init__(path, names)

    def _head(self) -> tuple[str, bool]:
        """Return the beginning of the text, and whether that is all of it."""
        with self._open() as file:
            head = file.read(HEAD)
        if b"\0" in head:
            raise ValueError(
                f"{self.path} holds something else than text: if it is Parquet or Feather, give it that "
                "ending; else save it as CSV, in UTF-8"
            )
        if not head.strip():
            raise ValueError(f"{self.path} is empty: it needs a line of column names, and rows")
        return head.decode(errors="ignore"), len(head) < HEAD  # it may end within a letter

    def _header(self, text: str, whole: bool) -> tuple[list[str], int]:
        """Return the names, and where in the text the first row begins."""
        lines = io.StringIO(text, newline="")
        names: list[str] = []
        with suppress(csv.Error):  # a name that never ends
            for names in csv.reader(lines, delimiter=self.delimiter):
                if any(names):
                    break
        end = lines.tell()
        if not any(names) or (end == len(text) and not whole):
            raise ValueError(
                f"{self.path} has no line of column names: its first line is empty, too long, or has a "
                "quote that is never closed"
            )
        given = [name.strip() for name in names]
        return [name or f"column {i}" for i, name in enumerate(given, 1)], end

    def _tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        last = self.names[-1]  # also read to see whether its quotes are closed
        wanted = columns if last in columns else [*columns, last]
        table = None
        with self._open() as file, self._explain_errors():
            file.read(self._start)
            if not file.peek(1):
                return
            with BatchReader(file, self._options(wanted)) as batches:
                for batch in batches:
                    table = pa.Table.from_batches([batch])
                    decimal = DECIMAL_COMMA if self.delimiter == ";" else None
                    yield table.replace_schema_metadata(decimal)
                    self._warn_of(file.raw)
            self._warn_of(file.raw)
        if table is not None and table.num_rows:
            value = table[last][-1].as_py()
            if value is not None and "\n" in value.replace("\r", "\n") and file.raw.end != b'"':
                raise ValueError(  # else rows would be lost in it
                    f"{self.path} ends within quotes, which begin with {value[:30]!r}: close them, or double "
                    'the quote (") if it is part of the text'
                )

    def _open(self) -> Any:
        return open_decoded(self.path)

    def _options(self, columns: Sequence[str]) -> dict[str, Any]:
        return {
            # One thread is as fast here, and counts the rows.
            "read_options": pacsv.ReadOptions(
                column_names=self.names, block_size=self._block, use_threads=False
            ),
            "parse_options": pacsv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(self.names) > 1,  # else they are rows with a missing value
            ),
            "convert_options": pacsv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(self.names, pa.string()),
                null_values=list(MISSING),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        }

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowInvalid as error:
            ragged = RAGGED.search(str(error))
            if ragged:
                row, expected, found = map(int, ragged.groups()[:3])
                raise ValueError(
                    self._explain_ragged_row(row, expected, found, ragged[4])
                ) from error
            if "straddling" in str(error):
                raise ValueError(
                    f"{self.path} has a row of more than {self._block >> 20} MB: most likely a quote is "
                    'never closed. Close it, or double it ("") if it is part of the text.'
                ) from error
            raise ValueError(f"{self.path} cannot be read as CSV: {first_line(error)}") from error

    def _explain_ragged_row(self, row: int, names: int, values: int, text: str) -> str:
        text = text if len(text) <= 60 else text[:57] + "..."
        cure = (
            "Put values that contain the delimiter or a quote in quotes, or pass another delimiter."
        )
        if row == 1 and values == names + 1:
            cure = "If the rows begin with their names, name that column in the first line too."
        cure = suspect_delimiter(self.names) or cure
        return (
            f"{self.path}, row {row}: {_count(values, 'value')}, but {_count(names, 'name')} in the "
            f"first line, with {self.delimiter!r} between them; the row is {text!r}. {cure}"
        )

    def _warn_of(self, raw: Any) -> None:
        if raw.is_western and not self._warned:
            self._warned = True
            warn(
                f"{self.path} is not UTF-8: it is read as Windows-1252 (Western European). If letters come "
                "out wrong, save it as UTF-8.",
                UserWarning,
            )


class BorrowedFile:
    """A file in the hands of pyarrow: this object ends when pyarrow gives it back."""

    __slots__ = ("__weakref__", "close", "closed", "read")

    def __init__(self, file: io.BufferedReader) -> None:
        # No methods: the trace of an error would keep self. To close it does nothing; we close the file.
        self.close, self.closed, self.read = int, False, file.read


class BatchReader:
    """Batches of a text file, which a thread of pyarrow reads ahead, until it is closed.

    That thread keeps the file for some time after it has read what it wanted. If Python ended meanwhile, the
    thread would abort the process; so closing waits until the file is given back, and before Python ends all
    are closed.
    """

    def __init__(self, file: io.BufferedReader, options: dict[str, Any]) -> None:
        lent, native = BorrowedFile(file), None
        self._given_back: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # A call without Python code, which the end of the interpreter could not cut in two.
        self._lent = weakref.ref(lent, self._given_back.put)
        self._reader: Any = None
        _open.add(self)
        try:
            native = pa.PythonFile(lent, "r")  # whose bytes are Python's; those of a stream are not
            self._reader = pacsv.open_csv(pa.BufferedInputStream(native, SMALL), **options)
        except BaseException:
            del lent, native
            self.close()
            raise

    def __enter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches()

    def __exit__(self, *about: object) -> None:
        self.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while self._reader is not None:
            try:
                yield self._reader.read_next_batch()
            except StopIteration:
                return

    def close(self) -> None:
        """Read no further, and wait until pyarrow has no more to do with the file."""
        self._reader = None
        if self in _open:
            _open.discard(self)
            with suppress(queue.Empty):
                self._given_back.get(timeout=LONGEST_READ)


_open: weakref.WeakSet[BatchReader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for reading in list(_open):
        reading.close()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _check_delimiter(given: str) -> str:
    found = SPELLED.get(given, given)
    if len(found) != 1 or found in '"\r\n' or not found.isascii():
        raise ValueError(
            f"delimiter is {given!r}: it must be one character, such as ',' or ';', or 'tab'"
        )
    return found


def sniff(text: str, whole: bool = True) -> str:
    r"""Return what stands between the values: that which splits all rows alike.

    Quoted text does not count. If ``whole``, the text does not end within a row.

    >>> sniff("name;height\nAda;1,65\n")
    ';'
    """
    for delimiter in DELIMITERS:
        found = _widths(text, delimiter, whole)
        if found and found[0] > 1 and len(set(found)) == 1:
            return delimiter
    first = {delimiter: _widths(text, delimiter, whole=True, strict=False) for delimiter in ",;\t|"}
    return max(first, key=lambda delimiter: first[delimiter][:1])


def _widths(text: str, delimiter: str, whole: bool, strict: bool = True) -> list[int]:
    """Return how many values the first rows have; if ``strict``, none if quotes are not where they belong."""
    found = []
    lines = io.StringIO(text, newline="")
    try:
        for row in csv.reader(lines, delimiter=delimiter, strict=strict):
            found.append(len(row))
            if len(found) > LOOKED_AT:
                return [width for width in found if width]
    except csv.Error:
        if strict and (whole or lines.tell() < len(text)):
            return []
        found.append(0)  # the row that is cut off, or has no end
    return [width for width in (found if whole else found[:-1]) if width]
