"""Tables cut into training rows and new rows, and what the new rows say of a contestant."""

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.model_selection import train_test_split

import refinecal as rc
from benchmarks.one_command.contestants import TARGET

SMALLEST = float(np.finfo(np.float32).eps)  # probabilities are clipped to, for all alike
LIMIT = 3600  # seconds for one contestant


def cut(file: Path, split: int, most_rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return three quarters of a table, of at most so many rows in all, and the quarter of new rows."""
    table = pd.read_parquet(file)
    names = [f"x{number}" for number in range(table.shape[1] - 1)]  # some libraries refuse others
    table.columns = pd.Index([*names, TARGET])
    if len(table) > most_rows:
        table, _ = train_test_split(
            table, train_size=most_rows, stratify=table[TARGET], random_state=0
        )
    return train_test_split(table, test_size=0.25, stratify=table[TARGET], random_state=split)


def run(
    file: Path, split: int, name: str, python: str, most_rows: int, n_threads: int
) -> dict[str, Any]:
    """Return what one contestant says of the new rows of one split, and the time it takes."""
    train, new = cut(file, split, most_rows)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        train.reset_index(drop=True).to_parquet(folder / "train.parquet")
        new.drop(columns=TARGET).reset_index(drop=True).to_parquet(folder / "new.parquet")
        script = Path(__file__).with_name("contestants.py")
        command = [python, str(script), name, place, str(n_threads), str(time.time())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} on {file.stem}:\n{done.stderr[-3000:]}")
        found = json.loads((folder / "result.json").read_text())
        probs = np.load(folder / "probs.npy")
    about = {"table": file.stem, "split": split, "contestant": name, "n_train": len(train)}
    return about | score(new[TARGET].to_numpy(), probs) | found


def score(y: np.ndarray, probs: np.ndarray) -> dict[str, float]:
    """Return losses on new rows, and the inverse temperature that would have been better, with its error."""
    k = probs.shape[1]
    probs = np.clip(probs, SMALLEST, 1)
    probs /= probs.sum(axis=1, keepdims=True)
    at_label = probs[np.arange(len(y)), y]
    losses = -np.log(at_label)
    shares = np.bincount(y, minlength=k) / len(y)
    entropy = float(stats.entropy(shares[shares > 0]))
    beta, error = sharpness(y, probs)
    return {
        "n_new": len(y),
        "k": k,
        "entropy": entropy,
        "log_loss": float(losses.mean()),
        "log_loss_error": float(stats.sem(losses)),
        "brier": float(np.mean(np.sum((probs - np.eye(k)[y]) ** 2, axis=1))),
        "beta": beta,
        "beta_error": error,
    }


def sharpness(y: np.ndarray, probs: np.ndarray) -> tuple[float, float]:
    """Return the best inverse temperature for new rows and its standard error (sandwich)."""
    beta = float(rc.decompose(y, probs).beta)
    logits = np.log(probs)
    scaled = np.exp(beta * logits - (beta * logits).max(axis=1, keepdims=True))
    scaled /= scaled.sum(axis=1, keepdims=True)
    mean = np.sum(scaled * logits, axis=1)
    slope = mean - logits[np.arange(len(y)), y]
    curvature = np.mean(np.sum(scaled * logits**2, axis=1) - mean**2)
    if not curvature > 0:  # no errors: no inverse temperature is large enough
        return beta, float("inf")
    return beta, float(np.sqrt(np.mean(slope**2) / len(y)) / curvature)
