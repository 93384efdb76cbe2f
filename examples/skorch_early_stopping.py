"""skorch: stop on validation loss, or stop on refinement and calibrate.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[skorch]'
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale
from skorch import NeuralNetClassifier
from skorch.callbacks import EarlyStopping
from skorch.dataset import ValidSplit
from torch import nn

from refinecal.integrations.skorch import RefinementStopping, predict_proba

SPLITS = 3


def fit(X, y, callback):
    torch.manual_seed(0)
    net = NeuralNetClassifier(
        nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=0.01,
        batch_size=32,
        max_epochs=40,
        train_split=ValidSplit(3, stratified=True),
        callbacks=[callback],
        verbose=0,
    )
    return net.fit(X, y)


found = []
for seed in range(SPLITS):
    X, y = load_digits(return_X_y=True)
    X = scale(X).astype(np.float32)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    usual, stopping = EarlyStopping(patience=10, load_best=True), RefinementStopping(patience=10)
    loss = log_loss(y_test, fit(X, y, usual).predict_proba(X_test))
    refined = log_loss(y_test, predict_proba(fit(X, y, stopping), X_test))
    found.append([(usual.best_epoch_, loss), (stopping.best_epoch_, refined)])

(epoch, loss), (refined_epoch, refined) = np.mean(found, axis=0)
print(f"Digits, mean of {SPLITS} splits       epoch   test log loss")
print(f"  stop on validation loss     {epoch:5.1f}          {loss:.4f}")
print(f"  refine, then calibrate      {refined_epoch:5.1f}          {refined:.4f}")
