"""How much memory a training takes: the peak of its process, from the moment that it begins."""

from __future__ import annotations

import sys
from contextlib import suppress

__all__ = ["forget_peak", "peak_memory"]

STATUS = "/proc/self/status"  # Linux
FORGET = "/proc/self/clear_refs"  # writing 5 forgets the peak of memory so far


def forget_peak() -> None:
    """Let the peak of memory be this unit's, not that of another one before it; where it can be done."""
    with suppress(OSError), open(FORGET, "w") as file:
        file.write("5")


def peak_memory() -> int:
    """Return the most memory that the process has used, in bytes; 0 where the system does not say.

    On Linux, the figure of ``getrusage`` begins with the memory of the process that started this one.
    """
    with suppress(OSError), open(STATUS) as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
