"""Several runs of the vision experiment as one: of the same images and recipes, each training once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from refinecal.experiments.vision.plan import Key
from refinecal.experiments.vision.results import (
    RepeatedTraining,
    Results,
    Training,
    check_alike,
    sort_results,
)

__all__ = ["merge_results"]


def merge_results(results: Sequence[Results]) -> Results:
    """Return several runs as one: what more than one of them holds is taken from the first.

    Runs may differ in their recipe from data set to data set, but not in that of one model on one data set,
    nor in the images of a data set.
    """
    _check_images(results)
    check_alike([each for one in results for each in (*one.trainings, *one.lost)])
    plans = [plan for one in results for plan in one.plans]
    trainings = {each.key: each for one in reversed(results) for each in one.trainings}
    lost = {each.key: each for one in reversed(results) for each in one.lost}
    failed = {key: said for one in reversed(results) for key, said in one.failed.items()}
    there = {**lost, **trainings}
    left = {key: said for key, said in failed.items() if key not in there}
    return replace(
        sort_results(plans, list(there.values()), left), repeated=_find_repeated(results, trainings)
    )


def _find_repeated(results: Sequence[Results], kept: dict[Key, Training]) -> list[RepeatedTraining]:
    """Return which trainings are there more than once, by the two runs."""
    there: Counter[tuple[str, str]] = Counter()
    different: Counter[tuple[str, str]] = Counter()
    for each in (each for one in results for each in one.trainings):
        first = kept[each.key]
        if first is not each:
            there[first.run, each.run] += 1
            different[first.run, each.run] += not first.is_same(each)
    return [RepeatedTraining(*runs, n, different[runs]) for runs, n in there.items()]


def _check_images(results: Sequence[Results]) -> None:
    """Complain of runs whose plans are about different images of one data set."""
    known: dict[str, tuple[str, str]] = {}
    for one in results:
        run = (*one.trainings, *one.lost)[0].run
        for name, content in ((n, c) for plan in one.plans for n, c in plan.content.items()):
            first, images = known.setdefault(name, (run, content))
            if images != content:
                raise ValueError(
                    f"{first} and {run} have different images of {name}, {images} and {content}: report "
                    "each of them by itself, or train one of them again on the images of the other"
                )
