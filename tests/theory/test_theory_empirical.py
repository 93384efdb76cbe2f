"""Theory against trained classifiers: right fits, right statistics, and a verdict that can fail."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import kstest, ttest_1samp
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression, Ridge

from refinecal.theory import BetaSpectrum, PointSpectrum, check, logistic
from refinecal.theory import empirical as module
from refinecal.theory.deviations import QUANTITIES, compare
from refinecal.theory.empirical import fit_path
from refinecal.theory.model import GaussianModel

FEW = [0.01, 0.1, 1.0]


@pytest.fixture(scope="module")
def found():
    return check(FEW, n=200, seeds=20, processes=1, seed=3)


def sample(n, p, seed=0):
    rng = np.random.default_rng(seed)
    model = GaussianModel.from_spectrum(BetaSpectrum(1, 1), p, bayes_error=0.1, seed=rng)
    return model, *model.sample(n, seed=rng)


# ---- fits --------------------------------------------------------------------------------------------------


def minimiser(X, y, lam):
    """Minimise the penalised loss, as the paper writes it, by Newton's method with an exact Hessian."""
    A = np.where(y, 1, -1)[:, None] * X
    n, p = A.shape

    def s(w):
        return 0.5 * (1 - np.tanh(A @ w / 2))

    return minimize(
        lambda w: np.logaddexp(0, -A @ w).mean() + lam / 2 * w @ w,
        np.zeros(p),
        jac=lambda w: lam * w - A.T @ s(w) / n,
        hess=lambda w: A.T * (s(w) * (1 - s(w))) @ A / n + lam * np.eye(p),
        method="trust-exact",
        options={"gtol": 1e-12},
    ).x


@pytest.mark.parametrize(("n", "p"), [(150, 60), (60, 90)])
def test_logistic_fits_are_the_minimisers(n, p):
    _, X, y = sample(n, p)
    lams = np.array([1e-3, 0.03, 1.0, 100.0])
    for lam, weights in zip(lams, fit_path(X, y, lams), strict=True):
        exact = minimiser(X, y, lam)
        assert np.linalg.norm(weights - exact) <= 1e-6 * np.linalg.norm(exact)
        alone = LogisticRegression(
            C=1 / (lam * n), fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=200
        )
        assert np.allclose(
            weights, alone.fit(X, y).coef_[0], rtol=0, atol=1e-6 * np.abs(exact).max()
        )


@pytest.mark.parametrize(("n", "p"), [(150, 60), (60, 90)])
def test_linear_fits_solve_their_equations(n, p):
    _, X, y = sample(n, p)
    signs, lams = np.where(y, 1.0, -1.0), np.array([1e-3, 0.1, 10.0])
    mean = signs @ X / n
    centred = signs[:, None] * X - mean
    for lam, one, two in zip(
        lams, fit_path(X, y, lams, "ridge"), fit_path(X, y, lams, "lda"), strict=True
    ):
        by_sklearn = Ridge(alpha=lam * n, fit_intercept=False, solver="svd").fit(X, signs)
        assert one == pytest.approx(by_sklearn.coef_, rel=1e-7, abs=1e-10)
        covariance = centred.T @ centred / n
        assert two == pytest.approx(
            2 * np.linalg.solve(covariance + lam * np.eye(p), mean), rel=1e-6, abs=1e-9
        )


@pytest.mark.parametrize("label", [0, 1])
def test_rows_of_one_class_are_fitted_too(label):
    """Few rows may have one label; without an intercept, (-x, 1 - y) is the same row as (x, y)."""
    _, X, y = sample(30, 5)
    signed = np.where(y == label, 1, -1)[:, None] * X
    lams = np.array([0.1, 1.0])
    alone = fit_path(signed, np.full(30, label), lams)
    assert alone == pytest.approx(fit_path(X, y, lams), rel=1e-5, abs=1e-8)


def test_a_fit_that_does_not_converge_is_an_error(monkeypatch):
    _, X, y = sample(80, 40)
    monkeypatch.setattr(module, "MOST_ROUNDS", 2)
    with pytest.raises(RuntimeError, match=r"did not converge at lam = 0.001 .*use a larger lam"):
        fit_path(X, y, np.array([1e-3]))


# ---- statistics --------------------------------------------------------------------------------------------


