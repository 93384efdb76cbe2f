"""What the results of both experiments share: training runs that are finished, failed or missing."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from refinecal._core.format import number
from refinecal.experiments._unit_files import check_name, is_whole
from refinecal.experiments.store import RunFolder


class RunResults:
    """Results of one run or of several: subclasses have ``plans``, ``failed`` and :attr:`done`."""

    plans: Any
    failed: Any

    @property
    def done(self) -> int:
        """Number of training runs with a result."""
        raise NotImplementedError

    @cached_property
    def planned(self) -> int:
        """Number of training runs in the plans."""
        return len({key for plan in self.plans for key in plan.units()})

    @property
    def missing(self) -> int:
        """Number of training runs that are neither finished nor failed."""
        return self.planned - self.done - len(self.failed)

    def unfinished(self) -> str:
        """Return how many training runs failed or are missing, in words."""
        said = [f"{number(len(self.failed))} failed"] if self.failed else []
        said += [f"{number(self.missing)} not yet run"] if self.missing else []
        return ", ".join(said)


def open_finished(path: str | os.PathLike[str], kind: str) -> tuple[RunFolder, list[Any]]:
    """Return the folder of a run and its finished training runs; raise if there are none."""
    folder = RunFolder(path)
    folder.check_kind(kind)
    keys = folder.finished()
    if not keys:
        raise ValueError(
            f"{path} has no finished training run: run refinecal experiment {kind} first; see "
            "refinecal experiment status"
        )
    return folder, keys


def read_failures(folder: RunFolder) -> dict[Any, str]:
    """Return the training runs that failed, with their errors."""
    return {
        key: f"{about.get('kind', 'error')}: {about.get('message', '')}".strip(": ")
        for key, about in folder.failed().items()
    }


def load_unit(kind: Any, path: Path) -> Any:
    """Return the result in a file; raise with the fix if the file is cut off, or of another run."""
    if path.is_file() and not is_whole(path):
        raise ValueError(f"{path} is damaged: resume the run, which computes it again")
    unit = kind.load(path)
    check_name(path, unit.key)
    return unit
