"""Real predictions, made once and stored: ``python -m benchmarks.calibrators predict --help``.

Each table is split into 64 % training, 16 % validation and 20 % test rows; the training part of a large
table is cut, the other two are whole. A file holds the logits and labels of the validation and test rows
of one model on one table.
"""

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.calibrators.models import MODELS
from benchmarks.evidence import Split, read_split
from benchmarks.timing import limit_threads

MOST_ROWS = 100_000  # of a table, of which 16 000 validate and 20 000 test
STRIDE = 7  # tables are taken in an order whose every beginning has small and large ones

FORMAT = """One file per table and model, TABLE.MODEL.npz, made by benchmarks/calibrators/predictions.py:
  val_logits (n, k) float32, val_labels (n,) int64    validation rows: calibrators are fitted here
  test_logits (m, k) float32, test_labels (m,) int64  test rows: calibrators are judged here
  about   JSON: table, model, step, n_train, seconds
Two classes have columns (0, z). Labels are 0..k-1.
  with np.load(file) as f: fit(f["val_logits"], f["val_labels"])
"""


@dataclass(frozen=True)
class Predictions:
    """What a model said on the validation and test rows of a table."""

    table: str
    model: str
    val_logits: np.ndarray
    val_labels: np.ndarray
    test_logits: np.ndarray
    test_labels: np.ndarray

    @property
    def n_classes(self) -> int:
        """The number of columns."""
        return int(self.val_logits.shape[1])


def read(file: Path) -> Predictions:
    """Return the predictions in a file."""
    with np.load(file) as stored:
        about = json.loads(str(stored["about"]))
        parts = {name: stored[name] for name in stored.files if name != "about"}
    return Predictions(about["table"], about["model"], **parts)


def stored(folder: Path) -> list[Path]:
    """Return all files of predictions in a folder."""
    return sorted(folder.glob("*.npz"))


def write(file: Path, about: dict[str, Any], **arrays: np.ndarray) -> None:
    """Write a file of predictions, whole or not at all."""
    beside = file.with_name(file.name + f".{os.getpid()}.part")
    with beside.open("wb") as stream:
        np.savez_compressed(stream, about=np.array(json.dumps(about)), **arrays)
    os.replace(beside, file)


def cut(split: Split, most_rows: int) -> Split:
    """Return the split with at most so many training rows."""
    if len(split.y) <= most_rows:
        return split
    X, _, y, _ = train_test_split(
        split.X, split.y, train_size=most_rows, stratify=split.y, random_state=0
    )
    return replace(split, X=X, y=y)


def renamed(split: Split) -> Split:
    """Return the split with columns x0, x1 ...: some libraries refuse brackets in names."""
    names = [f"x{column}" for column in range(split.X.shape[1])]
    parts = {
        part: getattr(split, part).set_axis(names, axis=1) for part in ("X", "X_val", "X_test")
    }
    return replace(split, **parts)


def make(file: Path, model: str, options: Namespace) -> str:
    """Train one model on one table, store what it says, and return a line about it."""
    split = renamed(cut(read_split(file, seed=0, most_rows=MOST_ROWS), options.rows))
    train, steps = MODELS[model]
    start = time.perf_counter()
    with limit_threads(1):
        val, test, step = train(split, min(steps, options.steps or steps))
    about = {
        "table": file.stem,
        "model": model,
        "step": step,
        "n_train": len(split.y),
        "seconds": round(time.perf_counter() - start, 2),
    }
    write(
        options.out / f"{file.stem}.{model}.npz",
        about,
        val_logits=val.astype(np.float32),
        val_labels=split.y_val.astype(np.int64),
        test_logits=test.astype(np.float32),
        test_labels=split.y_test.astype(np.int64),
    )
    return f"{about}"


def in_mixed_order(files: Sequence[Path]) -> list[Path]:
    """Return the files so that any first few are of mixed sizes."""
    by_size = sorted(files, key=lambda file: (file.stat().st_size, file.name))
    return [file for first in range(STRIDE) for file in by_size[first::STRIDE]]


def to_make(options: Namespace) -> Iterator[tuple[Path, str]]:
    """Yield every table and model that has no file yet."""
    files = [
        file
        for file in options.data.glob("*.parquet")
        if not options.only or file.stem in options.only
    ]
    for file in in_mixed_order(files):
        for model in options.models:
            if not (options.out / f"{file.stem}.{model}.npz").exists():
                yield file, model


def run(options: Namespace) -> None:
    """Make what is missing, a line of output each."""
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "README").write_text(FORMAT, encoding="utf-8")
    for file, model in to_make(options):
        print(make(file, model, options), flush=True)
