"""Golden numbers: several hundred results of the package, to show that refactoring changes none of them.

python tests/golden_numbers.py            compare with golden_numbers.json exactly; exit code 1 if they differ
python tests/golden_numbers.py fit theory  only these groups
python tests/golden_numbers.py --update   compute everything again and rewrite golden_numbers.json

Everything is computed through the public API and the command line: every metric, decomposition and calibrator
on six fixed data sets (random, with fixed seeds); one monitor, one selection, two evaluations, reliability
curves; the README's first decomposition; the theory; the estimator; one ``refinecal fit`` and one small
``refinecal experiment tabular``. All of it uses one thread, so that two runs on one machine agree exactly.
``--update`` wrote ``golden_numbers.json`` before the package was reorganized. On another processor, or with
other versions of the libraries, the last digits may differ; ``test_golden_numbers.py`` allows for that.

A number may change only because a defect was fixed. Then run ``--update``, commit the JSON together with the
fix, and name the defect and the keys that changed in the commit message. Refactoring never changes it.
"""

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import refinecal as rc

FILE = Path(__file__).with_suffix(".json")

Numbers = dict[str, float]


# ---- data sets ---------------------------------------------------------------------------------------------


class DataSet(NamedTuple):
    """Labels and predictions, and how a function that takes ``(y_true, **predictions)`` gets them."""

    labels: Any
    predictions: dict[str, Any]  # probs or logits
    weights: Any = None

    @property
    def inputs(self) -> dict[str, Any]:
        weights = {} if self.weights is None else {"sample_weight": self.weights}
        return self.predictions | weights

    @property
    def scores(self) -> Any:
        (scores,) = self.predictions.values()
        return scores

    @property
    def is_binary(self) -> bool:
        return self.scores.ndim == 1


def data_sets() -> dict[str, DataSet]:
    """Return the six data sets by name."""
    return {
        "binary-log-odds": binary_log_odds(),
        "binary-float32": binary_float32(),
        "3-classes-weighted": three_classes_weighted(),
        "10-classes": ten_classes(),
        "5-classes-soft": five_classes_soft(),
        "40-classes-float32": forty_classes_float32(),
    }


def binary_log_odds() -> DataSet:
    """Return log-odds that are too large at both ends, and shifted."""
    rng = np.random.default_rng(1)
    odds = 3 * rng.normal(size=300)
    labels = (rng.random(300) < sigmoid(2.2 * np.tanh(odds / 3) + 0.2)).astype(int)
    return DataSet(labels, {"logits": odds})


def binary_float32() -> DataSet:
    """Return multiples of 1/30: ties, borders of bins, and certain predictions that are never wrong."""
    rng = np.random.default_rng(2)
    thirtieths = rng.integers(0, 31, size=400)
    yes, no = np.sqrt(thirtieths), np.sqrt(30 - thirtieths)
    labels = (rng.random(400) < yes / (yes + no)).astype(int)
    return DataSet(labels, {"probs": (thirtieths / 30).astype(np.float32)})


def three_classes_weighted() -> DataSet:
    rng = np.random.default_rng(3)
    logits = multiclass_logits(rng, 300, 3)
    return DataSet(draw_labels(rng, logits), {"logits": logits}, rng.integers(2, 9, size=300) / 2)


def ten_classes() -> DataSet:
    rng = np.random.default_rng(4)
    logits = multiclass_logits(rng, 400, 10)
    return DataSet(draw_labels(rng, logits), {"probs": softmax(logits)})


def five_classes_soft() -> DataSet:
    rng = np.random.default_rng(5)
    logits = 0.6 * multiclass_logits(rng, 250, 5)
    noise = rng.dirichlet(np.ones(5), size=250)
    labels = 0.9 * softmax(logits + np.linspace(-0.6, 0.6, 5)) + 0.1 * noise
    return DataSet(labels, {"logits": logits})


