"""The whole job: from a table on disk to a run folder with the model and its numbers."""

from __future__ import annotations  # so that help() shows types by name

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import refinecal
from refinecal._core.errors import warn
from refinecal._core.files import FULL, hold_lock, write_json
from refinecal.tabular.data import Data, Options, prepare
from refinecal.tabular.files import Source, open_table
from refinecal.tabular.fitting import Fit, Progress, fit, plan
from refinecal.tabular.judgement import Judgement, judge
from refinecal.tabular.manifest import write_manifest
from refinecal.tabular.run import (
    HISTORY,
    METRICS,
    REPORT,
    TEST_ROWS,
    check_free,
    hidden_path,
    publish,
    write_model,
)
from refinecal.tabular.schema import Schema, check_lists, check_roles
from refinecal.tabular.units import RUN, UnfinishedRun
from refinecal.training.table_model import get_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FitRequest:
    """What to fit to what: a table, the meaning of its columns, and where the run goes.

    Attributes
    ----------
    table, test : Path
        The table, and perhaps another one with the test rows.
    target, weight, group : str
        The columns of the label, of weights, and of groups that stay together.
    drop, categorical, numeric : sequence of str
        Columns to leave out, and to take as categories or numbers whatever they look like.
    out : Path
        The run folder to be written.
    options : Options
        How to fit.
    resume, restart : bool
        What to do with the finished training runs of an unfinished run: keep or discard them. One is needed.
    overwrite : bool
        Whether to take the place of a finished run.
    """

    table: Path
    target: str
    out: Path
    options: Options = field(default_factory=Options)
    test: Path | None = None
    weight: str | None = None
    group: str | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    numeric: Sequence[str] = ()
    delimiter: str | None = None
    decimal: str | None = None
    resume: bool = False
    overwrite: bool = False
    restart: bool = False


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has been written: where it is, the fit, and what its test rows say."""

    path: Path
    fit: Fit
    judged: Judgement | None
    seconds: float

    @property
    def report(self) -> Path:
        """Where the report is."""
        return self.path / REPORT


class Interrupted(KeyboardInterrupt):
    """The user has interrupted a fit of which some trainings were finished, and are kept."""

    def __init__(self, finished: int) -> None:
        super().__init__()
        self.finished = finished


def run_fit(
    request: FitRequest,
    progress: Progress | None = None,
    on_data: Callable[[Data], None] | None = None,
    on_written: Callable[[FinishedRun, Path], None] | None = None,
) -> FinishedRun:
    """Read, fit, judge, write: nothing is at ``request.out`` before all is done.

    Parameters
    ----------
    request : FitRequest
        What to do.
    progress : Progress, optional
        Is told of every step.
    on_data : callable, optional
        Called once the table is read and cut into parts, before anything is trained.
    on_written : callable, optional
        Called with the folder of a run that is complete but has no name yet, to add a report to it.

    Returns
    -------
    FinishedRun
    """
    start = time.perf_counter()
    source = open_table(request.table, request.delimiter, request.decimal)
    roles = check_roles(source.names, request.target, request.weight, request.group)
    check_lists(source.names, roles, request.drop, request.categorical, request.numeric)
    lock = hidden_path(request.out, "lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(lock, f"fitting {request.out}", remove=True):
        check_free(request.out, request.overwrite)
        unfinished = UnfinishedRun(hidden_path(request.out, "unfinished"))
        n = unfinished.n_finished
        if n and not (request.resume or request.restart):
            raise ValueError(
                f"an unfinished run of {request.out} has {n} finished training run{'s' * (n > 1)}: pass "
                f"{resume_options(request.out)} to continue it, or --restart to discard it"
            )
        get_model(request.options.model)  # says at once if its library is missing
        data = read_data(request, source)
        planned = plan(data, request.options)
        if request.resume:
            unfinished.check(planned)
        with _tidy(unfinished, request.out):
            unfinished.open(planned, request.resume)
            if on_data is not None:
                on_data(data)
            found = fit(data, request.options, unfinished, progress)
            finished = FinishedRun(request.out, found, judge(found), time.perf_counter() - start)
            folder = unfinished.new(RUN)
            _write(request, finished, folder)
            if on_written is not None:
                on_written(finished, folder)
            write_manifest(folder)
            check_free(request.out, request.overwrite)  # much may have happened meanwhile
            publish(folder, request.out)
        unfinished.close()
    return finished


@contextmanager
def _tidy(unfinished: UnfinishedRun, out: Path) -> Iterator[None]:
    """Leave nothing behind when something goes wrong but trainings that are finished and may be of use."""
    try:
        yield
    except BaseException as error:
        kept = unfinished.n_finished
        if kept:
            unfinished.tidy()
        else:
            unfinished.close()
        if isinstance(error, OSError) and error.errno in FULL:
            error.filename = str(out)  # not of a file that nobody knows, or of none
        if kept and isinstance(error, KeyboardInterrupt):
            raise Interrupted(kept) from None
        if kept:
            error.add_note(
                f"{kept} finished training run{'s' * (kept > 1)} kept: continue with {resume_options(out)}"
            )
        raise


def resume_options(out: Path) -> str:
    """Return the options that continue an unfinished run."""
    return "--resume --overwrite" if out.exists() else "--resume"


def read_data(request: FitRequest, source: Source) -> Data:
    """Read the table, find out what its columns are, and cut it into parts."""
    table = source.read()
    schema = Schema.infer(
        table,
        request.target,
        weight=request.weight,
        group=request.group,
        drop=request.drop,
        categorical=request.categorical,
        numeric=request.numeric,
    )
    table, places = _drop_unlabelled(table, schema, request.table)
    test = None
    if request.test is not None:
        source = open_table(request.test, request.delimiter, request.decimal)
        schema.check_names(source.names)
        test, places = _drop_unlabelled(source.read(), schema, request.test)
    data = prepare(table, schema, request.options, test)
    return replace(data, test_places=None if data.test_places is None else places[data.test_places])


def _drop_unlabelled(
    table: pa.Table, schema: Schema, path: Path
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return the rows that have a label, and their places in the table."""
    has_label = np.asarray(schema.has_label(table))
    if not has_label.all():
        missing = int((~has_label).sum())
        warn(
            f"{missing} of {len(has_label)} rows of {path} have no {schema.target}: they are left out"
        )
        table = table.filter(has_label)
    return table, np.flatnonzero(has_label)


