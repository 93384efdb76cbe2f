"""How long training runs take, and so how long the remaining ones will take."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Rates:
    """Mean times of training runs that are alike.

    >>> from refinecal.experiments.plan import TableKey
    >>> rates = Rates()
    >>> rates.add(TableKey("adult", 0, "mlp", 0), 10.0)
    >>> rates.add(TableKey("bank", 0, "mlp", 0), 30.0)
    >>> rates.expect(TableKey("adult", 1, "mlp", 0)), rates.expect(TableKey("letter", 0, "mlp", 0))
    (10.0, 20.0)
    """

    def __init__(self) -> None:
        self._sums: dict[Hashable, tuple[int, float]] = {}

    def add(self, key: Any, seconds: float) -> None:
        """Count a training run, in each of the groups that ``key.alike`` names."""
        for group in key.alike:
            n, total = self._sums.get(group, (0, 0.0))
            self._sums[group] = n + 1, total + seconds

    def mean(self, group: Hashable) -> float | None:
        """Return the mean time of a group; ``None`` if it is empty."""
        n, total = self._sums.get(group, (0, 0.0))
        return total / n if n else None

    def expect(self, key: Any) -> float | None:
        """Return how long a training run will take, by those most like it; ``None`` if there are none."""
        return self._expect(key.alike)

    def left(self, waiting: Mapping[Any, int]) -> float | None:
        """Return the time of training runs, counted by their ``alike``; ``None`` if all are unknown.

        Unknown ones are taken to be as long as the others on average. Counting keeps this fast for many runs.
        """
        total = sum(waiting.values())
        known = [
            (n, each) for groups, n in waiting.items() if (each := self._expect(groups)) is not None
        ]
        n_known = sum(n for n, _ in known)
        if total and not n_known:
            return None
        return sum(n * seconds for n, seconds in known) / max(n_known, 1) * total

    def _expect(self, groups: Sequence[Hashable]) -> float | None:
        return next((self.mean(group) for group in groups if group in self._sums), None)


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a training run is that can resume in the middle."""

    epoch: int  # that is finished
    epochs: int  # there are
    per_epoch: float  # seconds


def seconds_left(
    keys: Collection[Any], rates: Rates, begun: Mapping[Any, TrainingProgress], width: int
) -> float | None:
    """Return how long training runs will take, ``width`` at a time; ``None`` if all are unknown.

    >>> from refinecal.experiments.plan import ImageKey
    >>> keys = [ImageKey("cifar10", "small", seed) for seed in range(3)]
    >>> seconds_left(keys, Rates(), {keys[0]: TrainingProgress(epoch=75, epochs=100, per_epoch=2.0)}, width=1)
    450.0
    """
    guess = Rates()
    for key, each in begun.items():
        guess.add(key, each.epochs * each.per_epoch)
    expected = [
        (begun[key].epochs - begun[key].epoch) * begun[key].per_epoch
        if key in begun
        else rates.expect(key) or guess.expect(key)
        for key in keys
    ]
    known = [seconds for seconds in expected if seconds is not None]
    if keys and not known:
        return None
    return sum(known) / max(len(known), 1) * len(keys) / width


def duration(seconds: float) -> str:
    """Return a time in two units at most.

    >>> duration(0.4), duration(75), duration(7300), duration(200_000)
    ('0.4 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, small, size, part in (
        ("d", "h", 86400, 3600),
        ("h", "min", 3600, 60),
        ("min", "s", 60, 1),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"
