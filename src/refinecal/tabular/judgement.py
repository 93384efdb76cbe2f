"""How good a fit is: test losses by stopping metric, how certain the gain is, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal._core.format import (
    count,
    error_decimals,
    list_names,
    number,
    percent,
    with_error,
)
from refinecal.calibrators import AutoCalibrator
from refinecal.evaluation import Difference, Evaluation, evaluate, paired_difference, row_losses
from refinecal.evaluation.verdict import classify
from refinecal.tabular.fitting import Fit
from refinecal.training.pool import Pool

if TYPE_CHECKING:
    from refinecal.tabular.data import Leak

BY_REFINEMENT = "chosen by refinement"  # the name of a stage
NOTICEABLE = 0.1  # part of the risk: calibration error beyond chance that is worth mentioning
SMALL = 0.0005  # relative change that is not worth mentioning
FEW_ROWS = 100
METRIC_NAMES = {"log_loss": "log loss", "brier": "Brier score", "auroc": "AUROC"}  # for people


@dataclass(frozen=True, slots=True)
class JudgedSelection:
    """What choosing the step by one metric leads to on the test rows, before and after calibration."""

    metric: str
    candidate: int
    steps: list[int]
    validation: float
    before: float
    after: float
    difference: Difference  # per row: ours, minus this before calibration
    difference_after: Difference  # and after


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the steps that lower the loss, in addition to those before it."""

    name: str
    steps: list[int] | None  # of training, where they change
    loss: float
    change: Difference | None  # per row: this minus the stage before


@dataclass(frozen=True, slots=True)
class Judgement:
    """A fit, judged by its test rows."""

    ours: Evaluation  # chosen by refinement, then calibrated and averaged
    uncalibrated: Evaluation  # the mean of the same models before calibration
    by_loss: Evaluation  # the mean of models stopped and chosen by log loss, not calibrated
    level: Difference  # the log loss of ours, with its error
    change: Difference | None  # of the loss of validation rows by training on all rows, if known
    expected: Difference  # log loss of what is delivered: that of ours, plus the change
    stages: list[Stage]  # from one model stopped on log loss to ours, one step at a time
    log: Difference  # per row, ours minus one model stopped on log loss
    brier: Difference
    ways: dict[str, JudgedSelection]  # by metric, what choosing by it leads to

    @property
    def usual(self) -> float:
        """The log loss of one model stopped on log loss, neither averaged nor calibrated."""
        return self.stages[0].loss

    @property
    def gain(self) -> float:
        """The relative reduction of the usual log loss."""
        return -self.log.mean / self.usual if self.usual > 0 else 0.0

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
            "stages": [
                {
                    "name": stage.name,
                    "log_loss": stage.loss,
                    "change": None if stage.change is None else stage.change.to_dict(),
                }
                for stage in self.stages
            ],
            "stopping": [
                {
                    "metric": way.metric,
                    "candidate": way.candidate,
                    "steps": way.steps,
                    "validation": way.validation,
                    "test_log_loss_before_calibration": way.before,
                    "test_log_loss_after_calibration": way.after,
                    "difference_before_calibration": way.difference.to_dict(),
                    "difference_after_calibration": way.difference_after.to_dict(),
                }
                for way in self.ways.values()
            ],
        }


def judge(fit: Fit) -> Judgement | None:
    """Return how good a fit is on its test rows; ``None`` if there are none."""
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
    ours, usual = fit.final.after, fit.usual
    log = row_losses(test.y, ours, classes=columns)
    brier = row_losses(test.y, ours, loss="brier", classes=columns)
    chosen = log if fit.pooled is None else row_losses(test.y, fit.chosen.after, classes=columns)
    ways = {}
    for name, outcome in fit.outcomes.items():
        before, after = (
            row_losses(test.y, probs, classes=columns) for probs in (outcome.before, outcome.after)
        )
        ways[name] = JudgedSelection(
            name,
            outcome.candidate,
            outcome.steps,
            outcome.value,
            paired_difference(before, 0 * log, test.weights).mean,
            paired_difference(after, 0 * log, test.weights).mean,
            paired_difference(chosen, before, **about),
            paired_difference(chosen, after, **about),
        )
    level, change = paired_difference(log, 0 * log, **about), fit.change_with_all_rows
    return Judgement(
        evaluate(test.y, ours, **names),
        evaluate(test.y, fit.final.before, **names),
        evaluate(test.y, usual.before, **names),
        level,
        change,
        _expected_loss(level, change),
        _stages(fit, about),
        paired_difference(log, usual.single["log"], **about),
        paired_difference(brier, usual.single["brier"], **about),
        ways,
    )


