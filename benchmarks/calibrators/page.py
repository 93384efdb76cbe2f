"""The comparison as a page of Markdown."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import binom

from benchmarks.calibrators import summary as rows
from benchmarks.calibrators.contestants import NONE, OURS, package
from benchmarks.calibrators.figure import FIGURE_D1, PANELS, Point, points
from benchmarks.calibrators.judge import FLOOR, MOST_SECONDS
from benchmarks.calibrators.summary import LARGE, NOISE, SMALL, Summary, mean
from benchmarks.machine import with_libraries

LIBRARIES = (
    *("scikit-learn", "probmetrics", "netcal", "venn-abers", "betacal", "splinecalib", "cir-model"),
    "uncertainty-calibration",
    *("torch", "xgboost", "lightgbm"),
)
# Of a rival, our calibrator that does the same: its time is the unit.
SAME = {
    "scikit-learn sigmoid": "affine",
    "scikit-learn isotonic": "isotonic",
    "probmetrics svs": "structured-vector",
    "probmetrics sms": "structured-matrix",
    "probmetrics logistic": "structured-matrix",
    "probmetrics logistic-mix": "structured-matrix",
    "probmetrics platt": "affine",
    "probmetrics isotonic": "isotonic",
    "probmetrics cir": "centred-isotonic",
    "probmetrics ivap": "venn-abers",
    "probmetrics ivap-ovo": "venn-abers",
    "probmetrics affine-scaling": "affine",
    "probmetrics quadratic-scaling": "quadratic",
    "probmetrics beta": "beta",
    "netcal logistic": "vector",
    "netcal beta": "beta",
    "netcal histogram": "uniform-width",
    "netcal isotonic": "isotonic",
    "venn-abers one-vs-all": "venn-abers",
    "venn-abers one-vs-one": "venn-abers",
    "betacal abm": "beta",
    "splinecalib": "spline",
    "uncertainty-calibration histogram": "uniform-mass",
    "uncertainty-calibration platt-binner": "scaling-binning",
}
CHANCE = 0.025  # of a difference beyond NOISE in one direction between equals
TEMPERATURES = ("temperature", "-ts", "ts-mix", "temp-scaling")


def same(method: str) -> str | None:
    """Return our calibrator that does the same as a rival.

    >>> same("probmetrics guo-ts"), same("betacal abm")
    ('refinecal temperature', 'refinecal beta')
    """
    if package(method) in (OURS, NONE):
        return None
    ours = "temperature" if method.endswith(TEMPERATURES) else SAME.get(method)
    return ours and f"{OURS} {ours}"


def short(method: str) -> str:
    """Return the name of a method without its package.

    >>> short("refinecal auto")
    'auto'
    """
    return method.split(maxsplit=1)[-1]


def table(head: Sequence[str], lines: Iterator[Sequence[str]], left: int = 1) -> str:
    """Return a table of Markdown whose first columns are text and the others numbers."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def number(value: float, form: str = ".4f") -> str:
    """Return a number, or nothing for NaN."""
    return "" if np.isnan(value) else format(value, form)


def seconds(value: float) -> str:
    """Return a time in milliseconds with two digits that count."""
    if np.isnan(value):
        return ""
    return f"{1000 * value:.2g}" if value < 0.1 else f"{1000 * value:.0f}"


def main_table(found: Summary) -> str:
    """Return one line per method, from the smallest log loss."""
    reference = found.at(found.reference)
    ranks = {loss: found.ranks(loss).mean(axis=1) for loss in rows.LOSSES}
    large = found.where(lambda case: case["n_val"] >= LARGE)

    def lines() -> Iterator[list[str]]:
        for name in rows.by_loss(found):
            row = found.at(name)
            there = ~np.isnan(found.loss["log"][row])
            losses = [found.loss[loss][row] for loss in rows.LOSSES]
            excess = losses[0] - found.loss["log"][reference]
            yield [
                f"**{name}**" if name == found.reference else name,
                f"{there.sum()}",
                *(number(mean(loss)) for loss in losses),
                "" if row == reference else number(100 * mean(excess), "+.3f"),
                *(f"{ranks[loss][row]:.1f}" for loss in rows.LOSSES),
                *(_counts(found, name, loss) for loss in rows.LOSSES),
                seconds(mean(found.fit[row][large])),
                seconds(mean(found.predict[row][large])),
                _ratio(found, name),
            ]

    who = short(found.reference)
    head = [
        *("method", "cases", "log loss", "Brier", f"above {who}, in hundredths", "rank, log"),
        *("rank, Brier", f"{who} wins-ties-losses, log", "the same, Brier", "fit, ms"),
        *("predict, ms", "time / ours of the same kind"),
    ]
    return table(head, lines())


