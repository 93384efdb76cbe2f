"""Post-mortem: whatever the files look like, the answer is that of select on the same arrays."""

import json
import pickle
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from matplotlib.figure import Figure
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from scipy.special import softmax
from strategies import drawn

import refinecal as rc
from refinecal.metrics import Metric
from refinecal.postmortem import METRICS, post_mortem

STEPS = [1, 2, 10, 20]  # whose names sort otherwise than their numbers
NAMES = np.array(["ant", "bee", "cat"])


def training(k=3, n=40, seed=0):
    """Labels, and logits that get better and then too sure, one array for each of STEPS."""
    labels, truth = drawn(n, k, seed)
    noise = np.random.default_rng(seed).standard_normal((len(STEPS), n, k))
    sizes = np.array([0.3, 1.0, 1.5, 3.0])[:, None, None]
    return labels, sizes * (truth + np.array([2.0, 0.5, 0.4, 0.8])[:, None, None] * noise)


def expected(labels, stages, **options):
    return rc.select(labels, logits=stages, steps=STEPS, **options)


def assert_same(found, monitor):
    assert len(found.monitor.history) == len(monitor.history)
    for ours, theirs in zip(found.monitor.history, monitor.history, strict=True):
        assert {name: ours[name] for name in theirs} == pytest.approx(
            theirs, rel=1e-7, abs=1e-9, nan_ok=True
        )


