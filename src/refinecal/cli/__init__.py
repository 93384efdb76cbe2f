"""The command line: ``refinecal fit``, ``predict``, ``evaluate``, ``compare``, ``demo`` and others."""

import atexit
import gc
import sys

from refinecal._core.errors import needs_extra

PACKAGES = ("typer", "rich")


def main() -> None:
    """Run the command line, or say how to install it if its packages are missing."""
    from refinecal.cli import _interrupts

    _interrupts.install()
    atexit.register(gc.freeze)  # or the search for garbage at exit takes a third of a second
    try:
        with needs_extra("cli", *PACKAGES):
            import rich  # noqa: F401  # which typer imports when it writes

            from refinecal.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        sys.exit(f"error: {error}")
    app(prog_name="refinecal")
