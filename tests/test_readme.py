"""README and Python guide: the first example prints what is shown, all examples run, links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def printed_by(code, folder):
    file = folder / "blocks.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.S)


@pytest.mark.parametrize("text", [README, GUIDE], ids=["README", "guide"])
def test_the_first_example_prints_what_is_shown(text, tmp_path):
    first, shown = re.search(r"```python\n(.*?)```\n+```text\n(.*?)```", text, flags=re.S).groups()
    assert first == blocks(text)[0]
    assert printed_by(first, tmp_path) == shown


@pytest.mark.slow
@pytest.mark.parametrize("text", [README, GUIDE], ids=["README", "guide"])
def test_all_examples_run_in_order(text, tmp_path):
    assert printed_by("".join(blocks(text)), tmp_path)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 130
    assert len(README.split()) <= 800


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(p.as_posix() for p in ROOT.glob("docs/*.md"))]
)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link


@pytest.mark.slow
def test_the_first_table_shows_gains():
    command = [sys.executable, "-m", "benchmarks.first_table", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    gains = [float(gain) for gain in re.findall(r"([-.\d]+)%", done.stdout)]
    assert len(gains) == 4
    assert min(gains) > 0
