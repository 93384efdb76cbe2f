"""``refinecal experiment vision``: train networks on images, and keep the best epoch by every metric."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._experiments import (
    RunProgress,
    announce,
    check_retry,
    describe_progress,
    grow,
    open_existing_run,
    option,
    remove_damaged,
    split_names,
    suggest_resume,
)
from refinecal.cli._options import (
    RUNNING,
    Json,
    Quiet,
    RetryFailed,
    RunOut,
    Verbose,
    flag,
)
from refinecal.cli.experiment_status import show_outcome

if TYPE_CHECKING:
    from refinecal.experiments.folder import RunFolder
    from refinecal.experiments.plan import VisionPlan
    from refinecal.experiments.running import State
    from refinecal.experiments.vision.images import ImageSet


IMAGES = "Images"  # a panel of the help
NOTHING = "none"  # of augmentation
LOOKED_AT = 20  # seeds, whose images are looked at before anything is trained


@command(
    "refinecal experiment vision --data images --dataset fashion-mnist --model small --epochs 20 --seeds 3 "
    "--out run"
)
def vision(
    out: RunOut,
    data: Annotated[
        Path | None, option("--data", "The folder of the published images.", None, "PATH", IMAGES)
    ] = None,
    dataset: Annotated[
        str | None,
        option("--dataset", "cifar10, cifar100, svhn, fashion-mnist.", "cifar10", "A,B,…", IMAGES),
    ] = None,
    limit: Annotated[
        int | None,
        option("--limit", "Of these, use N at random in each run.", panel=IMAGES, min=2),
    ] = None,
    train_images: Annotated[
        int | None,
        option("--train-images", "Use only the first N training images.", panel=IMAGES, min=2),
    ] = None,
    download: Annotated[
        bool, flag("--download", help="Download what is not in --data.", rich_help_panel=IMAGES)
    ] = False,
    no_check: Annotated[
        bool,
        flag("--no-check", help="Accept files with other checksums.", rich_help_panel=IMAGES),
    ] = False,
    model: Annotated[
        str | None,
        option("--model", "resnet18, wrn28-10; for CPUs: medium, small.", "resnet18", "A,B,…"),
    ] = None,
    epochs: Annotated[
        int | None, option("--epochs", "Epochs of each training run.", "300", min=1)
    ] = None,
    seeds: Annotated[
        int | None, option("--seeds", "Training runs of each network.", "10", min=1)
    ] = None,
    optimizer: Annotated[
        str | None, option("--optimizer", "sgd, with momentum, or adamw.", "sgd", "sgd|adamw")
    ] = None,
    schedule: Annotated[
        str | None,
        option(
            "--schedule",
            "Of the learning rate: step, constant, or cosine as in figure 1.",
            "step",
            "NAME",
        ),
    ] = None,
    lr: Annotated[
        float | None, option("--lr", "Initial learning rate.", "0.1, of adamw 0.001", "X")
    ] = None,
    weight_decay: Annotated[
        float | None,
        option("--weight-decay", "Weight decay.", "0.0001, of adamw 0.01", "X", min=0),
    ] = None,
    batch: Annotated[int | None, option("--batch", "Images in one step.", "128", min=1)] = None,
    augment: Annotated[
        str | None,
        option("--augment", "crop, flip, cutout; or none.", "crop,flip,cutout", "A,B,…"),
    ] = None,
    precision: Annotated[
        str | None,
        option("--precision", "float32, bfloat16, or auto, the faster one.", "auto", "NAME"),
    ] = None,
    device: Annotated[
        str | None,
        option(
            "--device",
            "Devices, such as cuda:0,cuda:1: each for one training run at a time.",
            "a GPU, or cpu",
            "A,B,…",
            RUNNING,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        option(
            "--threads",
            "Threads of each training run.",
            "all cores, or OMP_NUM_THREADS, shared by the devices",
            panel=RUNNING,
            min=1,
        ),
    ] = None,
    resume: Annotated[
        bool,
        flag("--resume", help="Resume the run in --out.", rich_help_panel=RUNNING),
    ] = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train networks on images, and keep the best epoch by each metric: to compare them.

    The defaults are those of the paper's tables; its figure 1 has --schedule cosine --weight-decay 0. A
    stopped run can resume from the last epoch of each training run. The exit code is 3 if some training runs
    failed, or ended with a loss of NaN.
    """
    from refinecal.experiments.plan import DATASETS, MODELS
    from refinecal.experiments.running import run
    from refinecal.experiments.vision.recipe import OPTIMIZERS, PRECISIONS, SCHEDULES
    from refinecal.experiments.vision.work import Ranks, Work, is_distributed

    console = Console(as_json, quiet, verbose)
    check_retry(retry_failed, resume)
    given = {
        "datasets": parse_names("--dataset", dataset, DATASETS),
        "models": parse_names("--model", model, MODELS),
        "epochs": epochs,
        "seeds": seeds,
        "optimizer": parse_name("--optimizer", optimizer, OPTIMIZERS),
        "schedule": parse_name("--schedule", schedule, SCHEDULES),
        "lr": lr,
        "weight_decay": weight_decay,
        "batch": batch,
        "precision": parse_name("--precision", precision, PRECISIONS, guess=False),
        "limit_train": limit,
        "n_threads": threads,
        **parse_augmentation(augment),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if given.get("optimizer") == "adamw" and not resume:  # torch's defaults
        given = {"lr": 1e-3, "weight_decay": 1e-2, **given}
    devices = parse_devices(device)
    ranks = Ranks(devices[0].split(":")[0]) if is_distributed() else None
    if ranks is not None and not ranks.is_first:
        console = Console(quiet=True)

    def begin() -> RunFolder:
        threads = _threads(len(devices)) if ranks is None else _threads(1, ranks.size)
        where = ImageFiles(data, train_images, download, not no_check)
        folder = open_run(console, out, where, given, resume, threads, devices)
        remove_damaged(console, folder)
        return folder

    with console.show_warnings():
        folder = begin() if ranks is None else ranks.open_run(out, begin)
        keys = [*folder.missing(), *(folder.failed() if retry_failed else ())]
        where = ", ".join(devices) if ranks is None else f"{ranks.size} processes together"
        _announce(console, folder, len(keys), where)
        with (
            suggest_resume("vision", out, "finished epochs are", "--device", device),
            _remove_checkpoints(folder),
            EpochProgress(console, folder) as watch,
        ):
            if ranks is None:
                work = Work(folder.plan, folder.path.resolve(), devices)
                width = {"processes": len(devices), "n_threads": folder.plan.n_threads}
                run(keys, work, folder, progress=watch, **width)
            else:
                ranks.run(keys, folder, watch)
    if ranks is not None and not ranks.is_first:
        return
    show_outcome(console, folder)


def _threads(devices: int, ranks: int = 1) -> int:
    """Return the threads of a training run; OMP_NUM_THREADS limits those of one process."""
    import joblib  # type: ignore[import-untyped]
    import torch

    cores = int(joblib.cpu_count()) // ranks  # that this process may use
    return max(min(torch.get_num_threads(), cores) // devices, 1)


def _announce(console: Console, folder: RunFolder, todo: int, where: str) -> None:
    plan = folder.plan
    sizes = {"data set": len(plan.datasets), "network": len(plan.models), "seed": plan.seeds}
    announce(console, folder, sizes, todo, f" of {count(plan.epochs, 'epoch')}")
    console.tell(f"On {where}, in {plan.precision}, with {count(plan.n_threads, 'thread')} each")


@contextmanager
def _remove_checkpoints(folder: RunFolder) -> Iterator[None]:
    """Remove the checkpoints of finished training runs, however the run ends."""
    from refinecal.experiments.vision.work import tidy

    try:
        yield
    finally:
        if not folder.is_running():
            tidy(folder)


def parse_names(
    option: str, text: str | None, known: tuple[str, ...], guess: bool = True
) -> tuple[str, ...] | None:
    """Return the names of a list, which must be known; ``None`` if there is no list.

    >>> parse_names("--model", "small, resnet18", ("resnet18", "small"))
    ('small', 'resnet18')
    """
    from difflib import get_close_matches

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
    if text not in (None, *known):
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
    from refinecal.experiments.plan import AUGMENTATION, NO_AUGMENTATION

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
    files: ImageFiles,
    given: dict[str, Any],
    resume: bool,
    threads: int,
    devices: tuple[str, ...],
) -> RunFolder:
    """Return the folder of a new run, or of one that resumes: with the same plan, or with a larger one."""
    from refinecal.experiments.folder import RunFolder
    from refinecal.experiments.plan import VisionPlan
    from refinecal.experiments.vision.hardware import choose_precision

    folder = open_existing_run(out, "vision") if resume else None
    if folder is None:
        if files.folder is None:
            raise ValueError("no images are given: name their folder with --data")
        RunFolder.check_new(out)
        default: dict[str, Any] = {"datasets": ("cifar10",), "n_threads": threads}
        with _name_options():
            plan = VisionPlan(**(default | given))
            precision = choose_precision(plan.precision, *devices)
            plan = replace(plan, precision=precision)  # the same wherever the run resumes
        plan = _locate_images(console, plan, files, plan.datasets)
        with _name_out_option(out):
            return RunFolder.create(out, plan)
    if given.get("precision") == "auto":  # as the run has it, whatever this machine is fast at
        del given["precision"]
    with _name_options():
        plan = replace(folder.plan, **given)
    new = tuple(name for name in plan.datasets if name not in folder.plan.datasets)
    if files.folder is not None or files.n_train is not None:
        new = plan.datasets
    if new:
        plan = _locate_images(console, plan, files, new)
    grow(console, folder, plan)
    return folder


@contextmanager
def _name_options() -> Iterator[None]:
    """Name the options of the command in errors, not the fields of a plan."""
    from refinecal.experiments.plan import VisionPlan

    try:
        yield
    except (ValueError, TypeError) as error:
        name, _, rest = str(error).partition(" ")
        raise ValueError(f"{VisionPlan.OPTIONS.get(name, name)} {rest}") from error


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
    console: Console, plan: VisionPlan, files: ImageFiles, datasets: tuple[str, ...]
) -> VisionPlan:
    """Return the plan with its images in a folder; those of some sets are read once, to identify them."""
    from refinecal.experiments.vision.work import count_training_images, fingerprint

    content, folder = dict(plan.content), files.folder or Path(plan.folder)
    for name in datasets:
        n_train = files.n_train or count_training_images(content.get(name))
        images = files.read(console, folder, name, n_train)
        content[name] = fingerprint(images)
        _check_limit(plan, images)
    return replace(plan, folder=str(folder.resolve()), content=content)


@dataclass(frozen=True)
class ImageFiles:
    """Where images are, and how they are read."""

    folder: Path | None  # by default, that of the run
    n_train: int | None = None
    download: bool = False  # what is missing there
    check: bool = True

    def read(self, console: Console, folder: Path, name: str, n_train: int | None) -> ImageSet:
        """Return the images of a set."""
        from refinecal.experiments.vision import images

        try:
            return images.read_images(folder, name, self.check, n_train)
        except FileNotFoundError:
            if not self.download:
                raise
        images.download(name, folder, progress=console.err.is_terminal and not console.quiet)
        return images.read_images(folder, name, self.check, n_train)


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
        from refinecal.experiments.rates import seconds_left
        from refinecal.experiments.vision.work import read_progress

        epochs, under_way = self._folder.plan.epochs, read_progress(self._folder, state.left)
        width = max(min(state.width, len(state.left)), 1)
        left = seconds_left(state.left, state.rates, under_way, width)
        done = state.finished + state.failed
        now = [f"{key.name} {each.epoch}/{epochs}" for key, each in under_way.items()]
        so_far = done * epochs + sum(each.epoch for each in under_way.values())
        return so_far, state.total * epochs, describe_progress(state, left, now)
