"""The arguments that every metric takes."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any, TypedDict, Unpack

from numpy.typing import ArrayLike

from refinecal._scored import Scored, check_scored


class Inputs(TypedDict, total=False):
    """The keywords of every function here."""

    logits: Any
    sample_weight: Any
    classes: ArrayLike | None


def check(y_true: Any, probs: Any, threads: int, **inputs: Unpack[Inputs]) -> Scored:
    """Return the arguments of a metric, ready to be added up."""
    logits, weights = inputs.get("logits"), inputs.get("sample_weight")
    return check_scored(y_true, probs, logits, weights, inputs.get("classes"), threads)
