"""Time temperature scaling, ours and others': ``python -m benchmarks.run --help``."""

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.contestants import MODULES, OURS, Contestant, Task, load
from benchmarks.data import draw
from benchmarks.machine import this_machine
from benchmarks.memory import extra_bytes_elsewhere
from benchmarks.reference import Problem, log_loss, pose
from benchmarks.report import header, summary, table, write
from benchmarks.results import Case, Result, Row
from benchmarks.timing import Effort, Entrant, limit_threads, race

SMALL = ((2000, 2), (10_000, 2), (10_000, 10), (5000, 100))
LARGE = ((50_000, 10), (50_000, 1000))  # with all threads as well
SIZES = SMALL + LARGE
MEMORY_SIZE = (1_000_000, 100)

# At the largest size some rivals take a minute for a fit: they do one, on one thread.
FULL = Effort(seconds=1.5, most_rounds=101, patience=20.0)
QUICK = Effort(seconds=0.2, most_rounds=25, patience=1.0)

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run the cases asked for, print a table of each, and write the results."""
    options = parse_options()
    machine = this_machine()
    print(header(machine))
    contestants = {module: load(module) for module in options.only}
    results = []
    for result in run(options, contestants, machine.n_threads):
        print(table(result), flush=True)
        results.append(result)
    extra_bytes = None
    if options.memory and not isinstance(contestants.get(OURS, OURS), str):
        extra_bytes = extra_bytes_elsewhere(*MEMORY_SIZE)
    print(summary(results, extra_bytes))
    if options.out:
        write(options.out, results, machine, extra_bytes)
        print(f"\nWritten to {options.out}")


def run(
    options: argparse.Namespace,
    contestants: Mapping[str, Contestant | str],
    all_threads: int,
) -> Iterator[Result]:
    """Yield the result of every case, one thread first."""
    warm_up(contestants)
    effort = QUICK if options.quick else FULL
    for n, k in options.sizes:
        problem = pose(n, k)
        result = run_case(problem, Case(n, k, 1), contestants, effort)
        yield result
        if (n, k) in LARGE and all_threads > 1:
            slow = [row.module for row in result.rows if row.n_fits == 1]
            yield run_case(problem, Case(n, k, all_threads), contestants, effort, slow)


def warm_up(contestants: Mapping[str, Contestant | str]) -> None:
    """Let everybody do once what only a first fit does: import, compile, allocate."""
    sample = draw(500, 2)
    for contestant in contestants.values():
        if not isinstance(contestant, str):
            contestant.prepare(Task(sample.labels, sample.logits, 1))()


def run_case(
    problem: Problem,
    case: Case,
    contestants: Mapping[str, Contestant | str],
    effort: Effort,
    too_slow: Collection[str] = (),
) -> Result:
    """Return the times of all contestants on the same arrays, and their accuracy."""
    rows = {}
    entrants = {}
    n_threads = 1 if case.n_threads == 1 else None
    task = Task(problem.sample.labels, problem.sample.logits, n_threads)
    with limit_threads(case.n_threads):
        for module, contestant in contestants.items():
            if isinstance(contestant, str):
                rows[module] = Row(module, module, f"not installed ({contestant})")
            elif module in too_slow:
                note = f"over {effort.patience:g} s with one thread"
                rows[module] = Row(module, contestant.NAME, note)
            else:
                rows[module] = Row(module, contestant.NAME)
                entrants[module] = Entrant(contestant.prepare(task))
                entrants[module].plan(effort)
        race(entrants.values(), case.n_threads)
    for module, entrant in entrants.items():
        rows[module] = _measured(rows[module], entrant, problem)
    answer = (problem.accuracy, problem.best_beta, problem.best_loss)
    return Result(case, *answer, rows=list(rows.values()))


def _measured(row: Row, entrant: Entrant, problem: Problem) -> Row:
    """Return the row with what the entrant's turns gave."""
    excess = None
    if entrant.beta is not None:
        excess = log_loss(problem.sample, entrant.beta) - problem.best_loss
    return Row(row.module, row.name, "", entrant.seconds, entrant.n_fits, entrant.beta, excess)


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; a run that leaves things out writes nothing unless told."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer rounds, and no 50 000 x 1 000")
    add("--only", nargs="+", metavar="NAME", help="parts of contestants' file names")
    add("--sizes", nargs="+", type=_size, metavar="NxK", help="such as 5000x100")
    add("--out", type=Path, help="folder for the JSON and Markdown files")
    options = parser.parse_args(arguments)
    whole = not (options.quick or options.only or options.sizes)
    options.memory = whole
    options.out = options.out or (RESULTS if whole else None)
    options.sizes = options.sizes or (SIZES[:-1] if options.quick else SIZES)
    named = options.only or [""]
    options.only = [m for m in MODULES if any(part in m for part in named)]
    if not options.only:
        parser.error(f"--only {' '.join(named)} names none of {', '.join(MODULES)}")
    return options


def _size(text: str) -> tuple[int, int]:
    n, k = text.split("x")
    return int(n), int(k)


if __name__ == "__main__":
    main()
