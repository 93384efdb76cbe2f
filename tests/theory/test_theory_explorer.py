"""The explorer as a file: whole, alone, and refusing to begin where its sliders do not reach."""

import base64
import hashlib
import json
import re
import subprocess
import sys

import pytest

from refinecal.theory.explorer import LOSSES, RANGES, explorer_page, write_explorer


@pytest.fixture(scope="module")
def page():
    return explorer_page()


def scripts_of(page):
    return re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)


def settings_of(page):
    return json.loads(re.search(r'id="settings">(.*?)</script>', page)[1])


def test_it_names_nothing_outside_itself(page):
    addresses = set(
        re.findall(r"""\bhttps?:[^"'\s<)]*|\bfile:|\bdata:|\bimport\(|\bfetch\(""", page)
    )
    assert addresses == {
        "http://www.w3.org/2000/svg"
    }  # the name of a kind of element, never loaded
    assert not re.search(
        r"<(link|img|iframe|object|embed|base)\b|\ssrc\s*=|@import|url\((?!#)", page
    )
    assert "{{" not in page


def test_only_its_own_scripts_may_run(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    digests = [hashlib.sha256(each.encode()).digest() for each in scripts_of(page)]
    hashes = {f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests}
    assert len(hashes) == 3
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules.pop("default-src") == "'none'"
    assert set(rules.pop("script-src").split()) == hashes
    assert rules == {"style-src": "'unsafe-inline'"}


def test_it_begins_where_it_is_told():
    start = {"ratio": 3.0, "bayes_error": 0.02, "shape_a": 5.0, "shape_b": 2.5, "shift": 0.1}
    found = settings_of(explorer_page(**start, loss="brier"))
    assert found["start"] == {**start, "loss": "brier"}
    assert found["ranges"] == {name: list(limits) for name, limits in RANGES.items()}


@pytest.mark.parametrize("name", RANGES)
def test_the_ends_of_a_slider_are_on_it_and_no_more(name):
    for edge in RANGES[name]:
        assert settings_of(explorer_page(**{name: edge}))["start"][name] == edge
    low, high = RANGES[name]
    for wrong in (low * 0.99, high * 1.01, 0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"{name} is .*between {low:g} and {high:g}"):
            explorer_page(**{name: wrong})
    for wrong in (None, "many", [0.5, 0.6]):
        with pytest.raises(TypeError, match=f"{name} is .*must be a number"):
            explorer_page(**{name: wrong})


def test_a_percentage_is_recognised():
    with pytest.raises(ValueError, match=r"for 10% pass 0\.1"):
        explorer_page(bayes_error=10)


@pytest.mark.parametrize("wrong", ["logloss", None, 3, ["log"]])
def test_other_losses_are_refused(wrong):
    with pytest.raises(ValueError, match="loss is .*'log' or 'brier'"):
        explorer_page(loss=wrong)
    assert LOSSES == ("log", "brier")


def test_a_file_is_written_whole_in_place_of_an_older_one(tmp_path, page):
    path = tmp_path / "explorer.html"
    path.write_text("old")
    assert write_explorer(str(path)) == path
    assert path.read_bytes() == page.encode()
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match="ratio"):
        write_explorer(path, ratio=0)
    assert path.read_bytes() == page.encode()


def test_writing_it_needs_no_other_package():
    code = (
        "import sys; from refinecal.theory.explorer import explorer_page; explorer_page();"
        "print(*{'matplotlib', 'jinja2', 'sklearn', 'pandas', 'numba'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
