"""The one way to import an optional package."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, package: str) -> Iterator[None]:
    """Say how to get ``package`` if importing it inside the block fails because it is absent.

    A package that is there but broken shows its own error.

    >>> with needs_extra("nowhere", package="no_such_package"):
    ...     import no_such_package
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: no_such_package is not installed; get it with: pip install 'refinecal[nowhere]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"{package} is not installed; get it with: pip install 'refinecal[{extra}]'",
            name=package,
        ) from error
