"""Figures of the theory: curves along a regularization path (paper, figure 7), and heat maps (figure 8)."""

from __future__ import annotations  # so that help() shows types by name

from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal.plots import style
from refinecal.plots._steps import cut_above
from refinecal.plots.style import PALETTE, Floats
from refinecal.theory.curves import METHOD_NAMES, setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from refinecal.theory.asymptotics import Solution
    from refinecal.theory.curves import Minimisers
    from refinecal.theory.heatmaps import HeatMap
    from refinecal.theory.spectrum import Spectrum

NAMES = ("risk", "refinement", "calibration")
CAPTIONS: dict[Any, str] = {  # the paper's words
    (1.0, 5.0): "many informative features",
    (2.0, 2.0): "balanced",
    (5.0, 1.0): "few informative features",
}
TEXT = 0.015  # where lines begin, as a part of the width of the axes
TALLER = 1.9  # times the height of the lower panel, on the same scale
FARTHEST = 1.6  # times the smallest risk: larger losses at the other minima are cut off
NARROW_LAW = 1e-3  # a law of smaller relative width is drawn as one eigenvalue
LONGEST = 62  # characters of the line below a narrow figure
MOST_LABELS = 14  # tick labels of an axis
GAINS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 50, 80)  # possible ticks, in percent
WIDEST_GAP = 6.0  # powers of ten at the ends of the colours
PALE = "#f2f2f2"  # no gap, no gain
SMALL, LABEL = 8.0, 9.5  # font sizes in points: panels are small, the figure is not


# ---- a path ------------------------------------------------------------------------------------------------


def draw_path(figure: Figure, curve: Solution, best: Minimisers | None = None) -> list[Axes]:
    """Draw risk and refinement, and calibration below them, against λ; return both axes.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty one, which gets matplotlib's constrained layout.
    curve : Solution
        One problem at increasing λ, from :func:`refinecal.theory.path`.
    best : Minimisers, optional
        The minima of the same problem, which are marked, with the gain.
    """
    lams = np.ravel(curve.lam)
    if len(lams) != len(curve.lam):
        raise ValueError(
            f"curve has shape {curve.lam.shape}: draw one problem at a time, of shape (k,)"
        )
    figure.set_layout_engine("constrained")
    loss = curve.loss if isinstance(curve.loss, str) else curve.loss.name
    values = {name: np.ravel(getattr(curve, name)) for name in NAMES}
    low, high = _heights(lams, values, best)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[TALLER, 1])
    for ax in (top, bottom):
        style.dress(ax)
        ax.set_ylabel(style.loss_name(loss))
    for name in NAMES:
        ax = bottom if name == "calibration" else top
        ax.plot(lams, values[name], color=PALETTE[name], linewidth=1.8, zorder=3)
    _set_strengths(bottom, lams)
    _set_losses(top, low, high, style.lines_of(top, 2.8))
    _set_losses(bottom, 0.0, (high - low) / TALLER, style.lines_of(bottom, 1.6))
    for ax, names in ((top, NAMES[:2]), (bottom, NAMES[2:])):
        for place, name in enumerate(names):
            text = name if best is None else _describe_minimum(best, name, lams)
            style.write_line(ax, place, text, name, x=TEXT)
    if best is not None:
        _mark(top, bottom, best, values)
    about = setting(curve)
    if style.is_narrow(top) and len(about) > LONGEST:
        about = "\n".join(about.rsplit(", spectrum: ", 1))
    figure.supxlabel(about, fontsize=SMALL, color=PALETTE["axis"])
    return [top, bottom]


def _heights(
    lams: Floats, values: dict[str, Floats], best: Minimisers | None
) -> tuple[float, float]:
    """Return the limits of the upper panel, which include the minima, and risk and calibration at each."""
    risk, least = float(values["risk"].min()), float(values["refinement"].min())
    if best is not None:  # which may be outside, to the left or right
        risk = min(risk, best.by_risk.risk.item())
        least = min(least, best.by_refinement.refinement.item())
    room = max(5 * (risk - least), 0.3 * risk)
    for found in () if best is None else (best.by_risk, best.by_calibration, best.by_refinement):
        reached, part = found.risk.item(), found.calibration.item()
        if lams[0] <= found.lam.item() <= lams[-1] and reached <= FARTHEST * risk:
            span = 1.1 * TALLER * part  # of the upper panel, if this is in the lower
            room = max(room, 1.1 * (reached - least), span / 1.15, span - least)
    return max(least - 0.15 * room, 0.0), least + room


