"""The guide to the vision experiment says what is true: its example runs, its names and numbers are ours."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import run_command
from made_vision import made_plan, made_run

from refinecal.cli.experiment import experiment_app
from refinecal.experiments.report import write_tables
from refinecal.experiments.results import read_results
from refinecal.experiments.vision import cost
from refinecal.experiments.vision.archives import FILES
from refinecal.experiments.vision.cost import IMAGES
from refinecal.experiments.vision.image_analysis import Analysis
from refinecal.experiments.vision.images import DATASETS

GUIDE = (Path(__file__).parents[2] / "docs" / "vision-experiment.md").read_text(encoding="utf-8")
READ, LOOP, CALIBRATE = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.S)
CHECK = "assert probs.shape == (397, 10) and stopping.best_epoch is not None\n"


def test_the_monitor_is_five_lines():
    lines = LOOP.splitlines(keepends=True)
    plain = "".join(line for line in lines if "# new" not in line)
    assert len(lines) - len(plain.splitlines()) == 5
    assert "RefinementStopping" not in plain
    compile(plain, "plain", "exec")


@pytest.mark.slow
def test_the_loop_runs(tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(LOOP.replace("range(10)", "range(2)") + CALIBRATE + CHECK, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_tables_and_their_columns_are_those_of_a_report(tmp_path):
    folder = made_run(tmp_path / "run", made_plan(seeds=2))
    paths = write_tables(Analysis(read_results(folder.path)).tables(), tmp_path)
    rows = re.findall(r"^\| `(\w+\.csv)` \| [^|]+ \| ([^|]+) \|$", GUIDE, flags=re.M)
    assert {name for name, _ in rows} == {path.name for path in paths}
    for name, about in rows:
        header = (tmp_path / name).read_text("utf-8").splitlines()[0].split(",")
        told = [each for each in re.findall(r"`([\w.]+)`", about) if "…" not in each]
        assert set(told) <= set(header), name


def test_options_are_those_of_the_command():
    helps = (
        run_command(experiment_app, name, "--help", columns=200) for name in ("vision", "report")
    )
    out = "".join(said for said, _ in helps)
    ours = set(re.findall(r"--[a-z][a-z-]+", GUIDE)) - {"--nproc-per-node", "--multi", "--num"}
    assert len(ours) > 15
    assert all(option in out for option in ours), [each for each in ours if each not in out]


@pytest.mark.parametrize("name", DATASETS)
def test_sizes_of_sets(name):
    sizes = re.search(rf"^\| `{name}` \| ([\d, +]+) \|", GUIDE, flags=re.M)[1]
    assert tuple(int(each.replace(",", "")) for each in sizes.split("+")) == IMAGES[name]


def test_named_archives_are_official():
    named = re.findall(r"`([\w-]+\.(?:tar\.gz|mat))`", GUIDE)
    assert len(named) == 6
    assert set(named) <= set(FILES)
    for address in {each.address.removesuffix(each.name) for each in FILES.values()}:
        assert f"<{address}>" in GUIDE


@pytest.mark.parametrize("name", cost.PEAKS)
def test_hours_are_those_of_the_estimate(name):
    peak = cost.PEAKS[name]
    slow, fast = (cost.estimates(peak, part) for part in (cost.UTILISATION, cost.MOST))
    cells = []
    for models in (("resnet18",), ("wrn28-10",), ("resnet18", "wrn28-10")):
        ends = [sum(each.hours for each in way if each.model in models) for way in (fast, slow)]
        cells.append(f"{ends[0]:.0f} to {ends[1]:.0f}")
    assert f"| {name} | {peak:g} | {' | '.join(cells)} |" in GUIDE
    assert f"{sum(each.flops for each in slow) / 1e18:.0f} · 10¹⁸" in GUIDE
    assert f"{100 * cost.UTILISATION:.0f}% to {100 * cost.MOST:.0f}% of a GPU" in GUIDE.replace(
        "\n", " "
    )


def test_results_are_read_as_the_guide_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_run(tmp_path / "RUN", made_plan(seeds=2))
    known = {}
    exec(READ, known)
    assert len(known["table"]) == 2 * 7  # trainings and metrics
    assert len(known["logits"]) == len(known["unit"].y_test)
