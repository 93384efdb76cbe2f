"""The explorer in a real browser: its solver against ours, its sliders, its words."""

import csv
import re

import mpmath
import numpy as np
import pytest
from browser import WIDTHS, launch, open_page, problems
from playwright.sync_api import sync_playwright
from scipy.special import ndtr, ndtri

from refinecal.plots.style import PALETTE
from refinecal.theory import BetaSpectrum, logistic, minimise
from refinecal.theory.explorer import RANGES, write_explorer

pytestmark = pytest.mark.browser

LAM_RANGE = (1e-8, 1e4)
SHAPES = [(1, 5), (2, 2), (5, 1), (1, 1)]  # of the paper
CORNERS = [
    (0.05, 0.001),
    (0.05, 0.45),
    (0.5, 0.1),
    (1.0, 0.01),
    (3.0, 0.3),
    (20.0, 0.001),
    (20.0, 0.45),
]
ODD = [  # shapes, ratio, Bayes error, shift, loss
    (0.3, 0.3, 0.2, 0.3, 1e-4, "log"),
    (10.0, 10.0, 5.0, 0.2, 1.0, "brier"),
    (0.3, 10.0, 1.0, 0.1, 0.01, "brier"),
    (10.0, 0.3, 0.1, 0.05, 0.3, "log"),
    (7.3, 1.7, 0.9, 0.001, 1e-3, "brier"),
]
CASES = [(*shape, *corner, 1e-3, "log") for shape in SHAPES for corner in CORNERS] + ODD
HARD = [f"ratio={r}&bayes_error={e}" for r in RANGES["ratio"] for e in RANGES["bayes_error"]]
COLUMNS = ("inner", "norm", "risk", "refinement", "calibration", "error_rate")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_explorer(tmp_path_factory.mktemp("explorer") / "explorer.html")


@pytest.fixture(scope="module")
def window(browser, file):
    return open_page(browser, file, 1400)


@pytest.fixture
def page(window):
    """The page as it begins."""
    window.set_viewport_size({"width": 1400, "height": 900})
    window.emulate_media(color_scheme="light")
    window.mouse.move(1, 1)
    return go(window, "")


def go(page, hash):
    """Set the page by its address."""
    page.evaluate("hash => { document.activeElement.blur(); location.hash = hash; }", hash)
    settled(page)
    return page


def solve(page, a, b, ratio, bayes_error, shift, loss):
    """Return what the page's own solver finds."""
    given = {"shapeA": a, "shapeB": b, "ratio": ratio, "bayesError": bayes_error}
    return page.evaluate("refinecalTheory.path", {**given, "shift": shift, "loss": loss})


