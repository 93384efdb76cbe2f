"""The page that says what of the paper is here: every item, and counts that are right."""

import re
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "paper-audit.md"


def test_every_item_has_a_state_and_the_counts_are_theirs():
    text = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 117))
    states = Counter(re.match(r"\w+", state)[0] for _, state in rows)
    said = re.search(r"Counts: (\d+) yes, (\d+) differ on purpose, (\d+) partly, (\d+) no\.", text)
    assert tuple(map(int, said.groups())) == tuple(
        states[name] for name in ("yes", "differs", "partly", "no")
    )
    assert sum(states.values()) == 116
