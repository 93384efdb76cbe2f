"""From a page to HTML, and to a file."""

import base64
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write
from refinecal.report.cells import RenderedCell, is_numeric, shorten, show, show_column
from refinecal.report.figures import to_svg
from refinecal.report.page import Column, Figure, Page, Table
from refinecal.report.theme import stylesheet

PIXELS_PER_INCH = 104  # of a figure on a wide screen, where its text is then 12 pixels high
NARROW_PIXELS_PER_INCH = 128  # on a phone held sideways, at most
SECTIONS = 3  # more of them need a table of contents
TALL = 30  # rows; a longer table scrolls in its own window
SHORT = 12  # characters of a name that needs no room for several lines
LONGEST_HEADER = 60  # characters
JOINT = re.compile(r"(?<=\w)[_./\\-]+(?=\w)")  # none of these is part of an escaped character


def render(page: Page) -> str:
    """Return a page as one HTML document that needs nothing else, neither files nor network.

    All text is escaped: names of columns and classes may hold anything. The document also forbids the
    browser to load or run what is not its own.
    """
    with needs_extra("cli", package="jinja2"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    environment = Environment(
        loader=PackageLoader("refinecal.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _allow_breaks
    scripts = [_resource("theme.js"), _resource("sort.js")]
    # Markup is what is not escaped: our own files, and SVG, which is escaped XML.
    return environment.get_template("report.html.j2").render(
        page=page,
        css=Markup(stylesheet() + _resource("style.css")),
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts, "img-src data:"),
        contents=len(page.sections) > SECTIONS,
        blocks=[
            [_block(block, f"f{i}-{j}") for j, block in enumerate(section.blocks, 1)]
            for i, section in enumerate(page.sections, 1)
        ],
        show=show,
    )


def write(page: Page, path: str | os.PathLike[str]) -> None:
    """Write a page to a file, whole or not at all."""
    # Half a surrogate pair, from a broken file, is no character and cannot be written.
    content = render(page).encode("utf-8", errors="replace")
    with atomic_write(path) as part:
        part.write_bytes(content)


def _resource(name: str) -> str:
    return resources.files("refinecal.report").joinpath("templates", name).read_text("utf-8")


def _allow_breaks(name: str) -> Any:
    """Let a long name continue on the next line after what joins its words."""
    from markupsafe import Markup, escape

    return Markup(JOINT.sub(lambda found: found[0] + "<wbr>", str(escape(name))))


def policy(scripts: Iterable[str], *more: str) -> str:
    """Return the rule by which a browser runs our scripts and no others, and loads nothing."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()) for script in scripts]
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    rules = ["default-src 'none'", "style-src 'unsafe-inline'", f"script-src {allowed}", *more]
    return "; ".join(rules)


# ---- blocks, as the template wants them ------------------------------------------------------------------


@dataclass(frozen=True)
class _Head:
    text: str
    full: str
    numeric: bool
    help: str


@dataclass(frozen=True)
class _Grid:
    title: str
    heads: list[_Head]
    rows: list[list[RenderedCell]]
    note: str
    tall: bool
    wordy: bool
    kind: str = "table"


@dataclass(frozen=True)
class _Picture:
    title: str
    caption: str
    wide: Any  # SVG
    narrow: Any
    wide_pixels: int
    narrow_pixels: int
    kind: str = "figure"


def _block(block: Table | Figure, name: str) -> _Grid | _Picture:
    from markupsafe import Markup

    if isinstance(block, Table):
        return _grid(block)
    return _Picture(
        block.title,
        block.caption,
        Markup(to_svg(block, block.wide, f"{name}w-")),
        Markup(to_svg(block, block.narrow, f"{name}n-")),
        round(block.wide[0] * PIXELS_PER_INCH),
        round(block.narrow[0] * NARROW_PIXELS_PER_INCH),
    )


def _grid(table: Table) -> _Grid:
    columns = [Column(c) if isinstance(c, str) else c for c in table.columns]
    given = [[row[j] for row in table.rows] for j in range(len(columns))]
    shown = [show_column(column, cells) for column, cells in zip(columns, given, strict=True)]
    heads = [_head(column, is_numeric(cells)) for column, cells in zip(columns, given, strict=True)]
    rows = [list(row) for row in zip(*shown, strict=True)]
    wordy = any(len(row[0].text) > SHORT for row in rows)
    return _Grid(table.title, heads, rows, table.note, len(rows) > TALL, wordy)


def _head(column: Column, numeric: bool) -> _Head:
    text = shorten(column.name, LONGEST_HEADER)
    return _Head(text, column.name if text != column.name else "", numeric, column.help)
