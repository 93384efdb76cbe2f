"""The README says what is true: its first example prints what it shows, its examples all run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def printed_by(code, folder):
    file = folder / "blocks.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_example_prints_what_is_shown(tmp_path):
    first, shown = re.search(
        r"```python\n(.*?)```\n+```text\n(.*?)```", README, flags=re.S
    ).groups()
    assert first == BLOCKS[0]
    assert printed_by(first, tmp_path) == shown


@pytest.mark.slow
def test_all_examples_run_in_order(tmp_path):
    assert printed_by("".join(BLOCKS), tmp_path)


@pytest.mark.slow
def test_the_first_table_shows_gains():
    command = [sys.executable, "-m", "benchmarks.first_table", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    gains = [float(gain) for gain in re.findall(r"([-.\d]+)%", done.stdout)]
    assert len(gains) == 4
    assert min(gains) > 0
