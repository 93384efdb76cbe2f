"""What ``refinecal fit`` and ``refinecal predict`` do: from a table to calibrated probabilities."""
