"""Waterfalls: every bar begins where the one before it ends, and numbers are those of the decomposition."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from pictures import assert_readable, blank
from strategies import drawn, examples

import refinecal as rc
from refinecal.plots import WaterfallDisplay
from refinecal.plots.style import PALETTE

ORDER = ["uncertainty", "sharpness", "refinement", "calibration", "risk"]


@pytest.fixture(scope="module")
def parts():
    y, logits = drawn(500, 3, confidence=2)
    return rc.decompose(y, logits=logits)


def made(risk, refinement, uncertainty, loss="log"):
    return SimpleNamespace(risk=risk, refinement=refinement, uncertainty=uncertainty, loss=loss)


def ends(bar):
    return bar.get_x(), bar.get_x() + bar.get_width()


def test_bars_lead_from_uncertainty_to_risk(parts):
    bars = WaterfallDisplay.from_decomposition(parts, ax=blank()).bars_
    assert list(bars) == ORDER
    expected = {
        "uncertainty": (0, parts.uncertainty),
        "sharpness": (parts.uncertainty, parts.refinement),
        "refinement": (0, parts.refinement),
        "calibration": (parts.refinement, parts.risk),
        "risk": (0, parts.risk),
    }
    for term, bar in bars.items():
        np.testing.assert_allclose(ends(bar), expected[term])
        assert to_hex(bar.get_facecolor()) == PALETTE[term]
    heights = [bar.get_y() for bar in bars.values()]
    assert heights == sorted(heights)


def test_numbers_are_written_with_their_signs(parts):
    display = WaterfallDisplay.from_decomposition(parts, ax=blank())
    said = {term: text.get_text() for term, text in display.texts_.items()}
    assert said == {
        "uncertainty": f"{parts.uncertainty:.4f}",
        "sharpness": f"−{parts.sharpness:.4f}",
        "refinement": f"{parts.refinement:.4f}",
        "calibration": f"+{parts.calibration:.4f}",
        "risk": f"{parts.risk:.4f}",
    }
    names = [tick.get_text() for tick in display.ax_.get_yticklabels()]
    assert names == ["uncertainty", "− sharpness", "= refinement", "+ calibration", "= risk"]
    assert display.ax_.get_xlabel() == "log loss"


def test_refinement_is_irreducible_and_grouping_loss_if_the_truth_is_known():
    truth = np.random.default_rng(0).dirichlet(np.ones(3), size=400)
    probs = truth @ [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    parts = rc.decompose(truth, probs, true_probs=truth, loss="brier")
    assert parts.irreducible < parts.refinement
    bars = WaterfallDisplay.from_decomposition(parts, ax=blank()).bars_
    assert list(bars) == [*ORDER[:3], "irreducible", "grouping", *ORDER[3:]]
    np.testing.assert_allclose(ends(bars["irreducible"]), (0, parts.irreducible))
    np.testing.assert_allclose(ends(bars["grouping"]), (parts.irreducible, parts.refinement))
    stored = WaterfallDisplay.from_decomposition(parts.to_dict()).figure_
    assert_readable(stored)


def test_a_negative_calibration_leads_back():
    display = WaterfallDisplay.from_decomposition(made(0.5, 0.625, 0.75), ax=blank())
    assert ends(display.bars_["calibration"]) == (0.625, 0.5)
    assert display.texts_["calibration"].get_text() == "−0.1250"


def test_cross_validation_may_give_one_and_it_is_drawn():
    y, logits = drawn(12, 2, seed=3)
    parts = rc.decompose(y, logits=logits, cv="loo")
    assert parts.calibration < 0
    assert_readable(WaterfallDisplay.from_decomposition(parts, ax=blank()).figure_)


def test_the_risk_after_calibration_is_one_more_bar(parts):
    by_value = WaterfallDisplay.from_decomposition(parts, after=0.3, ax=blank())
    assert ends(by_value.bars_["after"]) == (0, 0.3)
    assert by_value.texts_["after"].get_text() == "0.3000"
    other = made(0.4, 0.3, 0.6)
    by_parts = WaterfallDisplay.from_decomposition(parts, after=other, ax=blank())
    assert ends(by_parts.bars_["after"]) == (0, 0.4)


def test_what_was_stored_is_drawn_too(parts):
    stored = WaterfallDisplay({"": parts.to_dict()})
    assert stored.terms == WaterfallDisplay({"": parts}).terms
    display = WaterfallDisplay.from_decomposition(parts.to_dict(), ax=blank("column"))
    assert list(display.bars_) == ORDER


def test_an_infinite_risk_goes_further_than_all_else():
    display = WaterfallDisplay.from_decomposition(made(math.inf, 0.5, 0.75), ax=blank())
    assert (
        display.texts_["risk"].get_text() == display.texts_["calibration"].get_text() == "infinite"
    )
    assert ends(display.bars_["risk"])[1] > 0.75


def test_several_are_drawn_one_below_the_other(parts):
    given = {"first": parts, "second": made(0.5, 0.625, 0.75)}
    display = WaterfallDisplay.from_decomposition(given, ax=blank())
    assert set(display.bars_) == {
        (name, term) for name in given for term in ("refinement", "calibration")
    }
    np.testing.assert_allclose(ends(display.bars_["first", "refinement"]), (0, parts.refinement))
    np.testing.assert_allclose(
        ends(display.bars_["first", "calibration"]), (parts.refinement, parts.risk)
    )
    first, second = (display.bars_[name, "refinement"].get_y() for name in given)
    assert first < second
    assert display.texts_["second"].get_text() == "second: 0.6250 − 0.1250 = 0.5000"
    hollow = display.bars_["second", "calibration"]
    assert hollow.get_facecolor()[3] == 0
    assert ends(hollow) == (0.625, 0.5)
    assert ends(display.bars_["second", "refinement"]) == (0, 0.5)


terms = st.floats(0, 100).map(lambda value: round(value, 3))


@examples(15)
@given(terms, terms, terms, st.sampled_from(["page", "column"]))
def test_numbers_never_overlap_nor_leave_the_figure(risk, refinement, uncertainty, size):
    display = WaterfallDisplay({"": made(risk, refinement, uncertainty)}).plot(blank(size))
    assert_readable(display.figure_)


@pytest.mark.parametrize(
    ("given", "options", "error", "match"),
    [
        ({}, {}, ValueError, "no decomposition to draw"),
        ({"a": 3}, {}, TypeError, "decomposition is 3, which has no risk"),
        ({"a": made(math.nan, 0.5, 0.6)}, {}, ValueError, "the risk of a decomposition is NaN"),
        (
            {"a": made(1, 1, 1), "b": made(1, 1, 1, "brier")},
            {},
            ValueError,
            r"different losses \(brier, log\)",
        ),
        (
            {"a": made(1, 1, 1), "b": made(1, 1, 1)},
            {"after": 1.0},
            ValueError,
            "after= works with a single",
        ),
    ],
)
def test_bad_input_is_refused_with_the_reason(given, options, error, match):
    with pytest.raises(error, match=match):
        WaterfallDisplay(given, **options)
