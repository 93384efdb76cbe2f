"""``refinecal theory explore``: where the page goes, where its sliders begin, what is refused."""

import json
import re
import webbrowser
from functools import partial
from pathlib import Path

import pytest
from command_runs import run_command

from refinecal.cli.app import app
from refinecal.theory.explorer import explorer_page

run = partial(run_command, app, "theory", "explore")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_writes_the_page_and_says_where():
    out, _ = run()
    assert "explorer.html" in out
    assert Path("explorer.html").read_text(encoding="utf-8") == explorer_page()


def test_sliders_begin_where_options_say():
    start = {"ratio": 3.0, "bayes_error": 0.02, "shape_a": 5.0, "shape_b": 2.0, "shift": 0.01}
    options = [
        word for name, value in start.items() for word in (f"--{name.replace('_', '-')}", value)
    ]
    out, err = run("--out", "page.html", *options, "--loss", "brier", "--json")
    assert json.loads(out) == {"page": "page.html", "start": {**start, "loss": "brier"}}
    assert err == ""
    page = Path("page.html").read_text(encoding="utf-8")
    assert page == explorer_page(**start, loss="brier")


def test_quiet_is_quiet():
    assert run("-q") == ("", "")


def test_an_older_page_is_replaced():
    Path("explorer.html").write_text("old")
    run("-q")
    assert Path("explorer.html").read_text(encoding="utf-8") == explorer_page()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ratio", "0"), r"'--ratio'.*0\.05"),
        (("--bayes-error", "10"), r"'--bayes-error'.*0\.45"),
        (("--shape-a", "many"), "'--shape-a'.*valid"),
        (("--loss", "brir"), "Did you mean 'brier'"),
        (("--out", "page.pdf"), "page.pdf is a page, but does not end in .html"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_written(options, message):
    _, err = run(*options, code=2)
    assert re.search(message, err)
    assert list(Path().iterdir()) == []


def test_a_folder_that_is_not_there():
    _, err = run("--out", "nowhere/page.html", code=1)
    assert "the folder nowhere does not exist" in err
    Path("page.html").mkdir()
    _, err = run("--out", "page.html", code=1)
    assert "is a folder" in err


@pytest.mark.parametrize("found", [True, False])
def test_it_opens_the_page_if_asked(monkeypatch, found):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or found)
    _, err = run("--open")
    assert opened == [Path("explorer.html").resolve().as_uri()]
    assert ("no browser was found" in err) == (not found)


def test_its_help_shows_an_example():
    out, _ = run("--help")
    assert "refinecal theory explore --ratio 2" in " ".join(out.split())
