"""``refinecal theory heatmap``: many problems at once, as in the paper's figure 8."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import tidy_sentence
from refinecal.cli._console import Console, command, count
from refinecal.cli._options import MODEL, Json, NoSeed, Quiet, Verbose, file, number
from refinecal.cli._theory_options import (
    LAWS,
    Bar,
    Loss,
    Method,
    TableKind,
    check_figure,
    explain_failures,
    parse_law,
    parse_numbers,
    parse_rates,
    write_figure,
)

if TYPE_CHECKING:
    from refinecal.theory.heatmaps import HeatMap


@command("refinecal theory heatmap --spectrum beta:1,5 --spectrum beta:5,1 -o maps.png")
def heatmap(
    spectrum: Annotated[
        list[str] | None,
        typer.Option(
            "--spectrum",
            metavar="LAW",
            help=f"Law of the eigenvalues: {LAWS}. May be given again; by default the paper's beta:1,5, "
            "beta:2,2 and beta:5,1.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    ratios: Annotated[
        str,
        number("--ratios", "Features for each row: R,R,… or FIRST:LAST:COUNT.", metavar="LIST"),
    ] = "0.1:10:21",
    bayes_errors: Annotated[
        str,
        number(
            "--bayes-errors", "Error rates of the best classifier, such as 1%,0.1.", metavar="LIST"
        ),
    ] = "0.001,0.01,0.03,0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4,0.45",
    method: Method = "logistic",
    loss: Loss = "log",
    processes: Annotated[
        int | None, number("--processes", "Instead of as many as pay.", min=1)
    ] = None,
    out: Annotated[
        Path, file("--out", "-o", help="Where the figure goes: a .png, .svg or .pdf file.")
    ] = Path("heatmap.png"),
    table: TableKind = "csv",
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Map what is gained by refinement, and which minimiser comes first, over many problems.

    Without -o the figure goes to heatmap.png in the current folder, and its numbers to heatmap.csv.
    """
    from refinecal.theory.heatmaps import heatmap as compute
    from refinecal.theory.heatmaps import paper_spectra

    voice = Console(as_json, quiet, verbose)
    beside = check_figure(out, table)
    laws = [parse_law(text) for text in spectrum] if spectrum else paper_spectra()
    axes = (parse_numbers("--ratios", ratios), parse_rates("--bayes-errors", bayes_errors))
    with voice.show_warnings(), explain_failures(), Bar(voice, "cells") as bar:
        maps = compute(laws, *axes, method=method, loss=loss, processes=processes, progress=bar)
    show_maps(voice, maps)

    from refinecal.plots.theory import draw_heatmaps

    assert beside is not None
    size = (2.6 + 2.5 * len(laws), 8.4)
    write_figure(voice, (out, beside), size, maps.columns, draw_heatmaps, maps)
    voice.result(
        {"method": method, "loss": loss, "maps": summarise(maps), "figure": out, "table": beside}
    )


def summarise(maps: HeatMap) -> list[dict[str, Any]]:
    """Return for each spectrum where the gain is largest, its median, and how often calibration is first."""
    import numpy as np

    found = []
    grids = zip(maps.spectra, maps.grid("gain"), maps.grid("log10_gap"), strict=True)
    for each, gain, gap in grids:
        row, column = np.unravel_index(gain.argmax(), gain.shape)
        found.append(
            {
                "spectrum": each.label,
                "cells": gain.size,
                "largest_gain": gain[row, column],
                "at_ratio": maps.ratios[column],
                "at_bayes_error": maps.bayes_errors[row],
                "median_gain": np.median(gain),
                "calibration_first": np.mean(gap > 0),
            }
        )
    return found


def show_maps(voice: Console, maps: HeatMap) -> None:
    """Show one row for each spectrum."""
    rows = [
        [
            each["spectrum"],
            tidy_sentence(f"{each['largest_gain']:.1%}"),
            f"{each['at_ratio']:.3g}",
            f"{each['at_bayes_error']:.3g}",
            tidy_sentence(f"{each['median_gain']:.2%}"),
            tidy_sentence(f"{each['calibration_first']:.0%}"),
        ]
        for each in summarise(maps)
    ]
    voice.say(
        f"{count(len(maps.columns['gain']), 'problem')}, {maps.method}, {maps.loss} loss", "bold"
    )
    header = ["spectrum", "largest gain", "at p/n", "Bayes error", "median", "cal. first"]
    voice.table(header, rows, spare=("cal. first", "median"))
    voice.tell(
        "Gain: what choosing the strength by refinement, then calibrating, saves of the smallest risk. "
        "Cal. first: the share of problems in which calibration is smallest at a larger strength than "
        "refinement."
    )
