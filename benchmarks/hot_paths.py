"""Time the functions people call most, before and after a change: ``python -m benchmarks.hot_paths --help``.

    python -m benchmarks.hot_paths --source ../old/src   # two versions in one run: the reliable way
    python -m benchmarks.hot_paths --out before.json     # one version now,
    python -m benchmarks.hot_paths --against before.json # and another later

Each version runs in its own process, with one thread; both draw the same arrays and warm up. Then they take
turns at each case, so that a busy machine disturbs both equally. Every round starts new processes, because
where a process happens to have its memory can change a time by 10%. Times are CPU times: with one thread they
are those of a machine left alone. The ratio is that of the fastest times. Only public functions are called,
so every version can run the same cases.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks.data import Sample, draw, perturb
from benchmarks.machine import Machine, with_libraries
from benchmarks.timing import TURN_SECONDS

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("scipy", "scikit-learn")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

CLASSES = 10
AUROC_ROWS = 100_000
LOG_LOSS_ROWS = 10_000  # few enough for checks of the input to show next to the loss itself
SMALL_ROWS = 1_000  # where latency counts: the fixed cost of a call
ALSO = ("log_loss", "brier", "accuracy", "auroc")

FEWEST_ROUNDS = 7
CASE_SECONDS = 0.1  # in each round, for a case that is fast enough
FEWEST_TURNS, MOST_TURNS = 2, 30  # in each round
NUMPY, LOG_LOSS = "-np.log(p[np.arange(n), y]).mean()", "metrics.log_loss(y, probs)"

Call = Callable[[], object]
Times = dict[str, dict[str, list[float]]]  # seconds of one call, by case and version


# ---- the cases -------------------------------------------------------------------------------------------


def make_cases(n_rows: int) -> dict[str, Call]:
    """Return everything that is timed, by name and size."""
    two = draw(SMALL_ROWS, 2)
    log_odds = Sample(two.labels, two.logits[:, 1] - two.logits[:, 0])
    groups = [
        (n_rows, CLASSES, make_full_size(draw(n_rows, CLASSES))),
        (AUROC_ROWS, CLASSES, make_auroc(draw(AUROC_ROWS, CLASSES))),
        (LOG_LOSS_ROWS, CLASSES, make_log_loss(draw(LOG_LOSS_ROWS, CLASSES))),
        (SMALL_ROWS, CLASSES, make_small(draw(SMALL_ROWS, CLASSES))),
        (SMALL_ROWS, 2, make_small(log_odds)),
    ]
    return {f"{name} | {n:,} x {k}": call for n, k, calls in groups for name, call in calls.items()}


def make_full_size(sample: Sample) -> dict[str, Call]:
    """Return the calls for many rows."""
    import refinecal as rc

    y, z, probs = sample.labels, sample.logits, compute_probs(sample)
    metrics, evaluate = rc.metrics, rc.evaluation.evaluate
    return {
        "fit_temperature(y, logits)": lambda: rc.fit_temperature(y, z),
        "decompose(y, logits=z)": lambda: rc.decompose(y, logits=z),
        "decompose(y, probs)": lambda: rc.decompose(y, probs),
        "RefinementMonitor().update": make_update(sample),
        "RefinementMonitor(also=4 metrics).update": make_update(sample, also=ALSO),
        LOG_LOSS: lambda: metrics.log_loss(y, probs),
        "metrics.log_loss(y, logits=z)": lambda: metrics.log_loss(y, logits=z),
        "metrics.brier_score(y, probs)": lambda: metrics.brier_score(y, probs),
        "metrics.ece(y, probs)": lambda: metrics.ece(y, probs),
        "metrics.ece(y, logits=z)": lambda: metrics.ece(y, logits=z),
        "metrics.smooth_ece(y, probs)": lambda: metrics.smooth_ece(y, probs),
        "metrics.accuracy(y, probs)": lambda: metrics.accuracy(y, probs),
        "evaluation.evaluate(y, probs)": lambda: evaluate(y, probs),
    }


def make_auroc(sample: Sample) -> dict[str, Call]:
    """Return the two ways to compute AUROC."""
    import refinecal as rc

    y, z, probs, auroc = sample.labels, sample.logits, compute_probs(sample), rc.metrics.auroc
    return {
        "metrics.auroc(y, probs)": lambda: auroc(y, probs),
        "metrics.auroc(y, logits=z)": lambda: auroc(y, logits=z),
    }


def make_log_loss(sample: Sample) -> dict[str, Call]:
    """Return the log loss, and the NumPy line that computes the same without any check."""
    import refinecal as rc

    y, p, n = sample.labels, compute_probs(sample), len(sample.labels)
    return {
        LOG_LOSS: lambda: rc.metrics.log_loss(y, p),
        NUMPY: lambda: -np.log(p[np.arange(n), y]).mean(),
    }


def make_small(sample: Sample) -> dict[str, Call]:
    """Return the calls whose latency counts."""
    import refinecal as rc

    return {
        "decompose(y, logits=z)": lambda: rc.decompose(sample.labels, logits=sample.logits),
        "RefinementMonitor().update": make_update(sample),
    }


def make_update(sample: Sample, **options: Any) -> Call:
    """Return one step of a monitor; logits differ a little from step to step."""
    import refinecal as rc

    monitor = rc.RefinementMonitor(**options)
    steps = cycle([sample.logits, perturb(sample).logits])
    return lambda: monitor.update(sample.labels, logits=next(steps))


def compute_probs(sample: Sample) -> np.ndarray:
    """Return float64 probabilities."""
    return softmax(sample.logits.astype(np.float64), axis=1)


# ---- one version: a process that times a case whenever its name is read from stdin -----------------------


def serve(n_rows: int) -> None:
    """Warm up, then answer each line of stdin, the name of a case, with a line of JSON: its times."""
    import refinecal as rc

    cases = make_cases(n_rows)
    seconds = {name: warm_up(call) for name, call in cases.items()}
    print(json.dumps([str(Path(rc.__file__).parents[1]), list(cases)]), flush=True)
    for line in sys.stdin:
        name = line.rstrip("\n")
        print(json.dumps(measure(cases[name], seconds[name])), flush=True)


def warm_up(call: Call) -> float:
    """Call twice, since the first call may compile; return the seconds of the second."""
    call()
    return time_calls(call, 1)


def measure(call: Call, expected: float) -> list[float]:
    """Return the seconds of one call in each of a few turns; a turn repeats a fast call many times."""
    number = max(1, round(TURN_SECONDS / expected))
    turns = int(CASE_SECONDS / (number * expected))
    turns = min(max(turns, FEWEST_TURNS), MOST_TURNS)
    return [time_calls(call, number) for _ in range(turns)]


def time_calls(call: Call, number: int) -> float:
    """Return the mean seconds of a number of calls; waiting for the processor does not count."""
    start = time.process_time()
    for _ in range(number):
        call()
    return max(time.process_time() - start, 1e-9) / number


class Worker:
    """A process that runs the package of one source folder, with one thread."""

    def __init__(self, source: Path, n_rows: int) -> None:
        command = [sys.executable, "-m", "benchmarks.hot_paths", "--worker", "--rows", str(n_rows)]
        environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(source)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment
        )
        imported, self.names = self._read()
        if Path(imported).resolve() != source:
            raise SystemExit(f"{source} was asked for, but {imported} was imported")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *about: object) -> None:
        self.process.stdin.close()  # no more cases: the worker ends
        self.process.wait()

    def time_case(self, name: str) -> list[float]:
        """Return the seconds of one call, turn by turn."""
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended with code {self.process.wait()}: see its error above")
        return json.loads(line)


def race(sources: Mapping[str, Path], n_rows: int, n_rounds: int) -> Times:
    """Let the versions take turns at each case, in new processes each round; return all times."""
    times: Times = {}
    for done in range(n_rounds):
        print(f"round {done + 1} of {n_rounds}", file=sys.stderr)
        order = list(sources) if done % 2 == 0 else list(sources)[::-1]
        with ExitStack() as stack:
            workers = {
                version: stack.enter_context(Worker(sources[version], n_rows)) for version in order
            }
            for name in workers["now"].names:
                found = times.setdefault(name, {version: [] for version in sources})
                for version, worker in workers.items():
                    found[version] += worker.time_case(name)
    return times


# ---- the report ------------------------------------------------------------------------------------------


def format_table(times: Times) -> Iterator[str]:
    """Yield the lines of a Markdown table, and how far log loss is from the plain NumPy line."""
    versions = list(next(iter(times.values())))
    compared = len(versions) > 1
    heads = ["call", "rows x classes", *(f"{version}, ms" for version in versions)]
    heads += ["now / before"] * compared
    yield f"| {' | '.join(heads)} |"
    yield f"| --- | --- |{' ---: |' * (len(heads) - 2)}"
    for name, by_version in times.items():
        call, size = name.split(" | ")
        cells = [f"`{call}`", size, *(_milliseconds(found) for found in by_version.values())]
        if compared:
            cells.append(f"{_ratio(by_version):.2f}")
        yield f"| {' | '.join(cells)} |"
    size = f"{LOG_LOSS_ROWS:,} x {CLASSES}"
    ours, plain = times[f"{LOG_LOSS} | {size}"], times[f"{NUMPY} | {size}"]
    ratios = [f"{min(ours[one]) / min(plain[one]):.2f} ({one})" for one in versions]
    yield f"\n`{LOG_LOSS}` / `{NUMPY}` at {size}: {', '.join(ratios)}."


def _milliseconds(seconds: list[float]) -> str:
    fastest, middle = 1e3 * min(seconds), 1e3 * median(seconds)
    digits = 1 if fastest >= 100 else 2 if fastest >= 1 else 4
    return f"{fastest:,.{digits}f} ({middle:,.{digits}f})"


def _ratio(by_version: Mapping[str, list[float]]) -> float:
    return min(by_version["now"]) / min(by_version["before"])


def describe(machine: Machine, n_rounds: int) -> str:
    """Return what the numbers are, and where they come from."""
    return (
        f"Fastest CPU time in ms, and in brackets the median; {n_rounds} rounds, 1 thread. "
        f"{machine.processor}; {machine.listed}."
    )


def make_content(
    options: argparse.Namespace, machine: Machine, sources: Mapping[str, Path], times: Times
) -> dict[str, Any]:
    """Return all numbers and where they come from, for the JSON file."""
    results = {
        name: {
            version: {
                "fastest_ms": 1e3 * min(seconds),
                "median_ms": 1e3 * median(seconds),
                "seconds": seconds,
            }
            for version, seconds in by_version.items()
        }
        for name, by_version in times.items()
    }
    return {
        "machine": asdict(machine),
        "setting": {"rows": options.rows, "rounds": options.rounds, "threads": 1},
        "sources": {version: str(source) for version, source in sources.items()},
        "results": results,
    }


def load_times(path: Path, n_rows: int) -> dict[str, list[float]]:
    """Return the times of an earlier file, by case; it must have the same number of rows."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = content["setting"]["rows"]
    if rows != n_rows:
        raise SystemExit(f"{path} was measured with {rows:,} rows: pass --rows {rows}")
    return {name: found["now"]["seconds"] for name, found in content["results"].items()}


