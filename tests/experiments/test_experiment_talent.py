"""Data sets in the layout of TALENT, and arrays of objects that are read without being run."""

import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sets import ALL, frame_of, stored
from strategies import examples

from refinecal.experiments._pickled_arrays import read_array
from refinecal.experiments.tabular.sets import Source, describe, find_talent


def talent(folder: Path, frame: pd.DataFrame, dtype=str, task="multiclass", items="NCy") -> Path:
    """Write a frame as TALENT does: three parts of numbers, categories and labels."""
    folder.mkdir(parents=True)
    arrays = {
        "N": frame[["x", "whole"]].to_numpy(float),
        "C": frame[["colour"]].to_numpy().astype(dtype),
        "y": frame["target"].to_numpy(),
    }
    for item in items:
        for part, rows in zip(
            ("train", "val", "test"), np.array_split(arrays[item], 3), strict=True
        ):
            np.save(folder / f"{item}_{part}.npy", rows)
    info = {
        "task_type": task,
        "n_num_features": 2 * ("N" in items),
        "n_cat_features": 1 * ("C" in items),
    }
    (folder / "info.json").write_text(json.dumps(info))
    return folder


@pytest.mark.parametrize("dtype", [str, object, "S5"])
def test_talent_is_the_same_set(tmp_path, dtype):
    frame = frame_of(100)
    frame.loc[::7, "x"] = np.nan
    table = stored(tmp_path, frame).load(**ALL)
    talent(tmp_path / "sets" / "made", frame, dtype)
    ((source,), _) = find_talent(tmp_path / "sets")
    found = source.load(**ALL)
    np.testing.assert_array_equal(found.X.to_numpy(), table.X.to_numpy())
    np.testing.assert_array_equal(found.y, table.y)
    assert (found.name, found.classes) == ("made", table.classes)
    assert found.dropped == table.dropped
    assert describe(found) == describe(table)


def test_codes_of_talent_are_categories(tmp_path):
    frame = frame_of(60)
    folder = talent(tmp_path / "made", frame.assign(colour=frame["whole"]), int)
    found = find_talent(folder)[0][0].load(**ALL)
    assert found.X["C_0"].cat.categories.tolist() == list(range(frame["whole"].nunique()))
    np.testing.assert_array_equal(found.X["N_1"], frame["whole"])


def test_missing_categories_of_talent(tmp_path):
    frame = frame_of(60)
    frame["colour"] = frame["colour"].astype(object).where(np.arange(60) % 3 > 0, None)
    frame.loc[3, "colour"] = np.nan
    found = find_talent(talent(tmp_path / "made", frame, object))[0][0].load(**ALL)
    assert set(found.X["C_0"][::3]) == {2}
    assert not set(found.X["C_0"][1::3]) & {2}


@pytest.mark.parametrize(("items", "kinds"), [("Ny", (2, 0)), ("Cy", (0, 1))])
def test_numbers_or_categories_of_talent_may_be_absent(tmp_path, items, kinds):
    found = find_talent(talent(tmp_path / "made", frame_of(60), items=items))[0][0].load(**ALL)
    row = describe(found)
    assert (row["numeric"], row["categorical"]) == kinds


def test_regression_of_talent_is_left_out(tmp_path):
    talent(tmp_path / "a", frame_of(), task="binclass")
    regression = talent(tmp_path / "b", frame_of(), task="regression")
    assert [source.name for source in find_talent(tmp_path)[0]] == ["a"]
    with pytest.raises(ValueError, match="only regression"):
        find_talent(regression)
    with pytest.raises(ValueError, match="regression task"):
        Source("b", "talent", str(regression)).load()


def test_digests_of_talent_see_every_file(tmp_path):
    folder = talent(tmp_path / "made", frame_of())
    source = find_talent(folder)[0][0]
    np.save(folder / "C_val.npy", np.load(folder / "C_val.npy")[::-1])
    assert find_talent(folder)[0][0].digest != source.digest
    with pytest.raises(ValueError, match="has changed"):
        source.load(**ALL)


def broken(item):
    """Return a way to damage a set, and the words that say so."""
    ways = {
        "rows": (lambda f: np.save(f / "N_val.npy", np.zeros((3, 2))), "N has .* rows .* y has"),
        "columns": (lambda f: np.save(f / "N_val.npy", np.zeros((13, 3))), "must be the same"),
        "count": (lambda f: change(f, n_cat_features=7), "n_cat_features = 7"),
        "task": (lambda f: change(f, task_type="ranking"), "task_type is 'ranking'"),
        "json": (lambda f: (f / "info.json").write_text("{"), "is not JSON"),
        "axes": (lambda f: np.save(f / "N_val.npy", np.zeros((13, 2, 1))), "3 axes"),
        "labels": (lambda f: np.save(f / "y_val.npy", np.zeros((13, 2), int)), "columns"),
        "file": (lambda f: (f / "C_test.npy").write_bytes(b"\x93NUMPY"), "damaged"),
        "text": (lambda f: (f / "C_test.npy").write_text("red, green"), "not a NumPy array"),
        "dates": (dated, "cannot be a category"),
        "words": (worded, "should be numbers"),
        "nothing": (lambda f: [p.unlink() for p in f.glob("[NC]_*")], "nothing to learn from"),
    }
    return ways[item]


