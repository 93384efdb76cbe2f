"""What is said on the command line: its own words for the library's, and no codes that rule a terminal."""

from __future__ import annotations

import re

NAMING = "target|weight|group|by|drop|categorical|numeric"  # may stand before the name of a column
OPTIONS = f"{NAMING}|columns|calibrator|delimiter|folds|patience"
OF_FILES = (  # what the library says of files, and what that is on the command line
    (r"\bread it with check=False", "pass --no-check"),
    (r"\bget them with download\(.*\)$", "get them with --download"),
)
COMMANDS = (  # and of all else
    (rf"^({OPTIONS}) (?=is\b|has\b|names\b)", r"--\1 "),
    (rf"^({NAMING}) (?='|\")", r"--\1 "),
    (r"\bdelimiter=", "--delimiter "),
    (r"; if they are labels or features, pass model\.predict_proba\(X\).*$", "."),
    (r"\bpass logits=", "pass --logits"),
    (r"\blogits=", "--logits"),
    (r"calibrator=(['\"])([\w-]+)\1", r"--calibrator \2"),
    (r"Pass X_val= and y_val=, or finer groups", "Give finer groups"),
    (r"Pass X_val= and y_val=", "Give more rows, or --folds 1"),
    (r"\bmax_steps=", "--max-steps "),
    (r"\bsample_weight=?", "--weight"),
    (r"\bclasses=", "--columns "),
    *OF_FILES,
    (r"\bpredictions\[(['\"])(.+?)\1\]", r"the predictions of \1\2\1"),
)
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\^_])?")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CELL = re.compile(r"(probs|logits)\[(\d+)(?:, *(\d+))?\]")


def clean(text: str) -> str:
    r"""Return text that shows as it is: no escape sequences, no control characters but line breaks.

    >>> clean("a\x1b[31mred\x07 b")
    'ared b'
    """
    return CONTROLS.sub("", ESCAPES.sub("", text))


def on_the_command_line(message: str) -> str:
    """Return an error of the library in the words of the command line.

    >>> on_the_command_line("target is 'a', but x.csv has no such column.")
    "--target is 'a', but x.csv has no such column."
    >>> on_the_command_line("probs[65, 0] is 1.04: if these are logits, pass logits=")
    'row 66, probability 1 is 1.04: if these are logits, pass --logits'
    """
    for pattern, words in COMMANDS:
        message = re.sub(pattern, words, message)
    return CELL.sub(_place, message)


def of_files_on_the_command_line(message: str) -> str:
    """Return a message of any library; what ours says of files is in the words of the command line."""
    for pattern, words in OF_FILES:
        message = re.sub(pattern, words, message)
    return message


def _place(found: re.Match[str]) -> str:
    """Return the place of a number as people count: from 1."""
    row = f"row {int(found[2]) + 1}"
    what = "probability" if found[1] == "probs" else "logit"
    return f"{row}, {what}" if found[3] is None else f"{row}, {what} {int(found[3]) + 1}"
