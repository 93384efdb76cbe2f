"""Hugging Face Trainer: stop where refinement is best, then calibrate; nothing is downloaded.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[transformers]'.
"""

import tempfile

import torch
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

from refinecal.integrations.transformers import RefinementStopping, calibrator_of

logging.set_verbosity_error()
logging.disable_progress_bar()

x, y = load_digits(return_X_y=True)  # 1797 pictures of 8 x 8 pixels
x = torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
rows = [{"pixel_values": picture, "labels": label} for picture, label in zip(x, y, strict=True)]
training, test = train_test_split(rows, test_size=0.4, random_state=0)
training, validation = train_test_split(training, test_size=0.4, random_state=0)


def train(metric, callback, compute_metrics=None):
    set_seed(0)
    shape = {"num_channels": 1, "embedding_size": 32, "hidden_sizes": [32, 64], "depths": [1, 1]}
    model = ResNetForImageClassification(ResNetConfig(**shape, layer_type="basic", num_labels=10))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=30,
            learning_rate=0.003,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model=metric,
            per_device_train_batch_size=32,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        data = {"train_dataset": training, "eval_dataset": validation}
        trainer = Trainer(
            model, args, **data, compute_metrics=compute_metrics, callbacks=[callback]
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer.state.best_global_step, model, trainer.predict(test)


step, _, predicted = train("loss", EarlyStoppingCallback(8))
loss = log_loss(predicted.label_ids, softmax(predicted.predictions, axis=1))
print(f"stop on validation loss     step {step:4d}   test log loss {loss:.4f}")

stopping = RefinementStopping(patience=8)
step, model, predicted = train("refinement_loss", stopping, stopping.compute_metrics)
probs = calibrator_of(model).predict_proba_logits(predicted.predictions)
loss = log_loss(predicted.label_ids, probs)
print(f"refine, then calibrate      step {step:4d}   test log loss {loss:.4f}")
