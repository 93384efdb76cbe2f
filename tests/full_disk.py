"""A disk that takes no more, without being root: the system's limit of the size of files."""

import resource
from contextlib import contextmanager


@contextmanager
def small_files(largest):
    """Let no file that is written become larger; that is EFBIG, where a full disk says ENOSPC."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
