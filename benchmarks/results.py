"""What was measured, and the numbers drawn from it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.contestants import FLOOR, OURS, WARM

ACCURATE = 1e-6  # nats above the best log loss that still count as solved


@dataclass(frozen=True)
class Case:
    """A size and a number of threads."""

    n: int
    k: int
    n_threads: int

    @property
    def size(self) -> str:
        """The size as people write it."""
        return f"{self.n:,} x {self.k:,}".replace(",", " ")

    @property
    def threads(self) -> str:
        """Such as "1 thread" or "2 threads"."""
        return f"{self.n_threads} thread" + "s" * (self.n_threads > 1)


@dataclass(frozen=True)
class Row:
    """One contestant in one case; without seconds, the note says why."""

    module: str
    name: str
    note: str = ""
    seconds: float | None = None
    n_fits: int = 0
    beta: float | None = None
    excess: float | None = None  # log loss above the best, in nats

    @property
    def is_accurate_rival(self) -> bool:
        """Whether this is a fit, not ours, that found the optimum."""
        rival = self.module not in (OURS, WARM, FLOOR)
        return rival and self.excess is not None and self.excess < ACCURATE


@dataclass(frozen=True)
class Result:
    """All contestants in one case, and the optimum they sought."""

    case: Case
    accuracy: float
    best_beta: float
    best_loss: float
    rows: Sequence[Row]

    def seconds(self, module: str) -> float | None:
        """Return the median time of one contestant, or None if it was not timed."""
        return next((row.seconds for row in self.rows if row.module == module), None)

    def ratio(self, module: str, to: str) -> float | None:
        """Return the time of one contestant over that of another."""
        time, unit = self.seconds(module), self.seconds(to)
        return None if time is None or unit is None else time / unit

    @property
    def fastest_accurate_rival(self) -> Row | None:
        """The rival to beat."""
        rivals = [row for row in self.rows if row.is_accurate_rival]
        return min(rivals, key=lambda row: row.seconds or 0.0, default=None)


@dataclass(frozen=True)
class Finding:
    """A target, the case it was judged on, and what became of it."""

    target: str
    case: str
    found: float
    reached: bool
    rival: str = ""


def findings(results: Sequence[Result], extra_bytes: int | None) -> list[Finding]:
    """Return every target that this run can judge; for speed, with one thread."""
    alone = [result for result in results if result.case.n_threads == 1]
    found = [*_against_rivals(alone), *_warm_starts(alone), *_against_floor(alone)]
    if extra_bytes is not None:
        megabytes = extra_bytes / 1e6
        target = "megabytes beyond the input, < 64"
        found.append(Finding(target, "1 000 000 x 100", megabytes, megabytes < 64))
    return found


def _against_rivals(results: Sequence[Result]) -> Iterator[Finding]:
    for result in results:
        rival = result.fastest_accurate_rival
        ratio = result.ratio(rival.module, to=OURS) if rival else None
        if rival and ratio is not None:
            target = "fastest accurate rival / ours, >= 20"
            yield Finding(target, result.case.size, ratio, ratio >= 20, rival.name)


def _warm_starts(results: Sequence[Result]) -> Iterator[Finding]:
    for result in results:
        ratio = result.ratio(WARM, to=OURS)
        if ratio is not None:
            target = "our warm start / our cold start, <= 0.6"
            yield Finding(target, result.case.size, ratio, ratio <= 0.6)


def _against_floor(results: Sequence[Result]) -> Iterator[Finding]:
    ratios = [result.ratio(OURS, to=FLOOR) for result in results]
    known = [ratio for ratio in ratios if ratio is not None]
    if known:
        mean = geometric_mean(known)
        target = "ours / one torch cross_entropy, geometric mean, <= 0.6"
        yield Finding(target, f"{len(known)} sizes", mean, mean <= 0.6)


def losses(results: Sequence[Result]) -> Iterator[tuple[Case, Row]]:
    """Yield every case in which another contestant is faster than our cold fit."""
    for result in results:
        for row in result.rows:
            ratio = result.ratio(row.module, to=OURS)
            if ratio is not None and ratio < 1 and row.module != WARM:
                yield result.case, row


def write(folder: Path, name: str, content: Mapping[str, Any], text: str) -> None:
    """Write name.json and name.md, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {f"{name}.json": json.dumps(content, indent=1) + "\n", f"{name}.md": text}
    for file, body in whole.items():
        beside = folder / f"{file}.part"
        beside.write_text(body, encoding="utf-8")
        os.replace(beside, folder / file)
