"""Locks: one holder, who is named; gone with the process that held them; no trace where none is wanted."""

import os
import socket
import subprocess
import sys

import pytest

from refinecal._core import files
from refinecal._core.files import hold_lock, is_locked, lock

HOLDER = """
import sys, time
from pathlib import Path
from refinecal._core.files import hold_lock
with hold_lock(Path(sys.argv[1]), "at work"):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_one_holder_at_a_time_who_is_named(tmp_path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    with hold_lock(path, "at work"):
        assert is_locked(path)
        who = f"another process is at work .process {os.getpid()} on {socket.gethostname()} since 2"
        with pytest.raises(ValueError, match=who), hold_lock(path, "at work"):
            pass
        assert is_locked(path)
    assert not is_locked(path)
    assert path.exists()
    with hold_lock(path, "at work", remove=True):
        assert is_locked(path)
    assert not path.exists()


def test_a_lock_ends_with_its_process_even_if_that_is_killed(tmp_path):
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "locked\n"
        with (
            pytest.raises(ValueError, match=f"process {holder.pid} on"),
            hold_lock(path, "at work"),
        ):
            pass
        holder.kill()
    assert path.read_text().startswith(f"{holder.pid} on ")  # a stale word, which blocks nobody
    with hold_lock(path, "at work"):
        assert path.read_text().startswith(f"{os.getpid()} on ")


def test_a_lock_that_its_holder_has_just_removed_is_made_anew(tmp_path, monkeypatch):
    path, held = tmp_path / "lock", []

    def late(descriptor):  # the holder ends after we have opened its file
        if not held:
            path.unlink()
        held.append(lock(descriptor))
        return held[-1]

    monkeypatch.setattr(files, "lock", late)
    with hold_lock(path, "at work"):
        assert held == [True, True]
        assert is_locked(path)


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="needs what cannot be locked")
def test_where_there_are_no_locks_nothing_is_locked(tmp_path):
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        assert lock(descriptor)
        assert lock(descriptor)
    finally:
        os.close(descriptor)