def forty_classes_float32() -> DataSet:
    rng = np.random.default_rng(6)
    logits = multiclass_logits(rng, 400, 40)
    return DataSet(draw_labels(rng, logits), {"logits": logits.astype(np.float32)})


def multiclass_logits(rng: np.random.Generator, n: int, k: int) -> Any:
    """Return logits of rows in which one class mostly stands out."""
    logits = rng.normal(size=(n, k))
    logits[np.arange(n), rng.integers(k, size=n)] += rng.exponential(3, size=n)
    return 1.5 * logits


def draw_labels(rng: np.random.Generator, logits: Any) -> Any:
    """Draw labels for which the logits are a little too large, and the class frequencies wrong."""
    right = 0.9 * logits + np.linspace(-0.6, 0.6, logits.shape[1])
    return (right + rng.gumbel(size=logits.shape)).argmax(axis=1)


def sigmoid(odds: Any) -> Any:
    return 1 / (1 + np.exp(-odds))


def softmax(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


# ---- on every data set -------------------------------------------------------------------------------------

LOSSES_AND_STATISTICS = (
    "log_loss",
    "brier_score",
    "spherical_loss",
    "accuracy",
    "error_rate",
    "auroc",
    "mce",
    "overconfidence",
    "underconfidence",
    "smooth_ece",
    "ks_statistic",
    "kuiper_statistic",
    "lp_calibration_error",
)
ECE = {
    "ece": {},
    "ece-quantile": {"strategy": "quantile"},
    "ece-l2": {"norm": "l2"},
    "ece-max": {"norm": "max"},
    "ece-debiased": {"norm": "l2", "debiased": True},
    "ece-top-label": {"kind": "top-label"},
    "ece-class-wise": {"kind": "class-wise"},
}


def metrics() -> Numbers:
    found = {}
    for name, data in data_sets().items():
        for metric in LOSSES_AND_STATISTICS:
            found[f"{name}/{metric}"] = getattr(rc.metrics, metric)(data.labels, **data.inputs)
        for variant, options in ECE.items():
            if data.is_binary or variant != "ece-top-label":  # else the same as "ece"
                found[f"{name}/{variant}"] = rc.metrics.ece(data.labels, **data.inputs, **options)
        for test in ("ks_test", "kuiper_test"):
            found[f"{name}/{test}/p"] = getattr(rc.metrics, test)(
                data.labels, **data.inputs
            ).p_value
        z, p = rc.metrics.spiegelhalter(data.labels, **data.inputs)
        found |= {f"{name}/spiegelhalter/z": z, f"{name}/spiegelhalter/p": p}
    return found


def decomposition() -> Numbers:
    found = {}
    for name, data in data_sets().items():
        for loss in ("log", "brier"):
            for cv in (None, 5, "loo"):
                terms = rc.decompose(data.labels, **data.inputs, loss=loss, cv=cv)
                found[f"{name}/{loss}/refinement/cv-{cv}"] = terms.refinement
            found[f"{name}/{loss}/risk"] = terms.risk
            found[f"{name}/{loss}/uncertainty"] = terms.uncertainty
    return found


def temperature() -> Numbers:
    found = {}
    for name, data in data_sets().items():
        with np.errstate(divide="ignore"):  # certain predictions have infinite log-odds
            logits = data.scores if "logits" in data.predictions else to_logits(data.scores)
        fit = rc.fit_temperature(data.labels, logits, data.weights)
        found |= {f"{name}/beta": fit.beta, f"{name}/loss": fit.loss}
    return found


def to_logits(probs: Any) -> Any:
    return np.log(probs / (1 - probs)) if probs.ndim == 1 else np.log(probs)


ANY_CLASSES = (
    "temperature",
    "ensemble-temperature",
    "vector",
    "matrix",
    "dirichlet",
    "structured-vector",
    "structured-matrix",
    "laplace",
    "auto",
)
TWO_CLASSES = (
    "affine",
    "quadratic",
    "beta",
    "isotonic",
    "centered-isotonic",
    "venn-abers",
    "cross-venn-abers",
    "uniform-mass",
    "uniform-width",
    "scaling-binning",
    "spline",
)
MORE_CLASSES = ("one-vs-rest", "spline-ovr", "one-vs-one")
MOST_PAIRED = 10  # classes of which every pair is calibrated
PARAMETERS = {"laplace": {"calibrator": "isotonic-ovr"}}
ROW, COLUMN = 7, 1  # of the probability that is kept


def calibrators() -> Numbers:
    found = {}
    for name, data in data_sets().items():
        for calibrator in calibrators_of(data):
            probs = calibrate(calibrator, data)
            weights = {} if data.weights is None else {"sample_weight": data.weights}
            found[f"{name}/{calibrator}/log_loss"] = rc.metrics.log_loss(
                data.labels, probs, **weights
            )
            found[f"{name}/{calibrator}/probability"] = probs[ROW, COLUMN]
    return found


def calibrators_of(data: DataSet) -> tuple[str, ...]:
    """Return the names of the calibrators that apply to a data set."""
    if data.is_binary:
        return ANY_CLASSES + TWO_CLASSES
    k = data.scores.shape[1]
    return ANY_CLASSES + tuple(c for c in MORE_CLASSES if c != "one-vs-one" or k <= MOST_PAIRED)


def calibrate(name: str, data: DataSet) -> Any:
    """Return the probabilities of the rows that the calibrator was fitted on."""
    calibrator = rc.make_calibrator(name, **PARAMETERS.get(name, {}))
    if "probs" in data.predictions:
        return calibrator.fit(data.scores, data.labels, data.weights).predict_proba(data.scores)
    fitted = calibrator.fit_logits(data.scores, data.labels, data.weights)
    return fitted.predict_proba_logits(data.scores)


# ---- steps of training -------------------------------------------------------------------------------------

STOPPING = (
    "refinement",
    "risk",
    "log_loss",
    "brier",
    "brier_refinement",
    "spherical_loss",
    "error_rate",
    "accuracy",
    "auroc",
    "ece",
    "classwise_ece",
    "debiased_ece",
    "mce",
    "smooth_ece",
    "ks",
    "kuiper",
    "spiegelhalter",
    "overconfidence",
    "underconfidence",
    "lp",
)
CURVE = ("risk", "refinement", "beta")  # what is kept of every step


def stages(data: DataSet) -> list[Any]:
    """Return the logits of four steps: ever more confident, and best in the middle."""
    rng = np.random.default_rng(7)
    shapes = [(0.3, 2.0), (0.6, 0.5), (0.9, 1.0), (1.4, 2.5)]  # scale, and size of the noise
    return [
        scale * (data.scores + size * rng.normal(size=data.scores.shape)) for scale, size in shapes
    ]


def monitor() -> Numbers:
    data = three_classes_weighted()
    following = rc.RefinementMonitor(STOPPING[0], also=STOPPING[1:])
    for logits in stages(data):
        following.update(data.labels, logits=logits, sample_weight=data.weights)
    found = {
        f"step-{record['step']}/{name}": record[name]
        for record in following.history
        for name in CURVE
    }
    last = following.history[-1]
    found |= {f"step-{last['step']}/{name}": value for name, value in last.items()}
    return found | {f"best/{name}": best.step for name, best in following.bests.items()}


def select() -> Numbers:
    data = five_classes_soft()
    by_loo = rc.select(data.labels, logits=stages(data), cv="loo", also=["log_loss", "ece"])
    by_brier = rc.select(
        data.labels, [softmax(logits) for logits in stages(data)], loss="brier", calibrator="vector"
    )
    return {
        "loo/best-step": by_loo.best_step,
        "loo/best-value": by_loo.best_value,
        "loo/beta": by_loo.calibrator.beta_,
        "loo/best-step-by-log-loss": by_loo.bests["log_loss"].step,
        "loo/best-ece": by_loo.bests["ece"].value,
        "brier-after-vector/best-step": by_brier.best_step,
        "brier-after-vector/best-value": by_brier.best_value,
    }


# ---- evaluation --------------------------------------------------------------------------------------------

EVALUATED = ("accuracy", "auroc", "ece", "overconfidence", "underconfidence", "smooth_ece", "beta")


def evaluation() -> Numbers:
    found = {}
    for name in ("binary-float32", "3-classes-weighted"):
        data = data_sets()[name]
        by = np.array(["a", "b"])[np.arange(len(data.labels)) % 3 // 2]
        whole = rc.evaluation.evaluate(data.labels, **data.inputs, by=by)
        found |= {f"{name}/{number}": getattr(whole, number) for number in EVALUATED}
        found |= {
            f"{name}/log/refinement": whole.log.refinement,
            f"{name}/brier/risk": whole.brier.risk,
            f"{name}/brier/refinement": whole.brier.refinement,
            f"{name}/n_effective": whole.n_effective,
            f"{name}/class-1/recall": whole.per_class[1].recall,
            f"{name}/class-1/ece": whole.per_class[1].ece,
            f"{name}/class-1/log_loss": whole.per_class[1].log_loss,
            f"{name}/group-b/log/calibration": whole.groups["b"].log.calibration,
            f"{name}/group-b/ece": whole.groups["b"].ece,
        }
    return found | difference_by_calibration()


def difference_by_calibration() -> Numbers:
    """Return what temperature scaling gains, row by row."""
    data = ten_classes()
    before, after = (
        rc.evaluation.row_losses(data.labels, probs)
        for probs in (data.scores, calibrate("temperature", data))
    )
    gain = rc.evaluation.paired_difference(before, after)
    return {"difference/mean": gain.mean, "difference/standard_error": gain.standard_error}


def reliability() -> Numbers:
    found = {}
    for name in ("binary-float32", "10-classes"):
        data = data_sets()[name]
        for strategy in ("uniform", "quantile"):
            curve = rc.plots.reliability_curve(data.labels, **data.inputs, strategy=strategy)
            found[f"{name}/{strategy}/ece"] = curve.ece
            for part in ("mean_score", "share", "weight", "low", "high"):
                found[f"{name}/{strategy}/{part}"] = getattr(curve, part)[-3]
    return found


# ---- the README, the theory, the estimator -----------------------------------------------------------------


def readme() -> Numbers:
    """Return all terms of the first decomposition of the README."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    X, X_val, y, y_val = train_test_split(X, y, test_size=0.5, random_state=0)
    model = HistGradientBoostingClassifier(early_stopping=False, random_state=0).fit(X, y)
    terms = rc.decompose(y_val, model.predict_proba(X_val))
    names = ("risk", "calibration", "refinement", "uncertainty", "sharpness", "beta")
    return {f"digits/{name}": getattr(terms, name) for name in names}


def theory() -> Numbers:
    found = {}
    terms = ("calibration", "refinement", "error_rate")
    points = {
        "gaussian/log": rc.theory.gaussian_decomposition(2.0, 3.0),
        "gaussian/brier": rc.theory.gaussian_decomposition(1.5, 0.5, "brier"),
        "gaussian/shifted": rc.theory.gaussian_decomposition(
            2.0, 4.0, "spherical", prevalence=0.3, shift=0.5
        ),
    }
    problem = {"ratio": 0.5, "bayes_error": 0.1, "spectrum": rc.theory.BetaSpectrum(1, 1)}
    for lam in (0.01, 0.1, 1.0):
        points[f"logistic/lam-{lam}"] = rc.theory.logistic(lam, **problem)
    points["lda/lam-0.1"] = rc.theory.lda(0.1, **problem)
    points["ridge/lam-0.1"] = rc.theory.ridge(0.1, **problem)
    for name, point in points.items():
        found |= {f"{name}/{term}": getattr(point, term) for term in terms}
    return found


def estimator() -> Numbers:
    """Return numbers of models of two folds, and of two folds drawn twice, whose mean is sharpened."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import RepeatedStratifiedKFold

    X, y = load_breast_cancer(return_X_y=True)
    test = np.arange(len(y)) % 3 == 0
    twice = RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0)
    found = {}
    for name, folds in (("2-folds", 2), ("2-folds-twice", twice)):
        model = rc.RefineThenCalibrateClassifier(
            HistGradientBoostingClassifier(), max_steps=30, n_folds=folds, random_state=0
        ).fit(X[~test], y[~test])
        probs = model.predict_proba(X[test])
        found |= {
            f"{name}/best_step": model.best_step_,
            f"{name}/log_loss": rc.metrics.log_loss(y[test], probs),
            f"{name}/probability": probs[ROW, COLUMN],
            f"{name}/last-refinement": model.history_[-1]["refinement"],
        }
    return found | {"2-folds-twice/pool_beta": model.pool_beta_}


# ---- the command line --------------------------------------------------------------------------------------


def fit() -> Numbers:
    """Return numbers of ``refinecal fit`` on a part of scikit-learn's wine."""
    with tempfile.TemporaryDirectory() as folder:
        write_wine(Path(folder, "wine.csv"))
        run_command(
            *("fit", "wine.csv", "--target", "kind", "--model", "xgboost", "--max-steps", "30"),
            *("--folds", "2", "--threads", "1", "--out", "run", "--quiet"),
            folder=folder,
        )
        found = json.loads(Path(folder, "run", "metrics.json").read_text(encoding="utf-8"))
    chosen, delivered, test = found["chosen"], found["delivered"], found["test"]
    ours = test["refine_then_calibrate"]
    return {
        "chosen/step-of-fold-0": chosen["steps"][0],
        "chosen/step-of-fold-1": chosen["steps"][1],
        "chosen/validation_refinement": chosen["validation_refinement"],
        "delivered/step-of-fold-0": delivered["steps"][0],
        "delivered/step-of-fold-1": delivered["steps"][1],
        "test/log_loss": ours["log"]["risk"],
        "test/refinement": ours["log"]["refinement"],
        "test/brier": ours["brier"]["risk"],
        "test/accuracy": ours["accuracy"],
        "test/auroc": ours["auroc"],
        "test/ece": ours["ece"],
        "test/smooth_ece": ours["smooth_ece"],
        "test/class-1/log_loss": ours["per_class"][1]["log_loss"],
        "test/log_loss-before-calibration": test["before_calibration"]["log"]["risk"],
        "test/log_loss-by-validation-loss": test["by_validation_loss"]["log"]["risk"],
        "test/difference/mean": test["difference_log_loss"]["mean"],
        "test/difference/standard_error": test["difference_log_loss"]["standard_error"],
    }


def write_wine(path: Path, n_features: int = 5) -> None:
    """Write the first columns only: all of them would tell the classes apart without an error."""
    from sklearn.datasets import load_wine

    wine = load_wine()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*wine.feature_names[:n_features], "kind"])
        for row, label in zip(wine.data.tolist(), wine.target, strict=True):
            writer.writerow([*row[:n_features], wine.target_names[label]])


