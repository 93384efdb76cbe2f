"""The contestants, each a function from training rows and new rows to probabilities.

Run by the environment that a contestant needs: ``python contestants.py NAME FOLDER THREADS START`` reads
``train.parquet`` and ``new.parquet`` in the folder and writes ``probs.npy`` and ``result.json`` there.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TARGET = "target"
AUTOGLUON = ("AutoGluon medium, 60 s", "AutoGluon good, 60 s")
BUDGETS = {n: f"refinecal auto, {n} s" for n in (30, 60, 120)}
FOLDS, ROUNDS, PATIENCE = 5, 1000, 50  # of the plain boosters


@dataclass
class Case:
    """Training rows, features of new rows, and the clocks."""

    folder: Path
    n_threads: int
    X: pd.DataFrame
    y: np.ndarray
    X_new: pd.DataFrame
    start: float  # of the process, in seconds since 1970
    seconds: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)

    @property
    def k(self) -> int:
        return int(self.y.max()) + 1

    @contextmanager
    def clock(self, what: str) -> Any:
        start, cpu = time.perf_counter(), _cpu()
        yield
        self.seconds[what] = time.perf_counter() - start
        self.cpu[what] = _cpu() - cpu
        if what == "fit":  # with the start of Python, imports and the reading of the table
            self.seconds["whole"] = time.time() - self.start


def _cpu() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


# ---- ours ------------------------------------------------------------------------------------------------


def refinecal_fit(case: Case, *options: str) -> np.ndarray:
    """``refinecal fit`` and ``refinecal predict``: whole processes, with the report."""
    run, out = case.folder / "run", case.folder / "predictions.parquet"
    call = [sys.executable, "-m", "refinecal"]
    with case.clock("fit"):
        threads = ["--threads", str(case.n_threads)]
        target = ["--target", TARGET, "--out", str(run)]
        _quietly([*call, "fit", str(case.folder / "train.parquet"), *target, *threads, *options])
    case.seconds["whole"] = case.seconds["fit"]  # a process by itself
    with case.clock("predict"):
        new = str(case.folder / "new.parquet")
        _quietly([*call, "predict", str(run), new, "--out", str(out)])
    found = json.loads((run / "metrics.json").read_text())["test"]
    if "expected_log_loss" in found:
        promised = found["expected_log_loss"]
        case.promised = {"loss": promised["mean"], "error": promised["standard_error"]}
    return _probs(pd.read_parquet(out), case.k)


def refinecal_auto(case: Case, seconds: int) -> np.ndarray:
    """Several kinds of models within a time limit, and the pool of the best."""
    return refinecal_fit(case, "--model", "auto", "--time-limit", str(seconds))


def _probs(table: pd.DataFrame, k: int) -> np.ndarray:
    return np.stack([table[f"p_{label}"] for label in range(k)], axis=1)


def _quietly(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")


def refinecal_estimator(case: Case) -> np.ndarray:
    """Our estimator around XGBoost, all else by default."""
    import refinecal as rc

    model = rc.RefineThenCalibrateClassifier(_xgboost(case), random_state=0)
    with case.clock("fit"):
        model.fit(case.X, case.y)
    with case.clock("predict"):
        return model.predict_proba(case.X_new)


# ---- plain boosters --------------------------------------------------------------------------------------


def _xgboost(case: Case, **params: Any) -> Any:
    import xgboost as xgb

    return xgb.XGBClassifier(
        enable_categorical=True, random_state=0, n_jobs=case.n_threads, **params
    )


def _lightgbm(case: Case, **params: Any) -> Any:
    import lightgbm as lgb

    return lgb.LGBMClassifier(random_state=0, n_jobs=case.n_threads, verbose=-1, **params)


def _early_stopped(
    case: Case, kind: str, rows: np.ndarray, val: np.ndarray, **params: Any
) -> tuple[Any, float]:
    """Return a booster that its own library has stopped on validation log loss, and that loss."""
    X, y, X_val, y_val = case.X.iloc[rows], case.y[rows], case.X.iloc[val], case.y[val]
    if kind == "xgboost":
        metric = "logloss" if case.k == 2 else "mlogloss"
        stopping = {"n_estimators": ROUNDS, "early_stopping_rounds": PATIENCE}
        model = _xgboost(case, eval_metric=metric, **stopping, **params)
        model.fit(X, y, eval_set=[(X_val, y_val)], verbose=False)
        return model, float(model.best_score)
    import lightgbm as lgb

    model = _lightgbm(case, n_estimators=ROUNDS, **params)
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    model.fit(X, y, eval_set=[(X_val, y_val)], callbacks=[stop])
    return model, float(next(iter(model.best_score_["valid_0"].values())))


def single(case: Case, **params: Any) -> np.ndarray:
    """XGBoost stopped on a fifth of the rows, then temperature scaling on the same rows by scikit-learn."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import train_test_split

    with case.clock("fit"):
        rows, val = train_test_split(
            np.arange(len(case.y)), test_size=0.2, stratify=case.y, random_state=0
        )
        model, loss = _early_stopped(case, "xgboost", rows, val, **params)
        model = CalibratedClassifierCV(FrozenEstimator(model), method="temperature")
        model.fit(case.X.iloc[val], case.y[val])
    case.promised = {"loss": loss}
    with case.clock("predict"):
        return model.predict_proba(case.X_new)