def test_deviations_of_what_theory_predicts_are_t_statistics():
    rng = np.random.default_rng(0)
    a, s = 2 + 0.1 * rng.standard_normal((15, 4)), 1.5 + 0.1 * rng.standard_normal((15, 4))
    made = compare(np.arange(1.0, 5), a, s, np.full(4, 2.0), np.full(4, 1.5))
    for name, values, mean in (("expertise", a, 2.0), ("confidence", s, 1.5)):
        exact = ttest_1samp(values, mean)
        assert made.deviation[name] == pytest.approx(exact.statistic)
        low, high = exact.confidence_interval(0.95)
        assert made.measured[name] - made.margin[name] == pytest.approx(low)
        assert made.measured[name] + made.margin[name] == pytest.approx(high)


@pytest.mark.slow
def test_the_chance_is_uniform_if_theory_holds():
    """Scatter around the truth, with strong correlations; calibration is 0 in the middle strength."""
    rng = np.random.default_rng(1)
    a, s = np.full(3, 1.5), np.array([1.0, 1.5, 2.5])
    chances = []
    for _ in range(300):
        common, own = rng.standard_normal((2, 20, 1)), rng.standard_normal((2, 20, 3))
        off = 0.05 * (common + 0.3 * own)
        chances.append(compare(np.ones(3), a + off[0], s + off[1], a, s).chance)
    assert kstest(chances, "uniform").pvalue > 1e-3


def test_scatter_alone_lifts_calibration_and_is_no_deviation():
    rng = np.random.default_rng(2)
    a = 1.5 + 0.1 * rng.standard_normal((400, 1))
    s = 1.5 + 0.1 * rng.standard_normal((400, 1))
    a, s = a - a.mean() + 1.5, s - s.mean() + 1.5  # exactly where theory has them
    made = compare(np.ones(1), a, s, np.array([1.5]), np.array([1.5]))
    assert made.theory["calibration"] == pytest.approx(0, abs=1e-15)
    assert made.measured["calibration"] > 10 * made.standard_error["calibration"]
    assert made.deviation["calibration"] == pytest.approx(0, abs=1e-9)
    assert made.holds


@pytest.mark.parametrize("draws", [2, 3, 19, 20])
def test_few_draws_can_fail_but_not_succeed(draws):
    rng = np.random.default_rng(draws)
    off = 0.05 * rng.standard_normal((2, draws, 1))
    a = np.array([1.5])
    right = compare(np.ones(1), a + off[0], a + 0.5 + off[1], a, a + 0.5)
    assert right.holds is (True if draws >= 20 else None)
    assert right.verdict.startswith("Within" if draws >= 20 else f"Undecided: {draws} draws are")
    assert np.abs(list(right.deviation.values())).max() < right.notable
    wrong = compare(np.ones(1), a + 0.001 * off[0], a + 0.001 * off[1], a + 1, a + 1)
    assert np.abs(list(wrong.deviation.values())).max() > wrong.notable
    assert wrong.holds is False
    assert wrong.verdict.startswith("Not within")


def test_the_notable_deviation_is_where_the_chance_is_1_percent():
    """Where all quantities move together, that is the quantile of Student's law."""
    rng = np.random.default_rng(4)
    off = 1e-4 * rng.standard_normal((12, 1))
    a, s = np.array([2.0]), np.array([3.0])
    made = compare(np.ones(1), a + off, s + off, a, s)
    assert made.notable == pytest.approx(student.ppf(0.995, 11), rel=0.05)


def test_parts_sum_to_the_risk(found):
    for values in (found.draws.theory, found.draws.measured, found.law.theory, found.law.expected):
        assert values["risk"] == pytest.approx(values["calibration"] + values["refinement"])


# ---- the check ---------------------------------------------------------------------------------------------


def test_theory_holds(found):
    assert found.holds
    assert found.law.holds
    assert found.verdict.startswith("Within sampling error: the largest of 18 deviations")
    assert abs(found.draws.largest.deviation) == max(
        np.abs(each).max() for each in found.draws.deviation.values()
    )


@pytest.mark.parametrize("method", ["lda", "ridge"])
def test_the_other_theories_hold(method):
    made = check(FEW, n=300, ratio=1.5, seeds=20, method=method, processes=1)
    assert made.holds
    assert made.law.holds


