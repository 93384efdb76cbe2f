"""Choosing an ensemble by refinement, by log loss and by Brier score: ``python -m benchmarks.ensembles``.

A pool is the predictions of several models for the same rows: the ``.npz`` files of a folder, and mixed
scikit-learn models trained on half of each Parquet table of another folder. The rows are split at random into
halves, again and again: members are chosen and the pool is calibrated on one half, and judged by the log loss
on the other. Every way to choose gets the same calibration.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy import stats
from scipy.special import log_softmax

import refinecal as rc
from benchmarks.machine import this_machine

RESULTS = Path(__file__).parent / "results"
SMALLEST = 1e-7  # probabilities of the pools are clipped to, for all ways alike
PLAIN = {"pool": "arithmetic", "members": "raw"}
WAYS: dict[str, dict[str, Any]] = {
    "by log loss": PLAIN | {"metric": "log_loss"},
    "by Brier score": PLAIN | {"metric": "brier"},
    "by refinement": PLAIN | {"metric": "refinement"},
    "by log loss, any kind of pool": {"metric": "log_loss"},
    "by refinement, any kind of pool": {"metric": "refinement"},
    "by refinement, any kind, 10 bags": {"metric": "refinement", "n_bags": 10},
    "by refinement, as many picks as fit best": PLAIN | {"metric": "refinement", "cv": None},
}
Pool = tuple[str, np.ndarray, np.ndarray]  # name, logits (m, n, k), labels


# ---- pools -------------------------------------------------------------------------------------------------


def stored_pools(folder: Path) -> Iterator[Pool]:
    """Yield the files with several models, and models of several files with the same labels together."""
    singles: dict[bytes, list[tuple[str, np.ndarray, np.ndarray]]] = {}
    for file in sorted(folder.glob("*.npz")):
        with np.load(file, allow_pickle=False) as found:
            if "labels" not in found or not {"logits", "probs"} & set(found):
                continue
            logits = (
                found["logits"]
                if "logits" in found
                else np.log(np.maximum(found["probs"], SMALLEST))
            )
            labels = found["labels"].astype(np.int64).reshape(-1)
        if logits.ndim == 3:
            yield file.stem, logits, labels
        elif logits.ndim == 2:
            singles.setdefault(labels.tobytes(), []).append((file.stem, logits, labels))
    for group in singles.values():
        if len(group) > 1:
            yield (
                " + ".join(name for name, *_ in group),
                np.stack([z for _, z, _ in group]),
                group[0][2],
            )


def models() -> dict[str, Any]:
    """Return mixed models with their defaults, some calibrated badly."""
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    scaled: Callable[[Any], Any] = lambda model: make_pipeline(StandardScaler(), model)  # noqa: E731
    return {
        "hist-gb 50": HistGradientBoostingClassifier(max_iter=50, random_state=0),
        "hist-gb 300": HistGradientBoostingClassifier(
            max_iter=300, early_stopping=False, random_state=0
        ),
        "hist-gb small leaves": HistGradientBoostingClassifier(max_leaf_nodes=6, random_state=0),
        "random forest": RandomForestClassifier(200, random_state=0),
        "forest of large leaves": RandomForestClassifier(200, min_samples_leaf=10, random_state=0),
        "extra trees": ExtraTreesClassifier(200, random_state=0),
        "logistic": scaled(LogisticRegression(max_iter=500)),
        "logistic, strong penalty": scaled(LogisticRegression(C=0.01, max_iter=500)),
        "neighbors 5": scaled(KNeighborsClassifier(5)),
        "neighbors 50": scaled(KNeighborsClassifier(50)),
        "naive Bayes": scaled(GaussianNB()),
        "network": scaled(MLPClassifier((64, 64), max_iter=100, random_state=0)),
        "tree": DecisionTreeClassifier(min_samples_leaf=20, random_state=0),
    }


def table_pool(file: Path, most_rows: int) -> Pool:
    """Train the models on half of a table, and return their predictions for the other half."""
    table = pd.read_parquet(file)
    table = table.sample(min(len(table), most_rows), random_state=0)
    labels = pd.factorize(table.iloc[:, -1], sort=True)[0]
    common = np.flatnonzero(np.bincount(labels) >= 20)  # so that every half has every class
    kept = np.isin(labels, common)
    labels = np.searchsorted(common, labels[kept])
    features = (
        table[kept]
        .iloc[:, :-1]
        .apply(lambda column: column if column.dtype.kind in "fiub" else pd.factorize(column)[0])
    )
    X = np.nan_to_num(features.to_numpy(dtype=np.float64, na_value=np.nan), nan=-1.0)
    half = len(X) // 2
    probs = [
        each.fit(X[:half], labels[:half]).predict_proba(X[half:]) for each in models().values()
    ]
    return file.stem, np.log(np.clip(probs, SMALLEST, 1)), labels[half:]


# ---- ways --------------------------------------------------------------------------------------------------


def judge(pool: Pool, split: int) -> list[dict[str, Any]]:
    """Return the log loss on the test rows of one split for every way, and for the best in hindsight."""
    name, logits, labels = pool
    k = logits.shape[2]
    order = np.random.default_rng(split).permutation(len(labels))
    chosen, new = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    y, z, y_new, z_new = labels[chosen], logits[:, chosen], labels[new], logits[:, new]

    def after(pooled: np.ndarray, pooled_new: np.ndarray) -> np.ndarray:
        """Return the row losses of a pool that is calibrated on the selection rows."""
        fitted = rc.TemperatureScaling().fit_logits(pooled, y, classes=range(k))
        return -np.log(fitted.predict_proba_logits(pooled_new)[np.arange(len(new)), y_new])

    losses, about = {}, {}
    for way, options in WAYS.items():
        found = rc.select_ensemble(y, logits=z, classes=range(k), **options)
        losses[way] = -np.log(found.predict_proba(logits=z_new)[np.arange(len(new)), y_new])
        about[way] = {"members": int(np.count_nonzero(found.weights)), "chosen": found.describe()}
    single = min(range(len(z)), key=lambda i: rc.fit_temperature(y, z[i], classes=range(k)).loss)
    losses["best single"] = after(z[single], z_new[single])
    losses["uniform average"] = after(
        *(np.log(np.exp(log_softmax(each, axis=2)).mean(axis=0)) for each in (z, z_new))
    )
    hindsight = []
    for pooling in ("arithmetic", "geometric"):
        for members in ("raw", "calibrated"):
            options = {"pool": pooling, "members": members, "cv": None}
            found = rc.select_ensemble(y_new, logits=z_new, classes=range(k), **options)
            hindsight.append(after(found.pool_logits(logits=z), found.pool_logits(logits=z_new)))
    losses["best in hindsight"] = min(hindsight, key=np.mean)
    return [
        {"pool": name, "split": split, "way": way, "n": len(new), "k": k, "m": len(z)}
        | {"log_loss": float(each.mean())}
        | about.get(way, {})
        for way, each in losses.items()
    ]


# ---- table -------------------------------------------------------------------------------------------------


def summary(records: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the table: for each pool, the mean over splits and paired differences."""
    first, best, single = "by log loss", "best in hindsight", "best single"
    yield "| pool | chosen | log loss | against by log loss | share of the gap |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for name, part in records.groupby("pool", sort=False):
        losses = part.pivot(index="split", columns="way", values="log_loss")
        gap = losses[single].mean() - losses[best].mean()
        for way in losses.mean().sort_values(ascending=False).index:
            change = losses[way] / losses[first] - 1
            text = "" if way == first else f"{change.mean():+.2%} ± {stats.sem(change):.2%}"
            share = (losses[single].mean() - losses[way].mean()) / gap
            yield f"| {name} | {way} | {losses[way].mean():.4f} | {text} | {share:.0%} |"


