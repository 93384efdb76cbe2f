"""Compile the kernels that most tests need, into the cache that all test processes share."""

import numpy as np

import refinecal as rc
from refinecal.evaluation import evaluate


def main():
    rng = np.random.default_rng(0)
    for k in (2, 3):
        for dtype in (np.float64, np.float32):
            logits = rng.normal(size=(60, k)).astype(dtype)
            labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
            evaluate(labels, logits=logits)
            rc.make_calibrator("auto").fit_logits(logits, labels)


if __name__ == "__main__":  # doctests are looked for in every file
    main()
