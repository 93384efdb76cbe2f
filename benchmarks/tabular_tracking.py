"""Time what the tabular experiment adds to a training: ``python -m benchmarks.tabular_tracking --help``.

XGBoost, binary: the rounds themselves, the margins of the validation rows after each of them (which all
early stopping needs) and the nine metrics are clocked in one and the same training. One step of tracking
races the same nine metrics, asked one by one of the package's public functions. MLP: refinecal's loop races
the same network in plain torch, with rows picked by index and with a DataLoader, and its own large matrix
products. One thread; seconds of the processor, so that other work on the machine counts little.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
import xgboost as xgb
from sklearn.datasets import make_classification
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import refinecal as rc
from benchmarks.machine import with_libraries
from benchmarks.report import targets
from benchmarks.results import Finding, write
from refinecal.experiments.plan import METRIC_NAMES
from refinecal.experiments.tabular.tracking import Tracker
from refinecal.training import mlp, mlp_training
from refinecal.training.encoding import Encoding
from refinecal.training.rows import Rows
from refinecal.training.trainer import TrainingRun

RESULTS = Path(__file__).parent / "results"

NINE = METRIC_NAMES[:9]  # the paper's, and ours
ROUNDS, MARGINS, TRACKING = "rounds", "margins of validation rows", "nine metrics"
TOGETHER, ONE_BY_ONE = "nine metrics, tracked", "nine metrics, one by one"
LOOP, PLAIN, LOADER, PRODUCTS = (
    "refinecal",
    "plain torch, rows by index",
    "plain torch, DataLoader",
    "matrix products alone",
)
NUMBERS, COLUMNS, CODES = (
    10,
    8,
    40,
)  # of the MLP's table: numbers, and categorical columns of so many codes


@dataclass(frozen=True)
class Result:
    """Seconds of each way, in turn."""

    case: str
    times: dict[str, list[float]]

    def seconds(self, way: str) -> float:
        """Return the median."""
        return median(self.times[way])

    def ratio(self, way: str, to: str) -> float:
        """Return the median of the ratios, turn by turn."""
        pairs = zip(self.times[way], self.times[to], strict=True)
        return median(a / b for a, b in pairs)


def turns(case: str, ways: Mapping[str, Callable[[], object]], repeats: int) -> Result:
    """Time all ways in turn."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.process_time()
            way()
            times[name].append(time.process_time() - start)
    return Result(case, times)


# ---- tracking ---------------------------------------------------------------------------------------------


def one_by_one(labels: np.ndarray, logits: np.ndarray) -> list[float]:
    """Return the nine metrics by the public functions."""
    fit = rc.fit_temperature(labels, np.stack([np.zeros_like(logits), logits], axis=1))
    return [
        rc.metrics.log_loss(labels, logits=logits),
        rc.metrics.brier_score(labels, logits=logits),
        rc.metrics.accuracy(labels, logits=logits),
        rc.metrics.auroc(labels, logits=logits),
        rc.refinement_error(labels, logits=logits),
        rc.metrics.brier_score(labels, logits=fit.beta * logits),
        rc.refinement_error(labels, logits=logits, cv=5),
        rc.refinement_error(labels, logits=logits, calibrator="isotonic"),
        rc.refinement_error(labels, logits=logits, cv="loo"),
    ]


def tracking(n_train: int, n_val: int, n_features: int, rounds: int, repeats: int) -> Result:
    """Time the parts of training XGBoost with its default parameters."""
    n = n_train + n_val
    X, y = make_classification(n, n_features, n_informative=8, flip_y=0.1, random_state=0)
    X, labels = X.astype(np.float32), y[n_train:].astype(np.int64)
    params = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1}
    options = {"output_margin": True, "validate_features": False}

    def train(rounds: int) -> list[float]:
        data = xgb.DMatrix(X[:n_train], y[:n_train], nthread=1)
        data_val = xgb.DMatrix(X[n_train:], nthread=1)
        booster, tracker = xgb.Booster(params, cache=[data, data_val]), Tracker(labels, 2, NINE)
        clock = np.zeros(4)
        for step in range(1, rounds + 1):
            times = [time.process_time()]
            booster.update(data, step - 1)
            times.append(time.process_time())
            margins = booster.predict(data_val, iteration_range=(0, step), **options)
            times.append(time.process_time())
            tracker.update(labels, logits=margins, step=step)
            times.append(time.process_time())
            clock[1:] += np.diff(times)
        return [float(seconds) for seconds in clock[1:]]

    train(3)  # what only a first training does: import, compile
    parts = zip(*(train(rounds) for _ in range(repeats)), strict=True)
    times = dict(zip((ROUNDS, MARGINS, TRACKING), map(list, parts), strict=True))
    case = f"{n_train} training and {n_val} validation rows, {n_features} features, {rounds} rounds"
    return Result(case, times)


def steps(n_val: int, n_steps: int, repeats: int) -> Result:
    """Time steps whose logits differ a little."""
    rng = np.random.default_rng(0)
    truth = 2 * rng.normal(size=n_val)
    labels = (truth + rng.logistic(size=n_val) > 0).astype(np.int64)
    margins = [
        (truth + 0.01 * step * rng.normal(size=n_val)).astype(np.float32) for step in range(n_steps)
    ]

    def together() -> None:
        tracker = Tracker(labels, 2, NINE)
        for step, each in enumerate(margins):
            tracker.update(labels, logits=each, step=step)

    def separately() -> None:
        for each in margins:
            one_by_one(labels, each)

    together()
    separately()
    ways = {TOGETHER: together, ONE_BY_ONE: separately}
    return turns(f"{n_steps} steps, {n_val} validation rows", ways, repeats)