def _set_losses(ax: Axes, low: float, high: float, above: float) -> None:
    """Lay out the axis of the loss, with room for text above the curves."""
    start = low - 0.05 * (high - low)
    ax.set_ylim(start, start + (high - start) / (1 - above))
    ax.set_yticks(style.round_ticks(low, high, 5))
    ax.spines["left"].set_bounds(start, high)
    cut_above(ax, ax.lines, more=0.0)


def _set_strengths(ax: Axes, lams: Floats) -> None:
    """Lay out the axis of λ: ticks at powers of ten, or at round numbers if these are few."""
    ax.set_xscale("log")
    ax.set_xlim(lams[0], lams[-1])
    powers = style.log_ticks(lams[0], lams[-1], [1])
    most = 5 if style.is_narrow(ax) else 9
    if len(powers) > 2:
        ax.set_xticks(powers[:: -(-len(powers) // most)])
    else:
        nice = style.log_ticks(lams[0], lams[-1])
        nice = nice if len(nice) > 1 else lams[[0, -1]]
        ax.set_xticks(nice, [format_lam(float(lam)) for lam in nice])
    ax.minorticks_off()
    ax.set_xlabel("regularization strength λ")


def _mark(top: Axes, bottom: Axes, best: Minimisers, values: dict[str, Floats]) -> None:
    """Mark the three minima: hollow where a curve still decreases, an arrow if outside the figure."""
    left, right = top.get_xlim()
    for name in NAMES:
        ax = bottom if name == "calibration" else top
        found = getattr(best, f"by_{name}")
        x, y = found.lam.item(), getattr(found, name).item()
        shape = "<" if x < left else ">" if x > right else "o"
        thin: Any = {"color": PALETTE[name], "linewidth": 0.8, "linestyle": (0, (4, 3))}
        if ax is top:
            ax.plot([max(x, left) if x <= right else left, right], [y, y], zorder=1, **thin)
        if ax is top and shape == "o":
            bottom.axvline(x, ymax=1 - style.lines_of(bottom, 1.6), zorder=1, **thin)
        fill = PALETTE["paper" if getattr(best, f"at_bound_{name}").item() else name]
        dot: Any = {"color": PALETTE[name], "markerfacecolor": fill, "clip_on": False}
        if shape != "o":  # where the curve leaves the figure
            x, y = (left, values[name][0]) if shape == "<" else (right, values[name][-1])
        ax.plot(x, min(y, _end(ax)), shape, markersize=7, zorder=4, **dot)
    _mark_at_refinement(top, bottom, best)
    gain = round(100 * float(np.asarray(best.gain).item()), 1) + 0.0  # never minus 0
    text = f"chosen by refinement, then calibrated: {gain:.1f}% below the smallest risk"
    style.write_line(top, 2, text, x=TEXT)


def _mark_at_refinement(top: Axes, bottom: Axes, best: Minimisers) -> None:
    """Mark risk and calibration at the minimum of refinement, if it is in the figure."""
    found = best.by_refinement
    x, low = found.lam.item(), found.refinement.item()
    left, right = top.get_xlim()
    if not left <= x <= right:
        return
    thin: Any = {"color": PALETTE["refinement"], "linewidth": 0.8, "linestyle": (0, (4, 3))}
    top.plot([x, x], [low, min(found.risk.item(), _end(top))], zorder=1, **thin)
    for ax, name in ((top, "risk"), (bottom, "calibration")):
        y = getattr(found, name).item()
        if y <= _end(ax):
            ax.plot(x, y, ".", markersize=8, color=PALETTE[name], zorder=4)


def _end(ax: Axes) -> float:
    """Return where the axis of the loss ends, below the text."""
    bounds: Any = ax.spines["left"].get_bounds()
    return float(bounds[1])


def _describe_minimum(best: Minimisers, name: str, lams: Floats) -> str:
    found, at_refinement = getattr(best, f"by_{name}"), best.by_refinement
    value, lam = getattr(found, name).item(), found.lam.item()
    where = " at λ = " + format_lam(lam)
    if getattr(best, f"at_bound_{name}").item():
        where = ", still decreasing as λ " + ("→ 0" if lam <= best.lam_range[0] else "→ ∞")
    elif not lams[0] <= lam <= lams[-1]:
        where += f", {'left' if lam < lams[0] else 'right'} of this figure"
    if best.at_bound_refinement.item() or name == "risk":
        return f"{name}: min {style.format_loss(value)}{where}"
    more = f", where the risk is {style.format_loss(at_refinement.risk.item())}"
    if name == "calibration":
        more = (
            f"; {style.format_loss(at_refinement.calibration.item())} where refinement is smallest"
        )
    return f"{name}: min {style.format_loss(value)}{where}{more}"


def format_lam(lam: float) -> str:
    """Return λ with two or three digits, and a power of ten if it is very small or large.

    >>> format_lam(0.05312), format_lam(3.2e-6)
    ('0.0531', '3.2·10⁻⁶')
    """
    if 1e-4 <= lam < 1e4:
        return f"{lam:.3g}"
    digits, power = f"{lam:.1e}".split("e")
    return f"{digits}·10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


# ---- heat maps ---------------------------------------------------------------------------------------------


def draw_heatmaps(figure: Figure, maps: HeatMap) -> dict[str, list[Axes]]:
    """Draw a column for each spectrum: its density, the gap between the minima, and the gain.

    ``figure`` is empty, about 10 by 8 inches for three spectra, and gets matplotlib's constrained layout.
    Returns the axes by row, "spectrum", "gap" and "gain", from left to right.
    """
    figure.set_layout_engine("constrained")
    count = len(maps.spectra)
    grid = figure.subplots(3, count, squeeze=False, height_ratios=[0.55, 1, 1])
    rows = dict(zip(("spectrum", "gap", "gain"), (list(row) for row in grid), strict=True))
    for ax in grid.ravel():
        style.dress(ax, (SMALL, SMALL))
    for place, (ax, law) in enumerate(zip(rows["spectrum"], maps.spectra, strict=True)):
        _draw_spectrum(ax, law, first=place == 0)
    gap, gain = maps.grid("log10_gap"), 100 * maps.grid("gain")
    bounds = maps.grid("at_bound_refinement") | maps.grid("at_bound_calibration")
    looks = {"gap": _gap_look(gap[~bounds]), "gain": _gain_look(gain)}
    meshes = {}
    for place in range(count):
        for name, values in (("gap", gap), ("gain", gain)):
            ax = rows[name][place]
            cells: Any = {"edgecolors": PALETTE["paper"], "linewidth": 0.3}
            meshes[name] = ax.pcolormesh(values[place], **cells, **looks[name])
            _label_cells(ax, maps.ratios, maps.bayes_errors)
            ax.tick_params(labelleft=place == 0, labelbottom=name == "gain")
        y, x = np.nonzero(bounds[place])  # cells whose gap has no end
        dot: Any = {"color": PALETTE["paper"], "markersize": 3.5, "linestyle": "none"}
        rows["gap"][place].plot(x + 0.5, y + 0.5, ".", **dot)
    for name in looks:
        rows[name][0].set_ylabel("Bayes error", fontsize=LABEL)
    for ax in rows["gain"]:
        ax.set_xlabel("features per row, p / n")
    about = f"{METHOD_NAMES[maps.method]}, {style.loss_name(maps.loss)}"
    if bounds.any():
        about += (
            "\nWhite dots: a curve still decreases at an end of the λ range; the gap is unbounded."
        )
    figure.supxlabel(about, fontsize=SMALL, color=PALETTE["axis"])
    _colour_bars(figure, rows, meshes)
    return rows


def _draw_spectrum(ax: Axes, law: Spectrum, first: bool) -> None:
    """Draw the density of a law, or its eigenvalues as bars."""
    low, high = float(law.nodes[0]), float(law.nodes[-1])
    is_point = high - low < NARROW_LAW * high
    margin = 0.5 * high if is_point else 0.04 * (high - low)
    sigma = np.linspace(low, high, 400)
    density = None if is_point else law.density(sigma)
    if density is None:
        nodes, shares = (high, 1.0) if is_point else (law.nodes, law.weights / law.weights.max())
        ax.vlines(nodes, 0, shares, color=PALETTE["before"], linewidth=2)
        top, name = 1.0, "share"
    else:
        ax.plot(sigma, density, color=PALETTE["before"], linewidth=1.5)
        ax.fill_between(sigma, density, **style.tint("before", 0.18))
        top = float(np.quantile(density, 0.99))  # some laws have poles at their ends
        name = "density"
    ax.set_xlim(low - margin, high + margin)
    ax.set_ylim(0, 1.12 * top)
    if is_point:
        ax.set_xticks([high], [f"{high:.4g}"])
    else:
        ax.set_xticks(style.round_ticks(low, high, 5, margin, steps=[1, 2, 5, 10]))
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    caption = CAPTIONS.get((getattr(law, "shape_a", None), getattr(law, "shape_b", None)))
    style.write_title(ax, f"{caption}\n{law.label}" if caption else law.label, LABEL)
    ax.set_xlabel("eigenvalue of the covariance")
    if first:
        ax.set_ylabel(name, fontsize=LABEL)


def _label_cells(ax: Axes, ratios: Floats, errors: Floats) -> None:
    """Label the cells: round ratios on their scale, and every error rate if there is room."""
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=2)
    if len(ratios) > 8 and (np.diff(ratios) > 0).all():
        nice = style.log_ticks(ratios[0], ratios[-1])
        places = np.interp(np.log(nice), np.log(ratios), np.arange(len(ratios)))
    else:
        nice, places = ratios, np.arange(len(ratios), dtype=float)
    ax.set_xticks(places + 0.5, [f"{ratio:.3g}" for ratio in nice])
    step = -(-len(errors) // MOST_LABELS)
    ax.set_yticks(
        np.arange(len(errors))[::step] + 0.5, [f"{100 * each:.3g}%" for each in errors[::step]]
    )


def _colour_bars(figure: Figure, rows: dict[str, list[Axes]], meshes: dict[str, Any]) -> None:
    """Add colour bars for both rows, with the meaning of the sign of the gap."""
    gap = figure.colorbar(
        meshes["gap"], ax=rows["gap"], aspect=13, pad=0.02, extend="both", shrink=0.72
    )
    gap.set_label("log₁₀ of the best λ for calibration\nover that for refinement")
    widest = meshes["gap"].norm.vmax
    gap.set_ticks(style.round_ticks(-widest, widest, 7, steps=[1, 2, 5, 10], symmetric=True))
    words: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    words |= {"fontsize": SMALL, "color": PALETTE["text"]}
    first = "calibration\nsmallest first,\nas λ decreases"
    gap.ax.annotate(first, (0, 1), xytext=(0, 15), va="bottom", **words)
    gap.ax.annotate("refinement\nsmallest first", (0, 0), xytext=(0, -15), va="top", **words)
    gain = figure.colorbar(meshes["gain"], ax=rows["gain"], aspect=17, pad=0.02, shrink=0.94)
    gain.set_label("loss saved by choosing by refinement,\nthen calibrating (%)")
    most = meshes["gain"].norm.vmax
    gain.set_ticks([0, *(tick for tick in GAINS if 0.01 * most <= tick <= most)])
    gain.minorticks_off()
    for bar in (gap, gain):
        bar.outline.set_visible(False)
        style.dress(bar.ax, (SMALL, SMALL))


def _gap_look(gap: Floats) -> dict[str, Any]:
    """Return colours: orange if refinement is smallest first, blue if calibration is.

    They are symmetric about 0, and span the widest finite gap.
    """
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    ends = [PALETTE[name] for name in ("refinement", "calibration")]
    colours = [darker(ends[0], 0.55), ends[0], PALE, ends[1], darker(ends[1], 0.55)]
    widest = min(float(np.abs(gap).max()), WIDEST_GAP) if gap.size else WIDEST_GAP
    widest = float(np.ceil(widest)) if widest > 1 else widest or 1.0
    scale = LinearSegmentedColormap.from_list("gap", colours, N=257)  # one in the middle
    return {"cmap": scale, "norm": Normalize(-widest, widest)}


def _gain_look(gain: Floats) -> dict[str, Any]:
    """Return greens on a square-root scale, since most gains are far below the largest."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    green = PALETTE["risk"]
    scale = LinearSegmentedColormap.from_list("gain", [PALE, green, darker(green, 0.35)])
    return {"cmap": scale, "norm": PowerNorm(0.5, 0.0, max(float(gain.max()), 1e-3))}


def darker(colour: str, part: float) -> str:
    """Return a darker colour, with a fraction of its light.

    >>> darker("#ff8000", 0.5)
    '#804000'
    """
    light = (round(part * int(colour[place : place + 2], 16)) for place in (1, 3, 5))
    return "#" + "".join(f"{each:02x}" for each in light)
