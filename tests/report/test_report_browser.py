"""A report in a real browser: on a phone and on a desk, by day and by night, on paper."""

import re
from dataclasses import replace

import pytest
from browser import WIDTHS, launch, open_page, problems
from playwright.sync_api import sync_playwright
from sample_report import HOSTILE, LETTERS, sample_page

from refinecal.report import Card, Column, Figure, Page, Section, Table, write

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write(sample_page(), path)
    return path


@pytest.fixture
def opened(browser):
    """Return a function that opens a file, or a page written to one; closes it at the end."""
    pages = []

    def open_it(path, width=1400, **options):
        pages.append(open_page(browser, path, width, **options))
        return pages[-1]

    yield open_it
    for page in pages:
        page.close()


def block(page, title):
    """Return the table under a title."""
    return page.locator(".table").filter(has=page.get_by_role("heading", name=title, exact=True))


def columns(page, title):
    """Return the texts of a table, as one list per column."""
    read = "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    return list(zip(*block(page, title).locator("tbody tr").evaluate_all(read), strict=True))


def header(page, title, name):
    return block(page, title).locator("thead th").filter(has_text=re.compile(f"^{name}$"))


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def luminance(colour):
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3])


@pytest.mark.parametrize("width", [*WIDTHS, 320, 641, 760, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wrong(opened, sample, width, scheme):
    assert problems(opened(sample, width, color_scheme=scheme)) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_all_is_readable_without_scripts(opened, sample, width):
    page = opened(sample, width, java_script_enabled=False)
    assert page.get_by_text("What to do:").is_visible()
    assert page.locator("svg:visible").count() == 3
    assert page.locator("tbody tr").count() == 26 + 6 + 4
    assert page.locator("button:visible").count() == 0  # none that would do nothing


@pytest.mark.parametrize(("width", "seen"), [(400, "narrow"), (1400, "wide")])
def test_each_figure_is_shown_in_the_size_of_the_window(opened, sample, width, seen):
    page = opened(sample, width)
    assert page.locator(".plot:visible").count() == 3
    assert page.locator(f".plot.{seen}:visible").count() == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_letters_in_figures_can_be_read(opened, sample, width):
    """A line of digits is about 0.73 of the size of its letters high, so 6.5 pixels are 9."""
    page = opened(sample, width)
    heights = page.evaluate(
        """() => [...document.querySelectorAll("svg[role=img]")].filter((svg) => svg.checkVisibility())
            .flatMap((svg) => [...svg.querySelectorAll("g.text")])
            .map((g) => g.getBoundingClientRect()).map((box) => Math.min(box.width, box.height))"""
    )
    assert len(heights) > 20
    assert min(heights) >= 6.5


def test_a_header_sorts_by_value_up_down_and_back(opened, sample):
    page = opened(sample)
    accuracy = header(page, "Every class", "accuracy")
    assert accuracy.get_attribute("aria-sort") is None
    accuracy.get_by_role("button").click()  # the sample's accuracies fall from A to Z
    assert accuracy.get_attribute("aria-sort") == "ascending"
    assert columns(page, "Every class")[0] == tuple(LETTERS[::-1])
    accuracy.get_by_role("button").click()
    assert accuracy.get_attribute("aria-sort") == "descending"
    assert columns(page, "Every class")[0] == tuple(LETTERS)
    header(page, "Every class", "rows").get_by_role("button").click()
    assert accuracy.get_attribute("aria-sort") is None
    rows = [int(text) for text in columns(page, "Every class")[1]]
    assert rows == sorted(rows)
    for _ in range(2):
        header(page, "Every class", "rows").get_by_role("button").click()
    assert columns(page, "Every class")[0] == tuple(LETTERS)
    assert problems(page) == []


def test_what_is_missing_stays_last_and_numbers_sort_by_size(opened, tmp_path):
    values = {
        "a": 10.5,
        "b": None,
        "c": -3.0,
        "d": float("nan"),
        "e": 9,
        "f": float("inf"),
        "g": 1e-9,
    }
    expected = ["c", "g", "e", "a", "f"]
    table = Table("T", ["name", "value"], list(values.items()))
    write(Page("p", "lead", sections=[Section("s", (), [table])]), tmp_path / "page.html")
    page = opened(tmp_path / "page.html")
    button = header(page, "T", "value").get_by_role("button")
    button.click()
    assert columns(page, "T")[0] == (*expected, "b", "d")
    button.click()
    assert columns(page, "T")[0] == (*expected[::-1], "b", "d")


def test_the_keyboard_sorts(opened, sample):
    page = opened(sample)
    header(page, "Models side by side", "risk").get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert header(page, "Models side by side", "risk").get_attribute("aria-sort") == "ascending"
    risks = [float(text) for text in columns(page, "Models side by side")[1]]
    assert risks == sorted(risks)


def test_dark_is_dark_and_the_button_overrules_the_system(opened, sample):
    page = opened(sample)
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert luminance(dark) < 150 < 600 < luminance(light)
    page.get_by_role("button", name="Use light colours").click()
    assert background(page) == light
    page.get_by_role("button", name="Use dark colours").click()
    assert background(page) == dark
    page.emulate_media(color_scheme="light")
    assert background(page) == dark


def test_figures_change_their_tones_in_the_dark(opened, sample):
    page = opened(sample)
    line = page.locator("#s1 .plot.wide path[style*='--plot-risk']").first
    stroke = "e => getComputedStyle(e).stroke"
    assert line.evaluate(stroke) == "rgb(0, 158, 115)"  # #009e73, Okabe and Ito's green
    page.emulate_media(color_scheme="dark")
    assert luminance(line.evaluate(stroke)) > luminance("rgb(0, 158, 115)")


def test_paper_is_light_whole_and_without_buttons(opened, sample):
    page = opened(sample, color_scheme="dark")
    page.get_by_role("button", name="Use light colours").click()
    page.get_by_role("button", name="Use dark colours").click()
    page.emulate_media(media="print", color_scheme="dark")
    assert luminance(page.evaluate("getComputedStyle(document.body).color")) < 150
    assert not page.locator("#theme").is_visible()
    assert not page.locator("nav").is_visible()
    style = "(e, name) => getComputedStyle(e)[name]"
    assert page.locator("figure").first.evaluate(style, "breakInside") == "avoid"
    assert page.locator("thead").first.evaluate(style, "display") == "table-header-group"
    assert page.locator(".scroll").first.evaluate(style, "overflowX") == "visible"
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) >= 3


def test_a_long_table_prints_whole(opened, tmp_path):
    rows = [(f"class {i}", i / 7) for i in range(1, 201)]
    table = Table("Classes", ["class", "loss"], rows)
    write(Page("p", "lead", sections=[Section("s", (), [table])]), tmp_path / "page.html")
    page = opened(tmp_path / "page.html")
    height = "e => [e.clientHeight, e.scrollHeight]"
    visible, whole = page.locator(".scroll").evaluate(height)
    assert visible < 900 < whole
    page.emulate_media(media="print")
    visible, whole = page.locator(".scroll").evaluate(height)
    assert visible == whole


def test_strange_names_run_no_code(opened, tmp_path):
    """The names are text; and if one were not, the page would refuse to run it."""

    def draw(canvas):
        canvas.subplots().set(title=HOSTILE, xlabel="--><img src=x onerror='window.hacked = true'>")

    image = "<img src='http://127.0.0.1:9/x' onerror='window.hacked = true'>"
    breaks_out = "\"'><svg onload=window.hacked=true>"
    for name in (HOSTILE, image, breaks_out):
        table = Table(name, [name, Column(name, help=name)], [(name, name), (name * 4, name)], name)
        figure = Figure(draw, name, name, name)
        section = Section(name, (name,), (table, figure))
        page = Page(name, name, (Card(name, name, name),), (name,), (section,) * 4, {name: name})
        write(page, tmp_path / "page.html")
        seen = opened(tmp_path / "page.html")
        assert seen.evaluate("window.hacked") is None
        assert seen.noticed == []
        assert seen.locator("h1").inner_text() == name
        assert seen.title() == name
        assert seen.locator("svg[role=img]").first.get_attribute("aria-label") == name


def test_a_script_from_elsewhere_is_refused(opened, sample, tmp_path):
    """Even one that an editor of the file has put in: the page knows its own scripts by their digests."""
    html = sample.read_text("utf-8").replace("<h1>", f"{HOSTILE}<h1>", 1)
    (tmp_path / "page.html").write_text(html, "utf-8")
    page = opened(tmp_path / "page.html")
    assert page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in what for what in page.noticed)


