"""Calibration maps: probabilities after calibration against those before, and a description in words."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.checks import check_scores
from refinecal._core.format import name_class
from refinecal._core.sample import log_softmax
from refinecal.metrics.bins import bin_numbers
from refinecal.plots.reliability import SIZE, count_scores, draw_strip, lay_out
from refinecal.plots.style import (
    PALETTE,
    Display,
    Floats,
    add_key,
    sizes,
    tint,
    write_title,
)
from refinecal.temperature.fit import MAX_BETA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import FillBetweenPolyCollection
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.patches import StepPatch

GRID = 201  # probabilities at which the map is computed
TOPS = 26  # classes that take their turn as the likeliest
MOST_BINS = 30  # of actual predictions
SPREAD = (5.0, 50.0, 95.0)  # percentiles
SLIGHT = 0.01  # a change of probabilities too small to matter
PULLED = "overconfident: probabilities pulled in"
PUSHED = "underconfident: probabilities pushed out"
BAND = tint("after", 0.2)


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationMap:
    """Probabilities before and after calibration.

    Attributes
    ----------
    before, after : ndarray of shape (b,)
        For two classes the probability of the second; for several that of the likeliest class, and its
        median after calibration.
    low, high : ndarray of shape (b,)
        Range of the values after calibration; equal to ``after`` for two classes.
    histogram : ndarray or None
        Number of predictions in each of 20 cells from 0 to 1.
    n_classes : int
    label : object
        The second of two classes.
    words : str
        The effect of the calibrator, in words.
    spread_of : str
        What the range is over: "predictions", "classes", or "" if there is none.
    """

    before: Floats
    after: Floats
    low: Floats
    high: Floats
    histogram: Floats | None
    n_classes: int
    label: Any
    words: str
    spread_of: str = ""


def map_probabilities(
    calibrator: Any, probs: Any = None, *, logits: Any = None, n_classes: int | None = None
) -> CalibrationMap:
    """Return the effect of a calibrator on probabilities.

    Parameters
    ----------
    calibrator : object with ``predict_proba``
        Fitted.
    probs, logits : array-like, optional
        Actual predictions. With several classes, the map shows their likeliest class, in bins of equal
        weight with the middle 90%. By default, each class in turn is the likeliest, and the others share
        the rest evenly.
    n_classes : int, optional
        By default the number of the calibrator or of the predictions, else 2.

    Examples
    --------
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling(laplace=False).fit([0.9] * 4, [1, 1, 1, 0])
    >>> print(map_probabilities(fitted).words)
    temperature 2.00
    overconfident: probabilities pulled in
    """
    if probs is not None and logits is not None:
        raise TypeError("pass either probs or logits=, found both")
    scores = None if probs is None else check_scores(probs, "probs")
    scores = scores if logits is None else check_scores(logits, "logits")
    known = getattr(calibrator, "classes_", None)
    if not hasattr(calibrator, "predict_proba") or isinstance(calibrator, type):
        raise TypeError(
            f"calibrator is {calibrator!r}: pass a fitted object with predict_proba, such as "
            "rc.TemperatureScaling().fit(probs, y)"
        )
    k = _count_classes(n_classes, known, scores)
    before, columns, inputs = _make_inputs(k, scores)
    if hasattr(calibrator, "predict_proba_logits"):
        made = [calibrator.predict_proba_logits(logs) for logs in inputs]
    else:
        made = [calibrator.predict_proba(np.exp(logs)) for logs in inputs]
    name, rows = f"{type(calibrator).__name__}.predict_proba", np.arange(len(before))
    checked = [_check_made(each, name, logs.shape) for each, logs in zip(made, inputs, strict=True)]
    after = np.stack([each[rows, j] for each, j in zip(checked, columns, strict=True)])
    if k == 2:
        label = 1 if known is None else np.asarray(known)[1]
        return _map_two_classes(calibrator, before, after[0], scores, label)
    if scores is not None:
        return _map_rows(calibrator, before, after[0], k)
    middle, low, high = np.median(after, axis=0), after.min(axis=0), after.max(axis=0)
    words = _describe(calibrator, middle - before)
    of = "classes" if (high - low).max() > SLIGHT else ""
    return CalibrationMap(before, middle, low, high, None, k, None, words, of)


class CalibrationMapDisplay(Display):
    """Probabilities after calibration against those before; on the diagonal nothing changes.

    Create it with :meth:`from_calibrator`, or from the result of :func:`map_probabilities`, which ``map``
    holds.

    Attributes
    ----------
    figure_, ax_, line_, band_, strip_, legend_
        The figure, its axes and artists; the range, histogram and legend are ``None`` if not drawn.

    Examples
    --------
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling().fit([0.9] * 4, [1, 1, 1, 0])
    >>> rc.plots.CalibrationMapDisplay.from_calibrator(fitted).figure_.savefig("map.png")  # doctest: +SKIP
    """

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
        """Draw the effect of a calibrator.

        Parameters
        ----------
        calibrator, probs, logits, n_classes
            As for :func:`map_probabilities`.
        class_names : sequence, optional
            Names of the classes; by default those of the calibrator.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
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

    def _size(self) -> tuple[float, float]:
        return SIZE

    def _draw(self, ax: Axes) -> None:
        from matplotlib.patches import Patch

        found, of = self.map, self.map.spread_of
        beside = lay_out(ax, found.histogram is not None, 2.6 if of else 0)
        look: dict[str, Any] = {"color": PALETTE["after"], "linewidth": 1.8, "zorder": 3}
        (self.line_,) = ax.plot(found.before, found.after, **look)
        if len(found.before) == 1:  # a line through one point is not seen
            self.line_.set_marker("o")
        self.band_ = self.strip_ = self.legend_ = None
        if of:
            self.band_ = ax.fill_between(found.before, found.low, found.high, **BAND)
            self.line_.set_label(f"median of {of}")
            label = "middle 90%" if of == "predictions" else "range over classes"
            self.legend_ = add_key(ax, [self.line_, Patch(label=label, **BAND)], beside)
        if found.histogram is not None:
            largest, shade = found.histogram.max(), PALETTE["before"]
            self.strip_ = draw_strip(ax, found.histogram, largest, shade, True)
        label = name_class(found.label, 16)
        what = f"probability of class {label}" if found.n_classes == 2 else "confidence"
        ax.set(xlabel=f"{what} before calibration", ylabel="after calibration")
        write_title(ax, found.words, sizes(ax)[1], loc="left", pad=5)


