"""``refinecal theory check``: what is printed, written and refused, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from refinecal.cli.theory_check import check
from refinecal.theory import BetaSpectrum, empirical
from refinecal.theory import check as run_check
from refinecal.theory.asymptotics import logistic

app = typer.Typer()
app.command(epilog=check.__epilog__)(check)

SMALL = ("--n", 150, "--seeds", 8, "--lams", "0.01,0.1,1", "--processes", 1)


def run(*arguments, code=0, columns=80):
    """Run the command in this process; return what it printed on stdout, and on stderr in one line."""
    result = CliRunner().invoke(
        app, [str(each) for each in arguments], env={"COLUMNS": str(columns), "NO_COLOR": "1"}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, " ".join(result.stderr.replace("│", " ").split())


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_shows_theory_measurement_and_verdict():
    out, _ = run(*SMALL)
    assert max(map(cell_len, out.splitlines())) <= 80
    exact = run_check([0.01, 0.1, 1], n=150, seeds=8, processes=1)
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["0.01"])
    of = exact.draws
    for place, name in enumerate(("risk", "calibration", "refinement")):
        theory, measured, deviation = row[1 + 3 * place : 4 + 3 * place]
        assert theory == f"{of.theory[name][0]:.4f}"
        assert measured == f"{of.measured[name][0]:.4f}"
        assert deviation == f"{of.deviation[name][0]:+.1f}"
    said = " ".join(out.split())
    assert "Within sampling error: the largest of 18 deviations" in said
    assert f"is {abs(of.largest.deviation):.1f} standard errors" in said
    assert "Against the law, as in the paper: within sampling error" in said
    assert not list(Path().iterdir())


def test_json_and_files_say_the_same():
    out, _ = run(*SMALL, "-o", "check.png", "--table", "parquet", "--json", "--method", "ridge")
    found = json.loads(out)
    assert found["holds"] is True
    assert (found["n"], found["n_features"], found["seeds"]) == (150, 75, 8)
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

    monkeypatch.setitem(empirical.THEORIES, "logistic", biased)
    out, _ = run(*SMALL, "-o", "check.svg", code=1)
    said = " ".join(out.split())
    assert "Not within sampling error" in said
    assert "these were too few" in said
    assert {each.name for each in Path().iterdir()} == {"check.svg", "check.csv"}


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (("--out", "check.txt"), 2, "check.txt does not end in .png"),
        (("--out", "nowhere/check.png"), 1, "does not exist"),
        (("--seeds", 1), 2, "greater than or equal to 2"),
        (("--ratio", -1), 2, "-1 is not positive"),
        (("--bayes-error", 10), 2, "10 is not between 0 and 0.5. If it is in percent"),
        (("--spectrum", "gauss:1"), 2, "spectrum is 'gauss'"),
        (("--method", "ridges"), 2, "Did you mean 'ridge'"),
        (("--lams", "0.1,x"), 2, "'0.1,x' is neither numbers"),
        (("--ratio", 1e-6), 1, "no feature for 2000 rows"),
    ],
)
def test_bad_input(given, code, message):
    _, err = run(*given, code=code)
    assert message in err


def test_help():
    out, _ = run("--help")
    assert "Example: refinecal theory check" in out
    assert max(map(cell_len, out.splitlines())) <= 80


START = """
import typer
from refinecal.cli import _interrupts
_interrupts.install()
from refinecal.cli.theory_check import check
if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(check)
    app(["--n", "1000", "--seeds", "400", "--processes", "2", "-o", "check.png"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupted_it_says_so_and_leaves_nothing_behind(tmp_path):
    Path("start.py").write_text(START)
    process = subprocess.Popen(
        [sys.executable, "start.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    time.sleep(6)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert err.strip().splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert out == ""
    assert {each.name for each in tmp_path.iterdir()} == {"start.py"}


def test_default_spectrum_is_the_papers():
    out, _ = run(*SMALL)
    assert BetaSpectrum(1, 1).label in out
