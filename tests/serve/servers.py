"""Small models of every form of row, and a server of one's own to call, kill and stop."""

from __future__ import annotations

import atexit
import http.client
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("httptools", reason="the extra `serve` is not installed")
pytest.importorskip("orjson", reason="the extra `serve` is not installed")

import steepest as st

GOOD = ["great", "fine", "lovely", "superb", "funny", "warm"]
BAD = ["awful", "dull", "boring", "weak", "cold", "sad"]
FILLER = ["film", "plot", "actor", "scene", "music", "ending"]


def texts(n, seed=0):
    """(texts, labels): words of one side or the other among words of neither."""
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(n) < 0.5, "pos", "neg")
    rows = []
    for label in labels:
        words = [*rng.choice(GOOD if label == "pos" else BAD, 3), *rng.choice(FILLER, 5)]
        rows.append(" ".join(rng.permutation(words)))
    return rows, labels.tolist()


def table(n, seed=0):
    """(rows of columns, prices)."""
    rng = np.random.default_rng(seed)
    size, town = rng.uniform(20, 200, n), rng.choice(["Ulm", "Bonn", "Kiel"], n)
    price = 3 * size + 100 * (town == "Bonn") + rng.normal(0, 5, n)
    return [{"size": float(s), "town": str(t)} for s, t in zip(size, town, strict=True)], price.tolist()


def fit_text(path, seed=0, **params):
    rows, labels = texts(400, seed)
    hasher = st.Hasher(n_bits=14, text=["review"], names=1000)
    model = st.LinearClassifier("log", hasher=hasher, random_state=0, **params)
    model.fit([{"review": row} for row in rows], labels).save(path)
    return path


@pytest.fixture(scope="session")
def models():
    """Paths of models by their form: text, columns, sparse, pairs, several, network, clusters, embedding, bags."""
    return fit_models()


@cache
def fit_models():
    """The same for all test modules of one process."""
    place = Path(tempfile.mkdtemp(prefix="steepest-serve-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    rng = np.random.default_rng(1)
    names = ("text", "columns", "sparse", "pairs", "several", "network", "clusters", "embedding", "bags")
    paths = {name: str(place / f"{name}.steepest") for name in names}
    fit_text(paths["text"])
    rows, price = table(300)
    st.LinearRegressor(hasher=st.Hasher(n_bits=12, names=100), random_state=0).fit(rows, price).save(paths["columns"])
    X = rng.normal(size=(300, 5))
    three = np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])
    st.LinearClassifier("log", random_state=0).fit(X, three).save(paths["sparse"])
    st.NetworkClassifier(hidden=(4,), random_state=0).fit(X, three).save(paths["network"])
    st.KMeans(3, random_state=0).fit(X).save(paths["clusters"])
    labels = np.column_stack([X[:, 0] > 0, X[:, 1] > 0, np.ones(300)]).astype(int)
    st.LinearClassifier("log", random_state=0).fit(X, labels).save(paths["several"])
    pairs = np.array([[u, i] for u in range(30) for i in range(20) if (u * i) % 3])
    ratings = 3 + np.sin(pairs[:, 0] * 0.5) * np.cos(pairs[:, 1] * 0.4)
    st.MatrixFactorization(4, random_state=0).fit(pairs, ratings).save(paths["pairs"])
    words, sides = texts(300, seed=3)
    bags = [dict.fromkeys(row.split(), 2) for row in words]
    hasher = st.Hasher(n_bits=12, bags=True)
    st.LinearClassifier("log", hasher=hasher, random_state=0).fit(bags, sides).save(paths["bags"])
    st.TextClassifier(8, epochs=3, random_state=0).fit(words, sides).save(paths["embedding"])
    return paths


class Server:
    """`steepest serve` in a process of its own, on a free port of loopback."""

    def __init__(self, model, *flags, limits=None):
        command = [sys.executable, "-m", "steepest", "serve", str(model), "--port", "0", *map(str, flags)]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=limits, start_new_session=True
        )
        os.set_blocking(self.process.stderr.fileno(), False)
        self.said = ""
        self.wait_for("listening on http://127.0.0.1:")
        while (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)\n", self.said)) is None:
            self.read(0.1)
        self.port = int(found[1])

    def read(self, seconds=0.0):
        """What it has said on stderr so far."""
        if select.select([self.process.stderr], [], [], seconds)[0]:
            self.said += (self.process.stderr.read() or b"").decode()
        return self.said

    def wait_for(self, sentence, seconds=60.0):
        """Waits until it says something."""
        end = time.monotonic() + seconds
        while sentence not in self.read(0.05):
            if self.process.poll() is not None and sentence not in self.read(0.5):
                raise AssertionError(f"the server ended with {self.process.returncode}: {self.said}")
            assert time.monotonic() < end, f"never said {sentence!r}: {self.said}"
        return self.said

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def raw(self, method, path, body=None, headers=None):
        """(status, headers, bytes) of one request on a connection of its own."""
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def call(self, path, value=None, token=None):
        """(status, JSON) of a GET, or of a POST of a value."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        body = None if value is None else json.dumps(value)
        status, _, data = self.raw("GET" if value is None else "POST", path, body, headers)
        return status, json.loads(data)

    def metric(self, line):
        """The number behind the start of a line of /metrics."""
        text = self.raw("GET", "/metrics")[2].decode()
        found = [row for row in text.splitlines() if row.startswith(line)]
        assert found, f"{line} is not in {text}"
        return float(found[0].rsplit(" ", 1)[1])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def stop(self):
        """Asks it to stop, and gives its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        self.read()
        self.process.stderr.close()
        return self.process.returncode


@pytest.fixture(scope="module")
def start():
    """Starts servers, which end with the module."""
    running = []

    def begin(model, *flags, limits=None):
        running.append(Server(model, *flags, limits=limits))
        return running[-1]

    yield begin
    for server in running:
        if server.process.poll() is None:
            server.kill()


def refused(*flags):
    """(exit status, what was said) of a server that must not start."""
    done = subprocess.run(
        [sys.executable, "-m", "steepest", "serve", *map(str, flags)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def replace_file(source, target):
    """Puts a file in the place of another in one step, as a careful program does."""
    part = Path(f"{target}.new")
    part.write_bytes(Path(source).read_bytes())
    os.replace(part, target)
