"""What a fit is worth: test losses of the ways to stop, how sure the difference is, and what to do next."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from refinecal._core.format import number as grouped
from refinecal.calibrators import AutoCalibrator
from refinecal.evaluation import Difference, Evaluation, evaluate, paired_difference, row_losses
from refinecal.tabular.fitting import CHOSEN_BY, TRACKED, Fit, Selection

NOTICEABLE = 0.1  # of the risk: calibration error that is worth a word
SMALL = 0.0005  # a change that is none
FEW_ROWS = 100


@dataclass(frozen=True, slots=True)
class JudgedSelection:
    """One way to choose the step, judged on the test rows before and after calibration."""

    metric: str
    candidate: int
    steps: list[int]
    validation: float
    before: float
    after: float
    difference: Difference  # per row: ours, minus this before calibration
    difference_after: Difference  # and after

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {
            "metric": self.metric,
            "candidate": self.candidate,
            "steps": self.steps,
            "validation": self.validation,
            "test_log_loss_before_calibration": self.before,
            "test_log_loss_after_calibration": self.after,
            "difference_before_calibration": self.difference.to_dict(),
            "difference_after_calibration": self.difference_after.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the things that lower the loss, on top of those before it."""

    name: str
    steps: list[int] | None  # where they change
    loss: float
    change: Difference | None  # per row: this minus the stage before

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        change = None if self.change is None else self.change.to_dict()
        return {"name": self.name, "log_loss": self.loss, "change": change}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A fit, judged by its test rows.

    Attributes
    ----------
    ours : Evaluation
        Chosen by refinement, then calibrated and averaged.
    uncalibrated : Evaluation
        The mean of the same models before calibration.
    by_loss : Evaluation
        The mean of models stopped and chosen by log loss, not calibrated: plain averaging.
    level : Difference
        The log loss of ours, with its error.
    change : Difference or None
        How training on all rows changes the loss of validation rows, if that is known.
    expected : Difference
        The log loss to expect of what is delivered, with its error: that of ours, plus the change.
    stages : list of Stage
        From one model that is stopped on log loss to ours, one thing at a time.
    log, brier : Difference
        Per row, ours minus one model that is stopped on log loss.
    ways : dict
        By metric, what choosing by it leads to.
    """

    ours: Evaluation
    uncalibrated: Evaluation
    by_loss: Evaluation
    level: Difference
    change: Difference | None
    expected: Difference
    stages: list[Stage]
    log: Difference
    brier: Difference
    ways: dict[str, JudgedSelection]

    @property
    def usual(self) -> float:
        """The log loss of one model that is stopped on log loss, neither averaged nor calibrated."""
        return self.stages[0].loss

    @property
    def gain(self) -> float:
        """By what part of the usual log loss ours is lower."""
        return -self.log.mean / self.usual if self.usual > 0 else 0.0

    @property
    def by_refinement(self) -> Difference:
        """Per row, choosing by refinement minus choosing by log loss, all else alike."""
        change = self.stages[-1].change
        assert change is not None, "it is not the first"
        return change

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers."""
        return {
            "refine_then_calibrate": self.ours.to_dict(),
            "log_loss": self.level.to_dict(),
            "expected_log_loss": self.expected.to_dict(),
            "before_calibration": self.uncalibrated.to_dict(),
            "by_validation_loss": self.by_loss.to_dict(),
            "relative_gain": self.gain,
            "difference_log_loss": self.log.to_dict(),
            "difference_brier": self.brier.to_dict(),
            "stages": [stage.to_dict() for stage in self.stages],
            "stopping": [way.to_dict() for way in self.ways.values()],
        }


