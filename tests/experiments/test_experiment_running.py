"""Runs that are killed, workers that die, units that fail: nothing is lost but what was under way.

The units here are small functions, so that much can go wrong in little time, in real worker processes.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from command_runs import HANGING, kill, started, wait_for

from refinecal._core import files
from refinecal._core.files import lock
from refinecal.cli.experiment_status import summary
from refinecal.experiments import pools
from refinecal.experiments.folder import RunFolder, versions
from refinecal.experiments.plan import Plan, TableKey
from refinecal.experiments.rates import Rates, duration
from refinecal.experiments.running import State, run


def plan_of(*sets, splits=2, **more):
    return Plan(tuple({"name": name} for name in sets), ("xgboost",), splits=splits, **more)


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run", plan_of("a", "b", "c"))


def writes(tally=None, **behaviour):
    """Return a unit that writes its name; by set, it does something else before.

    A function inside of a function is pickled with its code, so that workers need not import this file.
    """

    def unit(key, path):
        import os
        import signal
        import warnings
        from pathlib import Path

        from refinecal._core.files import atomic_write

        if tally is not None:
            with Path(tally).open("a") as file:
                file.write(f"{key.name}\n")
        what = behaviour.get(key.set)
        if what == "raise":
            raise KeyError(f"no column in {key.set}")
        if what == "memory":
            bytearray(2**62)
        if what == "full":
            raise OSError(28, "No space left on device")
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "abort":
            os.abort()
        if what == "die once" and not (marker := path.parents[1] / f"{key.name}.died").exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "die after" and not path.exists():
            path.write_text(f"result of {key.name}")
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "warn":
            warnings.warn("doubtful", stacklevel=1)
        if what == "print":
            os.write(1, b"to stdout")
        if what == "nothing":
            return
        with atomic_write(path) as part:
            part.write_text(f"result of {key.name}")

    return unit


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder.path / "units").iterdir()}


# ---- what comes of units -----------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_all_units_are_computed_once_whatever_the_number_of_processes(folder, tmp_path, processes):
    tally, seen = tmp_path / "tally", []

    def look(state):
        seen.append((state.finished, len(state.left)))

    state = run(folder.missing(), writes(tally), folder, processes=processes, progress=look)
    assert (state.finished, state.failed, state.total, state.left) == (6, 0, 6, set())
    assert contents(folder) == {
        f"{key.name}.npz": f"result of {key.name}".encode() for key in folder.plan.units()
    }
    assert sorted(tally.read_text().split()) == sorted(key.name for key in folder.plan.units())
    assert seen[-1] == (6, 0)
    assert seen == sorted(seen, key=lambda pair: pair[0])
    assert folder.missing() == []
    assert run(folder.missing(), writes(tally), folder).total == 0  # and no process is begun


def test_an_error_is_recorded_and_the_others_go_on(folder):
    state = run(folder.missing(), writes(b="raise"), folder, processes=2)
    assert (state.finished, state.failed) == (4, 2)
    assert "xgboost on b, split" in state.last_failure
    key, other = folder.failed()
    assert {key.set, other.set} == {"b"}
    found = json.loads((folder.path / "failures" / f"{key.name}.json").read_text())
    assert found["kind"] == "KeyError"
    assert "no column in b" in found["message"]
    assert "Traceback" in found["traceback"]
    assert "in unit" in found["traceback"]
    assert found["key"] == {
        **{"set": "b", "split": key.split, "method": "xgboost", "config": 0},
        **{"folds": 0, "fold": 0},
    }
    assert folder.missing() == []


def test_a_failure_is_tried_again_only_on_demand(folder, tmp_path):
    run(folder.missing(), writes(b="raise"), folder, processes=1)
    assert run(folder.missing(), writes(tmp_path / "tally"), folder, processes=1).total == 0
    state = run(list(folder.failed()), writes(), folder, processes=1)
    assert state.finished == 2
    assert folder.failed() == {}
    assert not list((folder.path / "failures").iterdir())
    assert len(folder.finished()) == 6


def test_want_of_memory_is_a_failure_like_others(folder):
    run(folder.missing(), writes(a="memory"), folder, processes=2)
    assert [each["kind"] for each in folder.failed().values()] == ["MemoryError"] * 2
    assert len(folder.finished()) == 4


def test_a_unit_that_writes_nothing_has_failed(folder):
    run(folder.missing(), writes(a="nothing"), folder, processes=1)
    assert [each["kind"] for each in folder.failed().values()] == ["no result"] * 2


def test_a_full_disk_ends_the_run_at_once(folder):
    with pytest.raises(OSError, match="No space left on device.*free some space, then resume"):
        run(folder.missing(), writes(c="full"), folder, processes=1)
    assert folder.failed() == {}
    assert {key.set for key in folder.finished()} == {"a", "b"}
    assert errno.ENOSPC == 28  # as in the unit
    assert (
        run(folder.missing(), writes(), folder, processes=1).finished
        == len(folder.plan.units()) - 2
    )


def test_a_disk_that_is_full_for_the_journal_too(folder, monkeypatch):
    def full(self, about):
        if "unit" in about:
            raise OSError(
                errno.ENOSPC, "No space left on device", str(folder.path / "journal.jsonl")
            )

    monkeypatch.setattr(RunFolder, "note", full)
    with pytest.raises(OSError, match=r"No space left on device.*free some space, then resume"):
        run(folder.missing(), writes(), folder, processes=1)
    assert len(folder.finished()) >= 1


def test_warnings_and_words_of_units_are_kept_apart(folder, capfd):
    run(folder.missing(), writes(a="warn", b="print"), folder, processes=2)
    assert dict(folder.warnings()) == {"UserWarning: doubtful": 2}
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert folder.log.read_text().count("to stdout") == 2


# ---- workers that die --------------------------------------------------------------------------------------


def test_a_worker_that_dies_loses_only_its_unit(folder, tmp_path):
    tally = tmp_path / "tally"
    state = run(folder.missing(), writes(tally, b="die"), folder, processes=2)
    assert (state.finished, state.failed) == (4, 2)
    for failure in folder.failed().values():
        assert failure["kind"] == "killed"
        assert failure["attempts"] == 2
        assert "killed by SIGKILL" in failure["message"]
    tried = tally.read_text().split()
    assert [tried.count(key.name) for key in folder.finished()] == [
        1
    ] * 4  # no neighbour was disturbed
    assert [tried.count(key.name) for key in folder.failed()] == [2] * 2


def test_a_worker_that_dies_once_is_replaced(folder):
    state = run(folder.missing(), writes(a="die once", b="die once"), folder, processes=2)
    assert (state.finished, state.failed) == (6, 0)
    assert len(contents(folder)) == 6


def test_a_worker_that_dies_after_its_last_step_has_finished(folder):
    state = run(folder.missing(), writes(a="die after"), folder, processes=2)
    assert (state.finished, state.failed) == (6, 0)


def test_a_crash_of_a_library_leaves_its_traces(folder):
    """Such as a segmentation fault: where it was is in the log."""
    run(folder.missing()[:1], writes(a="abort"), folder, processes=1)
    (failure,) = folder.failed().values()
    assert "SIGABRT" in failure["message"]
    assert "Fatal Python error: Aborted" in folder.log.read_text()


def test_a_worker_killed_between_units_is_not_a_failure(folder):
    pool = pools.LocalPool(writes(), 1, 1, folder.log)
    try:
        first, second, *_ = folder.missing()
        pool.take(first, folder.unit_path(first))
        assert [key for key, _ in _until(pool)] == [first]
        (executor,) = pool._idle
        (pid,) = executor._processes
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: executor._flags.broken is not None)
        pool.take(second, folder.unit_path(second))
        assert [key for key, _ in _until(pool)] == [second]
    finally:
        pool.close()
    assert folder.finished() == [first, second]


def _until(pool):
    return list(pool.collect(HANGING))


# ---- threads -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [1, 2])
def test_threads_of_a_unit_are_limited(folder, n_threads):
    def unit(key, path):
        import json
        import os

        import numpy as np  # noqa: F401
        import torch
        from threadpoolctl import threadpool_info

        found = [each["num_threads"] for each in threadpool_info()]
        limits = {
            "pools": found,
            "torch": torch.get_num_threads(),
            "omp": os.environ["OMP_NUM_THREADS"],
        }
        path.write_text(json.dumps(limits))

    run(folder.missing()[:2], unit, folder, processes=1, n_threads=n_threads)
    for key in folder.finished():
        found = json.loads(folder.unit_path(key).read_text())
        assert found["omp"] == str(n_threads)
        assert found["torch"] == n_threads
        assert max(found["pools"]) <= n_threads


# ---- runs that are killed ----------------------------------------------------------------------------------

# Units that write a file piece by piece; once so many of them are finished, the others come to a halt in the
# midst of it. However late such a run is killed, it has not finished.
SCRIPT = """
    import sys
    from refinecal.experiments.running import run
    from refinecal.experiments.folder import RunFolder

    least = int(sys.argv[2])

    def unit(key, path):
        import time
        import numpy as np
        from refinecal._core.files import atomic_write

        with atomic_write(path) as part:
            with part.open("wb") as file:
                numbers = np.random.default_rng(len(key.set) + key.split).normal(size=3000)
                for place, some in enumerate(np.split(numbers, 10)):
                    file.write(some.tobytes())
                    file.flush()
                    while place == len(key.set) - 1 and len([*path.parent.glob("[!.]*")]) >= least:
                        time.sleep(0.01)

    def main(path):
        folder = RunFolder(path)
        run(folder.missing(), unit, folder, processes=2)

    main(sys.argv[1])
