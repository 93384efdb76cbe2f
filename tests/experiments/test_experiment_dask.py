"""The same units on a Dask cluster of two worker processes: the same files, and the same losses only."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
from command_runs import HANGING, run_command, wait_for

from refinecal.experiments import pools
from refinecal.experiments.folder import PACKAGES, RunFolder
from refinecal.experiments.plan import Plan, TableKey
from refinecal.experiments.running import run

dask, distributed = (pytest.importorskip(name) for name in ("dask", "distributed"))
pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, from threads of its own


@pytest.fixture(scope="module")
def shared_cluster():
    with (
        # Else Dask would let a unit kill three more workers that have just begun, and not replace them all.
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """Return a cluster of two workers: those that another test has killed are replaced."""
    with distributed.Client(shared_cluster.scheduler_address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=HANGING)
    return shared_cluster


@pytest.fixture
def plan():
    return Plan(tuple({"name": name} for name in "abc"), ("xgboost",), splits=4)


def unit(key, path):  # pickled by value below: workers cannot import this file
    import os
    import signal

    import numpy as np

    if key.set == "b" and key.split == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if key.set == "b" and key.split == 1:
        raise KeyError("no column")
    numbers = np.random.default_rng(key.split).normal(size=100_000)
    path.write_bytes(key.name.encode() + numbers.tobytes())


@pytest.fixture
def function():
    import cloudpickle
    import test_experiment_dask as here

    cloudpickle.register_pickle_by_value(here)
    yield unit
    cloudpickle.unregister_pickle_by_value(here)


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder.path / "units").iterdir()}


def test_the_same_files_and_failures_as_of_processes(tmp_path, cluster, plan, function):
    local, far = (RunFolder.create(tmp_path / name, plan) for name in ("local", "far"))
    deadly = TableKey("b", 0, "xgboost", 0)
    most = [key for key in plan.units() if key != deadly]
    for keys, result in ((most, (10, 1, set())), ([deadly], (0, 1, set()))):
        run(keys, function, local, processes=2)
        state = run(keys, function, far, dask=cluster.scheduler_address)
        assert (state.finished, state.failed, state.left) == result
    assert contents(far) == contents(local)
    assert [(key, each["kind"]) for key, each in far.failed().items()] == [
        (key, each["kind"]) for key, each in local.failed().items()
    ]
    assert [each["kind"] for each in far.failed().values()] == ["killed", "KeyError"]
    assert far.sessions()[0]["width"] == 2
    assert len(list(far.journal())) == 2 + 12


def test_a_worker_that_is_killed_costs_nothing(tmp_path, cluster, plan, function):
    folder = RunFolder.create(tmp_path / "run", plan)
    keys = [key for key in folder.missing() if key.set != "b"]
    died = tmp_path / "died"

    def dies_once(key, path):
        import contextlib
        import os
        import signal

        if key.set == "c":  # in the midst of others
            with contextlib.suppress(FileExistsError):
                died.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        function(key, path)

    state = run(keys, dies_once, folder, dask=cluster.scheduler_address)
    assert (state.finished, state.failed) == (8, 0)
    assert died.exists()


def test_an_interrupt_leaves_the_cluster_as_it_was(tmp_path, cluster, plan, function):
    folder = RunFolder.create(tmp_path / "run", plan)
    keys = [key for key in folder.missing() if key.set != "b"]

    def interrupt(state):
        if state.finished:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(keys, function, folder, dask=cluster.scheduler_address, progress=interrupt)
    assert folder.finished()
    left = [key for key in keys if key in folder.missing()]
    assert left
    assert run(left, function, folder, dask=cluster.scheduler_address).failed == 0
    wait_for(lambda: not cluster.scheduler.tasks)  # nothing of ours is left behind


def test_no_scheduler_there(tmp_path, plan, function, monkeypatch):
    monkeypatch.setattr(pools, "CONNECT", 0.5)
    folder = RunFolder.create(tmp_path / "run", plan)
    with pytest.raises(
        ConnectionError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9 .*dask scheduler"
    ):
        run(folder.missing(), function, folder, dask="tcp://127.0.0.1:9")
    with pytest.raises(ConnectionError, match="no Dask scheduler answers at nonsense"):
        run(folder.missing(), function, folder, dask="nonsense://1:2")


def test_a_wrong_address_is_told_at_once_and_leaves_nothing(tmp_path):
    (tmp_path / "t.csv").write_text("x,target\n" + "1,a\n2,b\n" * 60)
    code = "from refinecal.cli.experiment import experiment_app; experiment_app()"
    given = ("tabular", "--data", "t.csv", "--min-rows", "9", "--out", "run", "--dask", "nonsense")
    found = subprocess.run(
        [sys.executable, "-c", code, *given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert found.stderr.startswith("error: no Dask scheduler answers at nonsense")
    assert len(found.stderr.splitlines()) == 1  # a client left open would say more, after a minute
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("default")
def test_workers_with_several_threads_are_told_of(tmp_path, plan, function):
    folder = RunFolder.create(tmp_path / "run", plan)
    keys = [key for key in folder.missing() if key.set != "b"]
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=3, dashboard_address=None, silence_logs=50
        ) as cluster,
        pytest.warns(UserWarning, match="one run at a time: start them with"),
    ):
        assert run(keys, function, folder, dask=cluster.scheduler_address).finished == 8


@contextmanager
def scheduler():
    """Begin a scheduler of its own, to be killed; give it and its address."""
    code = (
        "import asyncio, distributed\n"
        "async def main():\n"
        "    async with distributed.Scheduler(host='127.0.0.1', dashboard=False) as one:\n"
        "        print(one.address, flush=True)\n"
        "        await one.finished()\n"
        "asyncio.run(main())"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.filterwarnings("default")
def test_a_scheduler_without_workers_and_then_none(tmp_path, plan):
    def write(key, path):
        path.write_text(key.name)

    folder = RunFolder.create(tmp_path / "run", plan)
    with (
        scheduler() as (process, address),
        pytest.warns(UserWarning, match="has no workers: training runs wait.*'dask worker tcp:"),
        pytest.raises(ConnectionError, match="scheduler was lost .*: resume when it is back"),
    ):
        run(folder.missing(), write, folder, dask=address, progress=lambda _: process.kill())
    assert folder.failed() == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_workers_with_other_packages_are_told_of(tmp_path, cluster, plan, function):
    def know(packages):
        from refinecal.experiments import folder

        folder.PACKAGES = packages

    folder = RunFolder.create(tmp_path / "run", plan)
    key = folder.missing()[0]
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        client.run(know, ("refinecal",))
        with pytest.warns(UserWarning, match=r"other packages .*numpy absent instead of \d"):
            run([key], function, folder, dask=cluster.scheduler_address)
        client.run(know, PACKAGES)
    assert folder.has(key)


@pytest.mark.slow
def test_trainings_on_a_cluster_give_the_tables_of_processes(tmp_path, cluster, monkeypatch):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from refinecal.cli.experiment import experiment_app
    from refinecal.experiments.results import read_results

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    table = pa.table({"x": x, "target": np.where(x + rng.normal(size=400) > 0, "yes", "no")})
    pq.write_table(table, "one.parquet")
    given = ("--data", "one.parquet", "--min-rows", 100, "--splits", 2, "--configs", 2)
    given = (*given, "--methods", "xgboost,mlp", "--max-steps", 4)
    run_command(experiment_app, "tabular", *given, "--out", "local", "--processes", 2)
    run_command(
        experiment_app, "tabular", *given, "--out", "far", "--dask", cluster.scheduler_address
    )
    local, far = (read_results(name, auto=False) for name in ("local", "far"))
    assert len(far.rows) > 0
    assert repr(far.rows) == repr(local.rows)
    assert repr(far.trainings) == repr(local.trainings)
