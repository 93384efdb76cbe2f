"""Relative differences between ways to stop, with a dot per run: figure 5 of the paper."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal.plots._boxes import (
    FEW,
    axis_name,
    draw_box,
    name_rows,
    percent_axis,
    quantiles_of,
    spread,
)
from refinecal.plots._style import PALETTE, check_colour, dressed, is_narrow, new_axes, sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

Floats = NDArray[np.float64]
Look = tuple[str, str]  # a colour of ours, and a mark of matplotlib's

COLOURS = ("calibration", "refinement", "risk", "after", "sharpness", "uncertainty")
MARKS = ("o", "^", "s", "D", "v", "P")


class RunDifferencesDisplay:
    """Boxes of relative differences, in percent, one row per procedure and one dot per run (figure 5).

    A box ends at the quartiles of all runs, its line is the median, its whiskers end at the 10 % and 90 %
    quantiles; of fewer than 5 runs there is only the line. The axis is logarithmic beyond 0.1 % either side
    of 0.

    Parameters
    ----------
    values : mapping of str to mapping of str to array-like
        For each procedure and each group of runs, such as a data set, their differences; what is not finite
        is left out.
    what : str, default "test log loss"
        What differs, for the axis.
    looks : mapping of str to tuple, optional
        For each group a colour of ``refinecal.plots`` and a mark of matplotlib's.
    key : mapping of str to tuple, optional
        What explains the looks, if not the groups one by one: words with a colour and a mark.

    Attributes
    ----------
    names, groups : list of str
    values : dict
        The finite differences by procedure, all groups together.
    quantiles : dict
        At 10, 25, 50, 75 and 90 %, by procedure; not of procedures without a value.
    figure_, ax_ : Figure, Axes
        Where it was drawn.
    dots_ : dict
        By procedure and group, the dots.

    Examples
    --------
    >>> display = RunDifferencesDisplay({"refinement + TS": {"svhn": [-2.0, 1.0], "cifar10": [-1.0]}})
    >>> display.quantiles["refinement + TS"][2], display.groups
    (-1.0, ['svhn', 'cifar10'])
    """

    figure_: Figure
    ax_: Axes
    dots_: dict[tuple[str, str], PathCollection]

    def __init__(
        self,
        values: Mapping[str, Mapping[str, ArrayLike]],
        what: str = "test log loss",
        looks: Mapping[str, Look] | None = None,
        key: Mapping[str, Look] | None = None,
    ) -> None:
        self.names = [str(name) for name in values]
        self.groups = list(dict.fromkeys(group for each in values.values() for group in each))
        self._parts = {
            name: {
                group: _finite(f"values[{name!r}][{group!r}]", part) for group, part in each.items()
            }
            for name, each in values.items()
        }
        self.values = {
            name: np.concatenate([np.empty(0), *each.values()])
            for name, each in self._parts.items()
        }
        if not any(each.size for each in self.values.values()):
            raise ValueError("values holds no finite number: there is nothing to draw")
        self.what = what
        self.looks = _looks(self.groups, looks or {})
        self.key = self.looks if key is None else _looks(list(key), key)
        self.quantiles = quantiles_of(self.values)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw boxes and dots, on ``ax`` or on a new figure; return self."""
        self.ax_ = ax = new_axes((7, 1.3 + 0.4 * len(self.names))) if ax is None else ax
        self.figure_ = dressed(ax)
        reach = max(float(np.abs(each).max()) for each in self.values.values() if each.size)
        percent_axis(ax, ax.xaxis, reach)
        ax.axvline(0, color=PALETTE["axis"], linewidth=0.8, zorder=1)
        self.dots_ = {}
        for row, name in enumerate(self.names):
            self._draw_row(ax, row, name)
        name_rows(ax, self.names)
        ax.set_xlabel(axis_name(ax, self.what))
        if len(self.groups) > 1:
            _key(ax, self.key, 2 if is_narrow(ax) else 5)
        return self

    def _draw_row(self, ax: Axes, row: int, name: str) -> None:
        """Draw the dots of all groups, spread so that neighbours are apart, and the box above them."""
        together = self.values[name]
        if not together.size:
            return
        shifts, begin = spread(together), 0
        for group, part in self._parts[name].items():
            colour, mark = self.looks[group]
            at = row + shifts[begin : begin + len(part)]
            begin += len(part)
            look: Any = {"s": 14, "color": PALETTE[colour], "alpha": 0.75, "linewidths": 0}
            self.dots_[name, group] = ax.scatter(part, at, marker=mark, zorder=3.5, **look)
        whole = together.size >= FEW
        draw_box(ax, row, self.quantiles[name], PALETTE["before"], whole)


def group_looks(
    groups: Sequence[tuple[str, str]],
) -> tuple[dict[tuple[str, str], Look], dict[str, Look]]:
    """Return a colour for each first of the pairs and a mark for each second, and what explains them.

    >>> looks, key = group_looks([("svhn", "a"), ("svhn", "b"), ("cifar10", "b")])
    >>> looks["svhn", "b"], looks["cifar10", "b"]
    (('calibration', '^'), ('refinement', '^'))
    >>> key
    {'svhn': ('calibration', 'o'), 'cifar10': ('refinement', 'o'), 'a': ('before', 'o'), 'b': ('before', '^')}
    """
    firsts = list(dict.fromkeys(first for first, _ in groups))
    seconds = list(dict.fromkeys(second for _, second in groups))
    colours = {first: COLOURS[place % len(COLOURS)] for place, first in enumerate(firsts)}
    marks = {second: MARKS[place % len(MARKS)] for place, second in enumerate(seconds)}
    key: dict[str, Look] = {}
    if len(firsts) > 1:
        key |= {first: (colour, MARKS[0]) for first, colour in colours.items()}
    if len(seconds) > 1:
        key |= {second: ("before", mark) for second, mark in marks.items()}
    return {(one, two): (colours[one], marks[two]) for one, two in groups}, key


def _key(ax: Axes, looks: Mapping[str, Look], columns: int) -> Legend:
    """Explain the dots above the axes."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=PALETTE[colour], marker=mark, markersize=4.5, linewidth=0, label=name)
        for name, (colour, mark) in looks.items()
    ]
    spaces: Any = {"borderaxespad": 0.2, "handletextpad": 0.1, "columnspacing": 1.2}
    return ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=sizes(ax)[1],
        labelcolor=PALETTE["text"],
        **spaces,
    )


def _looks(groups: Sequence[str], given: Mapping[str, Look]) -> dict[str, Look]:
    for group, (colour, _) in given.items():
        check_colour(colour, f"looks[{group!r}]")
    own, _ = group_looks([(group, "") for group in groups])
    return {group: given.get(group, own[group, ""]) for group in groups}


def _finite(name: str, given: ArrayLike) -> Floats:
    values = np.asarray(given, np.float64)
    if values.ndim != 1:
        raise ValueError(f"{name} has shape {values.shape}: pass one number per run")
    return values[np.isfinite(values)]
