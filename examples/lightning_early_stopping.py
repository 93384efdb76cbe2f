"""Lightning: stop on refinement, then calibrate.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[lightning]'.
"""

import logging
import warnings

import lightning.pytorch as pl
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import refinecal as rc
from refinecal.integrations.lightning import RefinementStopping

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")

SPLITS = 3
QUIET = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
X, y = load_digits(return_X_y=True)  # 1797 pictures of 8 x 8 pixels
digits = TensorDataset(torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y))


class Network(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        return {"logits": self.layers(batch[0]), "y": batch[1]}  # what RefinementStopping reads

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def train(metric, seed):
    """Train until the metric has not improved for 10 epochs; return the logits of the best weights."""
    torch.manual_seed(seed)
    train, val, test = random_split(digits, [600, 600, 597])
    network, stopping = Network(), RefinementStopping(patience=10, metric=metric)
    trainer = pl.Trainer(max_epochs=100, callbacks=[stopping], **dict.fromkeys(QUIET, False))
    loaders = DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=600)
    trainer.fit(network, *loaders)
    images, labels = test[:]
    return network.layers(images), stopping.calibrator, labels


losses = []
for seed in range(SPLITS):
    usual, _, labels = train("log_loss", seed)
    logits, calibrator, _ = train("refinement", seed)
    probs = calibrator.predict_proba_logits(logits)
    losses.append([rc.metrics.log_loss(labels, logits=usual), rc.metrics.log_loss(labels, probs)])

loss, refined_loss = np.mean(losses, axis=0)
print(f"Digits, mean of {SPLITS} splits     test log loss")
print(f"  stop on validation loss           {loss:.4f}")
print(f"  refine, then calibrate            {refined_loss:.4f}")
