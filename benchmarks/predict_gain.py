"""Does ``refinecal.theory.predict_gain`` tell the truth? ``python -m benchmarks.predict_gain --help``.

Simulated: rows drawn from the paper's model, with eigenvalues 0.001 + Beta. Logistic regression is fitted
along a path of strengths, and what each fit costs on new rows is known exactly. Predicted from the rows
alone, against the theory that knows eigenvalues and means, and against the fits.

Real: tables of two classes, categories one-hot, columns standardised on the training rows. Of n training
rows the prediction is made, and logistic regression is fitted along the path. One half of the other rows
chooses the strength by log loss, and by log loss after temperature scaling, and fits the temperature; the
other half judges; then the halves change places. Several splits give standard errors.
"""

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import refinecal as rc
from benchmarks.machine import this_machine
from refinecal.theory._strengths import choose
from refinecal.theory.gain import predict_gain
from refinecal.theory.model import GaussianModel
from refinecal.theory.spectrum import BetaSpectrum, QuadratureSpectrum

RESULTS = Path(__file__).parent / "results"
PATH = np.geomspace(1e3, 1e-5, 33)  # strengths, times the mean eigenvalue
SHAPES = ((1, 5), (2, 2), (5, 1))
RATIOS, ERRORS = (0.1, 0.5, 2.0), (0.02, 0.1, 0.3)
REAL_RATIOS = (1.0, 0.5, 0.2, 0.1, 0.05)
MOST_CATEGORIES, MOST_OTHERS = 15, 10_000
FEWEST_ROWS, FEWEST_OTHERS = 60, 600


