"""What the comparisons of trainings on images mean, in sentences: for the report and for the terminal."""

from __future__ import annotations

import math

from refinecal.experiments.vision.analysis import METRIC_WORDS, Analysis, group_word
from refinecal.experiments.vision.intervals import Mean, PairedDifference
from refinecal.experiments.vision.results import Group

__all__ = [
    "chance",
    "describe_flat",
    "format_gap",
    "format_mean",
    "lead",
    "percent",
    "sentence",
    "signed",
]

DECIMALS = 3  # of the paper's tables
GAP_DECIMALS = 4  # of differences, which are small
MOST_DECIMALS = 4  # of percents that would be 0.0 with fewer


def format_mean(found: Mean, score: str = "log_loss", digits: int = DECIMALS) -> str:
    """Return a mean with half its interval, as the paper prints it.

    >>> format_mean(Mean(10, 0.1541, 0.0049)), format_mean(Mean(10, 0.951, 0.002), "accuracy")
    ('0.154 ± 0.005', '95.1 % ± 0.2')
    >>> format_mean(Mean(1, 0.1541, float("nan"))), format_mean(Mean(0, float("nan"), float("nan")))
    ('0.154', '')
    """
    if not math.isfinite(found.mean):
        return "" if math.isnan(found.mean) else "∞"
    if score == "accuracy":
        text, half = f"{100 * found.mean:.{digits - 2}f} %", f"{100 * found.half:.{digits - 2}f}"
    else:
        text, half = f"{found.mean:.{digits}f}", f"{found.half:.{digits}f}"
    return text + (f" ± {half}" if math.isfinite(found.half) else "")


def format_gap(
    found: Mean | PairedDifference, score: str = "log_loss", digits: int = GAP_DECIMALS
) -> str:
    """Return a difference with its sign and half its interval; that of accuracy in percentage points.

    >>> format_gap(Mean(10, -0.00312, 0.001)), format_gap(Mean(10, 0.002, 0.0011), "accuracy")
    ('−0.0031 ± 0.0010', '+0.20 ± 0.11')
    >>> format_gap(Mean(1, 0.0, math.nan))
    '0.0000'
    """
    if not math.isfinite(found.mean):
        return "" if math.isnan(found.mean) else "∞" if found.mean > 0 else "−∞"
    scale, digits = (100.0, digits - 2) if score == "accuracy" else (1.0, digits)
    text = signed(scale * found.mean, digits)
    return text + (f" ± {scale * found.half:.{digits}f}" if math.isfinite(found.half) else "")


def signed(value: float, digits: int) -> str:
    """Return a number with its sign; never minus 0."""
    rounded = round(value, digits) + 0.0
    return (f"{rounded:+.{digits}f}" if rounded else f"{rounded:.{digits}f}").replace("-", "−")


def percent(value: float) -> str:
    """Return percents with one decimal, or as many as a small number needs not to be 0.

    >>> percent(-2.04), percent(0.032), percent(0.0), percent(1e-9)
    ('−2.0 %', '+0.03 %', '0.0 %', '0.0000 %')
    """
    return f"{signed(value, _decimals(value))} %"


def _decimals(value: float) -> int:
    return next((n for n in range(1, MOST_DECIMALS) if not value or round(value, n)), MOST_DECIMALS)


def sentence(analysis: Analysis, group: Group) -> str:
    """Say how stopping by refinement compares with log loss in one group."""
    found = analysis.headlines[group]
    loss = analysis.relative_headline(group)
    runs = "1 run" if found.runs == 1 else f"{found.runs} runs"
    said = (
        f"{group_word(group)}, over {runs}: {format_gap(found)} in test log loss ({percent(loss)}), lower in "
        f"{found.lower}, equal in {found.equal}, higher in {found.higher}"
    )
    return f"{said}. {VERDICTS[found.verdict]}"


def chance(p: float) -> str:
    """Return a p-value in few letters.

    >>> chance(0.0317), chance(1e-9), chance(float("nan"))
    ('0.032', '< 0.001', '')
    """
    return "" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


VERDICTS = {
    "lower": "Refinement chose better, beyond what seeds change.",
    "higher": "Refinement chose worse, beyond what seeds change.",
    "within noise": "The difference is within what seeds change.",
    "equal": "Both chose equally good epochs.",
    "too few runs": "One run cannot tell what another seed would change.",
}


def lead(analysis: Analysis) -> str:
    """Say in a sentence what stopping by refinement instead of log loss changed."""
    found = analysis.headlines
    if not found:
        return "Log loss and refinement were not both tracked, so they cannot be compared."
    if len(found) == 1:
        (group,) = found
        return (
            f"{group_word(group)}: {_lead_of_one(found[group], analysis.relative_headline(group))}"
        )
    return _lead_of_several(list(found.values()))


def _lead_of_one(found: PairedDifference, loss: float) -> str:
    start, what = (
        "stopping by refinement instead of log loss",
        "test log loss after temperature scaling",
    )
    if not loss:
        return f"{start} left the {what} as it was."
    if not round(loss, MOST_DECIMALS):
        least = f"{10.0**-MOST_DECIMALS:.{MOST_DECIMALS}f}"
        return f"{start} left the {what} as it was (to {least} %). {VERDICTS[found.verdict]}"
    way = "lowered" if loss < 0 else "raised"
    size = f"{abs(loss):.{_decimals(loss)}f}"
    return f"{start} {way} the {what} by {size} %. {VERDICTS[found.verdict]}"


def _lead_of_several(found: list[PairedDifference]) -> str:
    start, total = "Stopping by refinement instead of log loss", len(found)
    equal = sum(each.equal == each.runs for each in found)
    if equal == total:
        return f"{start} left the test log loss as it was in all {total} comparisons."
    verdicts = [each.verdict for each in found]
    lower, higher = verdicts.count("lower"), verdicts.count("higher")
    rest = {"undecided": total - lower - higher - equal, "equal": equal}
    others = [f"{n} {'is' if n == 1 else 'are'} {word}" for word, n in rest.items() if n]
    said = f"; {' and '.join(others)}" if others else ""
    return (
        f"{start} lowered the test log loss, beyond what seeds change, in {lower or 'none'} of {total} "
        f"comparisons, and raised it in {higher or 'none'}{said}."
    )


def describe_flat(analysis: Analysis) -> list[str]:
    """Say where the best temperature is infinite, so that nothing of the predictions is left after TS."""
    said = []
    for group in analysis.groups:
        trainings = analysis.results.of(group)
        alike: dict[tuple[int, ...], list[str]] = {}  # metrics, by the seeds in which it is so
        for metric in analysis.metrics(group):
            seeds = tuple(each.key.seed for each in trainings if each.is_flat(metric))
            alike.setdefault(seeds, []).append(METRIC_WORDS[metric])
        said += [
            f"In {len(seeds)} of {len(trainings)} training{'s' * (len(trainings) > 1)} of "
            f"{group_word(group)} the best temperature is infinite at the epoch that {_join_names(names)} "
            "chose: after TS all classes are equally likely there."
            for seeds, names in alike.items()
            if seeds
        ]
    return said


def _join_names(names: list[str]) -> str:
    """Return names as people list them.

    >>> _join_names(["log loss"]), _join_names(["log loss", "ECE", "AUROC"])
    ('log loss', 'log loss, ECE and AUROC')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
