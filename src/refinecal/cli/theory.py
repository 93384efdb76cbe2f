"""``refinecal theory``: what the paper's theory predicts for linear classifiers on Gaussian data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import format_signed, percent, significant
from refinecal.cli._console import FAILED, Console, command, count, show_path
from refinecal.cli._options import (
    MODEL,
    Json,
    NoSeed,
    Quiet,
    Seed,
    Verbose,
    choice,
    file,
    flag,
    number,
)
from refinecal.cli._outputs import PAGES, check_output
from refinecal.cli._theory_options import (
    LAWS,
    Bar,
    FigureFile,
    Law,
    Loss,
    Method,
    Ratio,
    TableKind,
    check_figure,
    explain_failures,
    parse_law,
    parse_numbers,
    parse_rate,
    positive,
    rate,
    write_figure,
)
from refinecal.cli.theory_gain import gain
from refinecal.theory.explorer import LOSSES, RANGES, write_explorer

if TYPE_CHECKING:
    from refinecal.report import Page
    from refinecal.theory.curves import Minimisers
    from refinecal.theory.empirical import Check
    from refinecal.theory.heatmaps import HeatMap

POINTS = 200  # on a curve
MARGIN = 100.0  # factor by which a curve extends beyond its minima
UNDECIDED = 3  # exit code of `check` with too few draws
NOTABLE_SHIFT = 0.5  # standard errors
LIST = "N,N,… or FIRST:LAST:COUNT"


# ---- curve -------------------------------------------------------------------------------------------------


@command("refinecal theory curve --ratio 0.5 --bayes-error 0.1 --spectrum beta:1,1 -o curve.png")
def curve(
    ratio: Ratio = 0.5,
    bayes_error: Annotated[
        float | None,
        rate(
            "--bayes-error",
            "Error rate of the best classifier, such as 0.1 or 10% (default: 0.1, unless --signal is given).",
        ),
    ] = None,
    signal: Annotated[
        float | None, positive("--signal", "Norm of the class mean, instead of --bayes-error.")
    ] = None,
    spectrum: Law = "beta:1,1",
    method: Method = "logistic",
    loss: Loss = "log",
    lam_min: Annotated[
        float | None, positive("--lam-min", "Smallest λ of the figure (default: below all minima).")
    ] = None,
    lam_max: Annotated[
        float | None, positive("--lam-max", "Largest λ of the figure (default: above all minima).")
    ] = None,
    points: Annotated[
        int | None,
        number("--points", f"Number of λ values in the figure (default: {POINTS}).", min=2),
    ] = None,
    out: FigureFile = None,
    table: TableKind = "csv",
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find the λ that minimize risk, calibration and refinement error; with -o, draw the curves."""
    from refinecal.theory.curves import minimise, path

    console = Console(as_json, quiet, verbose)
    table_path = check_figure(out, table)
    if signal is not None and bayes_error is not None:
        raise typer.BadParameter("give --bayes-error or --signal, not both", param_hint="--signal")
    if signal is None and bayes_error is None:
        bayes_error = 0.1
    problem: dict[str, Any] = {"ratio": ratio, "spectrum": parse_law(spectrum), "method": method}
    problem |= {"bayes_error": bayes_error, "signal": signal, "loss": loss}
    with explain_failures("Give --signal instead, or give"):
        best = minimise(**problem)
        found = path(_choose_lams(best, lam_min, lam_max, points or POINTS), **problem)
    numbers = {name: values[0] for name, values in best.to_dict().items()}
    names = {"method": method, "loss": loss, "spectrum": best.by_risk.spectrum.label}
    page = curve_page(best, {**names, **numbers, "figure": out, "table": table_path})
    console.print_page(page)
    if out is not None and table_path is not None:
        from refinecal.plots.theory_curves import draw_path

        write_figure(
            console, (out, table_path), (7.0, 5.0), found.to_dict(), draw_path, found, best
        )
    else:
        console.say("\n-o curve.png draws the curves and writes their numbers to curve.csv.")
        given = {"--lam-min": lam_min, "--lam-max": lam_max, "--points": points}
        unused = [name for name, value in given.items() if value is not None]
        if unused:
            console.note(f"{', '.join(unused)}: no effect without -o, since no figure is drawn")
    console.result(page.data)


