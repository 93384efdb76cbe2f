"""The manifest of a run folder: SHA-256 of every file that a fit wrote, so that damage shows before use."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from refinecal._core.files import write_json

MANIFEST = "manifest.json"
FORMAT = 3  # of the run folder
FIX = "fit again, or restore it from a copy"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a run folder by name, such as "fold-1/model.ubj", each with its SHA-256."""

    run: Path
    files: dict[str, str]

    @classmethod
    def load(cls, run: Path) -> Self:
        """Read the manifest of a run folder; no name in it leads out of the folder."""
        if not run.is_dir():
            what = "a file, not a folder" if run.exists() else "not there"
            raise FileNotFoundError(
                f"the run folder {run} is {what}: pass what `refinecal fit` wrote"
            )
        try:
            found = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
            version, files = found["format"], dict(found["files"])
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{run} holds no {MANIFEST}, so it is not the folder of a finished `refinecal fit`, or an "
                "older version of refinecal wrote it: fit again"
            ) from None
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{run / MANIFEST} is not what `refinecal fit` wrote ({type(error).__name__}: {error}): {FIX}"
            ) from None
        if version != FORMAT:
            raise ValueError(
                f"{run / MANIFEST} has format {version!r}, this version reads {FORMAT}: fit again with "
                "--overwrite, or use the version of refinecal that wrote it"
            )
        for name in files:
            if not (run / name).resolve().is_relative_to(run.resolve()):
                raise ValueError(
                    f"{run / MANIFEST} names {name!r}, which is outside of the run folder"
                )
        return cls(run, files)

    def verify(self, name: str) -> Path:
        """Return where a file is, once it is known to be the one that the fit wrote."""
        path, expected = self.run / name, self.files.get(name)
        if expected is None or _digest(path) != expected:
            raise ValueError(
                f"{path} is not the file that `refinecal fit` wrote (its SHA-256 differs from {MANIFEST}): "
                f"{FIX}"
            )
        return path

    def read_json(self, name: str) -> Any:
        """Return what a JSON file holds, once it is verified."""
        return json.loads(self.verify(name).read_text(encoding="utf-8"))


def write_manifest(folder: Path) -> None:
    """List all files of a finished folder."""
    place = folder / MANIFEST
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != place)
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in paths}
    write_json(place, {"format": FORMAT, "files": files})


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: {FIX}") from None