def over_pools(records: pd.DataFrame, names: list[str]) -> Iterator[str]:
    """Yield the lines of the table over several pools."""
    part = records[records["pool"].isin(names)]
    losses = part.pivot_table(index="pool", columns="way", values="log_loss")
    first = losses["by log loss"]
    yield f"| chosen | mean log loss of {len(losses)} tables | against by log loss | better on |"
    yield "| --- | ---: | ---: | ---: |"
    for way in losses.mean().sort_values(ascending=False).index:
        change = losses[way] / first - 1
        text = f"{change.mean():+.2%} ± {stats.sem(change):.2%}" if way != "by log loss" else ""
        better = f"{int((losses[way] < first).sum())} of {len(losses)}" if text else ""
        yield f"| {way} | {losses[way].mean():.4f} | {text} | {better} |"


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with stored predictions (.npz)")
    parser.add_argument("--tables", type=Path, help="a folder with Parquet tables, the target last")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--most-rows", type=int, default=6000, help="of a table")
    parser.add_argument("--only", nargs="*", default=[], help="names of tables")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    pools = [] if given.data is None else list(stored_pools(given.data))
    stored = [name for name, *_ in pools]
    files = [] if given.tables is None else sorted(given.tables.glob("*.parquet"))
    files = [file for file in files if not given.only or file.stem in given.only]
    run = Parallel(given.jobs, verbose=5)
    pools += run(delayed(table_pool)(file, given.most_rows) for file in files)
    found = run(delayed(judge)(pool, split) for pool in pools for split in range(given.splits))
    records = pd.DataFrame([record for part in found for record in part])
    given.out.mkdir(exist_ok=True, parents=True)
    with (given.out / "ensembles.jsonl").open("w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records.to_dict("records"))
    machine = this_machine()
    lines = [
        "# Ensembles chosen by refinement, by log loss and by Brier score",
        "",
        f"`make ensembles`: {given.splits} random splits of each pool into selection and test rows. Log "
        "loss on test rows, every pool calibrated by a temperature on the selection rows; ± is the standard "
        "error over splits of a pool (of paired relative changes), or over tables. The share of the gap is "
        "that between the best single model and the best pool in hindsight.",
        "",
        *summary(records[records["pool"].isin(stored)]),
        "",
        *(over_pools(records, [name for name, *_ in pools if name not in stored]) if files else []),
        "",
        f"{machine.processor}, {machine.listed}",
    ]
    (given.out / "ensembles.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