def test_one_damaged_set_does_not_stop_the_others(tmp_path):
    for name in ("good", "bad", "worse"):
        talent(tmp_path / name, frame_of(30))
    (tmp_path / "bad" / "info.json").write_text("{")
    change(tmp_path / "worse", task_type="ranking")
    found, left_out = find_talent(tmp_path)
    assert [source.name for source in found] == ["good"]
    assert set(left_out) == {"bad", "worse"}
    assert "is not JSON" in left_out["bad"]
    assert "task_type is 'ranking'" in left_out["worse"]


def change(folder, **info):
    path = folder / "info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | info))


def dated(folder):
    for part in ("train", "val", "test"):
        n = len(np.load(folder / f"y_{part}.npy"))
        np.save(folder / f"C_{part}.npy", np.full((n, 1), np.datetime64("2024-01-01")))


def worded(folder):
    for part in ("train", "val", "test"):
        array = np.load(folder / f"N_{part}.npy").astype(object)
        array[0, 0] = "much"
        np.save(folder / f"N_{part}.npy", array)


@pytest.mark.parametrize(
    "item",
    [
        *("rows", "columns", "count", "task", "json", "axes", "labels", "file", "text", "dates"),
        *("words", "nothing"),
    ],
)
def test_talent_that_is_damaged(tmp_path, item):
    folder = talent(tmp_path / "made", frame_of())
    damage, words = broken(item)
    damage(folder)
    with pytest.raises(ValueError, match=words):
        Source("made", "talent", str(folder)).load(**ALL)


def test_a_part_of_talent_that_is_absent(tmp_path):
    folder = talent(tmp_path / "made", frame_of())
    (folder / "C_val.npy").unlink()
    with pytest.raises(FileNotFoundError, match="C_val.npy"):
        Source("made", "talent", str(folder)).load(**ALL)


def test_folders_that_are_not_of_talent(tmp_path):
    with pytest.raises(ValueError, match="layout of TALENT"):
        find_talent(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_talent(tmp_path / "nowhere")
    folder = talent(tmp_path / "made", frame_of())
    with pytest.raises(ValueError, match="is a file"):
        find_talent(folder / "info.json")
    with pytest.raises(ValueError, match="Did you mean 'made'"):
        find_talent(tmp_path, only=["mad"])


# ---- arrays of objects -----------------------------------------------------------------------------------

objects = st.one_of(
    st.text(max_size=5),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.sampled_from([np.int64(3), np.float32(0.5), np.str_("red"), np.bool_(True), np.uint8(200)]),
)


@given(st.lists(objects, max_size=24), st.integers(1, 3), st.sampled_from([3, 4]), st.booleans())
def test_objects_are_read_as_numpy_would(tmp_path_factory, values, width, protocol, fortran):
    array = np.empty(len(values) // width * width, dtype=object)
    array[:] = values[: len(array)]
    array = np.array(array.reshape(-1, width), order="F" if fortran else "C")
    path = tmp_path_factory.mktemp("a") / "a.npy"
    with path.open("wb") as file:  # np.save has written each of these protocols
        header = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(file, header)
        pickle.dump(array, file, protocol=protocol)
    found = read_array(path)
    expected = np.load(path, allow_pickle=True)
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [float, "U3", "S3", int, bool, "f4", ">i8"])
def test_other_arrays_are_read_by_numpy(tmp_path, dtype):
    array = np.arange(12).reshape(4, 3).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), array)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("inside", [True, False])
def test_what_a_file_would_run_is_not_run(tmp_path, inside):
    path, mark = tmp_path / "a.npy", tmp_path / "was run"
    array = np.array(["red", Evil(f"'{mark}'")], dtype=object)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        pickle.dump(array if inside else array[1], file, protocol=4)
    with pytest.raises(ValueError, match="never loaded"):
        read_array(path)
    assert not mark.exists()
    np.load(path, allow_pickle=True)
    assert mark.exists()  # it would have been


@pytest.mark.parametrize("value", [{1}, [1], (1,), b"red", 1j, {"a": 1}, pd.Timestamp(0), print])
def test_other_objects_are_refused(tmp_path, value):
    array = np.empty(2, dtype=object)
    array[:] = ["red", value]
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=r"never loaded\. If you trust it"):
        read_array(tmp_path / "a.npy")


@pytest.mark.parametrize("dtype", [object, float])
def test_a_claim_of_exabytes_takes_no_memory(tmp_path, dtype):
    path, shape = tmp_path / "a.npy", (1 << 60,)
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header | {"shape": shape})
        file.write(b"\x80\x04" + b"\x8d" + (1 << 60).to_bytes(8, "little") + b"text")  # BINUNICODE8
    with pytest.raises(ValueError, match=r"a\.npy is not a NumPy array, or it is damaged"):
        read_array(path)


@examples(200)
@given(st.data())
def test_damaged_arrays_of_objects_fail_clearly(tmp_path_factory, data):
    buffer = io.BytesIO()
    np.save(buffer, np.array([["red", 1, None], ["blue", 2.5, True]], dtype=object))
    raw = bytearray(buffer.getvalue())
    start = raw.index(b"\n") + 1
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(start, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("a") / "a.npy"
    path.write_bytes(raw[: data.draw(st.integers(start, len(raw)))])
    try:
        found = read_array(path)
    except ValueError as error:
        assert "a.npy" in str(error)  # noqa: PT017
    else:
        assert found.shape == (2, 3)
