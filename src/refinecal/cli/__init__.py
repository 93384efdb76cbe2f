"""The command line: ``refinecal fit | predict | evaluate | compare | demo``."""

import sys

PACKAGES = ("typer", "rich")


def main() -> None:
    """Run the command line; say how to get it if its packages are missing."""
    from refinecal.cli import _interrupts

    _interrupts.install()
    try:
        from refinecal.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        sys.exit(
            f"refinecal: {error.name} is not installed; get the command line with: "
            "pip install 'refinecal[cli]'"
        )
    app(prog_name="refinecal")