def experiment() -> Numbers:
    """Return numbers of ``refinecal experiment tabular`` on two small tables, from the CSV of its report."""
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder, "tables"))
        run_command(
            *("experiment", "tabular", "--data", "tables", "--methods", "xgboost,logistic"),
            *("--min-rows", "100", "--splits", "1", "--max-steps", "8"),
            *("--processes", "1", "--threads", "1", "--out", "run", "--quiet"),
            folder=folder,
        )
        run_command("experiment", "report", "run", "--no-auto", "--quiet", folder=folder)
        rows = read_csv(Path(folder, "run", "report", "results.csv"))
        runs = read_csv(Path(folder, "run", "report", "trainings.csv"))
    found = {}
    for row in rows:
        name = f"{row['set']}/{row['method']}/{row['metric']}"
        if row["metric"] in ("log_loss", "refinement") and row["calibration"] == "temperature":
            found |= {f"{name}/{number}": float(row[number]) for number in ("step", "log_loss")}
        if row["metric"] == "refinement" and row["calibration"] == "none":
            found |= {f"{name}/none/{number}": float(row[number]) for number in ("brier", "auroc")}
    return found | {f"{row['set']}/{row['method']}/rise": float(row["rise"]) for row in runs}


def write_tables(folder: Path) -> None:
    """Write a table of two classes and one of three."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for name, k in (("two", 2), ("three", 3)):
        rng = np.random.default_rng(k)
        x = rng.normal(size=(300, 3))
        y = (3 * x[:, :1] * np.arange(k) + rng.gumbel(size=(300, k))).argmax(axis=1)
        columns = {f"x{j}": x[:, j] for j in range(3)} | {"target": [f"class {each}" for each in y]}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run_command(*arguments: str, folder: str) -> None:
    """Run ``refinecal`` in a folder, with one thread."""
    done = subprocess.run(
        [sys.executable, "-m", "refinecal", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"refinecal {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


# ---- all of them -------------------------------------------------------------------------------------------

GROUPS: dict[str, Callable[[], Mapping[str, Any]]] = {
    "metrics": metrics,
    "decomposition": decomposition,
    "temperature": temperature,
    "calibrators": calibrators,
    "monitor": monitor,
    "select": select,
    "evaluation": evaluation,
    "reliability": reliability,
    "readme": readme,
    "theory": theory,
    "estimator": estimator,
    "fit": fit,
    "experiment": experiment,
}


def compute(groups: Iterable[str] = tuple(GROUPS)) -> Numbers:
    """Return the numbers of these groups by name; the first part of a name is its group."""
    return {key: value for group in groups for key, value in compute_group(group).items()}


def compute_group(group: str) -> Numbers:
    """Return the numbers of one group, computed with one thread."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small samples make some calibrators warn
        found = GROUPS[group]()
    return {f"{group}/{name}": float(value) for name, value in found.items()}


