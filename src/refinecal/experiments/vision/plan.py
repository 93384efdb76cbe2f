"""What a vision experiment trains: data sets × models × seeds, all by one recipe."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

from refinecal.experiments.base_plan import VERSION, BasePlan
from refinecal.experiments.vision.recipe import Recipe, Settings

DATASETS = ("cifar10", "cifar100", "svhn", "fashion-mnist")
MODELS = ("resnet18", "wrn28-10", "medium", "small")
MOST_SEEDS = 100_000
OPTIONS = {  # of the command, by the fields that they set
    "datasets": "--dataset",
    "models": "--model",
    "weight_decay": "--weight-decay",
    "limit_train": "--limit",
    "n_threads": "--threads",
    **{name: f"--augment ({name})" for name in ("crop", "flip", "cutout")},
    **{name: f"--{name}" for name in ("seeds", "epochs", "lr", "batch", "schedule", "precision")},
}
AUGMENTATION = {"crop": 4, "flip": True, "cutout": 16}  # the paper's
NO_AUGMENTATION = {"crop": 0, "flip": False, "cutout": 0}


class Key(NamedTuple):
    """One training run: of a model on a data set, with a seed."""

    dataset: str
    model: str
    seed: int

    @property
    def name(self) -> str:
        """Return a name for a file, different for different keys.

        >>> Key("cifar10", "wrn28-10", 3).name
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
    OPTIONS: ClassVar[dict[str, str]] = OPTIONS

    datasets: tuple[str, ...]  # names in DATASETS
    models: tuple[str, ...] = ("resnet18",)  # names in MODELS
    seeds: int = 10  # training runs of each model on each data set: with the seeds 0, 1, …
    folder: str = "."  # where the images are
    content: dict[str, str] = field(default_factory=dict)  # a digest of the images, by data set
    n_threads: int = 1  # of one training run on a CPU; it may change the last digits of a sum
    version: int = VERSION  # of the protocol

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

    def units(self) -> list[Key]:
        """Return every training run: all data sets and models with one seed, then with the next.

        So what is finished after half of the time is already a smaller experiment of the same kind.
        """
        return [
            Key(dataset, model, seed)
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
