"""The content of a report, before it is HTML, terminal output or JSON. All text is plain."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from refinecal._core.format import MISSING, MOST_DECIMALS, number, significant_decimals

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from refinecal.plots.style import Display

SPREAD = 100.0  # columns whose numbers differ by at most this factor have common decimals
LONGEST = 80  # characters of a name that are shown
PARAGRAPHS = "pass a tuple of strings, one per paragraph"


@dataclass(frozen=True)
class Written:
    """A cell with its own text, such as "0.15 ± 0.01", sorted by ``value``; ``strong`` is set bold.

    >>> best = Written("0.15 ± 0.01", 0.15, strong=True)
    >>> from refinecal.report import render
    >>> table = Table("Models", ["model", "log loss"], [("forest", best)])
    >>> "<strong>0.15 ± 0.01</strong>" in render(Page("", "", sections=[Section("", (), [table])]))
    True
    """

    text: str
    value: float | None = None
    strong: bool = False


Cell = str | int | float | Written | None


@dataclass(frozen=True)
class Card:
    """A large number at the top of the page, with a label and a note."""

    label: str
    value: Cell
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Numbers have ``digits`` decimals, by default 4 significant digits; ``percent`` shows 0.25 as 25.0%, and
    ``sign`` a plus before positive numbers. ``help`` is written below the table. On a narrow terminal,
    columns with a positive ``spare`` may be hidden, those with the smallest first.
    """

    name: str
    digits: int | None = None
    percent: bool = False
    help: str = ""
    spare: int = 0
    sign: bool = False

    def __post_init__(self) -> None:
        if self.digits is not None and not 0 <= self.digits <= 12:
            raise ValueError(f"digits is {self.digits}: a column shows 0 to 12 decimals")


@dataclass(frozen=True)
class Table:
    """Rows that can be sorted by any column; ``None``, NaN and "" are missing cells.

    The first column names the rows. ``terminal`` is the number of rows shown on the terminal; tables with 0
    are in the HTML report only.

    >>> Table("Models", ["model", "log loss"], [("forest", 0.31), ("network",)])
    Traceback (most recent call last):
    ...
    ValueError: rows[1] of the table 'Models' has 1 cell, but there are 2 columns
    """

    title: str
    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    terminal: int = 0

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError(f"the table {self.title!r} has no columns: it needs at least one")
        for i, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                raise ValueError(
                    f"rows[{i}] of the table {self.title!r} has {cells}, but there are "
                    f"{len(self.columns)} columns"
                )


@dataclass(frozen=True)
class Figure:
    """A picture, drawn twice: once for a screen or a sheet of paper, once for a phone (sizes in inches).

    ``draw`` is a display of :mod:`refinecal.plots`, or a function that draws on an empty
    ``matplotlib.figure.Figure`` of any size and may be called several times. The picture becomes SVG, where a
    point takes about 60 bytes: bin more than a few thousand points, or draw them with ``rasterized=True``.
    ``alt`` is a text for readers who cannot see the picture.
    """

    draw: Display | Callable[[Canvas], object]
    title: str
    caption: str
    alt: str
    wide: tuple[float, float] = (7.2, 4.0)
    narrow: tuple[float, float] = (3.6, 3.4)

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise ValueError(
                f"alt of the figure {self.title!r} is empty: say in a sentence what it shows, for "
                "readers who cannot see it"
            )


@dataclass(frozen=True)
class Section:
    """A chapter: paragraphs, then tables and figures."""

    title: str
    text: Sequence[str] = ()
    blocks: Sequence[Table | Figure] = ()

    def __post_init__(self) -> None:
        if isinstance(self.text, str):  # a sequence of strings, too: its letters
            raise TypeError(f"text of the section {self.title!r} is one string: {PARAGRAPHS}")


