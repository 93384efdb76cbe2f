"""Box plots: differences between stopping rules, and when they stop (paper, section 5)."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.format import MINUS, shorten_name
from refinecal.plots import style
from refinecal.plots.style import PALETTE, THIN, Display, Floats, check_floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
FEW = 5  # runs: fewer have no quartiles worth a box
LONGEST = 24  # characters of a name
GOLDEN = 0.6180339887498949  # multiples of it, less whole numbers, are never close together
SPREAD = 0.56  # of the distance of two boxes, over which the dots of one are spread
HALF_BOX = 0.32
LINE: Any = {"color": PALETTE["text"], "zorder": 3, "solid_capstyle": "butt"}
LINEAR = 0.1  # percent: closer to 0 an axis of differences is not logarithmic
LINSCALE = 0.5  # of matplotlib: how much room that part has
HEIGHT = 1.3  # of the line of a label, in letters of its size
NAMES = 0.8  # inches of axes that the names of rows will take
ROOM = 1.25  # times the largest value, at either end of an axis of differences


class BoxesDisplay(Display):
    """One row per name, the first on top: a dot for each value, and a box over them.

    Boxes span the quartiles with a line at the median; whiskers end at the 10% and 90% quantiles, which
    ``quantiles`` holds by name. Fewer than ``least`` values have no box, only their median.
    """

    dots_: dict[str, PathCollection]

    def __init__(
        self,
        rows: Mapping[str, Floats],
        colours: Mapping[str, str] | None = None,
        faint: Mapping[str, NDArray[np.bool_]] | None = None,
        least: int = 1,
        what: str = "",
    ) -> None:
        given = colours or {}
        for colour in given.values():
            style.check_colour(colour, "colours holds")
        if not any(values.size for values in rows.values()):
            raise ValueError("values holds no finite number: there is nothing to draw")
        self.names = [str(name) for name in rows]
        self.least, self.what = least, what
        self.quantiles = {
            name: tuple(np.quantile(values, QUANTILES).tolist())
            for name, values in rows.items()
            if values.size
        }
        self._rows, self._faint = rows, faint or {}
        self._colours = {name: given.get(name, "before") for name in rows}

    def _size(self) -> tuple[float, float]:
        return 7, 1.0 + 0.32 * len(self.names)

    def _draw(self, ax: Axes) -> None:
        """Draw dots, spread so that neighbours are apart, the boxes above them, and the names."""
        self._set_axis(ax)
        self.dots_ = {}
        for row, (name, values) in enumerate(self._rows.items()):
            if values.size:
                self._draw_dots(ax, name, row + _spread(values))
                is_whole = values.size >= self.least
                _draw_box(ax, row, self.quantiles[name], self._colours[name], is_whole)
        ax.set_ylim(len(self.names) - 0.45, -0.55)
        style.name_rows(ax, [shorten_name(name, LONGEST) for name in self.names])

    def _draw_dots(self, ax: Axes, name: str, heights: Floats) -> None:
        alpha: Any = np.where(self._faint.get(name, np.zeros(heights.shape, bool)), 0.3, 0.55)
        look: Any = {"color": PALETTE[self._colours[name]], "alpha": alpha, "linewidths": 0}
        self.dots_[name] = ax.scatter(self._rows[name], heights, s=9, zorder=2, **look)

    def _set_axis(self, ax: Axes) -> None:
        """Lay out an axis of differences, with a line at 0."""
        reach = max(float(np.abs(each).max()) for each in self._rows.values() if each.size)
        set_percent(ax, ax.xaxis, reach)
        ax.axvline(0, zorder=1, **THIN)
        long, short = f"difference in {self.what}, %  (← better)", f"{self.what}, %\n(← better)"
        ax.set_xlabel(short if style.is_narrow(ax) else long)


class RelativeDifferencesDisplay(BoxesDisplay):
    """Boxes of relative differences in percent, one row per procedure and one dot per data set or run.

    Parameters
    ----------
    values : mapping of str to array-like
        The differences of each procedure, one per data set or run; only finite ones are drawn.
    what : str, default "test log loss"
        The quantity that differs, for the axis.
    colours : mapping of str to str, optional
        Names of colours in ``PALETTE`` for some procedures, such as "refinement".
    faint : mapping of str to array-like of bool, optional
        The dots of a procedure to draw faintly.
    least : int, default 1
        How many values have a box; fewer have a line at their median.

    Examples
    --------
    >>> display = RelativeDifferencesDisplay({"refinement": [-2.0, -1.0, 0.0, 0.5, 1.0]})
    >>> display.quantiles["refinement"][2]
    0.0
    """

    def __init__(
        self,
        values: Mapping[str, ArrayLike],
        what: str = "test log loss",
        colours: Mapping[str, str] | None = None,
        faint: Mapping[str, ArrayLike] | None = None,
        least: int = 1,
    ) -> None:
        given = {name: check_line(f"values[{name!r}]", each) for name, each in values.items()}
        masks = {
            name: check_mask(f"faint[{name!r}]", (faint or {}).get(name), each)[np.isfinite(each)]
            for name, each in given.items()
        }
        self.values = {name: each[np.isfinite(each)] for name, each in given.items()}
        super().__init__(self.values, colours, masks, least, what)


class StoppingTimesDisplay(BoxesDisplay):
    """Boxes of the steps that metrics chose, on a logarithmic axis, with a dot per training run.

    Parameters
    ----------
    steps : mapping of str to array-like
        The steps that each metric chose, counted from 1.
    most : int
        The last step of the training runs.
    step_name : str, default "step"
        The unit of a step, such as "round" or "epoch".
    colours, least
        As for :class:`RelativeDifferencesDisplay` and :class:`BoxesDisplay`.

    Examples
    --------
    >>> StoppingTimesDisplay({"log loss": [10, 30], "accuracy": [40, 60]}, most=100).quantiles["accuracy"][2]
    50.0
    """

    def __init__(
        self,
        steps: Mapping[str, ArrayLike],
        most: float,
        step_name: str = "step",
        colours: Mapping[str, str] | None = None,
        least: int = 1,
    ) -> None:
        self.steps = {name: check_line(f"steps[{name!r}]", each) for name, each in steps.items()}
        for name, each in self.steps.items():
            if each.size and not (each >= 1).all():
                raise ValueError(f"steps[{name!r}] holds {each.min():g}: steps are counted from 1")
            if each.size and each.max() > most:
                raise ValueError(f"steps[{name!r}] holds {each.max():g}, but most is {most:g}")
        if not any(each.size for each in self.steps.values()):
            raise ValueError("steps holds no step: there is nothing to draw")
        self.most = most
        super().__init__(self.steps, colours, least=least, what=f"best {step_name}")

    def _set_axis(self, ax: Axes) -> None:
        ax.set_xscale("log")
        ax.set_xlim(0.8, max(self.most, 2) * 1.25)
        ticks = [10.0**power for power in range(7) if 10.0**power < 0.5 * self.most]
        ticks.append(float(self.most))
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.set_xlabel(self.what)


def check_line(name: str, given: ArrayLike, of: str = "data set") -> Floats:
    """Return one number for each data set or run."""
    return check_floats(name, given, (None,), f": pass one number per {of}")


def check_mask(name: str, given: ArrayLike | None, values: Floats) -> NDArray[np.bool_]:
    """Return which dots are faint, by default none."""
    mask = np.zeros(values.shape, bool) if given is None else np.asarray(given, bool)
    if mask.shape != values.shape:
        raise ValueError(f"{name} has shape {mask.shape}, but there are {values.size} values")
    return mask


# ---- boxes -------------------------------------------------------------------------------------------------


def _spread(values: Floats) -> Floats:
    """Return how far each dot is from the middle of its row, so that neighbours are apart."""
    shifts = np.empty(len(values))
    order = np.argsort(values, kind="stable")
    shifts[order] = SPREAD * ((np.arange(len(values)) * GOLDEN + 0.5) % 1 - 0.5)
    return shifts


def _draw_box(ax: Axes, row: int, at: tuple[float, ...], colour: str, is_whole: bool) -> None:
    """Draw a box with its median and whiskers at five quantiles; or if it is not whole, the median."""
    low, first, middle, third, high = at
    bottom, top = row - HALF_BOX, row + HALF_BOX
    if is_whole:
        ax.fill_between([first, third], bottom, top, zorder=1, **style.tint(colour, 0.22))
        corners = [first, third, third, first, first], [bottom, bottom, top, top, bottom]
        ax.plot(*corners, **LINE, linewidth=0.8)
    ax.plot([middle, middle], [bottom, top], **LINE, linewidth=2.0)
    for end, start in ((low, first), (high, third)) if is_whole else ():
        ax.plot([start, end], [row, row], **LINE, linewidth=0.8)
        ax.plot([end, end], [row - HALF_BOX / 2, row + HALF_BOX / 2], **LINE, linewidth=0.8)


# ---- the axis of differences -------------------------------------------------------------------------------


def set_percent(ax: Axes, axis: Any, reach: float) -> None:
    """Make an axis logarithmic either side of 0, with few ticks that reach as far as the values do."""
    end = ROOM * max(reach, 2 * LINEAR)
    is_across = axis is ax.xaxis
    scale, limits = (ax.set_xscale, ax.set_xlim) if is_across else (ax.set_yscale, ax.set_ylim)
    scale("symlog", linthresh=LINEAR, linscale=LINSCALE)
    limits(-end, end)
    positive = _choose_ticks(ax, axis, end, is_across)
    ticks = [*(-tick for tick in reversed(positive)), 0.0, *positive]
    axis.set_ticks(ticks, labels=[_tick_label(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def _choose_ticks(ax: Axes, axis: Any, end: float, is_across: bool) -> list[float]:
    """Return ticks above 0, as far as their labels have room: the outermost, powers of ten, some between."""
    letter = style.sizes(ax)[1] / 72  # inches
    half = (style.inches(ax)[0] - NAMES if is_across else style.inches(ax)[1]) / 2
    chosen = [0.0]
    for tick in _rank_ticks(end):
        needed = [letter * (_width(tick, other) if is_across else HEIGHT) for other in chosen]
        places = axis.get_transform().transform([tick, end, *chosen])
        apart = half * np.abs(places[0] - places[2:]) / places[1]
        if tick <= end and tick not in chosen and (apart >= needed).all():
            chosen.append(tick)
    return sorted(chosen[1:])


def _rank_ticks(end: float) -> list[float]:
    """Return ticks for an axis of this reach, the most useful first.

    >>> _rank_ticks(0.8), _rank_ticks(8.0)
    ([0.5, 0.1, 0.2], [5.0, 1.0, 0.1])
    """
    powers = [float(f"1e{n}") for n in range(int(np.floor(np.log10(end))), -2, -1)]
    two, five = (float(f"{times}e{np.log10(powers[0]):.0f}") for times in (2, 5))
    if len(powers) == 1:  # 0.1 alone says little
        return [five, *powers, two] if end >= five else [two, *powers]
    if end >= five:
        return [five, *powers]
    return [*powers, two, *([0.5] if len(powers) == 2 else [])]


def _width(one: float, other: float) -> float:
    """Return how far apart the middles of two labels must be, in letters of their size."""
    return 0.2 + sum(0.64 * len(_tick_label(tick)) + 0.1 for tick in (one, other)) / 2


def _tick_label(tick: float) -> str:
    return f"{tick:+g}".replace("-", MINUS) if tick else "0"
