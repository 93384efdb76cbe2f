"""The run folder: a fitted model, its calibrator and its schema, in files that hold no code.

Nothing here is ever unpickled: models are in their frameworks' own formats, arrays in NumPy's and those of
safetensors, the rest is JSON. The manifest reveals damaged files before they are parsed. It is not a
signature: open run folders only from sources you trust.
"""

from __future__ import annotations  # so that help() shows types by name

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import warn
from refinecal._core.files import write_json
from refinecal._core.format import list_names
from refinecal.calibrators import from_dict
from refinecal.tabular.drift import NewRows
from refinecal.tabular.fitting import Fit
from refinecal.tabular.manifest import MANIFEST, Manifest
from refinecal.tabular.names import shorten
from refinecal.tabular.schema import Schema
from refinecal.training.pool import Ensemble, all_classes
from refinecal.training.table_model import FILES, TableModel, get_model

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SCHEMA, CALIBRATOR = "schema.json", "calibrator.json"
METRICS, REPORT = "metrics.json", "report.html"
HISTORY, TEST_ROWS = "history.parquet", "test_predictions.parquet"


@dataclass(frozen=True, slots=True)
class Member:
    """One of the models whose calibrated probabilities are averaged."""

    model: TableModel
    known: NDArray[np.int64]  # codes of the classes that it knows

    def logits(self, X: pd.DataFrame, k: int) -> NDArray[np.float64]:
        """Return uncalibrated log-probabilities of all classes."""
        return all_classes(self.model.logits(X), self.known, k)


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, loaded: calibrated probabilities for tables like the one it was fitted to.

    Attributes
    ----------
    path : Path
        The folder.
    model : str
        The name of the model, such as "xgboost".
    schema : Schema
        Which columns it needs, and the classes.

    Examples
    --------
    >>> run = Run.load("churn-run")  # doctest: +SKIP
    >>> run.predict_proba(pd.read_csv("new.csv"))  # doctest: +SKIP
    """

    path: Path
    model: str
    schema: Schema
    members: tuple[Member, ...]
    ensemble: Ensemble

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels, in the order of the columns of :meth:`predict_proba`."""
        return self.schema.classes

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a run folder, each file once it is the one that its manifest lists; nothing is unpickled.

        Parameters
        ----------
        path : str or Path
            What ``refinecal fit`` wrote.

        Returns
        -------
        Run
        """
        path = Path(path)
        manifest = Manifest.load(path)
        schema = Schema.from_dict(manifest.read_json(SCHEMA))
        found = manifest.read_json(CALIBRATOR)
        kind, members = get_model(found["model"]), []
        for each in found["members"]:
            file = manifest.verify((Path(each["folder"]) / kind.file_name).as_posix())
            known = np.array(each["known"], dtype=np.int64)
            members.append(Member(kind.load(file.parent), known))
        ensemble = Ensemble(
            from_dict(found["calibrator"]),
            tuple(each.known for each in members),
            np.array(found["frequencies"], dtype=np.float64),
            found["beta"],
        )
        return cls(path, found["model"], schema, tuple(members), ensemble)

    def predict_proba(
        self, table: pa.Table | pd.DataFrame, first_row: int = 1
    ) -> NDArray[np.float64]:
        """Return calibrated probabilities, one column for each of ``classes``.

        Warns of columns that are unlike those of the training rows: empty or constant, though they were not,
        or with most values where training had few.

        Parameters
        ----------
        table : Arrow table or pandas DataFrame
            With the columns that the schema names, in any order.
        first_row : int, default 1
            The number of its first row in complaints, if it is a part of a larger table.

        Returns
        -------
        ndarray of shape (n, k)
        """
        import pyarrow as pa

        if not isinstance(table, pa.Table):  # pandas, or what has Arrow's interface, such as polars
            is_pandas = hasattr(table, "iloc")
            table = (
                pa.Table.from_pandas(table, preserve_index=False) if is_pandas else pa.table(table)
            )
        new = NewRows(self.schema)
        probs = self.predict_proba_part(table, first_row, new)
        for message in shorten(new.describe_drift()):
            warn(message)
        return probs

    def predict_proba_part(
        self, table: pa.Table, first_row: int, new: NewRows
    ) -> NDArray[np.float64]:
        """Return the probabilities of some rows, which are counted among the new ones."""
        X = self.schema.encode(table, first_row=first_row)
        new.add(X, self.schema.unseen(table))
        return self.ensemble.predict_proba(
            each.logits(X, len(self.classes)) for each in self.members
        )


# ---- reading -----------------------------------------------------------------------------------------------


# ---- writing -----------------------------------------------------------------------------------------------


def write_model(fit: Fit, folder: Path) -> None:
    """Write the models, the calibrator and the schema of a fit into a folder."""
    members = []
    for number, unit in enumerate(fit.delivered, start=1):
        name = "." if len(fit.delivered) == 1 else f"fold-{number}"
        place = folder / name
        place.mkdir(exist_ok=True)
        for file in unit.folder.iterdir():
            if file.name.startswith("model."):
                shutil.copy2(file, place / file.name)
        step = unit.choices["refinement"].step
        members.append({"folder": name, "known": unit.known.tolist(), "step": step})
    found = {
        "model": fit.options.model,
        "calibrator": fit.ensemble.calibrator.to_dict(),
        "frequencies": fit.ensemble.frequencies.tolist(),
        "beta": fit.ensemble.beta,
        "members": members,
    }
    write_json(folder / CALIBRATOR, found)
    write_json(folder / SCHEMA, fit.data.schema.to_dict())


# ---- its place ---------------------------------------------------------------------------------------------


def hidden_path(run: Path, what: str) -> Path:
    """Return a hidden place beside a run folder: for its lock, or for a run that is unfinished or old."""
    run = Path(os.path.realpath(run))
    return run.parent / f".{run.name}.{what}"


def check_free(run: Path, overwrite: bool) -> None:
    """Refuse to take the place of something, unless it is a run that may be overwritten."""
    if _is_free(run):
        if not hidden_path(run, "old").exists():
            return
        os.replace(hidden_path(run, "old"), os.path.realpath(run))  # a crash at the worst moment
    if not (run / SCHEMA).exists():
        raise ValueError(
            f"{run} exists and is not a run folder, so it is left alone: choose another --out"
        )
    if not overwrite:
        raise ValueError(f"{run} exists: choose another --out, or pass --overwrite")


def _is_free(run: Path) -> bool:
    """Tell whether nothing is there, or a folder with nothing in it."""
    return not run.exists() or (run.is_dir() and not any(run.iterdir()))


def publish(finished: Path, run: Path) -> None:
    """Give a finished folder its name, in the place of an older run if there is one.

    The older run is complete, here or hidden, until the new one has its name. Files in it that no fit wrote
    are in both.
    """
    place, old = os.path.realpath(run), hidden_path(run, "old")
    if _is_free(run):
        if run.exists():
            os.rmdir(place)  # for systems where nothing takes the place of a folder
        os.replace(finished, place)
        return
    others = _find_user_files(run)
    for path in others:
        _share(run / path, finished / path)
    shutil.rmtree(old, ignore_errors=True)
    os.replace(place, old)
    try:
        os.replace(finished, place)
    except BaseException:
        if not run.exists():
            os.replace(old, place)
        raise
    shutil.rmtree(old, ignore_errors=True)
    if others:
        warn(f"kept in {run}, since no fit wrote it: {list_names(list(map(str, others)), 5)}")


def _find_user_files(run: Path) -> list[Path]:
    """Return what is in a run folder but was not written by the fit: files, and folders as a whole."""
    try:
        own = {Path(name) for name in (MANIFEST, *Manifest.load(run).files)}
    except (OSError, ValueError):  # damaged or of an older version: what any fit may have written
        places = [path.relative_to(run) for path in (run, *run.glob("fold-*")) if path.is_dir()]
        names = (MANIFEST, SCHEMA, CALIBRATOR, METRICS, REPORT, HISTORY, TEST_ROWS)
        own = {*map(Path, names), *(place / name for place in places for name in FILES.values())}
    folders = {path.parent for path in own}
    inside = {path.relative_to(run) for each in folders for path in (run / each).glob("*")}
    return sorted(inside - own - folders)


def _share(path: Path, place: Path) -> None:
    """Give a file, or all in a folder, a second name; or a copy where there are no such links."""
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, place, symlinks=True, copy_function=_link)
    else:
        place.parent.mkdir(exist_ok=True)
        _link(path, place)


def _link(path: str | Path, place: str | Path) -> None:
    try:
        os.link(path, place, follow_symlinks=False)
    except FileExistsError:
        raise ValueError(
            f"{path} is not of the older run, but the new one has a file of that name: move it away"
        ) from None
    except (OSError, NotImplementedError):
        shutil.copy2(path, place, follow_symlinks=False)
