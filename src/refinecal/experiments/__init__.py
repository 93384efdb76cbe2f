"""The paper's experiments, as functions that return numbers and pages that show them."""