# ---- the loop of the MLP ----------------------------------------------------------------------------------


def loops(n: int, epochs: int, repeats: int, categories: bool) -> Result:
    """Time epochs of the paper's default network; the plain loops are given rows that are ready."""
    rng = np.random.default_rng(0)
    columns = COLUMNS if categories else 0
    codes = rng.integers(0, CODES, size=(n, columns))
    X = pd.DataFrame(rng.normal(size=(n, NUMBERS)))
    for j in range(columns):
        X[f"c{j}"] = pd.Categorical(codes[:, j])
    y = rng.integers(0, 2, size=n)
    encoding = Encoding.learn(X, "quantile")
    rows = mlp.to_batch(encoding, X)
    numbers, positions = map(torch.from_numpy, rows)
    run = TrainingRun(
        Rows(X, y), Rows(X[:0], y[:0]), np.arange(2), rc.RefinementMonitor(), epochs, n_threads=1
    )
    one_hot = torch.zeros((n, columns * CODES + 1)).scatter_(1, positions, 1.0)[
        :, : columns * CODES
    ]
    inputs, labels = torch.cat([numbers, one_hot], dim=1), torch.from_numpy(y)

    def ours() -> None:
        random = torch.Generator().manual_seed(run.seed)
        net = mlp_training._new_net(encoding, 2, mlp.DEFAULTS, random)
        for _ in islice(mlp_training._epochs(net, run, mlp.DEFAULTS, rows, random), epochs):
            pass

    def by_index() -> None:
        net, optimizer = network(inputs.shape[1])
        for _ in range(epochs):
            order = torch.randperm(n)
            for start in range(0, n, 256):
                batch = order[start : start + 256]
                learn(net, optimizer, inputs[batch], labels[batch])

    def by_loader() -> None:
        net, optimizer = network(inputs.shape[1])
        loader = DataLoader(TensorDataset(inputs, labels), batch_size=256, shuffle=True)
        for _ in range(epochs):
            for part, own in loader:
                learn(net, optimizer, part, own)

    def products() -> None:
        a, b, c = (torch.rand(256, 256) for _ in range(3))
        for _ in range(9 * epochs * -(-n // 256)):  # three layers, forward and twice back
            torch.mm(a, b, out=c)

    for way in (ours, by_index, by_loader):  # what only a first time does: start, allocate
        way()
    case = f"{n} rows, {NUMBERS} numbers, {columns} categorical columns, {epochs} epochs"
    ways = {LOOP: ours, PLAIN: by_index, LOADER: by_loader, PRODUCTS: products}
    return turns(case, ways, repeats)


def network(width: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return the paper's default network and optimizer."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(width, 256), nn.ReLU()]
        width = 256
    net = nn.Sequential(*layers, nn.Linear(256, 2))
    return net, torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.0)


def learn(
    net: nn.Module, optimizer: torch.optim.Optimizer, part: torch.Tensor, own: torch.Tensor
) -> None:
    """Make one step."""
    loss = cross_entropy(net(part), own)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


# ---- the report -------------------------------------------------------------------------------------------


def findings(tracked: Sequence[Result], looped: Sequence[Result]) -> list[Finding]:
    """Return every target with what was found."""
    found = []
    for result in tracked:
        more = result.ratio(TRACKING, to=ROUNDS)
        found.append(Finding("nine metrics / rounds, <= 0.15", result.case, more, more <= 0.15))
        more += result.ratio(MARGINS, to=ROUNDS)
        target = "nine metrics and margins / rounds, <= 0.15"
        found.append(Finding(target, result.case, more, more <= 0.15))
    for result in looped:
        for way, least in ((PLAIN, 1.0), (LOADER, 3.0)):
            ratio = result.ratio(way, to=LOOP)
            found.append(
                Finding(f"{way} / refinecal, >= {least:g}", result.case, ratio, ratio >= least)
            )
    return found


def page(results: Sequence[Result], found: Sequence[Finding], repeats: int, machine: str) -> str:
    """Return the results as Markdown."""
    lines = [
        f"`python -m benchmarks.tabular_tracking`: median of {repeats} turns, one thread, seconds of the "
        "processor.",
        "",
    ]
    for result in results:
        lines += ["", result.case, "", "| | seconds |", "| --- | ---: |"]
        lines += [f"| {name} | {result.seconds(name):.2f} |" for name in result.times]
    return "\n".join([*lines, "", *targets(found), "", machine, ""])


def main() -> None:
    """Run all cases, print the page, and write it unless it was quick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds; writes nothing unless told"
    )
    parser.add_argument("--repeats", type=int, help="how many turns")
    parser.add_argument("--out", type=Path, help="folder for the JSON and Markdown files")
    options = parser.parse_args()
    repeats = options.repeats or (1 if options.quick else 3)
    rounds, epochs = (100, 2) if options.quick else (1000, 5)
    machine = with_libraries(("xgboost", "torch"))
    torch.set_num_threads(1)
    sizes = [(25_600, 6_400, 20), (40_000, 10_000, 20)]
    tracked = [tracking(*size, rounds, repeats) for size in sizes[: 1 if options.quick else None]]
    looped = [loops(12_800, epochs, repeats, categories) for categories in (False, True)]
    stepped = [steps(6_400, 50, repeats)]
    found = findings(tracked, looped)
    results = [*tracked, *stepped, *looped]
    text = page(results, found, repeats, f"{machine.processor}; {machine.listed}.")
    print(text)
    folder = options.out or (None if options.quick else RESULTS)
    if folder:
        content = {"machine": asdict(machine), "results": [asdict(result) for result in results]}
        write(folder, "tabular-tracking", content | {"findings": [asdict(f) for f in found]}, text)


if __name__ == "__main__":
    main()
