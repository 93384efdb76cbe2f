"""Style of all figures: colours by meaning, font sizes, unobtrusive axes, and the base class of displays."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.errors import needs_extra
from refinecal._core.format import MINUS, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.legend import Legend
    from matplotlib.text import Annotation, Text

Floats = NDArray[np.float64]

# Every colour, by meaning; tints are transparent. All differ, so that each can be replaced in an SVG on a
# dark page. The bright ones are Okabe and Ito's, which colour-blind people can distinguish; risk, refinement
# and calibration are close to those of the paper.
PALETTE = {
    "risk": "#009e73",
    "refinement": "#d55e00",
    "calibration": "#0072b2",
    "uncertainty": "#56b4e9",
    "sharpness": "#e69f00",
    "after": "#cc79a7",  # calibration, where two states of one model are compared
    "before": "#737373",
    "text": "#262626",
    "axis": "#595959",
    "grid": "#d9d9d9",
    "paper": "#ffffff",  # inside of hollow markers, and background of figures
}
LOSS_NAMES = {"log": "log loss", "brier": "Brier score"}
TWO_COLUMNS = 5.5  # inches of a figure, from where panels are side by side
NARROW = 4.0  # inches: narrower axes have smaller fonts, and no labels next to the curves
THIN: Any = {"color": PALETTE["axis"], "linewidth": 0.8}  # lines that guide the eye
LINE = 1.4  # height of a line of text, in sizes of its letters


def dress(ax: Axes, letters: tuple[float, float] | None = None) -> Figure:
    """Apply colours and font sizes to axes, without a background; return their figure.

    ``letters`` are the font sizes of labels and of ticks; by default they fit the width of the axes.
    """
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    for spine in ax.spines.values():
        spine.set_color(PALETTE["axis"])
    label, small = letters or sizes(ax)
    ax.tick_params(which="both", color=PALETTE["axis"], labelcolor=PALETTE["text"], labelsize=small)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        text.set_color(PALETTE["text"])
        text.set_fontsize(label)
    return cast("Figure", ax.get_figure(root=True))


def tint(colour: str, alpha: float) -> Any:
    """Return the properties of an area: a colour by name, partly transparent, without an edge."""
    return {"color": PALETTE[colour], "alpha": alpha, "linewidth": 0}


# ---- sizes -------------------------------------------------------------------------------------------------


def inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def is_narrow(ax: Axes) -> bool:
    """Tell whether axes have the width of a column or a phone, rather than a page."""
    return inches(ax)[0] < NARROW


def sizes(ax: Axes) -> tuple[float, float]:
    """Return font sizes in points: of axis labels, and of everything else."""
    return (8.5, 7.5) if inches(ax)[0] < NARROW else (10.0, 8.5)


def lines_of(ax: Axes, count: float) -> float:
    """Return the height of lines of small text, as a fraction of the height of the axes; at most half."""
    return min(count * LINE * sizes(ax)[1] / 72 / inches(ax)[1], 0.5)


def round_ticks(
    low: float, high: float, most: int, margin: float = 0.0, **options: Any
) -> list[float]:
    """Return at most about ``most`` round numbers between two others, or a margin beyond them."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(most, **({"steps": [1, 2, 2.5, 5, 10]} | options)).tick_values(low, high)
    return [tick for tick in ticks if low - margin <= tick <= high + margin]


def log_ticks(low: float, high: float, steps: Sequence[float] = (1, 2, 5)) -> Floats:
    """Return the powers of ten between two numbers, and some multiples of them."""
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks = np.outer(powers, steps).ravel()
    return ticks[(ticks >= low * (1 - 1e-9)) & (ticks <= high * (1 + 1e-9))]


def set_losses(ax: Axes, low: float, high: float, most: int, loss: str) -> None:
    """Lay out a horizontal axis of a loss."""
    ax.set_xticks(round_ticks(low, high, most))
    ax.spines["bottom"].set_bounds(low, high)
    ax.set_xlabel(loss_name(loss))


def name_rows(ax: Axes, names: Sequence[str], spine: bool = False) -> None:
    """Write the names of rows instead of an axis; only its line may stay."""
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(spine)


# ---- text --------------------------------------------------------------------------------------------------


def write_title(ax: Axes, text: str, size: float, **options: Any) -> None:
    """Write a title with our size and colour, regardless of matplotlib's settings."""
    ax.set_title(text, fontsize=size, color=PALETTE["text"], **options)


def write_line(ax: Axes, line: float, text: str, colour: str = "text", x: float = 0.0) -> Text:
    """Write small text in the upper part of axes, ``line`` lines from the top."""
    return ax.text(
        x,
        1 - lines_of(ax, line),
        text,
        transform=ax.transAxes,
        verticalalignment="top",
        color=PALETTE[colour],
        fontsize=sizes(ax)[1],
    )


