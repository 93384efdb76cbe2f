"""Races of calibrators and metrics of the same kind: ``python -m benchmarks.calibrators speed``.

Made data, one thread, rounds interleaved, medians. Calibrators fit as many rows as they then predict.
"""

import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

import numpy as np
from sklearn.isotonic import IsotonicRegression

from benchmarks import results
from benchmarks.calibrators.contestants import OURS, Method, Part, methods, missing
from benchmarks.calibrators.judge import row_losses
from benchmarks.calibrators.metrics import Contest, Turn, metric_contests
from benchmarks.calibrators.page import LIBRARIES, same, table
from benchmarks.data import draw
from benchmarks.machine import with_libraries
from benchmarks.timing import Effort, Entrant, limit_threads, race

SIZES = ((1_000, 2), (10_000, 2), (100_000, 2), (1_000, 10), (10_000, 10))
EFFORT = Effort(seconds=1.0, most_rounds=40, patience=3.0)
QUICK = Effort(seconds=0.0, most_rounds=1, patience=0.0)
PLAIN = "scikit-learn IsotonicRegression"
LARGE = 100_000  # the size at which the smooth calibration error is to be much faster


def asked(what: str, rival: str, n: int) -> float:
    """Return by how much we are to be faster than a rival: the issue's bounds, else 1."""
    if what == f"{OURS} structured-matrix" and rival == "probmetrics sms":
        return 5.0
    if what == "smooth_ece" and n >= LARGE:
        return 10.0
    if what == f"{OURS} venn-abers" and rival == PLAIN:
        return 1 / 5  # at most five times slower
    return 1.0


@dataclass(frozen=True)
class Time:
    """The median time of one contestant, or why there is none."""

    seconds: float | None
    n_runs: int = 0
    value: float | None = None  # of a metric; of a calibrator, its log loss on the rows predicted
    error: str = ""


@dataclass(frozen=True)
class Race:
    """What was raced, on what size, ours against theirs."""

    what: str
    n: int
    k: int
    ours: Time
    rivals: dict[str, Time] = field(default_factory=dict)

    def ratios(self) -> Iterator[tuple[str, float, float]]:
        """Yield each rival, its time over ours, and what is asked of that."""
        for name, time in self.rivals.items():
            if time.seconds and self.ours.seconds:
                ratio = time.seconds / self.ours.seconds
                yield name, ratio, asked(self.what, name, self.n)


def plain_isotonic(part: Part) -> Callable[[Part], np.ndarray]:
    """Fit scikit-learn's isotonic regression itself, without the estimator around it."""
    fitted = IsotonicRegression(out_of_bounds="clip").fit(part.probs[:, 1], part.labels)
    return lambda new: np.asarray(fitted.predict(new.probs[:, 1]))


def run_race(contest: Contest, effort: Effort) -> Race:
    """Let all take turns; the first is ours."""
    entrants: dict[str, Entrant] = {}
    found: dict[str, Time] = {}
    for name, turn in contest.turns.items():
        entrant = Entrant(turn)
        try:
            if not entrants:
                turn()  # ours may have to compile, which can take longer than the patience
            entrant.plan(effort)
        except Exception as error:  # a rival may fail in any way, and the table says so
            found[name] = Time(None, error=f"{type(error).__name__}: {error}"[:200])
        else:
            entrants[name] = entrant
    race(list(entrants.values()), n_threads=1)
    for name, each in entrants.items():  # what a turn returned is kept where others keep beta
        found[name] = Time(each.seconds, each.n_fits, contest.value_of(each.beta))
    ours, *rivals = contest.turns
    return Race(
        contest.what, contest.n, contest.k, found[ours], {name: found[name] for name in rivals}
    )