def save(path, arrays):
    """Write arrays in the format that the name asks for."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        save_file({name: np.ascontiguousarray(values) for name, values in arrays.items()}, path)
    else:
        logits = arrays.pop("logits")
        columns = {f"logit_{j}": logits[:, j] for j in range(logits.shape[1])}
        pq.write_table(pa.table(columns | arrays), path)


def save_steps(folder, suffix=".npz", labels_in=STEPS, **options):
    labels, stages = training(**options)
    for step, logits in zip(STEPS, stages, strict=True):
        arrays = {"logits": logits} | ({"y": labels} if step in labels_in else {})
        save(folder / f"epoch_{step}{suffix}", arrays)
    return labels, stages


formats = pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet"])
archives = pytest.mark.parametrize("suffix", [".npz", ".safetensors"])


# ---- one file for each step ------------------------------------------------------------------------------


@formats
@pytest.mark.parametrize("k", [2, 3])
def test_a_folder_of_files(tmp_path, suffix, k):
    labels, stages = save_steps(tmp_path, suffix, k=k)
    assert_same(post_mortem(tmp_path), expected(labels, stages, also=METRICS))


@formats
def test_labels_in_the_first_file_only(tmp_path, suffix):
    labels, stages = save_steps(tmp_path, suffix, labels_in=STEPS[:1])
    assert_same(post_mortem(tmp_path), expected(labels, stages))


@formats
def test_labels_from_elsewhere(tmp_path, suffix):
    labels, stages = save_steps(tmp_path, suffix, labels_in=())
    assert_same(post_mortem(tmp_path, y_val=labels), expected(labels, stages))


def test_arrays_that_numpy_has_named(tmp_path):
    labels, stages = training()
    for step, logits in zip(STEPS, stages, strict=True):
        np.savez(tmp_path / f"{step}.npz", logits)  # as arr_0
    found = post_mortem(tmp_path, labels, kind="logits")
    assert_same(found, expected(labels, stages))


def test_steps_are_in_the_files_if_not_in_their_names(tmp_path):
    labels, stages = training()
    for name, step, logits in zip("dbca", STEPS, stages, strict=True):
        np.savez(tmp_path / f"{name}.npz", logits=logits, y=labels, epoch=step)
    assert_same(post_mortem(tmp_path), expected(labels, stages))


def test_a_pattern_and_lists_of_files(tmp_path):
    labels, stages = save_steps(tmp_path)
    (tmp_path / "notes.txt").write_text("not a prediction")
    monitor = expected(labels, stages)
    assert_same(post_mortem(str(tmp_path)), monitor)
    assert_same(post_mortem(f"{tmp_path}/epoch_*.npz"), monitor)
    assert_same(post_mortem(tmp_path / "*.npz"), monitor)
    files = list(tmp_path.glob("*.npz"))
    assert_same(post_mortem(files), monitor)
    assert_same(post_mortem(str(file) for file in reversed(files)), monitor)


def test_rows_may_come_in_another_order_if_labels_do_too(tmp_path):
    labels, stages = training()
    for step, logits in zip(STEPS, stages, strict=True):
        order = np.random.default_rng(step).permutation(len(labels))
        save(tmp_path / f"{step}.npz", {"logits": logits[order], "y": labels[order]})
    assert_same(post_mortem(tmp_path), expected(labels, stages))


@archives
@pytest.mark.parametrize("name", ["probs", "val_probs", "predict_proba", "Probabilities"])
def test_probabilities_go_by_their_name(tmp_path, suffix, name):
    labels, stages = training()
    for step, logits in zip(STEPS, stages, strict=True):
        arrays = {name: softmax(logits, axis=1), "labels": labels, "ids": np.arange(len(labels))}
        save(tmp_path / f"step-{step}{suffix}", arrays)
    assert_same(post_mortem(tmp_path), expected(labels, stages))


def test_of_logits_and_probabilities_logits_are_taken(tmp_path):
    labels, stages = training()
    for step, logits in zip(STEPS, stages, strict=True):
        wrong = softmax(-logits, axis=1)
        np.savez(tmp_path / f"{step}.npz", logits=logits, probs=wrong, target=labels)
    assert_same(post_mortem(tmp_path), expected(labels, stages))
    assert_same(post_mortem(tmp_path, kind="probs"), expected(labels, -stages))


@formats
def test_weights_in_the_files(tmp_path, suffix):
    labels, stages = training()
    weights = np.random.default_rng(0).random(len(labels))
    for step, logits in zip(STEPS, stages, strict=True):
        arrays = {"logits": logits, "y": labels, "sample_weight": weights}
        save(tmp_path / f"{step}{suffix}", arrays)
    assert_same(post_mortem(tmp_path), expected(labels, stages, sample_weight=weights))
    ones = np.ones(len(labels))
    assert_same(post_mortem(tmp_path, sample_weight=ones), expected(labels, stages))


def test_names_of_classes(tmp_path):
    labels, stages = training()
    for step, logits in zip(STEPS, stages, strict=True):
        np.savez_compressed(tmp_path / f"{step}.npz", logits=logits, who=NAMES[labels])
    found = post_mortem(tmp_path, target="who", classes=NAMES)
    assert_same(found, expected(labels, stages))
    assert found.monitor.calibrator.classes_.tolist() == NAMES.tolist()


# ---- one file for all steps ------------------------------------------------------------------------------


@archives
@pytest.mark.parametrize("order", ["C", "F"])
def test_all_steps_in_one_array(tmp_path, suffix, order):
    labels, stages = training()
    arrays = {"logits": np.asarray(stages, order=order), "y": labels, "steps": np.array(STEPS)}
    save(tmp_path / f"run{suffix}", arrays)
    assert_same(post_mortem(tmp_path / f"run{suffix}"), expected(labels, stages))
    del arrays["steps"]
    save(tmp_path / f"run{suffix}", arrays)
    found = post_mortem(tmp_path / f"run{suffix}")
    assert [record["step"] for record in found.monitor.history] == [0, 1, 2, 3]


@archives
def test_all_steps_of_two_classes_in_one_array(tmp_path, suffix):
    labels, stages = training(k=2)
    odds = stages[:, :, 1] - stages[:, :, 0]
    save(tmp_path / f"a{suffix}", {"logits": odds, "y": labels, "epochs": np.array(STEPS)})
    assert_same(post_mortem(tmp_path / f"a{suffix}"), expected(labels, stages))


@archives
@pytest.mark.parametrize("name", ["logits/{}", "logits_{}", "val_logits_{:04d}"])
def test_an_array_for_each_step(tmp_path, suffix, name):
    labels, stages = training()
    arrays = {name.format(step): logits for step, logits in zip(STEPS, stages, strict=True)}
    save(tmp_path / f"run_7{suffix}", arrays | {"y_true": labels})
    assert_same(post_mortem(tmp_path / f"run_7{suffix}"), expected(labels, stages))


@archives
def test_an_array_for_each_step_that_does_not_say_what_it_is(tmp_path, suffix):
    labels, stages = training()
    arrays = {f"epoch_{step}": logits for step, logits in zip(STEPS, stages, strict=True)}
    save(tmp_path / f"run{suffix}", arrays | {"y": labels})
    assert_same(post_mortem(tmp_path / f"run{suffix}", kind="logits"), expected(labels, stages))
    with pytest.raises(
        ValueError, match=r"do not say whether .*: pass kind='logits' or kind='prob"
    ):
        post_mortem(tmp_path / f"run{suffix}")


@pytest.mark.parametrize(
    ("file", "more", "step"),
    [
        ("last", {}, 0),
        ("last", {"epoch": 7}, 7),
        ("last", {"step": 7, "epoch": 1}, 7),
        ("epoch_3", {"epoch": 7}, 3),  # several files are sorted by their names
    ],
)
def test_a_single_step(tmp_path, file, more, step):
    labels, stages = training()
    np.savez(tmp_path / f"{file}.npz", logits=stages[0], y=labels, **more)
    found = post_mortem(tmp_path / f"{file}.npz", metrics=["refinement"])
    assert [record["step"] for record in found.monitor.history] == [step]


@pytest.mark.parametrize(("file", "step"), [("last", 12), ("epoch_3", 3)])
def test_a_single_step_that_is_numbered_itself(tmp_path, file, step):
    labels, stages = training()
    np.savez(tmp_path / f"{file}.npz", logits_12=stages[0], y=labels)
    found = post_mortem(tmp_path / f"{file}.npz", metrics=["refinement"])
    assert [record["step"] for record in found.monitor.history] == [step]


# ---- Parquet ---------------------------------------------------------------------------------------------


def frame(labels, logits, **more):
    return pd.DataFrame(logits, columns=NAMES).assign(**more, target=NAMES[labels])


def test_columns_named_by_their_class(tmp_path):
    labels, stages = training()
    for step, logits in zip(STEPS, stages, strict=True):
        shuffled = frame(labels, logits)[["target", "cat", "ant", "bee"]]
        shuffled.to_parquet(tmp_path / f"{step}.parquet")
    assert_same(post_mortem(tmp_path, kind="logits"), expected(labels, stages))


def test_a_long_table_in_any_order(tmp_path):
    labels, stages = training()
    parts = [frame(labels, z, epoch=step) for step, z in zip(STEPS, stages, strict=True)]
    table = pd.concat(parts).sample(frac=1, random_state=0)
    table["target"] = table["target"].astype("category")
    table.to_parquet(
        tmp_path / "run.parquet", row_group_size=16
    )  # with an index, which is no class
    found = post_mortem(tmp_path / "run.parquet", kind="logits")
    assert_same(found, expected(labels, stages))


def test_a_long_table_with_names_of_its_own(tmp_path):
    labels, stages = training()
    parts = [
        frame(labels, z, when=float(step), id=np.arange(len(labels)), name="x")
        for step, z in zip(STEPS, stages, strict=True)
    ]
    pd.concat(parts).rename(columns={"target": "who"}).to_parquet(tmp_path / "run.parquet")
    options = {"kind": "logits", "target": "who", "columns": NAMES.tolist(), "step_column": "when"}
    assert_same(post_mortem(tmp_path / "run.parquet", **options), expected(labels, stages))


def test_one_column_for_two_classes(tmp_path):
    labels, stages = training(k=2)
    for step, logits in zip(STEPS, stages, strict=True):
        columns = {"prob": softmax(logits, axis=1)[:, 1], "feature": logits[:, 0], "y": labels}
        pq.write_table(pa.table(columns), tmp_path / f"{step}.parquet")
    assert_same(post_mortem(tmp_path), expected(labels, stages))


def test_columns_are_all_that_are_asked_for(tmp_path):
    labels, stages = training()
    columns = {"logit_a": stages[0][:, 0], "b": stages[0][:, 1], "c": stages[0][:, 2], "y": labels}
    pq.write_table(pa.table(columns | {"logit_d": stages[1][:, 0]}), tmp_path / "1.parquet")
    found = post_mortem(tmp_path, columns=["logit_a", "b", "c"])
    assert_same(found, rc.select(labels, logits=stages[:1], steps=[1]))


# ---- what comes out --------------------------------------------------------------------------------------


def test_the_table_says_what_each_choice_costs(tmp_path):
    labels, stages = save_steps(tmp_path)
    found = post_mortem(tmp_path)
    parts = {step: rc.decompose(labels, logits=z) for step, z in zip(STEPS, stages, strict=True)}
    smallest = min(part.refinement for part in parts.values())
    rows = {row["metric"]: row for row in found.table()}
    assert list(rows) == list(METRICS)
    assert rows["refinement"]["step"] == min(STEPS, key=lambda step: parts[step].refinement)
    assert rows["log_loss"]["step"] == min(STEPS, key=lambda step: parts[step].risk)
    assert rows["refinement"]["cost"] == 0
    for row in rows.values():
        part = parts[row["step"]]
        assert (row["risk"], row["refinement"], row["beta"], row["cost"]) == pytest.approx(
            (part.risk, part.refinement, part.beta, part.refinement - smallest), rel=1e-9
        )
        assert row["value"] == found.monitor.bests[row["metric"]].value


def test_metrics_loss_and_calibrator_can_be_chosen(tmp_path):
    labels, stages = save_steps(tmp_path, k=2)
    options = {"loss": "brier", "calibrator": "isotonic", "cv": 3}
    found = post_mortem(tmp_path, metrics=["auroc", "risk"], **options)
    assert_same(found, expected(labels, stages, metric="auroc", also=["risk"], **options))
    assert [row["metric"] for row in post_mortem(tmp_path, metrics="brier").table()] == ["brier"]


def test_the_repr_is_the_table(tmp_path):
    save_steps(tmp_path)
    found = post_mortem(tmp_path)
    lines = repr(found).splitlines()
    assert lines[0] == "PostMortem of 4 steps, 1 to 20"
    assert max(map(len, lines)) <= 80
    for line, row in zip(lines[2:], found.table(), strict=True):
        shown = [f"{row['risk']:.5f}", f"{row['refinement']:.5f}", f"{row['beta']:.4g}"]
        assert line.split() == [row["metric"], str(row["step"]), *shown, f"{row['cost']:.5f}"]


def test_the_repr_fits_into_80_columns_whatever_the_names(tmp_path):
    save_steps(tmp_path)
    metric = Metric(lambda y, probs: 1e9, "a_metric_of_my_own_" * 5)
    lines = repr(post_mortem(tmp_path, metrics=[metric], loss="spherical")).splitlines()
    assert max(map(len, lines)) <= 80


def test_it_can_be_written_as_json(tmp_path):
    save_steps(tmp_path)
    found = post_mortem(tmp_path)
    again = json.loads(json.dumps(found.to_dict()))
    assert again == {"loss": "log", "table": found.table(), "history": found.monitor.history}


def test_it_can_be_drawn(tmp_path):
    save_steps(tmp_path)
    found = post_mortem(tmp_path)
    ax = Figure().subplots()
    assert found.plot(ax).ax_ is ax
    assert found.plot(ax).smallest["refinement"][0] == found.monitor.best_step


def test_a_step_that_diverged_is_passed_over(tmp_path):
    labels, stages = save_steps(tmp_path)
    np.savez(tmp_path / "epoch_3.npz", logits=stages[0] * np.nan, y=labels)
    with pytest.warns(RuntimeWarning, match="predictions of step 3 are not finite"):
        found = post_mortem(tmp_path)
    monitor = expected(labels, stages, also=METRICS)
    assert [row["step"] for row in found.table()] == [monitor.bests[name].step for name in METRICS]


def test_a_metric_that_is_never_a_number(tmp_path):
    np.savez(tmp_path / "1.npz", probs=[0.2, 0.3], y=[1, 1])
    found = post_mortem(tmp_path, metrics=["auroc", "brier"])
    assert found.table()[0]["step"] is None
    assert "auroc      never a number" in repr(found)


# ---- memory ----------------------------------------------------------------------------------------------


def in_memory(folder, steps=20, n=5000, k=4):
    """Write large predictions; return their size in bytes, and the labels."""
    labels, logits = drawn(n, k)
    np.savez(folder / "all.npz", logits=np.stack([logits] * steps), y=labels)
    columns = {f"logit_{j}": np.tile(logits[:, j], steps) for j in range(k)}
    columns |= {"step": np.repeat(np.arange(steps), n), "y": np.tile(labels, steps)}
    pq.write_table(pa.table(columns), folder / "all.parquet", row_group_size=n)
    return logits.nbytes


def test_one_step_of_an_array_at_a_time(tmp_path):
    step = in_memory(tmp_path)
    post_mortem(tmp_path / "all.npz", metrics="refinement")  # compile and import
    tracemalloc.start()
    post_mortem(tmp_path / "all.npz", metrics="refinement")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * step  # of 20: the bytes, and what a decomposition needs


def test_one_step_of_a_table_at_a_time(tmp_path):
    step = in_memory(tmp_path)
    seen = []

    def arrow_bytes(y_true, probs):
        seen.append(pa.total_allocated_bytes())
        return 0.0

    post_mortem(tmp_path / "all.parquet", metrics=[arrow_bytes])
    assert len(seen) == 20
    assert max(seen) < 10 * step  # of 20; how far Arrow reads ahead varies


# ---- wrong use -------------------------------------------------------------------------------------------


class Boom:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_are_never_loaded(tmp_path):
    labels = np.array([Boom(), "b"], dtype=object)
    np.savez(tmp_path / "1.npz", logits=np.zeros((2, 2)), y=labels)
    with pytest.raises(
        ValueError, match=r"1.npz: the array 'y' holds Python objects, which need pickle"
    ):
        post_mortem(tmp_path)
    (tmp_path / "1.npz").write_bytes(pickle.dumps(Boom()))
    with pytest.raises(ValueError, match=r"1.npz cannot be read .*: is the file complete\?"):
        post_mortem(tmp_path)


@formats
@pytest.mark.parametrize("kept", [0, 10, 0.5])
def test_a_file_cut_short_is_named(tmp_path, suffix, kept):
    save_steps(tmp_path, suffix)
    path = tmp_path / f"epoch_10{suffix}"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept if kept != 0.5 else len(whole) // 2)])
    with pytest.raises(ValueError, match=rf"epoch_10\{suffix} cannot be read .*: is the file comp"):
        post_mortem(tmp_path)


def test_a_damaged_array_is_named(tmp_path):
    labels, logits = drawn(500, 3)
    np.savez_compressed(tmp_path / "1.npz", logits=logits, y=labels)
    damaged = bytearray((tmp_path / "1.npz").read_bytes())
    damaged[3000:3100] = bytes(100)
    (tmp_path / "1.npz").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"1.npz cannot be read"):
        post_mortem(tmp_path)


def test_missing_files(tmp_path):
    for files in (tmp_path / "run.npz", f"{tmp_path}/*.npz", [tmp_path / "a.npz"]):
        with pytest.raises(
            FileNotFoundError, match="does not exist: pass a file, a folder, or a pat"
        ):
            post_mortem(files)
    with pytest.raises(
        FileNotFoundError, match=r"holds no file that ends in .npz, .safetensors, .parq"
    ):
        post_mortem(tmp_path)
    with pytest.raises(ValueError, match="files is empty: pass at least one"):
        post_mortem([])


def test_files_must_have_a_known_format_and_a_number_each(tmp_path):
    torch.save({"logits": torch.zeros(2, 2)}, tmp_path / "epoch_1.pt")
    with pytest.raises(ValueError, match=r"epoch_1.pt ends in '.pt': it must end in .npz, "):
        post_mortem(tmp_path / "epoch_1.pt")
    for name in ("epoch_1", "again_01", "last"):
        np.savez(tmp_path / f"{name}.npz", probs=[0.2, 0.7], y=[0, 1])
    with pytest.raises(ValueError, match=r"(epoch_1|again_01).npz and .*.npz are both step 1"):
        post_mortem([tmp_path / "epoch_1.npz", tmp_path / "again_01.npz"])
    with pytest.raises(
        ValueError, match=r"last.npz has no number in its name: name it after its step"
    ):
        post_mortem([tmp_path / "epoch_1.npz", tmp_path / "last.npz"])


P = np.array([[0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
Y = np.array([0, 0, 1])


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (
            {"probs": P},
            {},
            r"1.npz holds no labels: pass y_val=, say what they are called with target=",
        ),
        ({"probs": P, "y": Y}, {"target": "t"}, r"1.npz holds no labels"),
        ({"y": Y}, {}, r"1.npz: there are no predictions: save them under the name 'logits' or"),
        ({"out": P, "y": Y}, {}, r"1.npz: the names \['out'\] do not say whether these are logits"),
        (
            {"probs": P, "y": Y},
            {"kind": "logits"},
            r"kind is 'logits', but the names say otherwise",
        ),
        (
            {"probs": P, "x": P, "y": Y},
            {"kind": "logits"},
            r"kind is 'logits', but the names say other",
        ),
        ({"a": P, "b": P, "y": Y}, {"kind": "probs"}, r"which of the arrays \['a', 'b'\] are the"),
        ({"a_1": P, "b_1": P, "y": Y}, {"kind": "probs"}, r"'a_1' and 'b_1' are both step 1"),
        (
            {"probs": [P, P], "y": Y, "steps": [1]},
            {},
            r"there are 1 steps, but 'probs' has shape \(2, 3",
        ),
        (
            {"probs": [P, P], "y": Y, "steps": [2, 1]},
            {},
            r"1.npz, step 1: step is 1, but the last step was 2",
        ),
        ({"probs": P, "y": Y + 1}, {}, r"1.npz, step 1: y_val\[2\] is 2, but probs has 2 columns"),
        (
            {"probs": 2 * P, "y": Y},
            {},
            r"1.npz, step 1: probs\[0, 1\] is 1.6, which is not a probab",
        ),
        (
            {"probs": P, "y": Y},
            {"kind": "scores"},
            r"kind is 'scores': it must be one of 'probs', 'log",
        ),
        ({"probs": P, "y": Y}, {"metrics": ["acc"]}, r"metric is 'acc'"),
        ({"probs": P, "y": Y}, {"metrics": []}, r"metrics is empty: name at least one, such as"),
        ({"probs_1": P, "probs_x": P, "y": Y}, {}, r"which of the arrays \['probs_1', 'probs_x'\]"),
    ],
)
def test_what_is_not_understood_is_said(tmp_path, arrays, options, message):
    np.savez(tmp_path / "1.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        post_mortem(tmp_path, **options)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (
            {"probs": P[:2], "y": Y[:2]},
            r"2.npz, step 2, has predictions of shape \(2, 2\), but step 1 has \(3, 2\): .* same rows",
        ),
        (
            {"probs": np.full((3, 4), 0.25), "y": Y},
            r"2.npz, step 2, has predictions of shape \(3, 4\), .* needs the same classes",
        ),
        ({"probs": P, "y": 1 - Y}, r"the labels in .*2.npz, step 2, are not those of step 1"),
    ],
)
def test_every_step_is_of_the_same_rows_and_classes(tmp_path, later, message):
    np.savez(tmp_path / "1.npz", probs=P, y=Y)
    np.savez(tmp_path / "2.npz", **later)
    with pytest.raises(ValueError, match=message):
        post_mortem(tmp_path)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": P[:, 0], "b": P[:, 1], "y": Y}, {}, r"1.parquet: the names \['a', 'b'\] do not say"),
        (
            {"prob": P[:, 0], "y": Y},
            {"columns": ["p"], "kind": "probs"},
            r"there is no column 'p': the",
        ),
        (
            {"prob": P[:, 0], "y": Y},
            {"step_column": "t"},
            r"there is no column 't': the columns are",
        ),
        (
            {"a": P[:, 0], "id": Y, "y": Y},
            {"kind": "probs"},
            r"the columns \['id'\] do not hold float",
        ),
        ({"prob": P[:, 0], "who": ["u", "v", "w"]}, {}, r"1.parquet holds no labels"),
        (
            {"prob": P[:, 0], "y": Y, "epoch": ["a", "a", "b"]},
            {},
            r"column 'epoch' must hold whole numbers",
        ),
        (
            {"prob": P[:, 0], "y": Y, "epoch": [1.5, 1.5, 2]},
            {},
            r"column 'epoch' must hold whole numbers",
        ),
    ],
)
def test_what_is_not_understood_in_a_table_is_said(tmp_path, columns, options, message):
    pq.write_table(pa.table(columns), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=message):
        post_mortem(tmp_path, **options)


def test_a_later_table_with_other_columns_is_refused(tmp_path):
    labels, stages = training()
    for step, names in ((1, NAMES), (2, ["ant", "bee", "dog"])):
        table = pd.DataFrame(stages[0], columns=names).assign(target=NAMES[labels])
        table.to_parquet(tmp_path / f"{step}.parquet")
    with pytest.raises(
        ValueError, match=r"2.parquet, step 2: y_val\[\d+\] is 'cat', which is not among"
    ):
        post_mortem(tmp_path, kind="logits")


def test_bfloat16_is_refused_with_the_cure(tmp_path):
    arrays = {"logits": torch.zeros(2, 2, dtype=torch.bfloat16), "y": torch.tensor([0, 1])}
    save_torch(arrays, tmp_path / "1.safetensors")
    with pytest.raises(
        ValueError, match=r"1.safetensors: the array 'logits' is bfloat16.*as float32"
    ):
        post_mortem(tmp_path)


@pytest.mark.parametrize(
    ("package", "suffix", "extra"),
    [("pyarrow", ".parquet", "parquet"), ("safetensors", ".safetensors", "safetensors")],
)
def test_without_the_package_the_error_names_the_extra(
    tmp_path, monkeypatch, package, suffix, extra
):
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    save_steps(tmp_path, suffix)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'refinecal\[{extra}\]'"):
        post_mortem(Path(tmp_path))