def settled(page):
    """Wait until the page has drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def text(page, selector):
    return page.locator(selector).text_content().replace("\u00a0", " ")


def shown(page):
    """Return all that moves with a slider."""
    curves = [
        page.locator(f"#curve-{name}").get_attribute("d")
        for name in ("risk", "refinement", "calibration")
    ]
    return [*curves, text(page, "#sentence"), text(page, "#choices"), text(page, "#code")]


# ---- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_curves_are_those_of_python(window, case):
    """Two rules of integration, two ways to the solution: they meet to 1e-11, calibration near 0 to 1e-9."""
    a, b, ratio, bayes_error, shift, loss = case
    found = solve(window, *case)
    points = {
        name: np.array([point[name] for point in found["points"]]) for name in ("lam", *COLUMNS)
    }
    assert len(points["lam"]) == 121
    assert (points["lam"].max(), points["lam"].min()) == pytest.approx(LAM_RANGE[::-1])
    spectrum = BetaSpectrum(a, b, shift=shift)
    ours = logistic(
        points["lam"], ratio=ratio, bayes_error=bayes_error, spectrum=spectrum, loss=loss
    )
    assert found["signal"] == pytest.approx(ours.signal.flat[0], rel=1e-11)
    for name in COLUMNS:
        close = {"rtol": 1e-7, "atol": 1e-14} if name == "calibration" else {"rtol": 1e-10}
        np.testing.assert_allclose(points[name], getattr(ours, name), **close, err_msg=name)


@pytest.mark.parametrize("case", CASES[::3] + ODD, ids=str)
def test_minimisers_are_those_of_python(window, case):
    a, b, ratio, bayes_error, shift, loss = case
    found = solve(window, *case)
    ours = minimise(
        ratio=ratio,
        bayes_error=bayes_error,
        spectrum=BetaSpectrum(a, b, shift=shift),
        loss=loss,
        lam_range=LAM_RANGE,
    )
    for name in ("risk", "calibration", "refinement"):
        theirs = found["minimisers"][name]
        assert bool(theirs["edge"]) == bool(getattr(ours, f"at_bound_{name}"))
        assert np.log(theirs["lam"]) == pytest.approx(
            np.log(getattr(ours, f"lam_{name}")), abs=1e-6
        )
    assert found["gain"] == pytest.approx(float(ours.gain), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "shift"), [(1, 5, 1e-3), (0.3, 0.3, 1e-4), (10, 0.3, 0.1), (10, 10, 1)]
)
def test_the_rule_of_the_spectrum_is_exact(window, a, b, shift):
    """Against moments of the Beta law in closed form, and E[1/s] by Gauss's hypergeometric function."""
    law = window.evaluate("([a, b, shift]) => refinecalTheory.spectrum(a, b, shift)", [a, b, shift])
    s, weights = np.array(law["values"]), np.array(law["weights"])
    variance = a * b / (a + b) ** 2 / (a + b + 1)
    assert weights.sum() == pytest.approx(1, rel=1e-13)
    assert weights @ s == pytest.approx(shift + a / (a + b), rel=1e-13)
    assert weights @ (s - weights @ s) ** 2 == pytest.approx(variance, rel=1e-12)
    with mpmath.workdps(30):
        inverse = mpmath.hyp2f1(1, a, a + b, -1 / mpmath.mpf(shift)) / shift
    assert weights @ (1 / s) == pytest.approx(float(inverse), rel=1e-12)


def test_the_normal_law_and_its_quantiles(window):
    x = np.linspace(-3.5, 3.5, 141)
    found = window.evaluate("x => x.map(refinecalTheory.below)", x.tolist())
    np.testing.assert_allclose(found, ndtr(x), rtol=1e-11, atol=1e-15)
    rates = np.geomspace(*RANGES["bayes_error"], 50)
    found = window.evaluate("e => e.map(refinecalTheory.quantile)", rates.tolist())
    np.testing.assert_allclose(found, -ndtri(rates), rtol=1e-11)


def test_the_gain_of_the_paper(page):
    """Figure 7: uniform variances, half as many features as rows, Bayes error 10 %: about 2 %."""
    said = text(page, "#gain")
    gain = float(re.search(r"([\d.]+) % less log loss", said)[1])
    assert 1.5 < gain < 2.5


