"""The README says what is true: its first example prints what it shows, its examples all run."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def test_first_example_prints_what_the_readme_says(tmp_path):
    script, shown = re.search(
        r"```python\n(.*?)```\n+```text\n(.*?)```", README, flags=re.S
    ).groups()
    file = tmp_path / "first.py"
    file.write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown


def test_all_examples_run_in_order(tmp_path):
    file = tmp_path / "all.py"
    file.write_text("".join(BLOCKS), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_first_table_shows_gains():
    command = [sys.executable, "-m", "benchmarks.first_table", "3"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    gains = [float(gain) for gain in re.findall(r"([-.\d]+)%", done.stdout)]
    assert len(gains) == 4
    assert min(gains) > 0
