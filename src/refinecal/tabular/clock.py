"""How long a fit has taken, how long it may take, and how long the rest will."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Clock:
    """Counts the seconds since the start of the command, and those before a ``--resume``."""

    limit: float = math.inf
    now: Callable[[], float] = time.monotonic
    start: float = field(default_factory=time.monotonic)  # as ``now`` counts
    before: float = 0.0  # that a run took until it was interrupted
    reserve: float = 0.0  # for what comes after training
    deadline: float = math.inf  # of the training runs in progress, as ``now`` counts

    @property
    def elapsed(self) -> float:
        """The seconds that count towards the limit."""
        return self.before + self.now() - self.start

    @property
    def left(self) -> float:
        """The seconds that are left for training."""
        return self.limit - self.elapsed - self.reserve


def duration(seconds: float) -> str:
    """Return a time as people say it.

    >>> duration(0.4), duration(42), duration(750), duration(9000)
    ('1 s', '42 s', '12 min', '2.5 h')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