def test_the_law_is_theory_of_the_law(found):
    exact = logistic(FEW, ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    for name in QUANTITIES:
        assert found.law.theory[name] == pytest.approx(getattr(exact, name), rel=1e-9)
    assert found.predict([0.1]).risk == pytest.approx(exact.risk[1:2], rel=1e-9)


def test_paired_differences_are_sharper(found):
    assert (found.draws.standard_error["risk"] < found.law.standard_error["risk"]).all()


@pytest.mark.parametrize("wrong", [{"ratio": 1.5}, {"signal": 1.3}])
def test_a_wrong_theory_is_rejected(monkeypatch, wrong):
    """The same check, whose theory takes the ratio or the signal for larger than it is."""

    def biased(lams, **given):
        if "bayes_error" in given:
            given["signal"] = given["spectrum"].signal_for(given.pop("bayes_error"))
        for name, factor in wrong.items():
            given[name] = factor * given[name]
        return logistic(lams, **given)

    monkeypatch.setitem(module.METHODS, "logistic", biased)
    made = check(FEW, n=300, seeds=20, processes=1)
    assert not made.holds
    assert made.draws.chance < 0.001
    assert made.verdict.startswith("Not within sampling error")
    assert "less than 0.1%" in made.verdict
    assert repr(made).split("\n")[0] == made.setting
    assert "Not within sampling error" in repr(made)
    assert "n → ∞" in made.verdict


def test_the_same_seed_gives_the_same_result_in_any_number_of_processes(found):
    seen = []
    made = check(
        FEW,
        n=200,
        seeds=20,
        processes=2,
        seed=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert np.array_equal(made.expertise, found.expertise)
    assert np.array_equal(made.confidence, found.confidence)
    assert made.draws.columns() == found.draws.columns()
    assert seen == [(done, 20) for done in range(1, 21)]
    other = check(FEW, n=200, seeds=2, processes=1, seed=4)
    assert not np.isclose(other.expertise, found.expertise[:2]).any()


def test_more_draws_begin_with_the_same_ones(found):
    made = check(FEW, n=200, seeds=2, processes=1, seed=3)
    assert np.array_equal(made.expertise, found.expertise[:2])


def test_strengths_are_sorted_and_another_loss_is_measured():
    made = check(
        [1.0, 0.1], n=100, seeds=3, loss="brier", spectrum=PointSpectrum([1, 2]), processes=1
    )
    assert made.lam.tolist() == [0.1, 1.0]
    exact = logistic(
        [0.1, 1.0], ratio=0.5, bayes_error=0.1, spectrum=PointSpectrum([1, 2]), loss="brier"
    )
    assert made.law.theory["risk"] == pytest.approx(exact.risk)


def test_it_is_printed_with_setting_deviations_and_verdict(found):
    lines = str(found).split("\n")
    assert lines[0].startswith("logistic regression, 20 draws of n = 200, p = 100, Bayes error 10%")
    rows = {line[:12].strip(): line[12:].split() for line in lines[2:8]}
    for name in QUANTITIES:
        of = found.draws.largest_of(name)
        assert rows[name.replace("_", " ")][1:3] == [f"{of.expected:.4f}", f"{of.measured:.4f}"]
    assert " ".join(lines[8:]) == found.verdict
    assert max(map(len, lines)) <= 100


def test_columns_hold_everything(found):
    columns = found.columns()
    assert {len(each) for each in columns.values()} == {2 * len(QUANTITIES) * len(FEW)}
    assert columns["against"][0] == "draws"
    assert columns["against"][-1] == "law"
    low, high, mean = (np.array(columns[name]) for name in ("low", "high", "measured"))
    assert (low < mean).all()
    assert (mean < high).all()
    import json

    assert json.loads(json.dumps(found.to_dict()))["draws"]["chance"] == found.draws.chance


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lams": []}, "lams is empty"),
        ({"lams": [0.1, np.nan]}, r"lams\[1\] is nan"),
        ({"lams": [0.1, -1]}, r"lams\[1\] is -1.*positive"),
        ({"ratio": 0.0}, "ratio is 0.*positive"),
        ({"ratio": 1e-9}, "no feature for 2000 rows"),
        ({"ratio": [0.5, 1]}, "pass one number"),
        ({"bayes_error": 0.7}, "bayes_error is 0.7"),
        ({"n": 1}, "n is 1: it must be a whole number of at least 10"),
        ({"n": 2, "seeds": 2}, "n is 2: it must be a whole number of at least 10"),
        ({"n": 10, "ratio": 0.1}, "one feature for 10 rows.* at least 2 features"),
        ({"n": 10.5}, "n is 10.5: it must be a whole number"),
        ({"seeds": 1}, "seeds is 1: it must be a whole number of at least 2"),
        ({"seed": -1}, "seed is -1: it must be a whole number of at least 0"),
        ({"processes": 0}, "processes is 0: it must be a whole number of at least 1"),
        ({"processes": True}, "processes is True: it must be a whole number"),
        ({"method": "logistics"}, "Did you mean 'logistic'"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"spectrum": "beta"}, "spectrum is a str"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        check(**given)
