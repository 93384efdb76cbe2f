"""Time boosting that stops on refinement: ``python -m benchmarks.boosting --help``.

XGBoost and LightGBM train the same number of rounds without validation, with their own log loss and early
stopping, and with refinecal's callback; patience never runs out. pytabkit's XGBoost does the same with its
own two metrics, if it is installed. Data structures are made before the clock starts, except by pytabkit,
which makes them itself.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn.datasets import make_classification

import refinecal as rc
from benchmarks.contestants import Task, torch_cross_entropy
from benchmarks.data import draw, perturb
from benchmarks.machine import Machine, with_libraries
from benchmarks.report import WIDTH, milliseconds, plain, targets
from benchmarks.results import Finding, write
from benchmarks.timing import PAUSE_SECONDS, Effort, Entrant, limit_threads, race
from refinecal.integrations import lightgbm as with_lightgbm
from refinecal.integrations import xgboost as with_xgboost

N_TRAIN, N_VAL, N_FEATURES = 40_000, 10_000, 20
CLASSES = (2, 10)
LEARNING_RATE = 0.1
MONITOR_SIZE = (10_000, 10)
MONITOR_EFFORT = Effort(seconds=1.5, most_rounds=101, patience=20.0)

NOTHING, LOSS, OURS = "no validation", "log loss", "refinecal"
PYTABKIT_LOSS, PYTABKIT = "pytabkit, cross_entropy", "pytabkit, ref-ll-ts"
AGAINST = {OURS: LOSS, PYTABKIT: PYTABKIT_LOSS}  # what each way to refine is compared with
LIMIT = 1.10

RESULTS = Path(__file__).parent / "results"

Ways = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Setting:
    """How much to train, and how often."""

    rounds: int
    repeats: int
    n_threads: int


@dataclass(frozen=True)
class Table:
    """Training and validation rows."""

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray


@dataclass(frozen=True)
class Result:
    """The seconds of each training, by library, number of classes and way."""

    library: str
    n_classes: int
    times: dict[str, list[float]]

    @property
    def case(self) -> str:
        """Such as "XGBoost, 10 classes"."""
        return f"{self.library}, {self.n_classes} classes"

    def seconds(self, way: str) -> float:
        """Return the median time."""
        return median(self.times[way])

    def ratio(self, way: str) -> float | None:
        """Return the median of the ratios to the way that it is compared with, round by round."""
        other = AGAINST.get(way, LOSS)
        if way not in self.times or other not in self.times or way == PYTABKIT_LOSS:
            return None
        return median(a / b for a, b in zip(self.times[way], self.times[other], strict=True))


def table(n_classes: int) -> Table:
    """Draw a table with a seed."""
    n = N_TRAIN + N_VAL
    X, y = make_classification(
        n, N_FEATURES, n_informative=10, n_classes=n_classes, flip_y=0.1, random_state=0
    )
    return Table(X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:])


# ---- the ways to train -----------------------------------------------------------------------------------


def xgboost_ways(data: Table, n_classes: int, setting: Setting) -> Ways:
    """Return XGBoost's ways, pytabkit's among them."""
    several = {"objective": "multi:softprob", "num_class": n_classes}
    params = {"objective": "binary:logistic"} if n_classes == 2 else several
    params |= {"eta": LEARNING_RATE, "max_depth": 6, "nthread": setting.n_threads, "seed": 0}
    dtrain, dval = xgb.DMatrix(data.X, data.y), xgb.DMatrix(data.X_val, data.y_val)
    never = setting.rounds + 1

    def train(**options: Any) -> xgb.Booster:
        return xgb.train(params, dtrain, setting.rounds, verbose_eval=False, **options)

    def ours() -> None:
        stopping = with_xgboost.RefinementStopping(dval, rounds=never)
        train(callbacks=[stopping])
        assert len(stopping.monitor.history) == setting.rounds

    return {
        NOTHING: train,
        LOSS: lambda: train(evals=[(dval, "val")], early_stopping_rounds=never),
        OURS: ours,
        **pytabkit_ways(data, setting),
    }


def pytabkit_ways(data: Table, setting: Setting) -> Ways:
    """Return the ways of pytabkit's XGBoost, which here never stops early; none if it is not installed."""
    try:
        from pytabkit import XGB_D_Classifier
    except ModuleNotFoundError:
        return {}
    options = {"n_estimators": setting.rounds, "lr": LEARNING_RATE, "max_depth": 6}
    options |= {"n_threads": setting.n_threads, "random_state": 0, "device": "cpu"}

    def train(metric: str) -> None:
        model = XGB_D_Classifier(val_metric_name=metric, **options)
        model.fit(data.X, data.y, data.X_val, data.y_val)

    return {
        PYTABKIT_LOSS: lambda: train("cross_entropy"),
        PYTABKIT: lambda: train("ref-ll-ts"),
    }


