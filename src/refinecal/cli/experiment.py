"""``refinecal experiment``: the paper's experiments, on your data or on the paper's."""

from typing import Any

import typer

from refinecal.cli.experiment_report import report
from refinecal.cli.experiment_status import status
from refinecal.cli.experiment_tabular import tabular
from refinecal.cli.experiment_vision import vision

experiment_app = typer.Typer(
    name="experiment",
    help="The paper's experiments on stopping by refinement, on your tables or images.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: tuple[Any, ...] = (tabular, vision, status, report)
for each in COMMANDS:
    experiment_app.command(epilog=each.__epilog__)(each)
