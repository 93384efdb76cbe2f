"""``refinecal theory curve`` and ``heatmap``: what is printed, written and refused."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from refinecal.cli._theory import numbers
from refinecal.cli.theory import theory_app
from refinecal.theory.curves import minimise
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum

GRID = ("--ratios", "0.2,2", "--bayes-errors", "0.01,0.3", "--processes", "1")


def run(*arguments, code=0, columns=100):
    """Run a command in this process; return what it printed on stdout, and on stderr in one line."""
    result = CliRunner().invoke(
        theory_app,
        [str(each) for each in arguments],
        env={"COLUMNS": str(columns), "NO_COLOR": "1"},
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, " ".join(result.stderr.replace("│", " ").split())


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# ---- curve -------------------------------------------------------------------------------------------------


def test_curve_shows_the_minimisers_and_the_gain():
    out, _ = run("curve", "--ratio", 0.5, "--bayes-error", 0.1, "--spectrum", "beta:1,1")
    best = minimise(ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith(" r")}
    assert rows["risk"][0] == f"{best.lam_risk:.4g}"
    assert rows["refinement"][3] == f"{best.by_refinement.refinement:.4f}"
    said = " ".join(out.split())
    assert f"then calibrated: {100 * best.gain:.1f} % less log loss" in said
    assert "As λ falls, calibration is smallest first" in said
    assert not list(Path().iterdir())


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
    assert "still falls at the end of the range" in " ".join(out.split())
    assert minimise(ratio=0.5, bayes_error=0.1, spectrum=PointSpectrum([1.0])).at_bound_refinement


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
        (line,) = (line for line in out.splitlines() if line.strip().startswith(label))
        largest = part.loc[part["gain"].idxmax()]
        cells = line.split(")")[1].replace("\u202f", "").split()
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
    assert_allclose(numbers("--ratios", "0.1:10:21"), np.logspace(-1, 1, 21))
    assert numbers("--ratios", "1") == [1.0]


# ---- help and errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["curve", "heatmap"])
def test_help_has_an_example(name):
    out, _ = run(name, "--help")
    assert f"Example: refinecal theory {name}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("curve", "--ratio", "0"), 2, "0 is not positive and finite"),
        (("curve", "--bayes-error", "10"), 2, "10 is not between 0 and 0.5. If it is in percent"),
        (("curve", "--bayes-error", "0.1", "--signal", "1"), 2, "not both"),
        (("curve", "--spectrum", "gamma:1"), 2, "--spectrum"),
        (("curve", "--spectrum", "beta:1"), 2, "--spectrum"),
        (("curve", "--method", "logistc"), 2, "Did you mean 'logistic'?"),
        (("curve", "--loss", "hinge"), 2, "none of log, brier, spherical"),
        (("curve", "--lam-min", "2", "--lam-max", "1"), 2, "from 2 to 1"),
        (("curve", "--points", "1"), 2, "--points"),
        (("curve", "-o", "curve.txt"), 2, "does not end in .png, .svg, .pdf"),
        (("curve", "-o", "nowhere/curve.png"), 1, "the folder nowhere does not exist"),
        (("curve", "--table", "xlsx"), 2, "none of csv, parquet"),
        (("heatmap", "--ratios", "a"), 2, "neither numbers with commas"),
        (("heatmap", "--ratios", "1:2"), 2, "FIRST:LAST:COUNT"),
        (("heatmap", "--ratios", "1:2:0"), 2, "has no numbers"),
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
