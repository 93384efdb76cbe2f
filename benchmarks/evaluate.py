"""Time ``refinecal evaluate`` beside pandas' reading of the file: ``python -m benchmarks.evaluate --help``.

A Parquet file of probabilities is written to a temporary folder. pandas reads it, refinecal reads and
evaluates it, in turns: within one process, where everything is imported and compiled, and as whole processes,
where the imports of both count.
"""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from benchmarks.machine import Machine, with_libraries
from benchmarks.report import WIDTH, plain
from benchmarks.results import Finding, write
from benchmarks.timing import PAUSE_SECONDS
from refinecal.evaluation import Evaluation, evaluate
from refinecal.tabular.predictions import read_predictions

SIZES = {"whole": (1_000_000, 10), "quick": (100_000, 10)}
COMMAND = "refinecal evaluate FILE --target y --json"
PANDAS_PROCESS = "import sys, pandas; pandas.read_parquet(sys.argv[1])"
LIMIT = 3.0

RESULTS = Path(__file__).parent / "results"

Ways = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Result:
    """The seconds of pandas and of refinecal, turn by turn."""

    case: str
    pandas: list[float]
    ours: list[float]

    @property
    def ratio(self) -> float:
        """The ratio of the medians."""
        return median(self.ours) / median(self.pandas)

    @property
    def best_ratio(self) -> float:
        """The ratio of the fastest turns: that of a machine left alone."""
        return min(self.ours) / min(self.pandas)


def write_predictions(path: Path, n: int, k: int) -> None:
    """Draw labels and over-confident probabilities with a seed."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((n, k))
    labels = (truth + rng.gumbel(size=(n, k))).argmax(axis=1)
    odds = np.exp(2 * truth)
    columns = (odds / odds.sum(axis=1, keepdims=True)).T
    frame = pd.DataFrame({str(j): column for j, column in enumerate(columns)})
    frame.assign(y=labels).to_parquet(path)


def read_and_evaluate(path: Path) -> Evaluation:
    """Do what the command does, but for printing."""
    found = read_predictions(path, "y")
    return evaluate(
        found.labels, **found.arguments, classes=range(len(found.classes)), names=found.classes
    )


def within_process(path: Path) -> Ways:
    """Return what is timed in this process."""
    return {"pandas": lambda: pd.read_parquet(path), "ours": lambda: read_and_evaluate(path)}


def as_processes(path: Path, command: str) -> Ways:
    """Return what is timed as processes of their own."""
    words = [str(path) if word == "FILE" else word for word in shlex.split(command)]
    beside = Path(sys.executable).with_name(words[0])
    words[0] = str(beside) if beside.exists() else words[0]

    def run(arguments: list[str]) -> None:
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)

    reading = [sys.executable, "-c", PANDAS_PROCESS, str(path)]
    return {"pandas": lambda: run(reading), "ours": lambda: run(words)}


def take_turns(case: str, ways: Ways, repeats: int) -> Result:
    """Time both in turns, so that a busy machine disturbs them alike."""
    for way in ways.values():
        way()  # what only a first time does: compile, fill the file cache
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            time.sleep(PAUSE_SECONDS)
            start = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
    return Result(case, times["pandas"], times["ours"])


# ---- the report ------------------------------------------------------------------------------------------


def findings(results: Sequence[Result]) -> list[Finding]:
    """Return the target with what was found."""
    target = f"refinecal evaluate / pandas.read_parquet, <= {LIMIT:.0f}"
    return [Finding(target, one.case, one.ratio, one.ratio <= LIMIT) for one in results]


def table_of(results: Sequence[Result]) -> str:
    """Return the times as a table no wider than a terminal."""
    lines = [
        "",
        f"{'':<27}{'pandas s':>12}{'refinecal s':>14}{'ratio':>10}{'of fastest':>14}",
        "-" * WIDTH,
    ]
    for one in results:
        seconds = f"{median(one.pandas):>12.3f}{median(one.ours):>14.3f}"
        lines.append(f"{one.case:<27}{seconds}{one.ratio:>10.2f}{one.best_ratio:>14.2f}")
    for finding in findings(results):
        verdict = "reached" if finding.reached else "MISSED"
        lines += [
            "",
            finding.target,
            f"  {finding.case:<40}{plain(finding.found):>20}{verdict:>15}",
        ]
    return "\n".join(lines)


def page(results: Sequence[Result], size: str, command: str, machine: Machine) -> str:
    """Return the results as Markdown."""
    repeats = len(results[0].ours)
    lines = [
        f"`python -m benchmarks.evaluate`: {size} float64 probabilities in a Parquet file, "
        f"{machine.n_threads} threads; median seconds of {repeats} turns, and in brackets the fastest. Whole "
        "processes are "
        f"`python -c 'import pandas; pandas.read_parquet(...)'` and `{command}`.",
        "",
        "| | pandas.read_parquet | refinecal | ratio | of the fastest | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for one, finding in zip(results, findings(results), strict=True):
        verdict = f"at most {LIMIT:.0f}: " + ("reached" if finding.reached else "**missed**")
        cells = [
            _seconds(one.pandas),
            _seconds(one.ours),
            f"{one.ratio:.2f}",
            f"{one.best_ratio:.2f}",
        ]
        lines.append(f"| {one.case} | {' | '.join(cells)} | {verdict} |")
    return "\n".join([*lines, "", f"{machine.processor}; {machine.listed}.", ""])


def _seconds(times: list[float]) -> str:
    return f"{median(times):.3f} ({min(times):.3f})"


def main() -> None:
    """Time both ways, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="100 000 rows; writes nothing unless told")
    add("--repeats", type=int, default=15, help="how many turns each takes")
    add("--command", default=COMMAND, help="the whole command; FILE is replaced. Empty: not timed")
    add("--out", type=Path, help="folder for the JSON and Markdown files")
    options = parser.parse_args()
    machine = with_libraries(("pandas", "pyarrow"))
    n, k = SIZES["quick" if options.quick else "whole"]
    size = f"{n:,} x {k}".replace(",", " ")
    print(
        f"{size} probabilities; {machine.processor}, {machine.n_threads} threads\n{machine.listed}"
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.parquet"
        write_predictions(path, n, k)
        results = [take_turns("within one process", within_process(path), options.repeats)]
        if options.command:
            ways = as_processes(path, options.command)
            results.append(take_turns("whole processes", ways, options.repeats))
    print(table_of(results))
    out = options.out or (None if options.quick else RESULTS)
    if out:
        content = {
            "machine": asdict(machine),
            "setting": {"n": n, "k": k, "repeats": options.repeats, "command": options.command},
            "results": [asdict(result) for result in results],
            "findings": [asdict(finding) for finding in findings(results)],
        }
        write(out, "evaluate", content, page(results, size, options.command, machine))
        print(f"\nWritten to {out}")


if __name__ == "__main__":
    main()