def _choose_lams(best: Minimisers, low: float | None, high: float | None, points: int) -> Any:
    """Return λ values around the minima, or between the bounds that were given."""
    import numpy as np

    lams = [float(getattr(best, f"lam_{name}")) for name in ("risk", "calibration", "refinement")]
    first, last = best.lam_range
    inside = [lam for lam in lams if first < lam < last] or [float(np.sqrt(first * last))]
    low = max(min(inside) / MARGIN, first) if low is None else low
    high = min(max(inside) * MARGIN, last) if high is None else high
    if not low < high:
        raise typer.BadParameter(
            f"the curve would run from {significant(low, 3)} to {significant(high, 3)}",
            param_hint="--lam-max",
        )
    return np.geomspace(low, high, points)


def curve_page(best: Minimisers, data: Mapping[str, Any]) -> Page:
    """Return the three minima, the loss after four ways to choose λ, and the gain in a sentence."""
    from refinecal.plots.style import loss_name
    from refinecal.report import Column, Page, Section, Table, Written
    from refinecal.theory.curves import setting

    points = [describe_order(best)]
    minima: list[list[Any]] = []
    for name in ("risk", "calibration", "refinement"):
        at, lam = getattr(best, f"by_{name}"), float(getattr(best, f"lam_{name}"))
        end = " (end)" if getattr(best, f"at_bound_{name}").item() else ""
        terms = (at.risk, at.calibration, at.refinement, at.error_rate)
        minima.append([f"{name}{end}", Written(significant(lam, 4), lam), *map(float, terms)])
    if any("(end)" in row[0] for row in minima):
        ends = " to ".join(significant(lam, 3) for lam in best.lam_range)
        points.append(f"(end): still decreasing at this end of the search range, {ends}.")
    risk = float(best.by_risk.risk)
    losses = {
        "risk": risk,
        "risk, then calibrated": float(best.by_risk.refinement),
        "refinement, then calibrated": float(best.by_refinement.refinement),
        "refinement, not calibrated": float(best.by_refinement.risk),
    }
    ways: list[list[Any]] = [[name, loss, loss / risk - 1] for name, loss in losses.items()]
    ways[0][-1] = None
    name = loss_name(best.by_risk.parts.loss)
    loss, error_rate = Column(name, digits=4), Column("error rate", digits=4, spare=1)
    columns = [Column(term, digits=4) for term in ("risk", "calibration", "refinement")]
    change = Column("difference", percent=True, sign=True)
    tables = (
        Table("Minima", ["minimum of", "λ", *columns, error_rate], minima, terminal=3),
        Table("Ways to choose λ", ["λ chosen by", loss, change], ways, terminal=4),
    )
    return Page(
        setting(best.by_risk),
        f"Choosing λ by refinement, then calibrating, gives {percent(float(best.gain))} less {name} than "
        f"choosing λ by risk, and {percent(float(best.gain_calibrated))} less than choosing λ by risk, then "
        "calibrating.",
        points=points,
        sections=[Section("Minima", (), tables)],
        data=data,
    )


def describe_order(best: Minimisers) -> str:
    """Say which of calibration and refinement reaches its minimum first as λ decreases."""
    gap = float(best.log10_gap)
    first, then = ("calibration", "refinement") if gap > 0 else ("refinement", "calibration")
    text = f"As λ decreases, {first} reaches its minimum first"
    if best.at_bound_calibration or best.at_bound_refinement:  # then the distance is arbitrary
        return f"{text}."
    return f"{text}, at {significant(10 ** abs(gap), 3)} times the λ that minimizes {then}."


# ---- heatmap -----------------------------------------------------------------------------------------------


