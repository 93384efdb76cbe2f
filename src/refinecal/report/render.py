"""From a page to HTML, and to a file."""

import base64
import hashlib
import os
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write
from refinecal.report.cells import is_numeric, shorten, show, show_column
from refinecal.report.figures import to_svg
from refinecal.report.page import Column, Figure, Page, Table
from refinecal.report.theme import stylesheet

PIXELS_PER_INCH = 104  # of a figure on a wide screen, where its text is then 12 pixels high
NARROW_PIXELS_PER_INCH = 128  # on a phone held sideways, at most
SECTIONS = 3  # more sections get a table of contents
TALL = 30  # rows; longer tables scroll
SHORT = 12  # characters; longer row names may wrap
LONGEST_HEADER = 60  # characters
JOINT = re.compile(r"(?<=\w)[_./\\-]+(?=\w)")  # none of these is part of an escaped character


def render(page: Page) -> str:
    """Return a page as one HTML document that needs no other file and no network.

    All text is escaped. The document forbids the browser to load or run anything else.
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
    # Markup is not escaped: our own files, and SVG, which is XML.
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
    """Write a page to a file, atomically."""
    # Half a surrogate pair, from a damaged file, cannot be encoded.
    content = render(page).encode("utf-8", errors="replace")
    with atomic_write(path) as part:
        part.write_bytes(content)


def _resource(name: str) -> str:
    return resources.files("refinecal.report").joinpath("templates", name).read_text("utf-8")


def _allow_breaks(name: str) -> Any:
    """Allow line breaks after the characters that join the words of a long name."""
    from markupsafe import Markup, escape

    return Markup(JOINT.sub(lambda found: found[0] + "<wbr>", str(escape(name))))


def policy(scripts: Iterable[str], *more: str) -> str:
    """Return the content security policy: a browser runs these scripts only, and loads nothing."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()) for script in scripts]
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    rules = ["default-src 'none'", "style-src 'unsafe-inline'", f"script-src {allowed}", *more]
    return "; ".join(rules)


# ---- blocks for the template -------------------------------------------------------------------------------


def _block(block: Table | Figure, name: str) -> dict[str, Any]:
    from markupsafe import Markup

    if isinstance(block, Table):
        return _grid(block)
    return {
        "kind": "figure",
        "title": block.title,
        "caption": block.caption,
        "wide": Markup(to_svg(block, block.wide, f"{name}w-")),
        "narrow": Markup(to_svg(block, block.narrow, f"{name}n-")),
        "wide_pixels": round(block.wide[0] * PIXELS_PER_INCH),
        "narrow_pixels": round(block.narrow[0] * NARROW_PIXELS_PER_INCH),
    }


def _grid(table: Table) -> dict[str, Any]:
    columns = [Column(c) if isinstance(c, str) else c for c in table.columns]
    given = [[row[j] for row in table.rows] for j in range(len(columns))]
    shown = [show_column(*each) for each in zip(columns, given, strict=True)]
    rows = [list(row) for row in zip(*shown, strict=True)]
    return {
        "kind": "table",
        "title": table.title,
        "heads": [_head(*each) for each in zip(columns, map(is_numeric, given), strict=True)],
        "rows": rows,
        "note": table.note,
        "tall": len(rows) > TALL,
        "wordy": any(len(row[0].text) > SHORT for row in rows),
    }


def _head(column: Column, numeric: bool) -> dict[str, Any]:
    text = shorten(column.name, LONGEST_HEADER)
    full = column.name if text != column.name else ""
    return {"text": text, "full": full, "numeric": numeric, "help": column.help}
