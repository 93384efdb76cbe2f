"""Files and folders that may be data sets."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from refinecal._core.format import list_names

READ_AT_ONCE = 1 << 20  # bytes
PROSE = ".txt"  # in a folder most likely a readme; a table if it is named
MOST_NAMES = 5  # columns that a message names


def tables_in(folder: Path) -> dict[str, Path]:
    """Return the files of a folder that may be tables, by name; or the one file that is given."""
    from refinecal.tabular.files import CODECS, ENDINGS

    if folder.is_file():
        paths = [folder]
    else:
        check_folder(folder)
        endings = tuple(each + codec for each in _usual(ENDINGS) for codec in ("", *CODECS))
        paths = [
            path
            for path in sorted(folder.iterdir())
            if path.name.lower().endswith(endings) and path.is_file() and path.name[0] != "."
        ]
    found: dict[str, Path] = {}
    for path in paths:
        name = path.name
        while Path(name).suffix.lower() in (*ENDINGS, *CODECS):
            name = name[: -len(Path(name).suffix)]
        if name in found:
            raise ValueError(
                f"{found[name]} and {path.name} would both be named {name!r}: rename or remove one of them"
            )
        found[name] = path
    if not found:
        raise ValueError(f"{folder} has no tables: their names end in {', '.join(_usual(ENDINGS))}")
    return found


def _usual(endings: Iterable[str]) -> list[str]:
    return [ending for ending in endings if ending != PROSE]


def check_folder(folder: Path) -> None:
    if folder.is_file():
        raise ValueError(f"{folder} is a file: name the folder that holds the data sets")
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")


def select_sets(paths: dict[str, Path], only: Iterable[str], folder: Path) -> dict[str, Path]:
    from refinecal.tabular.files import nearest

    wanted = list(dict.fromkeys([only] if isinstance(only, str) else only))
    for name in wanted:
        if name not in paths:
            near = nearest(name, paths)
            meant = f" Did you mean {near!r}?" if near else f" There are {list_names(list(paths))}."
            raise ValueError(f"{folder} has no data set {name!r}.{meant}")
    return {name: path for name, path in paths.items() if name in wanted}


def explain_unfit(path: Path, target: str) -> str:
    """Return why a file is not a data set; nothing if it is one."""
    from refinecal.tabular.files import nearest, open_table

    try:
        names = open_table(path).names
    except (OSError, ValueError) as error:
        return str(error)
    if target in names:
        return ""
    near = nearest(target, names)
    more = f"Did you mean {near!r}?" if near else f"It has {list_names(names, MOST_NAMES)}."
    return f"{path} has no column {target!r}. {more}"


def digest_of(kind: str, path: str) -> str:
    """Return a digest of the content; OpenML never changes a data set with a number."""
    if kind == "openml":
        return f"openml {path}"
    place = Path(path)
    files = [place] if kind == "table" else [*sorted(place.glob("*.npy")), place / "info.json"]
    digest = blake2b(digest_size=16)
    for file in files:
        if kind == "talent":
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        with file.open("rb") as stream:
            while piece := stream.read(READ_AT_ONCE):
                digest.update(piece)
    return digest.hexdigest()
