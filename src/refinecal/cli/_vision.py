"""What ``refinecal experiment vision`` trains, where, and its progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from refinecal.cli._console import Console, show_path
from refinecal.cli._running import RunProgress

if TYPE_CHECKING:
    from refinecal.experiments.running import State
    from refinecal.experiments.store import RunFolder
    from refinecal.experiments.vision.images import ImageSet
    from refinecal.experiments.vision.plan import VisionPlan


NOTHING = "none"  # of augmentation
LOOKED_AT = 20  # seeds, whose images are looked at before anything is trained


def parse_names(
    option: str, text: str | None, known: tuple[str, ...], guess: bool = True
) -> tuple[str, ...] | None:
    """Return the names of a list, which must be known; ``None`` if there is no list.

    >>> parse_names("--model", "small, resnet18", ("resnet18", "small"))
    ('small', 'resnet18')
    """
    from difflib import get_close_matches

    from refinecal.cli._planning import split_names

    found = split_names(option, text)
    for name in found or ():
        if name not in known:
            near = get_close_matches(name.lower(), known, 1) if guess else []
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(known)}.{meant}", param_hint=option
            )
    return found


def parse_name(
    option: str, text: str | None, known: tuple[str, ...], guess: bool = True
) -> str | None:
    """Return a name, which must be known; ``None`` if there is none."""
    if text is not None and text not in known:
        parse_names(option, text, known, guess)
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(known)}", param_hint=option)
    return text


def parse_devices(text: str | None) -> tuple[str, ...]:
    """Return the devices of a list, which torch must have; by default a GPU if there is one."""
    from refinecal._core.errors import needs_extra

    with needs_extra("vision", package="torch"):
        import torch

    if text is None:
        return ("cuda:0" if torch.cuda.is_available() else "cpu",)
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise typer.BadParameter("name at least one", param_hint="--device")
    for name in found:
        try:
            torch.zeros(1, device=name).item()  # there are devices that hold no numbers
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            there = ["cpu", *(f"cuda:{place}" for place in range(torch.cuda.device_count()))]
            are = "is only" if len(there) == 1 else "are"
            raise typer.BadParameter(
                f"torch has no device {name!r} here: there {are} {', '.join(there)}",
                param_hint="--device",
            ) from error
    return found


def parse_augmentation(text: str | None) -> dict[str, Any]:
    """Return the fields of a plan for the augmentation of training images; none if it is not given.

    >>> parse_augmentation("crop,flip")
    {'crop': 4, 'flip': True, 'cutout': 0}
    """
    from refinecal.experiments.vision.plan import AUGMENTATION, NO_AUGMENTATION

    found = parse_names("--augment", text, (*AUGMENTATION, NOTHING))
    if found is None:
        return {}
    if NOTHING in found and len(found) > 1:
        raise typer.BadParameter(
            f"{NOTHING!r} excludes the others: name some of {', '.join(AUGMENTATION)}, or {NOTHING}",
            param_hint="--augment",
        )
    return NO_AUGMENTATION | {name: AUGMENTATION[name] for name in found if name != NOTHING}


# ---- the plan ----------------------------------------------------------------------------------------------


def open_run(
    console: Console,
    out: Path,
    data: Path | None,
    given: dict[str, Any],
    resume: bool,
    threads: int,
    devices: tuple[str, ...],
    download: bool = False,
    check: bool = True,
) -> RunFolder:
    """Return the folder of a new run, or of one that resumes: with the same plan, or with a larger one."""
    from refinecal.cli._planning import grow, open_existing_run
    from refinecal.experiments.store import RunFolder
    from refinecal.experiments.vision._devices import choose_precision
    from refinecal.experiments.vision.plan import VisionPlan

    folder = open_existing_run(out, "vision") if resume else None
    if folder is None:
        if data is None:
            raise ValueError("no images are given: name their folder with --data")
        RunFolder.check_new(out)
        default: dict[str, Any] = {"datasets": ("cifar10",), "n_threads": threads}
        with _name_options():
            plan = VisionPlan(**(default | given))
            precision = choose_precision(plan.precision, *devices)
            plan = replace(plan, precision=precision)  # the same wherever the run resumes
        plan = _locate_images(console, plan, data, plan.datasets, download, check)
        with _name_out_option(out):
            return RunFolder.create(out, plan)
    if given.get("precision") == "auto":  # as the run has it, whatever this machine is fast at
        del given["precision"]
    with _name_options():
        plan = replace(folder.plan, **given)
    new = tuple(name for name in plan.datasets if name not in folder.plan.datasets)
    if data is not None or new:
        where, sets = (Path(plan.folder), new) if data is None else (data, plan.datasets)
        plan = _locate_images(console, plan, where, sets, download, check)
    grow(console, folder, plan)
    return folder


@contextmanager
def _name_options() -> Iterator[None]:
    """Name the options of the command in errors, not the fields of a plan."""
    from refinecal.experiments.vision.plan import OPTIONS

    try:
        yield
    except (ValueError, TypeError) as error:
        name, _, rest = str(error).partition(" ")
        raise ValueError(f"{OPTIONS.get(name, name)} {rest}") from error


@contextmanager
def _name_out_option(out: Path) -> Iterator[None]:
    """Name the option if there can be no folder where it says."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # it speaks for itself
            raise
        raise OSError(
            f"--out is {show_path(out)}, where no folder can be created ({error.strerror}): name one in a "
            "writable place"
        ) from error


