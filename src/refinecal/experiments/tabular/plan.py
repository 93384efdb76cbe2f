"""What a tabular experiment trains: sets × splits × methods × configurations; the seed of each training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import quote

__all__ = ["METRIC_NAMES", "Key", "Plan"]

METRIC_NAMES = (
    "log_loss",
    "brier",
    "accuracy",
    "auroc",
    "refinement",
    "brier_refinement",
    "refinement_cv5",
    "refinement_isotonic",
    "refinement_loo",
)
VERSION = 1  # of the protocol: units of different versions are not put into one table
PLACE = "path"  # of a source: where it is, which says nothing about what is in it
LONGEST = 150  # characters of a set's name in a file's name


class Key(NamedTuple):
    """One training: of a method with a configuration on a split of a data set."""

    set: str
    split: int
    method: str
    config: int  # 0: default parameters; 1…: random search

    @property
    def name(self) -> str:
        """Return a name for a file, different for different keys.

        >>> Key("car/2", 0, "mlp", 12).name
        'car%2F2-mlp-s0-c12'
        """
        safe = quote(self.set, safe=" ()+,=")
        if safe.startswith("."):
            safe = f"%2E{safe[1:]}"
        if len(safe) > LONGEST:
            safe = f"{safe[:LONGEST]}~{_digest(self.set)[:12]}"
        return f"{safe}-{self.method}-s{self.split}-c{self.config}"

    @property
    def alike(self) -> tuple[tuple[str | bool, ...], ...]:
        """Return groups of trainings that take about as long, the most alike first."""
        return (self.method, self.set, self.config > 0), (self.method, self.set), (self.method,)

    def __str__(self) -> str:
        which = f"configuration {self.config}" if self.config else "default parameters"
        return f"{self.method} on {self.set}, split {self.split}, {which}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that decides what an experiment computes, and nothing about how it is run.

    Parameters
    ----------
    sources : tuple of dict
        The data sets, as dictionaries: ``name``, ``kind``, ``path``, and what else tells their content.
    methods : tuple of str
        Names of :mod:`refinecal.experiments.tabular.methods`.
    splits : int
        Random splits of each set, numbered from 0.
    configs : int
        Random configurations of each method, numbered from 1, besides the default parameters, number 0.
    seed : int
        All random choices follow from it.
    metrics : tuple of str
        For each of which the best step is tracked.
    max_steps : int, optional
        Fewer steps than the methods' own maxima; ``None`` is those of the paper.
    min_rows, max_rows : int
        Smaller sets are left out; of larger ones, rows are drawn at random.
    n_threads : int
        Of one training; it may change the last digits of a sum.
    version : int
        Of the protocol.

    Examples
    --------
    >>> plan = Plan(({"name": "adult", "kind": "table", "path": "adult.parquet"},), ("xgboost",), splits=2)
    >>> [key.name for key in plan.units()]
    ['adult-xgboost-s0-c0', 'adult-xgboost-s1-c0']
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    MORE: ClassVar[str] = "data sets, methods, splits and configurations"  # that a run can get
    NAMED: ClassVar[dict[str, tuple[str, str]]] = {"methods": ("methods", "--methods")}

    sources: tuple[dict[str, Any], ...]
    methods: tuple[str, ...]
    splits: int = 5
    configs: int = 0
    seed: int = 0
    metrics: tuple[str, ...] = METRIC_NAMES
    max_steps: int | None = None
    min_rows: int = 1_000
    max_rows: int = 100_000
    n_threads: int = 1
    version: int = VERSION

    def __post_init__(self) -> None:
        for name in ("sources", "methods", "metrics"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _check(self)

    @property
    def sets(self) -> tuple[str, ...]:
        """Return the names of the data sets."""
        return tuple(source["name"] for source in self.sources)

    def source(self, name: str) -> dict[str, Any]:
        """Return the source of a data set."""
        return next(source for source in self.sources if source["name"] == name)

    def units(self) -> list[Key]:
        """Return every training: default parameters first, sets side by side, methods in turn.

        So what there is after half of the time is already a smaller experiment of the same kind.
        """
        return [
            Key(name, split, method, config)
            for config in range(self.configs + 1)
            for split in range(self.splits)
            for name in self.sets
            for method in self.methods
        ]

    def seed_of(self, key: Key, purpose: str = "training") -> int:
        """Return the seed of one training, or of its ``"params"``: the same whatever else is planned.

        >>> plan = Plan(({"name": "adult"},), ("mlp",))
        >>> replace(plan, splits=9, configs=3).seed_of(plan.units()[0]) == plan.seed_of(plan.units()[0])
        True
        """
        text = json.dumps([self.seed, *key, purpose])
        return int(_digest(text)[:8], 16) >> 1  # 31 bits: what every library takes

    @property
    def key(self) -> str:
        """Return what two plans share if they compute the same, wherever their tables are."""
        return _digest(json.dumps(self._content(), sort_keys=True))[:16]

    def differences(self, other: Plan) -> list[str]:
        """Return in words what ``other`` would compute otherwise; nothing if their keys are equal."""
        mine, theirs = self._content(), other._content()
        said = [
            f"{name}: {_format_value(mine[name])}, now {_format_value(theirs[name])}"
            for name in mine
            if name != "sources" and mine[name] != theirs[name]
        ]
        return said + _compare_sources(mine["sources"], theirs["sources"])

    def losses(self, other: Plan) -> list[str]:
        """Return in words what ``other`` leaves out or computes otherwise; nothing if it has all, or more.

        Since the seed of a training depends on nothing but its key, more data sets, methods, splits and
        configurations change no training that is planned already; nor does it matter in which order they are.

        >>> plan = Plan(({"name": "adult"},), ("mlp",), splits=2)
        >>> plan.losses(replace(plan, splits=5, configs=30, methods=("xgboost", "mlp")))
        []
        >>> plan.losses(replace(plan, splits=1, configs=30))
        ['splits: 2, now 1']
        """
        mine, theirs = self._content(), other._content()
        said = [
            f"{name}: {_format_value(mine[name])}, now {_format_value(theirs[name])}"
            for name in mine
            if name != "sources" and not _has_all(name, mine[name], theirs[name])
        ]
        return said + _compare_sources(mine["sources"], theirs["sources"], may_grow=True)

    def has(self, source: Mapping[str, Any]) -> bool:
        """Tell whether a data set is planned, wherever it is."""
        return _without_place(source) in map(_without_place, self.sources)

    def at(self, sources: tuple[dict[str, Any], ...]) -> Plan:
        """Return the plan with its sources in other places."""
        return replace(self, sources=sources)

    def to_json(self) -> str:
        """Return the plan as text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan that :meth:`to_json` wrote."""
        read = json.loads(text)
        known = {field.name for field in fields(cls)}
        if not isinstance(read, dict) or set(read) != known:
            wrong = sorted(set(read) ^ known) if isinstance(read, dict) else "no object"
            raise ValueError(
                f"this is no plan of this version of refinecal ({wrong}): use the version that wrote it"
            )
        return cls(**read)

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        content["sources"] = [_without_place(source) for source in self.sources]
        return json.loads(json.dumps(content))  # type: ignore[no-any-return]


def _without_place(source: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name != PLACE}


def _has_all(name: str, old: Any, new: Any) -> bool:
    """Tell whether a plan with a new value of a field computes all that one with the old value does."""
    if name in ("splits", "configs"):
        return bool(old <= new)
    if name == "min_rows":
        return bool(old >= new)
    if name == "methods":
        return set(old) <= set(new)
    return bool(old == new)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check(plan: Plan) -> None:
    least = {"splits": 1, "configs": 0, "seed": 0, "min_rows": 1, "max_rows": 1, "n_threads": 1}
    for name, low in least.items():
        if getattr(plan, name) < low:
            raise ValueError(f"{name} is {getattr(plan, name)}: it must be at least {low}")
    if plan.max_steps is not None and plan.max_steps < 1:
        raise ValueError(f"max_steps is {plan.max_steps}: train for at least one step")
    for name in ("sources", "methods", "metrics"):
        if not getattr(plan, name):
            raise ValueError(f"{name} is empty: an experiment needs at least one")
    for name, values in (("methods", plan.methods), ("metrics", plan.metrics)):
        _check_once(name, values)
    if not all("name" in source for source in plan.sources):
        raise ValueError("sources: every data set needs a 'name'")
    _check_once("sources", plan.sets)
    keys = [Key(name, 0, method, 0) for name in plan.sets for method in plan.methods]
    _check_once("sources", [key.name.lower() for key in keys])  # of files: Adult may be adult
    if plan.version != VERSION:
        raise ValueError(
            f"the plan is of version {plan.version} of the protocol, but this refinecal follows version "
            f"{VERSION}: use the refinecal that made it, or begin a new run"
        )


def _check_once(name: str, values: Any) -> None:
    again = sorted({value for value in values if list(values).count(value) > 1})
    if again:
        raise ValueError(f"{name} has {', '.join(again)} more than once: each needs its own name")


def _format_value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _compare_sources(
    mine: list[Mapping[str, Any]], theirs: list[Mapping[str, Any]], may_grow: bool = False
) -> list[str]:
    old, new = ({source["name"]: source for source in side} for side in (mine, theirs))
    changed = [name for name in old if name in new and old[name] != new[name]]

    def differ(name: str) -> bool:
        return old[name].get("digest") != new[name].get("digest")

    parts = {
        "no longer there": [name for name in old if name not in new],
        "new": [name for name in new if name not in old and not may_grow],
        "with another content": [name for name in changed if differ(name)],
        "with another target": [name for name in changed if not differ(name)],
    }
    said = [f"data sets {how}: {', '.join(names)}" for how, names in parts.items() if names]
    if not said and not may_grow and list(old) != list(new):
        said = ["data sets: the same in another order"]
    return said