# ---- computation -------------------------------------------------------------------------------------------


def _count_classes(n_classes: int | None, known: Any, scores: NDArray[Any] | None) -> int:
    """Return the number of classes, on which calibrator and predictions must agree."""
    found = [None if known is None else len(known), None if scores is None else scores.shape[1]]
    counts = [count for count in (n_classes, *found) if count is not None] or [2]
    if len(set(counts)) > 1:
        raise ValueError(
            f"n_classes, the calibrator and the predictions disagree on the number of classes: "
            f"{', '.join(map(str, counts))}"
        )
    if counts[0] < 2:
        raise ValueError(f"there is {counts[0]} class: probabilities need two at least")
    return counts[0]


def _make_inputs(k: int, scores: NDArray[Any] | None) -> tuple[Floats, Sequence[Any], list[Floats]]:
    """Return probabilities, in which columns they are, and the log-probabilities to calibrate."""
    if scores is not None and k > 2:  # the likeliest class of actual predictions
        logs = log_softmax(scores.astype(np.float64, copy=False))
        top = logs.argmax(axis=1)
        return np.exp(logs[np.arange(len(logs)), top]), [top], [logs]
    before = np.linspace(1 / k if k > 2 else 0, 1, GRID)
    # Two classes: the second; several: each is the likeliest in turn, and the others share the rest evenly.
    tops = sorted({*np.linspace(0, k - 1, TOPS).astype(int).tolist()}) if k > 2 else [1]
    inputs = [np.repeat((1 - before)[:, None] / (k - 1), k, axis=1) for _ in tops]
    for probs, top in zip(inputs, tops, strict=True):
        probs[:, top] = before
    with np.errstate(divide="ignore"):
        return before, tops, [np.log(probs) for probs in inputs]


def _check_made(given: Any, name: str, shape: tuple[int, ...]) -> Floats:
    """Return what a calibrator returned as an array of probabilities, one column per class."""
    found = np.asarray(given, dtype=np.float64)
    if found.ndim == 1 and shape[1] == 2:
        found = np.stack([1 - found, found], axis=1)
    if found.shape != shape:
        raise ValueError(f"{name} returned shape {found.shape}, expected {shape}")
    if not ((found >= -1e-6) & (found <= 1 + 1e-6)).all():  # not for NaN either
        raise ValueError(f"{name} returned values outside 0..1, which are not probabilities")
    return found


def _map_two_classes(
    calibrator: Any, before: Floats, after: Floats, scores: NDArray[Any] | None, label: Any
) -> CalibrationMap:
    """Return the map of the second class, described for actual predictions if there are any."""
    cells = weights = None
    if scores is not None:
        given = np.exp(log_softmax(scores.astype(np.float64, copy=False)))[:, 1]
        cells = count_scores(given)
        near = np.rint(given * (GRID - 1)).astype(int)
        weights = np.bincount(near, minlength=GRID).astype(np.float64)
    side = np.sign(before - 0.5)  # towards the likelier class
    words = _describe(calibrator, after - before, side, weights)
    return CalibrationMap(before, after, after, after, cells, 2, label, words)


def _map_rows(calibrator: Any, given: Floats, made: Floats, k: int) -> CalibrationMap:
    """Return the map of the likeliest class of actual predictions, in bins of equal weight."""
    numbers = bin_numbers(given, min(MOST_BINS, math.isqrt(len(given))), "quantile")
    order = np.argsort(numbers, kind="stable")
    bins = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    before = np.array([given[one].mean() for one in bins])
    low, after, high = np.array([np.percentile(made[one], SPREAD) for one in bins]).T
    words, cells = _describe(calibrator, made - given), count_scores(given)
    return CalibrationMap(before, after, low, high, cells, k, None, words, "predictions")


def _describe(
    calibrator: Any, changes: Floats, side: Floats | float = 1.0, weights: Floats | None = None
) -> str:
    """Describe changes of probabilities; ``side`` is the sign of a change towards certainty."""
    beta = getattr(calibrator, "beta_", None)
    if beta is not None and np.ndim(beta) == 0:
        return _describe_temperature(float(beta))
    mean = float(np.average(side * changes, weights=weights))
    if np.average(np.abs(changes), weights=weights) < SLIGHT:
        return "hardly changed"
    if abs(mean) < SLIGHT:
        return "probabilities shifted"
    return PULLED if mean < 0 else PUSHED


def _describe_temperature(beta: float) -> str:
    if beta < 1e-12:
        return "no better than chance:\nall classes equally likely"
    if beta >= 0.999 * MAX_BETA:
        return "never wrong: probabilities pushed to 0 and 1"
    temperature = f"temperature {1 / beta:{'.2f' if 0.01 < beta < 10 else '.2g'}}"
    if abs(beta - 1) <= 0.05:
        return f"{temperature}\nhardly changed"
    return f"{temperature}\n{PULLED if beta < 1 else PUSHED}"
