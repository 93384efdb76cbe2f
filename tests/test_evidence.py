"""The comparison on real tables, in small: it runs, goes on where it stopped, and counts right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_tables import write_parquets

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import evidence  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    return write_parquets(tmp_path)


def run(folder, *options):
    command = [
        sys.executable,
        "-m",
        "benchmarks.evidence",
        "--data",
        folder,
        "--out",
        folder / "out",
    ]
    small = ["--least", "100", "--rounds", "3", "--patience", "2", "--workers", "1"]
    done = subprocess.run([*command, *small, *options], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "out/evidence.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_it_runs_and_goes_on_where_it_stopped(folder):
    first = run(folder, "--only", "classes2")
    assert len(first) == 2 * len(evidence.REGIMES)
    cases = run(folder)
    assert cases[: len(first)] == first
    assert len(cases) == 2 * len(first)
    assert all(0 < loss < 3 for case in cases for loss in case["loss"].values())
    page = (folder / "out/evidence.md").read_text(encoding="utf-8")
    assert page.count("| classes2 |") == page.count("| classes3 |") == len(evidence.REGIMES)


def case(ours, theirs, square, n=100):
    loss = {**dict.fromkeys(evidence.METHODS, theirs), evidence.OURS: ours}
    return {"n_test": n, "loss": loss, "sum_of_squares": dict.fromkeys(evidence.BY_LOSS, square)}


@pytest.mark.parametrize(
    ("ours", "word"), [(0.3, "win"), (0.5, "loss"), (0.41, "tie"), (0.39, "tie")]
)
def test_a_win_is_beyond_noise(ours, word):
    """Differences d = ours - 0.4 with variance 0.01 over 2 x 100 rows: the standard error is 0.007."""
    square = 100 * (0.01 + (ours - 0.4) ** 2)
    difference, found = evidence.verdict([case(ours, 0.4, square)] * 2, "by loss")
    assert difference == pytest.approx(ours - 0.4)
    assert found == word


def test_configurations_lie_in_the_papers_space():
    drawn = [one for seed in range(20) for one in evidence.configurations(seed)]
    assert {one["max_depth"] for one in drawn} == set(range(1, 12))
    assert all(1e-3 <= one["learning_rate"] <= 0.7 for one in drawn)
    assert all(0.5 <= one["subsample"] <= 1 for one in drawn)