@dataclass(frozen=True)
class Page:
    """The result of a command, shown as HTML, on the terminal, or as JSON.

    Parameters
    ----------
    title, lead : str
        What was done, to what; and the main result in one sentence.
    cards : sequence of Card, optional
        The numbers behind that sentence.
    points : sequence of str, optional
        How certain that is, and what to do. A few words before a colon at the beginning are set bold.
    sections : sequence of Section, optional
        The rest; more than three get a table of contents.
    facts : mapping of str to str, optional
        How the report was made: version, command, data, seed, date.
    notes : sequence of str, optional
        What to know about the input; commands write these to stderr.
    data : mapping, optional
        The result as plain data, which ``--json`` prints.

    Examples
    --------
    >>> page = Page("Weather", "It will rain.", cards=[Card("chance of rain", 0.75)])
    >>> from refinecal.report import render
    >>> "It will rain." in render(page)
    True
    """

    title: str
    lead: str
    cards: Sequence[Card] = ()
    points: Sequence[str] = ()
    sections: Sequence[Section] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.points, str):
            raise TypeError(f"points of the page is one string: {PARAGRAPHS}")


# ---- cells as text -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RenderedCell:
    """The text of a cell; ``value`` is its number, ``full`` the whole name if it was shortened."""

    text: str
    value: str = ""
    full: str = ""
    missing: bool = False
    strong: bool = False


def show_cells(table: Table) -> tuple[list[Column], list[bool], list[tuple[RenderedCell, ...]]]:
    """Return the columns of a table, which of them are right-aligned, and its rows as text.

    The numbers of a column have common decimals if they are of similar size.
    """
    columns = [Column(each) if isinstance(each, str) else each for each in table.columns]
    shown, numeric = [], []
    for j, column in enumerate(columns):
        cells = [row[j] for row in table.rows]
        digits = 1 if column.digits is None and column.percent else column.digits
        if digits is None:
            numbers: list[Any] = [each for each in cells if isinstance(each, Real)]
            sizes = [abs(float(each)) for each in numbers if not isinstance(each, Integral)]
            sizes = [size for size in sizes if math.isfinite(size) and size > 0]
            if sizes and max(sizes) <= SPREAD * min(sizes) and max(sizes) < 1e15:
                digits = significant_decimals(max(sizes))
                digits = None if digits > MOST_DECIMALS else digits
        texts = [show(cell, digits, column.percent) for cell in cells]
        if column.sign:
            texts = [replace(c, text=f"+{c.text}") if c.text[:1].isdigit() else c for c in texts]
        shown.append(texts)
        found = [each for each, text in zip(cells, texts, strict=True) if not text.missing]
        found = [each.value if isinstance(each, Written) else each for each in found]
        numbers = [each for each in found if isinstance(each, Real) and not isinstance(each, bool)]
        numeric.append(2 * len(numbers) > len(found))
    return columns, numeric, list(zip(*shown, strict=True))


def show(cell: Cell, digits: int | None = None, percent: bool = False) -> RenderedCell:
    """Return one cell as text; without ``digits``, a number has 4 significant digits.

    >>> show(12345.678).text, show(-0.00001, digits=4).text, show(float("nan")).text
    ('12,346', '0.0000', '–')
    """
    text = cell.text if isinstance(cell, Written) else cell
    if text is None or text == "" or text != text:  # NaN  # noqa: PLR0124
        return RenderedCell(MISSING, missing=True)
    if isinstance(cell, bool):
        return RenderedCell("yes" if cell else "no")
    value = cell.value if isinstance(cell, Written) else cell
    sorted_by = ""
    if isinstance(value, Integral):
        sorted_by = str(int(value))
    elif isinstance(value, Real) and not math.isnan(value):  # as JavaScript reads it
        sorted_by = repr(float(value)).replace("inf", "Infinity")
    if isinstance(cell, Written):
        return RenderedCell(cell.text, value=sorted_by, strong=cell.strong)
    if not isinstance(cell, Real):
        text = str(cell)
        return RenderedCell(shorten(text), full=text if len(text) > LONGEST else "")
    text = number(100 * float(cell), digits) + "%" if percent else number(cell, digits)
    return RenderedCell(text, value=sorted_by)


def shorten(name: str, width: int = LONGEST) -> str:
    """Return a name of at most ``width`` characters, without its middle: ends distinguish long names."""
    if len(name) <= width:
        return name
    kept = width - 1
    return f"{name[: kept - kept // 3].rstrip()}…{name[-(kept // 3) :].lstrip()}"
