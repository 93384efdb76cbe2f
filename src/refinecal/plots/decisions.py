"""Figures of decisions: confused classes, precision against recall, costs against the threshold."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.format import name_class, number, percent, shorten_name
from refinecal.metrics import PrecisionRecall, confusion_matrix, precision_recall_curve
from refinecal.plots import style
from refinecal.plots.style import PALETTE, THIN, Display, add_key, check_floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    from refinecal.evaluation import CostEvaluation

COLORS = ("refinement", "calibration", "risk", "sharpness", "uncertainty", "after")
MOST_STEPS = 400  # of a curve that is drawn
LETTER = 0.65  # width of a digit, in sizes of letters
DARKEST = 0.75  # of a cell, so that its number is readable on it


class ConfusionDisplay(Display):
    """How many rows of each label have each class as the likeliest, shaded by the share of the label.

    Create it with :meth:`from_predictions`, or from the result of
    :func:`refinecal.metrics.confusion_matrix`.

    Parameters
    ----------
    matrix : array-like of shape (k, k)
        Rows are labels, columns likeliest classes.
    names : sequence, optional
        The names of the classes; by default their numbers.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.plots.ConfusionDisplay([[8, 2], [1, 9]], ["no", "yes"]).shares
    array([[0.8, 0.2],
           [0.1, 0.9]])
    """

    texts_: list[Text]

    def __init__(self, matrix: ArrayLike, names: Sequence[Any] | None = None) -> None:
        k = len(np.asarray(matrix))
        self.matrix = check_floats(
            "matrix", matrix, (k, k), ": pass one row and column for each class"
        )
        self.names = [str(name) for name in (range(k) if names is None else names)]
        if len(self.names) != k:
            raise ValueError(f"names has {len(self.names)} names, but matrix has {k} rows")
        total = self.matrix.sum(axis=1, keepdims=True)
        self.shares = np.divide(self.matrix, total, out=np.zeros((k, k)), where=total > 0)

    @classmethod
    def from_predictions(
        cls, y_true: Any, probs: Any = None, *, ax: Axes | None = None, **inputs: Any
    ) -> Self:
        """Draw the confusion matrix of predictions; arguments as for :func:`refinecal.decompose`."""
        return cls(confusion_matrix(y_true, probs, **inputs), inputs.get("classes")).plot(ax)

    def _size(self) -> tuple[float, float]:
        return 4.6, 4.6

    def _draw(self, ax: Axes) -> None:
        from matplotlib.patches import Rectangle

        k, self.texts_ = len(self.names), []
        ax.set(xlim=(0, k), ylim=(k, 0), aspect="equal")
        ax.spines[:].set_visible(False)
        size, room = style.sizes(ax)[1], 72 * min(style.inches(ax)) / k  # of a cell, in points
        for (i, j), share in np.ndenumerate(self.shares):
            color = style.tint("calibration" if i == j else "refinement", DARKEST * share)
            ax.add_patch(Rectangle((j, i), 1, 1, **color))
            n = float(self.matrix[i, j])
            text = number(n, 0 if n.is_integer() else 1)
            if LETTER * size * len(text) <= room:
                look: Any = {"ha": "center", "va": "center", "fontsize": size}
                self.texts_.append(ax.text(j + 0.5, i + 0.5, text, color=PALETTE["text"], **look))
        names = [shorten_name(name, 12) for name in self.names]
        turned = k > 2 and max(map(len, names)) * k > 12 * style.inches(ax)[0]
        ax.set_xticks(np.arange(k) + 0.5, names, rotation=90 if turned else 0)
        ax.set_yticks(np.arange(k) + 0.5, names)
        ax.tick_params(length=0)
        ax.set(xlabel="most likely class", ylabel="label")


class PrecisionRecallDisplay(Display):
    """Precision against recall, one curve for each class; dashed: random predictions.

    Create it with :meth:`from_predictions`, or from results of
    :func:`refinecal.metrics.precision_recall_curve`.

    Parameters
    ----------
    curves : sequence of PrecisionRecall
        At most six.
    """

    lines_: list[Line2D]

    def __init__(self, curves: Sequence[PrecisionRecall]) -> None:
        if not 0 < len(curves) <= len(COLORS):
            raise ValueError(f"curves has {len(curves)} curves: pass 1 to {len(COLORS)}")
        self.curves = list(curves)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        probs: Any = None,
        *,
        label: Any = None,
        ax: Axes | None = None,
        **inputs: Any,
    ) -> Self:
        """Draw the curve of one class; arguments as for the function."""
        return cls([precision_recall_curve(y_true, probs, label=label, **inputs)]).plot(ax)

    def _draw(self, ax: Axes) -> None:
        self.lines_ = []
        for curve, color in zip(self.curves, COLORS, strict=False):
            name = f"{name_class(curve.label, 20)}: {number(curve.average_precision, 3)}"
            look: Any = {"color": PALETTE[color], "drawstyle": "steps-post", "clip_on": False}
            kept = np.unique(np.round(curve.recall * MOST_STEPS), return_index=True)[1][::-1]
            self.lines_ += ax.plot(curve.recall[kept], curve.precision[kept], label=name, **look)
            ax.plot([0, 1], [curve.share] * 2, **THIN | {"color": PALETTE[color], "dashes": (4, 3)})
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="recall", ylabel="precision")
        key = add_key(ax, self.lines_, beside=not style.is_narrow(ax))
        key.set_title("average precision")
        key.get_title().set(color=PALETTE["text"], fontsize=style.sizes(ax)[1])


class CostDisplay(Display):
    """Mean cost per row of two classes, as the probabilities expect it and as it was, by threshold.

    Parameters
    ----------
    found : CostEvaluation
        From :func:`refinecal.evaluation.evaluate_costs`, of two classes.
    """

    lines_: list[Line2D]

    def __init__(self, found: CostEvaluation) -> None:
        if found.curve is None or found.threshold is None:
            raise ValueError(f"found is of {len(found.classes)} classes: only two have a threshold")
        self.thresholds, self.expected, self.realized = found.curve
        self.threshold, self.label = found.threshold, found.classes[1]
        if self.threshold > 0.5:  # of the class that is predicted although it is less likely
            self.thresholds, self.threshold = 1 - self.thresholds, 1 - self.threshold
            self.label = found.classes[0]

    def _draw(self, ax: Axes) -> None:
        self.lines_ = [
            *ax.plot(self.thresholds, self.realized, color=PALETTE["refinement"], label="realized"),
            *ax.plot(
                self.thresholds, self.expected, color=PALETTE["calibration"], label="expected"
            ),
        ]
        top = 1.25 * max(self.realized.max(), self.expected.max())
        ax.set(xlim=(0, 1), ylim=(0, top), ylabel="cost per row")
        ax.set_yticks(style.round_ticks(0, top, 5))
        ax.set_xlabel(f"predict {name_class(self.label, 20)} above this probability")
        ax.axvline(self.threshold, ymax=0.8, **THIN)  # the legend is above
        text = f"threshold {percent(self.threshold)}"
        style.write_near(ax, (self.threshold, 0), text, (3, 3), "axis")
        add_key(ax, self.lines_, beside=not style.is_narrow(ax))
