"""The same measurements for a person, for the README and for programs."""

import json
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path

from benchmarks.contestants import OURS
from benchmarks.machine import Machine
from benchmarks.results import Finding, Result, Row, findings, losses

WIDTH = 79
RULE = "-" * WIDTH
COLUMNS = (
    f"{'name':<30}{'median ms':>11}{'ratio to':>13}{'log loss':>18}{'fits':>7}\n"
    f"{'':<30}{'':>11}{'refinecal':>13}{'above the best':>18}{'timed':>7}"
)


def header(machine: Machine) -> str:
    """Return processor, threads and versions."""
    wrapped = textwrap.wrap(machine.listed, WIDTH, break_on_hyphens=False)
    title = "Temperature scaling: the time of one whole fit, and how good its beta is"
    return "\n".join([title, "", machine.processor, *wrapped])


def table(result: Result) -> str:
    """Return one case as a table no wider than a terminal."""
    case = f"{result.case.size}, {result.case.threads}"
    about = f"accuracy {result.accuracy:.2f}, best beta {result.best_beta:.4f}"
    title = case + about.rjust(WIDTH - len(case))
    rows = [_line(row, result) for row in result.rows]
    return "\n".join(["", title, RULE, COLUMNS, RULE, *rows])


def _line(row: Row, result: Result) -> str:
    if row.seconds is None:
        return f"{row.name:<31}{textwrap.shorten(row.note, WIDTH - 31)}"
    return (
        f"{row.name:<30}{milliseconds(row.seconds):>11}"
        f"{plain(result.ratio(row.module, to=OURS)):>13}"
        f"{nats(row.excess):>18}{row.n_fits:>7}"
    )


def milliseconds(seconds: float) -> str:
    """Return milliseconds with about three digits: 0.0412, 3.14, 5 921."""
    return plain(1e3 * seconds)


def plain(number: float | None) -> str:
    """Return about three digits, without an exponent."""
    if number is None:
        return "-"
    decimals = sum(number < bound for bound in (100, 10, 1, 0.1))
    return f"{number:,.{decimals}f}".replace(",", " ")


def nats(excess: float | None) -> str:
    """Return an excess; what drowns in the rounding of float64 is zero."""
    if excess is None:
        return "-"
    return "0" if excess < 1e-15 else f"{excess:.0e}"


def summary(results: Sequence[Result], extra_bytes: int | None) -> str:
    """Return the targets with what was found, and the cases that we lose."""
    if all(result.seconds(OURS) is None for result in results):
        return "\nNo targets: refinecal took no part."
    lines = ["", "Targets (speed: one thread)", RULE]
    for target, group in groupby(findings(results, extra_bytes), lambda f: f.target):
        lines += [target, *(_finding(finding) for finding in group)]
    lines += ["", "Faster than our fit", RULE]
    lines += list(_losses(results)) or ["  nothing"]
    return "\n".join(lines)


def _finding(finding: Finding) -> str:
    verdict = "reached" if finding.reached else "MISSED"
    found = plain(finding.found)
    return f"  {finding.case:<20}{finding.rival:<31}{found:>15}{verdict:>11}"


def _losses(results: Sequence[Result]) -> Iterator[str]:
    for case, row in losses(results):
        where = f"{case.size}, {case.threads}"
        yield f"  {where:<30}{row.name:<30}{milliseconds(row.seconds or 0.0):>14} ms"


def targets(found: Iterable[Finding]) -> list[str]:
    """Return the lines of a table: every target, with what was found."""
    lines = ["| target | case | found | |", "| --- | --- | ---: | --- |"]
    for each in found:
        verdict = "reached" if each.reached else "**missed**"
        cells = (each.target, f"{each.case} {each.rival}".strip(), plain(each.found), verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def markdown(results: Sequence[Result], machine: Machine, extra_bytes: int | None) -> str:
    """Return one table per number of threads, then the targets, for the README."""
    parts = []
    for n_threads in sorted({result.case.n_threads for result in results}):
        parts += _markdown_table([r for r in results if r.case.n_threads == n_threads])
    found = findings(results, extra_bytes)
    parts += targets(replace(each, case=each.case.replace("x", "×", 1)) for each in found)
    return "\n".join([*parts, "", f"{machine.processor}; {machine.listed}.", ""])


def _markdown_table(results: Sequence[Result]) -> list[str]:
    """Return a row per contestant and a column per size: time, and ratio to ours."""
    cases = [result.case for result in results]
    sizes = " | ".join(case.size.replace("x", "×") for case in cases)
    lines = [
        f"Median milliseconds for one fit, {cases[0].threads} (ratio to refinecal):",
        "",
        f"| | {sizes} | worst log loss above the best |",
        "| --- " + "| ---: " * (len(cases) + 1) + "|",
    ]
    for rows in zip(*(result.rows for result in results), strict=True):
        cells = [_cell(row, result) for row, result in zip(rows, results, strict=True)]
        excesses = [row.excess for row in rows if row.excess is not None]
        worst = nats(max(excesses, default=None))
        lines.append(f"| {rows[0].name} | {' | '.join(cells)} | {worst} |")
    return [*lines, ""]


def _cell(row: Row, result: Result) -> str:
    if row.seconds is None:
        return row.note
    ratio = result.ratio(row.module, to=OURS)
    times = "" if ratio is None or row.module == OURS else f" ({plain(ratio)}×)"
    return milliseconds(row.seconds) + times


def write(
    folder: Path, results: Sequence[Result], machine: Machine, extra_bytes: int | None
) -> None:
    """Write temperature.json and temperature.md, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": asdict(machine),
        "results": [asdict(result) for result in results],
        "findings": [asdict(finding) for finding in findings(results, extra_bytes)],
    }
    _replace(folder / "temperature.json", json.dumps(content, indent=1) + "\n")
    _replace(folder / "temperature.md", markdown(results, machine, extra_bytes))


def _replace(path: Path, text: str) -> None:
    """Write beside the file, then rename: a reader never sees half of it."""
    beside = path.with_suffix(path.suffix + ".part")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
