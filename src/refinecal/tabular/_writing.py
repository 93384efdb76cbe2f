"""Tables written to files: whole or not at all."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write
from refinecal.tabular.values import is_text

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa


class Writer:
    """A table that is being written, piece by piece; the file appears when all of it is there.

    Made by :func:`refinecal.tabular.files.create_table`, and used in a ``with`` statement. If that is left
    by an error or Ctrl-C, nothing is left behind, and an older file stays as it was.

    Attributes
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path, kind: str, codec: str | None, delimiter: str) -> None:
        self.path = path
        self._kind, self._codec, self._delimiter = kind, codec, delimiter
        self._stack = ExitStack()
        self._schema: pa.Schema | None = None
        self._file: Any = None
        self._sink: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        is_link = self.path.is_symlink()  # what it leads to is replaced, not the link
        target = Path(os.path.realpath(self.path)) if is_link else self.path
        self._part = self._stack.enter_context(atomic_write(target))
        self._stack.push(self._finish)
        return self

    def write(self, table: pa.Table) -> None:
        """Add rows.

        Parameters
        ----------
        table : Arrow table
            With the same columns every time.
        """
        if self._kind == "text":
            table = _flatten(table)
        if self._schema is None:
            self._schema = table.schema.remove_metadata()
            self._open(self._schema)
        elif table.schema.names != self._schema.names:
            raise ValueError(
                f"table has the columns {table.schema.names}, but {self.path} began with "
                f"{self._schema.names}: write the same columns every time"
            )
        self._writer.write_table(table.cast(self._schema))

    def _open(self, schema: pa.Schema) -> None:
        # In a mode that never takes the place of another file, and with the usual permissions.
        self._file = self._part.open("xb")
        self._sink = pa.PythonFile(self._file, mode="w")
        if self._kind == "parquet":
            from pyarrow import parquet

            self._writer = parquet.ParquetWriter(self._sink, schema, compression="zstd")
        elif self._kind == "arrow":
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_file(self._sink, schema, options=options)
        else:
            from pyarrow import csv

            if self._codec is not None:
                self._sink = pa.CompressedOutputStream(self._sink, self._codec)
            options = csv.WriteOptions(delimiter=self._delimiter)
            self._writer = csv.CSVWriter(self._sink, schema, write_options=options)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _finish(self, kind: type[BaseException] | None, *about: object) -> None:
        with ExitStack() as stack:  # closes the file even if the writer fails to
            for each in (self._file, self._sink, self._writer):  # the last first
                if each is not None:
                    stack.callback(each.close)
        if kind is None and self._schema is None:
            raise ValueError(
                f"nothing was written to {self.path}: write a table, even without rows"
            )


def _flatten(table: pa.Table) -> pa.Table:
    """Return a table that can be written as text: no dictionaries, no lists."""
    for i, field in enumerate(table.schema):
        column = table.column(i)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type)
        if pa.types.is_nested(field.type):
            raise ValueError(
                f"the column {field.name!r} holds {field.type}, which CSV cannot: write Parquet, or leave "
                "the column out"
            )
        if is_text(column.type):
            column = column.cast(pa.string())
        if column.type != field.type:
            table = table.set_column(i, field.name, column)
    return table
