"""What a fit is worth: test losses of the ways to stop, how sure the difference is, and what to do next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from refinecal.calibrators import AutoCalibrator, TemperatureScaling
from refinecal.evaluation import Difference, Evaluation, evaluate, paired_difference, row_losses
from refinecal.tabular.fitting import CHOSEN_BY, TRACKED, Fit, Outcome

NOTICEABLE = 0.1  # of the risk: calibration error that is worth a word
SURE = 2.0  # standard errors
SMALL = 0.0005  # a change that is none
FEW_ROWS = 100


@dataclass(frozen=True, slots=True)
class Way:
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
class Judgement:
    """A fit, judged by its test rows.

    Attributes
    ----------
    ours : Evaluation
        Chosen by refinement, then calibrated.
    uncalibrated : Evaluation
        The same models before calibration.
    usual : Evaluation
        Stopped and chosen by validation log loss, not calibrated.
    ways : dict
        By metric, what choosing by it leads to.
    brier : Difference
        Per row, ours minus usual, in Brier's score; that in log loss is in ``ways``.
    """

    ours: Evaluation
    uncalibrated: Evaluation
    usual: Evaluation
    ways: dict[str, Way]
    brier: Difference

    @property
    def log(self) -> Difference:
        """Per row, ours minus usual, in log loss."""
        return self.ways[TRACKED[0]].difference

    @property
    def gain(self) -> float:
        """By what part of the usual log loss ours is lower."""
        return -self.log.mean / self.usual.log.risk if self.usual.log.risk > 0 else 0.0

    @property
    def is_sure(self) -> bool:
        """Whether the difference is more than chance would explain."""
        return abs(self.log.mean) > SURE * self.log.standard_error

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers."""
        return {
            "refine_then_calibrate": self.ours.to_dict(),
            "before_calibration": self.uncalibrated.to_dict(),
            "by_validation_loss": self.usual.to_dict(),
            "relative_gain": self.gain,
            "difference_log_loss": self.log.to_dict(),
            "difference_brier": self.brier.to_dict(),
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
    ours, usual = fit.chosen.after, fit.usual.before
    log = row_losses(test.y, ours, classes=columns)
    brier = [row_losses(test.y, probs, loss="brier", classes=columns) for probs in (ours, usual)]

    def way(outcome: Outcome) -> Way:
        before, after = (
            row_losses(test.y, probs, classes=columns) for probs in (outcome.before, outcome.after)
        )
        return Way(
            outcome.metric,
            outcome.candidate,
            outcome.steps,
            outcome.value,
            paired_difference(before, 0 * log, test.weights).mean,
            paired_difference(after, 0 * log, test.weights).mean,
            paired_difference(log, before, **about),
            paired_difference(log, after, **about),
        )

    return Judgement(
        evaluate(test.y, ours, **names),
        evaluate(test.y, fit.chosen.before, **names),
        evaluate(test.y, usual, **names),
        {name: way(outcome) for name, outcome in fit.outcomes.items()},
        paired_difference(*brier, **about),
    )


# ---- in words ----------------------------------------------------------------------------------------------


def lead(judged: Judgement) -> str:
    """Return in one sentence what was gained."""
    found, usual = judged.ours.log.risk, judged.usual.log.risk
    where = f"On {judged.ours.n:,} test rows".replace(",", "\u202f")
    if not math.isfinite(usual):
        return (
            f"{where} the log loss is {found:.4f}; stopped on validation loss and not calibrated, the model "
            "would have called something impossible that happened."
        )
    change = f"{abs(judged.gain):.1%} {'lower' if judged.gain > 0 else 'higher'} than"
    doubt = "" if judged.is_sure else ", which may be chance"
    if abs(judged.gain) < SMALL:
        change, doubt = "about the same as", ""
    versus = (
        f"{change} the usual way, stopping on validation loss without calibrating ({usual:.4f})"
    )
    return f"{where} the log loss is {found:.4f}, {versus}{doubt}."


def how_sure(judged: Judgement) -> str:
    """Return how sure the difference is."""
    difference = judged.log
    if not math.isfinite(difference.mean) or math.isnan(difference.standard_error):
        return (
            "The difference cannot be given an error: a loss is infinite, or there is one test row."
        )
    gap = f"{-difference.mean:+.4f} ± {difference.standard_error:.4f}"
    if judged.is_sure:
        verdict = "more than chance would explain" if judged.gain > 0 else "a loss, beyond chance"
    else:
        verdict = "within what chance explains; more test rows would tell"
    after = judged.ways[TRACKED[0]].difference_after
    calibrated = f"{-after.mean:+.4f} ± {after.standard_error:.4f}"
    return (
        f"Gain per row in log loss: {gap} (standard error over test rows): {verdict}. Against the same, "
        f"calibrated: {calibrated}."
    )


def calibrated_by(fit: Fit) -> str:
    """Say what calibrates the chosen models: one sentence, the mean over folds where they differ."""
    found = [unit.choices[fit.chosen.metric].calibrator for unit in fit.units]
    auto = [each for each in found if isinstance(each, AutoCalibrator)]
    if auto:
        parts: dict[str, float] = {}
        for score in (score for each in auto for score in each.scores()):
            parts[score.name] = parts.get(score.name, 0) + score.weight / len(auto)
        shares = [f"{weight:.0%} {name}" for name, weight in parts.items() if weight >= 0.005]
        folds = ", mean over folds" if len(found) > 1 else ""
        if len(shares) == 1:
            return f"Calibrated by {shares[0].split(' ', 1)[1]}, which cross-validation chose."
        return f"Calibrated by {', '.join(shares)} (weights by cross-validation{folds})."
    betas = [each.beta_ for each in found if isinstance(each, TemperatureScaling)]
    if betas:
        low, high = (f"{1 / max(beta, 1e-9):.3g}" for beta in (max(betas), min(betas)))
        temperature = low if low == high else f"{low} to {high}, one for each fold"
        return f"Calibrated by temperature scaling: temperature {temperature}."
    return f"Calibrated by {fit.options.calibrator}."


def what_to_do(fit: Fit, judged: Judgement) -> list[str]:
    """Return advice that the numbers support."""
    ours, before, advice = judged.ours.log, judged.uncalibrated.log, []
    if judged.ours.n < FEW_ROWS:
        advice.append(
            f"With only {judged.ours.n} test rows, take every number here with a pinch of salt."
        )
    if judged.gain < 0 and judged.is_sure:
        advice.append(
            "Here the usual way did better. On other rows that may turn: try another --seed, more validation "
            "rows, or --calibrator temperature if it was another."
        )
    elif (
        before.calibration > NOTICEABLE * before.risk
        and ours.risk < before.risk
        and before.beta is not None
    ):
        how = "over-confident" if before.beta < 1 else "under-confident"
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
        advice.append(
            "Try --tune 30: choosing the parameters by refinement is where most is gained."
        )
    return advice


def name_of(metric: str) -> str:
    """Return a metric's name for people."""
    names = {"log_loss": "log loss", "brier": "Brier score", "auroc": "AUROC"}
    return names.get(metric, metric)


def order(judged: Judgement) -> list[Way]:
    """Return the ways to choose, ours first, then as tracked."""
    return [judged.ways[name] for name in (CHOSEN_BY, *TRACKED) if name in judged.ways]
