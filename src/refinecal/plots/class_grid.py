"""Small reliability diagrams, one per class, one-vs-rest."""

from __future__ import annotations  # so that help() shows types by name

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.checks import check_sample
from refinecal._core.format import shorten_name
from refinecal._core.sample import Sample
from refinecal.metrics.bins import check_bins
from refinecal.plots import _square
from refinecal.plots.reliability import (
    ReliabilityDisplay,
    Strategy,
    add_calibrated,
    class_names,
    compute_curve,
)
from refinecal.plots.style import PALETTE, add_legend, dress, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

MOST = 12  # diagrams that a page holds
PANEL = 1.15  # inches: the least width of one
SMALL, LABEL = 7.5, 8.5  # sizes of letters in points


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
    states = add_calibrated(sample, calibrated)
    names = class_names(sample)
    frequent = np.argsort(-sample.frequencies, kind="stable")[:MOST]
    chosen = [names[column] for column in sorted(frequent)]
    displays = [
        ReliabilityDisplay(*(compute_curve(each, label, n_bins, strategy) for each in states))
        for label in chosen
    ]
    for display, ax in zip(displays, _make_panels(figure, len(chosen)), strict=True):
        _draw_panel(display, ax)
    _write_around(figure, displays, sample)
    return displays


def _make_panels(figure: Figure | SubFigure, count: int) -> list[Axes]:
    """Return a grid of axes that fits the width of the figure; only the outer ones have tick labels."""
    root = figure.get_figure(root=True)
    assert root is not None
    root.set_layout_engine("constrained")
    across = max(1, min(count, int(figure.bbox.width / figure.dpi / PANEL)))
    across = math.ceil(count / math.ceil(count / across))  # no row much shorter than the others
    grid = figure.subplots(math.ceil(count / across), across, squeeze=False)
    for unused in grid.flat[count:]:
        unused.remove()
    panels = list(grid.flat[:count])
    for place, ax in enumerate(panels):
        ax.tick_params(labelleft=place % across == 0, labelbottom=place + across >= count)
    return panels


def _draw_panel(display: ReliabilityDisplay, ax: Axes) -> None:
    display.ax_, display.figure_ = ax, dress(ax, (LABEL, SMALL))
    _square.lay_out(ax, True, 0, ticks=(0, 0.5, 1), name="")
    ax.set_aspect("equal", adjustable="box")
    display.draw(ax)
    for points in display.points_.values():
        points.set_sizes(points.get_sizes() / 3)
    errors = " → ".join(f"{curve.ece:.3f}" for curve in display.curves.values())
    label = shorten_name(str(display.curves["before"].label), 14)
    write_title(ax, f"{label}\n{errors}", SMALL, pad=2)


def _write_around(
    figure: Figure | SubFigure, displays: list[ReliabilityDisplay], sample: Sample
) -> None:
    """Label the axes once for all diagrams; add a legend, and say if classes were omitted."""
    look: dict[str, Any] = {"fontsize": LABEL, "color": PALETTE["text"]}
    figure.supxlabel("probability of the class", **look)
    figure.supylabel("share of the class", **look)
    title = "expected calibration error"
    if sample.k > len(displays):
        title = f"{len(displays)} most frequent of {sample.k} classes\n{title}"
    if len(displays[0].curves) == 1:
        figure.suptitle(title, **look)
        return
    title = f"{title} before → after"
    legend = add_legend(figure, displays[0].handles(), SMALL, title=title, ncols=2)
    legend.get_title().set(**look, horizontalalignment="center")