# ---- what is written ---------------------------------------------------------------------------------------


def _write(request: FitRequest, finished: FinishedRun, folder: Path) -> None:
    write_model(finished.fit, folder)
    write_json(folder / METRICS, metrics(request, finished))
    _write_history(finished.fit, folder / HISTORY)
    if finished.judged is not None:
        _write_test_rows(finished.fit, folder / TEST_ROWS)


def metrics(request: FitRequest, finished: FinishedRun) -> dict[str, Any]:
    """Return all numbers of a run, as ``metrics.json`` holds them."""
    found = finished.fit
    chosen = found.chosen
    calibrator = found.ensemble.calibrator
    return {
        "refinecal": refinecal.__version__,
        "table": request.table.name,
        "target": request.target,
        "options": asdict(request.options),
        "rows": {
            "training_and_validation": found.data.n_train,
            "test": 0 if found.data.test is None else found.data.test.n,
        },
        "classes": found.data.schema.classes,
        "chosen": {
            "candidate": chosen.candidate,
            "params": found.candidates[chosen.candidate],
            "steps": chosen.steps,
            "validation_refinement": chosen.value,
        },
        "delivered": {
            "models": len(found.delivered),
            "rows": found.data.n_delivered,
            "steps": [unit.choices[chosen.metric].step for unit in found.delivered],
            "calibrator": calibrator._summary() or type(calibrator).__name__,
            "beta": getattr(calibrator, "beta_", None),
            "beta_of_the_average": found.ensemble.beta,
        },
        "test": None if finished.judged is None else finished.judged.to_dict(),
        "seconds": round(finished.seconds, 2),
    }


def _write_history(found: Fit, path: Path) -> None:
    """Write one row for each step of each training."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = ("candidate", "fold", "step")
    columns = {
        name: pa.array(
            [int(record[name]) if name in whole else record[name] for record in found.history]
        )
        for name in found.history[0]
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def _write_test_rows(found: Fit, path: Path) -> None:
    """Write the label and the calibrated probabilities of each test row, with its place in its table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data, probs = found.data, found.chosen.after
    assert data.test is not None, "there are test rows"
    assert probs is not None, "and predictions for them"
    labels = np.array(data.schema.classes, dtype=object)[data.test.y]
    place = "row" if data.schema.target != "row" else "row_number"
    columns: dict[str, Any] = {place: data.test_places, data.schema.target: pa.array(labels)}
    columns |= {f"p_{label}": probs[:, j] for j, label in enumerate(data.schema.classes)}
    if data.test.weights is not None and data.schema.weight is not None:
        columns[data.schema.weight] = data.test.weights
    pq.write_table(pa.table(columns), path, compression="zstd")
