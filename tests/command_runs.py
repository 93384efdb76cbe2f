"""Commands run in this process or in one of their own: what they print, and with what code they end."""

import functools
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

from rich.cells import cell_len
from typer.main import get_command
from typer.testing import CliRunner

HANGING = 600  # seconds, which nothing takes on however slow a machine: what hangs ends some day

# Answers to ctrl-C, says so, and then is the command line; before that Python itself would answer.
READY = (
    "from refinecal.cli import _interrupts, main; _interrupts.install(); "
    "print('ready', flush=True); main()"
)

# `refinecal experiment`, whose workers come to a halt in the midst of writing a file, as soon as a number of
# files match a pattern: the first two arguments. However late it is stopped, it has not finished.
HALTING = """
import sys
from refinecal.cli import _interrupts
_interrupts.install()
from refinecal.cli.experiment import experiment_app
from refinecal.experiments import running
from refinecal.experiments.pools import LocalPool

def halting(function, least, pattern):
    def unit(key, path):
        import os, time
        from pathlib import Path
        from types import SimpleNamespace
        from refinecal._core import files

        def replace(part, target):
            while len(list(Path(path).parents[1].glob(pattern))) >= least:
                time.sleep(0.01)
            os.replace(part, target)

        files.os = SimpleNamespace(**{**vars(os), "replace": replace})
        function(key, path)

    return unit

def pool(function, *rest):
    return LocalPool(halting(function, int(sys.argv[1]), sys.argv[2]), *rest)

running.LocalPool = pool
experiment_app(sys.argv[3:], prog_name="refinecal")
"""


def run_command(app, *arguments, code=0, columns=80):
    """Run a command; return what it printed on stdout, and on stderr in one line.

    It must end with the code, without an error that Python shows, and fit into the columns.
    """
    out, err = invoke(app, *arguments, code=code, columns=columns)
    assert all(cell_len(line) <= columns for line in out.splitlines() if line[:1] != "{")
    return out, " ".join(err.replace("│", " ").split())


def invoke(app, *arguments, code=0, columns=80, input=None):
    """Run a command that must end with the code; return what it printed on stdout, and on stderr."""
    runner, command = CliRunner(), command_of(app)
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    with runner.isolation(input, env=environment) as (out, err, both):
        ended = None
        try:
            command.main([*map(str, arguments)], prog_name=runner.get_default_prog_name(command))
        except SystemExit as end:
            ended = end.code
        sys.stdout.flush()
        sys.stderr.flush()
        printed, told, output = (stream.getvalue().decode() for stream in (out, err, both))
    assert (ended or 0) == code, output
    return printed, told


command_of = functools.cache(get_command)  # which takes longer than many a command


@contextmanager
def started(code, *arguments, **options):
    """Give a process that runs the code, in a group of its own that does not outlive the block.

    It is not among those whose coverage is measured: interrupted while it counts a line, it would hang.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["env"] = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, start_new_session=True, **(pipes | options)) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(condition, process=None):
    """Wait until something is so, which a process brings about before it ends."""
    end = time.monotonic() + HANGING
    while not condition():
        if process is not None and process.poll() is not None:
            assert condition(), process.communicate()
            return
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def interrupt(process):
    """Press ctrl-C, as a terminal does: all processes of the group get it; return what they wrote."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=HANGING)


def kill(process):
    """End all processes of the group at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
