"""The one way to import an optional package."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, package: str, *others: str) -> Iterator[None]:
    """Say how to get ``package``, or one of the others, if importing it in the block fails for want of it.

    A package that is there but broken shows its own error; of blocks within blocks, the innermost is heard.

    >>> with needs_extra("nowhere", package="no_such_package"):
    ...     import no_such_package
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: no_such_package is not installed; get it with: pip install 'refinecal[nowhere]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        said = f"{error.name} is not installed; get it with: pip install "
        if error.name in (package, *others) and not str(error).startswith(said):
            error.msg = f"{said}'refinecal[{extra}]'"
        raise
