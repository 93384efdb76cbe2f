"""Reliability diagrams: observed frequencies against predicted probabilities."""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.arrays import column_names, in_order, to_floats
from refinecal._core.checks import check_sample, check_scores
from refinecal._core.format import list_names, shorten_name
from refinecal._core.sample import Sample, log_softmax
from refinecal.metrics.bins import bin_numbers, bin_sums, check_bins, mean_distance
from refinecal.metrics.events import event_of_class, event_of_likeliest
from refinecal.plots import _square
from refinecal.plots.display import Display, Floats
from refinecal.plots.style import PALETTE, add_key, lines_of, sizes, tint, write_title

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import FillBetweenPolyCollection, PathCollection
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.patches import StepPatch

Strategy = Literal["quantile", "uniform"]

BAND = 0.9  # coverage of the consistency band if the scores are calibrated
CELLS = 20  # of the histogram of scores
MARK = 30.0  # area of the mark of the heaviest bin, in square points
LEAST = 0.3  # of it, for the lightest
BAND_TINT = 0.2
LONE_BAND = 0.01  # half the width of the band of a single bin


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Binned scores and observed frequencies, without empty bins.

    Attributes
    ----------
    mean_score, share, weight : ndarray of shape (b,)
        Mean score of the rows in each bin, increasing; the observed frequency; the sum of sample weights.
    low, high : ndarray of shape (b,)
        Consistency band, which contains the share with probability 90% if the scores are calibrated.
    ece : float
        Expected calibration error with these bins: the mean of ``|share - mean_score|`` over rows.
    kind : str
        "binary", "top-label" or "class".
    label : object
        The class whose probability is the score; ``None`` for top-label.
    histogram : ndarray of shape (20,)
        Weight of the scores in cells of equal width from 0 to 1.
    """

    mean_score: Floats
    share: Floats
    weight: Floats
    low: Floats
    high: Floats
    ece: float
    kind: str
    label: Any
    histogram: Floats


def reliability_curve(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    kind: Any = "auto",
    n_bins: int = 15,
    strategy: Strategy = "quantile",
) -> Reliability:
    r"""Return observed frequencies by predicted probability, in bins.

    The consistency band of a bin with n rows and mean score p runs from the 5% to the 95% quantile of the
    binomial distribution B(n, p), divided by n. It is slightly conservative, since scores within a bin
    differ, which makes the share vary less.

    Parameters
    ----------
    y_true, probs, logits, sample_weight, classes
        As for :func:`refinecal.decompose`.
    kind : {"auto", "binary", "top-label"} or a class, default "auto"
        The score: "binary" is the probability of the second of two classes, "top-label" that of the
        likeliest class, and a class its probability, one-vs-rest. "auto" is "binary" for two classes, else
        "top-label".
    n_bins : int, default 15
        Maximum number of bins.
    strategy : {"quantile", "uniform"}
        Bins of about equal weight, or of equal width, as for :func:`refinecal.metrics.ece`.

    Examples
    --------
    >>> import refinecal as rc
    >>> found = rc.plots.reliability_curve([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    >>> found.mean_score.round(6), found.share, round(found.ece, 6)
    (array([0.25, 0.75]), array([0.5, 1. ]), 0.25)
    """
    check_bins(n_bins, strategy)
    sample = check_sample(y_true, probs, logits, sample_weight, classes)
    return compute_curve(sample, kind, n_bins, strategy)


class ReliabilityDisplay(Display):
    """Reliability diagram with consistency bands and a histogram of the scores.

    Create it with :meth:`from_predictions`, or from the result of :func:`reliability_curve`.

    Parameters
    ----------
    curve : Reliability
        The predictions before calibration.
    after : Reliability, optional
        The same after calibration.
    name : str, optional
        Name of the model.

    Attributes
    ----------
    curves : dict
        "before" and, if given, "after".
    lines_, points_, bands_, strips_ : dict
        The curves, their markers, consistency bands and histograms, by the same names.
    figure_, ax_, legend_
        The figure, its axes and its legend.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.plots.ReliabilityDisplay.from_predictions([0, 1, 1], [0.2, 0.7, 0.8])  # doctest: +SKIP
    """

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
        """Draw the reliability diagram of predictions, before and optionally after calibration.

        Parameters
        ----------
        y_true, probs, logits, sample_weight, classes, kind, n_bins, strategy
            As for :func:`reliability_curve`.
        calibrated : array-like or calibrator, optional
            The probabilities after calibration, or an object with ``predict_proba`` that computes them.
        name : str, optional
            Name of the model.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        """
        check_bins(n_bins, strategy)
        sample = check_sample(y_true, probs, logits, sample_weight, classes)
        states = add_calibrated(sample, calibrated)
        curves = (compute_curve(each, kind, n_bins, strategy) for each in states)
        return cls(*curves, name=name).plot(ax)

    def _size(self) -> tuple[float, float]:
        return _square.SIZE

    def _draw(self, ax: Axes) -> None:
        beside = _square.leaves_room(ax)
        _square.lay_out(ax, True, 0 if beside else lines_of(ax, len(self.curves) + 1.6))
        self.draw(ax)
        curve = self.curves["before"]
        if curve.kind == "top-label":
            ax.set(xlabel="confidence", ylabel="accuracy")
        else:
            label = shorten_name(str(curve.label), 20)
            ax.set(xlabel=f"probability of class {label}", ylabel=f"share of class {label}")
        self.legend_ = add_key(ax, self.handles(errors=True), beside)
        if self.name is not None and len(self.curves) > 1:
            write_title(ax, shorten_name(self.name, 40), sizes(ax)[0], loc="left")

    def draw(self, ax: Axes) -> None:
        """Draw the curves only, on axes that are laid out."""
        self.lines_, self.points_, self.bands_, self.strips_ = {}, {}, {}, {}
        largest = max(curve.histogram.max() for curve in self.curves.values())
        for name, curve in self.curves.items():
            colour, face = self._look(name)
            is_filled = face == colour
            self.strips_[name] = _square.draw_strip(ax, curve.histogram, largest, colour, is_filled)
            self.bands_[name] = _draw_band(ax, curve, colour)
            (self.lines_[name],) = ax.plot(
                curve.mean_score, curve.share, color=colour, linewidth=1.2, zorder=3
            )
            self.points_[name] = ax.scatter(
                curve.mean_score,
                curve.share,
                s=MARK * np.clip(curve.weight / curve.weight.max(), LEAST, 1),
                facecolors=face,
                edgecolors=colour,
                linewidths=1.0,
                clip_on=False,
                zorder=4,
            )

    def _look(self, name: str) -> tuple[str, str]:
        """Return the colour of a curve, and of the inside of its markers: hollow only if there are two."""
        if len(self.curves) == 1:
            return PALETTE["calibration"], PALETTE["calibration"]
        return PALETTE[name], PALETTE["paper" if name == "before" else name]

    def handles(self, errors: bool = False) -> list[Artist]:
        """Return the legend entries; with ``errors``, including calibration errors and the band."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Artist] = []
        for name, curve in self.curves.items():
            colour, face = self._look(name)
            title = f"{name} calibration" if len(self.curves) > 1 else self.name or "predictions"
            look: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 5.0}
            label = shorten_name(title, 24) + (f": ECE {curve.ece:.4f}" if errors else "")
            handles.append(Line2D([], [], marker="o", linewidth=1.2, label=label, **look))
        label = "90% range if calibrated"
        return [*handles, Patch(label=label, **tint("axis", BAND_TINT))] if errors else handles


def _draw_band(ax: Axes, curve: Reliability, colour: str) -> FillBetweenPolyCollection:
    """Draw the consistency band."""
    x, low, high = curve.mean_score, curve.low, curve.high
    if len(x) == 1:
        x = np.array([x[0] - LONE_BAND, x[0] + LONE_BAND])
        low, high = np.repeat(low, 2), np.repeat(high, 2)
    return ax.fill_between(x, low, high, color=colour, alpha=BAND_TINT, linewidth=0, zorder=0.5)


# ---- computation -------------------------------------------------------------------------------------------


def compute_curve(sample: Sample, kind: Any, n_bins: int, strategy: str) -> Reliability:
    """Return the reliability of checked predictions."""
    kind, column = _check_kind(kind, sample)
    event = event_of_likeliest(sample) if column is None else event_of_class(sample, column)
    sums = bin_sums(*event, n_bins, strategy)
    mass, totals, happened = sums[:, sums[0] > 0]
    mean_score = totals / mass
    low, high = _consistency_band(mass, mean_score)
    label = None if column is None else class_names(sample)[column]
    cells = count_scores(event.scores, sample.weights)
    ece = mean_distance(sums)
    return Reliability(mean_score, happened / mass, mass, low, high, ece, kind, label, cells)


def count_scores(scores: Floats, weights: Floats | None = None) -> Floats:
    """Return the weight of the scores in cells of equal width."""
    return np.bincount(bin_numbers(scores, CELLS), weights, CELLS).astype(np.float64)


def class_names(sample: Sample) -> list[Any]:
    """Return the label of each column."""
    names = sample.columns if sample.classes is None else sample.classes.tolist()
    return list(range(sample.k)) if names is None else names


def _check_kind(kind: Any, sample: Sample) -> tuple[str, int | None]:
    """Return the kind of diagram, and the column of the score; ``None`` for the likeliest class."""
    names = class_names(sample)
    if kind == "auto":
        kind = "binary" if sample.k == 2 else "top-label"
    if kind == "top-label":
        return kind, None
    if kind == "binary":
        if sample.k != 2:
            raise ValueError(
                f"kind is 'binary', but there are {sample.k} classes: pass 'top-label', or one of the "
                f"classes {list_names(names, 8)}"
            )
        return kind, 1
    if kind not in names:
        raise ValueError(
            f"kind is {kind!r}: it must be 'auto', 'binary', 'top-label', or one of the classes "
            f"{list_names(names, 8)}"
        )
    return "class", names.index(kind)


def _consistency_band(weight: Floats, mean_score: Floats) -> Floats:
    """Return the two ends of the consistency bands; weights count as rows, rounded."""
    from scipy.stats import binom

    n, p = np.maximum(np.round(weight), 1), np.clip(mean_score, 0, 1)
    tail = (1 - BAND) / 2
    return np.stack([binom.ppf(tail, n, p), binom.ppf(1 - tail, n, p)]) / n


def add_calibrated(sample: Sample, calibrated: Any) -> list[Sample]:
    """Return the sample, and if given, the same with calibrated probabilities or those of a calibrator."""
    if calibrated is None:
        return [sample]
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
    ordered = in_order(probs, column_names(calibrated), class_names(sample), "calibrated")
    return [sample, sample.replace(given=ordered)]
