"""Packages that are not installed: one fresh interpreter whose import system does not find them."""

import json
import subprocess
import sys

import pytest

CODE = """
import contextlib, importlib, io, json, sys

blocked = {
    "accelerate", "catboost", "jinja2", "keras", "lightgbm", "lightning", "matplotlib", "optuna", "pandas",
    "pyarrow", "python_calamine", "pytorch_lightning", "rich", "safetensors", "skorch", "torch",
    "torchmetrics", "transformers", "typer", "xgboost",
}

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nowhere())

def attempt(name, call):
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            call()
        found[name] = "done"
    except ModuleNotFoundError as error:
        found[name] = str(error)
    except SystemExit as end:  # with a message, or having written one
        found[name] = end.code if isinstance(end.code, str) else err.getvalue().strip() or "done"

found = {}
import refinecal.cli
for name in sys.argv[2].split():
    attempt(name, lambda: importlib.import_module(f"refinecal.integrations.{name}"))
attempt("pandas", refinecal.RefinementMonitor().to_frame)
attempt("rich", refinecal.cli.main)
blocked.remove("rich")
attempt("typer", refinecal.cli.main)
blocked -= {"typer", "pyarrow", "pandas"}
folder = sys.argv[1]
table = f"{folder}/table.csv"
for words in (
    ["--help"],
    ["theory", "curve", "-o", f"{folder}/curve.png"],
    ["theory", "check", "-o", f"{folder}/check.png"],
    ["evaluate", table, "-t", "y", "--report", f"{folder}/page.html"],
    ["compare", table, f"{folder}/other.csv", "-t", "y", "--report", f"{folder}/page.html"],
    ["ensemble", table, f"{folder}/other.csv", "-t", "y", "--report", f"{folder}/page.html"],
    ["fit", table, "-t", "y", "-o", f"{folder}/run"],
    ["experiment", "vision", "--data", folder, "-o", f"{folder}/run"],
):
    sys.argv = ["refinecal", *words]
    attempt(" ".join(word for word in words[:2] if "/" not in word), refinecal.cli.main)
from refinecal.tabular.files import open_table
attempt("sheet", lambda: open_table(f"{folder}/sheet.xlsx"))
sys.stdout.write(json.dumps(found))
"""
INTEGRATIONS = [
    "catboost",
    "keras",
    "lightgbm",
    "lightning",
    "optuna",
    "skorch",
    "torch",
    "torchmetrics",
    "transformers",
    "xgboost",
]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what each attempt says, by its name."""
    folder = tmp_path_factory.mktemp("nothing")
    for name in ("table", "other"):
        (folder / f"{name}.csv").write_text("y,p\n0,0.2\n1,0.7\n")
    (folder / "sheet.xlsx").write_bytes(b"PK")
    command = [sys.executable, "-c", CODE, str(folder), " ".join(INTEGRATIONS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_integrations_name_their_extra(said, name):
    assert said[name].endswith(f" is not installed; get it with: pip install 'refinecal[{name}]'")


def test_a_data_frame_names_its_extra(said):
    assert said["pandas"] == "pandas is not installed; get it with: pip install 'refinecal[pandas]'"


def test_a_spreadsheet_names_its_extra(said):
    fix = "get it with: pip install 'refinecal[xlsx]'"
    assert said["sheet"] == f"python_calamine is not installed; {fix}"


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("rich", "rich", "cli"),
        ("typer", "typer", "cli"),
        ("theory curve", "matplotlib", "cli"),
        ("theory check", "matplotlib", "cli"),
        ("evaluate", "jinja2", "cli"),
        ("compare", "jinja2", "cli"),
        ("ensemble", "jinja2", "cli"),
        ("fit", "jinja2", "cli"),
        ("experiment vision", "torch", "vision"),
    ],
)
def test_commands_name_the_extra_before_any_work(said, name, package, extra):
    assert said[name] == (
        f"error: {package} is not installed; get it with: pip install 'refinecal[{extra}]'"
    )


def test_help_needs_nothing_else(said):
    assert said["--help"] == "done"
