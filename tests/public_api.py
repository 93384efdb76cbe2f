"""The public API as a text that a reviewer can compare: names, signatures, methods, and command-line options.

``python tests/public_api.py`` says what differs from ``public_api.txt``; ``--update`` rewrites the file. A
name that vanishes, or an argument that changes, breaks somebody's code: the CHANGELOG has to say so.
"""

import difflib
import inspect
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("public_api.txt")
INTEGRATIONS = (
    "catboost",
    "keras",
    "lightgbm",
    "lightning",
    "optuna",
    "sklearn",
    "skorch",
    "torch",
    "torchmetrics",
    "transformers",
    "xgboost",
)
MODULES = (
    "refinecal",
    "refinecal.calibrators",
    "refinecal.evaluation",
    "refinecal.losses",
    "refinecal.metrics",
    "refinecal.plots",
    "refinecal.report",
    "refinecal.theory",
    "refinecal.tabular.run",
    "refinecal.temperature",
    *(f"refinecal.integrations.{name}" for name in INTEGRATIONS),
)
ONLY = {  # of modules whose other names are our own business
    "refinecal.tabular.run": ["Run"],
    "refinecal.temperature": ["TemperatureFit", "TemperatureScaling", "fit_temperature"],
}


def lines() -> Iterator[str]:
    """Yield a line for each public name, method and option."""
    for module in MODULES:
        yield f"# {module}"
        for name, value in public_names(import_module(module)):
            yield from describe(name, value)
        yield ""
    yield "# command line"
    yield from commands()


def public_names(module: Any) -> list[tuple[str, Any]]:
    """Return what a module offers: its ``__all__``, or what is defined in it or in its private parts."""
    names = ONLY.get(module.__name__, getattr(module, "__all__", None))
    if names is None:
        names = [name for name, value in vars(module).items() if is_own(module, name, value)]
    return [(name, getattr(module, name)) for name in sorted(names)]


def is_own(module: Any, name: str, value: Any) -> bool:
    home = str(getattr(value, "__module__", ""))
    is_code = inspect.isclass(value) or inspect.isfunction(value)
    return not name.startswith("_") and is_code and home.startswith(module.__name__)


def describe(name: str, value: Any) -> Iterator[str]:
    """Yield the signature of a function, or a class with its methods and properties."""
    if inspect.ismodule(value):
        yield f"{name}: module"
    elif inspect.isclass(value):
        yield f"class {name}{signature(value)}"
        for member in sorted(dir(value)):
            found = inspect.getattr_static(value, member)
            home = next(base for base in value.__mro__ if member in vars(base)).__module__
            if member.startswith("_") or not home.startswith("refinecal"):
                continue
            if isinstance(found, property):
                yield f"    {member}"
            elif callable(getattr(value, member)):
                yield f"    {member}{signature(getattr(value, member))}"
    elif callable(value):
        yield f"{name}{signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def signature(value: Any) -> str:
    """Return the arguments with their defaults; types change more often than their meaning."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [
        each.replace(annotation=inspect.Parameter.empty, default=default_of(each))
        for each in found.parameters.values()
    ]
    return str(inspect.Signature(plain))


class Default:
    """A default whose text is the same in every process."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def default_of(parameter: inspect.Parameter) -> Any:
    default = parameter.default
    if default is inspect.Parameter.empty or isinstance(default, str | int | float | tuple | None):
        return default
    return Default(getattr(default, "__name__", f"<{type(default).__name__}>"))


def commands() -> Iterator[str]:
    """Yield each command with its arguments and options."""
    from typer.main import get_command

    from refinecal.cli.app import app

    def walk(command: Any, path: str) -> Iterator[str]:
        inner = getattr(command, "commands", None)
        if inner:
            for name in sorted(inner):
                yield from walk(inner[name], f"{path} {name}")
            return
        yield path
        for param in sorted(command.params, key=lambda each: each.opts[0]):
            names = "/".join([*param.opts, *param.secondary_opts])
            yield f"    {names}{' (required)' if param.required else ''}"

    yield from walk(get_command(app), "refinecal")


def text() -> str:
    """Return the whole."""
    return "\n".join(lines()) + "\n"


def main() -> None:
    """Compare, or rewrite."""
    if "--update" in sys.argv:
        FILE.write_text(text(), encoding="utf-8")
        return
    before, now = FILE.read_text(encoding="utf-8").splitlines(), text().splitlines()
    changes = list(difflib.unified_diff(before, now, "committed", "now", n=0, lineterm=""))
    print("\n".join(changes) or "the public API is as committed")
    sys.exit(bool(changes))


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "torch")
    main()
