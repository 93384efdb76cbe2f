"""Downloads of image sets, from a server of our own: resumed, checked, and whole or not there."""

import hashlib
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from command_runs import HANGING, kill, started, wait_for
from made_images import stored

from refinecal.experiments.vision import archives, images
from refinecal.experiments.vision.images import download, read_images

NAME = "train_32x32.mat"


class Server(ThreadingHTTPServer):
    """Serves files from memory; breaks off, fails or ignores ranges if told to."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.asked = []  # (name, range) of each request
        self.ranges = True  # whether rests are served
        self.lengths = True  # whether Content-Length is said
        self.codes = []  # answers to give first
        self.breaks = []  # after how many bytes to break off, request by request
        self.most = None  # bytes after which it says nothing for as long as that is not released
        self.released = threading.Event()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request, client_address):
        """Let clients go in silence."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        name, server = self.path.strip("/"), self.server
        wanted = re.match(r"bytes=(\d+)-$", self.headers.get("Range", ""))
        server.asked.append((name, int(wanted[1]) if wanted else 0))
        if server.codes:
            return self.send_error(server.codes.pop(0))
        if name not in server.files:
            return self.send_error(404)
        raw, start = server.files[name], 0
        if wanted and server.ranges:
            start = int(wanted[1])
            if start >= len(raw):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(raw) - 1}/{len(raw)}")
        else:
            self.send_response(200)
        if server.lengths:
            self.send_header("Content-Length", str(len(raw) - start))
        self.end_headers()
        stop = start + server.breaks.pop(0) if server.breaks else len(raw)
        for at in range(start, min(stop, len(raw)), 1 << 14):
            self.wfile.write(raw[at : min(at + (1 << 14), stop)])
            self.wfile.flush()
            if server.most is not None and at >= server.most:
                server.released.wait()
        return None

    def log_message(self, *about):
        """Say nothing."""


