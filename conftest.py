"""Set what has to be set before any test module is imported."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras has no backend of its own
os.environ.setdefault("MPLBACKEND", "Agg")  # no windows

from hypothesis import settings

settings.register_profile("refinecal", deadline=None)  # no test asserts a time
settings.load_profile("refinecal")