# ---- looks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wrong(page, scheme):
    page.emulate_media(color_scheme=scheme)
    for width in (320, 360, *WIDTHS, 800, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        assert [width, *problems(page), *labels_amiss(page)] == [width]


@pytest.mark.parametrize(
    "hash", [*HARD, "loss=brier&shape_a=0.3", "shape_a=5&ratio=20&bayes_error=.001"]
)
def test_nothing_is_wrong_at_the_ends_of_the_sliders(page, hash):
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        go(page, hash)
        assert [width, *problems(page), *labels_amiss(page)] == [width]
        assert not re.search("NaN|undefined|Infinity", page.content().split("<script")[0])


def labels_amiss(page):
    """Return the labels of drawings that overlap or leave their drawing."""
    return page.evaluate(LABELS)


LABELS = """() => [...document.querySelectorAll("svg.chart")].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
  const leaves = (box) => box.left < frame.left - 1 || box.right > frame.right + 1;
  const meets = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const pairs = boxes.flatMap((a, i) => boxes.slice(i + 1).map((b) => [a, b]));
  return [...boxes.filter(([, box]) => leaves(box)).map(([text]) => `leaves: ${text}`),
    ...pairs.filter(([[, a], [, b]]) => meets(a, b)).map(([[s], [t]]) => `overlap: ${s}, ${t}`)];
})"""


def test_colours_are_those_of_the_figures(page):
    stroke = "e => getComputedStyle(e).stroke"
    for name in ("risk", "refinement", "calibration"):
        red, green, blue = (int(PALETTE[name][i : i + 2], 16) for i in (1, 3, 5))
        line = page.locator(f"#curve-{name}")
        assert line.evaluate(stroke) == f"rgb({red}, {green}, {blue})"
        page.emulate_media(color_scheme="dark")
        assert line.evaluate(stroke) != f"rgb({red}, {green}, {blue})"
        page.emulate_media(color_scheme="light")


def test_the_drawing_follows_its_window(page):
    page.set_viewport_size({"width": 400, "height": 900})
    settled(page)
    box = page.locator("#curves").bounding_box()
    width = float(page.locator("#curves").get_attribute("viewBox").split()[2])
    assert width == pytest.approx(box["width"], abs=1)
    assert problems(page) == []


# ---- sliders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANGES)
def test_a_slider_moves_curves_and_words(page, name):
    before = shown(page)
    slider = page.locator(f"input[type=range]#{name}")
    value = float(page.locator(f"#{name}-number").input_value())
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    settled(page)
    after = shown(page)
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert float(page.locator(f"#{name}-number").input_value()) > value
    assert f"{name}=" in page.url
    assert problems(page) == []


def test_a_slider_has_a_name_and_says_its_value(page):
    assert page.get_by_role("slider").count() == len(RANGES)
    slider = page.get_by_role("slider", name="Error rate of the best classifier")
    assert slider.get_attribute("aria-valuetext") == "10%"
    field = page.get_by_role("spinbutton", name="Error rate of the best classifier, in %")
    assert field.input_value() == "10"


def test_both_ends_of_a_slider_can_be_reached(page):
    slider = page.locator("input[type=range]#ratio")
    for key, end in (("Home", 0), ("End", 1)):
        slider.focus()
        page.keyboard.press(key)
        settled(page)
        assert float(page.locator("#ratio-number").input_value()) == RANGES["ratio"][end]


def test_a_typed_number_is_taken_as_it_is_or_not_at_all(page):
    field = page.locator("#ratio-number")
    field.fill("1.2345")
    settled(page)
    taken = shown(page)
    assert "ratio=1.2345" in text(page, "#code")
    for wrong in ("0", "1000", "", "-3"):
        field.fill(wrong)
        settled(page)
        assert shown(page) == taken
    field.blur()
    settled(page)
    assert field.input_value() in ("1.234", "1.235")
    assert problems(page) == []


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("Many informative", (1, 5)), ("Balanced", (2, 2)), ("Few informative", (5, 1))],
)
def test_a_button_sets_the_spectrum_of_the_paper(page, name, shapes):
    button = page.get_by_role("button", name=name)
    button.click()
    settled(page)
    assert [page.locator(f"#shape_{x}-number").input_value() for x in "ab"] == list(
        map(str, shapes)
    )
    assert button.get_attribute("aria-pressed") == "true"
    assert page.locator("[aria-pressed=true]").count() == 1
    page.get_by_role("button", name="Back to where").click()
    settled(page)
    assert page.get_by_role("button", name="Uniform").get_attribute("aria-pressed") == "true"


def test_the_other_loss(page):
    page.get_by_role("radio", name="Brier score").check()
    settled(page)
    best = minimise(ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1), loss="brier")
    assert f"Brier score {float(best.by_risk.risk):.4f}" in text(page, "#sentence")
    assert f"{100 * best.gain:.1f} % less Brier score" in text(page, "#gain")


