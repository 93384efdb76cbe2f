"""A predicted gain in words: what to expect, how sure that is, and whether it can be said at all."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

WORTHWHILE = 0.01  # of the log loss
SMALLEST = 5e-5  # of the log loss, which is shown as 0.01 %
CHOSEN = "with few held-out rows, the noise of choosing C and of calibrating can eat the gain"

Ends = tuple[float, float]


def headline(
    gain: float, ends: Ends, level: float, losses: tuple[float, float], reasons: Sequence[str]
) -> str:
    """Return the answer; ``losses`` are by refinement and by loss, ``reasons`` why not to believe it."""
    said = expected(gain, ends, level, losses)
    if reasons:
        why = "; ".join(reasons)
        return (
            f"For these data it cannot be said whether it pays: {why}. The theory's guess: {said}."
        )
    return f"{verdict(gain, ends, losses)}: expect {said}."


def verdict(gain: float, ends: Ends, losses: tuple[float, float]) -> str:
    """Say whether it pays, as far as the interval is known."""
    low, high = (gain, gain) if isnan(ends[0]) else ends
    if low >= WORTHWHILE:
        return "It pays"
    if high >= WORTHWHILE:
        return "It may pay"
    return "It will not matter" if are_alike(losses) else "It hardly pays"


def expected(gain: float, ends: Ends, level: float, losses: tuple[float, float]) -> str:
    """Say how much less log loss there will be."""
    ours, usual = map(digits, losses)
    if are_alike(losses):
        sure = interval(ends, level, " less")
        return (
            f"no difference in four digits{sure} between choosing C by refinement, then calibrating, and "
            f"choosing it by loss: log loss {usual} either way"
        )
    much = f"about {percent(gain)} %" if gain >= SMALLEST else "less than 0.01 %"
    return (
        f"{much} less log loss{interval(ends, level)} from choosing C by refinement, then calibrating, than "
        f"from choosing it by loss: {ours} instead of {usual}"
    )


def are_alike(losses: tuple[float, float]) -> bool:
    """Tell whether two losses look the same."""
    return digits(losses[0]) == digits(losses[1])


def interval(ends: Ends, level: float, more: str = "") -> str:
    """Return an interval of parts in brackets, or nothing if it is not known.

    >>> interval((0.00001, 0.002), 0.9)
    ' (90 % interval: 0 to 0.2 %)'
    """
    if isnan(ends[0]):
        return ""
    low, high = map(percent, ends)
    between = "below 0.01 %" if high == "0" else f"{low} to {high} %"
    return f" ({100 * level:g} % interval: {between}{more})"


def percent(part: float) -> str:
    """Return a part in percent, with one digit or two.

    >>> percent(0.0783), percent(0.0004), percent(1e-7)
    ('7.8', '0.04', '0')
    """
    if part < SMALLEST:
        return "0"
    value = 100 * part
    return f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"


def digits(loss: float) -> str:
    """Return four digits of a loss.

    >>> digits(0.66666), digits(0.05)
    ('0.6667', '0.05000')
    """
    return f"{loss:#.4g}"


def span(ends: Ends) -> str:
    """Return the ends of an interval of strengths, or nothing.

    >>> span((0.0684, 2.789))
    '0.068 to 2.8'
    """
    return "" if isnan(ends[0]) else f"{ends[0]:.2g} to {ends[1]:.2g}"