@command("refinecal theory heatmap --spectrum beta:1,5 --spectrum beta:5,1 -o maps.png")
def heatmap(
    spectrum: Annotated[
        list[str] | None,
        typer.Option(
            "--spectrum",
            metavar="LAW",
            help=f"Distribution of covariance eigenvalues: {LAWS}. Repeatable (default: the paper's "
            "beta:1,5, beta:2,2 and beta:5,1).",
            rich_help_panel=MODEL,
        ),
    ] = None,
    ratios: Annotated[
        str, number("--ratios", f"Numbers of features per training row: {LIST}.", metavar="LIST")
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
        int | None,
        number("--processes", "Number of processes (default: by the size of the grid).", min=1),
    ] = None,
    out: Annotated[
        Path, file("--out", "-o", help="Write the figure to this .png, .svg or .pdf file.")
    ] = Path("heatmap.png"),
    table: TableKind = "csv",
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Map the gain from refinement, and whether calibration or refinement is minimized first.

    Without -o, writes heatmap.png and its numbers, heatmap.csv, to the current folder.
    """
    from refinecal.plots.theory_curves import draw_heatmaps
    from refinecal.theory.heatmaps import heatmap as compute
    from refinecal.theory.heatmaps import paper_spectra

    console = Console(as_json, quiet, verbose)
    table_path = check_figure(out, table)
    assert table_path is not None
    laws = [parse_law(text) for text in spectrum] if spectrum else paper_spectra()
    axes = (
        parse_numbers("--ratios", ratios),
        parse_numbers("--bayes-errors", bayes_errors, parse_rate),
    )
    with console.show_warnings(), explain_failures(), Bar(console, "cells") as bar:
        maps = compute(laws, *axes, method=method, loss=loss, processes=processes, progress=bar)
    names = {"method": method, "loss": loss}
    page = maps_page(maps, {**names, "maps": summarise(maps), "figure": out, "table": table_path})
    console.print_page(page)
    size = (2.6 + 2.5 * len(laws), 8.4)
    write_figure(console, (out, table_path), size, maps.columns, draw_heatmaps, maps)
    console.result(page.data)


def summarise(maps: HeatMap) -> list[dict[str, Any]]:
    """Return the largest and the median gain of each spectrum, and how often calibration is first."""
    import numpy as np

    found = []
    grids = zip(maps.spectra, maps.grid("gain"), maps.grid("log10_gap"), strict=True)
    for each, gains, gaps in grids:
        row, column = np.unravel_index(gains.argmax(), gains.shape)
        found.append(
            {
                "spectrum": each.label,
                "cells": gains.size,
                "largest_gain": gains[row, column],
                "at_ratio": maps.ratios[column],
                "at_bayes_error": maps.bayes_errors[row],
                "median_gain": np.median(gains),
                "calibration_first": np.mean(gaps > 0),
            }
        )
    return found


def maps_page(maps: HeatMap, data: Mapping[str, Any]) -> Page:
    """Return one row for each spectrum."""
    from refinecal.report import Column, Page, Section, Table, Written

    rows = [
        [
            each["spectrum"],
            each["largest_gain"],
            *(Written(significant(each[at], 3), each[at]) for at in ("at_ratio", "at_bayes_error")),
            each["median_gain"],
            each["calibration_first"],
        ]
        for each in data["maps"]
    ]
    columns: list[str | Column] = [
        "spectrum",
        Column("largest gain", percent=True),
        "at p/n",
        "Bayes error",
        Column("median", digits=2, percent=True, spare=2),
        Column("cal. first", digits=0, percent=True, spare=1),
    ]
    table = Table("Gains", columns, rows, terminal=len(rows))
    return Page(
        f"{count(len(maps.columns['gain']), 'problem')}, {maps.method}, {maps.loss} loss",
        "",
        points=[
            "Gain: how much lower the loss is if λ is chosen by refinement, followed by calibration, instead "
            "of by risk. Cal. first: share of problems in which calibration error is smallest at a larger λ "
            "than refinement."
        ],
        sections=[Section("Gains", (), (table,))],
        data=data,
    )


# ---- check -------------------------------------------------------------------------------------------------


@command("refinecal theory check --n 1000 --seeds 20 --out check.png")
def check(
    n: Annotated[int, number("--n", "Training rows in each data set.", min=10)] = 2000,
    seeds: Annotated[
        int, number("--seeds", "Number of data sets to draw; 20 or more for a verdict.", min=2)
    ] = 50,
    ratio: Ratio = 0.5,
    bayes_error: Annotated[
        float, rate("--bayes-error", "Error rate of the best classifier, such as 0.1 or 10%.")
    ] = 0.1,
    spectrum: Law = "beta:1,1",
    method: Method = "logistic",
    loss: Loss = "log",
    lams: Annotated[
        str, number("--lams", f"Regularization strengths λ: {LIST}.", metavar="LIST")
    ] = "0.001:10:17",
    processes: Annotated[
        int | None, number("--processes", "Number of processes (default: all cores).", min=1)
    ] = None,
    seed: Seed = 0,
    out: FigureFile = None,
    table: TableKind = "csv",
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train classifiers on simulated data and compare them with the theory.

    Exit codes: 0 the deviations are within sampling error; 1 they are not; 3 too few draws to tell.
    """
    from refinecal.theory.empirical import check as run

    console = Console(as_json, quiet, verbose)
    table_path = check_figure(out, table)
    law, strengths = parse_law(spectrum), parse_numbers("--lams", lams)
    problem: dict[str, Any] = {"ratio": ratio, "bayes_error": bayes_error, "spectrum": law}
    problem |= {"n": n, "seeds": seeds, "method": method, "loss": loss, "seed": seed}
    with console.show_warnings(), explain_failures(), Bar(console, "draws") as bar:
        found = run(strengths, **problem, processes=processes, progress=bar)
    page = check_page(found, {**found.to_dict(), "figure": out, "table": table_path})
    console.print_page(page)
    if out is not None and table_path is not None:
        from refinecal.plots.theory_check import draw_check

        write_figure(console, (out, table_path), (9.0, 5.2), found.columns(), draw_check, found)
    else:
        console.say("\n-o check.png draws the comparison and writes its numbers to check.csv.")
    console.result(page.data)
    if found.holds is not True:
        raise typer.Exit(UNDECIDED if found.holds is None else FAILED)


def check_page(found: Check, data: Mapping[str, Any]) -> Page:
    """Return theory and measurement at each λ, then the largest deviations and the verdict."""
    from refinecal.report import Column, Page, Section, Table, Written

    draws, lam = found.draws, Column("λ")
    deviation = Column("dev.", digits=1, sign=True)
    columns = [lam]
    parts: list[Any] = [[Written(significant(each, 3), each) for each in found.lam]]
    for name, short in (("risk", "risk"), ("calibration", "calibr."), ("refinement", "refin.")):
        columns += [Column("exp.", digits=4), Column(short, digits=4), deviation]
        parts += [draws.expected[name], draws.measured[name], draws.deviation[name]]
    rows: list[Any] = list(zip(*parts, strict=True))
    tables = [Table("Theory and measurement", columns, rows, terminal=len(rows))]
    means = [Column(name, digits=4) for name in ("theory", "expected", "measured")]
    for title, each in (("theory of each draw", draws), ("theory of the law", found.law)):
        largest = [each.largest_of(name) for name in each.theory]
        rows = [
            [
                one.quantity.replace("_", " "),
                Written(significant(one.lam, 3), one.lam),
                *(one.theory, one.expected, one.measured),
                Written(significant(one.standard_error, 2), one.standard_error),
                one.deviation,
            ]
            for one in largest
        ]
        columns = [Column(title), lam, *means, Column("± s.e."), deviation]
        tables.append(Table(f"Largest deviations: {title}", columns, rows, terminal=len(rows)))
    points = []
    if found.holds is not None:
        verdict = found.law.verdict
        points.append(f"Against the law, as in the paper: {verdict[0].lower()}{verdict[1:]}")
    points.append(
        "First table: the mean that theory expects, given the spread of the draws (exp.), the measured mean, "
        "and their difference (dev.) in standard errors of the mean difference between each draw and its own "
        "theory. The other tables: the largest differences."
    )
    shifts = describe_shifts(found)
    return Page(
        found.setting,
        found.verdict,
        points=[*points, shifts] if shifts else points,
        sections=[Section("Theory and measurement", (), tables)],
        data=data,
    )


def describe_shifts(found: Check) -> str:
    """Say where the spread of the draws alone moves a mean by half a standard error or more."""
    import numpy as np

    draws, shifts = found.draws, []
    for name in draws.theory:
        gaps = draws.expected[name] - draws.theory[name]
        sizes = np.abs(gaps) / draws.standard_error[name]
        at = int(sizes.argmax())
        if sizes[at] >= NOTABLE_SHIFT:
            gap, lam = format_signed(gaps[at], 4), significant(found.lam[at], 3)
            shifts.append(f"{name.replace('_', ' ')} by {gap} at λ = {lam}")
    if not shifts:
        return ""
    return (
        "The expected mean is not the theoretical value itself: the spread of the draws shifts the mean of "
        f"a nonlinear function, here {', '.join(shifts)}."
    )


# ---- explore -----------------------------------------------------------------------------------------------


def slider(name: str, help: str) -> Any:
    """Return an option for the initial position of a slider."""
    low, high = RANGES[name]
    return number(f"--{name.replace('_', '-')}", f"Initial {help}.", min=low, max=high)


@command("refinecal theory explore --ratio 2 --bayes-error 0.05")
def explore(
    out: Annotated[Path, file("--out", "-o", help="Write the page to this .html file.")] = Path(
        "explorer.html"
    ),
    ratio: Annotated[float, slider("ratio", "number of features per training row")] = 0.5,
    bayes_error: Annotated[float, slider("bayes_error", "error rate of the best classifier")] = 0.1,
    shape_a: Annotated[
        float, slider("shape_a", "first shape parameter of the Beta law of the eigenvalues")
    ] = 1.0,
    shape_b: Annotated[
        float, slider("shape_b", "second shape parameter of the Beta law of the eigenvalues")
    ] = 1.0,
    shift: Annotated[float, slider("shift", "smallest eigenvalue")] = 1e-3,
    loss: Annotated[
        str, choice("--loss", names=LOSSES, help="Loss shown initially: log or brier.")
    ] = "log",
    show: Annotated[bool, flag("--open", help="Open the page in a browser.")] = False,
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write an HTML page with sliders that plots risk, calibration and refinement."""
    console = Console(as_json, quiet, verbose)
    if out.suffix.lower() not in PAGES:
        raise typer.BadParameter(f"{out} is a page, but does not end in .html", param_hint="--out")
    check_output(out, (), "--out")
    start: dict[str, Any] = {"ratio": ratio, "bayes_error": bayes_error, "shape_a": shape_a}
    start |= {"shape_b": shape_b, "shift": shift, "loss": loss}
    write_explorer(out, **start)
    console.say(f"Explorer: {show_path(out)}", "bold")
    console.tell(
        "Open the page in a browser and move the sliders. It solves the equations itself and needs no "
        "network. Its address holds the settings, so you can share them."
    )
    console.result({"page": out, "start": start})
    if show:
        import webbrowser

        if not webbrowser.open(out.resolve().as_uri()):
            console.note("no browser was found: open the page yourself")


theory_app = typer.Typer(
    name="theory",
    help="Predict calibration and refinement errors with the paper's Gaussian model.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: tuple[Any, ...] = (curve, heatmap, check, gain, explore)
for each in COMMANDS:
    theory_app.command(epilog=each.__epilog__)(each)
