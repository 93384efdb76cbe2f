"""Figures of the theory: what is drawn is what was computed, and every word can be read."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.testing import assert_allclose
from pictures import assert_readable, words

from refinecal.plots.style import PALETTE
from refinecal.plots.theory_curves import PALE, draw_heatmaps, draw_path, format_lam
from refinecal.theory.curves import minimise, path, setting
from refinecal.theory.heatmaps import heatmap
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum, UniformSpectrum

ASK = {"ratio": 0.5, "bayes_error": 0.1, "spectrum": BetaSpectrum(1, 1)}
SIZES = {"page": (7.0, 5.0), "column": (3.6, 4.4)}


def texts(figure):
    return [text.get_text() for text in words(figure)]


@pytest.fixture(scope="module")
def best():
    return minimise(**ASK)


@pytest.fixture(scope="module")
def curve():
    return path(np.geomspace(1e-5, 10, 60), **ASK)


@pytest.fixture(scope="module")
def maps():
    return heatmap(
        ratios=np.geomspace(0.1, 10, 9), bayes_errors=[0.001, 0.05, 0.2, 0.45], processes=1
    )


@pytest.mark.parametrize("size", SIZES)
def test_a_path_shows_three_curves_and_where_they_are_smallest(curve, best, size):
    figure = Figure(figsize=SIZES[size])
    top, bottom = draw_path(figure, curve, best)
    drawn = {to_hex(line.get_color()): line for line in (*top.lines[:2], bottom.lines[0])}
    for name in ("risk", "refinement", "calibration"):
        line = drawn[PALETTE[name]]
        assert_allclose(line.get_xdata(), curve.lam)
        assert_allclose(line.get_ydata(), getattr(curve, name))
    dots = {
        to_hex(line.get_color()): line
        for line in (*top.lines, *bottom.lines)
        if line.get_marker() == "o"
    }
    for name in ("risk", "refinement", "calibration"):
        ((x, y),) = dots[PALETTE[name]].get_xydata()
        assert_allclose(
            [x, y], [getattr(best, f"lam_{name}"), getattr(getattr(best, f"by_{name}"), name)]
        )
    said = "\n".join(texts(figure))
    assert f"risk: min {best.by_risk.risk:.4f} at λ = {best.lam_risk:.3g}" in said
    assert f"{100 * best.gain:.1f}% below" in said
    assert all(part in said for part in setting(curve).split(", spectrum: "))
    if size == "page":
        assert_readable(figure)


@pytest.mark.parametrize(
    ("ratio", "bayes_error", "shapes"), [(0.5, 0.1, (1, 1)), (2, 0.2, (1, 5)), (0.3, 0.1, (2, 2))]
)
def test_risk_and_calibration_at_every_minimiser_are_in_the_figure(ratio, bayes_error, shapes):
    ask = {"ratio": ratio, "bayes_error": bayes_error, "spectrum": BetaSpectrum(*shapes)}
    best = minimise(**ask)
    lams = np.geomspace(best.lam_refinement / 100, best.lam_calibration * 100, 50)
    top, bottom = draw_path(Figure(figsize=SIZES["page"]), path(lams, **ask), best)
    for found in (best.by_risk, best.by_calibration, best.by_refinement):
        if found.risk > 1.6 * best.by_risk.risk:
            continue
        assert top.spines["left"].get_bounds()[0] < found.refinement
        assert found.risk < top.spines["left"].get_bounds()[1]
        assert found.calibration < bottom.spines["left"].get_bounds()[1]


def test_minima_outside_are_said_and_marked_by_arrows(best):
    figure = Figure(figsize=SIZES["page"])
    top, bottom = draw_path(figure, path(np.geomspace(0.06, 0.3, 20), **ASK), best)
    said = "\n".join(texts(figure))
    assert f"risk: min {best.by_risk.risk:.4f} at λ = {best.lam_risk:.3g}, left of this" in said
    arrows = [line for line in top.lines if line.get_marker() == "<"]
    assert len(arrows) == 2  # risk and refinement; calibration's minimum is inside
    assert all(line.get_xdata()[0] == pytest.approx(0.06) for line in arrows)
    assert [line.get_marker() for line in bottom.lines].count("o") == 1
    assert_readable(figure)


@pytest.mark.parametrize(("low", "high"), [(0.21, 0.4), (0.3, 0.4), (0.02, 0.9)])
def test_a_short_axis_has_ticks_too(low, high):
    figure = Figure(figsize=SIZES["page"])
    _, bottom = draw_path(figure, path(np.geomspace(low, high, 20), **ASK))
    ticks = bottom.get_xticks()
    assert len(ticks) >= 2
    assert ((ticks >= low * 0.999) & (ticks <= high * 1.001)).all()
    assert_readable(figure)


def test_a_path_without_minimisers_has_the_curves_alone(curve):
    figure = Figure(figsize=SIZES["page"])
    top, _ = draw_path(figure, curve)
    assert len(top.lines) == 2
    assert {"risk", "refinement", "calibration"} <= set(texts(figure))
    assert_readable(figure)


def test_a_curve_that_still_falls_has_a_hollow_dot():
    ask = ASK | {"spectrum": PointSpectrum([1.0])}
    figure = Figure(figsize=SIZES["page"])
    found = minimise(**ask, lam_range=(1e-4, 100.0))
    top, _ = draw_path(figure, path(np.geomspace(1e-3, 100, 50), **ask), found)
    dots = [line for line in top.lines if line.get_marker() == "o"]
    assert to_hex(dots[-1].get_markerfacecolor()) == PALETTE["paper"]
    assert any("still decreasing as λ → ∞" in text for text in texts(figure))


def test_a_curve_that_falls_beyond_the_figure_ends_in_an_arrow():
    ask = ASK | {"spectrum": PointSpectrum([1.0])}
    figure = Figure(figsize=SIZES["page"])
    top, _ = draw_path(figure, path(np.geomspace(1e-3, 1, 50), **ask), minimise(**ask))
    (arrow,) = (line for line in top.lines if line.get_marker() == ">")
    assert to_hex(arrow.get_markerfacecolor()) == PALETTE["paper"]
    assert arrow.get_xdata()[0] == pytest.approx(1)
    assert_readable(figure)


def test_several_problems_are_not_drawn_at_once():
    several = path([0.1, 1.0], ratio=[0.5, 1.0], bayes_error=0.1, spectrum=ASK["spectrum"])
    with pytest.raises(ValueError, match="draw one problem at a time"):
        draw_path(Figure(), several)


@pytest.mark.parametrize("name", ["gap", "gain"])
def test_the_cells_of_a_map_are_its_values(maps, name):
    rows = draw_heatmaps(Figure(figsize=(10, 8.4)), maps)
    values = maps.grid("log10_gap") if name == "gap" else 100 * maps.grid("gain")
    for ax, cells in zip(rows[name], values, strict=True):
        assert_allclose(ax.collections[0].get_array(), cells)
    norms = [ax.collections[0].norm for ax in rows[name]]
    assert len({(norm.vmin, norm.vmax) for norm in norms}) == 1  # the same colours in all maps


def test_a_gap_of_0_has_no_colour_and_its_signs_have_two(maps):
    rows = draw_heatmaps(Figure(figsize=(10, 8.4)), maps)
    mesh = rows["gap"][0].collections[0]
    colour = {value: to_hex(mesh.cmap(mesh.norm(value))) for value in (-3.0, 0.0, 3.0)}
    assert colour[0.0] == PALE
    red, _, blue = (int(colour[-3.0][i : i + 2], 16) for i in (1, 3, 5))
    assert red > blue  # orange: refinement first
    red, _, blue = (int(colour[3.0][i : i + 2], 16) for i in (1, 3, 5))
    assert red < blue  # blue: calibration first


def test_gaps_without_end_are_marked(maps):
    rows = draw_heatmaps(figure := Figure(figsize=(10, 8.4)), maps)
    marked = [len(ax.lines[0].get_xdata()) for ax in rows["gap"]]
    assert marked == maps.grid("at_bound_refinement").sum(axis=(1, 2)).tolist()
    assert sum(marked) > 0
    assert any("White dots" in text for text in texts(figure))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_word_of_the_maps_can_be_read(maps, count):
    some = SimpleNamespace(
        method=maps.method,
        loss=maps.loss,
        spectra=maps.spectra[:count],
        ratios=maps.ratios,
        bayes_errors=maps.bayes_errors,
        grid=lambda name: maps.grid(name)[:count],
    )
    figure = Figure(figsize=(2.6 + 2.5 * count, 8.4))
    draw_heatmaps(figure, some)
    assert_readable(figure)


def test_the_papers_captions_and_scales_are_there(maps):
    figure = Figure(figsize=(10, 8.4))
    draw_heatmaps(figure, maps)
    said = texts(figure)
    for caption in ("many informative features", "balanced", "few informative features"):
        assert any(text.startswith(caption) for text in said)
    assert {"0.1", "0.5", "1", "5", "10", "0.1%", "45%"} <= set(said)
    assert any(re.search("calibration\nsmallest first", text) for text in said)


def test_a_law_without_density_is_drawn_as_bars():
    law = PointSpectrum([0.1, 1.0, 2.0], [0.5, 0.25, 0.25])
    found = heatmap(law, ratios=[0.5, 1.0], bayes_errors=[0.1], processes=1)
    figure = Figure(figsize=(5.1, 8.4))
    rows = draw_heatmaps(figure, found)
    bars = rows["spectrum"][0].collections[0].get_segments()
    assert_allclose([bar[0][0] for bar in bars], law.nodes)
    assert_allclose([bar[1][1] for bar in bars], [1, 0.5, 0.5])
    assert_readable(figure)


@pytest.mark.parametrize(
    ("law", "tick"),
    [
        (PointSpectrum([1.0]), "1"),
        (PointSpectrum([0.025]), "0.025"),
        (UniformSpectrum(3, 3), "3"),
        (UniformSpectrum(1, 1 + 1e-7), "1"),
        (BetaSpectrum(1e12, 1e12, shift=0), "0.5"),
    ],
)
@pytest.mark.sweep(4)
def test_a_law_of_one_eigenvalue_has_one_tick(law, tick):
    found = heatmap(law, ratios=[0.5, 1.0], bayes_errors=[0.1], processes=1)
    figure = Figure(figsize=(5.1, 8.4))
    rows = draw_heatmaps(figure, found)
    assert [text.get_text() for text in rows["spectrum"][0].get_xticklabels()] == [tick]
    assert_readable(figure)


@pytest.mark.parametrize(("method", "loss"), [("lda", "brier"), ("ridge", "spherical")])
def test_maps_say_what_they_are_of(method, loss):
    figure = Figure(figsize=(5.1, 8.4))
    grid = {"ratios": [0.5, 1.0], "bayes_errors": [0.1], "processes": 1}
    draw_heatmaps(figure, heatmap(BetaSpectrum(1, 1), **grid, method=method, loss=loss))
    wanted = {"lda": "LDA, Brier score", "ridge": "ridge classification, spherical loss"}[method]
    assert any(text.startswith(wanted) for text in texts(figure))


@pytest.mark.parametrize(
    ("lam", "text"), [(0.05312, "0.0531"), (1e-8, "1.0·10⁻⁸"), (25000.0, "2.5·10⁴"), (12.0, "12")]
)
def test_strengths_are_written_as_people_read_them(lam, text):
    assert format_lam(lam) == text
