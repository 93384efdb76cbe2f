"""From a page to HTML, and to a file."""

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write
from refinecal.report.figures import to_svg
from refinecal.report.page import Page, Table, shorten, show, show_cells

PIXELS_PER_INCH = 104  # of a figure on a wide screen, where its text is then 12 pixels high
NARROW_PIXELS_PER_INCH = 128  # on a phone held sideways, at most
SECTIONS = 3  # more sections get a table of contents
TALL = 30  # rows; longer tables scroll
SHORT = 12  # characters; longer row names may wrap
LONGEST_HEADER = 60  # characters
# Joints of words, none inside a number or a date, before the extension of a file, or in an escaped character.
JOINT = re.compile(r"(?<=\w)(?:[_\\]+|[/-]+(?!\d))(?=\w)")
# The colors of a page. Those of figures replace the colors of refinecal.plots; in light mode only the paper.
LIGHT = {
    "background": "#fbfbfa",
    "surface": "#ffffff",
    "stripe": "#f3f5f6",
    "text": "#1c2227",
    "muted": "#59636c",
    "line": "#dce1e5",
    "accent": "#00618f",
}
DARK = {
    "background": "#13171b",
    "surface": "#1a1f25",
    "stripe": "#20262d",
    "text": "#e7eaed",
    "muted": "#a4aeb8",
    "line": "#333c45",
    "accent": "#6cbcea",
}
LIGHT_PLOT = {"paper": LIGHT["background"]}
DARK_PLOT = {
    "risk": "#2fc79b",
    "refinement": "#ff8a3d",
    "calibration": "#5aa9f0",
    "uncertainty": "#9ad7f7",
    "sharpness": "#f5c04a",
    "after": "#ee9fc8",
    "before": "#9aa4ae",
    "text": DARK["text"],
    "axis": "#8a95a0",
    "grid": DARK["line"],
    "paper": DARK["background"],
}


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
    scripts = [read_template("report", name) for name in ("theme.js", "sort.js")]
    # Markup is not escaped: our own files, and SVG, which is XML.
    return environment.get_template("report.html.j2").render(
        page=page,
        css=Markup(STYLESHEET + read_template("report", "style.css")),
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts, "img-src data:"),
        contents=len(page.sections) > SECTIONS,
        blocks=[
            [
                _describe_table(block)
                if isinstance(block, Table)
                else {
                    "figure": block,
                    "wide": Markup(to_svg(block, block.wide, f"f{i}-{j}w-")),
                    "narrow": Markup(to_svg(block, block.narrow, f"f{i}-{j}n-")),
                    "wide_pixels": round(block.wide[0] * PIXELS_PER_INCH),
                    "narrow_pixels": round(block.narrow[0] * NARROW_PIXELS_PER_INCH),
                }
                for j, block in enumerate(section.blocks, 1)
            ]
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


def read_template(package: str, name: str) -> str:
    """Return a template, script or stylesheet of a package."""
    return resources.files(f"refinecal.{package}").joinpath("templates", name).read_text("utf-8")


def _allow_breaks(name: str) -> Any:
    """Allow line breaks after the characters that join the words of a long name."""
    from markupsafe import Markup, escape

    return Markup(JOINT.sub(r"\g<0><wbr>", str(escape(name))))


def policy(scripts: Iterable[str], *more: str) -> str:
    """Return the content security policy: a browser runs these scripts only, and loads nothing."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()) for script in scripts]
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    rules = ["default-src 'none'", "style-src 'unsafe-inline'", f"script-src {allowed}", *more]
    return "; ".join(rules)


def _describe_table(table: Table) -> dict[str, Any]:
    """Return what the template needs of a table."""
    columns, numeric, rows = show_cells(table)
    names = [shorten(each.name, LONGEST_HEADER) for each in columns]
    return {
        "table": table,
        "heads": [
            {"text": name, "full": "" if name == c.name else c.name, "numeric": n, "help": c.help}
            for name, c, n in zip(names, columns, numeric, strict=True)
        ],
        "rows": rows,
        "tall": len(rows) > TALL,
        "wordy": any(len(row[0].text) > SHORT for row in rows),
    }


# ---- colors ------------------------------------------------------------------------------------------------


def variables(tones: Mapping[str, str], prefix: str = "") -> str:
    """Return colors as CSS custom properties.

    >>> variables({"text": "#222222"}, "plot-")
    '--plot-text: #222222;'
    """
    return " ".join(f"--{prefix}{name}: {tone};" for name, tone in tones.items())


_LIGHT = f"{variables(LIGHT)} {variables(LIGHT_PLOT, 'plot-')}"
_DARK = f"color-scheme: dark; {variables(DARK)} {variables(DARK_PLOT, 'plot-')}"
# The rules that set the colors: by the reader's system or a click; prints are always light.
STYLESHEET = f""":root {{ color-scheme: light; {_LIGHT} }}
@media screen {{ :root[data-theme=dark] {{ {_DARK} }} }}
@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {_DARK} }} }}
"""
