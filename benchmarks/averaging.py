"""What stopping by refinement is worth where models are averaged: ``python -m benchmarks.averaging``.

Every table is split as for ``benchmarks.one_command``. Five folds of the training rows give five models,
each stopped on log loss and on refinement in the same training. Both are judged on the new rows: the models
one by one, and averaged, both calibrated the same way. For the models stopped on refinement, several ways to
calibrate and to average them are compared.
"""

import argparse
import json
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from joblib import Parallel, delayed
from scipy import stats

from benchmarks.machine import this_machine
from benchmarks.one_command.cases import cut, score
from benchmarks.one_command.contestants import TARGET
from refinecal._core.sample import log_softmax
from refinecal.stopping import RefinementMonitor
from refinecal.tabular.schema import Schema
from refinecal.training.crossfit import Disagreement, Ensemble, HeldOut, all_classes, average
from refinecal.training.rows import Rows, parts
from refinecal.training.table_model import get_model
from refinecal.training.trainer import DEFAULTS, TrainingRun

RESULTS = Path(__file__).parent / "results"
# Tuned on other tables by Holzmüller, Grinsztajn, Steinwart ("Better by default", 2024).
PYTABKIT: dict[str, dict[str, Any]] = {
    "xgboost": {
        "learning_rate": 0.08,
        "min_child_weight": 5e-6,
        "lambda": 0.0,
        "colsample_bylevel": 0.9,
        "subsample": 0.65,
    },
    "lightgbm": {
        "learning_rate": 0.04,
        "num_leaves": 50,
        "bagging_fraction": 0.75,
        "bagging_freq": 1,
        "min_data_in_leaf": 40,
        "min_sum_hessian_in_leaf": 1e-7,
    },
    "catboost": {
        "learning_rate": 0.08,
        "depth": 7,
        "l2_leaf_reg": 1e-5,
        "random_strength": 0.8,
        "one_hot_max_size": 15,
        "leaf_estimation_iterations": 1,
        "bootstrap_type": "Bernoulli",
        "subsample": 0.9,
    },
}
REGIMES: dict[str, tuple[str, dict[str, Any]]] = {
    "XGBoost, learning rate 0.1": ("xgboost", {"learning_rate": 0.1}),
    "XGBoost, its own defaults": ("xgboost", {}),
    "XGBoost, our defaults": ("xgboost", DEFAULTS["xgboost"]),
    "XGBoost, pytabkit's defaults": ("xgboost", PYTABKIT["xgboost"]),
    "LightGBM, its own defaults": ("lightgbm", {}),
    "LightGBM, 0.6 of the columns by node": ("lightgbm", {"feature_fraction_bynode": 0.6}),
    "LightGBM, pytabkit's defaults": ("lightgbm", PYTABKIT["lightgbm"]),
    "CatBoost, its own defaults": ("catboost", {}),
    "CatBoost, pytabkit's defaults": ("catboost", PYTABKIT["catboost"]),
    "hist-gb, its own defaults": ("hist-gb", {}),
    "hist-gb, 0.6 of the columns by node": ("hist-gb", {"max_features": 0.6}),
}
METRICS = ("log_loss", "refinement")
WAYS = ("one model", "average", "average, temperature", "average, auto")
OURS = "one calibrator, mean, sharpened"


@dataclass
class Models:
    """What five models say of the rows held out of each and of the new rows, and the classes they know."""

    held_out: list[HeldOut] = field(default_factory=list)
    on_new: list[np.ndarray] = field(default_factory=list)
    known: list[np.ndarray] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)