def _counts(found: Summary, method: str, loss: str) -> str:
    if method == found.reference:
        return ""
    verdicts = found.verdicts(method, loss)
    return "-".join(str(int(np.sum(verdicts == kind))) for kind in (1, 0, -1))


def _ratio(found: Summary, method: str) -> str:
    ours = same(method)
    if ours not in found.methods:
        return ""
    times = found.seconds()
    ratios = times[found.at(method)] / times[found.at(str(ours))]
    known = ratios[~np.isnan(ratios)]
    return f"{np.median(known):.2g}" if len(known) else ""


def by_model(found: Summary, loss: str) -> str:
    """Return the mean excess over the reference, model by model and by number of classes and rows."""
    models = sorted({case["model"] for case in found.cases})
    groups = {model: found.where(lambda case, m=model: case["model"] == m) for model in models}
    groups["2 classes"] = found.where(lambda case: case["k"] == 2)
    groups["more classes"] = ~groups["2 classes"]
    groups[f"under {SMALL} rows"] = found.where(lambda case: case["n_val"] < SMALL)
    groups[f"{LARGE} rows or more"] = found.where(lambda case: case["n_val"] >= LARGE)
    excess = found.loss[loss] - found.loss[loss][found.at(found.reference)]

    def lines() -> Iterator[list[str]]:
        yield ["*cases*", *(f"*{kept.sum()}*" for kept in groups.values())]
        for name in rows.by_loss(found, loss):
            if name != found.reference:
                gaps = excess[found.at(name)]
                yield [name, *(number(100 * mean(gaps[kept]), "+.3f") for kept in groups.values())]

    return table([f"{loss}, hundredths above {short(found.reference)}", *groups], lines())


def targets(found: Summary) -> str:
    """Return what was asked of auto, and what was found."""
    reference = found.at(found.reference)
    excess = {
        name: mean(found.loss["log"][found.at(name)] - found.loss["log"][reference])
        for name in found.rivals
    }
    nearest = min(excess, key=lambda name: np.nan_to_num(excess[name], nan=np.inf))
    low, high = rows.interval(
        found, found.loss["log"][found.at(nearest)] - found.loss["log"][reference]
    )
    tied = rows.best_or_tied(found)
    lines = [
        [
            "mean normalised log loss not above that of any rival, on common cases",
            f"nearest: {nearest}, {100 * excess[nearest]:+.3f} hundredths above (95 % interval over tables "
            f"{100 * low:+.3f} to {100 * high:+.3f})",
            _reached(excess[nearest] >= 0),
        ],
        [
            "best, or tied within noise with the best rival, on at least half of the cases",
            f"{tied.sum()} of {len(tied)}",
            _reached(tied.mean() >= 0.5),
        ],
    ]
    temperature = f"{OURS} temperature"
    if temperature in found.methods and temperature != found.reference:
        small = found.where(lambda case: case["n_val"] < SMALL)
        lost = int(np.sum(found.verdicts(temperature)[small] == -1))
        gaps = found.loss["log"][found.at(temperature)] - found.loss["log"][reference]
        lines.append(
            [
                f"not worse than temperature beyond noise on small sets (under {SMALL} rows): not beaten "
                f"beyond {NOISE} standard errors more often than equals would be (binomial, 5 %)",
                f"beaten on {lost} of {small.sum()}, by chance {CHANCE * small.sum():.1f}; on average "
                f"temperature is {100 * mean(gaps[small]):+.3f} hundredths above",
                _reached(binom.sf(lost - 1, small.sum(), CHANCE) > 0.05),
            ]
        )
    return table([f"asked of {short(found.reference)}", "found", ""], iter(lines), left=3)


def _reached(good: bool) -> str:
    return "reached" if good else "**missed**"


def failures(found: Summary) -> str:
    """Return how often each method failed, and how."""

    def lines() -> Iterator[list[str]]:
        for name, errors in sorted(found.failures.items()):
            first, error = next(iter(errors.items()))
            yield [name, f"{len(errors)}", first, error.replace("|", " ").replace("\n", " ")[:160]]

    if not found.failures:
        return "No method failed on any case."
    return table(["failed", "cases", "such as", "with"], lines())


