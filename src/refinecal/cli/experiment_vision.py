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
    flag,
)
from refinecal.cli._planning import remove_damaged
from refinecal.cli._running import SOME_FAILED, announce, check_retry, option, suggest_resume
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
        Path | None, option("--data", "The folder of the published images.", None, "PATH", IMAGES)
    ] = None,
    dataset: Annotated[
        str | None,
        option("--dataset", "cifar10, cifar100, svhn, fashion-mnist.", "cifar10", "A,B,…", IMAGES),
    ] = None,
    limit: Annotated[
        int | None,
        option("--limit", "Training images to use; all test images are used.", panel=IMAGES, min=2),
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
    schedule: Annotated[
        str | None,
        option("--schedule", "Of the learning rate; cosine as in figure 1.", "step", "step|cosine"),
    ] = None,
    lr: Annotated[float | None, option("--lr", "Initial learning rate.", "0.1", "X")] = None,
    weight_decay: Annotated[
        float | None, option("--weight-decay", "Weight decay of SGD.", "0.0001", "X", min=0)
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
