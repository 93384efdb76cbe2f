"""Several kinds of models within a time limit, and the pool of the best.

First each kind is trained on one or two folds, which shows how long it takes and which kinds a pool would
use. Then these on as many folds as there is time for; other kinds and configurations with the time that is
left; and at last, if there is time, the members of the pool again, on all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from refinecal._core.errors import warn
from refinecal._core.format import count
from refinecal.ensembles import SelectedEnsemble
from refinecal.evaluation import row_losses
from refinecal.metrics import get_metric
from refinecal.tabular.clock import Clock, duration
from refinecal.tabular.data import Data, Options
from refinecal.tabular.fit_folder import FitFolder
from refinecal.tabular.fitting import (
    CHOSEN_BY,
    FEW_ROWS,
    USUAL,
    Fit,
    Member,
    NullProgress,
    Progress,
    Selection,
    TableFolds,
    by_weight,
    plain_mean,
)
from refinecal.tabular.portfolio import draw_all, missing_kinds
from refinecal.training.crossfit import Best, Disagreement, Ensemble, FoldModel
from refinecal.training.pool import Pool

# Another configuration is tried if one of the last so many lowered refinement by this part, and if there are
# as many rows for each, without which choosing is noise.
BETTER, IN_VAIN, ROWS_PER_MEMBER = 1e-3, 5, 200
FEWEST_AGAIN = 2  # folds of a member that is trained again on all rows
FIRST_SHARE = 0.35  # of the time for the first fold of all kinds
LOADING = {"mlp": 1.5}  # times the start of the command that it takes to import the library
# Of the time on all folds, or of the first kind's, for any other kind.
MOST_SHARE, MOST_RATIO = 0.5, 2.5
WORTH = 0.003  # a kind that lowers refinement by this part is worth fewer folds
SHORTEST = 0.6  # part of the time of the first run that is enough for another
LEAST_SLACK = 1.2  # by which runs may be longer than the first one
CHEAP = 0.15  # part of the time that is left for a kind that the first folds have no use for
NEAR = 0.1  # part by which refinement may be larger for a kind to be worth that time all the same
ENOUGH_FOLDS = 3  # of a pool that is trained again on all rows; else what was tested is delivered
LEAST = 1.0  # seconds for a training run without which there would be no result
WORTHWHILE = 0.3  # and for any other
CELLS_PER_SECOND = 2_000_000  # rows × columns that one model can learn from
REPORT_SECONDS = 1.5  # of evaluation and report, next to what depends on the rows:
REPORT_CELLS = 400_000  # held-out rows × classes that take one more second


def fit_in_time(
    data: Data,
    options: Options,
    folder: FitFolder,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Fit:
    """Train as many candidates as there is time for; deliver the best, or a pool if there are several kinds.

    Without a time limit, all are trained.
    """
    clock, progress = clock or Clock(), progress or NullProgress()
    held_out = data.pairs.rows.n + (0 if data.test is None else data.test.n)
    start = clock.elapsed - clock.before
    # A machine that starts slowly reports slowly.
    clock.reserve = max(REPORT_SECONDS, 1.3 * start) + held_out * data.k / REPORT_CELLS
    folds = TableFolds(
        data, options, draw_all(options, data.pairs.rows.X.shape, data.k), folder, progress, clock
    )
    return Planner(folds, start).fit()


@dataclass(slots=True)
class Planner:
    """Decides what is trained next, and until when."""

    folds: TableFolds
    start: float = 0.0  # seconds that the command took before
    units: dict[int, list[FoldModel]] = field(default_factory=dict)  # by candidate
    n_folds: int = 1
    retrains: bool = True  # on all rows
    said: list[str] = field(default_factory=list)
    calibrated: dict[tuple[int, int], Ensemble] = field(default_factory=dict)  # by candidate, folds

    # ---- what is delivered ---------------------------------------------------------------------------------

    def fit(self) -> Fit:
        """Train, choose, deliver."""
        self.search()
        metrics = [get_metric(name) for name in (CHOSEN_BY, *self.folds.tracked)]
        trained = [units for _, units in sorted(self.units.items())]
        best = self.folds.search(self.folds.data.pairs.first(self.n_folds), trained, metrics)
        members: list[Member] = []
        if self.pools and len(self.units) > 1:
            selected = self._pool(self.units, cv=5).selected
            members = self._judge_members(selected)
        used = [each for each in members if each.weight > 0]
        if len(used) > 1:
            found = self._fit_pool(best, selected, members)
        else:
            if used:  # of which no other member makes a better pool
                best[CHOSEN_BY] = used[0].refinement, used[0].units
            found = replace(self._fit_one(best), members=tuple(members))
        data = self.folds.data
        everything = data.everything if found.n_retrained else None
        everything = None if everything is None else everything.first(self._n_again)
        data = replace(data, pairs=data.pairs.first(self.n_folds), everything=everything)
        return replace(found, data=data, plan=tuple(self.said), most_rows=self.folds.most_rows)

    def _fit_one(self, best: Best) -> Fit:
        """Deliver the best candidate, trained again if there is time."""
        n_again = self._count_folds_again(best[CHOSEN_BY][1][0].candidate)
        self.clock.deadline = self.clock.now() + max(self.clock.left, LEAST)
        self.folds.folds = range(n_again)  # which share that time
        calibrator = self._calibrator()
        outcomes = self.folds.select(best, calibrator)
        found = self.folds.deliver(outcomes, best[CHOSEN_BY][1], calibrator, n_again)
        self.clock.deadline = np.inf
        return replace(found, n_retrained=min(1, n_again))

    def _fit_pool(self, best: Best, selected: SelectedEnsemble, members: list[Member]) -> Fit:
        """Train the members of a pool again as long as there is time, the heaviest first."""
        folds, calibrator = self.folds, self._calibrator()
        used = by_weight(members)
        groups: dict[str, Ensemble] = {}
        delivered: list[FoldModel] = []
        n_retrained, everything = 0, folds.data.everything
        for place, each in enumerate(used):
            units, number = each.units, each.tested.candidate
            groups[each.name] = each.average
            later = self._retraining([other.tested.candidate for other in used[place + 1 :]])
            n_again, found = self._count_folds_again(number, later), []
            if n_again and everything is not None:
                planned = self.again * self.total([number], min(n_again, self.n_folds))
                most = max(LEAST_SLACK * planned, self.clock.left - later)
                most = min(most, self.clock.left)
                found = self.train(everything, number, range(n_again), most)
            if found and everything is not None:
                joined = folds.join(found, calibrator, everything, tested=(each.tested, units))
                groups[each.name] = plain_mean(joined)
                units, n_retrained = found, n_retrained + 1
            delivered += units
        if self.retrains and n_retrained < len(used):
            self.say(f"No time to train {len(used) - n_retrained} of {len(used)} members again.")
        best = {name: best[name] for name in (CHOSEN_BY, USUAL)}
        outcomes = folds.select(best, calibrator)
        pooled, disagreement = self._judge_pool(selected, used, outcomes[CHOSEN_BY])
        pool = Pool(groups, selected).sharpen(disagreement, self._n_held_out(used))
        about = (best[CHOSEN_BY][1], outcomes, folds.history, delivered)
        parts = (folds.data, folds.options, folds.candidates, *about, pool)
        return Fit(*parts, pooled, tuple(members), n_retrained)

    def _count_folds_again(self, number: int, later: float = 0.0) -> int:
        """Return on how many folds of all rows there is time to train a candidate before what comes later.

        Of few rows there are more folds than were tested, for time that is left.
        """
        wave = max(self.again * self.seconds(number), LEAST / 100)

        def most(seconds: float) -> float:
            return seconds // wave * self.speed(number) if seconds < np.inf else np.inf

        left = max(self.clock.left, 0.0)
        n = min(self.n_folds, most(left))
        if n == len(self.folds.data.pairs):
            n = max(n, min(self._n_again, most(max(left - later, 0.0))))
        return int(n) if self.retrains and n >= min(FEWEST_AGAIN, self.n_folds) else 0

    @property
    def _n_again(self) -> int:
        """How many folds of all rows there are."""
        everything, n = self.folds.data.everything, self.n_folds
        return n if everything is None or n < len(self.folds.data.pairs) else len(everything)

    def _judge_members(self, selected: SelectedEnsemble) -> list[Member]:
        """Return the leaderboard: every candidate, the best by refinement first."""
        columns, calibrator, members = range(self.folds.data.k), self._calibrator(), []
        table = {row["member"]: row for row in selected.table}
        for number, units in self.units.items():
            row = table[self.name(number)]
            held_out = [unit.held_out(CHOSEN_BY, len(columns)) for unit in units]
            probs = np.exp(np.concatenate([each.logits for each in held_out]))
            y = np.concatenate([each.y for each in held_out])
            weights = [each.weights for each in held_out if each.weights is not None]
            loss = np.average(
                row_losses(y, probs, classes=columns),
                weights=np.concatenate(weights) if weights else None,
            )
            ensemble = self.folds.join(units, calibrator, self.folds.data.pairs)
            tested = self.folds.select_one(CHOSEN_BY, row["refinement"], units, ensemble)
            about = (row["weight"], row["refinement"], float(loss), units, tested)
            members.append(Member(self.name(number), *about))
        return sorted(members, key=lambda each: each.refinement)

    def _judge_pool(
        self, selected: SelectedEnsemble, used: Sequence[Member], best: Selection
    ) -> tuple[Selection, Disagreement | None]:
        """Return the pool as it was tested, and how far its folds disagree on test rows, if that is known."""
        test, k = self.folds.data.test, self.folds.data.k
        pool = Pool({each.name: each.average for each in used}, selected)
        if test is None:
            return replace(best, metric="ensemble", ensemble=pool), None
        logits = {each.name: [u.test_logits(CHOSEN_BY, k) for u in each.units] for each in used}
        disagreement = None
        if test.n_used >= FEW_ROWS and self.n_folds > 1:
            disagreement = pool.disagreement(logits, test.weights)
        pool = pool.sharpen(disagreement, self._n_held_out(used))
        before = np.sum([each.weight * np.asarray(each.tested.before) for each in used], axis=0)
        after = pool.predict_proba(chain(*logits.values()))
        judged = replace(best, metric="ensemble", ensemble=pool, before=before, after=after)
        return judged, disagreement

    @staticmethod
    def _n_held_out(used: Sequence[Member]) -> int:
        """Return how many rows calibrate the members."""
        return sum(len(unit.y) for unit in used[0].units)

    def _pool(self, units: dict[int, list[FoldModel]], cv: int | None = None) -> Pool:
        """Choose a pool of candidates by what they predict for held-out rows; without cv, a quick one."""
        folds, calibrator, data = self.folds, self._calibrator(), self.folds.data
        members = {}
        for number, each in units.items():
            key = number, len(each)
            if key not in self.calibrated:
                self.calibrated[key] = folds.calibrate(each, calibrator, data.pairs)
            members[self.name(number)] = self.calibrated[key], each
        return Pool.select(members, get_metric(CHOSEN_BY), range(data.k), data.pairs.rows, cv)

    def _calibrator(self) -> Any:
        """Return what calibrates each candidate: one number, unless another calibrator is asked for."""
        given = self.folds.options.calibrator
        is_fast = self.pools or self.clock.left <= 0
        return "temperature" if given == "auto" and is_fast else given

    # ---- what to train -------------------------------------------------------------------------------------

    def search(self) -> None:
        """Train candidates on as many folds as there is time for; keep those that have all of them."""
        clock, kinds = self.clock, range(self.n_kinds)
        limit = "" if clock.limit == np.inf else f" within {duration(clock.limit)}"
        rest = f" ({duration(clock.left)} left)" if clock.before else ""
        n_candidates = len(self.folds.candidates)
        what = f"{', '.join(map(self.name, kinds))}{limit}{rest}"
        what += ", the first fold of each first" * (self.n_kinds > 1)
        more = f"; {n_candidates} configurations if there is time" * (n_candidates > self.n_kinds)
        self.say(f"Plan: {what}{more}.")
        if self.pools and (absent := missing_kinds()):
            kinds_absent = ", ".join(absent)
            self.say(f"Not installed: {kinds_absent}. Get all with: pip install 'refinecal[auto]'")
        self._limit_rows()
        self._train_first_folds()
        if not self.units:
            raise ValueError("no model can be trained on these rows: see the warnings")
        kept, used = self._plan_folds()
        kept = sorted(kept, key=[*used, *kept].index)  # the heaviest first
        for place, number in enumerate(kept):
            again = self._retraining(used)
            needed = self.rest(kept[place:], self.n_folds) + again
            slack = max(LEAST_SLACK, clock.left / needed) if needed else 1.0
            later = self.rest(kept[place + 1 :], self.n_folds) + again
            self._train_other_folds(number, later, slack)
        others = sorted(
            (n for n in kinds if not self._is_whole(n)),
            key=lambda n: (n not in used, self._worth(n)),
        )
        self._train_more([*others, *range(self.n_kinds, n_candidates)], used)
        self.n_folds = min(self.n_folds, max(map(len, self.units.values())))
        short = [number for number, units in self.units.items() if len(units) < self.n_folds]
        if short:
            names = ", ".join(map(self.name, short))
            self.say(f"Not trained on all folds, so not in the choice: {names}.")
        if len(self.units) < n_candidates > self.n_kinds:
            n_whole = len(self.units) - len(short)
            self.say(f"{n_whole} of {n_candidates} configurations were trained.")
        self.units = {n: each[: self.n_folds] for n, each in self.units.items() if n not in short}

    def _train_more(self, numbers: Sequence[int], wanted: Sequence[int]) -> None:
        """Train other candidates, of kinds that are of use, as long as there is time and they help."""
        used, value = self._weigh_whole()  # fewer to train again than were planned for
        in_vain, tunes = 0, self.folds.options.tune > 1  # then the user wants them all
        for number in numbers:
            is_new = number >= self.n_kinds
            if is_new and self.pools and not tunes:
                if self.folds.candidates[number].kind not in self._kinds(used):
                    continue
                if len(self.units) >= self.folds.data.pairs.rows.n / ROWS_PER_MEMBER:
                    return  # too few rows to tell which of them are better
            later, needed = self._retraining([*used, number]), self.rest([number], self.n_folds)
            most = self.clock.left - later
            is_worth_it = is_new or number in wanted or self._is_near_best(number)
            if needed > (most if is_worth_it else min(most, CHEAP * self.clock.left)):
                continue
            self._train_other_folds(number, later)
            used, after = self._weigh_whole()
            if is_new and not tunes:
                in_vain = 0 if after < (1 - BETTER) * value else in_vain + 1
                if in_vain == IN_VAIN:
                    return
            value = after

    def _weigh_whole(self) -> tuple[list[int], float]:
        """Return the members of the pool, or the best candidate, and its refinement, as of now."""
        n_folds = self.n_folds
        return self._weigh(
            {n: each[:n_folds] for n, each in self.units.items() if self._is_whole(n)}
        )

    def _is_stored(self, number: int, folds: Sequence[int]) -> bool:
        """Tell whether these runs were finished before an interruption."""
        return all(self.folds.is_stored(self.folds.data.pairs, number, fold) for fold in folds)

    def _kinds(self, numbers: Sequence[int]) -> set[str]:
        return {self.folds.candidates[number].kind for number in numbers}

    def _is_whole(self, number: int) -> bool:
        """Tell whether a candidate has been trained on all folds."""
        return len(self.units.get(number, [])) >= self.n_folds

    def _worth(self, number: int) -> float:
        """Return the refinement of a candidate on its first fold."""
        units = self.units.get(number)
        return units[0].choices[CHOSEN_BY].value if units else np.inf

    def _weigh(self, units: dict[int, list[FoldModel]]) -> tuple[list[int], float]:
        if len(units) > 1 and self.pools:
            pool = self._pool(units)
            weights = {number: pool.weights[self.name(number)] for number in units}
            used = sorted((n for n in units if weights[n] > 0), key=lambda n: -weights[n])
            return used, float(pool.selected.path[-1]["value"])
        values = {n: np.mean([u.choices[CHOSEN_BY].value for u in units[n]]) for n in units}
        best = sorted(values, key=values.__getitem__)[:1]
        return best, float(min(values.values(), default=np.inf))

    def _limit_rows(self) -> None:
        """Train on fewer rows if there is no time to learn from all of them."""
        rows = self.folds.data.pairs.rows
        most = max(self.clock.left, LEAST) * CELLS_PER_SECOND / max(1, rows.X.shape[1])
        if most < rows.n:
            self.folds.most_rows = int(most)
            self.say(f"Models are trained on {count(int(most), 'row')}: there is no time for more.")

    def _train_first_folds(self) -> None:
        """Train each kind on as many folds as are trained at once, which also shows how long that takes."""
        clock, pairs = self.clock, self.folds.data.pairs
        end = clock.now() + clock.left * (FIRST_SHARE if self.n_kinds > 1 else 1)
        most = 0.0  # so that no kind takes the time of the others
        missed: list[str] = []
        for number in range(self.n_kinds):
            share = (end - clock.now()) / (self.n_kinds - number)
            wave = range(len(pairs))[: self.speed(number)]
            loading = LOADING.get(self.folds.candidates[number].kind, 0.0) * self.start
            if self.units and share < WORTHWHILE + loading and not self._is_stored(number, wave):
                missed.append(self.name(number))
                continue
            n_waves = math.ceil(len(pairs) / len(wave)) * (1 + self.again)
            most = max(most, clock.left / n_waves * (MOST_SHARE if self.n_kinds > 1 else 1))
            found = self.train(pairs, number, wave, min(2 * share, most))
            if found:
                most = max(most, MOST_RATIO * found[0].seconds * (not self.units))
                self.units[number] = found
        if missed:
            self.say(f"Later, if there is time: {', '.join(missed)}.")

    def _plan_folds(self) -> tuple[list[int], list[int]]:
        """Decide on how many folds to train; return which candidates, and which of them will be delivered."""
        most, left = len(self.folds.data.pairs), self.clock.left

        def find_most(again: float) -> int:
            """Return how many folds there is time for, 0 if not even for the first of them again."""
            needed = (
                (n, self.rest(kept, n) + again * self.total(used, n)) for n in range(most, 0, -1)
            )
            return next((n for n, seconds in needed if seconds <= left), 0)

        used, value = self._weigh_first_folds(list(self.units))
        kept = list(used)
        while find_most(self.again) < most and len(kept) > 1:
            worse = {
                number: self._weigh_first_folds([each for each in kept if each != number])[1]
                - value
                for number in kept
            }
            least = min(kept, key=lambda number: worse[number] / max(self.seconds(number), 1e-3))
            if worse[least] > WORTH * value:
                break
            kept.remove(least)
            used, _ = self._weigh_first_folds(kept)
        self.n_folds = find_most(self.again)
        self.retrains = self.again > 0 and self.n_folds >= min(ENOUGH_FOLDS, most)
        if not self.retrains:
            self.n_folds = max(1, find_most(0.0))
        seconds, retraining = self.rest(kept, self.n_folds), self._retraining(used)
        if seconds + retraining == 0:
            return kept, used
        self.say(
            f"Plan: {', '.join(map(self.name, kept))} on {count(self.n_folds, 'fold')}, about "
            f"{duration(seconds)}"
            + f"; then on all rows, about {duration(retraining)}" * self.retrains
            + f" ({duration(max(left, 0))} left)." * (left < np.inf)
        )
        return kept, used

    def _is_near_best(self, number: int) -> bool:
        """Tell whether a candidate is about as good alone, on its first fold, as the best one there."""
        return self._worth(number) <= (1 + NEAR) * min(map(self._worth, self.units), default=0.0)

    def _weigh_first_folds(self, numbers: Sequence[int]) -> tuple[list[int], float]:
        """Return what would be delivered of some candidates as their first folds say, and its refinement."""
        n = min(len(self.units[number]) for number in numbers)
        return self._weigh({number: self.units[number][:n] for number in numbers})

    def _train_other_folds(self, number: int, later: float, slack: float = 2.0) -> None:
        """Train a candidate on the folds that it lacks, as long as they fit before what comes later.

        A run may take ``slack`` times as long as planned: if training was cut short on the first fold, more
        time would be that of others.
        """
        units = self.units.setdefault(number, [])
        while len(units) < self.n_folds:
            wave = range(len(units), self.n_folds)[: self.speed(number)]
            left = self.clock.left - later
            if self.seconds(number) * SHORTEST > left and not self._is_stored(number, wave):
                return
            most = slack * self.seconds(number) if self.seconds(number) else left
            found = self.train(self.folds.data.pairs, number, wave, min(left, most))
            if not found:
                if not units or len(self.units) > 1:  # the only one keeps the folds that it has
                    del self.units[number]
                return
            units.extend(found)

    def train(
        self, parts: Any, number: int, folds: Sequence[int], seconds: float
    ) -> list[FoldModel]:
        """Train a candidate on some folds for at most so long; return no models if it cannot be trained."""
        least = WORTHWHILE if self.units else LEAST
        self.clock.deadline = self.clock.now() + max(seconds, least)
        self.folds.folds = folds
        try:
            return self.folds.train_folds(parts, number, folds, parts is self.folds.data.pairs)
        except ValueError as error:
            if len(self.folds.candidates) == 1:
                raise
            warn(f"{self.name(number)} is skipped: {error}")
            return []
        finally:
            self.clock.deadline = np.inf

    # ---- time ----------------------------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        return self.folds.clock

    @property
    def pools(self) -> bool:
        """Whether several candidates are pooled."""
        return self.folds.options.model == "auto" and self.folds.options.ensemble

    @property
    def n_kinds(self) -> int:
        """How many candidates have default parameters: they come first."""
        return len({each.kind for each in self.folds.candidates})

    @property
    def again(self) -> float:
        """How much longer it takes to train a model on all rows than without the test rows."""
        everything, pairs = self.folds.data.everything, self.folds.data.pairs
        return 0.0 if everything is None else everything.rows.n / pairs.rows.n

    def name(self, number: int) -> str:
        """Return what to call a candidate: its kind, and its number if its parameters are random."""
        kind = self.folds.candidates[number].kind
        return kind if number < self.n_kinds else f"{kind} {number}"

    def say(self, text: str) -> None:
        """Tell the user, now and in the report."""
        self.said.append(text)
        self.folds.progress.say(text)

    def seconds(self, number: int) -> float:
        """Return how long one training run of a candidate takes, as its others, those of its kind, or all."""
        kind, candidates = self.folds.candidates[number].kind, self.folds.candidates
        alike = {n: found for n, found in self.units.items() if candidates[n].kind == kind}
        units = self.units.get(number) or list(chain(*(alike or self.units).values()))
        return float(np.mean([unit.seconds for unit in units])) if units else 0.0

    def speed(self, number: int) -> int:
        """Return how many models are trained at once."""
        pairs = self.folds.data.pairs
        self.folds.folds = ()
        return self.folds.share_cores(pairs, number)[0]

    def total(self, numbers: Sequence[int], n_runs: int) -> float:
        """Return how long so many training runs of each of these candidates take."""
        waves = [-(-n_runs // self.speed(number)) for number in numbers]
        return sum(n * self.seconds(number) for n, number in zip(waves, numbers, strict=True))

    def rest(self, numbers: Sequence[int], n_folds: int) -> float:
        """Return how long it takes to train these candidates on the folds that they lack."""
        return sum(self.total([n], max(0, n_folds - len(self.units.get(n, [])))) for n in numbers)

    def _retraining(self, numbers: Sequence[int]) -> float:
        """Return how long it takes to train again on all rows: all members of a pool, else the best."""
        if not self.retrains:
            return 0.0
        each = [self.again * self.total([number], self.n_folds) for number in numbers]
        return sum(each) if self.pools else max(each, default=0.0)
