"""The report of an experiment on images: one page with the paper's figures and tables, and CSV files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from refinecal._core.format import tidy_sentence
from refinecal.experiments._pages import PAGE, is_page, write_all
from refinecal.experiments.vision.analysis import (
    DATASET_WORDS,
    MODEL_WORDS,
    Analysis,
    group_word,
)
from refinecal.experiments.vision.background import costs_section, run_section
from refinecal.experiments.vision.sections import (
    curves_section,
    epochs_section,
    headline_section,
    pairs_section,
    tables_section,
    unscaled_section,
)
from refinecal.experiments.vision.tables import write_tables
from refinecal.experiments.vision.words import describe_flat, lead, percent, sentence
from refinecal.report import Card, Page
from refinecal.report.of_evaluation import facts_of

__all__ = ["PAGE", "is_report", "page", "write_report"]

TITLE = "Stopping by refinement, on images"


def write_report(analysis: Analysis, folder: Path, pictures: str | None = None) -> Path:
    """Write the page, the tables and, if asked for, pictures into a folder; return the page."""
    return write_all(page(analysis), folder, partial(write_tables, analysis), pictures)


def is_report(folder: Path) -> bool:
    """Tell whether a folder holds what :func:`write_report` wrote, by the title of its page."""
    return is_page(folder / PAGE, TITLE)


def page(analysis: Analysis) -> Page:
    """Return the report: the answer first, then the curves and tables of the paper, then everything else."""
    compared = bool(analysis.headlines)
    sections = [
        *([headline_section(analysis)] if compared else []),
        curves_section(analysis),
        tables_section(analysis),
        pairs_section(analysis),
        epochs_section(analysis),
        unscaled_section(analysis),
        costs_section(analysis),
        run_section(analysis),
    ]
    return Page(
        TITLE,
        tidy_sentence(lead(analysis)),
        cards=cards(analysis),
        points=[
            tidy_sentence(each)
            for each in (
                *(sentence(analysis, group) for group in analysis.headlines),
                *describe_flat(analysis),
            )
        ],
        sections=sections,
        facts=facts_of(
            **{
                "data sets": ", ".join(dict.fromkeys(DATASET_WORDS[d] for d, _ in analysis.groups)),
                "models": ", ".join(MODEL_WORDS[model] for model in analysis.models),
                "plan": ", ".join(plan.key for plan in analysis.results.plans),
            }
        ),
    )


def cards(analysis: Analysis) -> list[Card]:
    """Return the numbers that matter most."""
    results = analysis.results
    said = [f"{len(results.failed)} failed"] if results.failed else []
    said += [f"{len(results.stopped)} ended early"] if results.stopped else []
    said += [f"{results.missing} not yet run"] if results.missing else []
    made = [Card("trainings", len(results.trainings), ", ".join(said) or "none failed")]
    for group in list(analysis.headlines)[:3]:
        change = tidy_sentence(percent(analysis.relative_headline(group)))
        made.append(Card("change of test log loss", change, f"by refinement: {group_word(group)}"))
    return made
