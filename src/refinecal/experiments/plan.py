"""What an experiment trains, on tables or on images: all that decides its results, but not how it is run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import quote

from refinecal.experiments.vision.recipe import Recipe, Settings


def digest(text: str) -> str:
    """Return the SHA-256 sum of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


class BasePlan:
    """All that decides what an experiment computes, but not how it is run."""

    __slots__ = ()
    KIND: ClassVar[str]
    MORE: ClassVar[str]  # that a run can get
    NAMED: ClassVar[dict[str, tuple[str, str]]]  # what a user names: its field and its option
    GROWING: ClassVar[tuple[str, ...]]  # numbers that a larger plan may increase, and
    SHRINKING: ClassVar[tuple[str, ...]] = ()  # those that it may decrease
    OPTIONS: ClassVar[dict[str, str]] = {}  # of the command, by the fields that they set
    # Of the protocol, that can be read and continued: units of different ones are not put into one table.
    VERSIONS: ClassVar[tuple[int, ...]] = (1,)
    ADDED: ClassVar[dict[str, Any]] = {}  # what fields are in older plans, which do not have them
    version: int

    @property
    def key(self) -> str:
        """Return what two plans share if they compute the same, wherever their data are."""
        content = self._content()
        old = {name: value for name, value in content.items() if self.ADDED.get(name, ...) != value}
        return digest(json.dumps(old, sort_keys=True))[:16]

    def losses(self, other: Self) -> list[str]:
        """Return in words what ``other`` leaves out or computes differently; nothing if it has all, or more.

        Training runs depend only on their key, so a larger plan changes none that are planned already, and
        the order does not matter.
        """
        mine, theirs = self._content(), other._content()
        return [
            f"{self.OPTIONS.get(name, name)}: {_format(mine[name])}, now {_format(theirs[name])}"
            for name in mine
            if name not in ("sources", "content")
            and not self._has_all(name, mine[name], theirs[name])
        ] + self._lost_data(other)

    def _has_all(self, name: str, old: Any, new: Any) -> bool:
        """Tell whether a plan with a new value of a field computes all that one with the old value does."""
        if name in self.GROWING:
            return bool(old <= new)
        if name in self.SHRINKING:
            return bool(old >= new)
        if name in (field for field, _ in self.NAMED.values()):
            return set(old) <= set(new)
        return bool(old == new)

    def _lost_data(self, other: Self) -> list[str]:
        """Return in words which data ``other`` leaves out, or has changed."""
        raise NotImplementedError

    def _content(self) -> dict[str, Any]:
        """Return all fields except where the data are."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the plan as text; that of tables does not name its kind."""
        kind = {} if self.KIND == "tabular" else {"kind": self.KIND}
        return json.dumps({**kind, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan that :meth:`to_json` wrote."""
        read = json.loads(text)
        if isinstance(read, dict):
            read = {**cls.ADDED, **read}
        known = {each.name for each in fields(cls)}  # type: ignore[arg-type]
        if (
            isinstance(read, dict)
            and read.pop("kind", "tabular") == cls.KIND
            and set(read) == known
        ):
            return cls(**read)
        wrong = sorted(set(read) ^ known) if isinstance(read, dict) else "not an object"
        raise ValueError(
            f"this is not a plan of the {cls.KIND} experiment of this version of refinecal ({wrong}): use "
            "the version that wrote it"
        )

    def _check_least(self, least: dict[str, int]) -> None:
        """Raise if a number is too small, or the version is another."""
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ValueError(f"{name} is {value}: it must be at least {low}")
        if self.version not in self.VERSIONS:
            raise ValueError(
                f"the plan has version {self.version} of the protocol, but this refinecal follows version "
                f"{self.VERSIONS[-1]}: use the refinecal that made it, or start a new run"
            )

    def _check_names(self, name: str, values: Any) -> None:
        """Raise if there are no names, or one is repeated."""
        if not values:
            raise ValueError(f"{name} is empty: an experiment needs at least one")
        again = sorted({value for value in values if list(values).count(value) > 1})
        if again:
            raise ValueError(
                f"{name} has {', '.join(again)} more than once: each name must be unique"
            )


def _format(value: Any) -> str:
    if value is None:
        return "not given"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


METRIC_NAMES = (
    *("log_loss", "brier", "accuracy", "auroc"),
    *("refinement", "brier_refinement", "refinement_cv5", "refinement_isotonic", "refinement_loo"),
    *("refinement_laplace", "refinement_ivap"),
)
PLACE = "path"  # of a source: where it is, which says nothing about its content
MOST_FOLDS = 10
LONGEST = 150  # characters of a set's name in a file's name


class TableKey(NamedTuple):
    """One training run: of a method with a configuration on a split of a data set."""

    set: str
    split: int
    method: str
    config: int  # 0: default parameters; 1…: random search
    folds: int = 0  # of cross-validation; 0: the usual validation rows
    fold: int = 0

    @property
    def name(self) -> str:
        """Return a name for a file, different for different keys.

        >>> TableKey("car/2", 0, "mlp", 12).name, TableKey("car", 0, "mlp", 0, 5, 2).name
        ('car%2F2-mlp-s0-c12', 'car-mlp-s0-c0-f2of5')
        """
        safe = quote(self.set, safe=" ()+,=")
        if safe.startswith("."):
            safe = f"%2E{safe[1:]}"
        if len(safe) > LONGEST:
            safe = f"{safe[:LONGEST]}~{digest(self.set)[:12]}"
        fold = f"-f{self.fold}of{self.folds}" if self.folds else ""
        return f"{safe}-{self.method}-s{self.split}-c{self.config}{fold}"

    @property
    def alike(self) -> tuple[tuple[str | bool, ...], ...]:
        """Return groups of training runs that take about as long, the most similar first."""
        return (self.method, self.set, self.config > 0), (self.method, self.set), (self.method,)

    def __str__(self) -> str:
        which = f"configuration {self.config}" if self.config else "default parameters"
        which += f", fold {self.fold} of {self.folds}" if self.folds else ""
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
    VERSIONS: ClassVar[tuple[int, ...]] = (1, 2)
    ADDED: ClassVar[dict[str, Any]] = {"folds": 0}

    sources: tuple[
        dict[str, Any], ...
    ]  # data sets: name, kind, path, and what identifies their content
    methods: tuple[str, ...]  # names of refinecal.experiments.tabular.protocol
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
    # Of the protocol. In version 1, default XGBoost has 1,000 rounds, and the MLP has four hidden layers.
    version: int = 2
    folds: int = 0  # on each of which every training run is repeated, without the test rows

    def __post_init__(self) -> None:
        for name in ("sources", "methods", "metrics"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        least = dict.fromkeys(("splits", "max_steps", "min_rows", "max_rows", "n_threads"), 1)
        self._check_least(least | {"configs": 0, "seed": 0})
        if self.folds and not 2 <= self.folds <= MOST_FOLDS:
            raise ValueError(f"folds is {self.folds}: it must be 0, or 2 to {MOST_FOLDS}")
        if not all("name" in source for source in self.sources):
            raise ValueError("sources: every data set needs a 'name'")
        for name in ("methods", "metrics"):
            self._check_names(name, getattr(self, name))
        self._check_names("sources", self.sets)
        keys = [TableKey(name, 0, method, 0) for name in self.sets for method in self.methods]
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

    def units(self) -> list[TableKey]:
        """Return every training run: default parameters first, then sets and methods in turn.

        So what is finished after half of the time is already a smaller experiment of the same kind.
        """
        return [
            TableKey(name, split, method, config, *fold)
            for config in range(self.configs + 1)
            for split in range(self.splits)
            for name in self.sets
            for method in self.methods
            for fold in [(), *((self.folds, number) for number in range(self.folds))]
        ]

    def seed_of(self, key: TableKey, purpose: str = "training") -> int:
        """Return the seed of one training run, or of its ``"params"``: independent of the rest of the plan.

        >>> from dataclasses import replace
        >>> plan = Plan(({"name": "adult"},), ("mlp",))
        >>> replace(plan, splits=9, configs=3).seed_of(plan.units()[0]) == plan.seed_of(plan.units()[0])
        True
        """
        own = key if key.folds and purpose == "training" else key[:4]
        text = json.dumps([self.seed, *own, purpose])
        return int(digest(text)[:8], 16) >> 1  # 31 bits: what every library takes

    def has(self, source: Mapping[str, Any]) -> bool:
        """Tell whether a data set is planned, wherever it is."""
        return without_place(source) in map(without_place, self.sources)

    def _content(self) -> dict[str, Any]:
        content = asdict(self) | {"sources": [without_place(source) for source in self.sources]}
        return json.loads(json.dumps(content))  # type: ignore[no-any-return]

    def losses(self, other: Self) -> list[str]:
        """Return in words what ``other`` leaves out; cross-validation may be added, but not changed."""
        has_other_folds = self.folds not in (0, other.folds)
        said = f"folds: {self.folds or 'none'}, now {other.folds or 'none'}"
        return super(Plan, self).losses(replace(other, folds=self.folds)) + [said] * has_other_folds

    def _lost_data(self, other: Plan) -> list[str]:
        old, new = (
            {source["name"]: without_place(source) for source in each.sources}
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


def without_place(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies the content of a data set, wherever it is."""
    return {name: value for name, value in source.items() if name != PLACE}


DATASETS = ("cifar10", "cifar100", "svhn", "fashion-mnist")
MODELS = ("resnet18", "wrn28-10", "medium", "small")
MOST_SEEDS = 100_000
AUGMENTATION = {"crop": 4, "flip": True, "cutout": 16}  # the paper's
NO_AUGMENTATION = {"crop": 0, "flip": False, "cutout": 0}


class ImageKey(NamedTuple):
    """One training run: of a model on a data set, with a seed."""

    dataset: str
    model: str
    seed: int

    @property
    def name(self) -> str:
        """Return a name for a file, different for different keys.

        >>> ImageKey("cifar10", "wrn28-10", 3).name
        'cifar10-wrn28-10-s3'
        """
        return f"{self.dataset}-{self.model}-s{self.seed}"

    @property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """Return groups of training runs that take about as long, the most similar first."""
        return (self.model, self.dataset), (self.model,)

    def __str__(self) -> str:
        return f"{self.model} on {self.dataset}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class VisionPlan(BasePlan, Settings):
    """All that decides what an experiment on images computes, but not how it is run.

    Also has the fields of :class:`~refinecal.experiments.vision.recipe.Settings`.

    Examples
    --------
    >>> plan = VisionPlan(("cifar10",), ("resnet18", "small"), seeds=2)
    >>> [key.name for key in plan.units()]
    ['cifar10-resnet18-s0', 'cifar10-small-s0', 'cifar10-resnet18-s1', 'cifar10-small-s1']
    >>> VisionPlan.from_json(plan.to_json()) == plan
    True
    """

    KIND: ClassVar[str] = "vision"
    MORE: ClassVar[str] = "data sets, models and seeds"
    NAMED: ClassVar[dict[str, tuple[str, str]]] = {
        "data sets": ("datasets", "--dataset"),
        "models": ("models", "--model"),
    }
    GROWING: ClassVar[tuple[str, ...]] = ("seeds",)
    ADDED: ClassVar[dict[str, Any]] = {"optimizer": "sgd"}
    OPTIONS: ClassVar[dict[str, str]] = {
        "datasets": "--dataset",
        "models": "--model",
        "weight_decay": "--weight-decay",
        "limit_train": "--limit",
        "n_threads": "--threads",
        **{name: f"--augment ({name})" for name in ("crop", "flip", "cutout")},
        **{
            name: f"--{name}"
            for name in ("seeds", "epochs", "optimizer", "lr", "batch", "schedule", "precision")
        },
    }

    datasets: tuple[str, ...]  # names in DATASETS
    models: tuple[str, ...] = ("resnet18",)  # names in MODELS
    seeds: int = 10  # training runs of each model on each data set: with the seeds 0, 1, …
    folder: str = "."  # where the images are
    content: dict[str, str] = field(default_factory=dict)  # a digest of the images, by data set
    n_threads: int = 1  # of one training run on a CPU; it may change the last digits of a sum
    version: int = 1  # of the protocol

    def __post_init__(self) -> None:
        for name, known in (("datasets", DATASETS), ("models", MODELS)):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            self._check_names(name, getattr(self, name))
            for value in getattr(self, name):
                if value not in known:
                    raise ValueError(f"{name} has {value!r}: it must be one of {', '.join(known)}")
        self._check_least({"seeds": 1, "n_threads": 1})
        if self.seeds > MOST_SEEDS:
            raise ValueError(f"seeds is {self.seeds}: it must be at most {MOST_SEEDS}")
        Settings.__post_init__(self)
        object.__setattr__(self, "folder", str(self.folder))
        images = {name: self.content[name] for name in self.datasets if name in self.content}
        object.__setattr__(self, "content", images)

    def units(self) -> list[ImageKey]:
        """Return every training run: all data sets and models with one seed, then with the next.

        So what is finished after half of the time is already a smaller experiment of the same kind.
        """
        return [
            ImageKey(dataset, model, seed)
            for seed in range(self.seeds)
            for dataset in self.datasets
            for model in self.models
        ]

    def recipe(self, dataset: str, model: str) -> Recipe:
        """Return how a model is trained on a data set."""
        settings = {each.name: getattr(self, each.name) for each in fields(Settings)}
        return Recipe(dataset, model, **settings)

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        del content["folder"]
        return json.loads(json.dumps(content))  # type: ignore[no-any-return]

    def _lost_data(self, other: VisionPlan) -> list[str]:
        shared = sorted({*self.datasets} & {*other.datasets})
        read = (
            (name, *(each.content.get(name, "not read") for each in (self, other)))
            for name in shared
        )
        return [
            f"{name} has other images: {old}, now {new}" for name, old, new in read if old != new
        ]
