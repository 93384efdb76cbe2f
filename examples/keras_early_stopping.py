"""Keras: stop where refinement is best, then calibrate.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[keras]'.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "jax", "tensorflow"

import keras
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from refinecal.integrations.keras import RefinementStopping, calibrated

x, y = load_digits(return_X_y=True)  # 1797 pictures of 8 x 8 pixels
x_train, x_test, y_train, y_test = train_test_split(x / 16, y, test_size=0.4, random_state=0)
x_train, x_val, y_train, y_val = train_test_split(x_train, y_train, test_size=0.4, random_state=0)


def train(stopping):
    keras.utils.set_random_seed(0)
    hidden = [keras.layers.Dense(256, activation="relu") for _ in range(2)]
    output = keras.layers.Dense(10, activation="softmax")
    model = keras.Sequential([keras.Input((64,)), *hidden, output])
    model.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy")
    model.fit(
        x_train, y_train, epochs=60, verbose=0, callbacks=[stopping], validation_data=(x_val, y_val)
    )
    return model


usual = keras.callbacks.EarlyStopping("val_loss", patience=10, restore_best_weights=True)
loss = log_loss(y_test, train(usual).predict(x_test, verbose=0))
print(f"stop on validation loss     epoch {usual.best_epoch:2d}   test log loss {loss:.4f}")

stopping = RefinementStopping((x_val, y_val), patience=10)
model = calibrated(train(stopping), stopping.calibrator)  # a plain Keras model
loss = log_loss(y_test, model.predict(x_test, verbose=0))
print(f"refine, then calibrate      epoch {stopping.best_epoch:2d}   test log loss {loss:.4f}")
