"""What a vision experiment trains: data sets × models × seeds, all by one recipe."""

from __future__ import annotations

import hashlib
import json
import numbers
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

if TYPE_CHECKING:
    from refinecal.experiments.vision.recipe import Recipe

__all__ = ["DATASETS", "KIND", "MODELS", "Key", "VisionPlan"]

KIND = "vision"  # of the experiment, in plan.json
DATASETS = ("cifar10", "cifar100", "svhn", "fashion-mnist")
MODELS = ("resnet18", "wrn28-10", "medium", "small")
VERSION = 1  # of the protocol: units of different versions are not put into one table
MOST = 100_000  # seeds, and threads
PLACE = "folder"  # where the images are, which says nothing about what is in them
OWN = (
    "datasets",
    "models",
    "seeds",
    "folder",
    "content",
    "n_threads",
    "version",
)  # not the recipe's
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
    """One training: of a model on a data set, with a seed."""

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
        """Return groups of trainings that take about as long, the most alike first."""
        return (self.model, self.dataset), (self.model,)

    def __str__(self) -> str:
        return f"{self.model} on {self.dataset}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class VisionPlan:
    """All that decides what an experiment computes, and nothing about how it is run.

    Parameters
    ----------
    datasets, models : tuple of str
        Names in :data:`DATASETS` and :data:`MODELS`.
    seeds : int
        Trainings of each model on each data set: with the seeds 0, 1, …
    folder : str
        Where the images are.
    epochs, lr, momentum, weight_decay, nesterov, batch, schedule : optional
        How SGD is done, as in :class:`~refinecal.experiments.vision.recipe.Recipe`; so are the next ones.
    crop, flip, cutout : optional
        Augmentation: padding in pixels, mirroring, side of the hole; 0 and ``False`` are without.
    validation : float
        Share of the training images by which to stop.
    precision : str
        Of the arithmetic: ``"auto"``, ``"float32"`` or ``"bfloat16"``.
    channels_last : bool
        Order of images in memory.
    limit_train : int, optional
        Only so many training images.
    content : dict
        By data set, a word that changes with its images.
    n_threads : int
        Of one training on a CPU; it may change the last digits of a sum.
    version : int
        Of the protocol.

    Examples
    --------
    >>> plan = VisionPlan(("cifar10",), ("resnet18", "small"), seeds=2)
    >>> [key.name for key in plan.units()]
    ['cifar10-resnet18-s0', 'cifar10-small-s0', 'cifar10-resnet18-s1', 'cifar10-small-s1']
    >>> VisionPlan.from_json(plan.to_json()) == plan
    True
    """

    MORE: ClassVar[str] = "data sets, models and seeds"  # that a run can get
    NAMED: ClassVar[dict[str, tuple[str, str]]] = {
        "data sets": ("datasets", "--dataset"),
        "models": ("models", "--model"),
    }

    datasets: tuple[str, ...]
    models: tuple[str, ...] = ("resnet18",)
    seeds: int = 10
    folder: str = "."
    epochs: int = 300
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    nesterov: bool = False
    batch: int = 128
    schedule: str = "step"
    crop: int = 4
    flip: bool = True
    cutout: int = 16
    validation: float = 0.1
    precision: str = "auto"
    channels_last: bool = True
    limit_train: int | None = None
    content: dict[str, str] = field(default_factory=dict)
    n_threads: int = 1
    version: int = VERSION

    def __post_init__(self) -> None:
        for name in ("datasets", "models"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "folder", str(self.folder))
        known = {name: self.content[name] for name in self.datasets if name in self.content}
        object.__setattr__(self, "content", known)
        _check(self)

    @property
    def kind(self) -> str:
        """Return which experiment this is a plan of."""
        return KIND

    def units(self) -> list[Key]:
        """Return every training: all data sets and models with one seed, then with the next.

        So what there is after half of the time is already a smaller experiment of the same kind.
        """
        return [
            Key(dataset, model, seed)
            for seed in range(self.seeds)
            for dataset in self.datasets
            for model in self.models
        ]

    def recipe(self, dataset: str, model: str) -> Recipe:
        """Return how a model is trained on a data set."""
        from refinecal.experiments.vision.recipe import Recipe

        given = {name: value for name, value in asdict(self).items() if name not in OWN}
        return Recipe(dataset=dataset, model=model, **given)

    @property
    def key(self) -> str:
        """Return what two plans share if they compute the same, wherever their images are."""
        text = json.dumps(self._content(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, other: VisionPlan) -> list[str]:
        """Return in words what ``other`` would compute otherwise; nothing if their keys are equal."""
        return self._describe_changes(other, lambda name, old, new: bool(old == new))

    def losses(self, other: VisionPlan) -> list[str]:
        """Return in words what ``other`` leaves out or computes otherwise; nothing if it has all, or more.

        Since a training depends on nothing but the recipe, its images and its seed, more data sets, models
        and seeds change no training that is planned already; nor does it matter in which order they are.

        >>> plan = VisionPlan(("cifar10",), ("resnet18",), seeds=10)
        >>> plan.losses(replace(plan, datasets=("svhn", "cifar10"), seeds=20))
        []
        >>> plan.losses(replace(plan, seeds=5))
        ['--seeds: 10, now 5; seeds cannot become fewer']
        """
        fewer = "; seeds cannot become fewer"
        return [
            each + fewer * each.startswith(OPTIONS["seeds"])
            for each in self._describe_changes(other, _has_all)
        ]

    def _describe_changes(
        self, other: VisionPlan, fits: Callable[[str, Any, Any], bool]
    ) -> list[str]:
        """Return in words which fields of ``other`` do not fit, and which images are others."""
        mine, theirs = self._content(), other._content()
        said = [
            f"{OPTIONS.get(name, name)}: {_format_value(mine[name])}, now {_format_value(theirs[name])}"
            for name in mine
            if name != "content" and not fits(name, mine[name], theirs[name])
        ]
        old, new = mine["content"], theirs["content"]
        return said + [
            f"{name} has other images: {old.get(name, 'not read')}, now {new.get(name, 'not read')}"
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name) and name in self.datasets and name in other.datasets
        ]

    def at(self, folder: str) -> VisionPlan:
        """Return the plan with its images in another place."""
        return replace(self, folder=folder)

    def to_json(self) -> str:
        """Return the plan as text."""
        return json.dumps({"kind": KIND, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan that :meth:`to_json` wrote."""
        read = json.loads(text)
        known = {"kind", *(each.name for each in fields(cls))}
        if not isinstance(read, dict) or set(read) != known or read["kind"] != KIND:
            wrong = sorted(set(read) ^ known) if isinstance(read, dict) else "no object"
            raise ValueError(
                f"this is no plan of the vision experiment of this version of refinecal ({wrong}): use the "
                "version that wrote it"
            )
        del read["kind"]
        return cls(**read)

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        del content[PLACE]
        return json.loads(json.dumps(content))  # type: ignore[no-any-return]


def _check(plan: VisionPlan) -> None:
    for name, known in (("datasets", DATASETS), ("models", MODELS)):
        values = getattr(plan, name)
        if not values:
            raise ValueError(f"{name} is empty: name at least one of {', '.join(known)}")
        for value in values:
            if value not in known:
                raise ValueError(f"{name} has {value!r}: it is none of {', '.join(known)}")
            if values.count(value) > 1:
                raise ValueError(f"{name} has {value} more than once: name it once")
    for name in ("seeds", "n_threads"):
        if not isinstance(getattr(plan, name), numbers.Integral):
            raise TypeError(f"{name} is {getattr(plan, name)!r}: it must be a whole number")
        if getattr(plan, name) > MOST:
            raise ValueError(f"{name} is {getattr(plan, name)}: it must be at most {MOST}")
        if getattr(plan, name) < 1:
            raise ValueError(f"{name} is {getattr(plan, name)}: it must be at least 1")
    plan.recipe(plan.datasets[0], plan.models[0])  # which complains of the rest
    if plan.version != VERSION:
        raise ValueError(
            f"the plan is of version {plan.version} of the protocol, but this refinecal follows version "
            f"{VERSION}: use the refinecal that made it, or begin a new run"
        )


def _has_all(name: str, old: Any, new: Any) -> bool:
    """Tell whether a plan with a new value of a field computes all that one with the old value does."""
    if name == "seeds":
        return bool(old <= new)
    if name in ("datasets", "models"):
        return set(old) <= set(new)
    return bool(old == new)


def _format_value(value: Any) -> str:
    if value is None:
        return "not given"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
