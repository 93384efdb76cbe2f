"""Run what has not been run yet, one line of JSON per case, and write the page."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from benchmarks.one_command import __doc__ as about
from benchmarks.one_command.cases import run
from benchmarks.one_command.contestants import AUTOGLUON, BUDGETS, CONTESTANTS, OURS
from benchmarks.one_command.page import YARDSTICK, page, summary, times

RESULTS = Path(__file__).parents[1] / "results"
# On all cores, since their limit is of time; one split.
ALONE = (*AUTOGLUON, "pytabkit RealMLP-TD", *BUDGETS.values())


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser("python -m benchmarks.one_command", description=about)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of Parquet files, target last")
    add("--only", nargs="+", help="names of tables")
    add("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    add("--splits", type=int, default=2)
    add("--rows", type=int, default=20_000, help="larger tables are cut to this many rows")
    add("--threads", type=int, default=1, help="of each contestant")
    add("--workers", type=int, default=2, help="contestants that run at once")
    add("--python", nargs=2, action="append", default=[], metavar=("ENVIRONMENT", "PYTHON"))
    add("--time", action="store_true", help="ours and the yardstick only, one by one on all cores")
    add("--label", default="", help="what to add to the name of ours, such as ', before'")
    add("--out", type=Path, default=RESULTS, help="folder for one-command.jsonl and .md")
    return parser.parse_args()


def cases(options: argparse.Namespace) -> list[tuple[Path, int, str]]:
    """Return every split of every table and who is to see it, small tables first."""
    files = sorted(options.data.glob("*.parquet"), key=lambda file: file.stat().st_size)
    if options.only:
        files = [file for file in files if file.stem in options.only]
    return [
        (file, split, name)
        for split in range(options.splits)
        for name in options.contestants
        for file in files
        if split == 0 or name not in ALONE
    ]


def run_all(
    todo: list[tuple[Path, int, str]], one: Callable[..., dict[str, Any]], n_workers: int
) -> Iterator[dict[str, Any]]:
    """Run several contestants at once, then those that need the machine for themselves."""
    for alone in (False, True):
        some = [case for case in todo if (case[2] in ALONE) == alone]
        workers = Parallel(  # threads, each of which waits for a process
            n_jobs=1 if alone else n_workers, prefer="threads", return_as="generator_unordered"
        )
        yield from workers(delayed(one)(*case) for case in some)


def read(file: Path) -> list[dict[str, Any]]:
    """Return the cases that are done."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main() -> None:
    """Run, and write."""
    options = parse()
    pythons = dict(options.python)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.time:
        options.contestants, options.splits, options.workers = [*OURS, YARDSTICK], 1, 1
        options.threads = options.threads if options.threads > 1 else os.cpu_count() or 1
    files = [options.out / f"one-command{which}.jsonl" for which in ("", "-time")]
    results = [read(file) for file in files]
    done, file = results[options.time], files[options.time]
    seen = {(case["table"], case["split"], case["contestant"]) for case in done}

    def shown(name: str) -> str:
        return name + options.label if name in OURS else name

    def one(table: Path, split: int, name: str) -> dict[str, Any]:
        try:
            python = pythons.get(CONTESTANTS[name][0], sys.executable)
            threads = options.threads * (options.workers if name in ALONE else 1)
            found = run(table, split, name, python, options.rows, threads)
            return found | {"contestant": shown(name), "threads": threads}
        except Exception as error:  # one that fails must not end the others
            return {"error": f"{table.stem} {split} {name}: {error}"}

    todo = [case for case in cases(options) if (case[0].stem, case[1], shown(case[2])) not in seen]
    for case in run_all(todo, one, options.workers):
        if "error" in case:
            print(case["error"], file=sys.stderr, flush=True)
            continue
        with file.open("a") as lines:
            lines.write(json.dumps(case) + "\n")
        done.append(case)
        loss, seconds = case["log_loss"] / case["entropy"], case["seconds"]["fit"]
        where = f"{case['table']} {case['split']} {case['contestant']}"
        print(f"{where}: {loss:.4f}, {seconds:.1f} s", flush=True)
    (options.out / "one-command.md").write_text(page(*results, options), encoding="utf-8")
    print(times(done) if options.time else summary(done))


if __name__ == "__main__":
    main()
