"""Reliability diagrams: whether what happens is as likely as it was said to be."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.arrays import column_names, in_order, to_floats
from refinecal._core.checks import check_sample, check_scores
from refinecal._core.format import shortened
from refinecal._core.sample import Sample
from refinecal._core.softmax import log_softmax
from refinecal.metrics.bins import check_bins
from refinecal.plots import _square
from refinecal.plots._reliability_curve import (
    Reliability,
    Strategy,
    class_names,
    curve_of,
)
from refinecal.plots._style import PALETTE, dressed, key, lines_of, new_axes, sizes

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import FillBetweenPolyCollection, PathCollection
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.patches import StepPatch

MARK = 30.0  # area of the mark of the heaviest bin, in square points
LEAST = 0.3  # of it, for the lightest
BAND_TINT = 0.2
LONE_BAND = 0.01  # half the width of the band of a single bin


class ReliabilityDisplay:
    """Shares against mean scores, bin by bin, with consistency bands and the histogram of scores.

    Made by :meth:`from_predictions`, or from what :func:`reliability_curve` returned.

    Parameters
    ----------
    curve : Reliability
        The predictions as they are.
    after : Reliability, optional
        The same after calibration.
    name : str, optional
        What the model is called.

    Attributes
    ----------
    curves : dict
        "before" and, if given, "after".
    figure_, ax_ : Figure, Axes
        Where it was drawn.
    lines_, points_, bands_, strips_ : dict
        The curves, their marks, consistency bands and histograms, by the same names.
    legend_ : Legend

    Examples
    --------
    >>> import refinecal as rc
    >>> curve = rc.plots.reliability_curve([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    >>> rc.plots.ReliabilityDisplay(curve).plot().figure_.savefig("reliability.png")  # doctest: +SKIP
    """

    figure_: Figure
    ax_: Axes
    lines_: dict[str, Line2D]
    points_: dict[str, PathCollection]
    bands_: dict[str, FillBetweenPolyCollection]
    strips_: dict[str, StepPatch]
    legend_: Legend

    def __init__(
        self, curve: Reliability, after: Reliability | None = None, *, name: str | None = None
    ) -> None:
        self.curves = {"before": curve} if after is None else {"before": curve, "after": after}
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        probs: Any = None,
        *,
        logits: Any = None,
        sample_weight: Any = None,
        classes: ArrayLike | None = None,
        kind: Any = "auto",
        calibrated: Any = None,
        n_bins: int = 15,
        strategy: Strategy = "quantile",
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the diagram of predictions, if wanted with that after calibration.

        Parameters
        ----------
        y_true, probs, logits, sample_weight, classes, kind, n_bins, strategy
            As for :func:`reliability_curve`.
        calibrated : array-like or calibrator, optional
            The probabilities after calibration, or an object with ``predict_proba`` that computes them.
        name : str, optional
            What the model is called.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        ReliabilityDisplay
        """
        check_bins(n_bins, strategy)
        sample = check_sample(y_true, probs, logits, sample_weight, classes)
        curve = curve_of(sample, kind, n_bins, strategy)
        after = None
        if calibrated is not None:
            after = curve_of(calibrate(sample, calibrated), kind, n_bins, strategy)
        return cls(curve, after, name=name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the diagram.

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
        _square.lay_out(ax, True, 0 if beside else lines_of(ax, len(self.curves) + 1.6))
        self.draw(ax)
        _square.name_strip(ax)
        across, up = _axis_names(self.curves["before"])
        ax.set(xlabel=across, ylabel=up)
        self.legend_ = key(ax, self.handles(errors=True), beside)
        if self.name is not None and len(self.curves) > 1:
            ax.set_title(
                shortened(self.name, 40), loc="left", fontsize=sizes(ax)[0], color=PALETTE["text"]
            )
        return self

    def draw(self, ax: Axes) -> None:
        """Draw the curves alone, on axes that are laid out."""
        self.lines_, self.points_, self.bands_, self.strips_ = {}, {}, {}, {}
        largest = max(curve.histogram.max() for curve in self.curves.values())
        for name, curve in self.curves.items():
            colour, hollow = self._look(name)
            self.strips_[name] = _square.draw_strip(
                ax, curve.histogram, largest, colour, not hollow
            )
            self.bands_[name] = _draw_band(ax, curve, colour)
            (self.lines_[name],) = ax.plot(
                curve.mean_score, curve.share, color=colour, linewidth=1.2, zorder=3
            )
            self.points_[name] = ax.scatter(
                curve.mean_score,
                curve.share,
                s=MARK * np.clip(curve.weight / curve.weight.max(), LEAST, 1),
                facecolors=PALETTE["paper"] if hollow else colour,
                edgecolors=colour,
                linewidths=1.0,
                clip_on=False,
                zorder=4,
            )

    def _look(self, name: str) -> tuple[str, bool]:
        """Return a curve's colour, and whether its marks are hollow: only beside another."""
        if len(self.curves) == 1:
            return PALETTE["calibration"], False
        return PALETTE[name], name == "before"

    def handles(self, errors: bool = False) -> list[Artist]:
        """Return what a key shows of each curve; with ``errors``, and its calibration error and band."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Artist] = []
        for name, curve in self.curves.items():
            colour, hollow = self._look(name)
            said = f"{name} calibration" if len(self.curves) > 1 else self.name or "predictions"
            face = PALETTE["paper"] if hollow else colour
            look: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 5.0}
            label = shortened(said, 24) + (f": ECE {curve.ece:.4f}" if errors else "")
            handles.append(Line2D([], [], marker="o", linewidth=1.2, label=label, **look))
        label = "90 % range if they are right"
        tint: dict[str, Any] = {"color": PALETTE["axis"], "alpha": BAND_TINT, "linewidth": 0}
        return [*handles, Patch(label=label, **tint)] if errors else handles


def calibrate(sample: Sample, calibrated: Any) -> Sample:
    """Return the sample after calibration: with the probabilities given, or those of a calibrator."""
    if hasattr(calibrated, "predict_proba_logits"):
        calibrated = calibrated.predict_proba_logits(sample.logits)
    elif hasattr(calibrated, "predict_proba"):
        calibrated = calibrated.predict_proba(np.exp(log_softmax(sample.logits)))
    try:
        shape = check_scores(calibrated, "probs").shape
    except (TypeError, ValueError) as error:
        raise type(error)(f"calibrated: {error}") from error
    if shape != (sample.n, sample.k):
        raise ValueError(
            f"calibrated has shape {shape}, but the predictions have {(sample.n, sample.k)}: pass the "
            "probabilities of the same rows and classes after calibration"
        )
    given = to_floats(calibrated, "probs")
    probs = sample.replace(given=given if given.size > sample.n else given.reshape(-1)).probs
    return sample.replace(
        given=in_order(probs, column_names(calibrated), class_names(sample), "calibrated")
    )


def _draw_band(ax: Axes, curve: Reliability, colour: str) -> FillBetweenPolyCollection:
    """Draw where the shares would lie by chance alone."""
    x, low, high = curve.mean_score, curve.low, curve.high
    if len(x) == 1:
        x = np.array([x[0] - LONE_BAND, x[0] + LONE_BAND])
        low, high = np.repeat(low, 2), np.repeat(high, 2)
    return ax.fill_between(x, low, high, color=colour, alpha=BAND_TINT, linewidth=0, zorder=0.5)


def _axis_names(curve: Reliability) -> tuple[str, str]:
    if curve.kind == "top-label":
        return "confidence", "accuracy"
    label = shortened(str(curve.label), 20)
    return f"probability of class {label}", f"share of class {label}"
