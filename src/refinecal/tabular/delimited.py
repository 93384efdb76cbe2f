"""Delimited text such as CSV: any delimiter, encoding or compression, every column as text."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path

from refinecal._core.errors import needs_extra, warn
from refinecal._core.format import shorten_name
from refinecal.tabular.values import DECIMALS, MISSING, Decimals, find_marks

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.csv as pacsv

DELIMITERS = "\t;|,"  # the comma last: the others hardly ever occur equally often in all lines
SUSPECTED = {",": "','", ";": "';'", "\t": "'tab'", "|": "'|'", ":": "':'"}  # and how to pass them
SPELLED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
BZIP2 = re.compile(rb"BZh[1-9]1AY&SY")
UTF8 = "utf-8-sig"  # with or without a byte order mark
WESTERN = "cp1252"  # what is called Latin-1 is nearly always this
HEAD = 1 << 22  # characters at the start from which delimiter, names and decimal mark are inferred
SNIFFED_ROWS = 100  # that a delimiter must split alike
DECIMAL_ROWS = 5000  # in which the decimal mark is looked for
BLOCK = 1 << 20  # bytes that are parsed at a time, of which pyarrow reads 32 ahead
WIDEST = 16  # a row may be longer than a block, but hardly 16 times as long as the line of names
LINE_END = re.compile(r"\r|\n")
RAGGED = re.compile(r"(?s)Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")  # of pyarrow
SEPARATOR = re.compile(r'(?i)"?sep=(.)"?\r?\n?')  # a first line that spreadsheets understand


class DelimitedText:
    """A text file with a line of names, all of whose columns are read as strings.

    A column without a name is called after its place, "column 3". ``has_rows`` tells whether there are any,
    ``delimiter`` is the character between two values, and ``decimals`` are the decimal marks.
    """

    def __init__(
        self, path: Path, delimiter: str | None = None, decimal: str | None = None
    ) -> None:
        if decimal not in (".", ",", None):
            raise ValueError(f"decimal is {decimal!r}: it must be '.' or ','")
        self.path = path
        self._text = EncodedText(path)
        head, is_all = self._text.head, self._text.is_all_head
        separator = SEPARATOR.match(head)
        if separator:
            head = head[separator.end() :]
        longest = csv.field_size_limit(sys.maxsize)  # of all users of the csv module
        try:
            if delimiter is None and separator:
                delimiter = separator[1]
            last = (
                None if is_all else max(map(head.rfind, "\r\n"))
            )  # where the last whole line ends
            self.delimiter = find_delimiter(head[:last], delimiter)
            reader = csv.reader(io.StringIO(head, newline=""), delimiter=self.delimiter)
            names = next((row for row in reader if any(row)), [])
            self._n_lines = reader.line_num + (separator is not None)
            rows = list(islice(reader, DECIMAL_ROWS))
        finally:
            csv.field_size_limit(longest)
        if not names or not (rows or is_all):
            raise ValueError(
                f"{path} has no line of column names: its first line is empty, too long, or has a quote "
                "that is never closed"
            )
        self.names = [name.strip() or f"column {i}" for i, name in enumerate(names, 1)]
        self._block = max(BLOCK, WIDEST * len(self.delimiter.join(names).encode()))
        self.has_rows = any(rows) if len(names) > 1 else bool(rows)
        columns = zip(self.names, zip_longest(*rows, fillvalue=""), strict=False)
        marks = find_marks(dict(columns)) if decimal is None else {}
        self.decimals = Decimals(marks, decimal, self.delimiter)  # type: ignore[arg-type]

    def tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        """Yield the table in pieces of any size, with these columns at least."""
        last = self.names[-1]  # also read to see whether its quotes are closed
        options = {
            # One thread is as fast here, and counts the rows.
            "read_options": pacsv.ReadOptions(
                skip_rows=self._n_lines,
                column_names=self.names,
                block_size=self._block,
                use_threads=False,
                encoding=self._text.encoding,
            ),
            "parse_options": pacsv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(self.names) > 1,  # else they are rows with a missing value
            ),
            "convert_options": pacsv.ConvertOptions(
                include_columns=columns if last in columns else [*columns, last],
                column_types=dict.fromkeys(self.names, pa.string()),
                null_values=list(MISSING),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        }
        metadata, table = {DECIMALS: json.dumps(vars(self.decimals)).encode()}, None
        try:
            with pa.input_stream(str(self.path), compression=self._text.codec) as file:
                for batch in pacsv.open_csv(file, **options):
                    table = pa.Table.from_batches([batch])
                    yield table.replace_schema_metadata(metadata)
        except pa.ArrowInvalid as error:
            raise ValueError(self._explain(str(error))) from error
        value = table[last][-1].as_py() if table is not None and table.num_rows else None
        if value is not None and LINE_END.search(value) and self._text.last != '"':
            raise ValueError(
                f"{self.path} ends within quotes, which begin with {value[:30]!r}: close them, or double "
                'the quote (") if it is part of the text'
            )

    def _explain(self, error: str) -> str:
        """Return an error of pyarrow in words that name the row and the fix."""
        if "straddling" in error:
            return (
                f"{self.path} has a row of more than {self._block >> 20} MB: most likely a quote is never "
                'closed. Close it, or double it ("") if it is part of the text.'
            )
        ragged = RAGGED.search(error)
        if ragged is None:
            return f"{self.path} cannot be read as CSV: {error.splitlines()[0]}"
        line, n_names, n_values = map(int, ragged.groups()[:3])
        row, text = line - self._n_lines, ragged[4]
        fix = (
            "Put values that contain the delimiter or a quote in quotes, or pass another delimiter."
        )
        if n_names == 1:
            fix = suspect_delimiter(self.names, "") or fix
        elif row == 1 and n_values == n_names + 1:
            fix = "If the rows begin with their names, name that column in the first line too."
        return (
            f"{self.path}, row {row}: {n_values} value{'s' * (n_values != 1)}, but {n_names} "
            f"name{'s' * (n_names != 1)} in the first line, with {self.delimiter!r} between them; the row is "
            f"{shorten_name(text, 60)!r}. {fix}"
        )


# ---- encodings -------------------------------------------------------------------------------------------


class EncodedText:
    """How a text file is compressed and encoded, for pyarrow: ``codec`` and ``encoding``.

    Its first bytes, not its name, tell that. A byte order mark means UTF-16. All else is UTF-8, unless the
    first character that is not ASCII is not UTF-8 either: then the file is read as Windows-1252, with a
    warning. All of it is decoded once; ``head`` is its beginning, and ``last`` the last character that is not
    a space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            magic = file.read(10)
        codec = next((name for each, name in MAGIC.items() if magic.startswith(each)), None)
        self.codec = "bz2" if BZIP2.match(magic) else codec
        start = magic if self.codec is None else next(self._read_blocks(), b"")
        is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        for encoding in ("utf-16",) if is_utf16 else (UTF8, WESTERN):
            try:
                self._scan(encoding)
                break
            except UnicodeDecodeError as error:
                is_first = self._is_ascii and error.object[: error.start].isascii()
                if encoding == UTF8 and is_first:
                    continue
                what = "is neither UTF-8 nor Windows-1252 throughout"
                what = "begins as UTF-16 but is not UTF-16 throughout" if is_utf16 else what
                raise ValueError(
                    f"{path} {what}: the bytes {error.object[error.start :][:12]!r} are not valid. Save it "
                    "as UTF-8."
                ) from None
        if not self.head.strip():
            raise ValueError(f"{path} is empty: it needs a line of column names, and rows")
        self.encoding = "utf8" if encoding == UTF8 else encoding
        if encoding == WESTERN:
            warn(
                f"{path} is not UTF-8: it is read as Windows-1252 (Western European). If letters come out "
                "wrong, save it as UTF-8.",
                UserWarning,
            )

    def _scan(self, encoding: str) -> None:
        """Decode the whole file."""
        self.head, self.last, self.is_all_head, self._is_ascii = "", "", True, True
        for text in codecs.iterdecode(self._read_blocks(), encoding):
            if "\0" in text:
                raise ValueError(
                    f"{self.path} is not a text file: if it is Parquet or Feather, give it that ending; "
                    "else save it as CSV, in UTF-8"
                )
            self.is_all_head = len(self.head) < HEAD
            self.head += text if self.is_all_head else ""
            self.last = text.rstrip("\r\n ")[-1:] or self.last
            self._is_ascii = self._is_ascii and text.isascii()

    def _read_blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, decompressed."""
        with pa.input_stream(str(self.path), compression=self.codec) as file:
            try:
                while block := file.read(BLOCK):
                    yield block
            except OSError as error:
                raise ValueError(
                    f"{self.path} cannot be decompressed: it is cut off or damaged. Copy it again. ({error})"
                ) from error


# ---- delimiters ------------------------------------------------------------------------------------------


def find_delimiter(text: str, given: str | None = None) -> str:
    r"""Return the delimiter: the given one, which may be spelled out, or the one that splits rows alike.

    That is, the first rows. Quoted text does not count.

    >>> find_delimiter("name;height\nAda;1,65\n"), find_delimiter("", "tab")
    (';', '\t')
    """
    if given is not None:
        found = SPELLED.get(given, given)
        if len(found) != 1 or found in '"\r\n' or not found.isascii():
            raise ValueError(
                f"delimiter is {given!r}: it must be one character, such as ',' or ';', or 'tab'"
            )
        return found
    for delimiter in DELIMITERS:
        widths = _count_values(text, delimiter, SNIFFED_ROWS, strict=True)
        if widths and widths[0] > 1 and len(set(widths)) == 1:
            return delimiter
    return max(",;\t|", key=lambda delimiter: _count_values(text, delimiter, 1))


def _count_values(text: str, delimiter: str, most: int, strict: bool = False) -> list[int]:
    """Return how many values the first rows have; if ``strict``, none if quotes are not where they belong."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)
    try:
        return [len(row) for row in islice(filter(None, rows), most)]
    except csv.Error:
        return []


def suspect_delimiter(names: Sequence[str], wanted: str) -> str:
    """Return what to do about the only name if it looks like several, or one that holds the wanted one.

    >>> suspect_delimiter(["age;size;y"], "label")
    "Is ';' between its columns? Then pass delimiter=';'."
    """
    several = names
    if len(names) > 1:
        several = [name for name in names if any(wanted in name.split(d) for d in SUSPECTED)]
    most = max(SUSPECTED, key="".join(several).count)
    if most not in "".join(several):
        return ""
    what = "a tab" if most == "\t" else repr(most)
    return f"Is {what} between its columns? Then pass delimiter={SUSPECTED[most]}."
