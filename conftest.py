"""Set what has to be set before any test module is imported."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras has no backend of its own
os.environ.setdefault("MPLBACKEND", "Agg")  # no windows

from hypothesis import settings

# No test asserts a time. Half of Hypothesis' own number of examples, since the properties are many.
settings.register_profile("refinecal", deadline=None, max_examples=50)
settings.load_profile("refinecal")
