"""A picture of what a calibrator does to probabilities."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from refinecal._core.format import shortened
from refinecal.plots import _square
from refinecal.plots._map import CalibrationMap, map_probabilities
from refinecal.plots._style import PALETTE, dressed, key, lines_of, new_axes, sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import FillBetweenPolyCollection
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.patches import StepPatch

BAND_TINT = 0.2


class CalibrationMapDisplay:
    """Probabilities after calibration against those before it; on the diagonal nothing changes.

    Made by :meth:`from_calibrator`, or from what :func:`map_probabilities` returned.

    Parameters
    ----------
    found : CalibrationMap

    Attributes
    ----------
    map : CalibrationMap
    figure_, ax_ : Figure, Axes
        Where it was drawn.
    line_ : Line2D
    band_, strip_, legend_
        The range, the histogram of scores and the key, where there are any; else ``None``.

    Examples
    --------
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling().fit([0.9] * 4, [1, 1, 1, 0])
    >>> rc.plots.CalibrationMapDisplay.from_calibrator(fitted).figure_.savefig("map.png")  # doctest: +SKIP
    """

    figure_: Figure
    ax_: Axes
    line_: Line2D
    band_: FillBetweenPolyCollection | None
    strip_: StepPatch | None
    legend_: Legend | None

    def __init__(self, found: CalibrationMap) -> None:
        self.map = found

    @classmethod
    def from_calibrator(
        cls,
        calibrator: Any,
        probs: Any = None,
        *,
        logits: Any = None,
        n_classes: int | None = None,
        class_names: Sequence[Any] | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw what a calibrator does.

        Parameters
        ----------
        calibrator, probs, logits, n_classes
            As for :func:`map_probabilities`.
        class_names : sequence, optional
            What to call the classes, instead of as the calibrator does.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        CalibrationMapDisplay
        """
        found = map_probabilities(calibrator, probs, logits=logits, n_classes=n_classes)
        if class_names is not None:
            if len(class_names) != found.n_classes:
                raise ValueError(
                    f"class_names has {len(class_names)} names, but there are {found.n_classes} classes: "
                    "name each one"
                )
            found = replace(found, label=class_names[1])
        return cls(found).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the map.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        self
        """
        self.ax_ = ax = new_axes((4.6, 4.6)) if ax is None else ax
        self.figure_ = dressed(ax)
        beside = _square.leaves_room(ax)
        keyed = bool(self.map.spread_of)
        strip = self.map.histogram is not None
        _square.lay_out(ax, strip, lines_of(ax, 2.6) if keyed and not beside else 0)
        self._draw(ax)
        if strip:
            _square.name_strip(ax)
        self.legend_ = key(ax, self._handles(), beside) if keyed else None
        self._write(ax)
        return self

    def _draw(self, ax: Axes) -> None:
        found, colour = self.map, PALETTE["after"]
        (self.line_,) = ax.plot(found.before, found.after, color=colour, linewidth=1.8, zorder=3)
        self.band_ = self.strip_ = None
        if len(found.before) == 1:  # a line through one point is not seen
            self.line_.set_marker("o")
        if found.spread_of:
            look: dict[str, Any] = {"color": colour, "alpha": BAND_TINT, "linewidth": 0}
            self.band_ = ax.fill_between(found.before, found.low, found.high, **look)
        if found.histogram is not None:
            largest, shade = found.histogram.max(), PALETTE["before"]
            self.strip_ = _square.draw_strip(ax, found.histogram, largest, shade, True)

    def _handles(self) -> list[Any]:
        from matplotlib.patches import Patch

        of = self.map.spread_of
        self.line_.set_label(f"median of {of}")
        label = "middle 90 %" if of == "predictions" else "range over classes"
        return [
            self.line_,
            Patch(color=PALETTE["after"], alpha=BAND_TINT, linewidth=0, label=label),
        ]

    def _write(self, ax: Axes) -> None:
        label = shortened(str(self.map.label), 16)
        what = f"probability of class {label}" if self.map.n_classes == 2 else "confidence"
        ax.set(xlabel=f"{what} before calibration", ylabel="after calibration")
        ax.set_title(
            self.map.words, loc="left", fontsize=sizes(ax)[1], color=PALETTE["text"], pad=5
        )
