"""RealMLP of the package pytabkit, with label smoothing off, as a model of a table.

pytabkit provides the network, preprocessing, schedules and optimizer; the loop over epochs is here,
since pytabkit's own, in Lightning, keeps one epoch's weights for each of its own metrics, while ours shows
the validation logits of every epoch to a monitor. Both give exactly the same weights.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.training.encoding import category_mask, code_positions, learn_codes, number_columns
from refinecal.training.table_model import TableModel, check_params, find_step
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd
    import torch

CHUNK = 1024  # rows that are predicted at once, as in pytabkit
LARGEST_SEED = 2**32
ALONE = threading.RLock()  # pytabkit uses torch's global random numbers, shared by all threads
UNSAVED = (
    "a RealMLP can be neither saved nor loaded, since pytabkit has no file format but pickle: keep its "
    "logits, or train it again with the same seed"
)

Weights = dict[str, "torch.Tensor"]


class RealMLPModel(TableModel):
    """RealMLP on the CPU; a step is an epoch. It cannot be saved.

    Parameters have pytabkit's names and defaults (those of ``RealMLP_TD_Classifier``), but label smoothing
    ``ls_eps`` is 0, as in the paper: it makes the loss improper. The schedules of learning rate, dropout and
    weight decay end at ``max_steps``, so a run of fewer epochs is not the beginning of a longer one.
    For the same seed the weights are those of ``RealMLP_TD_Classifier(random_state=seed)``.

    The weights of the best epoch by each metric of the monitor are kept.
    """

    name = "realmlp"
    step_name = "epoch"
    default_steps = 256
    default_patience = None  # the schedules must run to their end

    def __init__(
        self,
        columns: Columns,
        network: Network,
        kept: dict[int, Weights],
        n_steps: int,
        n_classes: int,
        n_threads: int | None = None,
    ) -> None:
        self.columns = columns
        self.network = network
        self.kept = kept
        self.n_steps = n_steps
        self.n_classes = n_classes
        self.n_features = len(columns.names)
        self.n_threads = n_threads

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        kit = _pytabkit()
        options = _options(run, kit)
        columns = Columns.learn(run.rows.X)
        with _isolate_torch(run.n_threads):
            module = _new_module(run, options, columns, kit)
            network = Network(module.creator.static_model, module.model)
            rows_val = network.prepare(columns.dataset(run.val.X, kit))
            kept = run.keep_best(
                _epochs(module), lambda: network.predict(rows_val), network.weights
            )
        return cls(columns, network, kept, run.step, len(run.classes), run.n_threads)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        weights = find_step(self.kept, step)
        with _isolate_torch(self.n_threads):
            self.network.net.load_state_dict(weights)
            return self.network.predict(self.network.prepare(self.columns.dataset(X, _pytabkit())))

    def _to_bytes(self, step: int) -> bytes:
        raise NotImplementedError(UNSAVED)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Refuse: there is nothing to read."""
        raise NotImplementedError(UNSAVED)

    @classmethod
    def _load(cls, path: Path) -> Self:
        raise NotImplementedError(UNSAVED)


# ---- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the training table, and the codes that occur in each one of categories."""

    names: list[str]
    is_category: NDArray[np.bool_]
    known: list[NDArray[np.int64]]

    @classmethod
    def learn(cls, X: pd.DataFrame) -> Self:
        mask = category_mask(X)
        return cls([str(name) for name in X.columns], mask, learn_codes(X, mask))

    def dataset(self, X: pd.DataFrame, kit: Any, labels: Any = None, n_classes: int = 0) -> Any:
        """Return rows as pytabkit wants them: category 0 stands for missing and for never seen."""
        import torch

        numbers = number_columns(X, self.is_category)
        self._check_numbers(numbers)
        categories = code_positions(X, self.is_category, self.known) + 1
        sizes = torch.tensor([len(codes) + 1 for codes in self.known], dtype=torch.long)
        tensors = {
            "x_cont": torch.from_numpy(numbers.astype(np.float32)),
            "x_cat": torch.from_numpy(categories),
        }
        infos = {
            "x_cont": kit.TensorInfo(feat_shape=[numbers.shape[1]]),
            "x_cat": kit.TensorInfo(cat_sizes=sizes),
        }
        if labels is not None:
            tensors["y"] = torch.tensor(labels)[:, None]
            infos["y"] = kit.TensorInfo(cat_sizes=[n_classes])
        return kit.DictDataset(tensors, infos)

    def _check_numbers(self, numbers: NDArray[np.float64]) -> None:
        n_missing = np.isnan(numbers).sum(axis=0)
        if n_missing.any():
            i = int(np.flatnonzero(n_missing)[0])
            name = self.names[np.flatnonzero(~self.is_category)[i]]
            raise ValueError(
                f"column {name!r} has {n_missing[i]} missing values in {len(numbers)} rows, which RealMLP "
                "cannot take. Drop those rows, as the paper does, or fill the gaps."
            )