def calibrator_contests(sizes: Sequence[tuple[int, int]]) -> Iterator[Contest]:
    """Yield the contestants of every calibrator of ours at every size, ours first."""
    known = dict(methods())
    for n, k in sizes:
        val, test = (_part(n, k, seed) for seed in (0, 1))
        for ours in (name for name in known if name.startswith(OURS)):
            names = [ours, *(name for name in known if same(name) == ours)]
            turns = {name: _turn(known[name], val, test) for name in names}
            if k == 2 and ours in (f"{OURS} isotonic", f"{OURS} venn-abers"):
                turns[PLAIN] = _turn(plain_isotonic, val, test)
            yield Contest(ours, n, k, turns, partial(_log_loss, test.labels))


def _log_loss(labels: np.ndarray, probs: np.ndarray) -> float:
    two = np.stack([1 - probs, probs], axis=1) if probs.ndim == 1 else probs
    return float(row_losses(labels, two)[0].mean())


def _part(n: int, k: int, seed: int) -> Part:
    sample = draw(n, k, seed)
    part = Part(sample.logits, sample.labels)
    _ = part.probs  # made before the clock starts
    return part


def _turn(method: Method, val: Part, test: Part) -> Turn:
    return lambda: method(val)(test)


def page(races: Sequence[Race]) -> str:
    """Return the races as Markdown, those that we lose first."""
    lost = [line for each in races for line in _lines(each, only_lost=True)]
    machine = with_libraries((*LIBRARIES, "relplot", "torchmetrics"))
    head = [
        "what",
        "n x k",
        "rival",
        "ours, ms",
        "rival, ms",
        "rival / ours",
        "asked",
        "value above ours",
    ]
    alone = sorted({each.what for each in races if not each.rivals})
    text = [
        "# Calibrators and metrics: speed",
        "`make bench`: made data, one thread, rounds interleaved, medians. A calibrator fits n rows and "
        "predicts n others; its value is the log loss on these. Ratios are the rival's time over ours: "
        "above 1, we are faster. Asked is 1, but 5 of structured matrix scaling against probmetrics', "
        "10 of the smooth calibration error against relplot at n = 100 000, and 1/5 of Venn-Abers "
        "against plain isotonic regression.",
        "## Short of what was asked",
        table(head, iter(lost), 3) if lost else "Nothing.",
        "## All races",
        table(head, (line for each in races for line in _lines(each)), 3),
        f"No other package has: {', '.join(alone) or 'none'}.",
        f"{machine.processor}; {machine.listed}.",
    ]
    if absent := missing():
        text.append(f"Not installed: {', '.join(absent.values())}.")
    return "\n\n".join(text) + "\n"


def _lines(each: Race, only_lost: bool = False) -> Iterator[list[str]]:
    """Yield the line of every rival in a race."""
    start = [each.what, f"{each.n} x {each.k}"]
    ratios = {name: (ratio, least) for name, ratio, least in each.ratios()}
    for name, time in each.rivals.items():
        if name in ratios:
            ratio, least = ratios[name]
            if not only_lost or ratio < least:
                times = [f"{1000 * (t.seconds or np.nan):.3g}" for t in (each.ours, time)]
                gap = (time.value or 0.0) - (each.ours.value or 0.0)
                yield [*start, name, *times, f"{ratio:.2f}", f"{least:g}", f"{gap:+.1e}"]
        elif each.ours.error or not only_lost:  # to fail is to lose
            yield [*start, name, *[""] * 4, (each.ours.error or time.error)[:80]]


def run(options: Namespace) -> None:
    """Run all races, a line of output each, and write calibrator-speed.json and .md."""
    sizes = [(n, k) for n, k in SIZES if n <= options.most_rows]
    effort = QUICK if options.quick else EFFORT
    races = []
    with limit_threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old names, and of searches that end early
        for contest in (*calibrator_contests(sizes), *metric_contests(sizes)):
            if not options.only or contest.what in options.only:
                races.append(run_race(contest, effort))
                print("\n".join(" ".join(line) for line in _lines(races[-1])), flush=True)
    content = {"races": [asdict(each) for each in races]}
    results.write(options.out, "calibrator-speed", content, page(races))
