"""A server under load keeps its memory; `python -m benchmarks.serve --soak SECONDS` does the same for longer."""

from __future__ import annotations

import json
import os

import pytest
from servers import models, start, texts  # noqa: F401

pytestmark = pytest.mark.xdist_group("serve-soak")


def resident(server):
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_does_not_grow_with_requests(models, start, tmp_path):
    server = start(models["text"], "--learn", "--log", tmp_path / "log", "--snapshot-rows", "400")
    rows, labels = texts(100, seed=6)
    connection = server.connect()

    def load(n):
        for number in range(n):
            for path, value in (
                ("/predict", {"rows": [rows[number % 100]]}),
                ("/predict", {"rows": rows}),
                ("/explain", {"row": rows[number % 100]}),
                ("/learn", {"rows": rows[:20], "labels": labels[:20]}),
                ("/predict", {"rows": [number]}),
            ):
                connection.request("POST", path, json.dumps(value))
                answer = connection.getresponse()
                answer.read()
                assert answer.status == (400 if value == {"rows": [number]} else 200)

    load(60)
    before = resident(server)
    load(240)
    assert resident(server) < before + (8 << 20)
    server.kill()
