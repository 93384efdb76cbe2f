"""RealMLP in the tabular experiment: the authors' own weights, seen by our monitor after every epoch."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import log_softmax

import refinecal as rc
from refinecal.training.realmlp import RealMLPModel
from refinecal.training.rows import Rows
from refinecal.training.spaces import draw
from refinecal.training.trainer import TrainingRun

needs_pytabkit = pytest.mark.skipif(find_spec("pytabkit") is None, reason="needs pytabkit")
N = 2000
LEAST_P = 1e-3  # seeds are fixed, so that a test either always passes or never
SMALL = {"hidden_sizes": [16, 16]}
METRICS = ("refinement", "log_loss", "brier", "accuracy")


# ---- the search space ------------------------------------------------------------------------------------


def draws():
    rng = np.random.default_rng(0)
    return pd.DataFrame([draw("realmlp", rng) for _ in range(N)])


@pytest.mark.parametrize(
    ("name", "law"),
    [("lr", stats.loguniform(2e-2, 3e-1)), ("plr_sigma", stats.loguniform(0.05, 0.5))],
)
def test_the_papers_continuous_distributions(name, law):
    found = draws()[name]
    low, high = law.support()
    assert low <= found.min() <= found.max() <= high
    assert stats.kstest(found, law.cdf).pvalue > LEAST_P


@pytest.mark.parametrize(
    ("name", "chances"),
    [
        ("num_emb_type", {"none": 1 / 4, "pbld": 1 / 4, "pl": 1 / 4, "plr": 1 / 4}),
        ("add_front_scale", {True: 0.6, False: 0.4}),
        ("p_drop", {0.0: 0.3, 0.15: 0.5, 0.3: 0.2}),
        ("act", {"relu": 1 / 3, "selu": 1 / 3, "mish": 1 / 3}),
        ("hidden_sizes", {(256,) * 3: 0.6, (64,) * 5: 0.2, (512,): 0.2}),
        ("wd", {0.0: 1 / 3, 2e-3: 1 / 3, 2e-2: 1 / 3}),
        ("ls_eps", {0.0: 1 / 2, 0.1: 1 / 2}),
    ],
)
def test_the_papers_choices(name, chances):
    found = draws()[name]
    counts = (found.map(tuple) if name == "hidden_sizes" else found).value_counts()
    assert set(counts.index) == set(chances)
    expected = [N * chances[value] for value in counts.index]
    assert stats.chisquare(counts, expected).pvalue > LEAST_P


def test_draws_are_plain_and_repeatable():
    drawn = draw("realmlp", np.random.default_rng(5))
    assert json.loads(json.dumps(drawn)) == drawn == draw("realmlp", np.random.default_rng(5))
    assert drawn != draw("realmlp", np.random.default_rng(6))


# ---- without pytabkit ------------------------------------------------------------------------------------


def test_importing_loads_no_framework():
    code = (
        "import sys, refinecal.training.realmlp; "
        "assert not {'torch', 'pytabkit', 'lightning'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Absent:
    """Makes pytabkit look as if it were not installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pytabkit":
            raise ModuleNotFoundError("No module named 'pytabkit'", name=name)


def test_says_how_to_get_pytabkit(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pytabkit"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent, *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'refinecal\[realmlp\]'"):
        train(thirds(*mixed()))


def test_is_neither_saved_nor_loaded(tmp_path):
    with pytest.raises(NotImplementedError, match="neither saved nor loaded.*keep its logits"):
        RealMLPModel.load(tmp_path)


# ---- data ------------------------------------------------------------------------------------------------


def category(codes, n):
    return pd.Categorical.from_codes(np.asarray(codes), categories=range(n))


def mixed(n=600, k=3, seed=0):
    """Return a table of numbers and categories, with gaps in the latter, and labels that depend on both."""
    rng = np.random.default_rng(seed)
    size, colour, shop = rng.normal(size=n), rng.integers(0, 3, n), rng.integers(0, 20, n)
    score = size + (colour == 1) + 0.7 * (shop % k) + 0.5 * rng.normal(size=n)
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, k + 1)[1:-1])).astype(np.int64)
    X = pd.DataFrame(
        {
            "size": size,
            "colour": category(np.where(rng.random(n) < 0.1, -1, colour), 4),  # 3 is never seen
            "noise": rng.exponential(size=n),
            "shop": category(shop, 20),
        }
    )
    return X, y