def _expected_loss(level: Difference, change: Difference | None) -> Difference:
    """Return the loss of the delivered models: the test loss and its change, whose errors are independent."""
    if change is None:
        return level
    mean = max(level.mean + change.mean, 0.0)
    error = math.hypot(level.standard_error, change.standard_error)
    half = math.hypot(level.high - level.mean, change.high - change.mean)
    return replace(level, mean=mean, standard_error=error, low=mean - half, high=mean + half)


def _stages(fit: Fit, about: dict[str, Any]) -> list[Stage]:
    """Return the steps from one model to the calibrated average of models chosen by refinement."""
    usual, test = fit.usual, fit.data.test
    assert test is not None, "it was judged by them"
    means, calibrated, ours, pooled = (
        row_losses(test.y, probs, classes=range(fit.data.k))
        for probs in (usual.before, usual.after, fit.chosen.after, fit.final.after)
    )
    m = len(fit.units)
    single = "one model, stopped on log loss" + f" (mean of {m})" * (m > 1)
    found: list[tuple[str, list[int] | None, Any]] = [
        (single, usual.steps, usual.single["log"]),
        (f"average of {m}", None, means),
        ("calibrated", None, calibrated),
        (BY_REFINEMENT, fit.chosen.steps, ours),
    ]
    if fit.pooled is not None:
        found.append((f"ensemble of {len(fit.used)}", None, pooled))
    if m == 1:
        del found[1]
    stages: list[Stage] = []
    for place, (name, steps, losses) in enumerate(found):
        change = paired_difference(losses, found[place - 1][2], **about) if place else None
        loss = paired_difference(losses, 0 * losses, test.weights).mean
        stages.append(Stage(name, steps, loss, change))
    return stages


# ---- in words ----------------------------------------------------------------------------------------------

LEADS = {
    "infinite": "On {rows}, the log loss is {loss}. One model stopped on validation loss assigned "
    "probability 0 to an observed class.",
    "same": "On {rows}, the log loss is {loss}, about that of one model stopped on validation loss "
    "({usual}).",
    "sure": "On {rows}, the log loss is {loss}, {change} than that of one model stopped on validation loss "
    "({usual}).",
    "few": "On only {rows}, the log loss is {loss}, {change} than that of one model stopped on validation "
    "loss ({usual}), but so few rows are not reliable.",
    "chance": "On {rows}, the log loss is {loss}, {change} than that of one model stopped on validation loss "
    "({usual}), which may be chance.",
}
CERTAINTIES = {
    "unknown": "The gain has no standard error, since a loss is infinite or there is one test row.",
    "gain": "Gain in log loss: {gain}, statistically significant.",
    "loss": "Gain in log loss: {gain}, significantly worse.",
    "few": "Gain in log loss: {gain}, to be confirmed on more test rows.",
    "chance": "Gain in log loss: {gain}, which may be chance.",
}
CHOICES = {
    "same": "Refinement and log loss chose the same models.",
    "tiny": "Choosing by refinement rather than by log loss changed the loss by less than 0.0001.",
    "gain": "Choosing by refinement rather than by log loss lowered the loss by {part}.",
    "loss": "Choosing by refinement rather than by log loss raised the loss by {part}.",
}
TINY = 0.00005  # rounded to 0 in four digits
UNCERTAIN = "Few test rows: with only {}, every number here is very uncertain, including the standard errors."
LEAKING = "Possible leakage: {} alone predicts the target. "
DELIVERED = {
    "one": "Delivered: one model, trained on {rows}",
    "average": "Delivered: the average of {m} models, each trained on {rows}",
    "folds": "Delivered: the average of {m} models, each trained on {part} of {rows}",
    "pool": "Delivered: an ensemble of {members} ({m} models), each model trained on {part} of {rows}",
}
POOLED = {
    "gain": "The ensemble of {n} changed the log loss {rows} by {gain} compared with {best} alone.",
    "noise": "The ensemble of {n} changed the log loss {rows} by {gain} compared with {best} alone, which "
    "is within noise.",
    "one": "No ensemble was better than {best} alone on validation rows.",
}
SOME_RETRAINED = (
    " There was no time to train {rest} of {n} members again: theirs are the tested models."
)
TEST_ROWS = {
    "none": ".",
    "unseen": ", none of which are test rows.",
    "seen": ", including the test rows. The test loss is that of {judged} trained without them.",
    "split": "; the others are validation rows. Test rows are among both. The test loss is that of a model "
    "that has not seen them.",
}
EXPECTED = {
    "change": " On rows held out in both passes, retraining with the test rows changed the loss by {change}, "
    "so expect a log loss of about {expected}.",
    "noise": " On rows held out in both passes, retraining with the test rows changed the loss by {change}, "
    "within noise, so the test loss is the best estimate.",
}
AVERAGES = {
    "one": "{how}.",
    "logits": "{how}; the models are averaged on the scale of log-odds.",
    "agree": "{how}; the models agree, so their average needs no correction.",
    "sharpened": "{how}. Averaging makes probabilities underconfident, so the log-odds of the average, "
    "relative to the class frequencies, are multiplied by {beta:.2f} (estimated from the spread of the "
    "models).",
}
FAMILIES = {"weak structured-matrix": "weakly regularized structured-matrix"}
ADVICE = {
    "leak": "Drop {leaks} and fit again, unless {its} known at prediction time.",
    "few rows": "Measure the loss on more test rows (a larger --test-fraction, or --test) before you rely on "
    "these numbers.",
    "worse": "Try --calibrator temperature, which needs fewer rows: one model stopped on validation loss did "
    "better here.",
    "calibrate": "Use the calibrated probabilities: the uncalibrated ones are {how} ({share} of their loss "
    "is calibration error).",
    "no better": "Look for other features, which will help more than another model: these say little about "
    "the target (refinement is {refinement:.4f}, the loss of the class frequencies {uncertainty:.4f}).",
    "last step": "Allow more {step}s with --max-steps: the best {step} is the last of {most}.",
}