@pytest.mark.parametrize("width", WIDTHS)
def test_letters_that_matplotlib_lacks_are_left_to_the_browser(opened, tmp_path, width):
    def draw(canvas):
        canvas.subplots().set(title="猫 and 犬", xlabel="x")

    figure = Figure(draw, "Cats", "", "A frame with a title.")
    write(Page("p", "猫", sections=[Section("s", (), [figure])]), tmp_path / "page.html")
    page = opened(tmp_path / "page.html", width)
    assert problems(page) == []
    assert page.locator("svg:visible").get_by_text("猫 and 犬").is_visible()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_may_be_almost_empty(opened, tmp_path, width):
    write(Page("Title", "Lead."), tmp_path / "page.html")
    assert problems(opened(tmp_path / "page.html", width)) == []


FAULTS = {
    "page is 516 wide, not 400": ("<main>", "<main><div style='width: 500px; height: 1px'></div>"),
    "text overflows": (
        "<main>",
        "<main><p style='width: 5rem; white-space: pre'>long long long</p>",
    ),
    "2 of 2 drawings": (".plot.wide { display: none; }", ""),
    "id is used twice": ('id="s1"', 'id="s2"'),
    "nothing has the id": ('<clipPath id="', '<clipPath id="x'),
    "letters are cut off": ('<g class="text"', '<g class="text" transform="translate(-99)"'),
    "without a description": ('aria-label="Risk is lowest', 'data-label="'),
    "request": ("</main>", "<link rel='stylesheet' href='other.css'></main>"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_see_what_is_wrong(opened, sample, tmp_path, fault):
    """A report with one fault put in by hand is found out, in a window where both twins can be seen."""
    old, new = FAULTS[fault]
    html = sample.read_text("utf-8").replace("style-src", "style-src file:")
    assert old in html
    (tmp_path / "page.html").write_text(html.replace(old, new), "utf-8")
    assert any(fault in what for what in problems(opened(tmp_path / "page.html", 400)))


def test_crowded_letters_are_seen(opened, tmp_path):
    def draw(canvas):
        ax = canvas.subplots()
        ax.text(0.5, 0.5, "one")
        ax.text(0.5, 0.5, "two")

    page = replace(
        sample_page(), sections=[Section("s", (), [Figure(draw, "t", "", "Two words.")])]
    )
    write(page, tmp_path / "page.html")
    assert any("letters overlap" in what for what in problems(opened(tmp_path / "page.html")))
