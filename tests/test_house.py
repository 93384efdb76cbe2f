"""The house rules: unique module names, private names that stay at home, a public API that is kept."""

import house
import public_api


def test_what_the_house_rules_forbid_gets_less():
    found, allowed = set(house.exceptions()), set(house.FILE.read_text().splitlines())
    assert not found - allowed, "new: rename the module, or import what is public"
    assert not allowed - found, "gone, well done: take it out of house_exceptions.txt"


def test_the_public_api_is_that_of_the_file():
    assert public_api.text().splitlines() == public_api.FILE.read_text("utf-8").splitlines()
