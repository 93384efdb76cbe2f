"""Reports as text: what is said is there, escaped; figures keep their shapes and take the page's tones."""

import io
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_report import HOSTILE, LONG, bars, sample_page

from refinecal._core.format import MINUS, percent, with_error
from refinecal.evaluation import evaluate
from refinecal.evaluation.verdict import cautions, verdict
from refinecal.plots.style import PALETTE
from refinecal.report import Card, Column, Figure, Page, Section, Table, render, save_figures, write
from refinecal.report.figures import to_svg
from refinecal.report.page import LONGEST, shorten, show, show_cells
from refinecal.report.render import DARK, DARK_PLOT, LIGHT, LIGHT_PLOT

NAN, INF = math.nan, math.inf
BARS = Figure(bars, "Bars", "", "Three bars.")
SIZE = (4.0, 3.0)


def page_of(*blocks, **parts):
    return Page("title", "lead", sections=[Section("section", (), blocks)], **parts)


def frame(draw=lambda canvas: canvas.subplots()):
    return Figure(draw, "Frame", "", "A frame.")


class Reader(HTMLParser):
    """What a browser would find: elements with their attributes, and text."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.words = [], []
        self.feed(html)
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


# ---- what numbers mean -----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_random_predictions_are_seldom_called_swapped(k):
    """At 1.96 standard errors, no more than one time out of 40; swapped ones always."""
    swapped, n = [], 60
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y, probs = rng.integers(k, size=n), rng.dirichlet(np.ones(k), n)
        swapped.append(any("swapped" in text for text in cautions(evaluate(y, probs))))
    assert np.mean(swapped) <= 1 / 40 + 2 * math.sqrt(1 / 40 / 200)
    mixed = 0.5 * np.eye(k)[(y + 1) % k] + 0.5 * probs
    assert any("may be swapped" in text for text in cautions(evaluate(y, mixed)))


def test_one_class_alone_has_no_area_to_speak_of():
    said = verdict(evaluate([0] * 40, [0.9] * 40))
    assert said.startswith("The predictions are no better than chance: the best temperature")


# ---- the page --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def html():
    return render(sample_page())


def test_everything_said_is_there_in_order(html):
    page = sample_page()
    texts = [page.title, page.lead, page.cards[0].label, "0.2163", page.cards[0].note, *page.points]
    for section in page.sections:
        texts += [section.title, *section.text, *(block.title for block in section.blocks)]
    texts += [part for fact in page.facts.items() for part in fact]
    found, place = Reader(html.split("<body")[1]).text, 0
    contents = found.index("Contents")
    assert contents < found.index(page.sections[0].text[0])
    for text in texts:
        if text == page.sections[0].title:  # first in the contents, then above its section
            place = found.index(page.sections[-1].title, contents)
        place = found.index(text, place)


def test_strange_names_are_text(html):
    reader = Reader(html)
    assert len(reader.all("script")) == html.count("<script>") == 2  # ours
    assert reader.text.count(HOSTILE) == 3  # a point, a paragraph, a cell
    assert f"Bars for {HOSTILE}." in [svg.get("aria-label") for svg in reader.all("svg")]


def test_nothing_is_loaded_from_anywhere(html):
    reader = Reader(html)
    assert not {"link", "iframe", "img", "object", "base"} & {tag for tag, _ in reader.elements}
    for _, attributes in reader.elements:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png"))
    assert "@import" not in html
    assert not re.search(r"https?:", html)


def test_the_policy_names_the_scripts_that_are_there(html):
    import base64
    import hashlib

    (policy,) = [m["content"] for m in Reader(html).all("meta") if m.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_the_same_page_gives_the_same_file(html):
    assert render(sample_page()) == html


def test_ids_are_unique_and_references_lead_somewhere(html):
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', html)) <= set(ids)


@pytest.mark.parametrize(("sections", "contents"), [(3, False), (4, True)])
def test_contents_are_listed_for_more_than_three_sections(sections, contents):
    page = Page("t", "l", sections=[Section(f"part {i}") for i in range(sections)])
    assert ("<nav" in render(page)) == contents


def test_long_names_may_break_at_their_joints_or_are_cut():
    rows = [(LONG[:40], "a"), ("y" * 500, "z" * 500)]
    html = render(page_of(Table("t", ["name", "x" * 300], rows)))
    assert LONG[:40].replace("_", "_<wbr>") in html
    assert f'title="{"y" * 500}"' in html
    assert f'title="{"x" * 300}"' in html
    assert max(map(len, re.findall(r">([xyz…]+)<", html))) == LONGEST


@pytest.mark.parametrize(
    "text", ["history.parquet", "gamma 0.0125", "1e-05", "2024-01-31", "1/2", "don't", "a.b"]
)
def test_numbers_dates_and_extensions_are_not_broken(text):
    assert "<wbr>" not in render(Page("t", "l", sections=[Section("s", (text,))]))


def test_one_minus_sign_in_tables_and_sentences(capsys):
    from refinecal.cli._console import Console

    table = Table("t", ["name", "gain"], [("a−b", -0.25)], terminal=1)
    lead = f"A change of {with_error(-0.25, 0.01)} or {percent(-0.25)}."
    page = Page("t", lead, points=["Drop a−b: it is −∞."], sections=[Section("s", (), (table,))])
    html = render(page)
    assert not re.search(r"[> ]-\d", html.partition("<body")[2].partition("<script")[0])
    Console().print_page(page)
    out = capsys.readouterr().out
    assert re.findall(r"\S*[−-]\S+", out) == ["a−b", "-0.2500", "-0.250", "-25.0%.", "a−b:", "-∞."]


@given(st.text(max_size=200), st.integers(5, 100))
def test_a_shortened_name_fits_and_keeps_both_ends(name, width):
    short = shorten(name, width)
    assert len(short) <= width
    if len(name) <= width:
        assert short == name
    else:
        start, end = short.split("…", 1) if name.count("…") == 0 else ("", "")
        assert name.startswith(start)
        assert name.endswith(end)


def test_numbers_that_only_a_person_would_misread():
    rows = [("a", 1234567, 0.5, None), ("b", -2, NAN, 3.25)]
    columns = ["name", "count", Column("share", percent=True, help="of all"), Column("x", digits=1)]
    html = render(page_of(Table("t", columns, rows)))
    cells = re.findall(r'<td class="number"([^>]*)>([^<]*)</td>', html)
    assert cells == [
        (' data-value="1234567"', "1,234,567"),
        (' data-value="0.5"', "50.0%"),
        (" data-missing", "–"),
        (' data-value="-2"', f"{MINUS}2"),
        (" data-missing", "–"),
        (' data-value="3.25"', "3.2"),
    ]
    assert "of all" in Reader(html).text


# ---- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Table("T", ["a", "b"], [("x", 1), ("y",)]), ValueError, r"rows\[1\] of .* 'T' has 1 cell"),
        (lambda: Table("T", [], []), ValueError, "'T' has no columns"),
        (lambda: Column("c", digits=-1), ValueError, "digits is -1"),
        (lambda: Section("S", "some text"), TypeError, "text of the section 'S' is one string"),
        (lambda: Page("t", "l", points="a point"), TypeError, "points of the page is one string"),
        (lambda: Figure(bars, "F", "", "  "), ValueError, "alt of the figure 'F' is empty"),
    ],
)  # fmt: skip
def test_what_a_page_refuses(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_importing_reports_loads_neither_jinja_nor_matplotlib():
    code = "import sys, refinecal.report; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jinja2", "matplotlib", "numpy"} & set(done.stdout.split())


# ---- files -----------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_with_the_usual_rights(tmp_path):
    write(sample_page(), tmp_path / "report.html")
    (tmp_path / "other").touch()
    assert (tmp_path / "report.html").read_bytes().decode("utf-8") == render(sample_page())
    assert (tmp_path / "report.html").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_report_that_fails_leaves_the_old_one_alone(tmp_path):
    def fail(canvas):
        raise RuntimeError("no data")

    write(Page("old", "lead"), tmp_path / "report.html")
    with pytest.raises(RuntimeError, match="no data"):
        write(page_of(frame(fail)), tmp_path / "report.html")
    assert "<h1>old</h1>" in (tmp_path / "report.html").read_text("utf-8")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write(Page("new", "lead"), tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        write(Page("new", "lead"), tmp_path / "nowhere" / "report.html")
    assert sorted(os.listdir(tmp_path)) == ["folder", "report.html"]


def test_characters_that_are_none_can_be_written(tmp_path):
    name = "broken \ud800 name \x00 \x07"
    figure = frame(lambda canvas: canvas.subplots().set_title("bell \x07"))
    table = Table(name, ["a"], [(name,)])
    write(page_of(table, figure, cards=[Card(name, name)]), tmp_path / "report.html")
    assert "broken ? name" in (tmp_path / "report.html").read_text("utf-8")


# ---- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (0.123456, "0.1235"),
        (12.3456, "12.35"),
        (1234.5678, "1,235"),
        (12345, "12,345"),
        (0.0, "0"),
        (-0.0, "0"),
        (1.5e-9, f"1.500e{MINUS}9"),
        (6.02e23, "6.020e23"),
        (-INF, f"{MINUS}∞"),
        (NAN, "–"),
        (np.float32(NAN), "–"),
        (None, "–"),
        ("", "–"),
        (np.float32(0.5), "0.5000"),
        (np.int64(-7), f"{MINUS}7"),
        (True, "yes"),
        (10**400, "10" + ",000" * 133),
    ],
)
def test_how_a_number_is_shown(cell, text):
    assert show(cell).text == text


def read_back(text):
    return float(text.replace(",", "").replace(MINUS, "-"))


@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_decimals_are_rounded_and_never_minus_zero(value, digits):
    text = show(value, digits).text
    assert abs(read_back(text) - value) <= 0.5 * 10**-digits + 1e-9
    assert not re.fullmatch(rf"{MINUS}[0.]+", text)


@given(st.floats(1e-300, 1e300), st.sampled_from([-1, 1]))
def test_four_digits_are_kept_of_any_number(size, sign):
    assert read_back(show(sign * size).text) == pytest.approx(sign * size, rel=5.01e-4)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=8))
def test_numbers_of_one_size_have_common_decimals(values):
    texts = [row[0].text for row in show_cells(Table("", ["c"], [[each] for each in values]))[2]]
    assert len({len(text.partition(".")[2]) for text in texts}) == 1


def test_numbers_of_many_sizes_each_keep_four_digits():
    rows = show_cells(Table("", ["c"], [[12345.6], [0.00123456], [3]]))[2]
    assert [row[0].text for row in rows] == ["12,346", "0.001235", "3"]


# ---- figures ---------------------------------------------------------------------------------------------


def test_an_svg_is_lean_and_has_no_size_of_its_own():
    root = ET.fromstring(to_svg(BARS, SIZE, "p-"))
    assert root.tag == "svg"  # without a namespace, which HTML knows itself
    assert root.get("viewBox") == f"0 0 {72 * SIZE[0]:g} {72 * SIZE[1]:g}"
    assert (root.get("role"), root.get("aria-label")) == ("img", "Three bars.")
    assert {"width", "height"} & set(root.attrib) == set()
    tags = {element.tag for element in root.iter()}
    assert not {"metadata", "style", "title"} & tags  # a style in one would rule the whole page
    assert {"clipPath", "pattern", "image", "use"} <= tags  # what refers to ids is in this drawing
    assert all(element.get("id").startswith("p-") for element in root.iter() if element.get("id"))


def test_the_shapes_are_those_that_matplotlib_draws():
    """All coordinates of paths, against matplotlib's own file, to half a hundredth of a point."""

    def draw(canvas):
        canvas.subplots().plot(np.linspace(0, 9, 300), np.sin(np.linspace(0, 9, 300)))

    def numbers(paths):
        return np.array([float(x) for path in paths for x in re.findall(r"-?\d+\.?\d*", path)])

    settings = {
        "svg.fonttype": "path",
        "svg.hashsalt": "s",
        "font.size": 8,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
    }
    with mpl.rc_context(settings):
        canvas, file = mpl.figure.Figure(figsize=SIZE, layout="constrained"), io.StringIO()
        draw(canvas)
        canvas.savefig(file, format="svg")
    theirs = numbers(re.findall(r'\bd="([^"]*)"', file.getvalue()))
    ours = numbers(re.findall(r'\bd="([^"]*)"', to_svg(frame(draw), SIZE, "p-")))
    assert len(ours) > 600
    np.testing.assert_allclose(ours, theirs, atol=0.005 + 1e-9)


