"""Evaluate the predictions of one model, or compare several models on the same rows."""

from refinecal.evaluation._compare import Comparison, compare_models
from refinecal.evaluation._costs import CostEvaluation, DecisionCost, check_costs, evaluate_costs
from refinecal.evaluation._paired import Difference, paired_difference, row_losses
from refinecal.evaluation._permutation import (
    ColumnImportance,
    Importance,
    permutation_importance,
)
from refinecal.evaluation._single import evaluate
from refinecal.evaluation._summary import ClassSummary, Evaluation

__all__ = [
    "ClassSummary",
    "ColumnImportance",
    "Comparison",
    "CostEvaluation",
    "DecisionCost",
    "Difference",
    "Evaluation",
    "Importance",
    "check_costs",
    "compare_models",
    "evaluate",
    "evaluate_costs",
    "paired_difference",
    "permutation_importance",
    "row_losses",
]
