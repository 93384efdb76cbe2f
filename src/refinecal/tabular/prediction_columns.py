"""Which columns of a file are predictions, and of which class: by their names, or as the user says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from refinecal._core.format import list_names
from refinecal.tabular.names import check_column
from refinecal.tabular.values import describe_variants, sort_texts

EITHER = ("score", "scores", "pred", "predicted", "output", "yhat", "y_hat")
PROBS = ("p", "prob", "probs", "proba", "probas", "probability", "predict_proba", "y_prob")
LOGITS = ("logit", "logits", "margin", "z")
# What stands before or after the class in the name of a column, by whether it holds logits.
WORDS = {False: (*PROBS, *EITHER), True: (*LOGITS, *EITHER)}
ALONE = ("score", "y_score", "pred", "output", "yhat", "y_hat")
SINGLE = {  # names of the only column of two classes
    False: (*PROBS, "positive", "p_positive", "prob_positive", *ALONE),
    True: (*LOGITS, "log_odds", "logodds", "decision_function", *ALONE),
}
PAIRS = ({"0", "1"}, {"-1", "1"}, {"False", "True"})  # either label tells the other
WHOLE = re.compile(r"\+?(-?\d+)(?:\.0*)?")


class Choice(NamedTuple):
    """The classes in order, and the column of each; a single column is that of the second class."""

    classes: tuple[str, ...]
    columns: tuple[str, ...]
    flipped: bool = False  # the single column is that of the first class


def choose_columns(
    names: Sequence[str],
    labels: Sequence[str],
    columns: Sequence[str] | None,
    logits: bool,
    where: str,
) -> Choice:
    """Return the columns of the predictions among ``names``; ``labels`` are those that occur.

    Unless ``columns`` are given, they are named after the classes, each in the same way; or there is a single
    one for two classes, named after one of them or simply 'probability'.
    """
    if columns is not None:
        return _choose_given(names, labels, [name.strip() for name in columns], logits, where)
    families = _group_by_pattern(names, labels, logits)
    for family in families:
        if len(family) > 1 and set(labels) <= set(family):
            return _order(family)
    classes = _two_classes(labels)
    if classes is None:
        _fail(names, labels, families, where)
    for family in families:
        (label, name), *others = family.items()
        if label in classes and not others and name not in labels:
            return Choice(classes, (name,), flipped=label == classes[0])
    usual = [name for name in names if name.strip().lower() in SINGLE[logits]]
    if len(usual) != 1:
        _fail(names, labels, families, where)
    return Choice(classes, (usual[0],))


def _choose_given(
    names: Sequence[str], labels: Sequence[str], columns: list[str], logits: bool, where: str
) -> Choice:
    for name in columns:
        check_column(name, names, "columns", where)
    if len(set(columns)) < len(columns):
        raise ValueError(f"columns names a column twice: {list_names(columns)}")
    classes, what = _two_classes(labels), f"{len(labels)} classes ({list_names(labels)})"
    if len(columns) == 1:  # of the class that it names, else of the second
        if classes is None:
            raise ValueError(
                f"columns has one name, but the target has {what}: name one column for each class"
            )
        families = _group_by_pattern(columns, classes, logits)
        named = {label for family in families for label in family}
        flipped = classes[0] in named and classes[1] not in named
        return Choice(classes, tuple(columns), flipped)
    for family in _group_by_pattern(columns, labels, logits):
        if len(family) == len(columns) and set(labels) <= set(family):
            return _order(family)
    if len(columns) != len(labels):
        raise ValueError(
            f"columns has {len(columns)} names, but the target has {what}: name one column for each class in "
            "this order, or columns that have the classes in their names, and drop the rows of classes that "
            "the model does not know"
        )
    return Choice(tuple(labels), tuple(columns))


def _two_classes(labels: Sequence[str]) -> tuple[str, ...] | None:
    if len(labels) == 2:
        return tuple(labels)
    pair = next((pair for pair in PAIRS if len(labels) == 1 and set(labels) <= pair), None)
    return None if pair is None else tuple(sort_texts(pair))


def _order(family: dict[str, str]) -> Choice:
    """Return columns, by their classes, in the order of the classes."""
    classes = tuple(sort_texts(family))
    return Choice(classes, tuple(family[each] for each in classes))


def _group_by_pattern(
    names: Iterable[str], labels: Sequence[str], logits: bool
) -> list[dict[str, str]]:
    """Return, for each way to name columns, the classes with their columns; the likeliest way first."""
    known = set(labels)
    found: dict[str, dict[str, str]] = {"": {}}
    are_whole = all(WHOLE.fullmatch(label) for label in labels)
    for name in names:
        label = same_label(name)
        if label in known or (are_whole and WHOLE.fullmatch(name)):
            found[""].setdefault(label, name)
        for way, rest in _split_name(name, logits):
            found.setdefault(way, {}).setdefault(same_label(rest), name)
    families = [family for family in found.values() if family]
    return sorted(families, key=lambda family: -len(known & set(family)))


def _split_name(name: str, logits: bool) -> Iterable[tuple[str, str]]:
    """Yield how a name may be split into a word for predictions and a class, the likeliest words first."""
    for word in WORDS[logits]:
        start = re.fullmatch(rf"(?i)({re.escape(word)})([_ .:(\[=-])(.+?)[)\]]?", name)
        if start:
            yield f"{start[1]}{start[2]}", start[3]
        end = re.fullmatch(rf"(?i)(.+?)([_ .:-])({re.escape(word)})", name)
        if end:
            yield f"{end[2]}{end[3]} after", end[1]


def same_label(text: str) -> str:
    """Return a class's name written one way: '1.0' and '+1' are '1', 'true' is 'True'.

    >>> same_label("1.0"), same_label("true"), same_label("a b")
    ('1', 'True', 'a b')
    """
    text = text.strip()
    whole = WHOLE.fullmatch(text)
    if whole:
        return "0" if whole[1] == "-0" else whole[1]
    return text.capitalize() if text.lower() in ("true", "false") else text


def _fail(
    names: Sequence[str], labels: Sequence[str], families: list[dict[str, str]], where: str
) -> NoReturn:
    variants = describe_variants(labels)
    fix = f" The labels {variants}: write them the same way." if variants else ""
    some = next((each for each in families if len(each) > 1 and set(labels) & set(each)), None)
    if some is not None:
        lost = [label for label in labels if label not in some]
        raise ValueError(
            f"the target has the class {lost[0]!r}, but {where} has no column for it: there are "
            f"{list_names(list(some.values()))}. If the model does not know this class, drop its rows; if "
            f"its column has another name, name all columns of predictions with --columns.{fix}"
        )
    raise ValueError(
        f"{where} has no column named after the classes {list_names(labels)}, such as 'p_{labels[-1]}': name "
        f"those of the predictions with --columns. The columns are {list_names(names)}.{fix}"
    )
