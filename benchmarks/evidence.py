"""Stopping on loss or on refinement, on real tables: ``python -m benchmarks.evidence --help``.

Every table is split twice into 64 % training, 16 % validation and 20 % test rows. XGBoost is trained in
three regimes: a learning rate of 0.1, one of 0.4 that over-fits, and ten random configurations of the
paper's search space. It is stopped and chosen on validation log loss, as it is or followed by scikit-learn's
calibration on the same validation rows, or given to RefineThenCalibrateClassifier. Test log losses
are divided by the entropy of the test labels.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost as xgb
from joblib import Parallel, delayed
from scipy import stats
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

import refinecal as rc
from benchmarks.machine import this_machine

RESULTS = Path(__file__).parent / "results"
OURS = "refine, then calibrate"
BY_LOSS = {"by loss": None, "by loss, temperature": "temperature", "by loss, isotonic": "isotonic"}
METHODS = (*BY_LOSS, OURS)
REGIMES = ("learning rate 0.1", "learning rate 0.4", "ten random configurations")
N_CONFIGURATIONS = 10


@dataclass(frozen=True)
class Split:
    """The three parts of a table."""

    X: pd.DataFrame
    y: np.ndarray
    X_val: pd.DataFrame
    y_val: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray


def read_split(file: Path, seed: int, most_rows: int) -> Split:
    """Return one split of a table whose last column is the target, of at most so many rows."""
    table = pd.read_parquet(file)
    X, y = table.iloc[:, :-1], table.iloc[:, -1].to_numpy()
    if len(y) > most_rows:
        X, _, y, _ = train_test_split(X, y, train_size=most_rows, stratify=y, random_state=0)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    X, X_val, y, y_val = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    return Split(X, y, X_val, y_val, X_test, y_test)


def configurations(seed: int) -> list[dict[str, Any]]:
    """Draw from the paper's search space (its table of the hyper-parameters of XGBoost)."""
    rng = np.random.default_rng(seed)

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    return [
        {
            "max_depth": int(rng.integers(1, 12)),
            "learning_rate": log_uniform(1e-3, 0.7),
            "subsample": float(rng.uniform(0.5, 1)),
            "colsample_bytree": float(rng.uniform(0.5, 1)),
            "colsample_bylevel": float(rng.uniform(0.5, 1)),
            "min_child_weight": round(log_uniform(1e-5, 100)),
            "reg_alpha": log_uniform(1e-5, 5),
            "reg_lambda": log_uniform(1e-5, 5),
            "gamma": log_uniform(1e-5, 5),
        }
        for _ in range(N_CONFIGURATIONS)
    ]


def candidates(regime: str, seed: int) -> list[dict[str, Any]]:
    """Return the parameters to choose from."""
    if regime.startswith("learning rate"):
        return [{"learning_rate": float(regime.rsplit(maxsplit=1)[-1])}]
    return configurations(seed)


def classifier(options: argparse.Namespace, **params: Any) -> xgb.XGBClassifier:
    """Return XGBoost, which takes categorical columns as they are."""
    return xgb.XGBClassifier(
        tree_method="hist", enable_categorical=True, random_state=0, n_jobs=1, **params
    )


def by_loss(
    split: Split, grid: list[dict[str, Any]], options: argparse.Namespace
) -> xgb.XGBClassifier:
    """Return the model that XGBoost's own early stopping on log loss gives, the best of all candidates."""
    best = None
    for params in grid:
        stopping = {"n_estimators": options.rounds, "early_stopping_rounds": options.patience}
        metric = "logloss" if len(np.unique(split.y)) == 2 else "mlogloss"
        model = classifier(options, **stopping, eval_metric=metric, **params)
        model.fit(split.X, split.y, eval_set=[(split.X_val, split.y_val)], verbose=False)
        if best is None or model.best_score < best.best_score:
            best = model
    return best