def lead(judged: Judgement, leaks: Sequence[Leak] = ()) -> str:
    """Return in one sentence what was gained; before it, columns that may hold the answer."""
    case = "sure" if judged.log.is_sure else "chance"
    if not math.isfinite(judged.usual):
        case = "infinite"
    elif abs(judged.gain) < SMALL:
        case = "same"
    elif case == "sure" and judged.ours.n < FEW_ROWS:
        case = "few"
    loss = with_error(judged.level.mean, judged.level.standard_error)
    found = LEADS[case].format(
        rows=count(judged.ours.n, "test row"),
        loss=f"{loss} (standard error)" if "±" in loss else loss,
        change=f"{percent(abs(judged.gain))} {'lower' if judged.gain > 0 else 'higher'}",
        usual=number(judged.usual, error_decimals(judged.level.standard_error)),
    )
    return LEAKING.format(repr(leaks[0].column)) + found if leaks else found


def describe_certainty(judged: Judgement) -> str:
    """Return how certain the gain is, and how much of it is due to choosing by refinement."""
    total = judged.log
    chosen = next(stage.change for stage in judged.stages if stage.name == BY_REFINEMENT)
    assert chosen is not None, "it is not the first"
    if not math.isfinite(total.mean) or math.isnan(total.standard_error):
        return CERTAINTIES["unknown"]
    case = "chance" if not total.is_sure else "gain" if total.mean < 0 else "loss"
    if case != "chance" and judged.ours.n < FEW_ROWS:
        case = "few"
    choice = "gain" if chosen.mean < 0 else "loss"
    if abs(chosen.mean) < TINY:
        choice = "tiny" if chosen.mean or chosen.standard_error else "same"
    part = with_error(abs(chosen.mean), chosen.standard_error)
    return f"{CERTAINTIES[case]} {CHOICES[choice]}".format(
        gain=with_error(-total.mean, total.standard_error, sign="+"),
        part=part if chosen.is_sure else f"{part}, within noise",
    )


def describe_delivered(fit: Fit, judged: Judgement | None) -> str:
    """Return which rows the delivered models have seen, and what to expect of them."""
    data, folds = fit.data, fit.data.delivered.n_first
    n, total, tested = data.n_delivered, data.delivered.rows.n_used, "unseen"
    if data.test is None:
        tested = "none"
    elif data.everything is not None and judged is not None:
        tested = "seen" if n == total else "split"
    part = float(np.mean([len(train) for train, _ in data.delivered.splits])) / total
    if fit.most_rows is not None:
        n = n if len(fit.delivered) > 1 else min(n, fit.most_rows)
        part = min(part, fit.most_rows / total)
    case = "one" if len(fit.delivered) == 1 else "folds" if folds > 1 else "average"
    if fit.pooled is not None:
        case = "pool"
    text = (DELIVERED[case] + TEST_ROWS[tested]).format(
        rows=f"all {number(n)} rows" if n == total else f"{number(n)} of {number(total)} rows",
        m=len(fit.delivered),
        part=percent(part, 0),
        members=", ".join(member.name for member in fit.used),
        judged="a model" if len(fit.tested) == 1 else f"{len(fit.tested)} models",
    )
    if 0 < fit.n_retrained < len(fit.used):
        text += SOME_RETRAINED.format(rest=len(fit.used) - fit.n_retrained, n=len(fit.used))
    if tested not in ("seen", "split") or judged is None or judged.change is None:
        return text
    return text + EXPECTED["change" if judged.change.is_sure else "noise"].format(
        change=with_error(judged.change.mean, judged.change.standard_error, sign="+"),
        expected=with_error(judged.expected.mean, judged.expected.standard_error),
    )


