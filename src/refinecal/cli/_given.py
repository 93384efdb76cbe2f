"""Notes on predictions: which column is which class, and probabilities of 0; and costs of mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from refinecal.cli._console import count, show_path

if TYPE_CHECKING:
    from refinecal.tabular.predictions import Predictions

MOST_COLUMNS = 6  # that are listed


def column_note(found: Predictions) -> list[str]:
    """Return a note on which column is which class, unless their names say it."""
    what = "logit" if found.logits else "probability"
    if len(found.names) == 1:
        from refinecal.tabular.predictions import choose_columns

        what = "log-odds" if found.logits else what
        (name,) = found.names
        choice = choose_columns([name], list(found.classes), [name], found.logits, "")
        label = found.classes[0 if choice.flipped else 1]
        return [f"column {name!r} is read as the {what} of {label!r}"]
    pairs = list(zip(found.names, found.classes, strict=True))
    if all(label in name for name, label in pairs):
        return []
    some = ", ".join(f"{name!r} as that of {label!r}" for name, label in pairs[:MOST_COLUMNS])
    more = "" if len(pairs) <= MOST_COLUMNS else f" and {len(pairs) - MOST_COLUMNS} more in order"
    return [f"each column is read as the {what} of a class: {some}{more}"]


def clip_probabilities(found: Predictions, least: float | None) -> Predictions:
    """Return probabilities of at least ``least``, rescaled; as they are if it is ``None``."""
    import numpy as np

    if least is None:
        return found
    if least <= 0:
        raise typer.BadParameter(
            "0 changes nothing: pass a number such as 1e-6", param_hint="--clip"
        )
    probs = np.clip(_all_columns(found).astype(np.float64), least, 1)
    return replace(found, values=probs / probs.sum(axis=1, keepdims=True), logits=False)


def _all_columns(found: Predictions) -> Any:
    import numpy as np

    probs = found.probs
    return np.stack([1 - probs, probs], axis=1) if probs.ndim == 1 else probs


def zero_probability_note(found: Predictions, path: Path) -> list[str]:
    """Return a note on labels that have probability 0, if there are any."""
    import numpy as np

    probs = _all_columns(found)
    zero = int((probs[np.arange(len(probs)), found.labels] == 0).sum())
    if not zero:
        return []
    fix = "--clip 1e-6 raises probabilities of 0, which makes it finite"
    if ((found.probs == 0) | (found.probs == 1)).all():
        fix = (
            "all probabilities are 0 or 1, like predicted classes. Use the output of predict_proba, not of "
            "predict"
        )
    where = f"in {count(zero, 'row')} of {show_path(path)}"
    return [f"the label has probability 0 {where}, so the log loss is infinite: {fix}"]


def clip_note(least: float | None) -> list[str]:
    """Return a note that probabilities were clipped, if they were."""
    if least is None:
        return []
    return [
        f"probabilities below {least:g} were raised to {least:g} and each row rescaled (--clip)"
    ]


def read_costs(given: str, classes: Sequence[str]) -> Any:
    """Return the costs of ``--cost`` as a matrix, from a text or a file."""
    from refinecal.evaluation import check_costs

    if Path(given).is_file():
        return check_costs(_costs_in(Path(given), classes), len(classes))
    try:
        costs = [float(part) for part in given.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{given!r} is neither two numbers such as 1,5 nor a file", param_hint="--cost"
        ) from None
    if len(costs) != 2 or len(classes) != 2:
        raise typer.BadParameter(
            f"{given!r} is {count(len(costs), 'number')} for {len(classes)} classes: pass FP,FN for two "
            f"classes, else a CSV file with a row for each label and the columns label, {', '.join(classes)}",
            param_hint="--cost",
        )
    return check_costs(costs, 2)


def _costs_in(path: Path, classes: Sequence[str]) -> Any:
    """Return the costs in a file: the first column has the labels, the others are named by predictions."""
    import numpy as np

    from refinecal.tabular.files import check_column, open_table

    source = open_table(path)
    rows = source.read()
    labels = [str(each) for each in rows.column(0).to_pylist()]
    for name in classes:
        check_column(name, source.names[1:], "a class", f"--cost {show_path(path)}")
        check_column(name, labels, "a label", f"the first column of --cost {show_path(path)}")
    rows = rows.take([labels.index(name) for name in classes])
    try:
        return np.array([rows.column(name).to_pylist() for name in classes], dtype=float).T
    except ValueError as error:
        raise ValueError(
            f"--cost {show_path(path)} holds a cost that is not a number: {error}"
        ) from None