def five_folds(case: Case, kind: str, **params: Any) -> np.ndarray:
    """One booster per fold, stopped on log loss there, and their probabilities averaged: nothing else."""
    from sklearn.model_selection import StratifiedKFold

    models, losses = [], []
    with case.clock("fit"):
        for rows, val in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(case.X, case.y):
            model, loss = _early_stopped(case, kind, rows, val, **params)
            models.append(model)
            losses.append(loss)
    case.promised = {"loss": float(np.mean(losses))}
    with case.clock("predict"):
        return np.mean([model.predict_proba(case.X_new) for model in models], axis=0)


# ---- packages --------------------------------------------------------------------------------------------


def pytabkit(case: Case, name: str, **options: Any) -> np.ndarray:
    """A boosting method of pytabkit with its tuned defaults and its own hold-out."""
    import pytabkit

    model = getattr(pytabkit, name)(random_state=0, n_threads=case.n_threads, **options)
    with case.clock("fit"):
        model.fit(case.X, case.y)
    with case.clock("predict"):
        return model.predict_proba(case.X_new)


def autogluon(case: Case, presets: str) -> np.ndarray:
    """AutoGluon, 60 seconds, for log loss."""
    from autogluon.tabular import TabularPredictor

    table = case.X.assign(**{TARGET: case.y})
    with tempfile.TemporaryDirectory() as place:
        kind = "binary" if case.k == 2 else "multiclass"
        model = TabularPredictor(
            TARGET, problem_type=kind, eval_metric="log_loss", path=place, verbosity=0
        )
        with case.clock("fit"):
            model.fit(table, presets=presets, time_limit=60, num_cpus=case.n_threads)
        with case.clock("predict"):
            probs = model.predict_proba(case.X_new)
        best = model.leaderboard(silent=True).iloc[0]
        new, out = case.folder / "new.parquet", case.folder / "predictions.parquet"
        with suppress(RuntimeError), case.clock("predict_process"):  # as a command would
            _quietly([sys.executable, "-c", AUTOGLUON_PREDICTS, place, str(new), str(out)])
    case.promised = {"loss": -float(best["score_val"])}
    return probs[list(range(case.k))].to_numpy()


AUTOGLUON_PREDICTS = """
import sys
import pandas as pd
from autogluon.tabular import TabularPredictor
model = TabularPredictor.load(sys.argv[1], verbosity=0)
probs = model.predict_proba(pd.read_parquet(sys.argv[2]))
probs.rename(columns=str).to_parquet(sys.argv[3])
"""
AVERAGED = {"n_cv": FOLDS, "val_metric_name": "cross_entropy"}
OURS = ("refinecal fit", "refinecal estimator")
CONTESTANTS: dict[str, tuple[str, Callable[[Case], np.ndarray]]] = {  # name: environment, function
    "refinecal fit": ("ours", refinecal_fit),
    "refinecal estimator": ("ours", refinecal_estimator),
    "XGBoost lr 0.1 + temperature": ("ours", lambda case: single(case, learning_rate=0.1)),
    "five XGBoost lr 0.1": ("ours", lambda case: five_folds(case, "xgboost", learning_rate=0.1)),
    "five XGBoost": ("ours", lambda case: five_folds(case, "xgboost")),
    # 0.1 is LightGBM's default
    "five LightGBM lr 0.1": ("ours", lambda case: five_folds(case, "lightgbm")),
    "pytabkit XGB-TD": ("pytabkit", lambda case: pytabkit(case, "XGB_TD_Classifier")),
    "pytabkit LGBM-TD": ("pytabkit", lambda case: pytabkit(case, "LGBM_TD_Classifier")),
    # stopped on log loss, which is what is compared, and averaged over folds
    "five pytabkit XGB-TD": (
        "pytabkit",
        lambda case: pytabkit(case, "XGB_TD_Classifier", **AVERAGED),
    ),
    "five pytabkit LGBM-TD": (
        "pytabkit",
        lambda case: pytabkit(case, "LGBM_TD_Classifier", **AVERAGED),
    ),
    # no label smoothing, since log loss is what is compared
    "pytabkit RealMLP-TD": (
        "pytabkit",
        lambda case: pytabkit(
            case, "RealMLP_TD_Classifier", use_ls=False, val_metric_name="cross_entropy"
        ),
    ),
    "AutoGluon medium, 60 s": ("autogluon", partial(autogluon, presets="medium_quality")),
    "AutoGluon good, 60 s": ("autogluon", partial(autogluon, presets="good_quality")),
    **{name: ("ours", partial(refinecal_auto, seconds=n)) for n, name in BUDGETS.items()},
}


def main() -> None:
    """Run one contestant on the rows of a folder."""
    name, folder, n_threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    table = pd.read_parquet(folder / "train.parquet")
    X, y = table.drop(columns=TARGET), table[TARGET].to_numpy()
    new, start = pd.read_parquet(folder / "new.parquet"), float(sys.argv[4])
    case = Case(folder, n_threads, X, y, new, start)
    probs = np.asarray(CONTESTANTS[name][1](case), dtype=np.float64)
    np.save(folder / "probs.npy", probs)
    result = {"seconds": case.seconds, "cpu": case.cpu, "promised": case.promised}
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", sys.argv[3])
    main()
