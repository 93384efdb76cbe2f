"""``refinecal theory check``: what is printed, written and refused, and how it ends."""

import json
import os
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import typer
from command_runs import READY, interrupt, run_command, started, wait_for

from refinecal.cli.theory import check
from refinecal.theory import BetaSpectrum, empirical
from refinecal.theory import check as run_check
from refinecal.theory.asymptotics import logistic

app = typer.Typer()
app.command(epilog=check.__epilog__)(check)

SMALL = ("--n", 150, "--seeds", 20, "--lams", "0.01,0.1,1", "--processes", 1)


run = partial(run_command, app)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_shows_theory_measurement_and_verdict():
    out, _ = run(*SMALL)
    exact = run_check([0.01, 0.1, 1], n=150, seeds=20, processes=1)
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["0.01"])
    of = exact.draws
    for place, name in enumerate(("risk", "calibration", "refinement")):
        expected, measured, deviation = row[1 + 3 * place : 4 + 3 * place]
        assert expected == f"{of.expected[name][0]:.4f}"
        assert measured == f"{of.measured[name][0]:.4f}"
        assert deviation == f"{of.deviation[name][0]:+.1f}"
    said = " ".join(out.split())
    assert "Within sampling error: the largest of 18 deviations" in said
    assert f"is {abs(of.largest.deviation):.1f} standard errors" in said
    assert "Against the law, as in the paper: within sampling error" in said
    assert "-o check.png draws the comparison" in said
    assert not list(Path().iterdir())


@pytest.mark.parametrize("method", ["lda", "logistic"])
def test_signs_agree_with_what_is_shown(method):
    """Scatter moves means far from theory here; a deviation is that from what is expected, which is shown."""
    given = ("--lams", "0.03,0.1,3", "--n", 60, "--seeds", 3, "--method", method, "--processes", 1)
    out, _ = run(*given, code=3)
    rows = [line.split() for line in out.splitlines()]
    triples = [row[at : at + 3] for row in rows if len(row) == 10 for at in (1, 4, 7)]
    largest = [row[-4:-2] + row[-1:] for row in rows if row[:1] in (["risk"], ["calibration"])]
    seen = 0
    for expected, measured, deviation in triples + largest:
        try:
            gap = round(float(measured) - float(expected), 4)
        except ValueError:  # a header
            continue
        seen += 1
        assert gap * float(deviation) >= 0
    assert seen == 9 + 4
    said = " ".join(out.split())
    found = run_check([0.03, 0.1, 3], n=60, seeds=3, method=method, processes=1).draws
    for name in found.theory:
        moves = (found.expected[name] - found.theory[name]) / found.standard_error[name]
        told = f"{name.replace('_', ' ')} by" in said.split("The expected mean")[-1]
        assert told == (abs(moves).max() >= 0.5)


def test_too_few_draws_decide_nothing():
    out, _ = run("--n", 150, "--seeds", 3, "--lams", 0.1, "--processes", 1, code=3)
    said = " ".join(out.split())
    assert "Undecided: 3 draws are too few; use 20 or more." in said
    assert "ithin sampling error" not in said
    out, _ = run("--n", 150, "--seeds", 3, "--lams", 0.1, "--processes", 1, "--json", code=3)
    assert json.loads(out)["holds"] is None


def test_json_and_files_say_the_same():
    out, _ = run(*SMALL, "-o", "check.png", "--table", "parquet", "--json", "--method", "ridge")
    found = json.loads(out)
    assert found["holds"] is True
    assert (found["n"], found["n_features"], found["seeds"]) == (150, 75, 20)
    assert found["method"] == "ridge"
    table = pd.read_parquet("check.parquet")
    assert len(table) == 2 * 6 * 3
    draws = table[table.against == "draws"]
    assert draws.deviation.tolist() == found["draws"]["deviation"]
    worst = draws.loc[draws.deviation.abs().idxmax()]
    assert found["draws"]["largest"]["quantity"] == worst.quantity
    assert Path("check.png").read_bytes().startswith(b"\x89PNG")


def test_a_theory_that_fails_is_shown_and_ends_with_code_1(monkeypatch):
    def biased(lams, *, ratio, **given):
        return logistic(lams, ratio=3 * ratio, **given)

    monkeypatch.setitem(empirical.METHODS, "logistic", biased)
    out, _ = run(*SMALL, "-o", "check.svg", code=1)
    said = " ".join(out.split())
    assert "Not within sampling error" in said
    assert "these were too few" in said
    assert {each.name for each in Path().iterdir()} == {"check.svg", "check.csv"}


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (("--out", "check.txt"), 2, "check.txt is a figure, but does not end in .png"),
        (("--out", "nowhere/check.png"), 1, "does not exist"),
        (("--seeds", 1), 2, "greater than or equal to 2"),
        (("--ratio", -1), 2, "-1 is not positive"),
        (("--bayes-error", 10), 2, "both excluded. For percent, write 10%."),
        (("--n", 9), 2, "greater than or equal to 10"),
        (("--n", 20, "--ratio", 0.05), 1, "one feature for 20 rows"),
        (("--spectrum", "gauss:1"), 2, "spectrum is 'gauss'"),
        (("--method", "ridges"), 2, "Did you mean 'ridge'"),
        (("--lams", "0.1,x"), 2, "'x' is not a number"),
        (("--ratio", 1e-6), 1, "no feature for 2000 rows"),
    ],
)
def test_bad_input(given, code, message):
    _, err = run(*given, code=code)
    assert message in err


def test_help():
    out, _ = run("--help")
    assert "Example: refinecal theory check" in out
    assert "3 too few draws to tell" in " ".join(out.split())


# The command, whose draws each leave a trace and take for ever.
DRAWING = """
from refinecal.theory import empirical

def draw(*about):
    import os, time
    open(f"drawing/{os.getpid()}", "w").close()
    time.sleep(600)

empirical._draw = draw
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupted_it_says_so_and_leaves_nothing_behind(tmp_path):
    Path("drawing").mkdir()
    given = ("theory", "check", "--n", 100, "--processes", 2, "-o", "check.png")
    with started(DRAWING + READY, *given) as process:
        wait_for(lambda: len(os.listdir("drawing")) == 2, process)
        out, err = interrupt(process)
    assert process.returncode == 130, err
    assert err.strip().splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert out == "ready\n"
    assert os.listdir(tmp_path) == ["drawing"]


def test_default_spectrum_is_the_papers():
    out, _ = run(*SMALL)
    assert BetaSpectrum(1, 1).label in out
