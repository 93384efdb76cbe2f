"""Options in a file: what they mean, what the command line replaces, and that a run can be repeated."""

import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated

import pytest
import typer
from command_runs import invoke
from hypothesis import given
from hypothesis import strategies as st
from made_tables import mixed, write_csv

from refinecal.cli import _options as option
from refinecal.cli.app import app

run = partial(invoke, app)
small = typer.Typer()


@small.command()
def show(
    ctx: typer.Context,
    table: Path,
    name: Annotated[str, option.column("--name", "-n", help="A name.")] = "usual",
    many: Annotated[list[str] | None, option.column("--many", help="Names.")] = None,
    most_steps: Annotated[int | None, option.number("--most-steps", help="Steps.")] = None,
    part: Annotated[float, option.number("--part", help="A part.")] = 0.5,
    refit: Annotated[bool, typer.Option("--refit/--no-refit")] = True,
    out: Annotated[Path | None, option.file("--out", help="A file.")] = None,
    config: option.Config = None,
) -> None:
    """Print the options, and as a file."""
    values = [str(table), name, many, most_steps, part, refit]
    typer.echo(json.dumps([values, option.write_config(ctx)]))


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(texts, st.lists(texts, max_size=3), st.booleans(), st.floats(0, 1))
def test_what_is_written_is_read_again(tmp_path_factory, name, many, refit, part):
    path = tmp_path_factory.mktemp("config") / "options.toml"
    options = [f"--name={name}", *(f"--many={each}" for each in many), f"--part={part}"]
    options.append("--refit" if refit else "--no-refit")
    first = json.loads(invoke(small, "table.csv", *options)[0])
    path.write_text(first[1], "utf-8")
    assert json.loads(invoke(small, "--config", path)[0]) == first
    assert first[0][:3] == ["table.csv", name, many or None]
    assert first[0][4:] == [part, refit]


def test_the_command_line_comes_first(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text('table = "a.csv"\nname = "b"\nmany = "c"\nmost_steps = 7\nrefit = false\n')
    found = json.loads(invoke(small, "--config", path)[0])[0]
    assert found == ["a.csv", "b", ["c"], 7, 0.5, False]
    found = json.loads(
        invoke(small, "d.csv", "-n", "e", "--config", path, "--many", "f", "--refit")[0]
    )
    assert found[0] == ["d.csv", "e", ["f"], 7, 0.5, True]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nme = 1", "holds 'nme', which is not an option. Did you mean 'name'?"),
        ("zzz = 1", "which is not an option. It may hold table, name, many, most-steps"),
        ("config = 'x.toml'", "holds 'config', which is not an option"),
        ("refit = 'no'", 'refit is "no", but must be true or false'),
        ("name = true", "name is true, but must be a text or a number"),
        ("name = ['a']", 'name is ["a"], but must be a text or a number'),
        ("many = [1, [2]]", "must be a text, a number or a list of texts"),
        ("[name]", "name is {}, but must be"),
        ("most_steps = 'few'", "Invalid value for '--most-steps'"),
        ("name = ", "cannot be read: Invalid value"),
        (None, "No such file"),
    ],
)
def test_files_that_do_not_fit(tmp_path, content, message):
    path = tmp_path / "options.toml"
    if content is not None:
        path.write_text(content)
    _, err = invoke(small, "table.csv", "--config", path, code=2)
    assert message in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize("value", ["inf", "1e-05", "0.25"])
def test_any_number_is_written_as_toml(tmp_path, value):
    first = json.loads(invoke(small, "table.csv", f"--part={value}")[0])
    assert tomllib.loads(first[1])["part"] == float(value)
    path = tmp_path / "options.toml"
    path.write_text(first[1])
    assert json.loads(invoke(small, "--config", path)[0]) == first


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", "atuo"), ("test-fraction", "abc"), ("max-steps", 0), ("folds", "few")],
)
def test_a_value_that_is_refused_is_told_with_its_file(tmp_path, key, value):
    path = tmp_path / "options.toml"
    path.write_text(f"{key} = {json.dumps(value)}")
    _, err = run("fit", "table.csv", "-t", "y", "--config", path, code=2)
    words = "".join(err.replace("│", " ").split())
    assert f"--{key}" in words
    assert f"(in{path})" in words
    _, err = run("fit", "table.csv", "-t", "y", f"--{key}={value}", code=2)
    assert "(in" not in err


def test_the_file_is_not_blamed_for_the_command_line(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text("max-steps = 3")
    _, err = run("fit", "table.csv", "-t", "y", "--config", path, "--max-steps=0", code=2)
    assert "(in" not in err


def test_a_run_is_repeated_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(mixed(200).drop_columns(["weight", "family"]), Path("table.csv"))
    fast = [
        "--folds",
        "1",
        "--max-steps",
        "4",
        "--model",
        "hist-gb",
        "--threads",
        "1",
        "--seed",
        "3",
    ]
    run("fit", "table.csv", "-t", "kind", "--drop", "z", *fast, "--no-refit", "-o", "one", "-q")
    kept = tomllib.loads(Path("one/fit.toml").read_text("utf-8"))
    assert kept["drop"] == ["z"]
    assert (kept["seed"], kept["refit"], kept["max-steps"]) == (3, False, 4)
    assert not {"out", "quiet", "json"} & set(kept)
    run("fit", "--config", "one/fit.toml", "--out", "two", "-q")
    for name in ("fit.toml", "calibrator.json", "schema.json", "test_predictions.parquet"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()
    assert "fit.toml" in json.loads(Path("one/manifest.json").read_text())["files"]