# ---- the command -----------------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, help="JSON file to write, with versions and all times")
    add("--rows", type=int, default=1_000_000, help="rows of the large cases")
    add("--rounds", type=int, default=FEWEST_ROUNDS, help=f"at least {FEWEST_ROUNDS}")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--source", type=Path, help="src folder of the version before")
    either.add_argument("--against", type=Path, help="JSON file of an earlier run to compare with")
    options = parser.parse_args()
    if options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds is {options.rounds}: pass at least {FEWEST_ROUNDS}")
    if options.source and not (options.source / "refinecal").is_dir():
        parser.error(f"{options.source} has no folder refinecal: pass the src folder of a checkout")
    return options


def main() -> None:
    """Time every case, print a table, and write the results."""
    options = parse()
    if options.worker:
        serve(options.rows)
        return
    earlier = load_times(options.against, options.rows) if options.against else {}
    sources = {"before": options.source.resolve()} if options.source else {}
    sources["now"] = ROOT / "src"
    times = race(sources, options.rows, options.rounds)
    machine = with_libraries(LIBRARIES)
    if options.out:
        content = make_content(options, machine, sources, times)
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if earlier:
        times = {name: {"before": earlier[name]} | found for name, found in times.items()}
    print("\n".join([describe(machine, options.rounds), "", *format_table(times)]))


if __name__ == "__main__":
    main()
