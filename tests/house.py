"""Which modules share a name, and which private names cross packages: what the house rules forbid.

``python tests/house.py`` prints both lists, as ``house_exceptions.txt`` holds those that are still
there. The file may only get shorter: a new exception is a wrong turn, and one that is gone goes from it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
FILE = Path(__file__).with_name("house_exceptions.txt")
OPEN = {"_core", "_kernels"}  # layers for the whole package, for nobody else


@cache
def modules() -> dict[str, Path]:
    """Return every module by its dotted name."""
    found = {}
    for path in sorted((SOURCE / "refinecal").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def shared_names() -> Iterator[str]:
    """Yield the modules that have the same name, with or without an underscore."""
    homes = defaultdict(list)
    for module, path in modules().items():
        is_kernel = module.startswith("refinecal._kernels.")  # named after what its loops are for
        if path.stem not in ("__init__", "__main__") and not is_kernel:
            homes[path.stem.lstrip("_")].append(module)
    for name, found in homes.items():
        if len(found) > 1:
            yield f"name {name}: {', '.join(sorted(found))}"


def crossings() -> Iterator[str]:
    """Yield the private modules and names that are imported from another package than their own."""
    known = modules()
    for module, path in known.items():
        own = module if path.stem == "__init__" else module.rpartition(".")[0]
        for home, name in imports(path, own):
            target = f"{home}.{name}" if f"{home}.{name}" in known else home
            private = target == home and name.startswith("_") and not name.startswith("__")
            if is_private(target, own) or (private and package(home) != own):
                yield f"import {module}: {home}.{name}"


def imports(path: Path, own: str) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import from the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if node.level:
                parts = own.split(".")
                home = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [home])])
            if home.split(".")[0] == "refinecal":
                yield from ((home, alias.name) for alias in node.names)


def package(module: str) -> str:
    """Return the package that a module is in; of a package, itself."""
    path = modules().get(module)
    return module if path is None or path.stem == "__init__" else module.rpartition(".")[0]


def is_private(target: str, own: str) -> bool:
    """Tell whether some part of a module's path is private and the importer is not inside of its parent."""
    parts = target.split(".")
    for depth in range(1, len(parts)):
        parent = ".".join(parts[:depth])
        hidden = parts[depth].startswith("_") and not (depth == 1 and parts[1] in OPEN)
        if hidden and not (own == parent or own.startswith(f"{parent}.")):
            return True
    return False


def exceptions() -> list[str]:
    """Return all that is forbidden and there."""
    return sorted({*shared_names(), *crossings()})


if __name__ == "__main__":
    print("\n".join(exceptions()))
