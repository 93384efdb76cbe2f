"""torchmetrics: choose by refinement, then calibrate.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[torchmetrics]'.
"""

from copy import deepcopy

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import refinecal as rc
from refinecal.integrations.torchmetrics import RefinementLoss

SPLITS = 5
X, y = load_digits(return_X_y=True)  # 1797 pictures of 8 x 8 pixels
digits = TensorDataset(torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y))

losses = []
for seed in range(SPLITS):
    torch.manual_seed(seed)
    train, val, test = random_split(digits, [600, 600, 597])
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    metric, best = RefinementLoss("all"), {}
    for _ in range(50):
        for images, labels in DataLoader(train, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        for images, labels in DataLoader(val, batch_size=200):
            metric.update(model(images), labels)
        found = metric.compute()
        metric.reset()
        for name in ("log_loss", "refinement_loss"):
            if name not in best or found[name] < best[name][0]:
                best[name] = found[name], deepcopy(model), metric.calibrator

    images, labels = test[:]
    (_, usual, _), (_, refined, calibrator) = best["log_loss"], best["refinement_loss"]
    probs = calibrator.predict_proba_logits(refined(images))
    losses.append(
        [rc.metrics.log_loss(labels, logits=usual(images)), rc.metrics.log_loss(labels, probs)]
    )

loss, refined_loss = np.mean(losses, axis=0)
print(f"Digits, mean of {SPLITS} splits     test log loss")
print(f"  epoch of least loss               {loss:.4f}")
print(f"  refine, then calibrate            {refined_loss:.4f}")
