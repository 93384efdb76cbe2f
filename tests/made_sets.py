"""Small data sets that tests of the tabular experiment share."""

from pathlib import Path

import numpy as np
import pandas as pd

from refinecal.experiments.tabular.sets import Source, find_tables

ALL = {"min_rows": 1, "max_rows": 10**6}


def stored(folder: Path, frame: pd.DataFrame, name: str = "made") -> Source:
    """Store a frame as Parquet, and find it."""
    frame.to_parquet(folder / f"{name}.parquet", index=False)
    return find_tables(folder, only=[name])[0][0]


def frame_of(n: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "whole": rng.integers(0, 9, size=n),
            "colour": pd.Categorical(rng.choice(["red", "green"], size=n)),
            "target": rng.integers(0, 3, size=n),
        }
    )


def same(one, other):
    """Assert that two data sets are the same but for their names."""
    pd.testing.assert_frame_equal(one.X, other.X)
    np.testing.assert_array_equal(one.y, other.y)
    assert (one.classes, one.dropped) == (other.classes, other.dropped)