def lifted(found: Summary) -> str:
    """Return a sentence on how many probabilities were lifted to the floor of the log loss."""
    counts = {name: np.nansum(found.clipped[found.at(name)]) for name in found.methods}
    worst = sorted((n for n in counts if counts[n]), key=lambda n: -counts[n])
    shown = ", ".join(f"{name} {counts[name]:.0f}" for name in worst) or "none"
    total = sum(case["n_test"] for case in found.cases)
    return (
        f"Probabilities of the true class below {FLOOR:.2g} count as that in the log loss, for everybody. "
        f"Of {total} test rows these were: {shown}."
    )


def page(found: Summary, figures: Sequence[str]) -> str:
    """Return the whole page."""
    tables = len({case["table"] for case in found.cases})
    models = sorted({case["model"] for case in found.cases})
    machine = with_libraries(LIBRARIES)
    text = [
        "# Calibrators on real predictions",
        f"`make predictions DATA=folder` and `make calibrators`: {tables} tables, models {', '.join(models)} "
        f"with default parameters, at their best validation accuracy; {len(found.cases)} cases. "
        "Calibrators are fitted on the validation rows (16 %) and judged on the test rows (20 %). "
        "Losses are divided by that of the best constant: 0 is perfect, 1 knows nothing. "
        "Means are over the cases on which a method ran; differences and counts are against "
        f"{found.reference} on the same cases, positive where the method is worse. A win or a loss of "
        f"{short(found.reference)} is a difference beyond {NOISE} standard errors over the test rows. A "
        "rank counts all methods. Times are the best of some repeats with one thread, means over "
        f"validation sets of {LARGE} rows or more; their ratio to our calibrator of the same "
        "kind is a median over all cases. Methods that failed somewhere are not in the figures. What takes "
        f"more than {MOST_SECONDS} s has failed. Methods for two classes are fitted to one class against "
        "the rest where there are more. The rules of auto were chosen with these predictions at hand, "
        "so its lead over others flatters it a little.",
        targets(found),
        *(f"![run time and loss]({figure})" for figure in figures),
        main_table(found),
        lifted(found),
        failures(found),
        *(by_model(found, loss) for loss in rows.LOSSES),
        f"{machine.processor}; {machine.listed}. Left out: probmetrics' dircal, since dirichletcal needs a "
        "version of jax older than our NumPy allows, and its platt-logits, which refuses its own input.",
    ]
    return "\n\n".join(text) + "\n"


def paper_page(found: Summary, figures: Sequence[str]) -> str:
    """Return the numbers of the paper's figures 4 and D.1."""
    trees = found.where(lambda case: case["model"] == "xgboost")
    machine = with_libraries(LIBRARIES)
    lines = [
        "| method | log loss | log loss, normalized | Brier score, normalized | seconds | failed |",
        "| --- |" + " ---: |" * 5,
    ]
    for name in (name for name in FIGURE_D1 if name in found.methods):
        shown = list(find_points(found, name, trees))
        failed = int((found.has_failed(name) & trees).sum())
        losses = [f"{point.loss:.4f}" for point in shown]
        cells = [*losses, f"{shown[0].seconds:.2g}", str(failed)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    text = [
        "# Temperature scaling, as in the paper's figures 4 and D.1",
        f"{trees.sum()} tables; XGBoost with default parameters (100 rounds), at its best validation "
        "accuracy. Calibrators are fitted on validation rows (16 %) and judged on test rows (20 %). "
        "Normalized losses are divided by that of the best constant. *temp-scaling*, *temperature, "
        "unsmoothed* and the four before them scale only; *ts-mix* and *temperature* add Laplace smoothing. "
        "The names guo, torchunc, autogluon and torchcal are those of other implementations, as "
        "probmetrics wraps them. A failure counts as no calibration. Times are of one thread, means over "
        f"tables with {LARGE:,} validation rows or more.",
        *(f"![run time and loss]({figure})" for figure in figures),
        "\n".join(lines),
        f"{machine.processor}; {machine.listed}.",
    ]
    return "\n\n".join(text) + "\n"


def find_points(found: Summary, name: str, cases: np.ndarray) -> Iterator[Point]:
    """Yield a method's mean log loss, the same normalized, and its normalized Brier score."""
    for loss, scaled in (("log", False), *PANELS):
        yield next(p for p in points(found, loss, cases, FIGURE_D1, scaled) if p.name == name)
