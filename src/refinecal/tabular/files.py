"""Tables in files: CSV, TSV, Parquet and Feather, read in chunks and written whole or not at all.

CSV and TSV may be compressed (gz, zst, bz2). Their columns come as Arrow strings, as they are written,
null where a value is missing; those of Parquet and Feather in their own types.
:class:`refinecal.tabular.schema.Schema` makes sense of both.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from refinecal._core.format import list_names
from refinecal.tabular._csv import TextSource
from refinecal.tabular._sources import ArrowSource, ParquetSource, Source
from refinecal.tabular._writing import Writer

__all__ = ["Source", "Writer", "create_table", "open_table"]

ENDINGS = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
}
CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
TABS = (".tsv", ".txt")  # written with tabs; a .txt is read with whatever it has
CURES = {
    ".xlsx": "Save the sheet as CSV.",
    ".xls": "Save the sheet as CSV.",
    ".ods": "Save the sheet as CSV.",
    ".zip": "Unpack it.",
    ".json": "Convert it to CSV or Parquet.",
    ".pkl": "Pickles may run code and are never read: write Parquet instead.",
}


def open_table(
    path: str | Path, delimiter: str | None = None, decimal: str | None = None
) -> Source:
    """Open a table; its ending tells the format.

    Parameters
    ----------
    path : str or Path
        A file ending in .csv, .tsv or .txt, each perhaps with .gz, .zst or .bz2 after it, in .parquet,
        or in .feather, .arrow or .ipc.
    delimiter : str, optional
        What stands between the values of a text file. By default a tab in .tsv, else whichever of comma,
        semicolon, tab and bar splits the first rows evenly.
    decimal : {".", ","}, optional
        What stands before decimals in a text file; by default what its first rows show.

    Returns
    -------
    Source
        With ``names``, ``chunks()`` and ``read()``.

    Notes
    -----
    A text file has its column names in the first line; spaces around them are left out, and a column
    without a name is called after its place: "column 3". UTF-8, UTF-16 with its mark, and Windows-1252
    (with a warning) are understood. Empty values and NA, N/A, NaN, null and ? are missing, quoted or not.
    Empty lines are skipped if there are several columns.
    """
    path = Path(path)
    _check_exists(path)
    kind, ending, _ = format_of(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes): there is nothing to read")
    if kind == "text":
        delimiter = "\t" if delimiter is None and ending == ".tsv" else delimiter
        return TextSource(path, delimiter, decimal)
    for name, given in (("delimiter", delimiter), ("decimal", decimal)):
        if given is not None:
            raise ValueError(f"{name} is {given!r}, but {path} is no text file: leave it out")
    return ParquetSource(path) if kind == "parquet" else ArrowSource(path)


def create_table(path: str | Path) -> Writer:
    """Begin to write a table; its ending tells the format.

    Parameters
    ----------
    path : str or Path
        As for :func:`open_table`, with a comma between the values of .csv, else a tab. If the file exists,
        the finished one takes its place.

    Returns
    -------
    Writer
        For a ``with`` statement; its ``write(table)`` adds rows.

    Examples
    --------
    >>> with create_table("probs.csv.gz") as out:  # doctest: +SKIP
    ...     out.write(table)
    """
    path = Path(path)
    kind, ending, codec = format_of(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist: make it first")
    return Writer(path, kind, codec, "\t" if ending in TABS else ",")


def format_of(path: Path) -> tuple[str, str, str | None]:
    """Return what a file's name says of it: text, parquet or arrow; its ending; how it is compressed."""
    name = path.name.lower()
    packing = next((each for each in CODECS if name.endswith(each)), "")
    ending = Path(name.removesuffix(packing)).suffix
    kind = ENDINGS.get(ending)
    if kind is not None and packing and kind != "text":
        raise ValueError(
            f"{path}: {ending} files are compressed inside. Unpack it, without {packing}."
        )
    if kind is None:
        cure = CURES.get(ending or packing, "Give it the ending that tells its format.")
        raise ValueError(
            f"{path} ends in {ending or packing or 'nothing'!r}, which is not known: tables end in "
            f"{', '.join(ENDINGS)}, the first three perhaps with {', '.join(CODECS)}. {cure}"
        )
    return kind, ending, CODECS.get(packing)


def _check_exists(path: Path) -> None:
    if path.is_dir():
        inside = sorted(each.name for each in path.iterdir() if each.suffix in (*ENDINGS, *CODECS))
        some = f", such as {list_names(inside, 3)}" if inside else ""
        raise ValueError(f"{path} is a folder: name a file in it{some}")
    if path.exists():
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} does not exist, nor does the folder {path.parent}")
    names = [each.name for each in path.parent.iterdir() if each.is_file()]
    near = get_close_matches(path.name, names, 3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise FileNotFoundError(f"{path} does not exist.{hint}")
