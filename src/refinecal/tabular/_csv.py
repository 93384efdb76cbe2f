"""CSV and its kin: any delimiter, encoding or compression, every column as text."""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Self

from refinecal._core.errors import needs_extra, warn
from refinecal.tabular._sources import Source, first_line
from refinecal.tabular.names import count_nouns, suspect_delimiter
from refinecal.tabular.values import MISSING, Decimals, Mark, find_mark

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.csv as pacsv

DELIMITERS = "\t;|,"  # the comma last: the others hardly ever occur equally often in all lines
SPELLED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
BZIP2 = re.compile(rb"BZh[1-9]1AY&SY")
UTF8 = "utf-8-sig"  # with or without its mark
WESTERN = "cp1252"  # what is called Latin-1 is nearly always this
HEAD = 1 << 22  # bytes at the beginning from which delimiter, names and decimal mark are learnt
SNIFFED_ROWS = 100  # that a delimiter must split alike
DECIMAL_ROWS = 5000  # among which the decimal mark is looked for
BLOCK = 1 << 20  # bytes that are parsed at a time, of which pyarrow reads 32 ahead
# A row may be longer than a block, but hardly so many times longer than the line of names
WIDEST = 16
LINE_END = re.compile(r"\r\n|\r|\n")
RAGGED = re.compile(r"(?s)Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")  # of pyarrow
SEPARATOR = re.compile(r'(?i)"?sep=(.)"?\r?\n?')  # a first line that spreadsheets understand


