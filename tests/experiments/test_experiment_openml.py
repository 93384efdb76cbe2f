"""Data sets of OpenML; without a network, so from a server and from a cache of our own."""

import gzip
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from command_runs import HANGING
from made_sets import ALL, same

from refinecal.experiments.tabular import _openml
from refinecal.experiments.tabular.sets import Source, openml_sets

ARFF = """@RELATION tiny
@ATTRIBUTE size REAL
@ATTRIBUTE colour {red,green,'dark blue'}
@ATTRIBUTE target {1,2,3}
@ATTRIBUTE row STRING
@ATTRIBUTE class {no,yes}
@DATA
"""


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Put a data set, number 77, where scikit-learn keeps what it fetched from OpenML."""
    rng = np.random.default_rng(0)
    rows = [
        f"{'?' if i % 10 == 0 else round(rng.normal(), 3)},{rng.choice(['red', 'green', '?'])},"
        f"{rng.integers(1, 4)},r{i},{'yes' if i % 3 else 'no'}"
        for i in range(60)
    ]
    arff = (ARFF + "\n".join(rows) + "\n").encode()
    names = {
        "size": "numeric",
        "colour": "nominal",
        "target": "nominal",
        "row": "string",
        "class": "nominal",
    }
    features = [
        {
            "index": str(i),
            "name": name,
            "data_type": kind,
            "is_target": str(name == "class").lower(),
            "number_of_missing_values": "0",
            "is_ignore": "false",
            "is_row_identifier": str(name == "row").lower(),
        }
        for i, (name, kind) in enumerate(names.items())
    ]
    description = {
        "id": "77",
        "name": "tiny",
        "version": "1",
        "format": "ARFF",
        "status": "active",
        "description": "made up",
        "url": "https://www.openml.org/data/v1/download/5/tiny.arff",
        "md5_checksum": hashlib.md5(arff).hexdigest(),
    }
    answers = {
        "api/v1/json/data/77": {"data_set_description": description},
        "api/v1/json/data/features/77": {"data_features": {"feature": features}},
        "api/v1/json/data/qualities/77": {
            "data_qualities": {"quality": [{"name": "NumberOfInstances", "value": "60.0"}]}
        },
    }
    files = {name: json.dumps(answer).encode() for name, answer in answers.items()}
    for name, content in (files | {"data/v1/download/5/tiny.arff": arff}).items():
        path = tmp_path / "openml" / "openml.org" / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    return rows


def test_what_was_fetched_from_openml_is_read(cached):
    found = Source("tiny-77", "openml", "77", digest="openml 77").load(**ALL)
    parts = [row.split(",") for row in cached]
    complete = [part for part in parts if part[0] != "?"]
    assert list(found.X) == ["size", "colour", "target (feature)"]
    assert found.dropped["missing_numbers"] == 6
    np.testing.assert_array_equal(found.X["size"], [float(part[0]) for part in complete])
    assert [found.classes[i] for i in found.y] == [part[-1] for part in complete]
    assert found.X["target (feature)"].nunique() == 3  # categories, though they are whole numbers
    missing = [part[1] == "?" for part in complete]
    np.testing.assert_array_equal(found.X["colour"] == 2, missing)


def test_text_of_openml_is_read_once(cached, tmp_path):
    source = Source("tiny-77", "openml", "77")
    first = source.load(**ALL)
    for path in (tmp_path / "openml").rglob("*.gz"):
        path.unlink()
    same(source.load(**ALL), first)


def test_targets_of_openml_that_are_missing(cached, tmp_path):
    path = tmp_path / "openml" / "openml.org" / "api/v1/json/data/features/77.gz"
    features = json.loads(gzip.decompress(path.read_bytes()))
    for feature in features["data_features"]["feature"]:
        feature["is_target"] = "false"
    path.write_bytes(gzip.compress(json.dumps(features).encode()))
    with pytest.raises(ValueError, match="no target"):
        Source("tiny-77", "openml", "77").load(**ALL)


TWO = {"data": {"dataset": [{"did": 3, "name": "kr-vs-kp"}, {"did": 31, "name": "credit-g"}]}}
ONE = {"data": {"dataset": [{"did": 31, "name": "credit-g"}]}}
ANSWERS = {
    "/study/99": {"study": {"data": {"data_id": ["31", "3"]}}},
    "/study/OpenML-CC18": {"study": {"data": {"data_id": ["31", "3"]}}},
    "/study/single": {"study": {"data": {"data_id": "31"}}},
    "/study/runs": {"study": {"name": "no data"}},
    "/data/list/data_id/3,31/status/all/limit/100": TWO,
    "/data/list/data_id/31,3/status/all/limit/100": TWO,
    "/data/list/data_id/31/status/all/limit/100": ONE,
    "/data/list/data_id/31,4/status/all/limit/100": ONE,
    "/data/list/data_id/8/status/all/limit/100": {"data": []},
}


class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        answer = "oops" if "/study/oops" in self.path else json.dumps(ANSWERS.get(self.path))
        self.send_response(412 if answer == "null" else 200)  # so does OpenML
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    with HTTPServer(("127.0.0.1", 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        monkeypatch.setattr(_openml, "SERVER", f"http://127.0.0.1:{running.server_port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("which", "names"),
    [
        ("OpenML-CC18", ["kr-vs-kp-3", "credit-g-31"]),
        ("s/99", ["kr-vs-kp-3", "credit-g-31"]),
        ("single", ["credit-g-31"]),
        ("31, 3", ["credit-g-31", "kr-vs-kp-3"]),
        ([31, 3, 31], ["credit-g-31", "kr-vs-kp-3"]),
        (31, ["credit-g-31"]),
        ("31", ["credit-g-31"]),
    ],
)
def test_sets_of_openml_have_names(server, which, names):
    found = openml_sets(which)
    assert [source.name for source in found] == names
    assert all(source.digest == f"openml {source.path}" for source in found)


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("nowhere", "does not have the suite 'nowhere'"),
        ("oops", "did not answer with JSON"),
        ("runs", "lists no data sets"),
        ([31, 4], "no data sets with the numbers 4"),
        (8, "is not a list"),
        ([], "names no data sets"),
        ("", "names no data sets"),
        ("31,abc", "names no data sets"),
        (0, "names no data sets"),
        ([-3], "names no data sets"),
    ],
)
def test_what_openml_does_not_have(server, which, words):
    with pytest.raises(ValueError, match=words):
        openml_sets(which)


class Broken(Server):
    def do_GET(self):
        self.send_response(200)
        if "late" in self.path:
            self.end_headers()
            self.server.released.wait()
        else:
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"{")


@pytest.mark.parametrize(("which", "seconds"), [("late", 0.2), ("cut off", HANGING)])
def test_openml_lost_on_the_way(monkeypatch, which, seconds):
    monkeypatch.setattr(_openml, "TIMEOUT", seconds)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), Broken) as running:
        running.released = threading.Event()
        thread = threading.Thread(target=running.handle_request)
        thread.start()
        monkeypatch.setattr(_openml, "SERVER", f"http://127.0.0.1:{running.server_port}")
        with pytest.raises(ConnectionError, match="not reached for the suite"):
            openml_sets(which)
        running.released.set()
        thread.join()


def test_openml_out_of_reach(monkeypatch):
    monkeypatch.setattr(_openml, "SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(ConnectionError, match=r"not reached.*Without a network"):
        openml_sets("OpenML-CC18")
