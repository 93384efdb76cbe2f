"""How far a call travels through the package: files, functions, calls and depth.

python tests/call_trace.py            a table of typical calls
python tests/call_trace.py --files    and the files of each

Functions are those written in Python; what Numba has compiled calls others unseen. Comprehensions belong to
the function they are in. Only the calling thread is traced. Every call is warm: it is made once before, so
that imports and compilation do not count.
"""

import argparse
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

import refinecal as rc

PACKAGE = Path(rc.__file__).parent
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


@dataclass(frozen=True)
class Trace:
    """The files that a call passes through, and how many functions, calls and levels there are."""

    files: list[str]
    n_functions: int
    n_calls: int
    depth: int


def trace(call: Callable[[], object], folder: Path = PACKAGE) -> Trace:
    """Make a call, and count what it runs of the code in the folder."""
    prefix = f"{folder}{os.sep}"
    functions: dict[tuple[str, int, str], int] = {}  # calls by file, line and name
    depth = deepest = 0

    def count_call(frame, event, _):
        nonlocal depth, deepest
        code = frame.f_code
        if event not in ("call", "return") or not is_function(code, prefix):
            return
        if event == "return":
            depth -= 1
            return
        depth += 1
        deepest = max(depth, deepest)
        key = (code.co_filename, code.co_firstlineno, code.co_qualname)
        functions[key] = functions.get(key, 0) + 1

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        call()
    finally:
        sys.setprofile(before)
    files = {Path(file).relative_to(folder).as_posix() for file, *_ in functions}
    return Trace(sorted(files), len(functions), sum(functions.values()), deepest)


def is_function(code, prefix):
    """Tell whether code is a function's of that folder, not a module's, a class's or a comprehension's."""
    return (
        code.co_filename.startswith(prefix)
        and code.co_flags & inspect.CO_OPTIMIZED
        and code.co_name not in COMPREHENSIONS
    )


def trace_warm(call: Callable[[], object]) -> Trace:
    """Trace the second of two calls."""
    call()
    return trace(call)


# ---- typical calls ---------------------------------------------------------------------------------------


def draw(n=300, k=3):
    """Draw labels, logits and probabilities."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, k))
    labels = (logits + rng.gumbel(size=(n, k))).argmax(axis=1)
    odds = np.exp(2 * logits)
    return labels, 2 * logits, odds / odds.sum(axis=1, keepdims=True)


def make_core_calls():
    """Return calls of functions, by name."""
    y, z, probs = draw()
    monitor = rc.RefinementMonitor()
    return {
        "decompose(y, logits=z)": lambda: rc.decompose(y, logits=z),
        "RefinementMonitor.update": lambda: monitor.update(y, logits=z),
        "metrics.log_loss(y, probs)": lambda: rc.metrics.log_loss(y, probs),
        "metrics.ece(y, probs)": lambda: rc.metrics.ece(y, probs),
    }


def make_training_calls(folder):
    """Return calls that train, by name; their files are in the folder."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    from refinecal.cli import main

    y, z, _ = draw()
    table = folder / "table.csv"
    np.savetxt(table, np.column_stack([z, y]), "%g", ",", header="a,b,c,y", comments="")
    numbers = count()
    tiny = HistGradientBoostingClassifier(max_leaf_nodes=4, learning_rate=0.5)
    model = rc.RefineThenCalibrateClassifier(tiny, max_steps=50, patience=3, random_state=0)

    def fit_table():
        out = folder / f"run-{next(numbers)}"
        options = ["--target", "y", "--out", out, "--threads", 1, "--max-steps", 10]
        run_command(main, "fit", table, *options)

    return {
        "RefineThenCalibrateClassifier.fit": lambda: model.fit(z, y),
        "refinecal fit table.csv": fit_table,
    }


def run_command(main, *words):
    """Run the command line in this process; show what it printed only if it fails."""
    printed = StringIO()
    with (
        patch.object(sys, "argv", ["refinecal", *map(str, words)]),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(printed.getvalue()) from end


# ---- the command -----------------------------------------------------------------------------------------


def format_table(traces, with_files):
    """Return the traces as Markdown."""
    lines = ["| call | files | functions | calls | depth |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, one in traces.items():
        numbers = (len(one.files), one.n_functions, one.n_calls, one.depth)
        lines.append(f"| `{name}` | {' | '.join(f'{number:,}' for number in numbers)} |")
    if with_files:
        for name, one in traces.items():
            lines += ["", f"{name}:", *(f"  {file}" for file in one.files)]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", action="store_true", help="list the files of each call")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # all work in the thread that is traced
    with TemporaryDirectory() as folder:
        calls = make_core_calls() | make_training_calls(Path(folder))
        traces = {name: trace_warm(call) for name, call in calls.items()}
    print(format_table(traces, options.files))


if __name__ == "__main__":
    main()
