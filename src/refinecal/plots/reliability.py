"""Reliability diagrams: observed frequencies against predicted probabilities; one, or one for each class."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.arrays import column_names, in_order, to_floats
from refinecal._core.checks import check_sample, check_scores
from refinecal._core.format import list_names, name_class, number, shorten_name
from refinecal._core.sample import Sample, log_softmax
from refinecal.metrics.bins import bin_numbers, bin_sums, check_bins, mean_distance
from refinecal.metrics.events import event_of
from refinecal.plots.style import (
    PALETTE,
    THIN,
    Display,
    Floats,
    add_key,
    add_legend,
    dress,
    inches,
    lines_of,
    sizes,
    tint,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import FillBetweenPolyCollection, PathCollection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.patches import StepPatch

Strategy = Literal["quantile", "uniform"]

BAND = 0.9  # coverage of the consistency band if the scores are calibrated
CELLS = 20  # of the histogram of scores
MARK = 30.0  # area of the mark of the heaviest bin, in square points
LEAST = 0.3  # of it, for the lightest
BAND_TINT = 0.2
RANGE = tint("axis", BAND_TINT)
LONE_BAND = 0.01  # half the width of the band of a single bin

# The unit square of probabilities, and the histogram below it
SIZE = (4.6, 4.6)  # inches of a new figure
EDGE = 0.02  # around the square, so that marks on its border are whole
GAP = 0.05  # between the square and the histogram
STRIP = 0.16  # height of the histogram
FILLED = 0.45  # how much of its colour shows in a cell of the histogram
TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)
WIDE = 1.5  # times the height: wider axes become a square with room for a legend

# One diagram for each class
MOST = 12  # diagrams that a page holds
PANEL = 1.15  # inches: the least width of one
SMALL, LABEL = 7.5, 8.5  # sizes of letters in points


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
        # The colours of each curve, and of the inside of its markers: hollow only if there are two.
        self.curves, lone = {"before": curve}, PALETTE["calibration"]
        self._looks = {"before": (lone, lone)}
        if after is not None:
            self.curves["after"] = after
            colours = PALETTE["before"], PALETTE["after"]
            self._looks = {"before": (colours[0], PALETTE["paper"]), "after": (colours[1],) * 2}
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
        curves = [compute_curve(each, kind, n_bins, strategy) for each in states]
        return cls(*curves, name=name).plot(ax)

    def _size(self) -> tuple[float, float]:
        return SIZE

    def _draw(self, ax: Axes) -> None:
        beside = lay_out(ax, True, len(self.curves) + 1.6)
        self.draw(ax)
        curve = self.curves["before"]
        if curve.kind == "top-label":
            ax.set(xlabel="confidence", ylabel="accuracy")
        else:
            label = name_class(curve.label, 20)
            ax.set(xlabel=f"probability of class {label}", ylabel=f"share of class {label}")
        self.legend_ = add_key(ax, self.handles(errors=True), beside)
        if self.name is not None and len(self.curves) > 1:
            write_title(ax, shorten_name(self.name, 40), sizes(ax)[0], loc="left")

    def draw(self, ax: Axes) -> None:
        """Draw the curves only, on axes that are laid out."""
        self.lines_, self.points_, self.bands_, self.strips_ = {}, {}, {}, {}
        largest = max(curve.histogram.max() for curve in self.curves.values())
        for name, curve in self.curves.items():
            colour, face = self._looks[name]
            is_filled = face == colour
            self.strips_[name] = draw_strip(ax, curve.histogram, largest, colour, is_filled)
            x, low, high = curve.mean_score, curve.low, curve.high
            if len(x) == 1:  # a band without width is not seen
                x, low, high = np.add(x, [-LONE_BAND, LONE_BAND]), low.repeat(2), high.repeat(2)
            look: Any = {"color": colour, "alpha": BAND_TINT, "linewidth": 0, "zorder": 0.5}
            self.bands_[name] = ax.fill_between(x, low, high, **look)
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

    def handles(self, errors: bool = False) -> list[Artist]:
        """Return the legend entries; with ``errors``, including calibration errors and the band."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Artist] = []
        for name, curve in self.curves.items():
            colour, face = self._looks[name]
            title = f"{name} calibration" if len(self.curves) > 1 else self.name or "predictions"
            look: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 5.0}
            label = shorten_name(title, 24) + (f": ECE {number(curve.ece, 4)}" if errors else "")
            handles.append(Line2D([], [], marker="o", linewidth=1.2, label=label, **look))
        label = "90% range if calibrated"
        return [*handles, Patch(label=label, **RANGE)] if errors else handles


# ---- one diagram for each class ----------------------------------------------------------------------------


def draw_classes(
    figure: Figure | SubFigure,
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    calibrated: Any = None,
    n_bins: int = 10,
    strategy: Strategy = "uniform",
) -> list[ReliabilityDisplay]:
    """Fill a figure with one-vs-rest reliability diagrams, one for each of the 12 most frequent classes.

    Each title is the class and its expected calibration error, before and after calibration.

    Parameters
    ----------
    figure : matplotlib Figure or SubFigure
        An empty one. It gets matplotlib's constrained layout.
    y_true, probs, logits, sample_weight, classes, n_bins, strategy
        As for :func:`reliability_curve`; here bins have equal width by default, since the probability of
        one class of many is near 0 in most rows.
    calibrated : array-like or calibrator, optional
        As for :meth:`ReliabilityDisplay.from_predictions`.
    """
    check_bins(n_bins, strategy)
    sample = check_sample(y_true, probs, logits, sample_weight, classes)
    diagrams = ClassDiagrams(add_calibrated(sample, calibrated), n_bins, strategy)
    diagrams.draw(figure)
    return diagrams.displays


