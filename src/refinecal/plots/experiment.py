"""The paper's figures of its experiment on tables: boxes with a dot per data set, and what they depend on."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal.plots._boxes import (
    axis_name,
    draw_box,
    name_rows,
    percent_axis,
    quantiles_of,
    spread,
)
from refinecal.plots._style import PALETTE, dressed, inches, new_axes, sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Floats = NDArray[np.float64]

TWO_COLUMNS = 5.5  # inches of a figure, from where panels are side by side
MOST = 1500  # dots that are drawn: of more, every second, third ... from left to right
LEAST = 8  # dots of which a median is drawn


class RelativeDifferencesDisplay:
    """Boxes of relative differences, in percent, one row per procedure and one dot per data set.

    A box ends at the quartiles, its line is the median, its whiskers end at the 10 % and 90 % quantiles. The
    axis is logarithmic beyond 0.1 % either side of 0.

    Parameters
    ----------
    values : mapping of str to array-like
        The differences of each procedure, one per data set; what is not finite is left out.
    what : str, default "test log loss"
        What differs, for the axis.
    colours : mapping of str to str, optional
        Names of colours in ``refinecal.plots`` for some procedures, such as "refinement".
    faint : mapping of str to array-like of bool, optional
        Which dots of a procedure are drawn faintly.

    Attributes
    ----------
    names : list of str
    values : dict
        The finite differences by name.
    quantiles : dict
        At 10, 25, 50, 75 and 90 %, by name; not of procedures without a value.
    figure_, ax_ : Figure, Axes
        Where it was drawn.
    dots_ : dict
        By name, the dots; not of procedures without a value.

    Examples
    --------
    >>> display = RelativeDifferencesDisplay({"refinement": [-2.0, -1.0, 0.0, 0.5, 1.0]})
    >>> display.quantiles["refinement"][2]
    0.0
    """

    figure_: Figure
    ax_: Axes
    dots_: dict[str, PathCollection]

    def __init__(
        self,
        values: Mapping[str, ArrayLike],
        what: str = "test log loss",
        colours: Mapping[str, str] | None = None,
        faint: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        self.names = [str(name) for name in values]
        given = {name: _line(f"values[{name!r}]", each) for name, each in values.items()}
        if not any(np.isfinite(each).any() for each in given.values()):
            raise ValueError("values holds no finite number: there is nothing to draw")
        self.what = what
        self._colours = _check_colours(colours or {}, self.names)
        self._faint = {
            name: _mask(f"faint[{name!r}]", (faint or {}).get(name), each)
            for name, each in given.items()
        }
        self.values = {name: each[np.isfinite(each)] for name, each in given.items()}
        self.quantiles = quantiles_of(self.values)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw boxes and dots.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        self
        """
        self.ax_ = ax = new_axes((7, 1.0 + 0.32 * len(self.names))) if ax is None else ax
        self.figure_ = dressed(ax)
        reach = max(float(np.abs(each).max()) for each in self.values.values() if each.size)
        percent_axis(ax, ax.xaxis, reach)
        ax.axvline(0, color=PALETTE["axis"], linewidth=0.8, zorder=1)
        self.dots_ = _draw_rows(ax, self.values, self.quantiles, self._colours, self._faint)
        ax.set_xlabel(axis_name(ax, self.what))
        return self


