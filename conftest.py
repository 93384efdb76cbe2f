"""Set what has to be set before any test module is imported."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras has no backend of its own
os.environ.setdefault("MPLBACKEND", "Agg")  # no windows

from hypothesis import settings

# No test asserts a time. Half of Hypothesis' own number of examples, since the properties are many.
settings.register_profile("refinecal", deadline=None, max_examples=50)
settings.load_profile("refinecal")

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


def pytest_collection_modifyitems(items):
    """Begin with the long files: two workers that take file by file then end at about the same time."""
    items.sort(key=lambda item: item.path.name not in LONG)
