"""The run folder: a fitted model, its calibrator and its schema, in files that hold no code.

Nothing here is ever unpickled: models are in their frameworks' own formats, arrays in NumPy's and those of
safetensors, the rest is JSON. The manifest reveals damaged files before they are parsed. It is not a
signature: open run folders only from sources you trust.
"""

from __future__ import annotations  # so that help() shows types by name

import json
import shutil
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import warn
from refinecal._core.files import RunFolder, write_json
from refinecal.calibrators import from_dict
from refinecal.ensembles import SelectedEnsemble
from refinecal.tabular.drift import NewRows
from refinecal.tabular.files import Source, check_column
from refinecal.tabular.fit_folder import CALIBRATOR, METRICS, SCHEMA
from refinecal.tabular.fitting import Fit
from refinecal.tabular.schema import Schema, shorten
from refinecal.training.crossfit import Ensemble, all_classes
from refinecal.training.pool import Pool
from refinecal.training.rows import Rows
from refinecal.training.table_model import FILES, TableModel, get_model

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, loaded: calibrated probabilities for tables like the one it was fitted to.

    Attributes
    ----------
    path : Path
        The folder.
    model : str
        The name of the model, such as "xgboost", or "auto" for several kinds.
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
    members: tuple[TableModel, ...]
    ensemble: Ensemble | Pool  # of the members

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
        folder = RunFolder(path)
        files = folder.read_manifest()
        schema = json.loads(folder.verify(SCHEMA, files).read_bytes())
        found = json.loads(folder.verify(CALIBRATOR, files).read_bytes())
        groups, members = {}, []
        for group in found.get("groups", [found]):  # a single one is not in a list
            kind = get_model(group["model"])
            for each in group["members"]:
                file = folder.verify((Path(each["folder"]) / kind.file_name).as_posix(), files)
                members.append(kind.load(file.parent))
            groups[group.get("name", kind.name)] = Ensemble(
                from_dict(group["calibrator"]),
                tuple(np.array(each["known"], dtype=np.int64) for each in group["members"]),
                np.array(group["frequencies"], dtype=np.float64),
                group["beta"],
            )
        ensemble: Any = next(iter(groups.values()))
        if "pool" in found:
            selected = SelectedEnsemble.from_dict(found["pool"])
            ensemble = Pool(groups, selected, found.get("beta", 1.0))
        return cls(path, found["model"], Schema.from_dict(schema), tuple(members), ensemble)

    def predict_proba(
        self, table: pa.Table | pd.DataFrame, first_row: int = 1
    ) -> NDArray[np.float64]:
        """Return calibrated probabilities, one column for each of ``classes``.

        Warns of columns that differ from the training rows: empty or constant where they were not, or with
        most values where training had few.

        Parameters
        ----------
        table : Arrow table or pandas DataFrame
            With the columns that the schema names, in any order.
        first_row : int, default 1
            The number of its first row in messages, if it is part of a larger table.

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
        return self.predict_encoded(X)

    def read_rows(self, source: Source) -> Rows:
        """Return the rows of a table that have a label, as the model sees them."""
        self.schema.check_names(source.names)
        check_column(self.schema.target, source.names, "the target", str(source.path))
        table = source.read()
        table = table.filter(self.schema.has_label(table))
        weights = self.schema.weights(table, optional=True)
        groups = self.schema.groups(table, optional=True)
        X, labels = self.schema.encode(table), self.schema.labels(table)
        return Rows(X, labels, weights, groups).with_keys()

    def read_test_loss(self) -> dict[str, Any] | None:
        """Return the log loss of the test rows of the run, with its standard error; ``None`` without any."""
        folder = RunFolder(self.path)
        found = json.loads(folder.verify(METRICS, folder.read_manifest()).read_bytes())["test"]
        return None if found is None else dict(found["log_loss"])

    def predict_encoded(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probabilities of rows as ``schema.encode`` returns them."""
        return self.ensemble.predict_proba(
            all_classes(model.logits(X), known, len(self.classes))
            for model, known in zip(self.members, self.ensemble.known, strict=True)
        )


def write_model(fit: Fit, folder: Path) -> None:
    """Write the models, the calibrators and the schema of a fit into a folder."""
    units, is_pool = iter(fit.delivered), isinstance(fit.ensemble, Pool)
    groups = []
    for place, (name, ensemble) in enumerate(fit.groups.items(), start=1):
        kind, members = "", []
        for number, unit in enumerate(islice(units, len(ensemble.known)), start=1):
            where = f"member-{place}-fold-{number}" if is_pool else f"fold-{number}"
            where = "." if len(fit.delivered) == 1 else where
            (folder / where).mkdir(exist_ok=True)
            kind = fit.candidates[unit.candidate].kind
            shutil.copy2(unit.model / FILES[kind], folder / where / FILES[kind])
            step = unit.choices["refinement"].step
            members.append({"folder": where, "known": unit.known.tolist(), "step": step})
        group = {
            "model": kind,
            "calibrator": ensemble.calibrator.to_dict(),
            "frequencies": ensemble.frequencies.tolist(),
            "beta": ensemble.beta,
            "members": members,
        }
        groups.append({"name": name, **group} if is_pool else group)
    found: dict[str, Any] = groups[0]
    if isinstance(fit.ensemble, Pool):
        pool = {"pool": fit.ensemble.selected.to_dict(), "beta": fit.ensemble.beta}
        found = {"model": "auto", **pool, "groups": groups}
    write_json(folder / CALIBRATOR, found)
    write_json(folder / SCHEMA, fit.data.schema.to_dict())
