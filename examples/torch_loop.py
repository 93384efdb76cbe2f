"""PyTorch, hand-written loop: stop on refinement, then calibrate.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[torch]'.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import refinecal as rc
from refinecal.integrations.torch import RefinementStopping

SPLITS = 5
X, y = load_digits(return_X_y=True)  # 1797 pictures of 8 x 8 pixels
digits = TensorDataset(torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y))


def train(metric, seed):
    """Train until the metric has not improved for 10 epochs; return the best model."""
    torch.manual_seed(seed)
    train, val, test = random_split(digits, [600, 600, 597])
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    stopping = RefinementStopping(patience=10, metric=metric)
    for _ in range(100):
        for images, labels in DataLoader(train, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        stopping.evaluate(model, DataLoader(val, batch_size=600))
        if stopping.step(model):
            break
    stopping.restore(model)
    return model, stopping, test[:]


losses = []
for seed in range(SPLITS):
    usual, _, (images, labels) = train("log_loss", seed)
    model, stopping, _ = train("refinement", seed)
    probs = stopping.calibrator.predict_proba_logits(model(images))
    losses.append(
        [rc.metrics.log_loss(labels, logits=usual(images)), rc.metrics.log_loss(labels, probs)]
    )

loss, refined_loss = np.mean(losses, axis=0)
print(f"Digits, mean of {SPLITS} splits     test log loss")
print(f"  stop on validation loss           {loss:.4f}")
print(f"  refine, then calibrate            {refined_loss:.4f}")
