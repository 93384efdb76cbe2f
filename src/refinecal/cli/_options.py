"""Arguments and options that several commands share, and the completion of column names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

# panels of the help
TABLE, MODEL, OUTPUT, RUNNING = "The table", "The model", "Output", "How it is run"


def complete_column(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the table that was named before, for the shell's completion."""
    from refinecal.tabular.files import open_table

    given = [ctx.params.get("table"), ctx.params.get("predictions"), *ctx.args]
    words = [
        word for each in given for word in (each if isinstance(each, tuple | list) else [each])
    ]
    try:
        path = next(Path(word) for word in words if word is not None and Path(word).is_file())
        names = open_table(path).names
    except Exception:  # no reason to disturb someone who is typing
        return []
    return [name for name in names if name.startswith(incomplete)]


def column(name: str, help: str, **more: Any) -> Any:
    """Return an option that names a column."""
    look: dict[str, Any] = {
        "metavar": "COL",
        "rich_help_panel": TABLE,
        "autocompletion": complete_column,
    }
    return typer.Option(name, help=help, **(look | more))


def choice(*options: str, names: Sequence[str], help: str, more: Sequence[str] = ()) -> Any:
    """Return an option that is one of some names, or of ``more``; a mistyped one suggests the nearest."""

    def check(given: str) -> str:
        if given in (*names, *more):
            return given
        from difflib import get_close_matches

        near = get_close_matches(given.lower(), [*names, *more], 1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise typer.BadParameter(f"{given!r} is none of {', '.join(names)}.{meant}")

    def complete(incomplete: str) -> list[str]:
        return [name for name in (*names, *more) if name.startswith(incomplete)]

    return typer.Option(
        *options,
        metavar="NAME",
        rich_help_panel=MODEL,
        help=help,
        callback=check,
        autocompletion=complete,
    )


def number(name: str, help: str, **more: Any) -> Any:
    """Return an option that is a number."""
    return typer.Option(name, help=help, **({"metavar": "N", "rich_help_panel": MODEL} | more))


def file(*names: str, help: str, **more: Any) -> Any:
    """Return an option that is a file or folder."""
    return typer.Option(
        *names, help=help, **({"metavar": "PATH", "rich_help_panel": OUTPUT} | more)
    )


def flag(*names: str, help: str, **more: Any) -> Any:
    """Return an option that is there or not."""
    return typer.Option(*names, help=help, **({"metavar": "", "rich_help_panel": OUTPUT} | more))


Json = Annotated[bool, flag("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, flag("--quiet", "-q", help="Print errors only.")]
Verbose = Annotated[bool, flag("--verbose", "-v", help="Print more; tracebacks of errors.")]
Seed = Annotated[int, number("--seed", "The same seed gives the same result.", min=0)]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="COL",
        rich_help_panel=TABLE,
        help="The column that holds the label.",
        autocompletion=complete_column,
    ),
]
Weight = Annotated[str | None, column("--weight", "How often each row counts.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        rich_help_panel=TABLE,
        help="What separates the columns of a CSV file, if not detected.",
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        "--decimal",
        metavar="CHAR",
        rich_help_panel=TABLE,
        help="The decimal mark of a CSV file, a point or a comma, if not detected.",
    ),
]
Logits = Annotated[
    bool,
    flag("--logits", help="They are logits, not probabilities.", rich_help_panel=TABLE),
]
Clip = Annotated[
    float | None,
    number(
        "--clip",
        "Raise smaller probabilities to P, such as 1e-6, and rescale: none is 0 then.",
        metavar="P",
        min=0,
        max=0.1,
        rich_help_panel=TABLE,
    ),
]
Report = Annotated[Path | None, file("--report", help="Write an HTML report to this file.")]
RunOut = Annotated[Path, file("--out", "-o", help="The folder of the run: a new one, or --resume.")]
RetryFailed = Annotated[
    bool,
    flag("--retry-failed", help="With --resume: try again what failed.", rich_help_panel=RUNNING),
]
NoSeed = Annotated[int, typer.Option("--seed", hidden=True)]  # where nothing is random
