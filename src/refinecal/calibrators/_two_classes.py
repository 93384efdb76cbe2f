"""What every calibrator for two classes begins with."""

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample, on_cpu


def two_classes(sample: Sample, what: str, name: str, other: str = "temperature") -> Sample:
    """Return the rows that count, in NumPy; refuse more classes than two."""
    if sample.k != 2:
        raise ValueError(
            f"{what} is for 2 classes, found {sample.k}: use calibrator='{name}-ovr' for one class against "
            f"the rest, or calibrator='{other}'"
        )
    return on_cpu(sample).counted()


def shares_of(sample: Sample) -> NDArray[np.float64]:
    """Return the share of class 1 in each row's label."""
    return sample.labels.astype(np.float64) if sample.soft is None else sample.soft[:, 1]
