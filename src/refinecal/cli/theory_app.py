"""``refinecal theory``: what linear classifiers learn when rows and features are many, from equations."""

from typing import Any

import typer

from refinecal.cli.theory_curve import curve
from refinecal.cli.theory_explore import explore
from refinecal.cli.theory_gain import gain
from refinecal.cli.theory_heatmap import heatmap
from refinecal.cli.theory_validation import check

theory_app = typer.Typer(
    name="theory",
    help="Calibration and refinement from equations: the paper's Gaussian model, and what it predicts.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: tuple[Any, ...] = (curve, heatmap, check, gain, explore)
for each in COMMANDS:
    theory_app.command(epilog=each.__epilog__)(each)
