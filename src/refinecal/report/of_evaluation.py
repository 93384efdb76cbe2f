"""The reports of ``refinecal evaluate`` and ``refinecal compare``, and the parts that all reports share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import refinecal
from refinecal._core.format import format_beta, number, tidy_sentence, tile
from refinecal.evaluation.verdict import BRIER, advice, is_flat, verdict
from refinecal.report.page import Card, Cell, Column, Figure, Page, Section, Table, Written

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from refinecal.evaluation import Comparison, Evaluation
    from refinecal.tabular.predictions import Predictions

ROWS_PER_BIN = 60  # of reliability diagrams, so that chance does not rule them
SQUARE: dict[str, tuple[float, float]] = {"wide": (5.2, 5.2), "narrow": (3.6, 3.9)}
MEANINGS = {
    "risk": "Mean loss of the predictions as they are: calibration + refinement.",
    "calibration": "What one number, the temperature, removes.",
    "refinement": "What is left: what the model cannot tell apart.",
    "sharpness": "What the model knows: uncertainty - refinement.",
    "uncertainty": "Mean loss of always predicting the class frequencies.",
}
CALIBRATOR = (
    "A calibrator that does more than a temperature, and averaging, may lower refinement as well. "
)


# ---- parts -------------------------------------------------------------------------------------------------


def terms_section(named: Mapping[str, Evaluation], one: bool = False) -> Section:
    """Return where the loss of one or several predictions comes from; ``one`` draws the first alone."""
    from refinecal.plots import WaterfallDisplay

    first = next(iter(named.values()))
    drawn = {name: each.log for name, each in named.items()}
    if one:
        drawn = {"": first.log}
    tables = [_terms_table(named)] if len(named) <= 2 else _terms_tables(named)
    blocks: tuple[Any, ...] = tuple(tables)
    if all(math.isfinite(each.log.risk) for each in named.values()):
        height = 3.4 if len(drawn) == 1 else 1.2 + 0.7 * len(drawn)
        figure = Figure(
            lambda canvas: WaterfallDisplay(drawn).plot(canvas.add_subplot()),
            "From uncertainty to the loss",
            "Sharpness is what the model knows; calibration error is what it pays for sounding too sure or "
            "not sure enough.",
            ", ".join(f"{term} {getattr(first.log, term):.4f}" for term in MEANINGS),
            wide=(7.2, height),
            narrow=(3.6, height),
        )
        blocks = (figure, *tables)
    return Section("Where the loss comes from", (), blocks)


def _terms_table(named: Mapping[str, Evaluation]) -> Table:
    """Return one row for each term of one or two evaluations."""
    columns = [f"{name}, {loss}" for name in named for loss in ("log loss", "Brier")]
    if len(named) == 1:
        columns = ["log loss", "Brier score"]
    parts = [parts for each in named.values() for parts in (each.log, each.brier)]
    rows = [[term, *(getattr(each, term) for each in parts)] for term in MEANINGS]
    note = " ".join(f"{name.capitalize()}: {text}" for name, text in MEANINGS.items())
    more = "" if len(named) == 1 else CALIBRATOR
    note = f"{note} {more}{BRIER}"
    digits = [Column(name, digits=5) for name in columns]
    return Table("The terms", ["term", *digits], rows, note)


def _terms_tables(named: Mapping[str, Evaluation]) -> list[Table]:
    """Return a table for each loss, one row for each of several evaluations."""
    columns = [Column(term, digits=5, help=text) for term, text in MEANINGS.items()]
    return [
        Table(
            title,
            ["model", *columns],
            [
                [name, *(getattr(getattr(each, loss), term) for term in MEANINGS)]
                for name, each in named.items()
            ],
            note,
        )
        for title, loss, note in (
            ("The terms of the log loss", "log", ""),
            ("The terms of Brier's score", "brier", BRIER),
        )
    ]


def reliability_section(
    labels: Any, probs: Any, calibrated: Any, classes: Any, weights: Any, of: str = ""
) -> Section:
    """Return the reliability diagrams, before and after calibration, and those of the classes."""
    from refinecal.plots import ReliabilityDisplay, draw_classes

    bins = int(np.clip(len(labels) // ROWS_PER_BIN, 5, 15))
    about: dict[str, Any] = {"classes": classes, "sample_weight": weights, "n_bins": bins}
    several = len(classes) > 2

    def diagram(canvas: Canvas) -> None:
        ReliabilityDisplay.from_predictions(
            labels, probs, calibrated=calibrated, **about, ax=canvas.add_subplot()
        )

    def grid(canvas: Canvas) -> None:
        draw_classes(canvas, labels, probs, calibrated=calibrated, **about)

    what = "confidence against accuracy" if several else f"probability of {classes[1]!r}"
    figures = [
        Figure(
            diagram,
            f"Reliability: {what}",
            "Points on the diagonal are right: of what is given 70 %, 70 % happens. The bands hold 90 % of "
            "what chance would do to right probabilities; below is the histogram of the scores. "
            f"The ECE is that of {bins} bins of equal mass.",
            "Reliability diagram before and after calibration.",
            **SQUARE,
        )
    ]
    if several:
        figures.append(
            Figure(
                grid,
                "Class by class",
                "The probability of each class against its share; the ECE is that of "
                f"{bins} bins of equal width.",
                "One reliability diagram for each class.",
                wide=(7.2, _grid_height(len(classes), 7.2)),
                narrow=(3.6, _grid_height(len(classes), 3.6)),
            )
        )
    return Section(f"Are the probabilities{of} right?", (), tuple(figures))


def _grid_height(classes: int, width: float) -> float:
    """Return how high a grid of small diagrams should be, in inches."""
    from refinecal.plots.class_grid import MOST, PANEL

    count = min(classes, MOST)
    across = max(1, min(count, int(width / PANEL)))
    across = math.ceil(count / math.ceil(count / across))
    return 0.9 + 1.2 * math.ceil(count / across) * width / across


def classes_table(found: Evaluation) -> Table:
    """Return one row for each class."""
    columns: list[str | Column] = [
        "class",
        Column("rows", digits=0),
        Column("share", percent=True),
        Column("mean probability", percent=True, help="What the model gives it on average."),
        Column("recall", digits=3, help="How many of its rows are given to it."),
        Column("AUROC", digits=4, help="Against the rest."),
        Column(
            "ECE", digits=4, help="Calibration error of its probability, in 15 bins of equal width."
        ),
        Column("log loss", digits=4, help="Mean over its rows."),
    ]
    rows: list[list[Cell]] = [
        [
            str(each.label),
            each.n,
            each.share,
            each.mean_probability,
            each.recall,
            each.auroc,
            each.ece,
            each.log_loss,
        ]
        for each in found.per_class
    ]
    return Table("Classes", columns, rows)


def errors_table(named: Mapping[str, Evaluation], first: str) -> Table:
    """Return the calibration errors of evaluations: one of all rows, models, or subgroups."""
    k = next(iter(named.values())).k
    of = "the second class" if k == 2 else "the likeliest class"
    columns = [
        Column("ECE", digits=4, help=f"How far probabilities of {of} are off, in 15 equal bins."),
        Column("overconfidence", digits=4, help="Its part from bins that are too sure."),
        Column("underconfidence", digits=4, help="Its part from bins that are not sure enough."),
        Column("smooth ECE", digits=4, help="The same without bins, whose edges could matter."),
    ]
    rows: list[list[Cell]] = [
        [name, each.ece, each.overconfidence, each.underconfidence, each.smooth_ece]
        for name, each in named.items()
    ]
    note = "Right probabilities have errors above 0 too, by chance: the fewer rows, the larger."
    return Table("Calibration errors", [first, *columns], rows, note)


def models_table(named: Mapping[str, Evaluation], title: str, first: str = "model") -> Table:
    """Return one row for each evaluation: models, or subgroups."""
    columns: list[str | Column] = [
        first,
        Column("rows", digits=0),
        *(
            Column(name, digits=4)
            for name in ("log loss", "calibration", "refinement", "beta", "Brier score")
        ),
        *(Column(name, digits=4) for name in ("accuracy", "AUROC", "ECE")),
    ]
    rows = [
        [
            str(name),
            each.n,
            each.log.risk,
            each.log.calibration,
            each.log.refinement,
            _beta(each.log.beta),
            each.brier.risk,
            each.accuracy,
            each.auroc,
            each.ece,
        ]
        for name, each in named.items()
    ]
    return Table(title, columns, rows)


def _beta(beta: float | None) -> Cell:
    text = format_beta(beta)
    return Written(text, beta) if text.startswith(">") else beta


def facts_of(**more: Any) -> dict[str, str]:
    """Return how a report was made, for its last lines."""
    known = {name: value for name, value in more.items() if value is not None}
    return {
        "refinecal": refinecal.__version__,
        **{
            k: number(v) if isinstance(v, int) and k != "seed" else str(v) for k, v in known.items()
        },
    }


# ---- pages -------------------------------------------------------------------------------------------------


def page(
    found: Evaluation,
    given: Predictions,
    path: Path,
    by: str | None,
    about: Sequence[str] = (),
) -> Page:
    """Return the report of ``refinecal evaluate``; ``about`` is what has to be known of the predictions."""
    probs = given.probs
    calibrated = found.log.calibrator.predict_proba(probs)
    labels = np.array(given.classes, dtype=object)[given.labels]
    sections = [
        terms_section({path.stem: found}),
        reliability_section(labels, probs, calibrated, list(given.classes), given.weights),
        Section("How far are they off?", (), (errors_table({path.stem: found}, "predictions"),)),
        Section("Class by class", (), (classes_table(found),)),
    ]
    if by is not None:
        tables = (models_table(found.groups, f"By {by}", by), errors_table(found.groups, by))
        sections.append(
            Section(f"By {by}", ("Each subgroup has a temperature of its own.",), tables)
        )
    cards = [
        Card("log loss", tile(found.log.risk)),
        Card(
            "calibration error",
            tile(found.log.calibration),
            f"removed by {'equal probabilities' if is_flat(found) else 'one number'}",
        ),
        Card("accuracy", tidy_sentence(f"{found.accuracy:.1%}")),
        Card("AUROC", tile(found.auroc)),
    ]
    return Page(
        f"How good are the probabilities of {path.name}?",
        verdict(found),
        cards=cards,
        points=[*(f"Note: {text}." for text in about), *advice(found)],
        sections=sections,
        facts=facts_of(file=path.name, rows=found.n, classes=found.k),
    )


def comparison_page(
    found: Comparison, models: Mapping[str, Predictions], about: Sequence[str] = ()
) -> Page:
    """Return the report of ``refinecal compare``; ``about`` is what has to be known of the predictions."""
    best = found.evaluations[found.best]
    ordered = {name: found.evaluations[name] for name in found.ranking}
    columns: list[str | Column] = [
        "model",
        *(
            Column(name, digits=4)
            for name in (
                "log loss",
                "± s.e.",
                "calibrated",
                "± s.e. of that",
                "Brier",
                "± s.e. of it",
            )
        ),
    ]
    rows: list[list[Cell]] = [
        [
            name,
            *(
                value
                for part in (found.log[name], found.refinement[name], found.brier[name])
                for value in (part.mean, part.standard_error)
            ),
        ]
        for name in found.ranking
        if name != found.best
    ]
    gaps = Table(
        f"Above {found.best}, row by row",
        columns,
        rows,
        "Mean difference per row and its standard error; less than two standard errors may be chance.",
    )
    given = models[found.best]
    labels = np.array(given.classes, dtype=object)[given.labels]
    calibrated = best.log.calibrator.predict_proba(given.probs)
    table = models_table(ordered, "Models, the best first")
    return Page(
        f"{len(ordered)} models on the same {number(best.n)} rows",
        f"{found.best} has the lowest log loss: {best.log.risk:.4f}.",
        cards=[Card(name, tile(each.log.risk), "log loss") for name, each in ordered.items()][:4],
        points=[*(f"Note: {text}." for text in about), f"How sure: {found.verdict}"],
        sections=[
            Section("Side by side", (), (table, gaps, errors_table(ordered, "model"))),
            terms_section(ordered),
            reliability_section(
                labels,
                given.probs,
                calibrated,
                list(given.classes),
                given.weights,
                f" of {found.best}",
            ),
        ],
        facts=facts_of(rows=best.n, classes=best.k),
    )
