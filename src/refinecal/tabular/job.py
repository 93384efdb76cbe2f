"""``refinecal fit``: from a table on disk to a run folder with the model and its numbers."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # of scikit-learn

import refinecal
from refinecal._core.errors import warn
from refinecal._core.files import RunFolder, write_json
from refinecal.evaluation import row_losses
from refinecal.tabular.clock import Clock
from refinecal.tabular.data import Data, Options, prepare
from refinecal.tabular.files import Source, open_table
from refinecal.tabular.fit_folder import HISTORY, METRICS, RUN, TEST_ROWS, FitFolder
from refinecal.tabular.fitting import Fit, plan
from refinecal.tabular.judgement import Judgement, judge
from refinecal.tabular.run import write_model
from refinecal.tabular.schema import Schema, check_given
from refinecal.training.table_model import get_model

if TYPE_CHECKING:
    import pyarrow as pa


AUTO_SECONDS = 300.0  # that "auto" takes at most, unless another limit is given


@dataclass(frozen=True, slots=True)
class FitRequest:
    """What to fit to what: a table, the meaning of its columns, and where the run goes."""

    table: Path
    target: str
    out: Path  # the run folder to be written
    options: Options = field(default_factory=Options)
    test: Path | None = None  # a table of test rows
    weight: str | None = None
    group: str | None = None  # rows of the same group stay together
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    numeric: Sequence[str] = ()
    delimiter: str | None = None
    decimal: str | None = None
    sheet: str | None = None
    resume: bool = False  # keep the training runs of an unfinished run,
    overwrite: bool = False  # replace a finished run,
    restart: bool = False  # discard an unfinished run
    clock: Clock | None = None  # that has been running since the command was started


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has been written: where it is, the fit, and what its test rows say."""

    path: Path
    fit: Fit
    judged: Judgement | None
    seconds: float


@contextmanager
def open_fit(request: FitRequest) -> Iterator[FitJob]:
    """Read and check the table, and lock the run folder, until the fit is published or fails.

    Nothing is at ``request.out`` before :meth:`FitJob.publish`. If something goes wrong before, finished
    training runs are kept for ``resume``.
    """
    clock = request.clock or Clock()
    source = open_table(request.table, request.delimiter, request.decimal, request.sheet)
    given = (request.drop, request.categorical, request.numeric)
    check_given(source.names, request.target, request.weight, request.group, *given)
    folder = FitFolder(request.out)
    with folder.lock():
        folder.check_free(request.overwrite)
        n_done = folder.n_finished
        if n_done and not (request.resume or request.restart):
            raise ValueError(
                f"an unfinished run of {request.out} has {n_done} finished training "
                f"run{'s' * (n_done > 1)}: pass {folder.resume_options} to continue it, or --restart to "
                "discard it"
            )
        if request.options.model != "auto":
            get_model(request.options.model).check_library()  # rather than once rows are read
        data = read_data(request, source)
        planned = plan(data, request.options)
        if request.resume:
            folder.check_plan(planned)
        with folder.work(planned, request.resume):
            n_kept = n_done if request.resume else 0
            clock.before = folder.elapsed() if n_kept else 0.0
            limit = request.options.time_limit
            if limit is not None or request.options.model == "auto":
                clock.limit = AUTO_SECONDS if limit is None else limit
            with threadpool_limits(request.options.n_threads, user_api="blas"):
                yield FitJob(request, data, folder, n_kept, clock, folder.path / RUN)


@dataclass(frozen=True, slots=True)
class FitJob:
    """A fit in progress, from :func:`open_fit`: train, write, add a report to its folder, publish it."""

    request: FitRequest
    data: Data
    folder: FitFolder
    n_done: int  # training runs that were finished before
    clock: Clock
    draft: Path  # the run folder as long as it has no name, for the report

    def write(self, found: Fit) -> FinishedRun:
        """Judge a fit, and write all files but the report to ``draft``."""
        judged = judge(found)
        finished = FinishedRun(self.request.out, found, judged, self.clock.elapsed)
        draft = self.folder.new(RUN)
        write_model(found, draft)
        write_json(draft / METRICS, metrics(self.request, finished))
        _write_history(found, draft / HISTORY)
        if finished.judged is not None:
            _write_test_rows(found, draft / TEST_ROWS)
        return finished

    def publish(self) -> None:
        """Write the manifest, and give the run folder its name."""
        RunFolder(self.draft).write_manifest()
        self.folder.check_free(self.request.overwrite)  # much may have changed during training
        self.folder.publish(self.draft)


def read_data(request: FitRequest, source: Source) -> Data:
    """Read the table, infer its schema, and split it."""
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
        source = open_table(request.test, request.delimiter, request.decimal, request.sheet)
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
            f"{missing} of {len(has_label)} rows of {path} have no {schema.target}: they are ignored"
        )
        table = table.filter(has_label)
    return table, np.flatnonzero(has_label)


# ---- what is written ---------------------------------------------------------------------------------------


def metrics(request: FitRequest, finished: FinishedRun) -> dict[str, Any]:
    """Return all numbers of a run, as ``metrics.json`` holds them."""
    found = finished.fit
    chosen = found.chosen
    calibrator = found.ensemble.calibrator
    several = {"leaderboard": leaderboard(found)} if found.members else {}
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
            "model": found.kind,
            "params": found.candidates[chosen.candidate].params,
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
        **several,
        "plan": list(found.plan),
        "test": None if finished.judged is None else finished.judged.to_dict(),
        "seconds": round(finished.seconds, 2),
    }


def leaderboard(found: Fit) -> list[dict[str, Any]]:
    """Return every member that could have been in the pool, the best by refinement first."""
    test, rows = found.data.test, []
    for each in found.members:
        row = {
            "member": each.name,
            "params": found.candidates[each.tested.candidate].params,
            "weight": each.weight,
            "validation_refinement": each.refinement,
            "validation_log_loss": each.log_loss,
            "seconds": round(each.seconds, 2),
        }
        if test is not None:
            losses = row_losses(test.y, each.tested.after, classes=range(found.data.k))
            row["test_log_loss"] = float(np.average(losses, weights=test.weights))
        rows.append(row)
    return rows


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

    data, probs = found.data, found.final.after
    assert data.test is not None, "there are test rows"
    assert probs is not None, "and predictions for them"
    labels = np.array(data.schema.classes, dtype=object)[data.test.y]
    place = "row" if data.schema.target != "row" else "row_number"
    columns: dict[str, Any] = {place: data.test_places, data.schema.target: pa.array(labels)}
    columns |= {f"p_{label}": probs[:, j] for j, label in enumerate(data.schema.classes)}
    if data.test.weights is not None and data.schema.weight is not None:
        columns[data.schema.weight] = data.test.weights
    pq.write_table(pa.table(columns), path, compression="zstd")
