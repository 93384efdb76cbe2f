"""Data sets of OpenML, by their numbers or by the name of a suite; scikit-learn fetches and keeps them."""

from __future__ import annotations

import json
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write
from refinecal.tabular.files import open_table

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

SERVER = "https://www.openml.org/api/v1/json"
TIMEOUT = 60.0  # seconds
AT_ONCE = 100  # data sets that are asked for in one request
TARGET = "target"
UNREACHED = (URLError, TimeoutError, ConnectionError, HTTPException)  # or lost before the end


def suite_ids(suite: str) -> list[int]:
    """Return the numbers of the data sets of a suite, given by its name or its number."""
    answer = _request(f"study/{quote(suite, safe='')}", f"the suite {suite!r}")
    try:
        found = answer["study"]["data"]["data_id"]
        ids = [int(each) for each in (found if isinstance(found, list) else [found])]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"OpenML's answer for the suite {suite!r} lists no data sets") from None
    return sorted(set(ids))


def names_of(ids: list[int]) -> dict[int, str]:
    """Return the names of data sets by their numbers; raise if one does not exist."""
    found: dict[int, str] = {}
    for start in range(0, len(ids), AT_ONCE):
        part = ",".join(map(str, ids[start : start + AT_ONCE]))
        answer = _request(
            f"data/list/data_id/{part}/status/all/limit/{AT_ONCE}", f"data sets {part}"
        )
        try:
            found |= {int(each["did"]): str(each["name"]) for each in answer["data"]["dataset"]}
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"OpenML's answer for the data sets {part} is not a list of them"
            ) from None
    absent = [number for number in ids if number not in found]
    if absent:
        raise ValueError(f"OpenML has no data sets with the numbers {', '.join(map(str, absent))}")
    return found


def _request(what: str, words: str) -> Any:
    """Return the answer of OpenML's server."""
    url = f"{SERVER}/{what}"
    try:
        with urlopen(url, timeout=TIMEOUT) as answer:
            return json.load(answer)
    except ValueError:
        raise ValueError(f"{url} did not answer with JSON: try again later") from None
    except UNREACHED as error:  # an HTTPError is one too: 412 is OpenML's for what it does not have
        if getattr(error, "code", None) in (404, 412):
            raise ValueError(f"OpenML does not have {words} ({url})") from None
        raise ConnectionError(
            f"OpenML was not reached for {words} ({url}: {_reason(error)}). Without a network, store the "
            "tables as Parquet files and pass their folder"
        ) from error


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", error))


def read_openml(number: int) -> pa.Table:
    """Return a data set, its own target last and called "target"; categories are those that OpenML declares.

    scikit-learn keeps its downloads in its data folder (the environment variable SCIKIT_LEARN_DATA). A copy
    as Parquet is kept next to it, so that a thousand training runs need not parse text a thousand times.
    """
    from pyarrow import parquet
    from sklearn.datasets import get_data_home

    path = Path(get_data_home()) / "refinecal" / f"openml-{number}.parquet"
    if not path.exists():
        table = _fetch(number)
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as part:
            parquet.write_table(table, part, compression="zstd")
    return open_table(path).read()


def _fetch(number: int) -> pa.Table:
    from sklearn.datasets import fetch_openml

    try:  # the other parser of scikit-learn 1.9 fails on categories that are numbers
        found = fetch_openml(data_id=number, as_frame=True, parser="liac-arff")
    except UNREACHED as error:
        raise ConnectionError(
            f"OpenML was not reached for data set {number} ({_reason(error)}), and it was not fetched before"
        ) from error
    if getattr(found.target, "ndim", 0) != 1:
        raise ValueError(f"data set {number} of OpenML has no target, or more than one")
    table = pa.Table.from_pandas(found.data.reset_index(drop=True), preserve_index=False)
    names = [f"{name} (feature)" if name == TARGET else name for name in table.column_names]
    target = pa.array(found.target.reset_index(drop=True))
    return table.rename_columns(names).append_column(TARGET, target)