def run_case(file: Path, split: int, regime: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the losses on new rows of all ways, stopped by each metric."""
    warnings.simplefilter("ignore")
    train, new = (
        pa.Table.from_pandas(part, preserve_index=False) for part in cut(file, split, options.rows)
    )
    schema = Schema.infer(train, TARGET)
    rows = Rows(schema.encode(train), schema.labels(train)).with_keys()
    X_new, y_new, k = schema.encode(new), schema.labels(new), len(schema.classes)
    kind, params = REGIMES[regime]
    found = {metric: Models() for metric in METRICS}
    for ours, val in parts(rows, 5, 0.2, split):
        known = np.unique(ours.y)
        y, y_val = (np.searchsorted(known, part.y) for part in (ours, val))
        monitor = RefinementMonitor(also=["log_loss"], patience=options.patience, stop_on="all")
        run = TrainingRun(
            replace(ours, y=y),
            replace(val, y=y_val),
            np.arange(len(known)),
            monitor,
            options.rounds,
            params,
            n_threads=1,
        )
        model = get_model(kind).train(run)
        for metric, models in found.items():
            step = monitor.bests[metric].step
            logits = [all_classes(model.logits(X, step), known, k) for X in (val.X, X_new)]
            models.held_out.append(HeldOut(logits[0], val.y, None, val.places))
            models.on_new.append(logits[1])
            models.known.append(known)
            models.steps.append(step)
    losses = {metric: judge(models, y_new, k) for metric, models in found.items()}
    entropy = score(y_new, np.full((len(y_new), k), 1 / k))["entropy"]
    about = {"table": file.stem, "split": split, "regime": regime, "n_train": rows.n}
    pools = pool(found["refinement"], y_new, k)
    mean_steps = {metric: float(np.mean(models.steps)) for metric, models in found.items()}
    return about | {"entropy": entropy, "losses": losses, "pools": pools, "steps": mean_steps}


def judge(models: Models, y_new: np.ndarray, k: int) -> dict[str, float]:
    """Return the log loss on new rows of each way to use the models; one model is calibrated, too."""
    held_out, on_new, known = models.held_out, models.on_new, models.known

    def loss(probs: np.ndarray) -> float:
        return score(y_new, probs)["log_loss"]

    n = sum(len(part.y) for part in held_out)
    fitted = {
        name: Ensemble.fit(held_out, known, name, range(k)) for name in ("temperature", "auto")
    }
    fitted = {name: each.sharpen(each.disagreement(on_new), n) for name, each in fitted.items()}
    singles = [
        loss(Ensemble.fit([part], [cols], "temperature", range(k)).predict_proba([logits]))
        for part, cols, logits in zip(held_out, known, on_new, strict=True)
    ]
    plain = average([np.exp(log_softmax(each)) for each in on_new], known)
    averaged = {
        f"average, {name}": loss(each.predict_proba(on_new)) for name, each in fitted.items()
    }
    return {"one model": float(np.mean(singles)), "average": loss(plain), **averaged}


def pool(models: Models, y_new: np.ndarray, k: int) -> dict[str, dict[str, float]]:
    """Return what each way to calibrate and to average models comes to on new rows.

    Sharpened as far as they disagree there, as ``refinecal fit`` sees on test rows.
    """
    held_out, on_new, known = models.held_out, models.on_new, models.known
    together = Ensemble.fit(held_out, known, "auto", range(k))
    apart = [
        Ensemble.fit([part], [cols], "auto", range(k))
        for part, cols in zip(held_out, known, strict=True)
    ]
    probs = {
        "one calibrator": [
            together.calibrate(each, cols) for each, cols in zip(on_new, known, strict=True)
        ],
        "one each": [own.predict_proba([each]) for own, each in zip(apart, on_new, strict=True)],
    }
    n = sum(len(part.y) for part in held_out)
    found = {}
    for name, each in probs.items():
        mean, prior = average(each, known), np.log(together.frequencies)
        beta = Disagreement.measure(each, together.frequencies).sharpening(len(each), n)
        found[f"{name}, mean"] = mean
        found[f"{name}, mean, sharpened"] = np.exp(
            log_softmax(beta * np.log(np.maximum(mean, 1e-300)) + (1 - beta) * prior)
        )
        found[f"{name}, geometric mean"] = average(each, known, None)
    names = ("log_loss", "beta", "beta_error")
    return {name: {key: score(y_new, each)[key] for key in names} for name, each in found.items()}


# ---- what the cases show -----------------------------------------------------------------------------------


def regimes_of(done: list[dict[str, Any]]) -> list[str]:
    """Return the regimes of which there are results."""
    found = {case["regime"] for case in done}
    return [regime for regime in REGIMES if regime in found]


def gains(done: list[dict[str, Any]], regime: str, way: str) -> dict[str, float]:
    """Return by how much refinement changes the normalised loss, table by table."""
    found: dict[str, list[float]] = {}
    for case in done:
        if case["regime"] == regime:
            by = {metric: case["losses"][metric][way] for metric in METRICS}
            change = (by["refinement"] - by["log_loss"]) / case["entropy"]
            found.setdefault(case["table"], []).append(change)
    return {table: float(np.mean(values)) for table, values in found.items()}


def relative(done: list[dict[str, Any]], regime: str, way: str) -> float:
    """Return the median over tables of the change relative to the loss by log loss."""
    sums: dict[str, list[float]] = {}
    for case in done:
        if case["regime"] == regime:
            by = [case["losses"][metric][way] for metric in METRICS]
            old = sums.setdefault(case["table"], [0.0, 0.0])
            sums[case["table"]] = [old[0] + by[0], old[1] + by[1]]
    return float(np.median([after / before - 1 for before, after in sums.values()]))


def summary(done: list[dict[str, Any]]) -> str:
    """Return one line per regime and way."""
    lines = [
        "| regime | | tables | better on | mean change | 95 % interval | median, relative |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for regime in REGIMES:
        for way in WAYS:
            values = 100 * np.array(list(gains(done, regime, way).values()))
            if len(values) < 2:
                continue
            half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
            mean = values.mean()
            lines.append(
                f"| {regime} | {way} | {len(values)} | {np.sum(values < 0)} | {mean:+.3f} | "
                f"{mean - half:+.3f} to {mean + half:+.3f} | {relative(done, regime, way):+.2%} |"
            )
    return "\n".join(lines)


def pools(done: list[dict[str, Any]], regime: str) -> str:
    """Return how ways to calibrate and average differ from ours in one regime."""
    some = [case for case in done if case["regime"] == regime]
    lines = [
        f"| {regime} | better than ours on | mean difference | 95 % interval | β within noise of 1 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in some[0]["pools"]:
        by_table: dict[str, list[float]] = {}
        for case in some:
            ours, theirs = (case["pools"][way]["log_loss"] for way in (OURS, name))
            by_table.setdefault(case["table"], []).append((theirs - ours) / case["entropy"])
        values = 100 * np.array([np.mean(each) for each in by_table.values()])
        half = (
            stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else np.nan
        )
        found = [case["pools"][name] for case in some]
        within = np.mean([abs(p["beta"] - 1) <= 1.96 * p["beta_error"] for p in found])
        mean = values.mean()
        rest = f"{mean:+.3f} | {mean - half:+.3f} to {mean + half:+.3f}"
        if name == OURS:
            lines.append(f"| **{name}** | | | | {within:.0%} |")
        else:
            lines.append(
                f"| {name} | {np.sum(values < 0)} of {len(values)} | {rest} | {within:.0%} |"
            )
    return "\n".join(lines)


def defaults(done: list[dict[str, Any]]) -> str:
    """Return how parameters of the same kind of model differ from the library's own, ours in all else."""
    lines = [
        "| | tables | better on | mean difference | 95 % interval | steps, relative |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    cases = {(case["regime"], case["table"], case["split"]): case for case in done}
    for regime in regimes_of(done):
        plain = f"{regime.split(',')[0]}, its own defaults"
        by_table: dict[str, list[tuple[float, float]]] = {}
        for (name, table, split), case in cases.items():
            other = cases.get((plain, table, split))
            if name != regime or regime == plain or other is None:
                continue
            losses = [each["losses"]["refinement"]["average, auto"] for each in (case, other)]
            steps = case["steps"]["refinement"] / other["steps"]["refinement"]
            found = (losses[0] - losses[1]) / case["entropy"], steps
            by_table.setdefault(table, []).append(found)
        means = np.array([np.mean(found, axis=0) for found in by_table.values()])
        if len(means) < 2:
            continue
        values = 100 * means[:, 0]
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
        mean, steps = values.mean(), float(np.median(means[:, 1]))
        lines.append(
            f"| {regime} | {len(values)} | {np.sum(values < 0)} | {mean:+.3f} | "
            f"{mean - half:+.3f} to {mean + half:+.3f} | {steps:.1f} × |"
        )
    return "\n".join(lines)


def details(done: list[dict[str, Any]]) -> str:
    """Return the change on every table, averaged and calibrated by temperature."""
    found = {regime: gains(done, regime, "average, temperature") for regime in regimes_of(done)}
    lines = [f"| | {' | '.join(found)} |", "| --- |" + " ---: |" * len(found)]
    for table in sorted({case["table"] for case in done}):
        cells = [f"{100 * found[regime].get(table, np.nan):+.3f}" for regime in found]
        lines.append(f"| {table} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(done: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """Return everything as Markdown."""
    machine, splits = this_machine(), len({case["split"] for case in done})
    text = [
        "# Stopping by refinement, where models are averaged",
        f"`make averaging DATA=folder`: tables cut to {options.rows:,} rows at most, a quarter of which are "
        f"new, splits: {splits}. Five models, one per fold, each stopped on log loss and on refinement in "
        f"the same training (at most {options.rounds:,} rounds, patience {options.patience}). Log loss on "
        "new rows divided by the entropy of their labels; changes, refinement minus log loss, are in "
        "hundredths of that: negative is in favour of refinement. Intervals are over tables (Student's t). "
        "One model is calibrated by temperature, and the mean of five such losses is taken; an average is as "
        "it is, or calibrated, both ways of stopping alike.",
        summary(done),
        "How to calibrate and average five models stopped on refinement: one calibrator for all, fitted to "
        "what each says of the rows held out of it, or one each; the mean of probabilities, as it is, "
        "sharpened as far as models disagree on the new rows (no label is used), or the "
        "geometric mean. Differences to ours are as above; negative is better than ours.",
        *(pools(done, regime) for regime in regimes_of(done)),
        "Which parameters: five models stopped on refinement, calibrated by `auto` and averaged, against the "
        "same with the library's own parameters, and how many steps they take (median).",
        defaults(done),
        "By table, averaged and calibrated by temperature:",
        details(done),
        f"{machine.processor}; {machine.listed}.",
    ]
    return "\n\n".join(text) + "\n"


def main() -> None:
    """Run what has not been run yet, one line of JSON per case, and write the page."""
    parser = argparse.ArgumentParser("python -m benchmarks.averaging", description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of Parquet files, target last")
    add("--only", nargs="+", help="names of tables")
    add("--regimes", nargs="+", choices=REGIMES, default=list(REGIMES))
    add("--splits", type=int, default=2)
    add("--rows", type=int, default=20_000, help="larger tables are cut to this many rows")
    add("--rounds", type=int, default=1000)
    add("--patience", type=int, default=50)
    add("--workers", type=int, default=-1, help="processes; by default all cores")
    add("--out", type=Path, default=RESULTS, help="folder for averaging.jsonl and averaging.md")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "averaging.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    seen = {(case["table"], case["split"], case["regime"]) for case in done}
    tables = sorted(options.data.glob("*.parquet"), key=lambda path: path.stat().st_size)
    todo = [
        (table, split, regime)
        for split in range(options.splits)
        for regime in options.regimes
        for table in tables
        if (table.stem, split, regime) not in seen
        and (not options.only or table.stem in options.only)
    ]
    workers = Parallel(n_jobs=options.workers, return_as="generator_unordered")
    for case in workers(delayed(run_case)(*each, options) for each in todo):
        with file.open("a") as lines:
            lines.write(json.dumps(case) + "\n")
        done.append(case)
        change = {
            way: case["losses"]["refinement"][way] - case["losses"]["log_loss"][way] for way in WAYS
        }
        shown = ", ".join(f"{way} {value:+.4f}" for way, value in change.items())
        print(case["table"], case["split"], case["regime"], shown, flush=True)
    (options.out / "averaging.md").write_text(page(done, options), encoding="utf-8")
    print(summary(done))


if __name__ == "__main__":
    main()