class TextSource(Source):
    """A text file with a line of names; all its columns come as strings.

    Attributes
    ----------
    delimiter : str
        What stands between two values.
    decimals : Decimals
        What stands before the decimals of its columns.
    """

    def __init__(
        self, path: Path, delimiter: str | None = None, decimal: str | None = None
    ) -> None:
        self.path = path
        self._utf8 = open_as_utf8(path)
        text, is_all = self._utf8.head, self._utf8.is_all_head
        said = SEPARATOR.match(text)
        start = said.end() if said else 0
        if delimiter is None:
            delimiter = said[1] if said else sniff(text[start:], is_all)
        self.delimiter = check_delimiter(delimiter)
        names, end = self._header(text[start:], is_all)
        self._n_lines = len(LINE_END.findall(text[: start + end]))
        self._block = max(BLOCK, WIDEST * len(text[: start + end].encode()))
        rest = text[start + end :]
        super().__init__(path, names, bool(rest.strip() if len(names) > 1 else rest))
        given = None if decimal is None else check_decimal(decimal)
        marks = self._find_marks(rest) if given is None else {}
        self.decimals = Decimals(marks, given, self.delimiter)

    def _header(self, text: str, is_all: bool) -> tuple[list[str], int]:
        """Return the names, and where in the text the first row begins."""
        lines = io.StringIO(text, newline="")
        names: list[str] = []
        with suppress(csv.Error):  # a name that never ends
            for names in csv.reader(lines, delimiter=self.delimiter):
                if any(names):
                    break
        end = lines.tell()
        if not any(names) or (end == len(text) and not is_all):
            raise ValueError(
                f"{self.path} has no line of column names: its first line is empty, too long, or has a "
                "quote that is never closed"
            )
        given = [name.strip() for name in names]
        return [name or f"column {i}" for i, name in enumerate(given, 1)], end

    def _find_marks(self, text: str) -> dict[str, Mark]:
        """Return what stands before the decimals of the columns whose first rows tell it."""
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)
        cells: list[set[str]] = [set() for _ in self.names]
        with _any_length(), suppress(csv.Error):  # of a row that is cut off
            for row in islice(rows, DECIMAL_ROWS):
                for column, cell in zip(cells, row, strict=False):
                    column.add(cell)
        found = zip(self.names, map(find_mark, cells), strict=True)
        return {name: mark for name, mark in found if mark}  # type: ignore[misc]

    def _tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        last = self.names[-1]  # also read to see whether its quotes are closed
        wanted = columns if last in columns else [*columns, last]
        table = None
        with self._explain_errors(), self._utf8.open() as file:
            for batch in pacsv.open_csv(file, **self._options(wanted)):
                table = pa.Table.from_batches([batch])
                yield self.decimals.write(table)
        if table is not None and table.num_rows:
            self._check_end(table[last][-1].as_py())

    def _options(self, columns: Sequence[str]) -> dict[str, Any]:
        return {
            # One thread is as fast here, and counts the rows.
            "read_options": pacsv.ReadOptions(
                skip_rows=self._n_lines,
                column_names=self.names,
                block_size=self._block,
                use_threads=False,
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
                row -= self._n_lines
                raise ValueError(self._explain_row(row, expected, found, ragged[4])) from error
            if "straddling" in str(error):
                raise ValueError(
                    f"{self.path} has a row of more than {self._block >> 20} MB: most likely a quote is "
                    'never closed. Close it, or double it ("") if it is part of the text.'
                ) from error
            raise ValueError(f"{self.path} cannot be read as CSV: {first_line(error)}") from error

    def _explain_row(self, row: int, names: int, values: int, text: str) -> str:
        text = text if len(text) <= 60 else text[:57] + "..."
        cure = (
            "Put values that contain the delimiter or a quote in quotes, or pass another delimiter."
        )
        if row == 1 and values == names + 1:
            cure = "If the rows begin with their names, name that column in the first line too."
        cure = suspect_delimiter(self.names) or cure
        return (
            f"{self.path}, row {row}: {count_nouns(values, 'value')}, but {count_nouns(names, 'name')} "
            f"in the first line, with {self.delimiter!r} between them; the row is {text!r}. {cure}"
        )

    def _check_end(self, value: str | None) -> None:
        """Refuse a quote that runs to the end of the file: rows would be lost in it."""
        if value is not None and LINE_END.search(value) and self._utf8.last != '"':
            raise ValueError(
                f"{self.path} ends within quotes, which begin with {value[:30]!r}: close them, or double "
                'the quote (") if it is part of the text'
            )


# ---- encodings -------------------------------------------------------------------------------------------


class Utf8File:
    """A text file that pyarrow can read: as it is, or a copy in UTF-8, which goes with this object.

    All of it is looked at once: ``head`` is its beginning, and ``last`` the last letter that is not space.
    """

    def __init__(self, path: Path, codec: str | None, encoding: str) -> None:
        self.path, self.codec, self.encoding = path, codec, encoding
        self.head, self.last, self.is_ascii, self.has_nul = "", "", True, False
        self.n_letters = 0
        self.copy: Any = None

    def scan(self) -> Self:
        """Look at the text, and copy it if it is not UTF-8."""
        if self.encoding != UTF8:
            self.copy = tempfile.NamedTemporaryFile(suffix=".csv")  # noqa: SIM115
            weakref.finalize(self, self.copy.close)
        for text in codecs.iterdecode(read_blocks(self.path, self.codec), self.encoding):
            if len(self.head) < HEAD:
                self.head += text[:HEAD]
            self.is_ascii = self.is_ascii and text.isascii()
            self.has_nul = self.has_nul or "\0" in text
            self.last = text.rstrip("\r\n ")[-1:] or self.last
            self.n_letters += len(text)
            if self.copy is not None:
                self.copy.write(text.encode())
        if self.copy is not None:
            self.copy.flush()
        return self._check()

    def _check(self) -> Self:
        if self.has_nul:
            raise ValueError(
                f"{self.path} holds something else than text: if it is Parquet or Feather, give it that "
                "ending; else save it as CSV, in UTF-8"
            )
        if not self.head.strip():
            raise ValueError(f"{self.path} is empty: it needs a line of column names, and rows")
        return self

    @property
    def is_all_head(self) -> bool:
        """Whether the beginning is all there is."""
        return self.n_letters == len(self.head)

    def open(self) -> pa.NativeFile:
        """Open it for reading."""
        if self.copy is not None:
            return pa.OSFile(self.copy.name)
        return pa.input_stream(str(self.path), compression=self.codec)


def open_as_utf8(path: Path) -> Utf8File:
    """Look at a text file; its first bytes, not its name, tell how it is compressed and encoded.

    A byte order mark tells UTF-16. All else is UTF-8, unless the first letter that is not ASCII is not UTF-8
    either: then it is Windows-1252, with a warning.
    """
    with path.open("rb") as file:
        magic = file.read(10)
    codec = next((name for each, name in MAGIC.items() if magic.startswith(each)), None)
    codec = "bz2" if BZIP2.match(magic) else codec
    start = next(read_blocks(path, codec), b"")
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    found = Utf8File(path, codec, "utf-16" if is_utf16 else UTF8)
    try:
        return found.scan()
    except UnicodeDecodeError as error:
        if is_utf16:
            raise ValueError(
                f"{path} begins as UTF-16 but is not: it is cut off or damaged. Save it as UTF-8. "
                f"({error.reason})"
            ) from None
        if not (found.is_ascii and error.object[: error.start].isascii()):
            raise ValueError(_explain_encoding(path, error)) from None
    try:
        found = Utf8File(path, codec, WESTERN).scan()
    except UnicodeDecodeError as error:
        raise ValueError(_explain_encoding(path, error)) from None
    warn(
        f"{path} is not UTF-8: it is read as Windows-1252 (Western European). If letters come out wrong, "
        "save it as UTF-8.",
        UserWarning,
    )
    return found


def read_blocks(path: Path, codec: str | None) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed."""
    with pa.input_stream(str(path), compression=codec) as file:
        try:
            while block := file.read(BLOCK):
                yield block
        except OSError as error:
            raise ValueError(
                f"{path} cannot be decompressed: it is cut off or damaged. Copy it again. ({error})"
            ) from error


def _explain_encoding(path: Path, error: UnicodeDecodeError) -> str:
    wrong = error.object[error.start :][:12]
    return (
        f"{path} is neither UTF-8 nor Windows-1252 throughout: the bytes {wrong!r} are not. Save it as "
        "UTF-8."
    )


# ---- delimiter and decimal mark --------------------------------------------------------------------------


def check_delimiter(given: str) -> str:
    """Return a delimiter, which may be spelled out."""
    found = SPELLED.get(given, given)
    if len(found) != 1 or found in '"\r\n' or not found.isascii():
        raise ValueError(
            f"delimiter is {given!r}: it must be one character, such as ',' or ';', or 'tab'"
        )
    return found


def check_decimal(given: str) -> Mark:
    """Return what stands before decimals."""
    if given not in (".", ","):
        raise ValueError(f"decimal is {given!r}: it must be '.' or ','")
    return given  # type: ignore[return-value]


def sniff(text: str, is_all: bool = True) -> str:
    r"""Return what stands between the values: that which splits all rows alike.

    Quoted text does not count. If ``is_all``, the text does not end within a row.

    >>> sniff("name;height\nAda;1,65\n")
    ';'
    """
    for delimiter in DELIMITERS:
        found = _widths(text, delimiter, is_all)
        if found and found[0] > 1 and len(set(found)) == 1:
            return delimiter
    first = {
        delimiter: _widths(text, delimiter, is_all=True, strict=False) for delimiter in ",;\t|"
    }
    return max(first, key=lambda delimiter: first[delimiter][:1])


@contextmanager
def _any_length() -> Iterator[None]:
    """Let cells be of any length, which the csv module allows only for all of its users."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _widths(text: str, delimiter: str, is_all: bool, strict: bool = True) -> list[int]:
    """Return how many values the first rows have; if ``strict``, none if quotes are not where they belong."""
    found = []
    lines = io.StringIO(text, newline="")
    try:
        with _any_length():
            for row in csv.reader(lines, delimiter=delimiter, strict=strict):
                found.append(len(row))
                if len(found) > SNIFFED_ROWS:
                    return [width for width in found if width]
    except csv.Error:
        if strict and (is_all or lines.tell() < len(text)):
            return []
        found.append(0)  # the row that is cut off, or has no end
    return [width for width in (found if is_all else found[:-1]) if width]