# ---- the network ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Network:
    """A network of pytabkit, with what its rows go through once before training."""

    preprocessing: Any
    net: Any

    def prepare(self, rows: Any) -> dict[str, torch.Tensor]:
        prepared: dict[str, torch.Tensor] = self.preprocessing.forward_ds(rows).tensors
        return prepared

    def predict(self, rows: dict[str, torch.Tensor]) -> NDArray[Any]:
        import torch

        self.net.eval()
        n = len(next(iter(rows.values())))
        with torch.no_grad():
            parts = [
                self.net({name: each[None, i : i + CHUNK] for name, each in rows.items()})[
                    "x_cont"
                ][0]
                for i in range(0, max(1, n), CHUNK)
            ]
            outputs = torch.cat(parts)
            log_odds = outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs
        return np.asarray(log_odds.numpy())

    def weights(self) -> Weights:
        return {name: each.detach().clone() for name, each in self.net.state_dict().items()}


def _new_module(run: TrainingRun, options: dict[str, Any], columns: Columns, kit: Any) -> Any:
    """Return pytabkit's Lightning module, fitted to the training rows but not trained."""
    import torch

    seed = run.seed % LARGEST_SEED
    # The second seed is drawn as in RealMLP_TD_Classifier, so that its weights are ours.
    second = int(np.random.RandomState(seed).randint(0, 2**31 - 1, size=1)[0])
    rows = torch.arange(len(run.rows.y))[None]
    split = kit.SplitIdxs(rows, None, None, split_seed=seed, sub_split_seeds=[second], split_id=0)
    module = kit.TabNNModule(**options)
    data = columns.dataset(run.rows.X, kit, run.rows.y, len(run.classes))
    module.compile_model(data, [split], kit.InterfaceResources(run.n_threads or 1, gpu_devices=[]))
    return module


def _epochs(module: Any) -> Iterator[None]:
    """Train without end; pause after each epoch."""
    optimizer, rows, progress = module.configure_optimizers(), module.train_dl, module.progress
    while True:
        module.model.train()
        for batch in rows:
            module.hp_manager.update_hypers(module)  # the schedules, by progress
            output = module.model(batch)
            loss = module.criterion(output["x_cont"], output["y"]).sum()
            loss.backward()
            optimizer.step(loss=loss)
            optimizer.zero_grad()
            progress.total_samples += batch["y"].shape[-2]
            progress.epoch_float = progress.total_samples / rows.get_num_iterated_samples()
        progress.epoch += 1
        yield


def _options(run: TrainingRun, kit: Any) -> dict[str, Any]:
    """Return all options of pytabkit, its defaults included."""
    if run.rows.weights is not None:
        raise ValueError("weights were given, but pytabkit's RealMLP takes none: omit them")
    defaults = {**kit.DefaultParams.RealMLP_TD_CLASS, "ls_eps": 0.0, "batch_size": 256}
    ours = {"n_epochs": run.max_steps}
    allowed = [name for name in defaults if name not in ("n_epochs", "use_ls")]
    check_params("realmlp", run.params, allowed)
    options = defaults | run.params | ours
    return options | {"use_ls": options["ls_eps"] > 0}


# ---- pytabkit and torch -----------------------------------------------------------------------------------


def _pytabkit() -> Any:
    """Import what is used of pytabkit; not at the top, since the space is of use without it."""
    with needs_extra("realmlp", package="pytabkit"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it still uses torch.jit.script
        from pytabkit.models.alg_interfaces.base import InterfaceResources, SplitIdxs
        from pytabkit.models.data.data import DictDataset, TensorInfo
        from pytabkit.models.sklearn.default_params import DefaultParams
        from pytabkit.models.training.lightning_modules import TabNNModule
    return SimpleNamespace(
        DefaultParams=DefaultParams,
        DictDataset=DictDataset,
        InterfaceResources=InterfaceResources,
        SplitIdxs=SplitIdxs,
        TabNNModule=TabNNModule,
        TensorInfo=TensorInfo,
    )


@contextmanager
def _isolate_torch(n_threads: int | None) -> Iterator[None]:
    """Limit torch's threads, and restore what pytabkit changes: random numbers and TF32."""
    import torch

    with ALONE:
        threads, tf32 = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
        if n_threads is not None:
            torch.set_num_threads(n_threads)
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            torch.set_num_threads(threads)
            torch.backends.cuda.matmul.allow_tf32 = tf32
