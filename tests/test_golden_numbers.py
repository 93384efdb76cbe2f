"""Results of the whole package are those of the golden file, up to digits that depend on the processor."""

import golden_numbers
import pytest

SLOW = ("experiment",)  # which trains in processes of its own and draws a report


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=pytest.mark.slow if group in SLOW else ())
        for group in golden_numbers.GROUPS
    ],
)
def test_numbers_are_those_of_the_golden_file(group):
    golden = {
        key: pytest.approx(value, rel=tolerance(key), abs=1e-12, nan_ok=True)
        for key, value in golden_numbers.load().items()
        if golden_numbers.group_of(key) == group
    }
    found = golden_numbers.compute_group(group)
    assert found.keys() == golden.keys()
    assert found == golden


def tolerance(key):
    """Return the relative tolerance of a number.

    With kernels compiled for a processor without vector instructions, numbers moved by up to 3e-7 where they
    are computed in float32, by 2e-9 where a solver ends or XGBoost predicts, and by 3e-11 elsewhere.
    """
    if "float32" in key:
        return 1e-6
    return 1e-8 if golden_numbers.group_of(key) in ("calibrators", "fit") else 1e-9


def test_every_golden_number_belongs_to_a_group():
    groups = {golden_numbers.group_of(key) for key in golden_numbers.load()}
    assert groups == set(golden_numbers.GROUPS)
