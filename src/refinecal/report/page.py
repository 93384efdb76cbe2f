"""What a report says, before it is HTML. All text is plain: it is shown as it is written here."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class Written:
    """A cell that is shown as it is written, such as "0.15 ± 0.01", and sorted by its number.

    Parameters
    ----------
    text : str
        What is shown.
    value : float, optional
        What it is sorted by; without it the cell is a word.
    strong : bool, default False
        Set bold, such as the best of a table.

    Examples
    --------
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
    """A big number at the top of the page, with a few words above and below it."""

    label: str
    value: Cell
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table, for those who want more than its name.

    Parameters
    ----------
    name : str
        The header.
    digits : int, optional
        So many decimals; by default 4 significant digits, and 1 decimal of a percentage.
    percent : bool, default False
        Show 0.25 as 25.0%.
    help : str, optional
        What it means, written below the table.
    """

    name: str
    digits: int | None = None
    percent: bool = False
    help: str = ""

    def __post_init__(self) -> None:
        if self.digits is not None and not 0 <= self.digits <= 12:
            raise ValueError(f"digits is {self.digits}: a column shows 0 to 12 decimals")


@dataclass(frozen=True)
class Table:
    """Rows that readers can sort by any column.

    Parameters
    ----------
    title : str
        Shown above.
    columns : sequence of str or Column
        The first one names the rows.
    rows : sequence of sequences
        Texts and numbers; ``None``, NaN and "" are missing.
    note : str, optional
        Shown below.

    Examples
    --------
    >>> Table("Models", ["model", "log loss"], [("forest", 0.31), ("network",)])
    Traceback (most recent call last):
    ...
    ValueError: rows[1] of the table 'Models' has 1 cell, but there are 2 columns
    """

    title: str
    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

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
    """A picture, drawn twice: once for a screen or a sheet of paper, once for a phone.

    Parameters
    ----------
    draw : callable
        Draws on the empty ``matplotlib.figure.Figure`` that it is given, whatever its size, as often as it
        is called. The picture becomes SVG, where every point takes some 60 bytes: draw more than a few
        thousand points binned, or with ``rasterized=True``.
    title, caption : str
        Shown above and below.
    alt : str
        What the picture shows, for those who cannot see it.
    wide, narrow : tuple of float
        Width and height in inches for a screen, and for a phone.
    """

    draw: Callable[[Canvas], object]
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
        _refuse_string("text", self.text, f"the section {self.title!r}")


@dataclass(frozen=True)
class Page:
    """A report, the plain answer first.

    Parameters
    ----------
    title : str
        What was done, to what.
    lead : str
        One sentence: what was gained.
    cards : sequence of Card, optional
        The numbers behind that sentence.
    points : sequence of str, optional
        How sure that is, and what to do. A few words before a colon at the beginning are set bold.
    sections : sequence of Section, optional
        The rest; a table of contents is made for more than three.
    facts : mapping of str to str, optional
        How the report was made: version, command, data, seed, date.

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

    def __post_init__(self) -> None:
        _refuse_string("points", self.points, "the page")


def _refuse_string(name: str, given: Sequence[str], of: str) -> None:
    if isinstance(given, str):  # which is a sequence of strings, too: its letters
        raise TypeError(f"{name} of {of} is one string: pass a tuple of strings, one per paragraph")
