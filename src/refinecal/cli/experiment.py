"""``refinecal experiment``: the paper's experiments on your own tables and images, or on its."""

from typing import Any

import typer

from refinecal.cli.experiment_report import report
from refinecal.cli.experiment_status import status
from refinecal.cli.experiment_tabular import tabular
from refinecal.cli.experiment_vision import vision

experiment_app = typer.Typer(
    name="experiment",
    help="Does stopping by refinement pay? The paper's experiments, on your tables and machines.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: tuple[Any, ...] = (tabular, vision, status, report)
for each in COMMANDS:
    experiment_app.command(epilog=each.__epilog__)(each)
