"""Print the bytes our fit needs beyond its input: ``python -m benchmarks.memory``."""

import argparse
import re
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.data import draw

STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Return the largest memory that this process has occupied so far."""
    found = re.search(r"VmHWM:\s*(\d+)", STATUS.read_text() if STATUS.exists() else "")
    if found:  # on Linux a child inherits getrusage's peak from its parent, but not this
        return 1024 * int(found[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def extra_bytes(n: int, k: int) -> int:
    """Return by how much the peak grows while fitting float32 logits of this size."""
    import refinecal as rc

    # Compile before the large arrays exist: they lift the peak above the compiler's.
    warm_up = draw(n // 10, k)
    rc.fit_temperature(warm_up.labels, warm_up.logits)
    del warm_up
    sample = draw(n, k)
    before = peak_bytes()
    rc.fit_temperature(sample.labels, sample.logits)
    return peak_bytes() - before


def extra_bytes_elsewhere(n: int, k: int) -> int:
    """Return the same, measured in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", str(n), str(k)]
    return int(subprocess.check_output(command, text=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("k", type=int)
    arguments = parser.parse_args()
    print(extra_bytes(arguments.n, arguments.k))
