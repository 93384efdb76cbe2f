"""All commands. A command is imported when it is called or listed, and nothing heavy before it runs."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from refinecal import __version__
from refinecal.cli._options import source_of

COMMANDS = {  # where each is, in the order of the help; theory and experiment are groups
    "fit": "fit",
    "predict": "predict",
    "evaluate": "evaluate",
    "compare": "compare",
    "ensemble": "ensemble",
    "importance": "importance",
    "demo": "demo",
    "theory": "theory_app",
    "experiment": "experiment_app",
}
EXIT_CODES = (
    "Exit codes: 0 success, 1 invalid data or files, 2 invalid usage, 3 partial result (training runs of an "
    "experiment failed, or too few draws for a theory check), 130 interrupted."
)


class PlainHelp:
    """Help without the Python types of arguments and flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line, arguments without braces."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece.replace("{", "").replace("}", "") for piece in pieces]


class PlainCommand(PlainHelp, TyperCommand):
    """A command with plain help, whose errors name the file of a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of the command line, and of a file."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if error.param is not None and source_of(ctx, error.param) == "DEFAULT_MAP":
                error.message = f"{error.message} (in {ctx.params['config']})"
            raise


class PlainGroup(PlainHelp, TyperGroup):
    """A group of commands with plain help."""


@cache
def load(name: str) -> Any:
    """Return a command, imported when it is first asked for."""
    place = COMMANDS[name]
    found = getattr(import_module(f"refinecal.cli.{name}"), place)
    is_group = isinstance(found, typer.Typer)
    group = found if is_group else typer.Typer(rich_markup_mode="rich")
    if not is_group:
        group.command(name, epilog=found.__epilog__)(found)
    for info in group.registered_commands:
        info.cls = PlainCommand
    group.info.cls = PlainGroup
    commands = get_group(group)  # unlike get_command, without options for completion
    return commands if is_group else commands.commands[name]


class Commands(Mapping[str, Any]):
    """The commands by name."""

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __getitem__(self, name: str) -> Any:
        return load(name)


class AllCommands(PlainGroup):
    """The program."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = Commands()


app = typer.Typer(
    name="refinecal",
    cls=AllCommands,
    help="Better probabilities from any classifier: refine, then calibrate.",
    epilog=f"Start with: refinecal demo. {EXIT_CODES}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"refinecal {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version.", metavar=""
        ),
    ] = False,
) -> None: ...