def lightgbm_ways(data: Table, n_classes: int, setting: Setting) -> Ways:
    """Return LightGBM's ways; refinecal reports log loss itself, so LightGBM's metric is left out there."""
    several = {"objective": "multiclass", "num_class": n_classes}
    params = {"objective": "binary"} if n_classes == 2 else several
    params |= {"learning_rate": LEARNING_RATE, "num_leaves": 31, "seed": 0}
    params |= {"num_threads": setting.n_threads, "verbose": -1}
    dtrain = lgb.Dataset(data.X, data.y, params=params, free_raw_data=False).construct()
    dval = dtrain.create_valid(data.X_val, data.y_val).construct()
    never = setting.rounds + 1

    def train(**options: Any) -> lgb.Booster:
        return lgb.train(params, dtrain, setting.rounds, **options)

    def ours() -> None:
        stopping = with_lightgbm.RefinementStopping(never)
        without_metric = params | {"metric": "None"}
        lgb.train(without_metric, dtrain, setting.rounds, valid_sets=[dval], callbacks=[stopping])
        assert len(stopping.monitor.history) == setting.rounds

    return {
        NOTHING: train,
        LOSS: lambda: train(
            valid_sets=[dval], callbacks=[lgb.early_stopping(never, verbose=False)]
        ),
        OURS: ours,
    }


LIBRARIES = {"XGBoost": xgboost_ways, "LightGBM": lightgbm_ways}


# ---- the measurements ------------------------------------------------------------------------------------


def run(setting: Setting) -> Iterator[Result]:
    """Yield the times of every case; all ways take turns, so that a busy machine disturbs them alike."""
    for n_classes in CLASSES:
        data = table(n_classes)
        for library, make_ways in LIBRARIES.items():
            for way in make_ways(data, n_classes, replace(setting, rounds=2)).values():
                way()  # what only a first training does: import, compile, allocate
            ways = make_ways(data, n_classes, setting)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(setting.repeats):
                for name, way in ways.items():
                    times[name].append(_seconds(way))
            yield Result(library, n_classes, times)


def _seconds(way: Callable[[], object]) -> float:
    time.sleep(PAUSE_SECONDS)
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def time_monitor() -> tuple[float, float]:
    """Return the seconds of one update of the monitor, and of one torch cross-entropy, on one thread."""
    sample = draw(*MONITOR_SIZE)
    epochs = cycle([sample.logits, perturb(sample).logits])  # each differs a little from the last
    monitor = rc.RefinementMonitor(n_threads=1)

    def update() -> None:
        monitor.update(sample.labels, logits=next(epochs))

    floor = torch_cross_entropy.prepare(Task(sample.labels, sample.logits, 1))
    entrants = [Entrant(update), Entrant(floor)]
    with limit_threads(1):
        for entrant in entrants:
            entrant.plan(MONITOR_EFFORT)
        race(entrants, 1)
    return entrants[0].seconds, entrants[1].seconds


# ---- the report ------------------------------------------------------------------------------------------