def write_near(
    ax: Axes,
    place: tuple[float, float],
    text: str,
    shift: tuple[float, float],
    colour: str = "text",
    **options: Any,
) -> Annotation:
    """Write small text next to a place, shifted right and up by some points."""
    options |= {"color": PALETTE[colour], "fontsize": sizes(ax)[1]}
    return ax.annotate(text, place, xytext=shift, textcoords="offset points", **options)


def add_key(ax: Axes, handles: Sequence[Any], beside: bool = False) -> Legend:
    """Add a legend, one entry per line: in the upper left corner, or to the right of the axes."""
    place = {"loc": "upper left", "bbox_to_anchor": (1.03 if beside else 0.0, 1.0)}
    spaces = {"borderaxespad": 0.0, "borderpad": 0.0, "labelspacing": 0.35, "handletextpad": 0.6}
    return add_legend(ax, handles, sizes(ax)[1], **place, **spaces)


def add_legend(
    owner: Axes | Figure | SubFigure, handles: Sequence[Any], size: float, **options: Any
) -> Legend:
    """Add a legend to axes, or above all axes of a figure."""
    from matplotlib.figure import FigureBase

    if isinstance(owner, FigureBase):
        options["loc"] = "outside upper center"
    look: Any = {"frameon": False, "fontsize": size, "labelcolor": PALETTE["text"]}
    return owner.legend(handles=list(handles), **look, **options)


# ---- names -------------------------------------------------------------------------------------------------


def check_colour(name: str, what: str) -> str:
    """Return the name of a colour, which must be in ``PALETTE``."""
    if name not in PALETTE:
        raise ValueError(f"{what} {name!r}, which is not one of {', '.join(PALETTE)}")
    return name


def loss_name(loss: str) -> str:
    """Return the axis label of a loss.

    >>> loss_name("log"), loss_name("my")
    ('log loss', 'my loss')
    """
    return LOSS_NAMES.get(loss, f"{loss} loss")


def format_loss(value: float, sign: bool = False) -> str:
    """Return a number with four decimals; with ``sign``, a plus or a minus before it.

    >>> format_loss(-1e-9), format_loss(0.25, sign=True), format_loss(-0.25)
    ('0.0000', '+0.2500', '−0.2500')
    """
    if value == math.inf:
        return "infinite"
    text = number(float(value), 4).replace(",", "")
    return f"+{text}" if sign and not text.startswith(MINUS) else text


# ---- displays ----------------------------------------------------------------------------------------------


class Display:
    """The data of a figure, and how to draw them: subclasses define ``_draw``, and perhaps ``_size``.

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        Where the data were drawn.
    """

    figure_: Figure
    ax_: Axes

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the data.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        """
        if ax is None:
            with needs_extra("plot", package="matplotlib"):
                import matplotlib.pyplot as plt
            look: Any = {"layout": "constrained", "facecolor": PALETTE["paper"]}  # our text is dark
            _, ax = plt.subplots(figsize=self._size(), **look)
        self.ax_, self.figure_ = ax, dress(ax)
        self._draw(ax)
        return self

    def _size(self) -> tuple[float, float]:
        """Return the width and height of a new figure, in inches."""
        return 7, 4.2

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


def draw_panels(figure: Figure, panels: Mapping[str, Display]) -> dict[str, Axes]:
    """Draw displays with their titles, side by side where the figure is wide; return their axes.

    Neighbours with the same row names, or the same axis label, show them once.
    """
    columns = 2 if figure.get_figwidth() >= TWO_COLUMNS and len(panels) > 1 else 1
    grid = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
    for place, (ax, title) in enumerate(zip(grid.flat, panels, strict=False)):
        panels[title].plot(ax)
        write_title(ax, title, sizes(ax)[0], loc="left")
        if place % columns:
            left = panels[list(panels)[place - 1]]
            names = getattr(panels[title], "names", None)
            if names is not None and list(names) == list(getattr(left, "names", ())):
                ax.tick_params(labelleft=False)
            elif left.ax_.get_ylabel() == ax.get_ylabel():
                ax.set_ylabel("")
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    return dict(zip(panels, grid.flat, strict=False))


def check_floats(name: str, given: ArrayLike, shape: tuple[int | None, ...], wanted: str) -> Floats:
    """Return an array of a shape, in which ``None`` is any length; ``wanted`` ends the error message."""
    values = np.asarray(given, dtype=np.float64)
    fits = values.ndim == len(shape) and all(
        length in (None, found) for length, found in zip(shape, values.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name} has shape {values.shape}{wanted}")
    return values
