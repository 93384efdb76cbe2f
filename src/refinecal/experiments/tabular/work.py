"""What a worker does for one training: read its data set, train, write the result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from refinecal.experiments.tabular.plan import Key, Plan

if TYPE_CHECKING:
    from refinecal.experiments.tabular.sets import Dataset

__all__ = ["Work"]

KEPT = 2  # data sets that a worker keeps: its next training is often about the one before


@dataclass(frozen=True, slots=True)
class Work:
    """Trains any unit of a plan; what :func:`refinecal.experiments.running.run` sends to workers."""

    plan: Plan

    def __call__(self, key: Key, path: Path) -> None:
        """Train, and write the result to a file."""
        from refinecal.experiments.tabular.protocol import run_unit

        plan = self.plan
        source = json.dumps(plan.source(key.set), sort_keys=True)
        run_unit(key, plan, _load(source, plan.min_rows, plan.max_rows)).save(path)


@lru_cache(KEPT)
def _load(source: str, min_rows: int, max_rows: int) -> Dataset:
    from refinecal.experiments.tabular.sets import Source

    return Source.from_dict(json.loads(source)).load(min_rows, max_rows)