# ---- words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "first", "later"),
    [(1, 5, "calibration", "refinement"), (5, 1, "refinement", "calibration")],
)
def test_the_sentence_says_what_is_chosen_and_what_is_lowest_first(page, a, b, first, later):
    go(page, f"shape_a={a}&shape_b={b}&ratio=1&bayes_error=0.1")
    best = minimise(ratio=1, bayes_error=0.1, spectrum=BetaSpectrum(a, b))
    said = text(page, "#sentence")
    assert f"Chosen by loss: λ = {best.lam_risk:.3g}, log loss {best.by_risk.risk:.4f}." in said
    assert (
        f"then calibrated: λ = {best.lam_refinement:.3g}, log loss {best.by_refinement.refinement:.4f}: "
        f"{100 * best.gain:.1f} % less." in said
    )
    assert re.search(
        rf"{first} is lowest first .*, {later} {abs(best.log10_gap):.2g} decades", said
    )


def test_the_python_on_the_page_gives_the_number_on_the_page(page):
    go(page, "ratio=2&bayes_error=0.05&loss=brier&shift=0.01")
    *lines, last = text(page, "#code").splitlines()
    call, said = last.split("#")
    names = {}
    exec("\n".join([*lines, f"found = {call}"]), names)
    assert f"{float(names['found']):.4f}" == said.strip()


def test_pointing_and_arrow_keys_read_the_curves(page):
    before = text(page, "#key")
    box = page.locator("#curves").bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
    assert text(page, "#reading").startswith("Values at λ = ")
    assert text(page, "#key") != before
    page.mouse.move(1, 1)
    assert text(page, "#key") == before
    page.locator("#curves").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    lam = float(re.search(r"λ = ([\d.]+)", text(page, "#reading"))[1])
    ours = logistic(lam, ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    assert float(text(page, "#key-risk")) == pytest.approx(
        float(ours.risk), rel=1e-2
    )  # lam has 3 digits
    assert float(text(page, "#key-refinement")) == pytest.approx(float(ours.refinement), rel=1e-2)


# ---- sharing -----------------------------------------------------------------------------------------------


def test_an_address_keeps_a_setting(page, browser):
    page.locator("#ratio-number").fill("7.25")
    page.get_by_role("button", name="Balanced").click()
    page.get_by_role("radio", name="Brier score").check()
    settled(page)
    other = browser.new_page(viewport={"width": 1400, "height": 900})
    other.goto(page.url)
    assert shown(other) == shown(page)
    other.close()


@pytest.mark.parametrize(
    "hash",
    ["ratio=many&loss=hinge", "nothing", "a=b&&=&%", "ratio=NaN", "constructor=1&loss=toString"],
)
def test_an_address_of_nonsense_is_the_beginning(page, hash):
    start = shown(page)
    assert shown(go(page, hash)) == start


def test_an_address_beyond_a_slider_is_its_end(page):
    go(page, "ratio=1e9&bayes_error=-1")
    assert page.locator("#ratio-number").input_value() == "20"
    assert page.locator("#bayes_error-number").input_value() == "0.1"  # per cent
    assert problems(page) == []


def test_the_table_that_is_downloaded(page, tmp_path):
    go(page, "ratio=2")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "curves.csv")
    with (tmp_path / "curves.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    column = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    ours = logistic(column["lam"], ratio=2, bayes_error=0.1, spectrum=BetaSpectrum(1, 1)).to_dict()
    assert set(column) <= set(ours)
    for name, values in column.items():
        np.testing.assert_allclose(values, ours[name], rtol=1e-7, atol=1e-14, err_msg=name)


def test_without_scripts_it_says_so(browser, file):
    page = open_page(browser, file, 400, java_script_enabled=False)
    assert "allow it to run scripts" in page.locator("#gain").inner_text()
    page.close()
