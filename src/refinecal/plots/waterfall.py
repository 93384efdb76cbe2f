"""Waterfall charts: from uncertainty over refinement to risk."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from refinecal._core.format import MINUS, shorten_name
from refinecal.plots import style
from refinecal.plots.style import PALETTE, THIN, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.patches import Rectangle
    from matplotlib.text import Text

NEEDED = ("risk", "refinement", "uncertainty")
THICKNESS = 0.62  # of a bar, as a part of the distance between bars
NARROW = 0.34  # of a bar with its text above
UNCERTAINTY: Any = {"color": PALETTE["uncertainty"], "linewidth": 2.0}
PARTS = {"irreducible": "before", "grouping": "refinement"}  # of refinement, with their colours
LENGTHS = ("sharpness", "grouping", "calibration")  # terms that are labelled with their length
BEYOND = 1.15  # times the largest finite value: how far an infinite bar goes
LETTER = 0.62  # width of a letter, in sizes


class Terms(NamedTuple):
    """The terms of a decomposition; all others are differences of these."""

    risk: float
    refinement: float
    uncertainty: float
    loss: str  # its name
    irreducible: float | None = None  # if the true probabilities are known

    @property
    def calibration(self) -> float:
        return _subtract(self.risk, self.refinement)


class WaterfallDisplay(Display):
    """The terms of a decomposition as bars, each starting where the previous one ends.

    If the decomposition knows the true probabilities, refinement is split into irreducible and grouping loss,
    as in figure 2 of the paper.

    Several decompositions are drawn below each other, each as one bar: refinement, then calibration,
    which sum to the risk.

    Parameters
    ----------
    decompositions : dict
        By the name of the model, a :class:`refinecal.Decomposition` or the result of its ``to_dict``.
    after : float, optional
        The risk after calibration, as a last bar; only for a single decomposition.

    Attributes
    ----------
    terms : dict
        By the name of the model, its risk, refinement and uncertainty.
    bars_, texts_ : dict
        The bars and their labels: by term for a single decomposition, else by (name, term) and name.
    figure_, ax_, legend_
        The figure, its axes and, for several decompositions, its legend.

    Examples
    --------
    >>> import refinecal as rc
    >>> d = rc.decompose([0, 0, 0, 1], [[0.9, 0.1]] * 4)
    >>> display = WaterfallDisplay({"model": d})
    >>> display.terms["model"].calibration == d.calibration
    True
    """

    bars_: dict[Any, Rectangle]
    texts_: dict[Any, Text]
    legend_: Legend

    def __init__(self, decompositions: Mapping[str, Any], *, after: float | None = None) -> None:
        if not decompositions:
            raise ValueError("there is no decomposition to draw: pass at least one")
        self.terms = {str(name): _read_terms(given) for name, given in decompositions.items()}
        losses = {terms.loss for terms in self.terms.values()}
        if len(losses) > 1:
            raise ValueError(
                f"the decompositions are of different losses ({', '.join(sorted(losses))}): "
                "draw those of one loss together"
            )
        self.loss = losses.pop()
        if after is not None and len(self.terms) > 1:
            raise ValueError(
                "after= works with a single decomposition only: omit it, or draw each alone"
            )
        self.after = after

    @classmethod
    def from_decomposition(
        cls, decomposition: Any, *, after: Any = None, ax: Axes | None = None
    ) -> Self:
        """Draw a decomposition, or several.

        Parameters
        ----------
        decomposition : Decomposition or dict
            One, or for several ``{name: decomposition}``.
        after : Decomposition or float, optional
            The same predictions after calibration, or their risk: one more bar.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        """
        several = isinstance(decomposition, Mapping) and "risk" not in decomposition
        risk = after if after is None or isinstance(after, float | int) else _read_terms(after).risk
        return cls(decomposition if several else {"": decomposition}, after=risk).plot(ax)

    def _size(self) -> tuple[float, float]:
        if len(self.terms) > 1:
            return 7, 1.3 + 0.55 * len(self.terms)
        (terms,) = self.terms.values()
        return 7, 3.0 if terms.irreducible is None else 3.8

    def _draw(self, ax: Axes) -> None:
        self.bars_, self.texts_ = {}, {}
        if len(self.terms) > 1:
            self._draw_several(ax)
            return
        (terms,) = self.terms.values()
        rows = [
            _Row("uncertainty", "uncertainty", 0.0, terms.uncertainty),
            _Row("sharpness", "− sharpness", terms.uncertainty, terms.refinement),
            _Row("refinement", "= refinement", 0.0, terms.refinement),
            _Row("calibration", "+ calibration", terms.refinement, terms.risk),
            _Row("risk", "= risk", 0.0, terms.risk),
        ]
        if terms.irreducible is not None:
            least = terms.irreducible
            rows[3:3] = [
                _Row("irreducible", "irreducible", 0.0, least),
                _Row("grouping", "+ grouping", least, terms.refinement),
            ]
        if self.after is not None:
            rows.append(_Row("after", "after calibration", 0.0, self.after))
        low, high = _range([end for row in rows for end in (row.start, row.end)])
        width, small = style.inches(ax)[0], style.sizes(ax)[1]
        room = min(9 * LETTER * small / 72 / width, 0.4)  # right of the bars, for numbers
        ax.set_xlim(low, low + (high - low) / (1 - room))
        ax.set_ylim(len(rows) - 0.4, -0.6)
        for place, row in enumerate(rows):
            start, end = min(row.start, high), min(row.end, high)
            look: Any = {"color": PALETTE[PARTS.get(row.term, row.term)], "linewidth": 0}
            (self.bars_[row.term],) = ax.barh(place, end - start, THICKNESS, left=start, **look)
            beside = max(start, end, 0.0), place
            is_part = row.term in LENGTHS
            shown = _subtract(row.end, row.start) if is_part else row.end
            text = style.format_loss(shown, sign=is_part)
            self.texts_[row.term] = style.write_near(ax, beside, text, (4, 0), va="center")
        for place, (row, after) in enumerate(pairwise(rows)):
            # Where it ends, the next begins, or ends.
            if math.isfinite(row.end) and row.end in (after.start, after.end):
                ax.plot([row.end] * 2, [place + THICKNESS / 2, place + 1 - THICKNESS / 2], **THIN)
        style.name_rows(ax, [row.name for row in rows], spine=True)
        style.set_losses(ax, low, high, 5, self.loss)

    # ---- several -----------------------------------------------------------------------------------------

    def _draw_several(self, ax: Axes) -> None:
        ends = [value for terms in self.terms.values() for value in terms[:3]]
        low, high = _range([0.0, *ends])
        ax.set_xlim(low, high + 0.02 * (high - low))
        above = style.lines_of(ax, 4.0)
        rows = len(self.terms)
        ax.set_ylim(rows - 0.3, -0.7 - above / (1 - above) * (rows + 0.4))
        for place, (name, terms) in enumerate(self.terms.items()):
            self._draw_model(ax, place, name, terms, high)
        style.name_rows(ax, [])
        style.set_losses(ax, low, high, 5, self.loss)
        self._explain(ax)

    def _explain(self, ax: Axes) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        is_negative = any(terms.calibration < 0 for terms in self.terms.values())
        label = f"calibration{' (hollow: negative)' if is_negative else ''}"
        handles = [
            Patch(color=PALETTE["refinement"], linewidth=0, label="refinement"),
            Patch(color=PALETTE["calibration"], linewidth=0, label=label),
            Line2D([], [], label="uncertainty: loss of guessing", **UNCERTAINTY),
        ]
        self.legend_ = style.add_key(ax, handles)

    def _draw_model(self, ax: Axes, place: int, name: str, terms: Terms, far: float) -> None:
        """Draw refinement and calibration in one bar; a negative calibration is hollow."""
        knot, end = min(terms.refinement, far), min(terms.risk, far)
        bar: dict[str, Any] = {"y": place, "height": NARROW, "zorder": 2, "linewidth": 0}
        look = bar | {"color": PALETTE["calibration"]}
        if terms.calibration < 0:
            look = bar | {"edgecolor": PALETTE["calibration"], "color": "none", "linewidth": 1.2}
        (self.bars_[name, "refinement"],) = ax.barh(
            width=min(knot, end), left=0.0, color=PALETTE["refinement"], **bar
        )
        (self.bars_[name, "calibration"],) = ax.barh(width=end - knot, left=knot, **look)
        ends = [place - NARROW, place + NARROW]
        ax.plot([terms.uncertainty] * 2, ends, zorder=3, solid_capstyle="butt", **UNCERTAINTY)
        corner = 0.0, place - NARROW / 2
        self.texts_[name] = style.write_near(ax, corner, _describe_sum(name, terms), (0, 2.5))


class _Row(NamedTuple):
    """One bar of a waterfall: where it starts and ends."""

    term: str
    name: str
    start: float
    end: float


def _describe_sum(name: str, terms: Terms) -> str:
    sign = MINUS if terms.calibration < 0 else "+"
    losses = (terms.refinement, abs(terms.calibration), terms.risk)
    refinement, calibration, risk = map(style.format_loss, losses)
    return f"{shorten_name(name, 20)}: {refinement} {sign} {calibration} = {risk}"


def _range(ends: list[float]) -> tuple[float, float]:
    """Return the lowest and highest place to show; an infinite bar ends there."""
    finite = [end for end in ends if math.isfinite(end)]
    largest = max(finite) or 1.0
    return min(0.0, *finite), largest * BEYOND if len(finite) < len(ends) else largest


def _subtract(one: float, other: float) -> float:
    return 0.0 if one == other else one - other  # of infinite ones too


def _read_terms(given: Any) -> Terms:
    """Return the terms of a decomposition, or of a dict of them."""
    get = given.get if isinstance(given, Mapping) else partial(getattr, given)
    found = [get(name, None) for name in NEEDED]
    missing = [name for name, value in zip(NEEDED, found, strict=True) if value is None]
    if missing:
        raise TypeError(
            f"decomposition is {given!r}, which has no {missing[0]}: pass the result of rc.decompose"
        )
    bad = [name for name, value in zip(NEEDED, found, strict=True) if math.isnan(value)]
    if bad:
        raise ValueError(f"the {bad[0]} of a decomposition is NaN: there is nothing to draw")
    risk, refinement, uncertainty = map(float, found)
    least = get("irreducible", None)
    least = None if least is None or math.isnan(least) else float(least)
    return Terms(risk, refinement, uncertainty, str(get("loss", None) or "log"), least)