def describe_pool(fit: Fit, judged: Judgement | None) -> str:
    """Return what a pool of several candidates gains over the best of them."""
    best = next(each for each in fit.members if each.tested.candidate == fit.chosen.candidate)
    pool = fit.final.ensemble
    if not isinstance(pool, Pool):
        return POOLED["one"].format(best=best.name)
    change, rows, name = pool.selected.gain, "of validation rows", pool.selected.best_single
    if judged is not None and judged.stages[-1].change is not None:
        change, rows, name = judged.stages[-1].change, "of test rows", best.name
    return POOLED["gain" if change.is_sure else "noise"].format(
        n=len(fit.used),
        gain=with_error(change.mean, change.standard_error, sign="+"),
        best=name,
        rows=rows,
    )


def describe_calibration(fit: Fit) -> str:
    """Return what calibrates the delivered models, and how much their average is sharpened."""
    found, beta = fit.ensemble.calibrator, fit.ensemble.beta
    if isinstance(fit.ensemble, Pool):
        mean, temperature = fit.ensemble.selected.pool, getattr(found, "temperature_", 1.0)
        how = (
            f"Each member is calibrated on validation rows; so is their weighted {mean} mean, with "
            f"temperature {temperature:.3g}"
        )
        case = "sharpened" if fit.ensemble.beta > 1.005 else "one"
        return AVERAGES[case].format(how=how, beta=fit.ensemble.beta)
    how = f"Calibrated with {fit.options.calibrator}"
    if isinstance(found, AutoCalibrator):
        parts = {
            FAMILIES.get(score.name, score.name): score.weight
            for score in found.scores()
            if score.weight >= 0.005
        }
        listed = ", ".join(f"{percent(weight, 0)} {name}" for name, weight in parts.items())
        how = f"Calibrated with a blend of {listed} (weights by cross-validation)"
        if len(parts) == 1:
            how = f"Calibrated with {next(iter(parts))} (chosen by cross-validation)"
    elif hasattr(found, "temperature_"):
        how = f"Calibrated with temperature scaling: temperature {min(found.temperature_, 1e9):.3g}"
    case = "one"
    if len(fit.delivered) > 1:
        case = "logits" if beta is None else "agree" if beta < 1.005 else "sharpened"
    return AVERAGES[case].format(how=how, beta=beta)


def recommend(fit: Fit, judged: Judgement) -> list[str]:
    """Return advice that the numbers support, what matters most first."""
    ours, before = judged.ours.log, judged.uncalibrated.log
    leaks, few = fit.data.leaks, judged.ours.n < FEW_ROWS
    cases = ["leak"] * bool(leaks) + ["few rows"] * few
    how = classify(judged.uncalibrated)
    noticeable = before.calibration > NOTICEABLE * before.risk and how.endswith("confident")
    if judged.gain < 0 and judged.log.is_sure:
        cases.append("worse")
    elif noticeable and ours.risk < before.risk:
        cases.append("calibrate")
    if ours.refinement > 0.95 * ours.uncertainty and not few:
        cases.append("no better")
    if fit.hit_the_end:
        cases.append("last step")
    about = {
        "leaks": list_names([leak.column for leak in leaks], 3),
        "its": "its values are" if len(leaks) == 1 else "their values are",
        "how": how,
        "share": percent(before.calibration / before.risk if before.risk else 0.0, 0),
        "refinement": ours.refinement,
        "uncertainty": ours.uncertainty,
        "step": fit.step_name,
        "most": fit.max_steps,
    }
    advice = {case: ADVICE[case].format(**about) for case in cases}
    if leaks and "calibrate" in advice:
        use = advice["calibrate"]
        advice["calibrate"] = f"If {about['its']} known, {use[0].lower()}{use[1:]}"
    return list(advice.values())
