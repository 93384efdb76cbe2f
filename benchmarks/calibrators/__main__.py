"""Calibrators on real predictions: ``python -m benchmarks.calibrators --help``."""

import argparse
import os
from pathlib import Path

from benchmarks.calibrators import figure, judge, page, predictions, speed, summary
from benchmarks.calibrators.models import MODELS

RESULTS = Path(__file__).parent.parent / "results"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, one sub-command per part."""
    whole = argparse.ArgumentParser(prog="python -m benchmarks.calibrators", description=__doc__)
    parts = whole.add_subparsers(required=True)
    part = parts.add_parser("predict", help="train models on tables and store what they say")
    part.set_defaults(run=predictions.run)
    part.add_argument(
        "--data", type=Path, required=True, help="folder of Parquet files, target last"
    )
    part.add_argument("--out", type=Path, required=True, help="folder for the predictions")
    part.add_argument("--only", nargs="+", help="names of tables")
    part.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    part.add_argument("--rows", type=int, default=64_000, help="most training rows")
    part.add_argument("--steps", type=int, help="most rounds or epochs")
    part = parts.add_parser("judge", help="fit and judge calibrators on stored predictions")
    part.set_defaults(run=judge.run)
    part.add_argument("--predictions", type=Path, required=True, help="folder that predict wrote")
    part.add_argument(
        "--judged", type=Path, required=True, help="folder for the losses of the rows"
    )
    part.add_argument("--only", nargs="+", help="names of methods, such as 'refinecal auto'")
    part.add_argument("--paper", action="store_true", help="the methods of the paper's figures")
    part.add_argument("--again", action="store_true", help="also what has been judged before")
    part.add_argument("--tables", nargs="+", help="names of tables")
    part.add_argument("--workers", type=int, default=1, help="processes; times are best with one")
    part.add_argument("--verbose", action="store_true", help="a line per method, not per case")
    part = parts.add_parser("report", help="write the tables and figures of what was judged")
    part.set_defaults(run=report)
    part.add_argument("--judged", type=Path, required=True, help="folder that judge wrote")
    part.add_argument("--out", type=Path, default=RESULTS, help="folder for calibrators.md ...")
    part = parts.add_parser("paper", help="write the paper's figures 4 and D.1 of what was judged")
    part.set_defaults(run=paper)
    part.add_argument("--judged", type=Path, required=True, help="folder that judge wrote")
    part.add_argument("--out", type=Path, default=RESULTS, help="folder for figure-4.svg ...")
    part = parts.add_parser("speed", help="race against calibrators and metrics of the same kind")
    part.set_defaults(run=speed.run)
    part.add_argument("--only", nargs="+", help="such as 'refinecal venn-abers' or smooth_ece")
    part.add_argument("--most-rows", type=int, default=100_000)
    part.add_argument("--quick", action="store_true", help="once each, to see that all run")
    part.add_argument("--out", type=Path, default=RESULTS)
    return whole


def report(options: argparse.Namespace) -> None:
    """Write calibrators.json, .md and the figures."""
    found = summary.read(options.judged)
    options.out.mkdir(parents=True, exist_ok=True)
    figures = figure.save(found, options.out, "calibrators")
    write(options.out / "calibrators.json", summary.to_json(found))
    write(options.out / "calibrators.md", page.page(found, figures))


def paper(options: argparse.Namespace) -> None:
    """Write figures 4 and D.1 of the paper, and their numbers."""
    found = summary.read(options.judged)
    options.out.mkdir(parents=True, exist_ok=True)
    figures = figure.save_paper(found, options.out)
    write(options.out / "temperature-paper.md", page.paper_page(found, figures))


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def main() -> None:
    """Run the part asked for."""
    options = parser().parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # all contestants alike; refinecal reads it at every call
    options.run(options)


if __name__ == "__main__":
    main()