"""


def begin(folder, least=1000):
    return started(textwrap.dedent(SCRIPT), folder.path, least)


def halted(folder, least):
    """Tell whether so many units are finished, and both workers are in the midst of another."""
    return len(folder.finished()) >= least and len(list(folder.path.glob("units/.*.part.npz"))) == 2


def test_three_kills_and_the_same_files_as_without(tmp_path):
    plan = plan_of(*("x" * n for n in range(1, 11)), splits=6)
    whole_run = RunFolder.create(tmp_path / "whole", plan)
    killed = RunFolder.create(tmp_path / "killed", plan)
    for least in (8, 16, 24):
        with begin(killed, least) as process:
            wait_for(partial(halted, killed, least), process)
            kill(process)
        assert least <= len(killed.finished()) <= least + 1
    for folder in (killed, whole_run):
        with begin(folder) as process:
            assert process.wait(HANGING) == 0, process.communicate()
    assert contents(killed) == contents(whole_run)
    assert len(contents(killed)) == 60
    assert len(killed.sessions()) == 4
    assert [path.name for path in killed.path.rglob(".*")] == []


def test_workers_end_when_their_run_is_killed(folder):
    """If they went on, they would write into a run that somebody else has resumed."""
    with begin(folder, least=1) as process:
        wait_for(partial(halted, folder, 1), process)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        process.kill()  # it alone
        process.wait()
    _, alive = psutil.wait_procs(workers, timeout=HANGING)
    assert alive == []


def test_beginnings_of_files_are_removed(folder):
    for name in (
        "units/.a.1234abcd.part.npz",
        "failures/.a.1234abcd.part.json",
        ".plan.0.part.json",
    ):
        (folder.path / name).write_text("hal")
    assert folder.finished() == []
    run(folder.missing(), writes(), folder, processes=1)
    assert [path.name for path in folder.path.rglob(".*")] == []


def test_an_interrupt_ends_the_workers_at_once(folder):
    def interrupt(state):
        if state.finished >= 2:
            raise KeyboardInterrupt

    def slow(key, path):
        import time

        from refinecal._core.files import atomic_write

        with atomic_write(path) as part:
            part.write_text("begun")
            time.sleep(0 if key.split == 0 else 600)

    with pytest.raises(KeyboardInterrupt):
        run(folder.missing(), slow, folder, processes=2, progress=interrupt)
    assert {key.split for key in folder.finished()} == {0}
    assert [path.name for path in folder.path.rglob(".*")] == []
    assert not folder.is_running()


# ---- the folder --------------------------------------------------------------------------------------------


def test_one_run_at_a_time(folder):
    assert not folder.is_running()
    with folder.lock():
        assert folder.is_running()
        with pytest.raises(ValueError, match="another process is running the experiment"):
            run(folder.missing(), writes(), folder)
    assert not folder.is_running()


def test_a_new_run_takes_a_new_or_empty_folder(tmp_path, folder):
    with pytest.raises(FileExistsError, match="continue it with --resume"):
        RunFolder.create(folder.path, folder.plan)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="exists and is not a run"):
        RunFolder.create(tmp_path / "other", folder.plan)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="exists and is not a run"):
        RunFolder.create(tmp_path / "file", folder.plan)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".plan.0123abcd.part.json").touch()  # killed at once
    assert RunFolder.create(tmp_path / "empty", folder.plan).plan == folder.plan


def test_what_is_no_run(tmp_path):
    with pytest.raises(ValueError, match="is not a folder, so it is not a run"):
        RunFolder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no plan.json, so it is not a run"):
        RunFolder(tmp_path)
    (tmp_path / "plan.json").write_text('{"sources": [')
    with pytest.raises(ValueError, match="is damaged"):
        RunFolder(tmp_path)


def test_another_plan_is_refused_with_what_differs(folder):
    folder.grow(folder.plan)
    before = (folder.path / "plan.json").read_bytes()
    with pytest.raises(
        ValueError,
        match=r"(?s)another plan:\s+splits: 2, now 1\s.*no longer there: c\s+A run can get",
    ):
        folder.grow(plan_of("a", "b", "d", splits=1))
    assert (folder.path / "plan.json").read_bytes() == before


def test_a_run_grows_and_keeps_what_it_has(folder, tmp_path):
    run(folder.missing(), writes(), folder, processes=1)
    larger, tally = plan_of("d", "c", "b", "a", splits=3, configs=1), tmp_path / "tally"
    folder.grow(larger)
    assert RunFolder(folder.path).plan == folder.plan == larger
    assert len(folder.finished()) == 6
    run(folder.missing(), writes(tally), folder, processes=1)
    assert folder.finished() == larger.units()  # in the order of a run that was planned so
    assert len(tally.read_text().split()) == len(larger.units()) - 6


def test_a_run_does_not_grow_while_it_runs_nor_shrink_since_another_made_it_grow(folder):
    other = RunFolder(folder.path)
    with other.lock(), pytest.raises(ValueError, match="another process is running"):
        folder.grow(plan_of("a", "b", "c", splits=3))
    other.grow(plan_of("a", "b", "c", splits=5))
    with pytest.raises(ValueError, match="splits: 5, now 3"):
        folder.grow(plan_of("a", "b", "c", splits=3))
    assert RunFolder(folder.path).plan.splits == 5


def test_a_larger_plan_is_written_whole_or_not_at_all(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        folder.grow(plan_of("a", "b", "c", splits=3))
    assert folder.plan == RunFolder(folder.path).plan == plan_of("a", "b", "c")


def test_tables_may_move(folder):
    sources = tuple({**source, "path": "/elsewhere"} for source in folder.plan.sources)
    moved = replace(folder.plan, sources=sources)
    folder.grow(moved)
    assert RunFolder(folder.path).plan == moved


def test_a_file_of_no_bytes_is_no_result(folder):
    """As a power cut may leave it."""
    first, *others = folder.plan.units()
    folder.unit_path(first).touch()
    assert folder.finished() == []
    assert first in folder.missing()
    run(folder.missing(), writes(), folder, processes=1)
    assert len(folder.finished()) == 1 + len(others)


def test_results_that_are_cut_off_are_removed(folder):
    run(folder.missing(), writes(), folder, processes=1)
    first, second, *others = folder.plan.units()
    for key in (first, second):
        folder.unit_path(key).write_text("resu")
    assert folder.remove_damaged() == [first, second]
    assert folder.missing() == [first, second]
    assert folder.finished() == others


def test_results_that_cannot_be_read_are_kept(folder):
    """A disk that does not answer says nothing about the file."""
    first = folder.plan.units()[0]
    folder.unit_path(first).mkdir()
    (folder.unit_path(first) / "x").touch()  # so that the entry has a size
    with pytest.raises(OSError, match=first.name):
        folder.remove_damaged()
    assert folder.unit_path(first).exists()
    found = summary(folder)
    assert (found["damaged"], found["finished"]) == (0, 1)
    assert first.name in found["unreadable"][0]


def test_what_another_run_finished_meanwhile_is_not_computed_again(folder, tmp_path):
    keys, tally = folder.missing(), tmp_path / "tally"
    run(keys[:4], writes(), folder, processes=1)
    state = run([*keys, *keys], writes(tally), folder, processes=1)
    assert (state.total, state.finished) == (2, 2)
    assert tally.read_text().split() == [key.name for key in keys[4:]]


def test_to_ask_whether_a_run_is_running_does_not_stop_one_from_beginning(folder, monkeypatch):
    def sleep(seconds):
        if seconds:  # after the first look
            asking.close()

    monkeypatch.setattr(files, "time", SimpleNamespace(sleep=sleep))
    with (folder.path / "lock").open("a") as asking:
        assert lock(asking.fileno())  # as is_running does, for a moment
        assert not folder.is_running()  # two may ask
    with (folder.path / "lock").open("a") as asking:
        assert lock(asking.fileno())
        with folder.lock():
            assert folder.is_running()


def test_a_damaged_failure_is_still_a_failure(folder):
    key = folder.plan.units()[0]
    for text in b"{", b"[1]", b"{}", b"\xff":
        (folder.path / "failures" / f"{key.name}.json").write_bytes(text)
        assert folder.failed()[key]["kind"] == "unknown"


def test_a_journal_that_was_cut_off_goes_on(folder):
    folder.note({"unit": "a-xgboost-s0-c0", "seconds": 2.0})
    with (folder.path / "journal.jsonl").open("a") as file:
        file.write('{"unit": "a-xgb')
    folder.note({"unit": "b-xgboost-s0-c0", "seconds": 4.0})
    folder.note({"unit": "c-xgboost-s0-c0", "failed": "KeyError", "seconds": 100.0})
    folder.note({"unit": "unknown", "seconds": 100.0})
    assert [line["unit"][0] for line in folder.journal()] == ["a", "b", "c", "u"]
    assert folder.rates().mean(("xgboost",)) == 3.0


def test_lines_of_the_journal_that_lack_something_are_passed_over(folder):
    unit = {"unit": "a-xgboost-s0-c0"}
    for line in {"begin": 1}, unit, {**unit, "seconds": "2"}:
        folder.note(line)
    assert folder.rates().mean(("xgboost",)) is None
    assert summary(folder)["width"] == 1


def test_a_name_that_is_no_text_leaves_nothing_behind(tmp_path):
    plan = plan_of("a")
    source = {**plan.sources[0], "path": "/data/b\udcff.csv"}  # as a file system may give it
    with pytest.raises(ValueError, match=r"'/data/b\\udcff.csv' is not UTF-8: rename that"):
        RunFolder.create(tmp_path / "run", replace(plan, sources=(source,)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\xff", "plan.json is damaged"),
        (b"[]", "plan.json"),
        (b'{"kind": "x"}', "plan.json: the plan"),
    ],
)
def test_a_plan_that_cannot_be_read_is_named(folder, text, said):
    (folder.path / "plan.json").write_bytes(text)
    with pytest.raises(ValueError, match=said):
        RunFolder(folder.path)


def test_other_versions_are_told(folder):
    assert folder.changed_versions() == []
    folder.note({"begin": 1, "versions": {**versions(), "numpy": "0.1"}})
    (said,) = folder.changed_versions()
    assert said.startswith("numpy was 0.1")


# ---- how long it takes -------------------------------------------------------------------------------------


def test_time_left_is_by_what_is_most_alike():
    rates = Rates()
    rates.add(TableKey("big", 0, "mlp", 0), 100.0)
    rates.add(TableKey("big", 1, "mlp", 0), 50.0)
    rates.add(TableKey("big", 0, "mlp", 1), 300.0)
    rates.add(TableKey("small", 0, "mlp", 0), 10.0)
    assert rates.expect(TableKey("big", 2, "mlp", 0)) == 75.0
    assert rates.expect(TableKey("big", 2, "mlp", 7)) == 300.0
    assert rates.expect(TableKey("small", 0, "mlp", 1)) == 10.0
    assert rates.expect(TableKey("new", 0, "mlp", 0)) == (100 + 50 + 300 + 10) / 4
    assert rates.expect(TableKey("big", 0, "xgboost", 0)) is None
    keys = [
        TableKey("big", 3, "mlp", 0),
        TableKey("small", 3, "mlp", 0),
        TableKey("big", 0, "xgboost", 0),
    ]
    assert rates.left(Counter(key.alike for key in keys)) == 85 / 2 * 3  # one is unknown
    assert rates.left(Counter([keys[2].alike])) is None
    assert rates.left({}) == 0


def test_time_left_of_a_state():
    keys = [TableKey("a", split, "mlp", 0) for split in range(8)]
    state = State(8, left=set(keys), width=2)
    assert state.seconds_left is None
    state.rates.add(keys[0], 10.0)
    assert state.seconds_left == 8 * 10 / 2
    for key in keys:
        state.end(key)
    assert state.left == set()
    assert state.seconds_left == 0


def test_time_left_does_not_take_longer_for_more_units():
    """It is asked for after every unit: of 88 200, that would be hours."""
    asked = []

    class Counted(TableKey):
        @property
        def alike(self):
            asked.append(self)
            return super().alike

    state = State(500, left={Counted("a", split, "mlp", 0) for split in range(500)})
    asked.clear()
    state.rates.add(TableKey("a", 0, "mlp", 0), 10.0)
    assert state.seconds_left == 5000
    assert asked == []


def test_durations():
    given = (0, 2.34, 10.4, 59.4, 59.6, 3599.7, 3660, 86400)
    said = ["0.0 s", "2.3 s", "10 s", "59 s", "1 min", "1 h", "1 h 1 min", "1 d"]
    assert [duration(each) for each in given] == said


def test_no_framework_is_imported_to_look_at_a_run(folder):
    code = (
        "import sys; from refinecal.experiments.folder import RunFolder; RunFolder(sys.argv[1]).missing(); "
        "from refinecal.experiments import running; "
        "print(sorted({'numpy', 'pandas', 'joblib', 'distributed', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(folder.path)], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_the_folder_holds_nothing_else(folder):
    run(folder.missing(), writes(b="raise"), folder, processes=1)
    assert {path.name for path in Path(folder.path).iterdir()} == {
        *("plan.json", "units", "failures", "journal.jsonl", "lock", "workers.log"),
        "manifest.json",
    }


def test_the_manifest_reveals_damage_that_archives_hide(folder):
    """A result that another one has overwritten is whole, but not the one that was written."""
    first, second = folder.plan.units()[:2]
    run([first, second], writes(), folder, processes=1)
    listed = json.loads((folder.path / "manifest.json").read_text())
    assert listed["format"] == 1
    units = (f"units/{key.name}.npz" for key in (first, second))
    assert sorted(listed["files"]) == ["plan.json", *sorted(units)]
    folder.unit_path(first).write_bytes(folder.unit_path(second).read_bytes())
    assert folder.remove_damaged() == [first]
    run([first], writes(), folder, processes=1)  # and the new result is listed in its place
    assert folder.remove_damaged() == []
    (folder.path / "manifest.json").write_text("{")
    with pytest.raises(
        ValueError, match=r"manifest\.json is not what an experiment wrote .*delete it"
    ):
        folder.remove_damaged()
    (folder.path / "manifest.json").write_text('{"format": 9, "files": {}}')
    with pytest.raises(ValueError, match="has format 9, this version reads 1: start a new run"):
        RunFolder(folder.path)


def test_damage_within_results_of_a_killed_run_is_found(folder):
    """Of these, the manifest does not know yet: the checksums of the archive tell."""
    first, second = folder.plan.units()[:2]
    for key in (first, second):
        np.savez(folder.unit_path(key), values=np.arange(100))
    content = bytearray(folder.unit_path(first).read_bytes())
    content[len(content) // 2] ^= 255
    folder.unit_path(first).write_bytes(content)
    assert folder.remove_damaged() == [first]
    assert folder.finished() == [second]


def test_a_plan_that_was_changed_by_hand_is_refused(folder):
    run(folder.missing(), writes(), folder, processes=1)
    place = folder.path / "plan.json"
    written = place.read_text()
    place.write_text(written.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(
        ValueError, match=r"plan\.json has been changed since .* restore it from a copy"
    ):
        RunFolder(folder.path)
    place.write_text(written)
    folder.grow(replace(folder.plan, splits=folder.plan.splits + 1))  # as a command does
    assert RunFolder(folder.path).plan == folder.plan != Plan.from_json(written)
    folder.write_plan(written.encode())  # by a process that is killed before it releases the lock
    assert RunFolder(folder.path).plan == Plan.from_json(written)
