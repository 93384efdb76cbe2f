"""What a fresh interpreter sees: a light import, a cache that may be missing, a read-only installation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import refinecal as rc

SOURCE = Path(rc.__file__).parent
FIT = "import refinecal as rc; print(rc.fit_temperature([0, 0, 0, 1], [[2.0, 0.0]] * 4).beta)"


def run(code, **environment):
    """Run code in a new interpreter and return what it prints."""
    env = {**os.environ, "PYTHONWARNINGS": "error", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_framework_and_not_even_numpy():
    heavy = {"numpy", "scipy", "torch", "sklearn", "numba", "pandas", "matplotlib", "jax", "polars"}
    loaded = run("import sys, refinecal; print(*sys.modules)").split()
    assert not heavy & set(loaded)


def test_decomposing_loads_no_framework():
    code = "import sys, refinecal as rc; rc.decompose([0, 1], [0.2, 0.7]); print(*sys.modules)"
    assert not {"torch", "sklearn", "pandas", "matplotlib", "jax", "polars"} & set(
        run(code).split()
    )


def test_names_are_all_there():
    for name in dir(rc):
        assert getattr(rc, name) is not None
    assert set(rc.__all__) <= set(dir(rc))


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(rc, "refine")


@pytest.mark.slow
def test_a_read_only_installation_works(tmp_path):
    """No folder to keep compiled code in: neither beside the source nor in the home folder."""
    package = tmp_path / "site" / "refinecal"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    nowhere = tmp_path / "file"
    nowhere.write_text("")  # a file cannot hold a cache folder, whoever asks
    (package / "__pycache__").write_text("")
    beta = run(
        FIT,
        PYTHONPATH=str(tmp_path / "site"),
        HOME=str(nowhere),
        XDG_CACHE_HOME=str(nowhere),
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert abs(float(beta) - 0.5493061443340549) < 1e-12  # log(3) / 2


SUMS = """
import numpy as np
from refinecal._kernels.temperature import read
rng, nothing = np.random.default_rng(0), np.empty(0)
for _ in range(1000):
    n = rng.integers(20, 700)
    z, y = 3 * rng.normal(size=(n, 10)).astype(np.float32), rng.integers(0, 10, n)
    print(*(value.hex() for value in read(z, y, nothing, nothing, 1.0)))
"""


@pytest.mark.slow
def test_compiled_now_or_read_from_the_cache_the_sums_are_equal_to_the_last_bit(tmp_path):
    compiled, cached = (run(SUMS, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert any(tmp_path.rglob("temperature.read*.nbc"))
    assert compiled == cached
