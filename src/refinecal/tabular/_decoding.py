"""Text files as UTF-8 bytes, whatever they were compressed with or encoded in."""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from typing import Any

from refinecal._core.errors import needs_extra

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
BUFFER = 1 << 20
WESTERN = "cp1252"  # what is called Latin-1 is nearly always this


def open_decoded(path: Path) -> io.BufferedReader:
    """Open a text file; its bytes come as UTF-8."""
    return io.BufferedReader(DecodedFile(path), BUFFER)


class DecodedFile(io.RawIOBase):
    """The bytes of a text file, turned into UTF-8 on the way.

    A byte order mark tells UTF-16. All else is UTF-8, unless the first letter that is not ASCII is not
    UTF-8 either: then it is Windows-1252, and ``is_western`` says so. ``end`` is the last
    byte that is not space.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.is_western = False
        self.end = b""
        self._raw = _open_decompressed(path)
        self._left = self._read(4)  # raw bytes not yet decoded
        self._ready = b""  # UTF-8 not yet asked for
        self._is_ascii, self._done = True, False
        self._utf16: codecs.IncrementalDecoder | None = None
        if self._left.startswith(codecs.BOM_UTF8):
            self._left = self._left[3:]
        elif self._left.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._utf16 = codecs.getincrementaldecoder("utf-16")()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._done:
            block = self._read(BUFFER)
            self._done = not block
            self._ready = self._utf8(self._left + block)
            self.end = self._ready.rstrip(b"\r\n ")[-1:] or self.end
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _read(self, n: int) -> bytes:
        try:
            return bytes(self._raw.read(n))
        except OSError as error:
            raise ValueError(
                f"{self.path} cannot be decompressed: it is cut off or damaged. Copy it again. ({error})"
            ) from error

    def _utf8(self, block: bytes) -> bytes:
        self._left = b""
        if self._utf16 is not None:
            return self._from_utf16(block)
        if self.is_western:
            return self._from_western(block)
        try:
            text, used = codecs.utf_8_decode(block, "strict", self._done)
        except UnicodeDecodeError as error:
            if not (self._is_ascii and block[: error.start].isascii()):
                raise ValueError(self._describe_mixed(block[error.start :])) from None
            self.is_western = True
            return self._from_western(block)
        self._is_ascii = self._is_ascii and text.isascii()
        self._left = block[used:]
        return block[:used]

    def _from_western(self, block: bytes) -> bytes:
        try:
            return block.decode(WESTERN).encode()
        except UnicodeDecodeError as error:
            raise ValueError(self._describe_mixed(block[error.start :])) from None

    def _from_utf16(self, block: bytes) -> bytes:
        assert self._utf16 is not None, "asked before"
        try:
            return self._utf16.decode(block, self._done).encode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path} begins as UTF-16 but is not: it is cut off or damaged. Save it as UTF-8. "
                f"({error.reason})"
            ) from None

    def _describe_mixed(self, rest: bytes) -> str:
        return (
            f"{self.path} is neither UTF-8 nor Windows-1252 throughout: the bytes {rest[:12]!r} are not. "
            "Save it as UTF-8."
        )


def _open_decompressed(path: Path) -> pa.NativeFile:
    """Open a file for reading; its first bytes, not its name, tell whether it is compressed."""
    with path.open("rb") as file:
        start = file.read(4)
    raw = pa.OSFile(str(path))
    codec = next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
    return raw if codec is None else pa.CompressedInputStream(raw, codec)
