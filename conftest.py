"""Set what has to be set before any test module is imported."""

import gc
import os
import random
import subprocess
import sys
from collections import Counter
from io import StringIO
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras has no backend of its own
os.environ.setdefault("MPLBACKEND", "Agg")  # no windows

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# `make test` and `make test-full` draw nothing at random, `make fuzz` draws everything anew. How long an
# example takes never decides: neither a deadline nor the health check that measures time.
UNTIMED = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("test", max_examples=15, derandomize=True, **UNTIMED)
settings.register_profile("full", max_examples=50, derandomize=True, **UNTIMED)
settings.register_profile("fuzz", max_examples=300, derandomize=False, print_blob=True, **UNTIMED)
settings.load_profile("test")

LONG = (
    "test_examples.py",
    "test_readme.py",
    "test_commands.py",
    "test_cli_experiment.py",
    "test_cli_experiment_report.py",
    "test_experiment_dask.py",
    "test_experiment_report.py",
    "test_transformers.py",
)  # files that take longest


def pytest_sessionstart(session):
    """Compile the kernels once, while the workers still collect, and not in each of them."""
    is_worker = hasattr(session.config, "workerinput")
    if not is_worker and getattr(session.config.option, "numprocesses", None):
        script = Path(__file__).parent / "tests" / "compile_kernels.py"
        session.compiling = subprocess.Popen([sys.executable, script])


def pytest_sessionfinish(session):
    if hasattr(session, "compiling"):
        session.compiling.wait()


def pytest_collection():
    gc.disable()  # nothing of what collecting imports is garbage


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config, items):
    """Begin with the long files: two workers that take file by file then end at about the same time."""
    items.sort(key=lambda item: item.path.name not in LONG)
    if is_quick():
        kept = dict.fromkeys(thin_out(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def is_quick():
    return settings.get_current_profile_name() == "test"


def thin_out(items):
    """Give all tests, but of each sweep only every n-th case."""
    cases = Counter()
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep is None or cases[item.function] % sweep.args[0] == 0:
            yield item
        if sweep is not None:
            cases[item.function] += 1


def pytest_runtest_setup(item):
    """Let what draws without a seed of its own draw the same in any order, and look for Chromium."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  # scikit-learn's default
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    if item.get_closest_marker("browser"):
        from browser import find_chromium

        if find_chromium() is None:
            pytest.fail(
                "no Chromium is found: install one, or set REFINECAL_CHROMIUM", pytrace=False
            )


@pytest.fixture(scope="module")
def blank_figures():
    """Leave the figures of reports empty in tests of all the rest; `make test-full` draws them."""
    blank = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1" viewBox="0 0 1 1"/>'
    if not is_quick():
        yield
        return
    from refinecal.report import figures

    draw = figures._draw

    def leave_blank(figure, target, *rest, **how):
        if isinstance(target, StringIO):
            target.write(blank)
        else:
            draw(figure, target, *rest, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "_draw", leave_blank)
        yield
