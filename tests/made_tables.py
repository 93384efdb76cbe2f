"""Tables that tests share: made up, with numbers, categories, gaps, and something to learn."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa


def mixed(n: int = 400, k: int = 3, seed: int = 0) -> pa.Table:
    """Return a table with numbers, categories, gaps, weights and groups, and a target of k classes."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=n), rng.exponential(size=n)
    colour = rng.choice(["red", "green", "blue"], size=n)
    size = rng.choice(["S", "M", "L", "XL"], size=n)
    score = np.stack(
        [np.sin(3 * j + x) + (colour == "red") * j + z * (j == 1) for j in range(k)], axis=1
    )
    y = (score + 0.7 * rng.gumbel(size=(n, k))).argmax(axis=1)
    gaps = rng.random(n) < 0.1
    return pa.table(
        {
            "x": pa.array(x, mask=gaps),
            "z": pa.array(np.round(z, 3)),
            "colour": pa.array(colour.tolist(), mask=rng.random(n) < 0.1),
            "size": pa.array(size.tolist()),
            "weight": pa.array(rng.integers(1, 4, size=n)),
            "family": pa.array(rng.integers(0, n // 4, size=n)),
            "kind": pa.array([f"class {j}" for j in y]),
        }
    )


def write_csv(table: pa.Table, path: Path, **options) -> Path:
    """Write a table with Python's own csv module, an independent writer."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerow(table.column_names)
        writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    return path


def write_parquets(folder: Path) -> Path:
    """Write two small tables for the benchmarks, of two and three classes, the target last."""
    import pandas as pd

    rng = np.random.default_rng(0)
    for k in (2, 3):
        table = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
        table["d"] = pd.Categorical(rng.choice(["u", "v", "w"], 300))
        table["target"] = pd.qcut(table["a"] + rng.normal(size=300), k, labels=False)
        table.to_parquet(folder / f"classes{k}.parquet")
    return folder
