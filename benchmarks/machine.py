"""Where the numbers come from: processor, threads and versions."""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "refinecal",
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "torch",
    "probmetrics",
    "pytorch-minimize",
    "netcal",
)


@dataclass(frozen=True)
class Machine:
    """The processor, how many threads we may use of it, and the software on it."""

    processor: str
    n_threads: int
    versions: dict[str, str]

    @property
    def listed(self) -> str:
        """The versions as a sentence."""
        return ", ".join(f"{name} {number}" for name, number in self.versions.items())


def this_machine() -> Machine:
    """Return what this process runs on."""
    return Machine(_processor(), _available_threads(), _versions())


def with_libraries(packages: Sequence[str]) -> Machine:
    """Return this machine with the versions of some libraries, beside those of our own core."""
    machine = this_machine()
    versions = {name: machine.versions[name] for name in ("Python", "refinecal", "numpy", "numba")}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return replace(machine, versions=versions)


def _available_threads() -> int:
    if hasattr(os, "sched_getaffinity"):  # counts what the process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    info = Path("/proc/cpuinfo")  # on Linux, platform.processor() is empty or "x86_64"
    named = re.search(r"model name\s*:\s*(.+)", info.read_text() if info.exists() else "")
    return named[1].strip() if named else platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
