"""A schema as JSON, read with care: it may come from a stranger."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from refinecal.tabular._columns import FORMS, KINDS, Column
from refinecal.tabular._drift import Profile
from refinecal.tabular._values import MARKS

VERSION = 1  # of what is written
FIELDS = ("target", "classes", "class_counts", "weight", "weight_decimal", "group", "n_rows")
COLUMN_FIELDS = (
    *("name", "kind", "form", "decimal", "categories", "note"),
    *("n_missing", "n_distinct"),
)
PROFILE_FIELDS = ("n_mode", "n_rare", "bounds", "mode")
LARGEST = sys.float_info.max  # JSON may hold larger whole numbers, infinity and NaN


def write_schema(schema: Any) -> dict[str, Any]:
    """Return a schema as plain texts, numbers and lists, for JSON."""
    columns = [_column_fields(column) for column in schema.columns]
    return {"version": VERSION, **_fields(schema, FIELDS), "columns": columns}


def _column_fields(column: Column) -> dict[str, Any]:
    known = column.profile
    profile = {} if known is None else {"profile": _fields(known, PROFILE_FIELDS)}
    return _fields(column, COLUMN_FIELDS) | profile


def _fields(of: Any, names: tuple[str, ...]) -> dict[str, Any]:
    values = ((name, getattr(of, name)) for name in names)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def read_schema(state: Any) -> dict[str, Any]:
    """Return the fields of a schema from JSON, each checked."""
    if not isinstance(state, Mapping) or "version" not in state:
        raise ValueError("the schema is not one: it must be what Schema.to_dict() returned")
    if state["version"] != VERSION:
        raise ValueError(
            f"the schema has version {state['version']!r}, this refinecal reads {VERSION}: use the "
            "refinecal that wrote it"
        )
    found = {
        "target": _text(state, "target"),
        "classes": _texts(state, "classes"),
        "class_counts": tuple(_count(n, "class_counts") for n in _list(state, "class_counts")),
        "weight": _text(state, "weight", optional=True),
        "weight_decimal": _mark(state, "weight_decimal"),
        "group": _text(state, "group", optional=True),
        "n_rows": _count(state.get("n_rows"), "n_rows"),
        "columns": tuple(_column(each) for each in _list(state, "columns")),
    }
    _check_whole(found)
    return found


def _check_whole(found: Mapping[str, Any]) -> None:
    """Refuse parts that are each right but do not fit together."""
    if len(found["classes"]) < 2 or len(found["class_counts"]) not in (0, len(found["classes"])):
        _fail("classes", "must be two or more, each with a count")
    names = [column.name for column in found["columns"]]
    names += [found[role] for role in ("target", "weight", "group") if found[role] is not None]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        _fail("columns", f"name {twice[0]!r} twice")
    if all(column.kind == "unused" for column in found["columns"]):
        _fail("columns", "are all unused")


def _column(state: Any) -> Column:
    if not isinstance(state, Mapping):
        _fail("columns", f"hold {state!r}, which is no column")
    name, kind, form = (_text(state, key) for key in ("name", "kind", "form"))
    if kind not in KINDS or form not in FORMS:
        _fail(f"column {name!r}", f"is {kind!r} as {form!r}: known are {KINDS} as {FORMS}")
    categories = _texts(state, "categories")
    if bool(categories) != (kind == "category"):
        _fail(f"column {name!r}", f"is a {kind} with {len(categories)} categories")
    n_missing, n_distinct = (_count(state.get(key), key) for key in ("n_missing", "n_distinct"))
    note, decimal = _text(state, "note"), _mark(state, "decimal")
    profile = _profile(state.get("profile"), f"the profile of column {name!r}")
    return Column(name, kind, categories, note, n_missing, n_distinct, form, decimal, profile)


def _profile(state: Any, where: str) -> Profile | None:
    """Return what is known of training values: nothing in schemas that do not say it."""
    if state is None:
        return None
    if not isinstance(state, Mapping):
        _fail(where, f"is {state!r}")
    n_mode, n_rare = (_count(state.get(key), f"{where}, {key},") for key in ("n_mode", "n_rare"))
    bounds, mode = _list(state, "bounds"), state.get("mode")
    numbers = [*bounds, 0.0 if mode is None else mode]
    if not all(type(each) in (int, float) and abs(each) <= LARGEST for each in numbers):
        _fail(where, f"has the bounds {bounds!r} and the mode {mode!r}, which must be numbers")
    if bounds and (len(bounds) != 2 or bounds[0] > bounds[1]):
        _fail(where, f"has the bounds {bounds!r}, which must be two, the smaller first")
    return Profile(n_mode, n_rare, tuple(map(float, bounds)), None if mode is None else float(mode))


def _mark(state: Mapping[str, Any], key: str) -> Any:
    """Return what stands before decimals: not known in schemas that do not say it."""
    mark = state.get(key, "")
    if mark not in MARKS:
        _fail(key, f"is {mark!r}, not one of {MARKS}")
    return mark


def _list(state: Mapping[str, Any], key: str) -> list[Any]:
    value = state.get(key)
    if not isinstance(value, list):
        _fail(key, f"is {value!r}, not a list")
    return value


def _text(state: Mapping[str, Any], key: str, optional: bool = False) -> Any:
    value = state.get(key)
    if not isinstance(value, str) and not (optional and value is None):
        _fail(key, f"is {value!r}, not a text")
    return value


def _texts(state: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _list(state, key)
    if not all(isinstance(value, str) for value in values) or len(set(values)) < len(values):
        _fail(key, "must be texts, each once")
    return tuple(values)


def _count(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        _fail(key, f"has {value!r}, not a whole number of at least 0")
    return value


def _fail(key: str, why: str) -> NoReturn:
    raise ValueError(f"the stored schema is damaged: {key} {why}. Fit again to write a new one.")