def thirds(X, y):
    """Return rows to train, to validate and to test with."""
    cuts = [
        slice(0, len(y) // 2),
        slice(len(y) // 2, 3 * len(y) // 4),
        slice(3 * len(y) // 4, None),
    ]
    return [(X[cut].reset_index(drop=True), y[cut]) for cut in cuts]


class Watcher(rc.RefinementMonitor):
    """A monitor that remembers what it was shown."""

    def __init__(self, **options):
        super().__init__(also=METRICS[1:], **options)
        self.seen = {}

    def update(self, y_val, probs=None, *, logits=None, step=None, **options):
        self.seen[step] = np.array(logits)
        return super().update(y_val, probs, logits=logits, step=step, **options)


def until_the_end():
    """Return a monitor whose best epoch is always the last."""
    left = iter(range(10_000, 0, -1))
    return rc.RefinementMonitor(rc.metrics.Metric(lambda y_true, probs: next(left), "left"))


def train(parts, monitor=None, max_steps=5, **options):
    (X, y), (X_val, y_val) = parts[:2]
    options = {"params": SMALL, "n_threads": 1, **options}
    classes = np.arange(options.pop("n_classes", int(y.max()) + 1))
    rows = Rows(X, y, options.pop("weights", None))
    monitor = monitor or Watcher()
    return RealMLPModel.train(
        TrainingRun(rows, Rows(X_val, y_val), classes, monitor, max_steps, **options)
    )


def in_columns(logits):
    return np.stack([0 * logits, logits], axis=1) if logits.ndim == 1 else logits


# ---- the authors' weights --------------------------------------------------------------------------------


@needs_pytabkit
@pytest.mark.filterwarnings("ignore")  # those of Lightning and torch
@pytest.mark.parametrize(
    ("k", "params"),
    [
        (2, {}),
        (3, SMALL),
        (3, SMALL | {"num_emb_type": "plr", "act": "mish", "wd": 2e-3, "lr": 0.2}),
        (2, SMALL | {"num_emb_type": "none", "add_front_scale": False, "p_drop": 0.0}),
        (3, SMALL | {"num_emb_type": "pl", "plr_sigma": 0.4, "act": "relu", "ls_eps": 0.1}),
    ],
)
def test_weights_are_those_of_the_authors(k, params):
    from pytabkit import RealMLP_TD_Classifier

    class Last(RealMLP_TD_Classifier):
        def _get_default_params(self):
            return super()._get_default_params() | {"use_best_epoch": False}

    parts = thirds(*mixed(n=1300, k=k))
    (X, y), (X_val, y_val), (X_test, _) = parts
    smoothing = params.get("ls_eps", 0.0)
    theirs = Last(
        random_state=7,
        n_epochs=4,
        device="cpu",
        n_threads=1,
        **params | {"use_ls": smoothing > 0, "ls_eps": smoothing},
    )
    theirs.fit(X, y, X_val, y_val)
    ours = train(parts, until_the_end(), 4, params=params, seed=7)
    raw = theirs._predict_raw(X_test)[0].numpy()
    expected = raw[:, 1] - raw[:, 0] if k == 2 else raw
    assert np.array_equal(ours.logits(X_test), expected)


@needs_pytabkit
def test_defaults_are_those_of_the_paper():
    assert RealMLPModel.default_steps == 256
    parts = thirds(*mixed())
    plain = train(parts, until_the_end(), 2, params={})
    said = train(
        parts,
        until_the_end(),
        2,
        params={"ls_eps": 0.0, "lr": 0.04, "hidden_sizes": [256] * 3, "p_drop": 0.15, "wd": 0.02},
    )
    smooth = train(parts, until_the_end(), 2, params={"ls_eps": 0.1})
    X_test = parts[2][0]
    assert np.array_equal(plain.logits(X_test), said.logits(X_test))
    assert not np.array_equal(plain.logits(X_test), smooth.logits(X_test))


# ---- what the monitor sees, and what is kept -------------------------------------------------------------


@needs_pytabkit
@pytest.mark.parametrize("k", [2, 4])
def test_the_monitor_sees_every_epoch_and_the_best_are_kept(k):
    parts = thirds(*mixed(k=k))
    X_val, y_val = parts[1]
    monitor, told = Watcher(), []
    model = train(parts, monitor, 8, on_step=told.append)
    assert told == list(monitor.seen) == list(range(1, 9))
    assert model.n_steps == 8
    assert model.n_classes == k
    assert model.step == monitor.best_step
    assert set(model.kept) == {best.step for best in monitor.bests.values()}
    for best in monitor.bests.values():
        logits = model.logits(X_val, best.step)
        assert logits.shape == ((150,) if k == 2 else (150, k))
        assert np.array_equal(logits, monitor.seen[best.step])
        risk = -log_softmax(in_columns(logits).astype(float), axis=1)[np.arange(150), y_val].mean()
        assert np.isclose(risk, best.record["log_loss"], rtol=1e-5)


@needs_pytabkit
def test_only_the_best_epochs_predict():
    parts = thirds(*mixed())
    model = train(parts, until_the_end(), 3)
    assert set(model.kept) == {3}
    with pytest.raises(ValueError, match=r"step is 2: only the weights of epochs \[3\] were kept"):
        model.logits(parts[2][0], 2)
    with pytest.raises(ValueError, match=r"step is 9: the model has the epochs 1..3"):
        model.logits(parts[2][0], 9)


@needs_pytabkit
def test_epochs_predict_in_any_order():
    parts = thirds(*mixed())
    X_test = parts[2][0]
    model = train(parts, Watcher(), 12)
    steps = sorted(model.kept)
    once = {step: model.logits(X_test, step) for step in steps}
    assert all(np.array_equal(model.logits(X_test, step), once[step]) for step in reversed(steps))


@needs_pytabkit
def test_validation_rows_teach_nothing():
    parts = thirds(*mixed())
    X_test = parts[2][0]
    one = train(parts, until_the_end(), 3).logits(X_test)
    other = train([parts[0], mixed(n=90, seed=8)], until_the_end(), 3).logits(X_test)
    assert np.array_equal(one, other)


@needs_pytabkit
def test_patience_stops():
    monitor = Watcher(patience=1)
    model = train(thirds(*mixed()), monitor, 60, params=SMALL | {"lr": 0.3})
    assert monitor.should_stop
    assert model.n_steps == len(monitor.history) < 60


@needs_pytabkit
def test_learns():
    parts = thirds(*mixed(n=1200, k=2))
    X_test, y_test = parts[2]
    model = train(parts, max_steps=25, params={})
    assert ((model.logits(X_test) > 0) == y_test).mean() > 0.8


# ---- seeds, threads and global state ---------------------------------------------------------------------


@needs_pytabkit
def test_a_seed_gives_one_model_and_leaves_torch_alone():
    import torch

    parts = thirds(*mixed())
    X_test = parts[2][0]
    torch.manual_seed(1)
    before = torch.get_rng_state(), torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    one = train(parts, seed=4)
    first = one.logits(X_test)
    after = torch.get_rng_state(), torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    torch.manual_seed(2)
    again, other = train(parts, seed=4), train(parts, seed=5)
    assert np.array_equal(first, again.logits(X_test))
    assert not np.array_equal(first, other.logits(X_test))


@needs_pytabkit
def test_trainings_in_two_threads_do_not_disturb_each_other():
    parts = thirds(*mixed())
    X_test = parts[2][0]
    alone = [train(parts, seed=seed).logits(X_test) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:  # as in a worker of Dask
        both = list(pool.map(lambda seed: train(parts, seed=seed).logits(X_test), (1, 2)))
    assert np.array_equal(alone, both)


@needs_pytabkit
@pytest.mark.parametrize("seed", [0, 2**32, 2**63 + 11])
def test_takes_any_seed(seed):
    parts = thirds(*mixed(n=200))
    assert np.isfinite(train(parts, max_steps=1, seed=seed).logits(parts[2][0])).all()


# ---- tables ----------------------------------------------------------------------------------------------


@needs_pytabkit
@pytest.mark.parametrize(
    "columns", [["size"], ["colour"], ["shop"], ["noise", "size"], ["shop", "colour"]]
)
@pytest.mark.parametrize("embedding", ["none", "pbld", "pl", "plr"])
def test_takes_tables_of_one_kind(columns, embedding):
    X, y = mixed(n=300)
    parts = thirds(X[columns], y)
    model = train(parts, max_steps=2, params=SMALL | {"num_emb_type": embedding})
    logits = model.logits(parts[2][0])
    assert np.isfinite(logits).all()
    assert logits.std(axis=0).min() > 0


@needs_pytabkit
def test_takes_columns_that_say_nothing():
    X, y = mixed(n=300)
    X = X.assign(
        flat=3.0,
        one=category(np.zeros(300, int), 1),
        gone=category(np.full(300, -1), 5),
        two=category(np.arange(300) % 2, 2),
    )
    parts = thirds(X, y)
    assert np.isfinite(train(parts, max_steps=2).logits(parts[2][0])).all()


@needs_pytabkit
def test_unseen_categories_are_missing_ones():
    X, y = mixed()
    parts = thirds(X, y)
    model = train(parts)
    rows = parts[2][0]
    unseen = rows.assign(colour=category(np.full(len(rows), 3), 4), shop=category([77] * 150, 90))
    missing = rows.assign(colour=category([-1] * 150, 4), shop=category([-1] * 150, 20))
    assert np.array_equal(model.logits(unseen), model.logits(missing))
    assert np.isfinite(model.logits(unseen)).all()


@needs_pytabkit
def test_names_of_categories_do_not_matter():
    X, y = mixed()
    renamed = X.assign(shop=category(3 * X["shop"].cat.codes.to_numpy() + 5, 100))
    one, other = thirds(X, y), thirds(renamed, y)
    assert np.array_equal(train(one).logits(one[2][0]), train(other).logits(other[2][0]))


@needs_pytabkit
def test_rows_are_predicted_one_by_one_as_together():
    X, y = mixed(n=300)
    model = train(thirds(X, y))
    many = pd.concat([X] * 9, ignore_index=True)  # 2 700 rows: three chunks
    together = model.logits(many)
    assert together.shape == (2700, 3)
    apart = np.concatenate([model.logits(many[i : i + 1]) for i in range(0, 2700, 90)])
    assert np.allclose(together[::90], apart, rtol=1e-4, atol=1e-5)
    assert model.logits(many[:0]).shape == (0, 3)


@needs_pytabkit
def test_takes_rows_of_any_index_that_must_not_be_written():
    parts = thirds(*mixed())
    expected = train(parts).logits(parts[2][0])
    (X, y), *others = parts
    odd = X.set_index(np.random.default_rng(0).permutation(len(X)))
    y = y.copy()
    y.setflags(write=False)  # as joblib hands on what is large
    assert np.array_equal(train([(odd, y), *others]).logits(parts[2][0]), expected)


@needs_pytabkit
def test_takes_huge_numbers():
    parts = thirds(*mixed())
    rows = parts[2][0][:4].assign(size=[1e300, -1e300, np.inf, -np.inf])
    assert np.isfinite(train(parts).logits(rows)).all()


@needs_pytabkit
def test_takes_what_the_space_draws():
    rng = np.random.default_rng(1)
    parts = thirds(*mixed(n=300))
    for _ in range(6):
        model = train(parts, max_steps=1, params=draw("realmlp", rng))
        assert np.isfinite(model.logits(parts[2][0])).all()


# ---- bad input -------------------------------------------------------------------------------------------


@needs_pytabkit
@pytest.mark.parametrize("where", [0, 1])
def test_missing_numbers_are_refused(where):
    parts = thirds(*mixed())
    X, y = parts[where]
    parts[where] = X.assign(noise=X["noise"].where(np.arange(len(X)) > 1)), y
    with pytest.raises(
        ValueError, match=r"column 'noise' has 2 missing values in \d+ rows.*Drop those rows"
    ):
        train(parts)


@needs_pytabkit
def test_missing_numbers_are_refused_when_predicting():
    parts = thirds(*mixed(n=200))
    model = train(parts, max_steps=1)
    with pytest.raises(ValueError, match="column 'size' has 50 missing values in 50 rows"):
        model.logits(parts[2][0].assign(size=np.nan))


@needs_pytabkit
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": np.ones(300)}, "RealMLP takes none: omit them"),
        ({"params": {"learning_rate": 0.1}}, "a parameter of realmlp is 'learning_rate'"),
        ({"params": {"n_epochs": 9}}, "a parameter of realmlp is 'n_epochs'"),
        ({"params": {"use_ls": True}}, "a parameter of realmlp is 'use_ls'.*'ls_eps'"),
        ({"params": {"num_emb_type": "plx"}}, "Unknown numerical embedding type"),
        ({"max_steps": 0}, "max_steps is 0: train for at least one epoch"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        train(thirds(*mixed()), **options)


@needs_pytabkit
def test_other_columns_and_saving_are_refused(tmp_path):
    parts = thirds(*mixed(n=200))
    model = train(parts, max_steps=1)
    with pytest.raises(ValueError, match="X has 3 columns, but the model was trained with 4"):
        model.logits(parts[2][0].iloc[:, :3])
    with pytest.raises(NotImplementedError, match="neither saved nor loaded"):
        model.save(tmp_path)
    assert not list(tmp_path.iterdir())


@needs_pytabkit
def test_a_training_that_diverges_is_told_so():
    parts = thirds(*mixed())
    monitor = Watcher()
    with pytest.warns(RuntimeWarning, match="diverged"):
        model = train(parts, monitor, 20, params=SMALL | {"lr": 1e30})
    assert monitor.diverged
    assert model.n_steps < 20
