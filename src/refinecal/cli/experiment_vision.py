"""``refinecal experiment vision``: train networks on images, and keep the best epoch by every metric."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refinecal.cli._console import Console, command, count
from refinecal.cli._options import (
    RUNNING,
    Json,
    Quiet,
    RetryFailed,
    RunOut,
    Verbose,
    file,
    flag,
    number,
    run_option,
)
from refinecal.cli._planning import remove_damaged
from refinecal.cli._running import SOME_FAILED, announce, check_retry, suggest_resume
from refinecal.cli._vision import (
    EpochProgress,
    open_run,
    parse_augmentation,
    parse_devices,
    parse_name,
    parse_names,
)
from refinecal.cli.experiment_status import show_status, summary

if TYPE_CHECKING:
    from refinecal.experiments.store import RunFolder

IMAGES = "Images"  # a panel of the help


@command(
    "refinecal experiment vision --data images --dataset fashion-mnist --model small --epochs 20 --seeds 3 "
    "--out run"
)
def vision(
    out: RunOut,
    data: Annotated[
        Path | None,
        file("--data", help="The folder of the images, as published.", rich_help_panel=IMAGES),
    ] = None,
    dataset: Annotated[
        str | None,
        number(
            "--dataset",
            "Data sets: cifar10, cifar100, svhn, fashion-mnist.",
            metavar="A,B,…",
            rich_help_panel=IMAGES,
            show_default="cifar10",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        number(
            "--limit",
            "Number of training images to use; all test images are still predicted after each epoch.",
            min=2,
            rich_help_panel=IMAGES,
        ),
    ] = None,
    download: Annotated[
        bool,
        flag("--download", help="Download what is not in --data.", rich_help_panel=IMAGES),
    ] = False,
    no_check: Annotated[
        bool,
        flag(
            "--no-check",
            help="Accept files whose checksums are not those of the published ones.",
            rich_help_panel=IMAGES,
        ),
    ] = False,
    model: Annotated[
        str | None,
        number(
            "--model",
            "Networks: resnet18, wrn28-10; for CPUs: medium, small.",
            metavar="A,B,…",
            show_default="resnet18",
        ),
    ] = None,
    epochs: Annotated[
        int | None, number("--epochs", "Epochs of each training run.", min=1, show_default="300")
    ] = None,
    seeds: Annotated[
        int | None,
        number(
            "--seeds", "Training runs of each network, with seeds from 0.", min=1, show_default="10"
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        number(
            "--schedule",
            "Of the learning rate: step as in the paper's tables, cosine as in its figure 1.",
            metavar="step|cosine",
            show_default="step",
        ),
    ] = None,
    lr: Annotated[
        float | None,
        number("--lr", "Initial learning rate, above 0.", metavar="X", show_default="0.1"),
    ] = None,
    weight_decay: Annotated[
        float | None,
        number("--weight-decay", "Weight decay of SGD.", metavar="X", min=0, show_default="0.0001"),
    ] = None,
    batch: Annotated[
        int | None, number("--batch", "Images in one step.", min=1, show_default="128")
    ] = None,
    augment: Annotated[
        str | None,
        number(
            "--augment",
            "Augmentation of training images: crop, flip, cutout; or none.",
            metavar="A,B,…",
            show_default="crop,flip,cutout",
        ),
    ] = None,
    precision: Annotated[
        str | None,
        number(
            "--precision",
            "Precision of training: float32, bfloat16, or auto, the faster one.",
            metavar="NAME",
            show_default="auto",
        ),
    ] = None,
    device: Annotated[
        str | None,
        run_option(
            "--device",
            "Devices, such as cuda:0,cuda:1: each for one training run at a time.",
            "A,B,…",
            show_default="a GPU, or cpu",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        run_option(
            "--threads",
            "Threads of each training run.",
            min=1,
            show_default="all cores, or OMP_NUM_THREADS, shared by the devices",
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
    from refinecal.experiments.running import run
    from refinecal.experiments.vision.plan import DATASETS, MODELS
    from refinecal.experiments.vision.recipe import PRECISIONS, SCHEDULES
    from refinecal.experiments.vision.together import Ranks, is_distributed
    from refinecal.experiments.vision.unit import VisionUnit
    from refinecal.experiments.vision.work import Work

    console = Console(as_json, quiet, verbose)
    check_retry(retry_failed, resume)
    given = {
        "datasets": parse_names("--dataset", dataset, DATASETS),
        "models": parse_names("--model", model, MODELS),
        "epochs": epochs,
        "seeds": seeds,
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
    devices = parse_devices(device)
    ranks = Ranks(devices[0].split(":")[0]) if is_distributed() else None
    if ranks is not None and not ranks.is_first:
        console = Console(quiet=True)

    def begin() -> RunFolder:
        threads = _threads(len(devices)) if ranks is None else _threads(1, ranks.size)
        folder = open_run(
            console, out, data, given, resume, threads, devices, download, not no_check
        )
        remove_damaged(console, folder, VisionUnit.is_whole)
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
    found = summary(folder)
    show_status(console, found)
    console.result(found)
    if found["failed"] or found.get("ended_early"):
        raise typer.Exit(SOME_FAILED)


def _threads(devices: int, ranks: int = 1) -> int:
    """Return the threads of a training run; OMP_NUM_THREADS limits those of one process."""
    import joblib  # type: ignore[import-untyped]
    import torch

    cores = int(joblib.cpu_count()) // ranks  # that this process may use
    return max(min(torch.get_num_threads(), cores) // devices, 1)


# ---- while it runs -----------------------------------------------------------------------------------------


def _announce(console: Console, folder: RunFolder, todo: int, where: str) -> None:
    plan = folder.plan
    parts = [
        count(len(plan.datasets), "data set"),
        count(len(plan.models), "network"),
        count(plan.seeds, "seed"),
    ]
    announce(console, folder, parts, todo, f" of {count(plan.epochs, 'epoch')}")
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