def fitted(
    X: np.ndarray, y: np.ndarray, lams: Iterable[float]
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield weights and intercept along the path."""
    turn = None
    if X.shape[1] > len(X):  # weights lie in the span of the rows
        _, _, turn = np.linalg.svd(X, full_matrices=False)
        X = X @ turn.T
    model = LogisticRegression(solver="newton-cholesky", warm_start=True, tol=1e-6, max_iter=200)
    for lam in lams:
        model.set_params(C=1 / (lam * len(X))).fit(X, y)
        w = model.coef_[0]
        yield (w if turn is None else turn.T @ w), float(model.intercept_[0])


# ---- simulated -------------------------------------------------------------------------------------------


def simulate(n: int, n_sets: int, draws: int) -> Iterator[dict[str, Any]]:
    """Yield predictions beside the truth, for data sets of the model."""
    for shape in SHAPES:
        for ratio in RATIOS:
            for error in ERRORS:
                for seed in range(n_sets):
                    yield one_simulated(n, shape, ratio, error, seed, draws)


def one_simulated(
    n: int, shape: tuple[int, int], ratio: float, error: float, seed: int, draws: int
) -> dict[str, Any]:
    model, X, y = simulated_rows(n, shape, ratio, error, seed)
    sigma = np.asarray(model.sigma)
    parts = [model.decompose(w, b) for w, b in fitted(X, y, PATH * sigma.mean())]
    risk, refinement = (
        np.array([getattr(e, name) for e in parts]) for name in ("risk", "refinement")
    )
    by_risk, by_refinement = int(risk.argmin()), int(refinement.argmin())
    return {
        "shape": list(shape),
        "ratio": ratio,
        "bayes_error": error,
        "seed": seed,
        **predicted_and_known(model, X, y, seed, draws),
        "measured": 1 - refinement[by_refinement] / risk[by_risk],
        "distance_measured": float(np.log10(PATH[by_risk] / PATH[by_refinement])),
        "loss_measured": float(risk[by_risk]),
        "lam_measured": float(PATH[by_risk] * sigma.mean()),
    }


def simulated_rows(
    n: int, shape: tuple[int, int], ratio: float, error: float, seed: int
) -> tuple[GaussianModel, np.ndarray, np.ndarray]:
    """Return a model and rows of it."""
    model = GaussianModel.from_spectrum(
        BetaSpectrum(*shape),
        round(ratio * n),
        bayes_error=error,
        seed=[seed, *shape, int(1000 * error)],
    )
    return model, *model.sample(n, seed=seed, balanced=True)


def predicted_and_known(
    model: GaussianModel, X: np.ndarray, y: np.ndarray, seed: int, draws: int
) -> dict[str, Any]:
    """Return what is said of the rows, and what the theory says that knows their law."""
    found = predict_gain(X, y, standardize=False, n_draws=draws, seed=seed)
    sigma, mu = np.asarray(model.sigma), np.asarray(model.mu)
    spectrum = QuadratureSpectrum(sigma, np.ones(len(mu)), mu**2)
    exact = choose(spectrum, float(np.linalg.norm(mu)), *X.shape, 0.5)
    low, high = found.intervals["gain"]
    return {
        "predicted": found.gain,
        "low": low,
        "high": high,
        "exact": exact.gain,
        "distance_predicted": float(np.log10(found.lam_risk / found.lam_refinement)),
        "distance_exact": float(np.log10(exact.lam_risk / exact.lam_refinement)),
        "loss_predicted": found.loss_by_risk,
        "error_predicted": float(found.spectrum.bayes_error_of(found.signal)),  # seen or not
        "error_true": float(model.bayes_error),
        "lam_predicted": found.lam_risk,
    }


def simulated_anew(stored: list[dict[str, Any]], n: int, draws: int) -> Iterator[dict[str, Any]]:
    """Yield the records of simulated sets with what is predicted now; what was measured is kept."""
    for each in stored:
        shape, ratio, error = tuple(each["shape"]), each["ratio"], each["bayes_error"]
        rows = simulated_rows(n, shape, ratio, error, each["seed"])
        yield {**each, **predicted_and_known(*rows, each["seed"], draws)}


# ---- real ------------------------------------------------------------------------------------------------


def read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of a table as numbers, categories one-hot, and its target."""
    table = pd.read_parquet(file)
    X, y = table.iloc[:, :-1], table.iloc[:, -1].to_numpy()
    columns = []
    for name in X:
        if X[name].dtype.kind in "iuf":
            columns.append(X[name].to_numpy(dtype=float)[:, None])
        else:
            texts = X[name].astype(str)
            kept = texts.value_counts().index[:MOST_CATEGORIES]
            columns.append(pd.get_dummies(texts.where(texts.isin(kept), "…")).to_numpy(dtype=float))
    return np.concatenate(columns, axis=1), y


def real(folder: Path, n_splits: int, draws: int) -> Iterator[dict[str, Any]]:
    """Yield predictions beside what was measured, for tables of two classes."""
    for X, y, setting in settings(folder):
        n = setting["n"]
        splits = [one_split(X, y, n, seed, draws if seed < 2 else 0) for seed in range(n_splits)]
        yield {**setting, **joined(splits)}


def predicted_anew(
    folder: Path, stored: list[dict[str, Any]], draws: int
) -> Iterator[dict[str, Any]]:
    """Yield the records of tables with what is predicted now; what was measured is kept."""
    known = {(each["table"], each["n"]): each for each in stored}
    for X, y, setting in settings(folder):
        record = known[setting["table"], setting["n"]]
        splits = []
        for seed in range(record["n_splits"]):
            X_train, _, y_train, _ = split(X, y, setting["n"], seed)
            splits.append(predicted(X_train, y_train, seed, draws if seed < 2 else 0))
        yield {**record, **joined(splits)}


def settings(folder: Path) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
    """Yield tables of two classes with the numbers of rows to train on."""
    index = pd.read_csv(folder / "index.csv")
    for name in index.loc[index["n_classes"] == 2, "name"]:
        X, y = read(folder / f"{name}.parquet")
        small = min(y.mean(), 1 - y.mean())
        worth = 4 * small * (1 - small)  # a row's share of a balanced one
        for ratio in REAL_RATIOS:
            n = round(X.shape[1] / ratio / worth)
            if n < FEWEST_ROWS or len(y) - n < FEWEST_OTHERS or n * small < 10:
                continue
            yield X, y, {"table": name, "n": n, "n_columns": X.shape[1], "ratio": ratio}


def split(X: np.ndarray, y: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return training rows and others, on the scale of the former, and the labels of both."""
    X, others, y, y_others = train_test_split(X, y, train_size=n, stratify=y, random_state=seed)
    kept = X.std(axis=0) > 1e-9
    centre, spread = X[:, kept].mean(axis=0), X[:, kept].std(axis=0)
    X, others = ((each[:, kept] - centre) / spread for each in (X, others[:MOST_OTHERS]))
    return X, others, y, y_others[:MOST_OTHERS]


def one_split(X: np.ndarray, y: np.ndarray, n: int, seed: int, draws: int) -> dict[str, Any]:
    X, others, y, y_others = split(X, y, n, seed)
    logits = np.stack([others @ w + b for w, b in fitted(X, y, PATH)])
    half = len(y_others) // 2
    both = (slice(None, half), slice(half, None))
    tries = [judged(logits, y_others, *order) for order in (both, both[::-1])]
    means = {name: float(np.mean([each[name] for each in tries])) for name in tries[0]}
    return {**predicted(X, y, seed, draws), **means}


def predicted(X: np.ndarray, y: np.ndarray, seed: int, draws: int) -> dict[str, Any]:
    """Return what is said of training rows."""
    found = predict_gain(X, y, n_draws=draws, seed=seed)
    low, high = found.intervals["gain"]
    return {
        "n_features": found.n_features,
        "minority": min(found.prevalence, 1 - found.prevalence),
        "predicted": found.gain,
        "predicted_calibrated": found.gain_calibrated,
        "predicted_affine": found.gain_affine,
        "low": low,
        "high": high,
        "distance_predicted": float(np.log10(found.lam_risk / found.lam_refinement)),
        "lam_predicted": float(np.log10(found.lam_risk)),
        "loss_predicted": found.loss_by_risk,
        "trust": found.trust,
        "share_seen": float(found.spectrum.seen),
        "doubts": list(found.doubts),
    }


def judged(
    logits: np.ndarray, y: np.ndarray, choose_on: slice, judge_on: slice
) -> dict[str, float]:
    """Choose on some rows, judge on others."""
    maps = {"temperature": [], "affine": []}
    for z in logits:
        beta = rc.fit_temperature(y[choose_on], logits=z[choose_on], n_threads=1).beta
        affine = rc.make_calibrator("affine").fit_logits(z[choose_on], y[choose_on])
        maps["temperature"].append(beta * z)
        maps["affine"].append(affine.intercept_ + affine.slope_ * z)
    i, j, k = (best(each, y, choose_on) for each in (logits, maps["temperature"], maps["affine"]))
    by_risk = loss(y[judge_on], logits[i][judge_on])
    calibrated = loss(y[judge_on], maps["temperature"][i][judge_on])
    by_refinement = loss(y[judge_on], maps["temperature"][j][judge_on])
    return {
        "measured": 1 - by_refinement / by_risk,
        "measured_calibrated": 1 - by_refinement / calibrated,
        "measured_affine": 1 - loss(y[judge_on], maps["affine"][k][judge_on]) / by_risk,
        "distance_measured": float(np.log10(PATH[i] / PATH[j])),
        "loss_measured": by_risk,
        "lam_measured": float(np.log10(PATH[i])),
    }


def best(logits: Iterable[np.ndarray], y: np.ndarray, rows: slice) -> int:
    """Return which strength has the smallest loss on some rows."""
    return int(np.argmin([loss(y[rows], z[rows]) for z in logits]))


def loss(y: np.ndarray, z: np.ndarray) -> float:
    return float(-np.mean(np.where(y == 1, log_expit(z), log_expit(-z))))


def joined(splits: list[dict[str, Any]]) -> dict[str, Any]:
    """Average the splits, with the standard error of what was measured."""
    means = {
        name: float(np.nanmean([each[name] for each in splits]))
        for name, value in splits[0].items()
        if isinstance(value, float | int)
    }
    for name in ("measured", "predicted"):
        if name not in means:
            continue
        values = [each[name] for each in splits]
        means[f"{name}_error"] = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    trusts = [each["trust"] for each in splits]
    usual = max(TRUSTS[::-1], key=trusts.count)  # the worse of two as frequent
    return {**means, "trust": usual, "doubts": splits[0]["doubts"], "n_splits": len(splits)}


# ---- the page --------------------------------------------------------------------------------------------


def page(records: list[dict[str, Any]], command: str) -> str:
    """Return the results as Markdown."""
    table = pd.DataFrame(records)
    lines = ["# Does predict_gain tell the truth?", "", INTRODUCTION.format(command=command)]
    simulated, real = (table[table["part"] == part] for part in ("simulated", "real"))
    if len(simulated):
        lines += [
            "",
            "## Simulated rows, for which the assumptions hold",
            "",
            *simulated_words(simulated),
        ]
    if len(real):
        lines += ["", "## Real tables, for which they do not", "", *real_words(real)]
    versions = this_machine().versions
    used = ", ".join(f"{name} {versions[name]}" for name in ("numpy", "scipy", "scikit-learn"))
    return "\n".join([*lines, "", f"Measured with {used}.", ""])


INTRODUCTION = """`{command}`: what `refinecal.theory.predict_gain`
says of rows before anything is trained, beside what logistic regression then does. The gain is the part of
the log loss that is saved by choosing the strength of the L2 penalty by refinement (log loss after
temperature scaling) and then scaling the temperature, instead of choosing it by log loss. All gains are in
percent of the log loss. The distance is log10(lam by loss / lam by refinement); `log10_gap` of predictions is
another number, which starts from the strength at which calibration is smallest."""


def simulated_words(found: pd.DataFrame) -> list[str]:
    known, fits = (compared(found["predicted"], found[name]) for name in ("exact", "measured"))
    covered = ((found["low"] <= found["exact"]) & (found["exact"] <= found["high"])).mean()
    apart = found["distance_measured"].abs() > 0.3
    same = (np.sign(found["distance_predicted"]) == np.sign(found["distance_measured"]))[
        apart
    ].mean()
    count = found.groupby(["ratio", "bayes_error"]).size().iloc[0] // len(SHAPES)
    lines = [
        f"{len(found)} data sets, {count} for each setting. Known: the theory with the eigenvalues and means "
        "that the rows were drawn from. Measured: logistic regression fitted along a path on the same rows, "
        "strengths chosen by the exact loss on new rows.",
        "",
        f"- Against the theory that knows: {known}.",
        f"- Against the fits: {fits}; of the theory that knows: "
        f"{compared(found['exact'], found['measured'])}.",
        f"- The 90 % intervals hold the gain of the theory that knows in {100 * covered:.0f} % of the sets.",
        f"- The sign of the distance is right in {100 * same:.0f} % of the {apart.sum()} sets where it is "
        "above 0.3.",
        "",
        "| Beta | features / rows | Bayes error | predicted | known | measured | distance predicted | known "
        "| measured | Bayes error predicted |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    groups = found.assign(shape=found["shape"].map(tuple)).groupby(
        ["shape", "ratio", "bayes_error"]
    )
    for (shape, ratio, error), each in groups:
        gains = [f"{100 * each[name].mean():.2f}" for name in ("predicted", "exact", "measured")]
        distances = [
            f"{each[f'distance_{name}'].mean():+.2f}" for name in ("predicted", "exact", "measured")
        ]
        cells = [str(shape), f"{ratio:g}", f"{error:g}", *gains, *distances]
        lines.append(f"| {' | '.join(cells)} | {each['error_predicted'].mean():.3f} |")
    return lines


def real_words(found: pd.DataFrame) -> list[str]:
    lines = [
        f"{found['table'].nunique()} tables of two classes, {int(found['n_splits'].iloc[0])} splits each, "
        "training rows such that there are 0.05 to 1 columns for each balanced one. Mean over splits ± one "
        "standard error; a prediction is made of each split's training rows. Intervals are those of the "
        "first two splits.",
        "",
        "| | sets | gain | gain if both are calibrated | gain with an intercept | log loss, relative "
        "| log10 lam by loss | right sign of distance |",
        "| --- | ---: | --- | --- | --- | --- | --- | --- |",
    ]
    groups = {
        "all": found,
        **{f"trust {trust}": found[found["trust"] == trust] for trust in TRUSTS},
    }
    for name, each in groups.items():
        if len(each) > 2:
            lines.append(f"| {name} | {len(each)} | {' | '.join(summary_cells(each))} |")
    lines += [
        "",
        "Cells: rank correlation, mean and median absolute error of the prediction (in points of percent for "
        "gains). For the sign only sets count whose distance is above 0.25.",
        "",
        *(f"- {each}" for each in remarks(found)),
        "",
        "| table | features | rows | smaller class | predicted (interval) | measured | with intercept: "
        "predicted | measured | lam predicted | measured | trust |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for each in found.to_dict("records"):
        cells = [
            each["table"],
            f"{each['n_features']:.0f}",
            f"{each['n']:.0f}",
            f"{100 * each['minority']:.0f} %",
            f"{percent(each['predicted'])} ({percent(each['low'])} to {percent(each['high'])})",
            f"{percent(each['measured'])} ± {percent(each['measured_error'])}",
            percent(each["predicted_affine"]),
            percent(each["measured_affine"]),
            f"{each['lam_predicted']:.1f}",
            f"{each['lam_measured']:.1f}",
            each["trust"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def remarks(found: pd.DataFrame) -> list[str]:
    """Say how large gains are, what the intervals are worth, and where predictions fail."""
    unseen = found[found["share_seen"] < 0.5]
    many = found[found["n_features"] >= 20]
    few = found[found["n_features"] < 20]
    above = found["high"] + 2 * found["measured_error"]
    below = found["low"] - 2 * found["measured_error"]
    held = ((below <= found["measured"]) & (found["measured"] <= above)).sum()
    off = found.assign(off=(found["predicted"] - found["measured"]).abs()).nlargest(8, "off")
    worst = (
        f"{each['table']} ({each['n']:.0f} rows, {each['n_features']:.0f} features) "
        f"{percent(each['predicted'])} for {percent(each['measured'])}"
        for each in off.to_dict("records")
    )
    return [
        f"Gains are small: {percent(many['measured'].mean())} % in the mean over the {len(many)} sets of 20 "
        f"or more features (predicted {percent(many['predicted'].mean())} %), "
        f"{percent(found['measured'].median())} % in the median over all.",
        f"With 20 or more features: {against_none(many)}.",
        f"With fewer: {against_none(few)}.",
        f"The measured gain, within two standard errors, lies in the predicted interval in {held} of "
        f"{len(found)} sets.",
        f"Furthest off, predicted for measured: {'; '.join(worst)}.",
        "What makes trust poor (fewer than 20 features, or a log loss below 0.05) was chosen after seeing "
        "such results of these tables. The third reason, that the classes differ by less than two standard "
        f"errors of noise, was not. It holds for most splits of {len(unseen)} sets: {against_none(unseen)}.",
    ]


def against_none(each: pd.DataFrame) -> str:
    """Compare the prediction with saying 0 everywhere."""
    wrong = (each["predicted"] - each["measured"]).abs().mean()
    none = each["measured"].abs().mean()
    rank = each["predicted"].corr(each["measured"], method="spearman")
    verdict = "better" if wrong < none else "worse"
    return (
        f"the rank correlation of predicted and measured gains is {rank:.2f}, the mean absolute error "
        f"{percent(wrong)} points; that is {verdict} than to predict 0 everywhere ({percent(none)})"
    )


TRUSTS = ("good", "fair", "poor")


def summary_cells(each: pd.DataFrame) -> list[str]:
    pairs = [("predicted", "measured")]
    pairs += [(f"predicted_{way}", f"measured_{way}") for way in ("calibrated", "affine")]
    cells = [agreement(100 * each[a], 100 * each[b]) for a, b in pairs]
    cells.append(agreement(np.log(each["loss_predicted"]), np.log(each["loss_measured"])))
    cells.append(agreement(each["lam_predicted"], each["lam_measured"]))
    apart = each["distance_measured"].abs() > 0.25
    same = np.sign(each["distance_predicted"]) == np.sign(each["distance_measured"])
    return [*cells, f"{(same & apart).sum()} of {apart.sum()}"]


def agreement(predicted: pd.Series, measured: pd.Series) -> str:
    wrong = (predicted - measured).abs()
    rank = predicted.corr(measured, method="spearman")
    return f"{rank:.2f}; {wrong.mean():.2f}, {wrong.median():.2f}"


def compared(predicted: pd.Series, truth: pd.Series) -> str:
    wrong = 100 * (predicted - truth).abs()
    correlation = predicted.corr(truth)
    rank = predicted.corr(truth, method="spearman")
    return (
        f"correlation {correlation:.3f} (of ranks {rank:.3f}), absolute error {wrong.mean():.2f} points in "
        f"the mean and {wrong.median():.2f} in the median"
    )


def percent(part: float) -> str:
    return f"{100 * part:.2f}"


# ---- the command -----------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of Parquet tables with an index.csv")
    parser.add_argument("--rows", type=int, default=400, help="of a simulated set")
    parser.add_argument("--sets", type=int, default=4, help="simulated sets for each setting")
    parser.add_argument("--splits", type=int, default=6, help="of a real table")
    parser.add_argument("--draws", type=int, default=40, help="for the intervals")
    parser.add_argument("--only", choices=["simulated", "real"], help="one part")
    parser.add_argument("--out", type=Path, default=RESULTS / "predict-gain.md")
    parser.add_argument(
        "--again",
        action="store_true",
        help="write the page from stored records; with --data, predict anew, but fit nothing",
    )
    options = parser.parse_args()
    store = options.out.with_suffix(".jsonl")
    if not options.again:
        measure(options, store)
    records = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
    if options.again and options.data is not None:
        stored = [each for each in records if each["part"] == "real"]
        others = [each for each in records if each["part"] != "real"]
        records = [
            *simulated_anew(others, options.rows, options.draws),
            *predicted_anew(options.data, stored, options.draws),
        ]
        store.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    options.out.write_text(page(records, COMMAND), encoding="utf-8")


COMMAND = "OMP_NUM_THREADS=1 python -m benchmarks.predict_gain --data FOLDER"


def measure(options: argparse.Namespace, store: Path) -> None:
    """Write one line of JSON for each setting."""
    start = time.perf_counter()
    parts: dict[str, Iterator[dict[str, Any]]] = {
        "simulated": simulate(options.rows, options.sets, options.draws)
    }
    if options.data is not None:
        parts["real"] = real(options.data, options.splits, options.draws)
    if options.only is not None:
        parts = {options.only: parts[options.only]}
    with store.open("w", encoding="utf-8") as file:
        for part, records in parts.items():
            for record in records:
                file.write(json.dumps({"part": part, **record}) + "\n")
                file.flush()
            print(f"{part}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