def test_named_colours_become_variables_and_others_stay():
    palette = {"first": "#123456", "same": "#123456", "unused": "#abcdef"}

    def draw(canvas):
        ax = canvas.subplots()
        ax.plot([0, 1], color="#123456")
        ax.plot([1, 0], color="#654321")
        ax.bar([0], [1], color="#123456", hatch="/")

    svg = to_svg(frame(draw), SIZE, "p-", palette)
    assert "stroke: var(--plot-first, #123456)" in svg
    assert "fill: var(--plot-first, #123456)" in svg  # of the hatch, too, which was an attribute
    assert "stroke: #654321" in svg
    assert "plot-same" not in svg
    assert "#123456" not in svg.replace("var(--plot-first, #123456)", "")


def test_every_colour_of_a_plain_figure_is_the_palette_s():
    svg = to_svg(frame(lambda canvas: canvas.subplots().set(xlabel="x", title="t")), SIZE, "p-")
    found = set(re.findall(r"(?:var\([^)]*\)|#[0-9a-f]{6})", svg))
    names = {re.match(r"var\(--plot-(\w+)", colour)[1] for colour in found}
    assert names == {"text", "axis"}


def test_drawing_leaves_no_trace():
    before = dict(mpl.rcParams)
    first, second = to_svg(BARS, SIZE, "p-"), to_svg(BARS, SIZE, "p-")
    assert first == second
    assert dict(mpl.rcParams) == before
    code = (
        "import sys; from refinecal.report import *; "
        "f = Figure(lambda canvas: canvas.subplots(), 't', '', 'alt'); "
        "render(Page('t', 'l', sections=[Section('s', (), [f])])); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "matplotlib.pyplot" not in done.stdout.split()


def test_letters_that_the_font_lacks_are_kept_as_text():
    svg = to_svg(frame(lambda canvas: canvas.subplots().set_title("猫 & <犬>")), SIZE, "p-")
    assert "猫 &amp; &lt;犬&gt;" in svg


def test_words_in_a_figure_are_no_part_of_the_file():
    """Letters are drawn; matplotlib's comments, which repeat the words, are dropped."""
    svg = to_svg(frame(lambda canvas: canvas.subplots().set_title("--> <b>secret")), SIZE, "p-")
    assert "secret" not in svg
    assert "<!--" not in svg


def test_a_warning_while_drawing_is_not_swallowed():
    import warnings

    def draw(canvas):
        warnings.warn("few rows", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="few rows"):
        to_svg(frame(draw), SIZE, "p-")
    with pytest.raises(UserWarning, match="few rows"):
        to_svg(frame(draw), SIZE, "p-")  # warnings are errors here


# ---- tones -----------------------------------------------------------------------------------------------


def contrast(one, other):
    """Return the contrast of two colours by the formula of WCAG 2, from 1 to 21."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_and_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)  # (1 + 0.05) / (0 + 0.05)


@pytest.mark.parametrize("tones", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("behind", ["background", "surface", "stripe"])
@pytest.mark.parametrize("tone", ["text", "muted", "accent"])
def test_text_can_be_read(tones, behind, tone):
    assert contrast(tones[tone], tones[behind]) >= 4.5


QUIET = {"grid", "paper"}  # meant to be hardly seen
PALE = {
    "uncertainty",
    "sharpness",
    "after",
}  # those of Okabe and Ito's colours are below 3 on white


@pytest.mark.parametrize("name", sorted(PALETTE))
def test_every_colour_of_a_figure_has_a_tone_for_the_dark(name):
    paper = DARK["background"]
    assert DARK_PLOT["paper"] == paper
    if name not in QUIET:
        assert contrast(DARK_PLOT[name], paper) >= (4.5 if name == "text" else 3)
    if name not in QUIET | PALE:
        assert contrast(PALETTE[name], LIGHT["background"]) >= (4.5 if name == "text" else 3)


def test_tones_differ_in_the_dark_as_they_do_by_day():
    assert len(set(DARK_PLOT.values())) == len(DARK_PLOT)
    assert set(DARK_PLOT) == set(PALETTE)
    assert set(LIGHT_PLOT) <= set(PALETTE)
    assert set(LIGHT) == set(DARK)


def test_a_dollar_in_a_name_is_no_formula():
    from refinecal.plots import StoppingMetricsDisplay

    names = ["$x_", "50$ to 100$ \\frac"]  # neither could be set as mathematics
    display = StoppingMetricsDisplay(names, [1, 2], [0.5, 0.6], [0.4, 0.5])
    figure = Figure(lambda canvas: display.plot(canvas.add_subplot()), "title", "", "alt")
    assert "<svg" in render(Page("t", "l", sections=[Section("s", (), (figure,))]))


def test_figures_are_saved_by_title_each_with_its_own_name(tmp_path):
    def line(title):
        return Figure(lambda canvas: canvas.subplots().plot([0, 1]), title, "", "a line")

    section = Section("lines", (), [line("One: a/b"), line("one A b"), line("…")])
    page = Page("t", "lead", sections=[section])
    first, again = (save_figures(page, tmp_path / name, "svg") for name in ("x", "y"))
    assert [path.name for path in first] == ["one-a-b.svg", "one-a-b-2.svg", "figure.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    with pytest.raises(ValueError, match="ending.*png"):
        save_figures(page, tmp_path / "z", "gif")
    assert not (tmp_path / "z").exists()


def test_the_level_may_be_wrong_where_no_temperature_helps():
    """Log-odds that are too low by 1.5: gross, and no chance, but a temperature changes little."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        odds = rng.normal(size=200)
        y = (rng.random(200) < 1 / (1 + np.exp(-odds - 1.5))).astype(int)
        found = evaluate(y, logits=odds)
        assert found.ece > 0.1
        assert "too few to tell" not in verdict(found)
        assert "are calibrated" not in verdict(found)


def test_weights_make_no_more_rows():
    rng = np.random.default_rng(0)
    y, p = rng.integers(2, size=10_000), np.full(10_000, 0.5) + 0.2 * (rng.random(10_000) - 0.5)
    few = np.where(np.arange(10_000) < 20, 1.0, 1e-9)
    assert verdict(evaluate(y, p, sample_weight=few)) != verdict(evaluate(y, p))
    assert "temperature scaling corrects" not in verdict(evaluate(y, p, sample_weight=few))


def test_rows_that_are_all_right_tell_nothing_of_sureness():
    said = verdict(evaluate(np.arange(100) % 2, 0.2 + 0.6 * (np.arange(100) % 2)))
    assert "rank every row correctly" in said
