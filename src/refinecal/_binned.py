"""The kinds of calibration errors."""

KINDS = ("auto", "binary", "top-label", "class-wise")
