"""The guide to the theory says what is true: its examples run, and the names that it has are there."""

import doctest
import re
from pathlib import Path

from refinecal import theory

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "theory.md"


def test_examples_print_what_the_guide_shows():
    failed, tried = doctest.testfile(str(GUIDE), module_relative=False)
    assert tried > 10
    assert failed == 0


def test_names_and_figures_exist():
    text = GUIDE.read_text(encoding="utf-8")
    for name in re.findall(r"`theory\.(\w+)`", text):
        assert name in theory.__all__
    for figure in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert (DOCS / figure).is_file()


def test_every_public_name_is_found():
    for name in theory.__all__:
        assert getattr(theory, name).__name__ == name