def load() -> Numbers:
    """Return the golden numbers."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    return {key: float(value) for key, value in stored.items()}


def save(numbers: Numbers) -> None:
    """Write the numbers, one on each line; NaN and infinity, which JSON does not have, as text."""
    plain = {key: value if math.isfinite(value) else str(value) for key, value in numbers.items()}
    FILE.write_text(json.dumps(plain, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def group_of(key: str) -> str:
    return key.partition("/")[0]


def differences(old: Numbers, new: Numbers) -> list[str]:
    """Return a line for each number that is not exactly the same."""
    lines = []
    for key in sorted(old | new):
        if key not in new:
            lines.append(f"{key}: {old[key]!r} is no longer computed")
        elif key not in old:
            lines.append(f"{key}: {new[key]!r} is new")
        elif not (old[key] == new[key] or (math.isnan(old[key]) and math.isnan(new[key]))):
            relative = (new[key] - old[key]) / abs(old[key]) if old[key] else math.inf
            lines.append(
                f"{key}: {old[key]!r} -> {new[key]!r}, relative difference {relative:+.2g}"
            )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--update", action="store_true", help="rewrite golden_numbers.json")
    given = parser.parse_args()
    unknown = [group for group in given.groups if group not in GROUPS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: the groups are {', '.join(GROUPS)}")
    if given.update and given.groups:
        parser.error("--update computes all groups: do not name any")
    groups = given.groups or list(GROUPS)
    new = compute(groups)
    golden = load() if FILE.exists() else {}
    old = {key: value for key, value in golden.items() if group_of(key) in groups}
    lines = differences(old, new)
    if given.update:
        save(new)
    for line in lines:
        print(line)
    print(f"{len(new)} numbers, {len(lines)} differ")
    return int(bool(lines) and not given.update)


if __name__ == "__main__":
    sys.exit(main())