def judge(fit: Fit) -> Judgement | None:
    """Return what the test rows say of a fit; ``None`` if there are none."""
    test = fit.data.test
    if test is None:
        return None
    columns = range(fit.data.k)
    about: dict[str, Any] = {"sample_weight": test.weights, "groups": test.groups}
    names: dict[str, Any] = {
        "sample_weight": test.weights,
        "classes": columns,
        "names": fit.data.schema.classes,
    }
    ours, usual = fit.chosen.after, fit.usual
    log = row_losses(test.y, ours, classes=columns)
    brier = row_losses(test.y, ours, loss="brier", classes=columns)

    def way(outcome: Selection) -> JudgedSelection:
        before, after = (
            row_losses(test.y, probs, classes=columns) for probs in (outcome.before, outcome.after)
        )
        return JudgedSelection(
            outcome.metric,
            outcome.candidate,
            outcome.steps,
            outcome.value,
            paired_difference(before, 0 * log, test.weights).mean,
            paired_difference(after, 0 * log, test.weights).mean,
            paired_difference(log, before, **about),
            paired_difference(log, after, **about),
        )

    level, change = paired_difference(log, 0 * log, **about), fit.change_with_all_rows
    return Judgement(
        evaluate(test.y, ours, **names),
        evaluate(test.y, fit.chosen.before, **names),
        evaluate(test.y, usual.before, **names),
        level,
        change,
        _expected_loss(level, change),
        _stages(fit, log, about),
        paired_difference(log, usual.single["log"], **about),
        paired_difference(brier, usual.single["brier"], **about),
        {name: way(outcome) for name, outcome in fit.outcomes.items()},
    )


def _expected_loss(level: Difference, change: Difference | None) -> Difference:
    """Return the loss of the delivered models: the test loss and its change, whose errors are independent."""
    if change is None:
        return level
    mean = max(level.mean + change.mean, 0.0)
    error = math.hypot(level.standard_error, change.standard_error)
    half = math.hypot(level.high - level.mean, change.high - change.mean)
    return replace(level, mean=mean, standard_error=error, low=mean - half, high=mean + half)


def _stages(fit: Fit, ours: Any, about: dict[str, Any]) -> list[Stage]:
    """Return the way from one model to the average that is calibrated and chosen by refinement."""
    usual, test = fit.usual, fit.data.test
    assert test is not None, "it was judged by them"
    means, calibrated = (
        row_losses(test.y, probs, classes=range(fit.data.k))
        for probs in (usual.before, usual.after)
    )
    m = len(fit.units)
    single = "one model, stopped on log loss" + f" (mean of {m})" * (m > 1)
    found: list[tuple[str, list[int] | None, Any]] = [
        (single, usual.steps, usual.single["log"]),
        (f"average of {m}", None, means),
        ("calibrated", None, calibrated),
        ("chosen by refinement", fit.chosen.steps, ours),
    ]
    if m == 1:
        del found[1]
    stages: list[Stage] = []
    for number, (name, steps, losses) in enumerate(found):
        change = paired_difference(losses, found[number - 1][2], **about) if number else None
        loss = paired_difference(losses, 0 * losses, test.weights).mean
        stages.append(Stage(name, steps, loss, change))
    return stages


# ---- in words ----------------------------------------------------------------------------------------------


def lead(judged: Judgement) -> str:
    """Return in one sentence what was gained."""
    found, usual = with_error(judged.level), judged.usual
    where = f"On {grouped(judged.ours.n)} test rows"
    if not math.isfinite(usual):
        return (
            f"{where} the log loss is {found}; one model stopped on validation loss would have called "
            "something impossible that happened."
        )
    change = f"{abs(judged.gain):.1%} {'lower' if judged.gain > 0 else 'higher'} than"
    doubt = "" if judged.log.is_sure else ", which may be chance"
    if abs(judged.gain) < SMALL:
        change, doubt = "about the same as", ""
    versus = f"{change} that of one model stopped on validation loss ({usual:.4f})"
    return f"{where} the log loss is {found}, {versus}{doubt}."


def with_error(difference: Difference, sign: str = "") -> str:
    """Return a mean and its standard error, such as "0.4580 ± 0.0100"."""
    return f"{difference.mean:{sign}.4f} ± {difference.standard_error:.4f}"


def describe_certainty(judged: Judgement) -> str:
    """Return how sure the gain is, and what choosing by refinement has to do with it."""
    total, chosen = judged.log, judged.by_refinement
    if not math.isfinite(total.mean) or math.isnan(total.standard_error):
        return (
            "The difference cannot be given an error: a loss is infinite, or there is one test row."
        )
    if total.is_sure:
        verdict = "more than chance would explain" if total.mean < 0 else "a loss, beyond chance"
    else:
        verdict = "within what chance explains; more test rows would tell"
    gap = f"{-total.mean:+.4f} ± {total.standard_error:.4f}"
    part = f"{abs(chosen.mean):.4f} ± {chosen.standard_error:.4f}"
    outcome = f"gained {part} of it" if chosen.mean < 0 else f"cost {part}"
    rest = f"Choosing by refinement rather than by log loss {outcome}"
    if chosen.mean == 0:
        rest = "Refinement and log loss chose the same"
    elif not chosen.is_sure:
        rest += ", within noise"
    return f"Gain in log loss: {gap} (± is the standard error over test rows): {verdict}. {rest}."