def findings(results: Sequence[Result], monitor: tuple[float, float]) -> list[Finding]:
    """Return every target with what was found."""
    found = []
    for result in results:
        ratio = result.ratio(OURS)
        assert ratio is not None
        target = f"training time, refinecal / log loss, <= {LIMIT:.2f}"
        found.append(Finding(target, result.case, ratio, ratio <= LIMIT))
    ratio = monitor[0] / monitor[1]
    size = f"{MONITOR_SIZE[0]:,} x {MONITOR_SIZE[1]}".replace(",", " ")
    target = "monitor update / one torch cross_entropy, <= 2"
    return [*found, Finding(target, size, ratio, ratio <= 2)]


def table_of(result: Result) -> str:
    """Return one case as a table no wider than a terminal."""
    lines = ["", result.case, "-" * WIDTH]
    lines.append(f"{'stopping on':<30}{'median s':>12}{'fastest s':>12}{'ratio to loss':>18}")
    for name, times in result.times.items():
        numbers = f"{result.seconds(name):>12.2f}{min(times):>12.2f}"
        lines.append(f"{name:<30}{numbers}{_ratio(result.ratio(name)):>18}")
    return "\n".join(lines)


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def summary(found: Sequence[Finding]) -> str:
    """Return the targets with what was found."""
    lines = ["", "Targets", "-" * WIDTH]
    for finding in found:
        verdict = "reached" if finding.reached else "MISSED"
        lines += [finding.target, f"  {finding.case:<40}{plain(finding.found):>20}{verdict:>15}"]
    return "\n".join(lines)


def page(
    results: Sequence[Result],
    found: Sequence[Finding],
    monitor: tuple[float, float],
    setting: Setting,
    machine: Machine,
) -> str:
    """Return the results as Markdown."""
    sizes = f"{N_TRAIN} training and {N_VAL} validation rows, {N_FEATURES} features"
    lines = [
        f"`python -m benchmarks.boosting`: {sizes}, {setting.rounds} rounds, {setting.n_threads} threads; "
        f"median seconds of {setting.repeats} trainings that take turns (median ratio to stopping on log "
        "loss; of pytabkit, to its own).",
        "",
        "| | " + " | ".join(result.case for result in results) + " |",
        "| --- " + "| ---: " * len(results) + "|",
    ]
    for name in dict.fromkeys(name for result in results for name in result.times):
        cells = [_cell(result, name) for result in results]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    update, floor = map(milliseconds, monitor)
    lines += [
        "",
        f"One update of the monitor takes {update} ms, one torch cross_entropy {floor} ms, on one thread.",
        "",
        *targets(found),
    ]
    return "\n".join([*lines, "", f"{machine.processor}; {machine.listed}.", ""])


def _cell(result: Result, name: str) -> str:
    if name not in result.times:
        return "-"
    ratio = result.ratio(name)
    seconds = f"{result.seconds(name):.2f}"
    return seconds if ratio is None or name == LOSS else f"{seconds} ({ratio:.3f}×)"


def main() -> None:
    """Run all cases, print a table of each, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="50 rounds, three times; writes nothing unless told")
    add("--repeats", type=int, help="how often each way trains")
    add("--out", type=Path, help="folder for the JSON and Markdown files")
    options = parser.parse_args()
    machine = with_libraries(("xgboost", "lightgbm", "torch", "pytabkit"))
    rounds, repeats = (50, 3) if options.quick else (500, 5)
    setting = Setting(rounds, options.repeats or repeats, machine.n_threads)
    print(f"{N_TRAIN} training and {N_VAL} validation rows, {rounds} rounds")
    print(f"{machine.processor}, {setting.n_threads} threads; {machine.listed}")
    results = []
    for result in run(setting):
        print(table_of(result), flush=True)
        results.append(result)
    monitor = time_monitor()
    found = findings(results, monitor)
    print(summary(found))
    folder = options.out or (None if options.quick else RESULTS)
    if folder:
        content = {
            "machine": asdict(machine),
            "setting": asdict(setting),
            "results": [asdict(result) for result in results],
            "monitor": dict(zip(("update", "cross_entropy"), monitor, strict=True)),
            "findings": [asdict(finding) for finding in found],
        }
        write(folder, "boosting", content, page(results, found, monitor, setting, machine))
        print(f"\nWritten to {folder}")


if __name__ == "__main__":
    main()
