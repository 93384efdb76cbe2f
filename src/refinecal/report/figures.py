"""From a figure to an SVG inside a page: with unique ids, the colors of the page, and no fixed size."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write

if TYPE_CHECKING:
    from refinecal.report.page import Figure, Page

FONT_SIZE = 8.0  # points: 11 to 12 pixels both on a phone and on a screen
NUMBER = re.compile(r"-?\d+\.\d+")
COLOR = re.compile(r"#[0-9a-f]{6}\b")
REFERENCE = re.compile(r"#([\w.-]+)")
REFERRING = {"href", "clip-path", "style", "mask", "filter"}  # attributes with references to ids
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML
PICTURES = ("png", "svg", "pdf")
DOTS_PER_INCH = 200
MISSING_GLYPH = r"Glyph \d+ .* missing from font"


def to_svg(
    figure: Figure, size: tuple[float, float], prefix: str, palette: Mapping[str, str] | None = None
) -> str:
    """Draw a figure at a size in inches; return SVG to put into an HTML page, always the same.

    ``prefix`` is put before every id, so that figures on a page do not share any. Each color of the palette,
    by default that of ``refinecal.plots``, becomes ``var(--plot-NAME, COLOR)``, which the page can redefine.
    """
    if palette is None:
        from refinecal.plots.style import PALETTE

        palette = PALETTE
    svg = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", MISSING_GLYPH)
        try:
            _draw(figure, svg, "svg", palette, size)
        except UserWarning as warning:
            if not re.match(MISSING_GLYPH, str(warning)):
                raise
            # Letters that matplotlib's font lacks: the browser has a font for them.
            warnings.filterwarnings("ignore", MISSING_GLYPH)
            svg = io.StringIO()
            _draw(figure, svg, "svg", palette, size, {"svg.fonttype": "none"})
    root = ET.fromstring(CONTROL.sub("", svg.getvalue()))
    _strip(root)
    _rename(root, prefix, palette)
    del root.attrib["width"], root.attrib["height"]  # the viewBox keeps their ratio
    root.attrib |= {"role": "img", "aria-label": figure.alt}
    return ET.tostring(root, encoding="unicode")


def save_figures(page: Page, folder: Path, ending: str = "png") -> list[Path]:
    """Write every figure of a page as a .png, .svg or .pdf file named by its title; return the files.

    >>> from tempfile import TemporaryDirectory
    >>> from refinecal.report import Figure, Page, Section
    >>> line = Figure(lambda canvas: canvas.subplots().plot([1, 2]), "A line: up", "", "It rises.")
    >>> page = Page("Lines", "One line.", sections=[Section("Up", (), [line])])
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in save_figures(page, Path(folder))]
    ['a-line-up.png']
    """
    from refinecal.plots.style import PALETTE
    from refinecal.report.page import Figure

    if ending not in PICTURES:
        from refinecal._core.errors import fail_choice

        fail_choice("ending", ending, list(PICTURES), "left out")
    blocks = [block for section in page.sections for block in section.blocks]
    figures = [block for block in blocks if isinstance(block, Figure)]
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path] = {}
    for figure in figures:
        stem = _stem(figure.title)
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        name = next(each for each in names if each not in written)
        written[name] = folder / f"{name}.{ending}"
        with atomic_write(written[name]) as part:
            paper = {"figure.facecolor": PALETTE["paper"], "savefig.dpi": DOTS_PER_INCH}
            _draw(figure, part, ending, PALETTE, figure.wide, paper)
    return list(written.values())


def _stem(title: str) -> str:
    """Return a title as the name of a file.

    >>> _stem("1 − AUROC: A & B"), _stem("?")
    ('1-minus-auroc-a-b', 'figure')
    """
    return re.sub(r"\W+", "-", title.lower().replace("−", " minus ")).strip("-") or "figure"


# ---- drawing ---------------------------------------------------------------------------------------------


SETTINGS: dict[str, Any] = {  # of matplotlib
    "svg.fonttype": "path",
    "svg.hashsalt": "refinecal",  # ids that do not change from run to run
    "font.size": FONT_SIZE,
    "text.parse_math": False,  # a dollar in a user's name is a dollar
    **dict.fromkeys((f"{part}.facecolor" for part in ("figure", "axes", "legend")), "none"),
    "legend.frameon": False,
    "savefig.facecolor": "auto",
    "savefig.bbox": "standard",  # a tight box would change the size
}
TONES = {"text": "#000000", "axis": "#000000", "grid": "#b0b0b0"}  # unless the palette has others
INKED = {  # the settings that take these colors
    "text": (
        "text.color",
        "axes.labelcolor",
        "axes.titlecolor",
        "xtick.labelcolor",
        "ytick.labelcolor",
    ),
    "axis": ("axes.edgecolor", "xtick.color", "ytick.color"),
    "grid": ("grid.color",),
}


def _draw(
    figure: Figure,
    target: Any,
    ending: str,
    palette: Mapping[str, str],
    size: tuple[float, float],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Draw a figure in these colors, with ``more`` settings of matplotlib, into a file."""
    with needs_extra("cli", package="matplotlib"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
    tones = TONES | dict(palette)
    inks = {setting: tones[name] for name, settings in INKED.items() for setting in settings}
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
    settings: Any = {**SETTINGS, **inks, **more}
    with rc_context(settings):
        canvas = Canvas(figsize=size, layout="constrained")
        if callable(figure.draw):
            figure.draw(canvas)
        else:
            figure.draw.plot(canvas.add_subplot())
        canvas.savefig(target, format=ending, metadata=date)


# ---- rewriting -------------------------------------------------------------------------------------------


def _strip(root: ET.Element) -> None:
    """Remove namespaces, metadata, and styles that would apply to the whole page."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in list(element.attrib):
            element.set(name.rpartition("}")[2], element.attrib.pop(name))
        element.tail = None
        if element.tag not in ("text", "tspan"):
            element.text = None
        if "d" in element.attrib:  # a hundredth of a point is finer than any screen
            path = element.attrib["d"].split()
            path = [f"{float(each):.2f}" if NUMBER.fullmatch(each) else each for each in path]
            element.set("d", " ".join(path))


def _rename(root: ET.Element, prefix: str, palette: Mapping[str, str]) -> None:
    """Prefix the ids that are referred to and drop the others; make named colors variables of the page."""
    used = {
        name
        for element in root.iter()
        for attribute in REFERRING
        for name in REFERENCE.findall(element.get(attribute, ""))
    }
    # The first name of a color wins.
    variables = {tone: f"var(--plot-{name}, {tone})" for name, tone in reversed([*palette.items()])}
    for element in root.iter():
        own = element.attrib.pop("id", "")
        if own in used:
            element.set("id", prefix + own)
        elif own.startswith("text_"):
            element.set("class", "text")
        for attribute in REFERRING & element.attrib.keys():
            text = element.attrib[attribute]
            mark = "#" if attribute == "href" and text.startswith("#") else "url(#"
            element.set(attribute, text.replace(mark, mark + prefix))
        style = element.get("style", "")
        for attribute in ("fill", "stroke"):  # which take no var() as attributes
            if COLOR.fullmatch(element.get(attribute, "")):
                style = f"{attribute}: {element.attrib.pop(attribute)}; {style}".rstrip("; ")
        for tone in variables.keys() & COLOR.findall(style):
            style = style.replace(tone, variables[tone])
        if style:
            element.set("style", style)
