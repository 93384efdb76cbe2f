"""Tables on standard input and output, and how fast a prediction starts."""

import gzip
import io
import json
import subprocess
import sys
from functools import partial

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from command_runs import invoke
from made_tables import mixed, write_csv

from refinecal.cli.app import app

run = partial(invoke, app)
FAST = ["--max-steps", "4", "--threads", "1", "--folds", "1", "--model", "logistic", "-q"]
HEAVY = ("sklearn", "scipy.stats", "torch", "matplotlib", "jinja2", "xgboost")
LOADED = (
    "import sys\nfrom refinecal.cli.app import app\n"
    f"try: app(sys.argv[1:])\nexcept SystemExit: print([m for m in {HEAVY} if m in sys.modules])"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, its table, and what it predicts from one file to another."""
    folder = tmp_path_factory.mktemp("fitted")
    table = write_csv(mixed(200).drop_columns(["weight", "family"]), folder / "table.csv")
    run("fit", table, "-t", "kind", *FAST, "-o", folder / "run")
    run("predict", folder / "run", table, "-o", folder / "expected.csv")
    return folder


def contents(table):
    """Yield a table as the bytes of each format that a pipe may carry."""
    plain, columns = table.read_bytes(), pa.Table.from_pandas(pd.read_csv(table, dtype=str))
    yield plain
    yield gzip.compress(plain)
    for write in (pq.write_table, pyarrow.feather.write_feather):
        file = io.BytesIO()
        write(columns, file)
        yield file.getvalue()
    file = io.BytesIO()
    with pa.ipc.new_stream(file, columns.schema) as stream:
        stream.write_table(columns)
    yield file.getvalue()


def test_a_pipe_predicts_what_files_do_in_any_format(folder):
    expected = (folder / "expected.csv").read_text()
    for content in contents(folder / "table.csv"):
        out, err = run("predict", folder / "run", "-", "-o", "-", input=content)
        assert out == expected
        assert "200 rows in" in err
        assert "rows per second" in err


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("tsv", partial(pd.read_csv, sep="\t")),
        ("parquet", pd.read_parquet),
    ],
)
def test_standard_output_in_other_formats(folder, name, read):
    command = [sys.executable, "-m", "refinecal", "predict", folder / "run", folder / "table.csv"]
    ended = subprocess.run([*command, "-o", "-", "--format", name], capture_output=True, check=True)
    found = read(io.BytesIO(ended.stdout))
    pd.testing.assert_frame_equal(found, pd.read_csv(folder / "expected.csv"), check_dtype=False)


def test_evaluate_reads_a_pipe(folder):
    content = (folder / "expected.csv").read_bytes()
    piped, _ = run("evaluate", "-", "-t", "kind", "--json", input=content)
    named, _ = run("evaluate", folder / "expected.csv", "-t", "kind", "--json")
    assert json.loads(piped) == json.loads(named)
    shown, _ = run("evaluate", "-", "-t", "kind", input=content)
    assert shown.startswith("standard input: 200 rows")


def test_errors_of_a_pipe_name_standard_input(folder):
    _, err = run("predict", folder / "run", "-", "-o", "-", input=b"", code=1)
    assert "error: standard input is empty" in err
    _, err = run("evaluate", "-", "-t", "kind", input=b"kind,p\n", code=1)
    assert "error: standard input has columns but no rows" in err
    out, err = run("predict", folder / "run", "-", "-o", "-", input=b"a\n1\n", code=1)
    assert not out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "-", "--json"], "contradicts -o -"),
        (["-o", "out.csv", "--format", "tsv"], "is for -o - only"),
        (["-o", "-", "--format", "parqet"], "Did you mean 'parquet'?"),
    ],
)
def test_contradictory_options(folder, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    _, err = run("predict", folder / "run", folder / "table.csv", *options, code=2)
    assert message in " ".join(err.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_a_reader_that_leaves_ends_a_prediction_quietly(folder):
    whole = (folder / "table.csv").read_text()
    many = whole + whole.partition("\n")[2] * 100  # more than a pipe holds
    command = [sys.executable, "-m", "refinecal", "predict", folder / "run", "-", "-o", "-", "-q"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(many.encode())
        process.stdin.close()
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() != 0


def test_a_prediction_loads_only_what_it_needs(folder, tmp_path):
    arguments = ["predict", folder / "run", folder / "table.csv", "-o", tmp_path / "out.csv", "-q"]
    ended = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True)
    assert ended.stdout.decode().strip() == "[]", ended.stderr
