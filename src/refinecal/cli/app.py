"""All commands. Nothing heavy is imported before a command runs."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from refinecal import __version__
from refinecal.cli.compare import compare
from refinecal.cli.demo import demo
from refinecal.cli.evaluate import evaluate
from refinecal.cli.experiment import experiment_app
from refinecal.cli.fit import fit
from refinecal.cli.predict import predict
from refinecal.cli.theory import theory_app

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
    """A command with plain help."""


class PlainGroup(PlainHelp, TyperGroup):
    """A group of commands with plain help."""


app = typer.Typer(
    name="refinecal",
    cls=PlainGroup,
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


COMMANDS: tuple[Any, ...] = (fit, predict, evaluate, compare, demo)
for command in COMMANDS:
    app.command(epilog=command.__epilog__)(command)
for group in (theory_app, experiment_app):
    app.add_typer(group, cls=PlainGroup)
for group in (app, theory_app, experiment_app):
    for info in group.registered_commands:
        info.cls = PlainCommand
