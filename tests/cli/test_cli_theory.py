"""``refinecal theory curve`` and ``heatmap``: what is printed, written and refused."""

import io
import json
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_runs import run_command
from numpy.testing import assert_allclose
from rich.console import Console as RichConsole

from refinecal.cli._console import Console
from refinecal.cli._theory_options import Bar, parse_numbers, parse_rate
from refinecal.cli.theory import theory_app
from refinecal.theory.curves import minimise
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum

GRID = ("--ratios", "0.2,2", "--bayes-errors", "0.01,0.3", "--processes", "1")


run = partial(run_command, theory_app)


def words(text):
    """Return a text on one line, with percent signs next to their numbers."""
    return " ".join(text.split()).replace(" %", "%")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# ---- curve -------------------------------------------------------------------------------------------------


def test_curve_shows_the_minimisers_and_the_gain():
    out, _ = run("curve", "--ratio", 0.5, "--bayes-error", 0.1, "--spectrum", "beta:1,1")
    best = minimise(ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    first, second = out.split("λ chosen by")
    rows = {line.split()[0]: line.split()[1:] for line in first.splitlines() if line.strip()}
    assert rows["risk"][0] == f"{best.lam_risk:.4g}"
    assert rows["refinement"][3] == f"{best.by_refinement.refinement:.4f}"
    said = words(second)
    assert f" risk {best.by_risk.risk:.4f} risk, then" in said
    for text, loss, gain in (
        ("refinement, then", best.by_refinement.refinement, best.gain),
        ("refinement, not", best.by_refinement.risk, best.gain_uncalibrated),
    ):
        assert f"{text} calibrated {loss:.4f} {-100 * gain:+.1f}%" in said
    assert f"then calibrating, gives {100 * best.gain:.1f}% less log loss" in said
    assert f"{100 * best.gain_calibrated:.1f}% less than choosing λ by risk, then" in said
    assert "As λ decreases, calibration reaches its minimum first, at" in said
    assert "-o curve.png draws the curves" in said
    assert not list(Path().iterdir())


@pytest.mark.parametrize("loss", ["log", "brier"])
@pytest.mark.parametrize("ratio", [0.1, 20])
def test_no_share_is_minus_0(ratio, loss):
    """Where noise is all there is, the four ways to choose are the same up to rounding."""
    out, _ = run("curve", "--bayes-error", 0.49, "--ratio", ratio, "--loss", loss)
    assert "0.0%" in words(out)
    assert "-0.0" not in out
    assert ("Brier score" in out) == (loss == "brier")


def test_what_concerns_the_figure_alone_is_said_where_there_is_none():
    _, err = run("curve", "--lam-min", 0.01, "--points", 5, "--json")
    assert err == "note: --lam-min, --points: no effect without -o, since no figure is drawn"
    assert run("curve", "--lam-min", 0.01, "--points", 5, "-o", "c.svg")[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_curve_draws_a_figure_with_its_numbers_beside_it(ending):
    out, _ = run("curve", "-o", f"curve.{ending}", "--points", 20)
    assert f"Figure: curve.{ending}" in out
    assert "Table:  curve.csv" in out
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    written = Path(f"curve.{ending}").read_bytes()
    assert written.startswith(begins)
    table = pd.read_csv("curve.csv")
    assert len(table) == 20
    assert_allclose(table["risk"], table["calibration"] + table["refinement"])
    assert sorted(each.name for each in Path().iterdir()) == ["curve.csv", f"curve.{ending}"]
    run("curve", "-o", f"curve.{ending}", "--points", 20)
    assert Path(f"curve.{ending}").read_bytes() == written  # the same question, the same file


def test_curve_takes_a_range_of_its_own_and_writes_parquet():
    run(
        "curve",
        "--lam-min",
        0.01,
        "--lam-max",
        1,
        "--points",
        3,
        "-o",
        "c.svg",
        "--table",
        "parquet",
        "-q",
    )
    table = pd.read_parquet("c.parquet")
    assert_allclose(table["lam"], [0.01, 0.1, 1.0])
    ET.parse("c.svg")


def test_curve_as_json_is_one_object():
    out, _ = run("curve", "--json", "--method", "lda", "--loss", "brier", "--signal", 0.5)
    found = json.loads(out)
    best = minimise(ratio=0.5, signal=0.5, spectrum=BetaSpectrum(1, 1), method="lda", loss="brier")
    assert_allclose(found["gain"], best.gain)
    assert found["method"] == "lda"
    assert found["at_bound_refinement"] is bool(best.at_bound_refinement)
    assert found["figure"] is None


def test_curve_says_where_a_curve_still_falls():
    out, _ = run("curve", "--spectrum", "points:1")
    assert "refinement (end)" in out
    best = minimise(ratio=0.5, bayes_error=0.1, spectrum=PointSpectrum([1.0]))
    low, high = best.lam_range
    assert f"search range, {low:.3g} to {high:.3g}." in words(out)
    assert best.at_bound_refinement


def test_commands_that_are_quiet_print_nothing():
    assert run("curve", "-q") == ("", "")
    assert run("heatmap", *GRID, "-q") == ("", "")


# ---- heatmap -----------------------------------------------------------------------------------------------


def test_heatmap_writes_figure_and_table_and_sums_up():
    out, _ = run(
        "heatmap", *GRID, "--spectrum", "beta:1,5", "--spectrum", "beta:5,1", "-o", "maps.png"
    )
    table = pd.read_csv("maps.csv")
    assert len(table) == 8
    assert Path("maps.png").read_bytes().startswith(b"\x89PNG")
    assert "8 problems, logistic, log loss" in out
    for label, part in table.groupby("spectrum"):
        (line,) = (line for line in out.splitlines() if line.startswith(f" {label} "))
        largest = part.loc[part["gain"].idxmax()]
        cells = line.split(")")[1].split()
        assert cells[0] == f"{100 * largest['gain']:.1f}%"
        assert [float(cell) for cell in cells[1:3]] == [largest["ratio"], largest["bayes_error"]]
        assert cells[3] == f"{100 * part['gain'].median():.2f}%"
        assert cells[4] == f"{100 * (part['log10_gap'] > 0).mean():.0f}%"


def test_heatmap_as_json_is_one_object():
    out, _ = run("heatmap", *GRID, "--spectrum", "beta:2,2", "--json", "--table", "parquet")
    found = json.loads(out)
    table = pd.read_parquet("heatmap.parquet")
    (only,) = found["maps"]
    assert_allclose(only["largest_gain"], table["gain"].max())
    assert only["cells"] == 4
    assert (found["figure"], found["table"]) == ("heatmap.png", "heatmap.parquet")


def test_lists_of_numbers_are_read():
    assert_allclose(parse_numbers("--ratios", "0.1:10:21"), np.logspace(-1, 1, 21))
    assert parse_numbers("--ratios", "1") == [1.0]
    assert parse_numbers("--bayes-errors", "1%,0.1, 20 %", parse_rate) == [0.01, 0.1, 0.2]
    assert_allclose(parse_numbers("--bayes-errors", "1%:25%:3", parse_rate), [0.01, 0.05, 0.25])


def test_a_rate_may_be_in_percent():
    found = [json.loads(run("curve", "--bayes-error", rate, "--json")[0]) for rate in ("10%", 0.1)]
    assert found[0] == found[1]


def test_heatmap_says_where_it_writes():
    assert "writes heatmap.png" in words(run("heatmap", "--help")[0])
    out, _ = run("heatmap", *GRID, "--spectrum", "identity")
    assert "Figure: heatmap.png" in out
    assert {each.name for each in Path().iterdir()} == {"heatmap.png", "heatmap.csv"}


# ---- help and errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["curve", "heatmap"])
def test_help_has_an_example(name):
    out, _ = run(name, "--help")
    said = " ".join(out.replace("│", " ").split())
    assert f"Example: refinecal theory {name}" in said
    assert "beta:A,B[,SHIFT[,SCALE]]" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("curve", "--ratio", "0"), 2, "0 is not positive and finite"),
        (("curve", "--bayes-error", "10"), 2, "both excluded. For percent, write 10%."),
        (("curve", "--bayes-error", "0.5"), 2, "0.5 is not between 0 and 0.5, both excluded. ╰"),
        (("curve", "--bayes-error", "60%"), 2, "0.6 is not between 0 and 0.5, both excluded. ╰"),
        (("curve", "--bayes-error", "0,1"), 2, "'0,1' is not a number. Use a decimal point"),
        (("curve", "--ratio", "0,1"), 2, "'0,1' is not a number. Use a decimal point"),
        (("curve", "--ratio", "half"), 2, "'half' is not a number. ╰"),
        (("curve", "--spectrum", "uniform:0,2"), 2, "beta:1,1,0,2"),
        (("curve", "--spectrum", "uniform:-1,2"), 2, "use beta:1,1,0,HIGH"),
        (("curve", "--spectrum", "mp:2"), 2, "or beta:A,B,SHIFT with a small shift"),
        (("curve", "--spectrum", "beta:0,1"), 2, "write points:V,V,…"),
        (("curve", "--spectrum", "beta:1,1,0"), 1, "Give --signal instead, or give the spectrum"),
        (("heatmap", "--spectrum", "beta:1,1,0"), 1, "Give the spectrum a shift"),
        (("curve", "--bayes-error", "0.1", "--signal", "1"), 2, "not both"),
        (("curve", "--spectrum", "gamma:1"), 2, "--spectrum"),
        (("curve", "--spectrum", "beta:1"), 2, "--spectrum"),
        (("curve", "--method", "logistc"), 2, "Did you mean 'logistic'?"),
        (("curve", "--loss", "hinge"), 2, "must be one of log, brier, spherical"),
        (("curve", "--lam-min", "2", "--lam-max", "1"), 2, "from 2 to 1"),
        (("curve", "--points", "1"), 2, "--points"),
        (("curve", "-o", "curve.txt"), 2, "does not end in .png, .svg, .pdf"),
        (("curve", "-o", "nowhere/curve.png"), 1, "the folder nowhere does not exist"),
        (("curve", "--table", "xlsx"), 2, "must be one of csv, parquet"),
        (("heatmap", "--ratios", "a"), 2, "'a' is not a number"),
        (("heatmap", "--ratios", "1:2"), 2, "FIRST:LAST:COUNT"),
        (("heatmap", "--ratios", "1:2:0"), 2, "COUNT is 0, but must be 1 to 1000"),
        (("heatmap", "--ratios", "-1"), 2, "-1 is not positive"),
        (("heatmap", "--bayes-errors", "0.1,0.6"), 2, "0.6 is not between 0 and 0.5"),
        (("heatmap", "--processes", "0"), 2, "--processes"),
        (("heatmap", "-o", "."), 2, "does not end in"),
    ],
)
def test_mistakes_are_explained(arguments, code, said):
    _, err = run(*arguments, code=code)
    assert said in err
    assert not list(Path().iterdir())