@pytest.fixture
def server(monkeypatch):
    """Serve two files, and make them the official ones of SVHN."""
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    rng = np.random.default_rng(0)
    offer(running, monkeypatch, NAME, rng.bytes(400_000))
    offer(running, monkeypatch, "test_32x32.mat", rng.bytes(70_000))
    monkeypatch.setattr(images, "WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield running
    running.released.set()
    running.shutdown()
    thread.join()
    running.server_close()


def offer(server, monkeypatch, name, raw):
    server.files[name] = raw
    known = archives.Official(name, hashlib.md5(raw).hexdigest(), len(raw), server.address + name)
    monkeypatch.setitem(archives.FILES, name, known)


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def assert_downloaded(server, folder):
    assert names_in(folder) == ["test_32x32.mat", NAME]
    for name, raw in server.files.items():
        assert (folder / "svhn" / name).read_bytes() == raw


# ---- what goes well --------------------------------------------------------------------------------------


def test_all_files_of_a_set(server, tmp_path):
    paths = download("svhn", tmp_path / "new")
    assert paths == [tmp_path / "new" / "svhn" / name for name in (NAME, "test_32x32.mat")]
    assert_downloaded(server, tmp_path / "new")


def test_what_is_there_is_not_asked_for_again(server, tmp_path):
    download("svhn", tmp_path)
    (tmp_path / "svhn" / "test_32x32.mat").unlink()
    server.asked.clear()
    download("svhn", str(tmp_path))
    assert server.asked == [("test_32x32.mat", 0)]
    assert_downloaded(server, tmp_path)


def test_downloaded_images_can_be_read(server, tmp_path, monkeypatch):
    images = stored(tmp_path / "made", "mat")
    for path in (tmp_path / "made").iterdir():
        offer(server, monkeypatch, path.name, path.read_bytes())
    download("svhn", tmp_path / "data")
    assert read_images(tmp_path / "data", "svhn").digest() == images.digest()


def test_files_that_lie_in_the_folder_itself_get_company(server, tmp_path, monkeypatch):
    images = stored(tmp_path / "made", "mat")
    for path in (tmp_path / "made").iterdir():
        offer(server, monkeypatch, path.name, path.read_bytes())
    download("svhn", tmp_path / "data")
    (tmp_path / "data" / "svhn" / NAME).rename(tmp_path / "data" / NAME)
    (tmp_path / "data" / "svhn" / "test_32x32.mat").unlink()
    server.asked.clear()
    download("svhn", tmp_path / "data")
    assert server.asked == [("test_32x32.mat", 0)]
    assert read_images(tmp_path / "data", "svhn").digest() == images.digest()


def test_files_of_another_set_with_the_same_names_are_left_alone(server, tmp_path):
    (tmp_path / NAME).write_bytes(b"something else")
    paths = download("svhn", tmp_path)
    assert {path.parent for path in paths} == {tmp_path / "svhn"}
    assert (tmp_path / NAME).read_bytes() == b"something else"


def test_a_bar_for_people(server, tmp_path, capsys):
    download("svhn", tmp_path, progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert NAME in said.err
    assert "400.0/400.0 kB" in said.err


# ---- what breaks off -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [True, False])
def test_it_goes_on_where_it_broke_off(server, tmp_path, lengths):
    server.lengths = lengths
    server.breaks = [100_000, 150_000, 1]
    download("svhn", tmp_path)
    assert_downloaded(server, tmp_path)
    assert server.asked == [
        (NAME, 0),
        (NAME, 100_000),
        (NAME, 250_000),
        (NAME, 250_001),
        ("test_32x32.mat", 0),
    ]


def test_a_later_call_goes_on(server, tmp_path):
    server.breaks = [200_000, 0, 0, 0]
    with pytest.raises(ConnectionError, match=r"200000 bytes received are kept: run it again"):
        download("svhn", tmp_path)
    assert names_in(tmp_path) == [f".{NAME}.part"]
    server.asked.clear()
    download("svhn", tmp_path)
    assert server.asked[0] == (NAME, 200_000)
    assert_downloaded(server, tmp_path)


def test_a_server_without_ranges(server, tmp_path):
    server.ranges = False
    server.breaks = [100_000, 250_000]
    download("svhn", tmp_path)
    assert_downloaded(server, tmp_path)


@pytest.mark.parametrize("rest", [b"x" * 1000, b"x" * 400_000, b"x" * 500_000])
def test_the_beginning_of_another_file(server, tmp_path, rest):
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / f".{NAME}.part").write_bytes(rest)
    download("svhn", tmp_path)
    assert_downloaded(server, tmp_path)


def test_a_server_that_is_busy(server, tmp_path):
    server.codes = [503, 429]
    download("svhn", tmp_path)
    assert_downloaded(server, tmp_path)


def test_killed_at_any_moment(server, tmp_path):
    server.most = 100_000
    code = f"""if True:
        from refinecal.experiments.vision import archives, images
        archives.FILES[{NAME!r}] = archives.{archives.FILES[NAME]!r}
        images.PIECE, images.TIMEOUT = 1 << 12, {HANGING}
        images.download("svhn", {str(tmp_path)!r})"""
    part = tmp_path / "svhn" / f".{NAME}.part"
    with started(code) as process:
        wait_for(lambda: part.exists() and part.stat().st_size > 50_000, process)
        with pytest.raises(ValueError, match=r"another process is downloading into"):
            download("svhn", tmp_path)
        kill(process)
    assert names_in(tmp_path) == [".download.lock", part.name]
    received = part.stat().st_size
    assert 50_000 < received < 200_000
    server.released.set()
    server.asked.clear()
    download("svhn", tmp_path)
    assert server.asked[0] == (NAME, received)
    assert_downloaded(server, tmp_path)


# ---- what is refused -------------------------------------------------------------------------------------


def test_another_file_of_the_right_size(server, tmp_path):
    raw = server.files[NAME]
    server.files[NAME] = bytes(len(raw))
    with pytest.raises(ValueError, match=r"MD5 sum is [0-9a-f]{32}, not .* not kept: try again"):
        download("svhn", tmp_path)
    assert names_in(tmp_path) == []


def test_another_size(server, tmp_path):
    server.files[NAME] = b"<html>Please log in</html>"
    with pytest.raises(ValueError, match=r"offers 26 bytes, not 400000: that is not the official"):
        download("svhn", tmp_path)
    assert names_in(tmp_path) == []
    server.lengths = False
    with pytest.raises(ConnectionError, match=r"26 bytes received are kept"):
        download("svhn", tmp_path)
    server.files[NAME] = np.random.default_rng(1).bytes(500_000)  # no end in sight
    with pytest.raises(ValueError, match=r"MD5 sum"):
        download("svhn", tmp_path)
    assert names_in(tmp_path) == []


def test_what_was_received_survives_a_wrong_answer(server, tmp_path):
    """A page that asks to log in does not cost what was downloaded before."""
    raw = server.files[NAME]
    server.breaks = [200_000, 0, 0, 0]
    with pytest.raises(ConnectionError):
        download("svhn", tmp_path)
    server.files[NAME], server.ranges = b"<html>Please log in</html>", False
    with pytest.raises(ValueError, match=r"offers 26 bytes"):
        download("svhn", tmp_path)
    assert (tmp_path / "svhn" / f".{NAME}.part").read_bytes() == raw[:200_000]


@pytest.mark.parametrize("code", [404, 403, 410])
def test_no_such_file(server, tmp_path, code):
    server.codes = [code]
    with pytest.raises(
        ConnectionError, match=rf"{NAME} was not downloaded \(HTTP Error {code}.*put it into"
    ):
        download("svhn", tmp_path)
    assert server.asked == [(NAME, 0)]
    assert names_in(tmp_path) == []


def test_no_network(server, tmp_path, monkeypatch):
    gone = archives.Official(NAME, "0" * 32, 10, "http://127.0.0.1:9/x")
    monkeypatch.setitem(archives.FILES, NAME, gone)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:9/x was not downloaded.*refused"):
        download("svhn", tmp_path)
    assert names_in(tmp_path) == []


def test_a_file_of_that_name_is_not_overwritten(server, tmp_path):
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / NAME).write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"is not the official file: it has 4 of 400000 bytes"):
        download("svhn", tmp_path)
    assert (tmp_path / "svhn" / NAME).read_bytes() == b"mine"
    assert server.asked == []


def test_names_of_sets(tmp_path):
    with pytest.raises(ValueError, match=r"name is 'mnist': there are cifar10, cifar100, svhn"):
        download("mnist", tmp_path)
    assert os.listdir(tmp_path) == []
