"""Rounds in which everybody takes a turn, so that a busy machine disturbs all alike."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from threadpoolctl import threadpool_limits

from benchmarks.contestants import Fit

FEWEST_TIMES = 3
TURN_SECONDS = 2e-3  # of a fast contestant: long against the cost of reading the clock
PAUSE_SECONDS = 5e-3  # worker threads of the contestant before spin a while, then sleep


@dataclass(frozen=True)
class Effort:
    """How long to measure each contestant at each size."""

    seconds: float  # aimed at for a contestant that is not slow
    most_rounds: int
    patience: float  # a fit that takes longer than this is not repeated


@dataclass
class Entrant:
    """The fit of one contestant, the seconds it took, and the beta it found."""

    fit: Fit
    beta: float | None = None
    number: int = 1  # fits in one turn
    rounds: int = 0  # in which to take a turn after the plan is made
    times: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median time of one fit."""
        return median(self.times)

    @property
    def n_fits(self) -> int:
        """The number of fits behind the median."""
        return self.number * len(self.times)

    def take_turn(self) -> None:
        """Time one turn."""
        start = time.perf_counter()
        for _ in range(self.number):
            self.beta = self.fit()
        self.times.append((time.perf_counter() - start) / self.number)

    def plan(self, effort: Effort) -> None:
        """Fit once or twice, and choose the number of rounds from the time it took.

        The first fit may compile code or start threads, so that the second one decides.
        Of a slow contestant both count, for a median of three survives one bad value.
        """
        self.take_turn()
        if self.times[0] > effort.patience:
            return
        self.take_turn()
        once = self.times[1]
        self.number = max(1, round(TURN_SECONDS / once))
        affordable = int(effort.seconds / (once * self.number))
        self.rounds = min(affordable, effort.most_rounds)
        if self.rounds >= FEWEST_TIMES:
            self.times.clear()
        else:
            self.rounds = FEWEST_TIMES - len(self.times)


def race(entrants: Collection[Entrant], n_threads: int) -> None:
    """Let planned entrants take turns until each has had all its rounds."""
    n_rounds = max((entrant.rounds for entrant in entrants), default=0)
    for done in range(n_rounds):
        for entrant in entrants:
            # Those who have fewer turns spread them evenly over all rounds.
            due = (done + 1) * entrant.rounds // n_rounds
            if due > done * entrant.rounds // n_rounds:
                if n_threads > 1:
                    time.sleep(PAUSE_SECONDS)
                entrant.take_turn()


@contextmanager
def limit_threads(n_threads: int) -> Iterator[None]:
    """Give torch, OpenMP and BLAS this many threads."""
    import torch  # here, because refinecal can be timed where torch is not installed

    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        with threadpool_limits(n_threads):
            yield
    finally:
        torch.set_num_threads(before)