class ClassDiagrams:
    """One-vs-rest diagrams of the most frequent classes: computed once, drawn on figures of any width."""

    def __init__(self, states: Sequence[Sample], n_bins: int, strategy: str) -> None:
        sample, self.k = states[0], states[0].k
        names = class_names(sample)
        frequent = np.argsort(-sample.frequencies, kind="stable")[:MOST]
        self.displays = [
            ReliabilityDisplay(*(compute_curve(s, names[column], n_bins, strategy) for s in states))
            for column in sorted(frequent)
        ]

    def shape(self, width: float) -> tuple[int, int]:
        """Return how many rows and columns of diagrams fit a width in inches, all rows of similar length."""
        count = len(self.displays)
        columns = max(1, min(count, int(width / PANEL)))
        rows = math.ceil(count / columns)
        return rows, math.ceil(count / rows)

    def height(self, width: float) -> float:
        """Return a height for a figure of this width, in inches."""
        rows, columns = self.shape(width)
        return 0.9 + 1.2 * rows * width / columns

    def draw(self, figure: Figure | SubFigure) -> None:
        """Fill an empty figure; only the outer axes have tick labels."""
        root = figure.get_figure(root=True)
        assert root is not None
        root.set_layout_engine("constrained")
        rows, columns = self.shape(figure.bbox.width / figure.dpi)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for place, (ax, display) in enumerate(zip(panels, self.displays, strict=False)):
            below = place + columns >= len(self.displays)
            ax.tick_params(labelleft=place % columns == 0, labelbottom=below)
            display.ax_, display.figure_ = ax, dress(ax, (LABEL, SMALL))
            lay_out(ax, True, ticks=(0, 0.5, 1), name="")
            ax.set_aspect("equal", adjustable="box")
            display.draw(ax)
            for points in display.points_.values():
                points.set_sizes(points.get_sizes() / 3)
            errors = " → ".join(number(curve.ece, 3) for curve in display.curves.values())
            label = shorten_name(str(display.curves["before"].label), 14)
            write_title(ax, f"{label}\n{errors}", SMALL, pad=2)
        for unused in panels[len(self.displays) :]:
            unused.remove()
        look: dict[str, Any] = {"fontsize": LABEL, "color": PALETTE["text"]}
        figure.supxlabel("probability of the class", **look)
        figure.supylabel("share of the class", **look)
        title = "expected calibration error"
        if self.k > len(self.displays):
            title = f"{len(self.displays)} most frequent of {self.k} classes\n{title}"
        if len(self.displays[0].curves) == 1:
            figure.suptitle(title, **look)
            return
        handles, title = self.displays[0].handles(), f"{title} before → after"
        legend = add_legend(figure, handles, SMALL, title=title, ncols=2)
        legend.get_title().set(**look, horizontalalignment="center")


# ---- the square --------------------------------------------------------------------------------------------


def lay_out(
    ax: Axes,
    strip: bool,
    lines: float = 0.0,
    ticks: Sequence[float] = TICKS,
    name: str = "rows",
) -> bool:
    """Draw the square with its diagonal, and the name of the histogram below it.

    Leave room above it for lines of text, unless there is room to the right of it; return whether there is.
    """
    width, height = inches(ax)
    beside = width > WIDE * height
    above = 0.0 if beside else lines_of(ax, lines)
    low = -EDGE - strip * (GAP + STRIP)
    ax.set(xlim=(-EDGE, 1 + EDGE), ylim=(low, low + (1 + EDGE - low) / (1 - above)))
    names = [f"{tick:g}" for tick in ticks]
    ax.set_xticks(ticks, names)
    ax.set_yticks(ticks, names)
    ax.spines["left"].set_bounds(0, 1)
    ax.spines["bottom"].set_bounds(0, 1)
    ax.yaxis.label.set_y((0.5 - low) / (1 + EDGE - low) * (1 - above))
    if beside:
        ax.set_aspect("equal", adjustable="box", anchor=(0.3, 0.5))  # the key is on the right
    ax.plot([0, 1], [0, 1], zorder=1, linestyle="--", **THIN)
    if strip and name:  # as if it were a tick
        ax.set_yticks([-GAP - STRIP / 2, *ticks], [name, *names])
        ax.yaxis.get_major_ticks()[0].tick1line.set_visible(False)
    return beside


def draw_strip(ax: Axes, histogram: Floats, largest: float, colour: str, filled: bool) -> StepPatch:
    """Draw a histogram of scores below the square; ``largest`` fills its height."""
    floor = -GAP - STRIP
    tops = floor + STRIP * histogram / largest
    edges = np.linspace(0, 1, len(histogram) + 1)
    look: dict[str, Any] = {"baseline": floor, "color": colour, "fill": filled}
    look |= {"alpha": FILLED, "linewidth": 0} if filled else {"linewidth": 1.0}
    return ax.stairs(tops, edges, zorder=2, **look)


# ---- computation -------------------------------------------------------------------------------------------


def compute_curve(sample: Sample, kind: Any, n_bins: int, strategy: str) -> Reliability:
    """Return the reliability of checked predictions."""
    from scipy.stats import binom

    kind, column = _check_kind(kind, sample)
    event = event_of(sample, column)
    sums = bin_sums(*event, n_bins, strategy)
    mass, totals, happened = sums[:, sums[0] > 0]
    mean_score = totals / mass
    n, p = (
        np.maximum(np.round(mass), 1),
        np.clip(mean_score, 0, 1),
    )  # weights count as rows, rounded
    tail = (1 - BAND) / 2
    low, high = np.stack([binom.ppf(tail, n, p), binom.ppf(1 - tail, n, p)]) / n
    label = None if column is None else class_names(sample)[column]
    cells, ece = count_scores(event.scores, sample.weights), mean_distance(sums)
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
