"""Loss curves of several training runs, as in figure 1 of the paper."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refinecal.plots import _steps, style
from refinecal.plots.style import PALETTE, Display, Floats, check_floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

FEW = 5  # runs that are drawn one by one; more are a band
ROOM = 1.75  # inches for the labels, right of the curves


class RunCurvesDisplay(Display):
    """Curves of several training runs: thin lines or a band, a thick mean, and a dot per run.

    Parameters
    ----------
    epochs : array-like of int
        Numbers of the epochs, increasing.
    curves : mapping of str to array-like of shape (runs, epochs)
        By the name of their colour: "risk", "refinement", "calibration" ... NaN leaves a gap. The space
        between risk and refinement is shaded.
    labels : mapping of str to str, optional
        Labels of the curves, if not the names of their colours.
    chosen : mapping of str to array-like of int, optional
        By the name of a colour, the epoch chosen in each run. By default, dots mark the lowest point of
        each curve.
    on : str, default "refinement"
        The curve on which the dots of ``chosen`` lie.
    choosers : mapping of str to str, optional
        Labels for the keys of ``chosen``.
    what : str, default "log loss"
        Label of the vertical axis.

    Examples
    --------
    >>> display = RunCurvesDisplay([1, 2, 3], {"risk": [[0.7, 0.5, 0.6], [0.7, 0.6, 0.5]]})
    >>> display.marks["risk"].tolist(), [round(value, 2) for value in display.means["risk"].tolist()]
    ([2.0, 3.0], [0.7, 0.55, 0.55])
    """

    lines_: dict[str, Line2D]
    dots_: dict[str, PathCollection]
    texts_: dict[str, Text]

    def __init__(
        self,
        epochs: ArrayLike,
        curves: Mapping[str, ArrayLike],
        labels: Mapping[str, str] | None = None,
        chosen: Mapping[str, ArrayLike] | None = None,
        on: str = "refinement",
        choosers: Mapping[str, str] | None = None,
        what: str = "log loss",
    ) -> None:
        self.epochs = _steps.check_steps(epochs)
        self.curves = {
            style.check_colour(name, "curves names"): _check_runs(name, each, len(self.epochs))
            for name, each in curves.items()
        }
        if not any(np.isfinite(each).any() for each in self.curves.values()):
            raise ValueError("curves holds no finite number: there is nothing to draw")
        if len({len(each) for each in self.curves.values()}) > 1:
            raise ValueError("curves are of different numbers of runs: pass as many rows for each")
        self.labels = {name: (labels or {}).get(name, name) for name in self.curves}
        self.means = {name: _mean(each) for name, each in self.curves.items()}
        self.what, self._choosers = what, choosers or {}
        self._on = {name: name for name in self.curves}
        if chosen is None:
            self.marks = {name: self._find_lowest(each) for name, each in self.curves.items()}
        else:
            if on not in self.curves:
                raise ValueError(f"on is {on!r}: it must be one of {', '.join(self.curves)}")
            self.marks = {
                style.check_colour(name, "chosen names"): self._check_choice(name, each)
                for name, each in chosen.items()
            }
            self._on = dict.fromkeys(self.marks, on)
        self._is_chosen = chosen is not None

    def _find_lowest(self, runs: Floats) -> Floats:
        """Return the epoch at which each run is lowest; NaN for a run without values."""
        places = [_steps.find_lowest(run) for run in runs]
        return np.array([np.nan if at is None else float(self.epochs[at]) for at in places])

    def _check_choice(self, name: str, given: ArrayLike) -> Floats:
        runs = len(next(iter(self.curves.values())))
        wanted = f": pass one epoch for each of {runs} runs"
        chosen = check_floats(f"chosen[{name!r}]", given, (runs,), wanted)
        wrong = ~np.isin(chosen, self.epochs) & ~np.isnan(chosen)
        if wrong.any():
            raise ValueError(f"chosen[{name!r}] holds {chosen[wrong][0]:g}, which is not an epoch")
        return chosen

    def _draw(self, ax: Axes) -> None:
        background = [*self._draw_shade(ax), *self._draw_runs(ax)]
        self.lines_ = {
            name: ax.plot(self.epochs, mean, color=PALETTE[name], linewidth=1.8, zorder=2.5)[0]
            for name, mean in self.means.items()
        }
        labels, above = self.describe(), style.is_narrow(ax) or self._is_chosen
        self._set_limits(ax, len(labels) if above else 0, 0.0 if above else ROOM)
        self.dots_ = {name: self._draw_dots(ax, name) for name in self.marks}
        _steps.cut_above(ax, [*background, *self.lines_.values()])
        top = None if above else ax.spines["left"].get_bounds()[1]
        self.texts_ = _steps.label_curves(ax, self.epochs[-1], self.means, labels, top)
        if self._is_chosen:
            self._name_curves(ax)

    def _draw_shade(self, ax: Axes) -> list[Any]:
        """Shade what lies between risk and refinement: the calibration error."""
        if not {"risk", "refinement"} <= set(self.means):
            return []
        ends = self.means["refinement"], self.means["risk"]
        return [ax.fill_between(self.epochs, *ends, **style.tint("calibration", 0.1))]

    def _draw_runs(self, ax: Axes) -> list[Any]:
        """Draw each run as a thin line, or if they are many, all between the lowest and the highest."""
        artists: list[Any] = []
        for name, runs in self.curves.items():
            look: Any = {"color": PALETTE[name], "zorder": 1.5}
            if len(runs) > FEW:
                ends = np.fmin.reduce(runs), np.fmax.reduce(runs)  # which skip NaN
                artists.append(ax.fill_between(self.epochs, *ends, alpha=0.2, linewidth=0, **look))
            elif len(runs) > 1:
                artists += ax.plot(self.epochs, runs.T, alpha=0.4, linewidth=0.7, **look)
        return artists

    def _draw_dots(self, ax: Axes, name: str) -> PathCollection:
        """Draw a dot for each run that has one."""
        runs, epochs = self.curves[self._on[name]], self.marks[name]
        at = np.searchsorted(self.epochs, np.where(np.isnan(epochs), self.epochs[0], epochs))
        known = ~np.isnan(epochs)
        return ax.scatter(
            epochs[known],
            runs[np.arange(len(runs)), at][known],
            s=30 if len(runs) == 1 else 16,
            color=PALETTE[name],
            edgecolors=PALETTE["paper"],
            linewidths=0.6,
            zorder=3,
            clip_on=False,
        )

    def _set_limits(self, ax: Axes, lines: int, room: float) -> None:
        """Set the limits, with room for lines above the curves, and inches to the right of them."""
        mean, at = next(
            (self.means[name], at)
            for name in ("risk", *self.means)
            if name in self.means and (at := _steps.find_lowest(self.means[name])) is not None
        )
        runs = [run for each in self.curves.values() for run in each]
        heights = _steps.find_heights(self.epochs, runs, (int(self.epochs[at]), float(mean[at])))
        above = style.lines_of(ax, lines + 0.4)
        _steps.set_axes(ax, self.epochs, "epoch", heights, above, room)
        ax.set_ylabel(self.what)

    def describe(self) -> dict[str, str]:
        """Return the labels, by the name of their colour."""
        spans = {name: _span(at) for name, at in self.marks.items() if not np.isnan(at).all()}
        if self._is_chosen:
            return {
                name: f"{self._choosers.get(name, name)} chose {at}" for name, at in spans.items()
            }
        return {name: f"{self.labels[name]}: min at {at}" for name, at in spans.items()}

    def _name_curves(self, ax: Axes) -> None:
        """Label the curves below them; the axis starts at 0, so there is room."""
        for name, line in self.lines_.items():
            line.set_label(self.labels[name])
        look: Any = {"loc": "lower left", "ncols": len(self.lines_), "borderaxespad": 0.2}
        style.add_legend(ax, list(self.lines_.values()), style.sizes(ax)[1], **look)


def _check_runs(name: str, given: ArrayLike, epochs: int) -> Floats:
    wanted = f": pass a row of {epochs} epochs for each run"
    runs = check_floats(f"curves[{name!r}]", given, (None, epochs), wanted)
    return np.where(np.isfinite(runs), runs, np.nan)


def _mean(runs: Floats) -> Floats:
    """Return the mean over runs with a value; NaN where there is none."""
    known = np.isfinite(runs).sum(axis=0)
    return np.where(known, np.nansum(runs, axis=0) / np.maximum(known, 1), np.nan)


def _span(epochs: Floats) -> str:
    """Return the median epoch, and the first and last in parentheses.

    >>> _span(np.array([12.0, 15.0, 13.0, np.nan])), _span(np.array([7.0]))
    ('epoch 13 (12–15)', 'epoch 7')
    """
    known = epochs[~np.isnan(epochs)]
    middle, low, high = float(np.median(known)), known.min(), known.max()
    return f"epoch {middle:g}" + (f" ({low:g}–{high:g})" if low < high else "")
