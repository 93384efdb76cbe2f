"""Predictions as they were given: which column is what, and probabilities of 0."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from refinecal.cli._console import count, show_path

if TYPE_CHECKING:
    from refinecal.tabular.predictions import Predictions

MOST_COLUMNS = 6  # that are listed


def column_note(found: Predictions) -> str:
    """Say which column is which class, where their names do not; "" where they do."""
    what = "logit" if found.logits else "probability"
    if len(found.names) == 1:
        from refinecal.tabular.prediction_columns import choose_columns

        what = "log-odds" if found.logits else what
        (name,) = found.names
        choice = choose_columns([name], list(found.classes), [name], found.logits, "")
        label = found.classes[0 if choice.flipped else 1]
        return f"column {name!r} is read as the {what} of {label!r}"
    pairs = list(zip(found.names, found.classes, strict=True))
    if all(label in name for name, label in pairs):
        return ""
    some = ", ".join(f"{name!r} as that of {label!r}" for name, label in pairs[:MOST_COLUMNS])
    more = "" if len(pairs) <= MOST_COLUMNS else f" and {len(pairs) - MOST_COLUMNS} more in order"
    return f"each column is read as the {what} of a class: {some}{more}"


def clip_probabilities(found: Predictions, least: float | None) -> Predictions:
    """Return probabilities of at least ``least``, rescaled; as they are if it is ``None``."""
    import numpy as np

    if least is None:
        return found
    if least <= 0:
        raise typer.BadParameter("0 leaves all as it is: pass 1e-6, say", param_hint="--clip")
    probs = np.clip(_both_columns(found).astype(np.float64), least, 1)
    return replace(found, values=probs / probs.sum(axis=1, keepdims=True), logits=False)


def _both_columns(found: Predictions) -> Any:
    import numpy as np

    probs = found.probs
    return np.stack([1 - probs, probs], axis=1) if probs.ndim == 1 else probs


def zero_probability_note(found: Predictions, path: Path) -> str:
    """Say how many labels were given probability 0; "" if none was."""
    import numpy as np

    probs = _both_columns(found)
    zero = int((probs[np.arange(len(probs)), found.labels] == 0).sum())
    if not zero:
        return ""
    give = "gives its" if zero == 1 else "give their"
    cure = "--clip 1e-6 shows what it would be if nothing were called impossible"
    if ((found.probs == 0) | (found.probs == 1)).all():
        cure = (
            "all are 0 or 1, as predicted classes are. Take what predict_proba returns, not predict"
        )
    return (
        f"{count(zero, 'row')} of {show_path(path)} {give} label the probability 0, so the log loss is "
        f"infinite: {cure}"
    )


def clip_note(least: float | None) -> str:
    """Say that probabilities were clipped; "" if they were not."""
    if least is None:
        return ""
    return f"probabilities below {least:g} were raised to it, and each row rescaled (--clip)"