class StoppingTimesDisplay:
    """Boxes of the steps that metrics chose, on a logarithmic axis, with a dot per data set.

    Parameters
    ----------
    steps : mapping of str to array-like
        The steps that each metric chose, counted from 1.
    most : int
        The last step of the trainings.
    step_name : str, default "step"
        What a step is: "round", "epoch" ...
    colours : mapping of str to str, optional
        As for :class:`RelativeDifferencesDisplay`.
    least : int, default 1
        Of fewer steps there is no box, only their median.

    Attributes
    ----------
    names, steps, quantiles, figure_, ax_, dots_
        As for :class:`RelativeDifferencesDisplay`.

    Examples
    --------
    >>> StoppingTimesDisplay({"log loss": [10, 30], "accuracy": [40, 60]}, most=100).quantiles["accuracy"][2]
    50.0
    """

    figure_: Figure
    ax_: Axes
    dots_: dict[str, PathCollection]

    def __init__(
        self,
        steps: Mapping[str, ArrayLike],
        most: float,
        step_name: str = "step",
        colours: Mapping[str, str] | None = None,
        least: int = 1,
    ) -> None:
        self.names = [str(name) for name in steps]
        self.steps = {name: _line(f"steps[{name!r}]", each) for name, each in steps.items()}
        for name, each in self.steps.items():
            if each.size and not (each >= 1).all():
                raise ValueError(f"steps[{name!r}] holds {each.min():g}: steps are counted from 1")
            if each.size and each.max() > most:
                raise ValueError(f"steps[{name!r}] holds {each.max():g}, but most is {most:g}")
        if not any(each.size for each in self.steps.values()):
            raise ValueError("steps holds no step: there is nothing to draw")
        self.most, self.step_name, self.least = most, step_name, least
        self._colours = _check_colours(colours or {}, self.names)
        self.quantiles = quantiles_of(self.steps)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw boxes and dots, on ``ax`` or on a new figure; return self."""
        self.ax_ = ax = new_axes((7, 1.0 + 0.32 * len(self.names))) if ax is None else ax
        self.figure_ = dressed(ax)
        ax.set_xscale("log")
        ax.set_xlim(0.8, max(self.most, 2) * 1.25)
        ticks = [10.0**power for power in range(7) if 10.0**power < 0.5 * self.most]
        ticks.append(float(self.most))
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        faint = {name: np.zeros(each.shape, bool) for name, each in self.steps.items()}
        self.dots_ = _draw_rows(ax, self.steps, self.quantiles, self._colours, faint, self.least)
        ax.set_xlabel(f"best {self.step_name}")
        return self


class DependenceDisplay:
    """Relative differences, in percent, against what they may depend on: a dot each, and their median.

    Parameters
    ----------
    x : array-like
        Positive numbers, such as the rows of each data set; others are drawn at the left or right end. Of
        more than 1500 dots, some are left out; the medians are those of all.
    values : array-like
        The differences in percent; negative is better.
    x_name : str
        What ``x`` is, for the axis.
    what : str, default "test log loss"
        What differs, for the axis.
    faint : array-like of bool, optional
        Which dots are drawn faintly.

    Attributes
    ----------
    x, values : ndarray
        Where both are numbers.
    medians : tuple of ndarray
        Medians of x and of the differences in groups of as many dots each; empty if there are few dots.
    figure_, ax_ : Figure, Axes
        Where it was drawn.
    dots_ : PathCollection
    line_ : Line2D or None
        The medians.
    """

    figure_: Figure
    ax_: Axes
    dots_: PathCollection
    line_: Line2D | None

    def __init__(
        self,
        x: ArrayLike,
        values: ArrayLike,
        x_name: str,
        what: str = "test log loss",
        faint: ArrayLike | None = None,
    ) -> None:
        across, up = _line("x", x), _line("values", values)
        if across.shape != up.shape:
            raise ValueError(f"x has {across.size} numbers, but values {up.size}: pass one each")
        hidden = _mask("faint", faint, up, keep=True)
        kept = ~np.isnan(across) & np.isfinite(up)
        if not (kept & np.isfinite(across) & (across > 0)).any():
            raise ValueError("x holds no positive number with a value: there is nothing to draw")
        self.x, self.values, self._faint = across[kept], up[kept], hidden[kept]
        self.x_name, self.what = x_name, what
        self.medians = _medians(self.x, self.values)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the dots and their median, on ``ax`` or on a new figure; return self."""
        self.ax_ = ax = new_axes((7, 4)) if ax is None else ax
        self.figure_ = dressed(ax)
        percent_axis(ax, ax.yaxis, float(np.abs(self.values).max()))
        proper = self.x[np.isfinite(self.x) & (self.x > 0)]
        low, high = float(proper.min()), float(proper.max())
        ax.set_xscale("log")
        margin = (high / low) ** 0.06 if high > 1.0001 * low else 2.0
        ax.set_xlim(low / margin, high * margin)
        _few_ticks(ax, low / margin, high * margin)
        ax.axhline(0, color=PALETTE["axis"], linewidth=0.8, zorder=1)
        drawn = np.argsort(self.x, kind="stable")[:: -(-len(self.x) // MOST)]
        many = len(drawn) >= 200
        alpha: Any = np.where(self._faint[drawn], 0.22 if many else 0.35, 0.4 if many else 0.75)
        self.dots_ = ax.scatter(
            np.clip(self.x[drawn], low, high),
            self.values[drawn],
            s=8 if many else 16,
            color=PALETTE["refinement"],
            alpha=alpha,
            linewidths=0,
            zorder=2,
        )
        self.line_ = None
        if self.medians[0].size:
            look: Any = {"color": PALETTE["text"], "linewidth": 1.6, "zorder": 3}
            (self.line_,) = ax.plot(*self.medians, **look, marker="o", markersize=3)
        ax.set_xlabel(self.x_name)
        ax.set_ylabel(f"difference in {self.what}, %")
        return self


class Drawable(Protocol):
    """What has a ``plot`` that takes axes."""

    def plot(self, ax: Axes) -> object: ...


def draw_panels(figure: Figure, panels: Mapping[str, Drawable]) -> dict[str, Axes]:
    """Draw displays with their titles, side by side where the figure is wide; return their axes.

    Panels that are side by side and have the same names of rows show them once.
    """
    columns = 2 if figure.get_figwidth() >= TWO_COLUMNS and len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    grid = figure.subplots(rows, columns, squeeze=False)
    axes: dict[str, Axes] = {}
    for place, (title, display) in enumerate(panels.items()):
        ax = axes[title] = grid[place // columns, place % columns]
        display.plot(ax)
        ax.set_title(title, fontsize=sizes(ax)[0], color=PALETTE["text"], loc="left")
        left = panels[list(panels)[place - 1]] if place % columns else None
        if left is not None:
            if getattr(left, "names", 0) == getattr(display, "names", 1):
                ax.tick_params(labelleft=False)
            elif isinstance(display, DependenceDisplay):
                ax.set_ylabel("")
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    return axes


# ---- parts -------------------------------------------------------------------------------------------------


def _draw_rows(
    ax: Axes,
    values: Mapping[str, Floats],
    quantiles: Mapping[str, tuple[float, ...]],
    colours: Mapping[str, str],
    faint: Mapping[str, NDArray[np.bool_]],
    least: int = 1,
) -> dict[str, PathCollection]:
    """Draw one row per name, the first on top: dots below, the box above them."""
    dots = {}
    for row, (name, each) in enumerate(values.items()):
        colour = PALETTE[colours[name]]
        alpha = np.where(faint[name], 0.3, 0.55)
        look: Any = {"s": 9, "color": colour, "alpha": alpha, "linewidths": 0, "zorder": 2}
        if each.size:
            dots[name] = ax.scatter(each, row + spread(each), **look)
            draw_box(ax, row, quantiles[name], colour, each.size >= least)
    name_rows(ax, list(values))
    return dots


def _few_ticks(ax: Axes, low: float, high: float) -> None:
    """Put ticks at 1, 2 and 5 times powers of ten, or fewer if there are many."""
    for steps in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        ticks = [step * 10.0**power for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= max(2, inches(ax)[0] / 0.75):
            break
    every = max(1, -(-len(ticks) // 6))
    ticks = ticks[::every]
    ax.set_xticks(ticks, [_short(tick) for tick in ticks])
    ax.minorticks_off()


def _short(tick: float) -> str:
    """Return a tick in few letters.

    >>> _short(20000.0), _short(0.001), _short(1e-6)
    ('20k', '0.001', '1e−6')
    """
    if 1000 <= tick < 1e6:
        return f"{tick / 1000:g}k"
    return f"{tick:g}".replace("e-0", "e−").replace("e+0", "e")


def _medians(x: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return medians of groups of neighbours, of eight dots at least and at most ten groups."""
    groups = min(10, len(x) // LEAST)
    if groups < 2:
        return np.empty(0), np.empty(0)
    parts = np.array_split(np.argsort(x, kind="stable"), groups)
    inside = np.clip(x, x[x > 0].min(), x[np.isfinite(x)].max())
    return (
        np.array([np.median(inside[part]) for part in parts]),
        np.array([np.median(values[part]) for part in parts]),
    )


def _line(name: str, given: ArrayLike) -> Floats:
    values = np.asarray(given, np.float64)
    if values.ndim != 1:
        raise ValueError(f"{name} has shape {values.shape}: pass one number per data set")
    return values


def _mask(
    name: str, given: ArrayLike | None, values: Floats, keep: bool = False
) -> NDArray[np.bool_]:
    """Return which dots are faint, of those that are drawn or of all."""
    mask = np.zeros(values.shape, bool) if given is None else np.asarray(given, bool)
    if mask.shape != values.shape:
        raise ValueError(f"{name} has shape {mask.shape}, but there are {values.size} values")
    return mask if keep else mask[np.isfinite(values)]


def _check_colours(given: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    wrong = [colour for colour in given.values() if colour not in PALETTE]
    if wrong:
        raise ValueError(f"colours holds {wrong[0]!r}, which is none of {', '.join(PALETTE)}")
    return {name: given.get(name, "before") for name in names}
