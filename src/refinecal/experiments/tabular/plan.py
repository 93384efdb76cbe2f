"""What a tabular experiment trains: sets × splits × methods × configurations, and their seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

from refinecal.experiments.base_plan import VERSION, BasePlan, digest

METRIC_NAMES = (
    *("log_loss", "brier", "accuracy", "auroc"),
    *("refinement", "brier_refinement", "refinement_cv5", "refinement_isotonic", "refinement_loo"),
)
PLACE = "path"  # of a source: where it is, which says nothing about its content
LONGEST = 150  # characters of a set's name in a file's name


class Key(NamedTuple):
    """One training run: of a method with a configuration on a split of a data set."""

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
            safe = f"{safe[:LONGEST]}~{digest(self.set)[:12]}"
        return f"{safe}-{self.method}-s{self.split}-c{self.config}"

    @property
    def alike(self) -> tuple[tuple[str | bool, ...], ...]:
        """Return groups of training runs that take about as long, the most similar first."""
        return (self.method, self.set, self.config > 0), (self.method, self.set), (self.method,)

    def __str__(self) -> str:
        which = f"configuration {self.config}" if self.config else "default parameters"
        return f"{self.method} on {self.set}, split {self.split}, {which}"


@dataclass(frozen=True, slots=True)
class Plan(BasePlan):
    """All that decides what a tabular experiment computes, but not how it is run.

    Examples
    --------
    >>> plan = Plan(({"name": "adult", "kind": "table", "path": "adult.parquet"},), ("xgboost",), splits=2)
    >>> [key.name for key in plan.units()]
    ['adult-xgboost-s0-c0', 'adult-xgboost-s1-c0']
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    KIND: ClassVar[str] = "tabular"
    MORE: ClassVar[str] = "data sets, methods, splits and configurations"
    NAMED: ClassVar[dict[str, tuple[str, str]]] = {"methods": ("methods", "--methods")}
    GROWING: ClassVar[tuple[str, ...]] = ("splits", "configs")
    SHRINKING: ClassVar[tuple[str, ...]] = ("min_rows",)

    sources: tuple[
        dict[str, Any], ...
    ]  # data sets: name, kind, path, and what identifies their content
    methods: tuple[str, ...]  # names of refinecal.experiments.tabular.methods
    splits: int = 5  # random splits of each set, numbered from 0
    configs: int = (
        0  # random configurations of each method, from 1; the default parameters are number 0
    )
    seed: int = 0  # determines all random choices
    metrics: tuple[str, ...] = METRIC_NAMES  # for each of which the best step is tracked
    max_steps: int | None = None  # fewer steps than the methods' own maxima, which are the paper's
    min_rows: int = 1_000  # smaller sets are left out
    max_rows: int = 100_000  # of larger sets, rows are drawn at random
    n_threads: int = 1  # of one training run; it may change the last digits of a sum
    version: int = VERSION  # of the protocol

    def __post_init__(self) -> None:
        for name in ("sources", "methods", "metrics"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        least = dict.fromkeys(("splits", "max_steps", "min_rows", "max_rows", "n_threads"), 1)
        self._check_least(least | {"configs": 0, "seed": 0})
        if not all("name" in source for source in self.sources):
            raise ValueError("sources: every data set needs a 'name'")
        for name in ("methods", "metrics"):
            self._check_names(name, getattr(self, name))
        self._check_names("sources", self.sets)
        keys = [Key(name, 0, method, 0) for name in self.sets for method in self.methods]
        self._check_names(
            "sources", [key.name.lower() for key in keys]
        )  # files: Adult may be adult

    @property
    def sets(self) -> tuple[str, ...]:
        """Return the names of the data sets."""
        return tuple(source["name"] for source in self.sources)

    def source(self, name: str) -> dict[str, Any]:
        """Return the source of a data set."""
        return next(source for source in self.sources if source["name"] == name)

    def units(self) -> list[Key]:
        """Return every training run: default parameters first, then sets and methods in turn.

        So what is finished after half of the time is already a smaller experiment of the same kind.
        """
        return [
            Key(name, split, method, config)
            for config in range(self.configs + 1)
            for split in range(self.splits)
            for name in self.sets
            for method in self.methods
        ]

    def seed_of(self, key: Key, purpose: str = "training") -> int:
        """Return the seed of one training run, or of its ``"params"``: independent of the rest of the plan.

        >>> from dataclasses import replace
        >>> plan = Plan(({"name": "adult"},), ("mlp",))
        >>> replace(plan, splits=9, configs=3).seed_of(plan.units()[0]) == plan.seed_of(plan.units()[0])
        True
        """
        text = json.dumps([self.seed, *key, purpose])
        return int(digest(text)[:8], 16) >> 1  # 31 bits: what every library takes

    def has(self, source: Mapping[str, Any]) -> bool:
        """Tell whether a data set is planned, wherever it is."""
        return _without_place(source) in map(_without_place, self.sources)

    def _content(self) -> dict[str, Any]:
        content = asdict(self) | {"sources": [_without_place(source) for source in self.sources]}
        return json.loads(json.dumps(content))  # type: ignore[no-any-return]

    def _lost_data(self, other: Plan) -> list[str]:
        old, new = (
            {source["name"]: _without_place(source) for source in each.sources}
            for each in (self, other)
        )
        changed = [name for name in old if name in new and old[name] != new[name]]
        read = [name for name in changed if old[name].get("digest") != new[name].get("digest")]
        parts = {
            "no longer there": [name for name in old if name not in new],
            "with another content": read,
            "with another target": [name for name in changed if name not in read],
        }
        return [f"data sets {how}: {', '.join(names)}" for how, names in parts.items() if names]


def _without_place(source: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name != PLACE}
