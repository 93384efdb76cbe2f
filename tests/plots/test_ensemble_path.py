"""The path of an ensemble."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import assert_in_palette, assert_readable, blank

import refinecal as rc
from refinecal.ensembles import SelectedEnsemble
from refinecal.plots import EnsemblePathDisplay


@given(
    st.lists(st.floats(0.1, 2), min_size=1, max_size=30),
    st.sampled_from(["page", "column"]),
    st.booleans(),
)
def test_the_picture_is_readable_whatever_the_path(values, size, crossed):
    names = ["a model with a long name", "b"] * 15
    cv_values = np.array(values) + 0.01 if crossed else None
    display = EnsemblePathDisplay(values, cv_values, names[: len(values)], n_used=1)
    figure = display.plot(blank(size)).figure_
    assert_readable(figure)
    assert_in_palette(figure)


def test_the_path_of_an_ensemble_is_drawn():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    noise = rng.normal(size=(4, 600))
    stack = [*((2 * y - 1) + 1.5 * rng.normal(size=(4, 600))), *noise]
    found = rc.select_ensemble(y, logits=stack, max_picks=7)
    display = found.plot(blank())
    ours = display.lines_["cv_values"].get_ydata()
    np.testing.assert_array_equal(ours, [step["cv_value"] for step in found.path])
    assert display.lines_["used"].get_xdata()[0] == sum(step["used"] for step in found.path)
    assert display.texts_[0].get_text() == found.path[0]["member"]
    plain = rc.select_ensemble(y, logits=stack, cv=None)
    restored = SelectedEnsemble.from_dict(plain.to_dict())  # without cross-validated values
    assert "cv_values" not in restored.plot(blank()).lines_


def test_wrong_lengths():
    with pytest.raises(ValueError, match="values is empty"):
        EnsemblePathDisplay([])
    with pytest.raises(ValueError, match="cv_values has shape"):
        EnsemblePathDisplay([0.5, 0.4], [0.5])
