"""Options that several commands share, and completion of column names."""

from __future__ import annotations

import json
import tomllib
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


def choice(*options: str, names: Names, help: str, more: Names = (), **look: Any) -> Any:
    """Return an option that must be one of ``names`` or ``more``; a mistyped one suggests the nearest."""

    def known() -> list[str]:
        return [*(names() if callable(names) else names), *(more() if callable(more) else more)]

    def check(given: str | None) -> str | None:
        if given is None or given in known():
            return given
        from difflib import get_close_matches

        near = get_close_matches(given.lower(), known(), 1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(names() if callable(names) else names)
        raise typer.BadParameter(f"{given!r} must be one of {listed}.{meant}")

    def complete(incomplete: str) -> list[str]:
        return [name for name in known() if name.startswith(incomplete)]

    usual: Any = {"metavar": "NAME", "rich_help_panel": MODEL, "autocompletion": complete}
    return typer.Option(*options, help=help, callback=check, **(usual | look))


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
SHEET = "Sheet of a spreadsheet (default: the first)."
Sheet = Annotated[str | None, number("--sheet", SHEET, metavar="NAME", rich_help_panel=TABLE)]
Logits = Annotated[
    bool, flag("--logits", help="The predictions are logits.", rich_help_panel=TABLE)
]
CLIP = "Raise probabilities below P, such as 1e-6, to P and rescale, so that none is 0."
Clip = Annotated[
    float | None, number("--clip", CLIP, metavar="P", min=0, max=0.1, rich_help_panel=TABLE)
]
COST = (
    "Costs of mistakes: FP,FN for two classes (the second class predicted wrongly, or missed), else a CSV "
    "file with a row for each label and a column for each prediction."
)
Cost = Annotated[str | None, number("--cost", COST, metavar="FP,FN", rich_help_panel=OUTPUT)]
Report = Annotated[Path | None, file("--report", help="Write an HTML report to this file.")]
RunOut = Annotated[Path, file("--out", "-o", help="Run folder: a new one, unless --resume.")]
RETRY = "With --resume, repeat training runs that failed."
RetryFailed = Annotated[bool, flag("--retry-failed", help=RETRY, rich_help_panel=RUNNING)]
NoSeed = Annotated[int, typer.Option("--seed", hidden=True)]  # where nothing is random


def refuse_given(ctx: typer.Context, names: Sequence[str], why: str) -> None:
    """Raise if one of these parameters was given on the command line."""
    for param in ctx.command.params:
        if param.name in names and source_of(ctx, param) == "COMMANDLINE":
            raise typer.BadParameter(why, param_hint=param.opts[0])


def source_of(ctx: typer.Context, param: Any) -> str | None:
    """Return where the value of a parameter comes from, such as "COMMANDLINE" or "DEFAULT_MAP"."""
    source = ctx.get_parameter_source(param.name)
    return None if source is None else source.name


# ---- options in a file -------------------------------------------------------------------------------------

CONFIG = (
    "TOML file with options as keys, such as the fit.toml of a run folder. Options on the command line come "
    "first; paths start at the current folder."
)
ONCE = ("config", "out", "resume", "restart", "overwrite", "as_json", "quiet", "verbose")


def read_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a file as defaults of the options of a command."""
    if path is None or ctx.resilient_parsing:
        return path
    params = {name: each for each in ctx.command.params for name in _keys(each)}
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint="--config") from None
    ctx.default_map = {}
    for key, value in given.items():
        param = params.get(key.replace("_", "-"))
        if param is None:
            from difflib import get_close_matches

            near = get_close_matches(key.replace("_", "-"), params, 1)
            meant = f" Did you mean {near[0]!r}?" if near else f" It may hold {', '.join(params)}."
            raise typer.BadParameter(
                f"{path} holds {key!r}, which is not an option.{meant}", param_hint="--config"
            )
        is_list, is_flag = getattr(param, "multiple", False), getattr(param, "is_flag", False)
        values = value if is_list and isinstance(value, list) else [value]
        wanted = bool if is_flag else (str, int, float)
        if not all(isinstance(v, wanted) and isinstance(v, bool) == is_flag for v in values):
            kind = "true or false" if is_flag else "a text, a number or a list of texts"
            kind = kind if is_flag or is_list else "a text or a number"
            raise typer.BadParameter(
                f"{path}: {key} is {json.dumps(value, default=str)}, but must be {kind}",
                param_hint="--config",
            )
        ctx.default_map[param.name] = values if is_list else value
    return path


def write_config(ctx: typer.Context) -> str:
    """Return the options of a command as a TOML file, without those that concern one execution only."""
    lines = [f"# refinecal {ctx.info_name} --config FILE repeats this run"]
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if param.name in ONCE or value is None or value == ():
            continue
        plain = value if isinstance(value, str | int | float | tuple | list) else str(value)
        text = json.dumps(plain, ensure_ascii=False).replace("\x7f", r"\u007f")  # as TOML wants it
        text = str(plain) if isinstance(plain, float) else text  # inf, not Infinity
        lines += [f"{key} = {text}" for key in _keys(param)]
    return "\n".join([*lines, ""])


def _keys(param: Any) -> list[str]:
    """Return the key of a parameter in a file: its long name."""
    if param.param_type_name == "argument":
        return [param.name]
    names = [name[2:] for name in param.opts if name.startswith("--")]
    return [] if param.name == "config" or param.hidden else names[:1]


Config = Annotated[Path | None, file("--config", help=CONFIG, is_eager=True, callback=read_config)]
