"""The commands, put together. Nothing heavy is imported before a command runs."""

from typing import Annotated, Any

import typer

from refinecal import __version__
from refinecal.cli.compare import compare
from refinecal.cli.demo import demo
from refinecal.cli.evaluate import evaluate
from refinecal.cli.experiment import experiment_app
from refinecal.cli.fit import fit
from refinecal.cli.predict import predict
from refinecal.cli.theory import theory_app

app = typer.Typer(
    name="refinecal",
    help="Better probabilities from any classifier: refine, then calibrate.",
    epilog="Begin with: refinecal demo. Exit codes: 0 done, 1 the data or files do not fit, "
    "2 wrong usage, 3 some trainings of an experiment failed or a check of theory is undecided, "
    "130 interrupted.",
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
app.add_typer(theory_app)
app.add_typer(experiment_app)
