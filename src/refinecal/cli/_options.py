"""Options that several commands share, and completion of column names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

# panels of the help
TABLE, MODEL, OUTPUT, RUNNING = "Table", "Model", "Output", "Execution"


def complete_column(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the table on the command line, for shell completion."""
    from refinecal.tabular.files import open_table

    given = [ctx.params.get("table"), ctx.params.get("predictions"), *ctx.args]
    words = [
        word for each in given for word in (each if isinstance(each, tuple | list) else [each])
    ]
    try:
        path = next(Path(word) for word in words if word is not None and Path(word).is_file())
        names = open_table(path).names
    except Exception:  # completion never fails
        return []
    return [name for name in names if name.startswith(incomplete)]


def _make(look: dict[str, Any], *words: str, **more: Any) -> Any:
    """Return an option with these names and, unless it is passed as such, their help after them."""
    names = words if "help" in more else words[:-1]
    return typer.Option(*names, **({"help": words[-1]} | look | more))


COLUMN = {"metavar": "COL", "rich_help_panel": TABLE, "autocompletion": complete_column}
column = partial(_make, COLUMN)  # an option that names a column
number = partial(_make, {"metavar": "N", "rich_help_panel": MODEL})
file = partial(_make, {"metavar": "PATH", "rich_help_panel": OUTPUT})  # or a folder
flag = partial(_make, {"metavar": "", "rich_help_panel": OUTPUT})  # without a value
Names = Sequence[str] | Callable[[], Sequence[str]]  # a function is called when a command runs


def choice(*options: str, names: Names, help: str, more: Names = ()) -> Any:
    """Return an option that must be one of ``names`` or ``more``; a mistyped one suggests the nearest."""

    def known() -> list[str]:
        return [*(names() if callable(names) else names), *(more() if callable(more) else more)]

    def check(given: str) -> str:
        if given in known():
            return given
        from difflib import get_close_matches

        near = get_close_matches(given.lower(), known(), 1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(names() if callable(names) else names)
        raise typer.BadParameter(f"{given!r} must be one of {listed}.{meant}")

    def complete(incomplete: str) -> list[str]:
        return [name for name in known() if name.startswith(incomplete)]

    look: Any = {"metavar": "NAME", "rich_help_panel": MODEL, "autocompletion": complete}
    return typer.Option(*options, help=help, callback=check, **look)


Json = Annotated[bool, flag("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, flag("--quiet", "-q", help="Print errors only.")]
Verbose = Annotated[bool, flag("--verbose", "-v", help="Print more, and tracebacks of errors.")]
Seed = Annotated[int, number("--seed", "Random seed.", min=0)]
Target = Annotated[str, column("--target", "-t", help="Column of the label.")]
Weight = Annotated[str | None, column("--weight", "Column of sample weights.")]
CSV: Any = {"metavar": "CHAR", "rich_help_panel": TABLE}
Delimiter = Annotated[
    str | None, number("--delimiter", "Delimiter of CSV files (default: detected).", **CSV)
]
Decimal = Annotated[
    str | None, number("--decimal", "Decimal mark of CSV files (default: detected).", **CSV)
]
Logits = Annotated[
    bool, flag("--logits", help="The predictions are logits.", rich_help_panel=TABLE)
]
CLIP = "Raise probabilities below P, such as 1e-6, to P and rescale, so that none is 0."
Clip = Annotated[
    float | None, number("--clip", CLIP, metavar="P", min=0, max=0.1, rich_help_panel=TABLE)
]
Report = Annotated[Path | None, file("--report", help="Write an HTML report to this file.")]
RunOut = Annotated[Path, file("--out", "-o", help="Run folder: a new one, unless --resume.")]
RETRY = "With --resume, repeat training runs that failed."
RetryFailed = Annotated[bool, flag("--retry-failed", help=RETRY, rich_help_panel=RUNNING)]
NoSeed = Annotated[int, typer.Option("--seed", hidden=True)]  # where nothing is random
