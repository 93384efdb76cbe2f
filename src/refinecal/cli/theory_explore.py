"""``refinecal theory explore``: a page with sliders, and the theory's curves live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refinecal.cli._console import Console, command, show_path
from refinecal.cli._options import Json, NoSeed, Quiet, Verbose, choice, file, flag, number
from refinecal.cli._outputs import PAGES, check_output
from refinecal.theory.explorer import LOSSES, RANGES, write_explorer


def slider(name: str, help: str) -> Any:
    """Return an option that says where a slider begins."""
    low, high = RANGES[name]
    return number(f"--{name.replace('_', '-')}", help, min=low, max=high)


@command("refinecal theory explore --ratio 2 --bayes-error 0.05")
def explore(
    out: Annotated[Path, file("--out", "-o", help="The page to write.")] = Path("explorer.html"),
    ratio: Annotated[float, slider("ratio", "Features for each training row, at first.")] = 0.5,
    bayes_error: Annotated[
        float, slider("bayes_error", "Error rate of the best classifier, at first.")
    ] = 0.1,
    shape_a: Annotated[
        float, slider("shape_a", "First shape of the Beta law of variances, at first.")
    ] = 1.0,
    shape_b: Annotated[float, slider("shape_b", "Its second shape, at first.")] = 1.0,
    shift: Annotated[float, slider("shift", "Smallest variance, at first.")] = 1e-3,
    loss: Annotated[str, choice("--loss", names=LOSSES, help="The loss shown at first.")] = "log",
    show: Annotated[bool, flag("--open", help="Open the page in a browser.")] = False,
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a page with sliders: how risk, calibration and refinement depend on the problem."""
    voice = Console(as_json, quiet, verbose)
    if out.suffix.lower() not in PAGES:
        raise typer.BadParameter(
            f"{out} does not end in .html: it is an HTML page", param_hint="--out"
        )
    check_output(out, (), "--out")
    start: dict[str, Any] = {
        "ratio": ratio,
        "bayes_error": bayes_error,
        "shape_a": shape_a,
        "shape_b": shape_b,
        "shift": shift,
        "loss": loss,
    }
    write_explorer(out, **start)
    voice.say(f"Explorer: {show_path(out)}", "bold")
    voice.tell(
        "Open it in a browser and move the sliders: the page solves the equations itself, without a "
        "network. Its address keeps the setting, to be shared."
    )
    voice.result({"page": out, "start": start})
    if show:
        import webbrowser

        if not webbrowser.open(out.resolve().as_uri()):
            voice.note("no browser was found: open the page yourself")
