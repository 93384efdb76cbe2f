"""Run time against loss, a mark per method: all calibrators, and the paper's figures 4 and D.1."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibrators.contestants import NONE, OURS, package
from benchmarks.calibrators.summary import LARGE, Summary, mean
from refinecal.plots.style import PALETTE, dress

COLOURS = {
    OURS: PALETTE["refinement"],
    "probmetrics": PALETTE["calibration"],
    "scikit-learn": PALETTE["risk"],
    "netcal": PALETTE["after"],
    "other packages": PALETTE["sharpness"],
    NONE: PALETTE["before"],
}
MARKS = dict(zip(COLOURS, "osD^vX", strict=True))
TITLES = {"log": "log loss", "brier": "Brier score"}
ANGLES = np.linspace(0, 2 * np.pi, 16, endpoint=False)
PANELS = (
    ("log", True),
    ("brier", True),
)  # loss, whether it is divided by that of the best constant
TREES = "XGBoost at its best validation accuracy"
REACH = (9, 14, 20, 28, 38, 50, 64, 80, 98)  # points from a mark to the corner of its name
HEADROOM = 0.25  # the share of the range above no calibration that is still to scale


@dataclass(frozen=True)
class Point:
    """A method in the plane of time and loss; those above the axes are drawn at their edge."""

    name: str
    seconds: float
    loss: float
    y: float

    @property
    def group(self) -> str:
        """What its colour says."""
        found = package(self.name)
        return found if found in COLOURS else "other packages"

    @property
    def label(self) -> str:
        """Its name without the package, where the colour tells that."""
        short = self.name if self.group == "other packages" else self.name.split(maxsplit=1)[-1]
        return short if self.y == self.loss else f"{short} ({self.loss:.3f})"


# The five implementations of temperature scaling of the paper's figure 4, and ours; in figure D.1 more.
FIGURE_4 = (
    *(f"probmetrics {name}" for name in ("guo-ts", "torchunc-ts", "autogluon-ts", "torchcal-ts")),
    *("probmetrics temp-scaling", "probmetrics ts-mix"),
    *(f"{OURS} temperature, unsmoothed", f"{OURS} temperature"),
)
FIGURE_D1 = (
    *FIGURE_4,
    *("probmetrics autogluon-inv-ts", "scikit-learn temperature", "netcal temperature"),
    *("probmetrics isotonic", "scikit-learn isotonic", f"{OURS} isotonic"),
    NONE,
)


def points(
    found: Summary,
    loss: str,
    cases: np.ndarray,
    only: Sequence[str] | None = None,
    scaled: bool = True,
) -> list[Point]:
    """Return the mean time on large sets and the mean loss of each method that never failed.

    Of ``only`` some methods, a failure counts as no calibration. Losses that are not ``scaled`` are those
    of the rows, not divided by that of the best constant.
    """
    large = cases & found.where(lambda case: case["n_val"] >= LARGE)
    large = large if large.any() else cases
    unit = np.ones(len(cases)) if scaled else found.unit[loss]
    whole = []
    for row, name in enumerate(found.methods):
        losses = found.loss[loss][row]
        if only is not None and name in only:
            if NONE in found.methods:
                plain = found.loss[loss][found.at(NONE)]
                losses = np.where(found.has_failed(name), plain, losses)
        elif only is not None or np.isnan(losses[cases]).any():
            continue
        seconds = mean(found.seconds()[row][large])
        whole.append((name, seconds, float((losses * unit)[cases].mean())))
    plain = next((value for name, _, value in whole if name == NONE), np.inf)
    least = min(value for _, _, value in whole)
    top = plain + HEADROOM * (plain - least)
    return [Point(name, t, value, min(value, top)) for name, t, value in whole]


def draw(
    found: Summary,
    cases: np.ndarray,
    title: str,
    only: Sequence[str] | None = None,
    panels: Sequence[tuple[str, bool]] = PANELS,
) -> Any:
    """Return a figure with a panel for each loss, divided by that of the best constant or not."""
    from matplotlib.figure import Figure

    size = (15, 8.5) if only is None else (6.5 * len(panels), 4.8)
    figure = Figure(figsize=size, layout="constrained", facecolor=PALETTE["paper"])
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (loss, scaled) in zip(axes, panels, strict=True):
        _marks(ax, points(found, loss, cases, only, scaled))
        ax.set(
            xscale="log",
            xlabel="seconds to fit and predict, one thread, mean over large sets",
            ylabel=f"mean {TITLES[loss]}" + " / that of the best constant" * scaled,
        )
        dress(ax)
    note = "marks at the upper edge are above it, at the value in brackets"
    joint = "; " if only is None else "\n"
    figure.suptitle(
        f"{title}{joint}{note}", color=PALETTE["text"], fontsize=12 if only is None else 9
    )
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(COLOURS),
        frameon=False,
        labelcolor=PALETTE["text"],
    )
    figure.draw_without_rendering()
    for ax, (loss, scaled) in zip(axes, panels, strict=True):
        _names(ax, points(found, loss, cases, only, scaled))
    return figure


def _marks(ax: Any, shown: Sequence[Point]) -> None:
    for group, colour in COLOURS.items():
        mine = [point for point in shown if point.group == group]
        if group == NONE:  # takes no time, so it is a line
            for point in mine:
                ax.axhline(point.y, color=colour, lw=1, ls="--", label="no calibration")
        elif mine:
            xs, ys = [point.seconds for point in mine], [point.y for point in mine]
            ax.scatter(xs, ys, s=42, color=colour, marker=MARKS[group], label=group, zorder=3)
    ax.margins(x=0.12, y=0.06)


def _names(ax: Any, shown: Sequence[Point]) -> None:
    """Write each name beside its mark, where it covers neither a mark nor another name."""
    from matplotlib.text import Text

    scale = ax.figure.dpi / 72
    marks = {p.name: ax.transData.transform((p.seconds, p.y)) for p in shown if p.group != NONE}
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in marks.values()]
    frame = ax.get_window_extent()
    inside = (frame.x0, frame.y0, frame.x1 + 30 * scale, frame.y1)
    for point in sorted(shown, key=lambda p: (p.group != OURS, p.seconds)):
        if point.group == NONE:
            continue
        note = ax.annotate(
            point.label,
            (point.seconds, point.y),
            xytext=(0, 0),
            textcoords="offset points",
            va="bottom",
            fontsize=8,
            color=COLOURS[point.group] if point.group != "other packages" else PALETTE["text"],
            fontweight="bold" if point.name == f"{OURS} auto" else "normal",
            arrowprops={"arrowstyle": "-", "lw": 0.5, "color": PALETTE["axis"], "shrinkB": 3},
        )
        box = Text.get_window_extent(note)  # without the line to the mark
        size = box.width, box.height
        offset, place = next(
            (
                found
                for found in _places(marks[point.name], size, scale)
                if _free(found[1], taken, inside)
            ),
            ((6.0, 6.0), (0.0, 0.0, 0.0, 0.0)),
        )
        note.set_position(offset)
        taken.append(place)


def _places(mark: Any, size: tuple[float, float], scale: float) -> Iterator[tuple[Any, Any]]:
    """Yield offsets in points, nearest first, with the box that the name would fill."""
    width, height = size
    for reach, angle in product(REACH, ANGLES):
        middle = reach * np.cos(angle), reach * np.sin(angle)
        left = middle[0] * scale + (0 if np.cos(angle) > 0.3 else -width / 2)
        left = middle[0] * scale - width if np.cos(angle) < -0.3 else left
        low = middle[1] * scale - height / 2
        box = mark[0] + left, mark[1] + low, mark[0] + left + width, mark[1] + low + height
        yield (left / scale, low / scale), box


def _free(box: Any, taken: Sequence[Any], inside: Any) -> bool:
    x0, y0, x1, y1 = box
    if x0 < inside[0] or y0 < inside[1] or x1 > inside[2] or y1 > inside[3]:
        return False
    return all(x1 + 1 < a or x0 - 1 > c or y1 < b or y0 > d for a, b, c, d in taken)


def save(found: Summary, folder: Path, name: str) -> list[str]:
    """Write a figure of all models and one of XGBoost alone; return their names."""
    groups = {
        f"{name}.svg": (np.ones(len(found.cases), dtype=bool), "All models"),
        f"{name}-xgboost.svg": (found.where(lambda case: case["model"] == "xgboost"), TREES),
    }
    for file, (cases, title) in groups.items():
        _write(draw(found, cases, f"{title}: {cases.sum()} sets of predictions"), folder / file)
    return list(groups)


def save_paper(found: Summary, folder: Path) -> list[str]:
    """Write the paper's figures 4 and D.1, of XGBoost; return their names."""
    trees = found.where(lambda case: case["model"] == "xgboost")
    groups = {
        "figure-4.svg": (FIGURE_4, (("log", False), ("log", True))),
        "figure-d1.svg": (FIGURE_D1, PANELS),
    }
    for file, (only, panels) in groups.items():
        title = f"{TREES}: {trees.sum()} tables"
        _write(draw(found, trees, title, only, panels), folder / file)
    return list(groups)


def _write(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    beside = path.with_name(f"{path.name}.part")
    with rc_context({"svg.hashsalt": "calibrators"}):  # the same figure gives the same file
        figure.savefig(beside, format="svg", metadata={"Date": None})
    beside.replace(path)
