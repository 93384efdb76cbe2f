"""The results as Markdown: means over tables with intervals, calibration, promises, time, all losses."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost as xgb
from scipy import stats

from benchmarks.machine import this_machine
from benchmarks.one_command.contestants import (
    AUTOGLUON,
    BUDGETS,
    CONTESTANTS,
    FOLDS,
    OURS,
    PATIENCE,
    ROUNDS,
)

Cases = list[dict[str, Any]]
YARDSTICK = "five XGBoost lr 0.1"
LARGE = 10_000  # training rows from which time is compared


def names_of(done: Cases) -> list[str]:
    """Return the contestants, ours first and their earlier versions behind them."""
    found = {case["contestant"] for case in done}
    earlier = sorted(found - set(CONTESTANTS))
    order = [name for ours in OURS for name in [ours, *(e for e in earlier if e.startswith(ours))]]
    return [name for name in [*order, *list(CONTESTANTS)[len(OURS) :]] if name in found]


def by_table(done: Cases, name: str, value: Callable[[dict[str, Any]], float]) -> dict[str, float]:
    """Return a value of a contestant on each table: the mean over its splits."""
    found: dict[str, list[float]] = {}
    for case in done:
        if case["contestant"] == name:
            found.setdefault(case["table"], []).append(value(case))
    return {table: float(np.mean(values)) for table, values in found.items()}


def loss_of(case: dict[str, Any]) -> float:
    """Return the log loss divided by the entropy of the labels."""
    return float(case["log_loss"] / case["entropy"])


def differences(
    done: Cases, name: str, other: str, value: Callable[[dict[str, Any]], float] = loss_of
) -> np.ndarray:
    """Return the values of one contestant minus those of another, on the tables and splits of both."""
    pairs: dict[str, list[float]] = {}
    theirs = {
        (case["table"], case["split"]): value(case) for case in done if case["contestant"] == other
    }
    for case in done:
        where = (case["table"], case["split"])
        if case["contestant"] == name and where in theirs:
            pairs.setdefault(case["table"], []).append(value(case) - theirs[where])
    return np.array([np.mean(values) for values in pairs.values()])


def interval(values: np.ndarray) -> str:
    """Return a mean with its 95 % interval (Student's t), in hundredths."""
    if len(values) < 2:
        return "–"
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    mean = values.mean()
    return f"{100 * mean:+.2f} ({100 * (mean - half):+.2f} to {100 * (mean + half):+.2f})"


def summary(done: Cases) -> str:
    """Return one line per contestant."""
    lines = [
        f"| | tables | loss | Brier | against {YARDSTICK} | better on | β within noise of 1 | promise kept | "
        f"time, {LARGE:,} rows and more | time, fewer | predict, s |",
        "| --- |" + " ---: |" * 10,
    ]
    for name in names_of(done):
        tables = by_table(done, name, loss_of)
        against = differences(done, name, YARDSTICK)
        is_it = name == YARDSTICK
        level, brier = (
            np.mean(list(by_table(done, YARDSTICK, value).values()))
            + np.mean(differences(done, name, YARDSTICK, value))
            for value in (loss_of, lambda case: float(case["brier"]))
        )
        cells = [
            name,
            str(len(tables)),
            f"{level:.4f}",
            f"{brier:.4f}",
            "" if is_it else interval(against),
            "" if is_it else f"{np.sum(against < 0)} of {len(against)}",
            part(done, name, calibrated),
            part(done, name, kept),
            *(ratio(done, name, large) for large in (True, False)),
            f"{np.median([c['cpu']['predict'] for c in done if c['contestant'] == name]):.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def calibrated(case: dict[str, Any]) -> bool | None:
    """Tell whether the best inverse temperature for new rows is 1 within 1.96 standard errors."""
    return bool(abs(case["beta"] - 1) <= 1.96 * case["beta_error"])


def kept(case: dict[str, Any]) -> bool | None:
    """Tell whether the promised loss is that on new rows, within 1.96 standard errors."""
    promised = case["promised"]
    if not np.isfinite(promised.get("error", np.nan)):
        return None
    error = np.hypot(promised["error"], case["log_loss_error"])
    return bool(abs(promised["loss"] - case["log_loss"]) <= 1.96 * error)


def part(done: Cases, name: str, holds: Callable[[dict[str, Any]], bool | None]) -> str:
    """Return on what part of the cases something holds."""
    found = [holds(case) for case in done if case["contestant"] == name]
    known = [each for each in found if each is not None]
    return f"{np.mean(known):.0%}" if known else "–"


def ratio(done: Cases, name: str, large: bool) -> str:
    """Return the median of fit times relative to the yardstick's, in processor time, and the longest fit."""
    theirs = {
        (case["table"], case["split"]): case["cpu"]["fit"]
        for case in done
        if case["contestant"] == YARDSTICK
    }
    ours = [
        case
        for case in done
        if case["contestant"] == name
        and (case["n_train"] >= LARGE) == large
        and (case["table"], case["split"]) in theirs
    ]
    if not ours:
        return "–"
    ratios = [case["cpu"]["fit"] / theirs[case["table"], case["split"]] for case in ours]
    return f"{np.median(ratios):.1f} × (most {max(ratios):.1f})"


def times(timed: Cases) -> str:
    """Return the time of day that ours and the yardstick take, on all cores, by size of the table."""
    cells = [
        (
            f"{name}, {how}",
            [
                _times(timed, name, key, sizes)
                for sizes in ((0, 2500), (2500, LARGE), (LARGE, np.inf))
            ],
        )
        for name in (*OURS, YARDSTICK)
        for key, how in (("whole", "whole process"), ("fit", "fit alone"))
        if not (name == OURS[0] and key == "fit")
    ]
    lines = [
        f"| seconds, median (most) | up to 2,500 rows | to {LARGE:,} | more | × yardstick, more |",
        "| --- |" + " ---: |" * 4,
    ]
    lines += [
        f"| {name} | {' | '.join(sizes)} | {_time_ratio(timed, *name.rsplit(', ', 1))} |"
        for name, sizes in cells
    ]
    return "\n".join(lines)


def _times(timed: Cases, name: str, key: str, sizes: tuple[float, float]) -> str:
    found = [
        case["seconds"][key]
        for case in timed
        if case["contestant"] == name and sizes[0] <= case["n_train"] < sizes[1]
    ]
    return f"{np.median(found):.1f} ({max(found):.1f})" if found else "–"


def _time_ratio(timed: Cases, name: str, how: str) -> str:
    key = "whole" if how == "whole process" else "fit"
    theirs = {c["table"]: c["seconds"][key] for c in timed if c["contestant"] == YARDSTICK}
    ours = [c for c in timed if c["contestant"] == name and c["n_train"] >= LARGE]
    ratios = [c["seconds"][key] / theirs[c["table"]] for c in ours if c["table"] in theirs]
    return f"{np.median(ratios):.1f} (most {max(ratios):.1f})" if ratios else "–"


def details(done: Cases) -> str:
    """Return the losses on every table: of the first split, which all contestants have seen."""
    done = [case for case in done if case["split"] == 0]
    names = names_of(done)
    tables = sorted({case["table"] for case in done})
    losses = {name: by_table(done, name, loss_of) for name in names}
    lines = [f"| | {' | '.join(names)} |", "| --- |" + " ---: |" * len(names)]
    for table in tables:
        values = [losses[name].get(table, np.nan) for name in names]
        best = np.nanmin(values)
        cells = ["" if np.isnan(v) else f"**{v:.4f}**" if v == best else f"{v:.4f}" for v in values]
        lines.append(f"| {table} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _budget_section(done: Cases) -> list[str]:
    """Return how the pools of several kinds compare with AutoGluon and RealMLP."""
    done = [case for case in done if case["split"] == 0]
    others = [name for name in (*AUTOGLUON, "pytabkit RealMLP-TD") if by_table(done, name, loss_of)]
    lines = [
        "| | against | tables | loss | theirs | difference | better on | fit, s (most) | theirs "
        "| predict, s | theirs |",
        "| --- | --- |" + " ---: |" * 9,
    ]
    for name in BUDGETS.values():
        ours = by_table(done, name, loss_of)
        for other in others:
            theirs = by_table(done, other, loss_of)
            both = sorted(ours.keys() & theirs.keys())
            if not both:
                continue
            change = differences(done, name, other)
            seconds = []
            for each in (name, other):
                found = by_table(done, each, lambda case: float(case["seconds"]["fit"]))
                times = [found[table] for table in both]
                seconds.append(f"{np.median(times):.0f} ({max(times):.0f})")
            means = [f"{np.mean([each[table] for table in both]):.4f}" for each in (ours, theirs)]
            wins = f"{np.sum(change < 0)} of {len(change)}"
            for each, what in ((name, "predict"), (other, "predict_process")):
                found = by_table(
                    done, each, lambda case, what=what: float(case["seconds"].get(what, np.nan))
                )
                known = [found[table] for table in both if not np.isnan(found[table])]
                seconds.append(f"{np.median(known):.1f}" if known else "")
            cells = [name, other, str(len(both)), *means, interval(change), wins, *seconds]
            lines.append(f"| {' | '.join(cells)} |")
    text = (
        "`fit --model auto` within a time limit, one at a time on all cores, on the first split: loss and "
        "difference as above, wall time of the fit (median and most; ours includes the start of Python and "
        "the report). RealMLP has no time limit. New rows are predicted by a separate process, which "
        "starts Python and loads the models (median, where it is known)."
    )
    return [text, "\n".join(lines)] if len(lines) > 2 else []


def _time_section(timed: Cases) -> list[str]:
    if not timed:
        return []
    n, threads = len({case["table"] for case in timed}), timed[0]["threads"]
    text = (
        f"Time of day (`--time`): {n} tables, first split, one contestant at a time on {threads} cores. A "
        "whole process includes the start of Python, imports and reading the table, and for `refinecal fit` "
        "the report."
    )
    return [text, times(timed)]


def page(done: Cases, timed: Cases, options: Namespace) -> str:
    """Return everything as Markdown."""
    tables = len({case["table"] for case in done})
    splits = len({case["split"] for case in done})
    machine = this_machine()
    text = [
        "# One command against its rivals",
        f"`make one-command DATA=folder`: {tables} tables of at most {options.rows:,} rows, a quarter "
        f"of which are new rows; {splits} splits (AutoGluon, pytabkit's averages and the slowest "
        "tables: 1). Loss is the log loss on new rows divided by the entropy of their labels: 0 is "
        f"perfect, 1 knows nothing. Differences to {YARDSTICK} are in hundredths of that entropy, on "
        "the same tables and splits, with a 95% interval over tables (Student's t); negative is "
        "better. Loss and Brier are those of the yardstick plus the mean difference, so that "
        "contestants with fewer splits compare.",
        "β is the inverse temperature that would have been best for the new rows. A promise is the "
        "log loss that a contestant says to expect, with its standard error: kept if the loss on new "
        "rows is within 1.96 standard errors of the difference. Time is processor time of the fit, "
        f"one thread, relative to that of {YARDSTICK} (median and most), and that of predicting the "
        "new rows (median, seconds); `refinecal fit` includes the start of Python, reading the file "
        "and writing the report.",
        f"Plain boosters: {FOLDS} folds, at most {ROUNDS:,} rounds, early stopping after {PATIENCE}; "
        "0.1 is LightGBM's default rate. pytabkit: one model with its defaults, which stops on "
        "classification error, and five that stop on cross-entropy, averaged. AutoGluon has all cores "
        "for 60 seconds. *Before* is refinecal as it was before it averaged at every size and used "
        "every row.",
        summary(done),
        *_budget_section(done),
        *_time_section(timed),
        "By table, on the first split, the best in bold:",
        details(done),
        f"{machine.processor}; {machine.listed}, xgboost {xgb.__version__}.",
    ]
    return "\n\n".join(text) + "\n"