def describe_delivered(fit: Fit, judged: Judgement | None) -> str:
    """Say which rows the delivered models have seen, and what to expect of them."""
    data, m = fit.data, len(fit.delivered)
    n, total = data.n_delivered, data.n_used
    rows = f"all {grouped(n)} rows" if n == total else f"{grouped(n)} of {grouped(total)} rows"
    text = f"Delivered: one model trained on {rows}"
    if m > 1:
        part = f"{1 - 1 / data.delivered.n_first:.0%} of " * (data.delivered.n_first > 1)
        text = f"Delivered: the average of {m} models, each trained on {part}{rows}"
    if data.everything is None or judged is None:
        return f"{text}{'' if data.test is None else ', none of them test rows'}."
    text += ", test rows included. The test loss is that of "
    text += f"{len(fit.units)} models that had" if len(fit.units) > 1 else "a model that had"
    text += " not seen the test rows."
    if judged.change is None:
        return text
    return (
        f"{text} On rows held out in both passes, training on all rows changed the loss by "
        f"{with_error(judged.change, '+')}, so expect a loss of about {with_error(judged.expected)}."
    )


def describe_calibration(fit: Fit) -> str:
    """Say what calibrates the delivered models, and how much sharper their average is made."""
    found, beta = fit.ensemble.calibrator, fit.ensemble.beta
    how = f"Calibrated by {fit.options.calibrator}"
    if isinstance(found, AutoCalibrator):
        shares = [(score.name, score.weight) for score in found.scores() if score.weight >= 0.005]
        listed = ", ".join(f"{weight:.0%} {name}" for name, weight in shares)
        how = f"Calibrated by a blend of {listed} (weights by cross-validation)"
        if len(shares) == 1:
            how = f"Calibrated by {shares[0][0]}, which cross-validation chose"
    elif hasattr(found, "temperature_"):
        how = f"Calibrated by temperature scaling: temperature {min(found.temperature_, 1e9):.3g}"
    if len(fit.delivered) == 1:
        return f"{how}."
    if beta is None:
        return f"{how}; the models are averaged on the scale of log-odds."
    if beta < 1.005:
        return f"{how}; the models agree, so their average needs no correction."
    return (
        f"{how}. Averaging makes probabilities too cautious, so the log-odds of the average, relative to the "
        f"class frequencies, are multiplied by {beta:.2f} (estimated from how far the models differ)."
    )


def recommend(fit: Fit, judged: Judgement) -> list[str]:
    """Return advice that the numbers support."""
    ours, before, advice = judged.ours.log, judged.uncalibrated.log, []
    if judged.ours.n < FEW_ROWS:
        advice.append(
            f"With only {judged.ours.n} test rows, take every number here with a pinch of salt."
        )
    if judged.gain < 0 and judged.log.is_sure:
        advice.append(
            "Here one model stopped on validation loss did better. With few rows, --calibrator temperature "
            "has less to learn."
        )
    elif (
        before.calibration > NOTICEABLE * before.risk
        and ours.risk < before.risk
        and before.beta is not None
    ):
        how = "overconfident" if before.beta < 1 else "underconfident"
        advice.append(
            f"Use the calibrated probabilities, not the model's own: those are {how} "
            f"({before.calibration / before.risk:.0%} of their loss is calibration error)."
        )
    if ours.risk > 0.95 * ours.uncertainty:
        how = "worse than" if ours.risk > ours.uncertainty else "hardly better than"
        advice.append(
            f"The features say little about the target: the model is {how} the class frequencies. Other "
            "features will help more than another model."
        )
    if fit.hit_the_end:
        advice.append(
            f"The best {fit.model.step_name} is the last of {fit.max_steps}: allow more with --max-steps."
        )
    if len(fit.candidates) == 1 and fit.options.model != "logistic":
        advice.append("Try --tune 30: refinement then chooses among 30 configurations.")
    return advice


def name_of(metric: str) -> str:
    """Return a metric's name for people."""
    names = {"log_loss": "log loss", "brier": "Brier score", "auroc": "AUROC"}
    return names.get(metric, metric)


def sort_metrics(judged: Judgement) -> list[JudgedSelection]:
    """Return the ways to choose, ours first, then as tracked."""
    return [judged.ways[name] for name in (CHOSEN_BY, *TRACKED) if name in judged.ways]