def test_what_does_not_converge_is_a_message(monkeypatch):
    from refinecal.theory import curves

    def fail(**_):
        raise RuntimeError("the system did not converge")

    monkeypatch.setattr(curves, "minimise", fail)
    _, err = run("curve", code=1)
    assert err == "error: the system did not converge"


# ---- what is beside a figure -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("command", [("curve",), ("heatmap", *GRID)], ids=lambda words: words[0])
def test_a_table_of_the_user_is_never_replaced(command, kind):
    mine = pd.DataFrame({"age": [30, 40], "churned": [0, 1]})
    path = Path(f"churn.{kind}")
    mine.to_csv(path, index=False) if kind == "csv" else mine.to_parquet(path)
    before = path.read_bytes()
    _, error = run(*command, "-o", "churn.png", "--table", kind, code=1)
    assert "would replace churn" in error
    assert path.read_bytes() == before
    assert not Path("churn.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("command", [("curve",), ("heatmap", *GRID)], ids=lambda words: words[0])
def test_our_own_table_is(command, kind):
    for _ in range(2):
        run(*command, "-o", "ours.png", "--table", kind)
    assert Path(f"ours.{kind}").is_file()


def test_an_empty_file_is_not_ours():
    Path("empty.csv").touch()
    run("curve", "-o", "empty.png", code=1)


def test_a_list_that_would_never_end():
    _, error = run("heatmap", "--ratios", "0.1:10:1000000000", code=2)
    assert "COUNT is 1000000000, but must be 1 to 1000" in error


def test_a_bar_is_drawn_on_a_terminal():
    drawn = io.StringIO()
    voice = Console(False, False, False)
    voice.err = RichConsole(file=drawn, force_terminal=True, width=80)
    with Bar(voice, "cells") as bar:
        bar(3, 12)
    assert "3/12" in drawn.getvalue()
