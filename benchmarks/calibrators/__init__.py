"""Calibrators compared on real predictions: ours, those of other packages, and none."""
