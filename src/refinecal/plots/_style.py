"""What all figures share: colours by meaning, sizes of letters, axes that stay in the background."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from refinecal._core.errors import needs_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

# Every colour that is drawn, by meaning; tints are made by transparency. All differ, so that in an SVG
# each can be replaced by another on a dark page. The bright ones are Okabe and Ito's, which
# colour-blind people tell apart; risk, refinement and calibration are nearest to those of the paper.
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
    "paper": "#ffffff",  # inside of hollow marks, and of figures that we make
}
LOSS_NAMES = {"log": "log loss", "brier": "Brier score"}
NARROW = 4.0  # inches: axes below this hold smaller letters, and nothing beside the curves
LINE = 1.4  # height of a line of text, in sizes of its letters


def check_colour(name: str, what: str) -> str:
    """Return the name of a colour; complain of one that is none of ours."""
    if name not in PALETTE:
        raise ValueError(f"{what} names {name!r}, which is none of {', '.join(PALETTE)}")
    return name


def new_axes(size: tuple[float, float]) -> Axes:
    """Return the Axes of a new figure, white whatever the user's settings: our letters are dark."""
    with needs_extra("plot", package="matplotlib"):
        import matplotlib.pyplot as plt
    return plt.subplots(figsize=size, layout="constrained", facecolor=PALETTE["paper"])[1]


def dressed(ax: Axes) -> Figure:
    """Give axes our colours and sizes and no background; return the figure that they are in."""
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    for spine in ax.spines.values():
        spine.set_color(PALETTE["axis"])
    label, small = sizes(ax)
    ax.tick_params(which="both", color=PALETTE["axis"], labelcolor=PALETTE["text"], labelsize=small)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        text.set_color(PALETTE["text"])
        text.set_fontsize(label)
    return cast("Figure", ax.get_figure(root=True))


def inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def is_narrow(ax: Axes) -> bool:
    """Tell whether axes fill a column of a paper or a telephone, rather than a page."""
    return inches(ax)[0] < NARROW


def sizes(ax: Axes) -> tuple[float, float]:
    """Return the size of letters in points: of names of axes, and of everything else."""
    return (8.5, 7.5) if is_narrow(ax) else (10.0, 8.5)


def lines_of(ax: Axes, count: float) -> float:
    """Return the height of some lines of small text, as a part of the height of the axes; at most half."""
    return min(count * LINE * sizes(ax)[1] / 72 / inches(ax)[1], 0.5)


def key(ax: Axes, handles: Sequence[Any], beside: bool = False) -> Legend:
    """Explain the marks, one per line: in the upper left corner, or to the right of the axes."""
    place = {"loc": "upper left", "bbox_to_anchor": (1.03 if beside else 0.0, 1.0)}
    spaces = {"borderaxespad": 0.0, "borderpad": 0.0, "labelspacing": 0.35, "handletextpad": 0.6}
    return ax.legend(
        handles=list(handles),
        **cast("Any", place | spaces),
        frameon=False,
        fontsize=sizes(ax)[1],
        labelcolor=PALETTE["text"],
    )


def loss_name(loss: str) -> str:
    """Return what the axis of a loss is called.

    >>> loss_name("log"), loss_name("my")
    ('log loss', 'my loss')
    """
    return LOSS_NAMES.get(loss, f"{loss} loss")


def decimals(value: float, sign: bool = False) -> str:
    """Return a number with four decimals and never minus zero; with ``sign``, a plus or a minus before it.

    >>> decimals(-1e-9), decimals(0.25, sign=True), decimals(-0.25)
    ('0.0000', '+0.2500', '−0.2500')
    """
    if value == math.inf:
        return "infinite"
    rounded = round(value, 4) + 0.0
    text = f"{rounded:+.4f}" if sign else f"{rounded:.4f}"
    return text.replace("-", "−")  # the mark of matplotlib's own ticks
