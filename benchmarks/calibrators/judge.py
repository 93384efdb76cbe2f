"""Fit every calibrator on validation rows, judge it on test rows: ``python -m benchmarks.calibrators judge``.

A file per case and method holds the losses of every test row, so that any two methods can be compared
row by row later, and new ones can join. What failed is recorded with its error.
"""

import json
import os
import signal
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from benchmarks.calibrators import predictions
from benchmarks.calibrators.contestants import Method, Part, Predict, methods
from benchmarks.calibrators.figure import FIGURE_D1
from benchmarks.timing import limit_threads

FLOOR = float(np.finfo(np.float32).eps)  # probabilities below count as this, in the log loss
MOST_SECONDS = 60  # for a fit and a prediction; slower is a failure
REPEATS, REPEAT_SECONDS = 5, 0.3  # a time is the best of at most so many, taking so long together
UNEVEN = 1e-3  # rows whose sums are further from 1 are no probabilities


class TooSlow(Exception):
    """A method took too long."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlow in the block when it has had so many seconds of the processor."""

    def stop(*_: Any) -> None:
        raise TooSlow(f"more than {seconds:g} seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def row_losses(labels: np.ndarray, probs: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the log loss and the Brier score of each row, and how many probabilities were lifted."""
    probs = np.asarray(probs, dtype=np.float64)
    at_label = probs[np.arange(len(labels)), labels]
    hit = probs.copy()
    hit[np.arange(len(labels)), labels] -= 1
    log = -np.log(np.clip(at_label, FLOOR, 1))
    return log, (hit**2).sum(axis=1), int(np.sum(at_label < FLOOR))


def check(probs: np.ndarray, shape: tuple[int, ...]) -> None:
    """Refuse what is not a table of probabilities."""
    if probs.shape != shape:
        raise ValueError(f"probabilities of shape {probs.shape}, not {shape}")
    if not np.isfinite(probs).all() or probs.min() < -UNEVEN:
        raise ValueError("probabilities that are not finite, or negative")
    if np.abs(probs.sum(axis=1) - 1).max() > UNEVEN:
        raise ValueError("rows that do not sum to 1")


def timed(method: Method, val: Part, test: Part) -> tuple[np.ndarray, float, float]:
    """Return the probabilities of the test part and the seconds of fit and prediction.

    Of several times the shortest counts, which a busy machine disturbs least. The first fit may compile
    code, so it counts only if it took so long that it is not repeated.
    """
    turns = [_turn(method, val, test)]
    probs = turns[0][2](test)
    if sum(turns[0][:2]) < MOST_SECONDS / 6:
        turns = [_turn(method, val, test)]
        while len(turns) < REPEATS and sum(a + b for a, b, _ in turns) < REPEAT_SECONDS:
            turns.append(_turn(method, val, test))
    return probs, min(turn[0] for turn in turns), min(turn[1] for turn in turns)


def _turn(method: Method, val: Part, test: Part) -> tuple[float, float, Predict]:
    start = time.perf_counter()
    predict = method(val)
    middle = time.perf_counter()
    predict(test)
    return middle - start, time.perf_counter() - middle, predict


def judge(file: Path, name: str, method: Method, out: Path) -> str:
    """Judge one method on one case, store the losses of the rows, and return a line about it."""
    case = predictions.read(file)
    val, test = Part(case.val_logits, case.val_labels), Part(case.test_logits, case.test_labels)
    about: dict[str, Any] = {"method": name, "table": case.table, "model": case.model}
    about |= {"n_val": len(val.labels), "n_test": len(test.labels), "k": val.k}
    about |= {"shares": (np.bincount(test.labels, minlength=val.k) / len(test.labels)).tolist()}
    _ = val.probs, test.probs  # made before the clock starts
    losses = {}
    try:
        with warnings.catch_warnings(), limit_threads(1), time_limit(MOST_SECONDS):
            warnings.simplefilter("ignore")
            probs, fit, predict = timed(method, val, test)
        check(probs, test.probs.shape)
        log, brier, clipped = row_losses(test.labels, probs)
        losses = {"log": log.astype(np.float32), "brier": brier.astype(np.float32)}
        about |= {"log": log.mean(), "brier": brier.mean(), "clipped": clipped}
        about |= {"fit": fit, "predict": predict}
    except ModuleNotFoundError as error:
        return f"{case.table} {case.model} {name}: not installed ({error.name})"
    except Exception as error:  # a rival may fail in any way, and the table says so
        about["error"] = f"{type(error).__name__}: {error}"[:300]
    write(out / name / f"{case.table}.{case.model}.npz", about, losses)
    shown = about.get("error") or f"{about['log']:.4f} {about['brier']:.4f} {about['fit']:.4f} s"
    return f"{case.table} {case.model} {name}: {shown}"


def write(file: Path, about: dict[str, Any], losses: dict[str, np.ndarray]) -> None:
    """Write what was found, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f"{file.name}.{os.getpid()}.part")
    with beside.open("wb") as stream:
        np.savez(stream, about=np.array(json.dumps(about)), **losses)
    os.replace(beside, file)


def judge_case(file: Path, names: list[str], out: Path) -> list[str]:
    """Judge some methods on one case."""
    table = dict(methods(paper=True))
    return [judge(file, name, table[name], out) for name in names]


def to_judge(options: Namespace) -> Iterator[tuple[Path, list[str]]]:
    """Yield every case with the methods that have not been judged on it."""
    only = FIGURE_D1 if options.paper else options.only
    names = [name for name, _ in methods(options.paper) if not only or name in only]
    for file in predictions.in_mixed_order(predictions.stored(options.predictions)):
        table = file.name.split(".")[0]
        if options.tables and table not in options.tables:
            continue
        todo = [
            name
            for name in names
            if options.again or not (options.judged / name / file.name).exists()
        ]
        if todo:
            yield file, todo


def run(options: Namespace) -> None:
    """Judge what has not been judged, a line of output each."""
    workers = Parallel(n_jobs=options.workers, return_as="generator_unordered")
    for lines in workers(delayed(judge_case)(*case, options.judged) for case in to_judge(options)):
        print(*(lines if options.verbose else lines[-1:]), sep="\n", flush=True)
