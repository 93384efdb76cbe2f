import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    EarlyStoppingCallback,
    EvalPrediction,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

from refinecal.integrations.transformers import RefinementStopping, calibrator_of

KEY = "eval_refinement_loss"
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.2,
}


def digits(form, classes=10):
    """Return training and validation sets; a fifth of the training labels is wrong."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    y = y % classes
    y[:200] = np.where(rng.random(200) < 0.2, rng.integers(0, classes, 200), y[:200])
    rows = [{**form(x[i]), "labels": int(y[i])} for i in range(400)]
    return rows[:200], rows[200:]


def pixels(picture):
    return {"pixel_values": torch.tensor(picture / 16, dtype=torch.float32).reshape(1, 8, 8)}


def tokens(picture):
    return {"input_ids": torch.tensor(picture[::4], dtype=torch.long)}


def make_vit(classes=10):
    set_seed(0)
    config = ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=classes, **SMALL)
    return ViTForImageClassification(config)


def make_bert(classes=10, kind=BertForSequenceClassification, **options):
    set_seed(0)
    config = BertConfig(
        vocab_size=17, max_position_embeddings=16, num_labels=classes, **SMALL, **options
    )
    return kind(config)


def arguments(folder, **options):
    return TrainingArguments(
        **{
            "output_dir": str(folder),
            "use_cpu": True,
            "report_to": [],
            "disable_tqdm": True,
            "num_train_epochs": 6,
            "per_device_train_batch_size": 32,
            "per_device_eval_batch_size": 64,
            "learning_rate": 0.02,
            "lr_scheduler_type": "constant",
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "save_only_model": True,
            "load_best_model_at_end": True,
            "metric_for_best_model": "refinement_loss",
            **options,
        }
    )


def train(folder, stopping, model=None, data=None, callbacks=(), resume=None, **options):
    model = make_vit() if model is None else model
    training, validation = digits(pixels) if data is None else data
    trainer = Trainer(
        model,
        arguments(folder, **options),
        train_dataset=training,
        eval_dataset=validation,
        compute_metrics=stopping.compute_metrics,
        callbacks=[stopping, *callbacks],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def refinement(y, logits):
    """Return the smallest log loss over all temperatures, by a search that knows nothing of ours."""
    logits = np.asarray(logits, dtype=np.float64)
    rows = np.arange(len(y))

    def loss(log_beta):
        return -log_softmax(np.exp(log_beta) * logits, axis=1)[rows, y].mean()

    return minimize_scalar(loss, bounds=(-8, 8), method="bounded", options={"xatol": 1e-9}).fun


class Recorder(TrainerCallback):
    """Keeps the logits of every evaluation."""

    def __init__(self, rows):
        self.x = torch.stack([row["pixel_values"] for row in rows])
        self.staged = {}

    def on_evaluate(self, args, state, control, model, **kwargs):
        with torch.no_grad():
            self.staged.setdefault(state.global_step, model.eval()(self.x).logits.numpy())


class StopAfter(TrainerCallback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_save(self, args, state, control, **kwargs):
        control.should_training_stop = state.epoch >= self.epoch


def predictions(trainer, rows):
    return trainer.predict(rows).predictions


# ---- which evaluation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "form"), [(make_vit, pixels), (make_bert, tokens)])
@pytest.mark.sweep(2)
def test_replay_without_the_callback_gives_the_same_model(make, form, tmp_path):
    data = digits(form)
    stopping = RefinementStopping(patience=2)
    trainer = train(tmp_path, stopping, make(), data, num_train_epochs=25)
    epochs = stopping.best_global_step // 7  # 200 rows in batches of 32
    assert trainer.state.global_step == 7 * (epochs + 2)
    args = arguments(
        tmp_path / "replay",
        num_train_epochs=epochs,
        save_strategy="no",
        load_best_model_at_end=False,
        metric_for_best_model=None,
    )
    replay = Trainer(make(), args, train_dataset=data[0], eval_dataset=data[1])
    replay.train()
    assert np.array_equal(predictions(trainer, data[1]), predictions(replay, data[1]))


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.sweep(2)
def test_best_step_is_where_refinement_is_smallest(classes, tmp_path):
    data = digits(pixels, classes)
    stopping, recorder = RefinementStopping(), Recorder(data[1])
    trainer = train(tmp_path, stopping, make_vit(classes), data, [recorder])
    y = [row["labels"] for row in data[1]]
    expected = {step: refinement(y, logits) for step, logits in recorder.staged.items()}
    found = {record["step"]: record["refinement"] for record in stopping.monitor.history}
    assert found == pytest.approx(expected, rel=1e-5)
    assert stopping.best_global_step == min(expected, key=expected.get)
    assert stopping.best_global_step == trainer.state.best_global_step
    np.testing.assert_allclose(
        predictions(trainer, data[1]),
        recorder.staged[stopping.best_global_step],
        rtol=1e-4,
        atol=1e-5,
    )


def test_stops_when_patience_has_run_out(tmp_path):
    stopping = RefinementStopping(patience=2)
    trainer = train(tmp_path, stopping, num_train_epochs=40)
    values = [log[KEY] for log in trainer.state.log_history if KEY in log]
    assert len(values) < 40
    assert len(values) == int(np.argmin(values)) + 1 + 2


def test_a_metric_that_is_maximised(tmp_path):
    stopping = RefinementStopping(metric="accuracy")
    trainer = train(tmp_path, stopping, num_train_epochs=3, metric_for_best_model="accuracy")
    values = [log["eval_accuracy"] for log in trainer.state.log_history if "eval_accuracy" in log]
    assert stopping.best_global_step == 7 * (1 + int(np.argmax(values)))
    assert stopping.best_global_step == trainer.state.best_global_step


def test_evaluations_that_do_not_decide(tmp_path):
    training, validation = digits(pixels)
    sets = {"easy": training[:50], "val": validation}
    stopping = RefinementStopping()
    trainer = train(
        tmp_path,
        stopping,
        data=(training, sets),
        num_train_epochs=4,
        eval_on_start=True,
        metric_for_best_model="eval_val_refinement_loss",
    )
    logs = trainer.state.log_history
    values = {log["step"]: log[k] for log in logs for k in log if k == "eval_val_refinement_loss"}
    assert set(values) == {0, 7, 14, 21, 28}
    assert any("eval_easy_refinement_loss" in log for log in logs)
    found = {record["step"]: record["refinement"] for record in stopping.monitor.history}
    del values[0]  # before training: there is no checkpoint to go back to
    assert found == values
    assert stopping.best_global_step == trainer.state.best_global_step

    history = stopping.monitor.history
    trainer.evaluate()
    trainer.predict(validation)
    assert stopping.monitor.history == history


def test_diverged_training_stops(tmp_path):
    class Break(TrainerCallback):
        def on_epoch_end(self, args, state, control, model, **kwargs):
            if state.epoch == 2:
                torch.nn.init.constant_(model.classifier.bias, torch.nan)

    stopping = RefinementStopping()
    with pytest.warns(RuntimeWarning, match="step 14 are not finite"):
        trainer = train(tmp_path, stopping, callbacks=[Break()])
    assert trainer.state.global_step == 14
    assert stopping.best_global_step == 7
    assert torch.isfinite(trainer.model.classifier.bias).all()


# ---- compute_metrics -------------------------------------------------------------------------------------


def test_compute_metrics_works_alone_with_the_trainers_own_stopping(tmp_path):
    training, validation = digits(pixels)
    trainer = Trainer(
        make_vit(),
        arguments(tmp_path, num_train_epochs=40),
        train_dataset=training,
        eval_dataset=validation,
        compute_metrics=RefinementStopping().compute_metrics,
        callbacks=[EarlyStoppingCallback(2)],
    )
    trainer.train()
    values = [log[KEY] for log in trainer.state.log_history if KEY in log]
    assert len(values) == int(np.argmin(values)) + 1 + 2
    assert trainer.state.best_metric == min(values)


def test_padding_and_further_outputs_do_not_count(tmp_path):
    def labelled(picture):
        ids = tokens(picture)["input_ids"]
        labels = torch.where(torch.arange(16) < 5, -100, (ids > 8).long())
        return {"input_ids": ids, "labels": labels}

    x, _ = load_digits(return_X_y=True)
    rows = [labelled(picture) for picture in x[:100]]
    model = make_bert(2, BertForTokenClassification, output_hidden_states=True)
    stopping = RefinementStopping(also="accuracy")
    trainer = train(tmp_path, stopping, model, (rows, rows), num_train_epochs=1)
    output = trainer.predict(rows)
    logits, hidden = output.predictions
    assert logits.shape == (100, 16, 2)
    assert len(hidden) == 2
    labels = np.array([row["labels"].numpy() for row in rows])
    assert stopping.calibrator.n_samples_ == 100 * 11
    expected = refinement(labels[:, 5:].ravel(), logits[:, 5:].reshape(-1, 2))
    assert output.metrics["test_refinement_loss"] == pytest.approx(expected, rel=1e-5)


def test_batches_give_the_same_as_the_whole(tmp_path):
    whole, batched = RefinementStopping(), RefinementStopping()
    train(tmp_path / "a", whole, num_train_epochs=2)
    train(tmp_path / "b", batched, num_train_epochs=2, batch_eval_metrics=True)
    assert batched.monitor.history == whole.monitor.history


def test_small_floats(tmp_path):
    rows = digits(pixels)[1]
    trainer = Trainer(
        make_vit(),
        arguments(tmp_path, bf16_full_eval=True),
        eval_dataset=rows,
        compute_metrics=RefinementStopping().compute_metrics,
    )
    output = trainer.predict(rows)
    expected = refinement([row["labels"] for row in rows], output.predictions)
    assert output.metrics["test_refinement_loss"] == pytest.approx(expected, rel=1e-5)


def test_soft_labels():
    logits = np.random.default_rng(0).normal(size=(50, 3))
    hard = logits.argmax(axis=1)
    hard[:10] = 0
    stopping = RefinementStopping()
    expected = stopping.compute_metrics(EvalPrediction(logits, hard))
    assert stopping.compute_metrics(EvalPrediction(logits, np.eye(3)[hard])) == expected


# ---- twice, and resumed ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_training_starts_afresh(tmp_path):
    used, new = RefinementStopping(), RefinementStopping()
    monitor = used.monitor
    train(tmp_path / "a", used, num_train_epochs=3, learning_rate=0.005)
    train(tmp_path / "b", used, num_train_epochs=2)
    train(tmp_path / "c", new, num_train_epochs=2)
    assert used.monitor.history == new.monitor.history
    assert used.monitor is monitor


@pytest.mark.slow
@pytest.mark.parametrize("restore", [False, True])
def test_resumed_training_equals_training_in_one_go(restore, tmp_path):
    data = digits(tokens)
    options = {"num_train_epochs": 4, "save_only_model": False}
    options["restore_callback_states_from_checkpoint"] = restore
    whole = RefinementStopping(patience=5)
    expected = train(tmp_path / "whole", whole, make_bert(), data, **options)

    first, second = RefinementStopping(patience=5), RefinementStopping(patience=5)
    train(tmp_path / "parts", first, make_bert(), data, [StopAfter(2)], **options)
    assert len(first.monitor.history) == 2
    trainer = train(tmp_path / "parts", second, make_bert(), data, resume=True, **options)
    assert second.monitor.history == whole.monitor.history
    assert second.best_global_step == whole.best_global_step
    assert second.calibrator.to_dict() == whole.calibrator.to_dict()
    assert np.array_equal(predictions(trainer, data[1]), predictions(expected, data[1]))


# ---- where the calibrator is kept ------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["epoch", "best"])
def test_calibrator_travels_with_the_model(strategy, tmp_path):
    stopping = RefinementStopping()
    trainer = train(tmp_path, stopping, num_train_epochs=3, save_strategy=strategy)
    trainer.save_model(tmp_path / "saved")
    loaded = ViTForImageClassification.from_pretrained(tmp_path / "saved")
    best = trainer.state.best_model_checkpoint
    for source in (trainer.model, loaded, tmp_path, str(tmp_path / "saved"), best):
        assert calibrator_of(source).to_dict() == stopping.calibrator.to_dict()
    assert json.loads((tmp_path / "calibrator.json").read_text())["kind"] == "TemperatureScaling"


def test_checkpoints_keep_the_calibrator_that_fits_them(tmp_path):
    stopping = RefinementStopping(patience=2)
    train(tmp_path, stopping, num_train_epochs=25)
    best, kinds = np.inf, set()
    for record in stopping.monitor.history:
        folder = tmp_path / f"checkpoint-{record['step']}"
        if record["refinement"] < best:
            best = record["refinement"]
            assert calibrator_of(folder).beta_ == record["beta"]
        else:
            with pytest.raises(ValueError, match=f"{folder.name} holds no calibrator"):
                calibrator_of(folder)
        kinds.add(record["refinement"] == best)
    assert kinds == {True, False}


def test_an_older_calibrator_is_forgotten(tmp_path):
    model = make_vit()
    model.config.refinecal = {"kind": "TemperatureScaling"}
    seen = []

    class Look(TrainerCallback):
        def on_step_begin(self, args, state, control, model, **kwargs):
            seen.append(model.config.refinecal)

    train(tmp_path, RefinementStopping(), model, callbacks=[Look()], num_train_epochs=1)
    assert seen == [None] * 7
    assert calibrator_of(model).n_samples_ == 200


def test_models_without_a_calibrator(tmp_path):
    with pytest.raises(
        ValueError, match="the ViTForImageClassification holds no calibrator: train"
    ):
        calibrator_of(make_vit())
    with pytest.raises(ValueError, match="holds no calibrator: train with RefinementStopping"):
        calibrator_of(tmp_path)


# ---- wrong use -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"eval_strategy": "no", "save_strategy": "no"},
            "eval_strategy is 'no': set it to 'epoch'",
        ),
        ({"load_best_model_at_end": False}, "load_best_model_at_end is False.*set it to True"),
        (
            {"metric_for_best_model": "loss"},
            "is 'loss', but RefinementStopping stops on 'refinement_loss'",
        ),
        ({"greater_is_better": True}, "greater_is_better is True.*leave greater_is_better out"),
        (
            {"eval_strategy": "steps", "eval_steps": 5, "save_strategy": "steps", "save_steps": 10},
            "save_steps is 10, but eval_steps is 5.*make them equal",
        ),
    ],
)
def test_arguments_with_which_the_best_model_would_be_lost(options, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        train(tmp_path, RefinementStopping(), **options)


def test_compute_metrics_left_out(tmp_path):
    training, validation = digits(pixels)
    trainer = Trainer(
        make_vit(),
        arguments(tmp_path),
        train_dataset=training,
        eval_dataset=validation,
        callbacks=[RefinementStopping()],
    )
    with pytest.raises(
        ValueError, match="no predictions: pass compute_metrics=stopping.compute_metrics"
    ):
        trainer.train()


def test_an_evaluation_set_that_is_not_there(tmp_path):
    training, validation = digits(pixels)
    with pytest.raises(KeyError, match="'eval_test_refinement_loss', which is not found"):
        train(
            tmp_path,
            RefinementStopping(),
            data=(training, {"val": validation}),
            metric_for_best_model="eval_test_refinement_loss",
        )


@pytest.mark.parametrize(
    ("logits", "labels", "text"),
    [
        (
            np.zeros((4, 3, 5)),
            np.zeros((4, 5)),
            r"logits has shape \(4, 3, 5\) and labels \(4, 5\)",
        ),
        (
            np.zeros((4, 3)),
            np.ones((4, 3)),
            r"y_val\[0\] marks 3 of the 3 classes",
        ),
        (np.zeros((4, 3)), (np.zeros(4), np.zeros(4)), "2 kinds of labels.*label_names"),
        (np.zeros((4, 3)), np.full(4, 3), r"y_val\[0\] is 3, but logits has 3 columns"),
    ],
)
def test_predictions_and_labels_that_do_not_match(logits, labels, text):
    with pytest.raises(ValueError, match=text):
        RefinementStopping().compute_metrics(EvalPrediction(logits, labels))


@pytest.mark.parametrize("name", ["calibrator", "final"])
def test_calibrators_that_json_cannot_hold(name):
    with pytest.raises(
        TypeError, match=f"{name} is .*: only calibrators of refinecal.calibrators can be stored"
    ):
        RefinementStopping(**{name: LogisticRegression()})