def by_refinement(
    split: Split, grid: list[dict[str, Any]], options: argparse.Namespace
) -> rc.RefineThenCalibrateClassifier:
    """Return refinecal's estimator around the same model, with the same candidates and patience."""
    model = rc.RefineThenCalibrateClassifier(
        classifier(options),
        candidates=grid,
        max_steps=options.rounds,
        patience=options.patience,
        calibrator="temperature",
        tuned_defaults=False,  # the same parameters for both
        random_state=0,
    )
    return model.fit(split.X, split.y, X_val=split.X_val, y_val=split.y_val)


def losses(y: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Return the log loss of each row; 0 and 1 are clipped, as scikit-learn does."""
    at_label = probs[np.arange(len(y)), y].astype(np.float64)
    return -np.log(np.clip(at_label, np.finfo(np.float32).eps, 1))


def run_case(file: Path, seed: int, regime: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the test losses of all methods on one split in one regime."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # slow configurations reach the last round
    split, grid = read_split(file, seed, options.rows), candidates(regime, seed)
    plain = by_loss(split, grid, options)
    refined = by_refinement(split, grid, options)
    rows = {OURS: losses(split.y_test, refined.predict_proba(split.X_test))}
    for name, method in BY_LOSS.items():
        model = plain
        if method is not None:
            model = CalibratedClassifierCV(FrozenEstimator(plain), method=method)
            model.fit(split.X_val, split.y_val)
        rows[name] = losses(split.y_test, model.predict_proba(split.X_test))
    shares = np.bincount(split.y_test) / len(split.y_test)
    entropy = float(stats.entropy(shares[shares > 0]))
    differences = {name: (rows[OURS] - rows[name]) / entropy for name in BY_LOSS}
    return {
        "table": file.stem,
        "split": seed,
        "regime": regime,
        "n_train": len(split.y),
        "n_test": len(split.y_test),
        "entropy": entropy,
        "loss": {name: float(rows[name].mean()) / entropy for name in METHODS},
        "sum_of_squares": {name: float((d**2).sum()) for name, d in differences.items()},
        "rounds": {"by loss": int(plain.best_iteration) + 1, OURS: int(refined.best_step_)},
    }


# ---- what the cases show -----------------------------------------------------------------------------------


def verdict(cases: list[dict[str, Any]], other: str) -> tuple[float, str]:
    """Return the mean difference of normalised losses on a table, and whether it is noise.

    A win or a loss is a difference of more than 1.96 standard errors over the test rows of both splits.
    """
    n = np.array([case["n_test"] for case in cases])
    mean = np.array([case["loss"][OURS] - case["loss"][other] for case in cases])
    square = np.array([case["sum_of_squares"][other] for case in cases]) / n
    error = float(np.sqrt(np.sum((square - mean**2) / n))) / len(cases)
    difference = float(mean.mean())
    if abs(difference) <= 1.96 * error:
        return difference, "tie"
    return difference, "win" if difference < 0 else "loss"


def relative(cases: list[dict[str, Any]], other: str) -> float:
    """Return the mean difference on a table, relative to the other method's loss."""
    ours, theirs = (np.mean([case["loss"][name] for case in cases]) for name in (OURS, other))
    return float(ours / theirs - 1) if theirs > 0 else np.inf


def by_table(cases: list[dict[str, Any]], regime: str) -> dict[str, list[dict[str, Any]]]:
    """Return the cases of a regime, table by table."""
    names = sorted({case["table"] for case in cases})
    return {
        name: [case for case in cases if case["table"] == name and case["regime"] == regime]
        for name in names
    }


def summary(cases: list[dict[str, Any]]) -> str:
    """Return a table of wins, ties and losses, with the mean difference and its 95 % interval."""
    lines = [
        "| regime | against | wins | ties | losses | mean difference | 95 % interval | median, relative |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for regime in REGIMES:
        tables = {name: group for name, group in by_table(cases, regime).items() if group}
        for other in BY_LOSS if tables else ():
            found = [verdict(group, other) for group in tables.values()]
            values = 100 * np.array([difference for difference, _ in found])
            counts = [sum(kind == word for _, kind in found) for word in ("win", "tie", "loss")]
            half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
            low, high = values.mean() - half, values.mean() + half
            middle = np.median([relative(group, other) for group in tables.values()])
            lines.append(
                f"| {regime} | {other} | {counts[0]} | {counts[1]} | {counts[2]} | {values.mean():+.3f} | "
                f"{low:+.3f} to {high:+.3f} | {middle:+.2%} |"
            )
    return "\n".join(lines)


def details(cases: list[dict[str, Any]], regime: str) -> str:
    """Return the losses of every table in one regime."""
    lines = [
        f"| {regime} | {' | '.join(METHODS)} | against by loss | rounds by loss | rounds by refinement |",
        "| --- |" + " ---: |" * (len(METHODS) + 3),
    ]
    for name, group in by_table(cases, regime).items():
        if not group:
            continue
        means = [np.mean([case["loss"][method] for case in group]) for method in METHODS]
        shown = [f"**{m:.4f}**" if m == min(means) else f"{m:.4f}" for m in means]
        difference, kind = verdict(group, "by loss")
        steps = [
            np.mean([case["rounds"][method] for case in group]) for method in ("by loss", OURS)
        ]
        against = f"{100 * difference:+.3f} {kind}"
        lines.append(
            f"| {name} | {' | '.join(shown)} | {against} | {steps[0]:.0f} | {steps[1]:.0f} |"
        )
    return "\n".join(lines)


def page(cases: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """Return the results as Markdown."""
    tables = len({case["table"] for case in cases})
    machine = this_machine()
    text = [
        "# Stopping on loss or on refinement, on real tables",
        f"`python -m benchmarks.evidence --data FOLDER`: {tables} tables of at least {options.least} rows "
        f"(larger ones cut to {options.rows}), two splits each, at most {options.rounds} rounds, patience "
        f"{options.patience}. Test log loss divided by the entropy of the test labels: 0 is perfect, 1 "
        "knows nothing. Differences, refine then calibrate minus the other, are in hundredths of that "
        "entropy: negative is in favour of refine, then calibrate. A win or loss is a difference beyond "
        "1.96 standard errors over the test rows; the mean and its interval are over tables (Student's "
        "t), and so is the median of differences relative to the other's loss. All methods see the "
        "same validation rows.",
        summary(cases),
        *(details(cases, regime) for regime in REGIMES),
        f"{machine.processor}; {machine.listed}, xgboost {xgb.__version__}.",
    ]
    return "\n\n".join(text) + "\n"


def cases_to_run(options: argparse.Namespace) -> Iterator[tuple[Path, int, str]]:
    """Yield every table large enough, split and regime."""
    sizes = {file: _n_rows(file) for file in sorted(options.data.glob("*.parquet"))}
    for file, size in sizes.items():
        if size >= options.least and (not options.only or file.stem in options.only):
            for seed in (0, 1):
                for regime in REGIMES:
                    yield file, seed, regime


def _n_rows(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(file).metadata.num_rows)


def main() -> None:
    """Run what has not been run yet, one line of JSON per case, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of Parquet files, target last")
    add("--only", nargs="+", help="names of tables")
    add("--least", type=int, default=10_000, help="tables of fewer rows are left out")
    add("--rows", type=int, default=20_000, help="larger tables are cut to this many rows")
    add("--rounds", type=int, default=500)
    add("--patience", type=int, default=50)
    add(
        "--workers", type=int, default=-1, help="processes, one training each; by default all cores"
    )
    add("--out", type=Path, default=RESULTS, help="folder for evidence.jsonl and evidence.md")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "evidence.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    seen = {(case["table"], case["split"], case["regime"]) for case in done}
    todo = [case for case in cases_to_run(options) if (case[0].stem, *case[1:]) not in seen]
    workers = Parallel(n_jobs=options.workers, return_as="generator_unordered")
    for case in workers(delayed(run_case)(*case, options) for case in todo):
        with file.open("a") as lines:
            lines.write(json.dumps(case) + "\n")
        done.append(case)
        shown = {name: round(loss, 4) for name, loss in case["loss"].items()}
        print(case["table"], case["split"], case["regime"], shown, flush=True)
    (options.out / "evidence.md").write_text(page(done, options), encoding="utf-8")
    print(summary(done))


if __name__ == "__main__":
    main()
