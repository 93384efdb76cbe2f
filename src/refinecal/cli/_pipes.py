"""Standard input and output as tables: ``-`` in place of a file.

Both go through a temporary file, since a table is read more than once, and written whole or not at all.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from refinecal.cli import _options as option
from refinecal.cli._console import SPOOLED

PIPE = Path("-")
STARTS = {  # the first bytes of a file tell its format; of text, nothing does
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\xff\xff\xff\xff": ".arrow",  # a stream
    b"PK\x03\x04": ".xlsx",
    b"\x1f\x8b": ".csv.gz",
    b"\x28\xb5\x2f\xfd": ".csv.zst",
    b"BZh": ".csv.bz2",
}
FORMATS = ("csv", "tsv", "parquet", "feather")
HELP = f"Format of standard output (-o -): {', '.join(FORMATS)}. Default: csv."
Format = Annotated[
    str | None,
    option.choice("--format", names=FORMATS, help=HELP, rich_help_panel=option.OUTPUT),
]


@contextmanager
def read_pipe(path: Path) -> Iterator[Path]:
    """Yield the file to read: for ``-``, one with what comes on standard input."""
    if path != PIPE:
        yield path
        return
    with TemporaryDirectory(prefix=SPOOLED) as folder:
        whole = Path(folder) / "input"
        with whole.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with whole.open("rb") as file:
            start = file.read(8)
        ending = next((name for head, name in STARTS.items() if start.startswith(head)), ".csv")
        yield whole.rename(whole.with_suffix(ending))


@contextmanager
def write_pipe(path: Path, format: str | None) -> Iterator[Path]:
    """Yield the file to write: for ``-``, one that goes to standard output when it is complete."""
    if path != PIPE:
        if format is not None:
            raise typer.BadParameter(
                "is for -o - only: the ending of a file tells its format", param_hint="--format"
            )
        yield path
        return
    with TemporaryDirectory(prefix=SPOOLED) as folder:
        whole = Path(folder) / f"output.{format or FORMATS[0]}"
        yield whole
        with whole.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()  # so that a reader that has left is noticed here
