"""Every example runs, says what it needs, and prints a table that fits a terminal."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "fresh")
QUICK = ("xgboost_early_stopping",)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


def needs(path):
    """Return the extra that an example's text names, or nothing."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    named = re.search(r"Needs: pip install '?refinecal(?:\[(\w+)\])?'?", text)
    assert named, f"{path.name} does not say what it needs"
    return named[1]


def shortened(path, folder):
    """Return a copy of an example with one split of the data; ``make examples`` runs it as it is."""
    text = path.read_text(encoding="utf-8")
    copy = folder / path.name
    copy.write_text(re.sub(r"^(SPLITS\b.*?= )\d+", r"\g<1>1", text, flags=re.M), encoding="utf-8")
    return copy


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.slow)
        for path in EXAMPLES
    ],
)
def test_the_example_runs(path, tmp_path, tmp_path_factory):
    extra = needs(path)
    assert extra is None or extra in EXTRAS
    copy = shortened(path, tmp_path_factory.mktemp("example"))
    done = subprocess.run([sys.executable, str(copy)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= 2
    assert max(map(len, lines)) <= 80
    assert re.search(r"\d\.\d{3}", done.stdout)
    assert not list(tmp_path.iterdir()), "an example must leave no file behind"


def test_every_framework_has_an_example():
    shown = {needs(path) for path in EXAMPLES}
    frameworks = {
        path.stem
        for path in (ROOT / "src/refinecal/integrations").glob("*.py")
        if path.stem != "sklearn" and not path.stem.startswith("_")
    }
    assert frameworks <= shown
