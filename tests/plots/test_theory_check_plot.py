"""The figure of the check: both comparisons are in it, and it can be read."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from pictures import assert_in_palette, assert_readable

from refinecal.plots.theory_check import NAMES, draw_check
from refinecal.theory import check


@pytest.fixture(scope="module")
def found():
    return check([0.001, 0.1, 10.0], n=120, seeds=6, processes=1)


@pytest.fixture(scope="module")
def drawn(found):
    figure = Figure(figsize=(9, 5.2))
    return figure, draw_check(figure, found)


def test_it_shows_what_was_found(found, drawn):
    _, rows = drawn
    for ax, name in zip(rows["curves"], NAMES, strict=True):
        theory, mean = ax.lines
        assert np.array_equal(mean.get_xdata(), found.lam)
        assert np.array_equal(mean.get_ydata(), found.law.measured[name])
        at = np.searchsorted(theory.get_xdata(), 0.1 * (1 - 1e-9))
        assert theory.get_ydata()[at] == pytest.approx(found.law.theory[name][1])
    for ax, name in zip(rows["deviations"], NAMES, strict=True):
        drawn_too = [line.get_ydata() for line in ax.lines if len(line.get_ydata()) == 3]
        assert np.array_equal(drawn_too[0], found.law.deviation[name])
        assert np.array_equal(drawn_too[1], found.draws.deviation[name])


def test_the_band_is_the_95_percent_interval(found, drawn):
    _, rows = drawn
    for ax, name in zip(rows["curves"], NAMES, strict=True):
        box = ax.collections[0].get_datalim(ax.transData)
        high = found.law.measured[name] + found.law.margin[name]
        assert box.y1 == pytest.approx(high.max())


def test_it_can_be_read(drawn):
    figure, _ = drawn
    assert_readable(figure)
    assert_in_palette(figure)