def _locate_images(
    console: Console,
    plan: VisionPlan,
    data: Path,
    datasets: tuple[str, ...],
    download: bool,
    check: bool,
) -> VisionPlan:
    """Return the plan with its images in a folder; those of some sets are read once, to identify them."""
    from refinecal.experiments.vision.work import fingerprint

    content = dict(plan.content)
    for name in datasets:
        images = _read_images(console, data, name, download, check)
        content[name] = fingerprint(images)
        _check_limit(plan, images)
    return replace(plan, folder=str(data.resolve()), content=content)


def _read_images(console: Console, data: Path, name: str, download: bool, check: bool) -> ImageSet:
    from refinecal.experiments.vision import images

    try:
        return images.read_images(data, name, check)
    except FileNotFoundError:
        if not download:
            raise
    images.download(name, data, progress=console.err.is_terminal and not console.quiet)
    return images.read_images(data, name, check)


def _check_limit(plan: VisionPlan, images: ImageSet) -> None:
    """Raise if there are too few images to train on, or to choose epochs by."""
    limit, n = plan.limit_train, len(images.train_y)
    if limit is not None and limit > n:
        raise ValueError(f"--limit is {limit}, but {images.name} has {n} training images")
    which = f"{images.name} has {n} training images" if limit is None else f"--limit is {limit}"
    n_val = round(plan.validation * (limit or n))
    if not 0 < n_val < (limit or n):
        raise ValueError(f"{which}, of which {n_val} would be for validation: take more images")
    _check_classes(plan, images, which)


def _check_classes(plan: VisionPlan, images: ImageSet, which: str) -> None:
    from refinecal.experiments.vision.training import split

    recipe = plan.recipe(images.name, plan.models[0])
    for seed in range(min(plan.seeds, LOOKED_AT)):
        parts = zip(("training", "validation"), split(images.train_y, recipe, seed), strict=True)
        for part, rows in parts:
            if len(set(images.train_y[rows].tolist())) < 2:
                raise ValueError(
                    f"{which}, and with seed {seed} the {part} images ({len(rows)}) are all of one class: "
                    "take more images"
                )


# ---- while it runs -----------------------------------------------------------------------------------------


class EpochProgress(RunProgress):
    """Shows how many epochs are done: a training run has hundreds, and may take hours."""

    def __init__(self, console: Console, folder: RunFolder) -> None:
        super().__init__(console)
        self._folder = folder

    def progress(self, state: State) -> tuple[float, float, str]:
        """Return how many epochs are done, of how many, and the same in words."""
        from refinecal.experiments.rates import duration, seconds_left
        from refinecal.experiments.vision.work import read_progress

        epochs, under_way = self._folder.plan.epochs, read_progress(self._folder, state.left)
        width = max(min(state.width, len(state.left)), 1)
        left = seconds_left(state.left, state.rates, under_way, width)
        done = state.finished + state.failed
        parts = [
            f"{done}/{state.total}",
            f"{state.failed} failed" if state.failed else "",
            "" if left is None else f"{duration(left)} left",
            *(f"{key.name} {each.epoch}/{epochs}" for key, each in under_way.items()),
        ]
        so_far = done * epochs + sum(each.epoch for each in under_way.values())
        return so_far, state.total * epochs, "  ".join(part for part in parts if part)
