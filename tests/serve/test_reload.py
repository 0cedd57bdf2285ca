"""A new model file is taken over without dropping a request; a server that is asked to stop finishes what it does."""

from __future__ import annotations

import json
import threading
import time

import pytest
from servers import fit_text, models, start, texts  # noqa: F401

import steepest as st

pytestmark = pytest.mark.xdist_group("serve-reload")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_model_is_taken_over_without_a_dropped_request(start, tmp_path, workers):
    path = fit_text(tmp_path / "model.steepest")
    row = "great superb film"
    answers = [st.load(path).predict_proba([row])[0, 1]]
    server = start(path, "--workers", workers)
    found, faults, ends = [], [], threading.Event()

    def ask():
        while not ends.is_set():
            connection = server.connect()  # a few requests per connection, so that new ones reach new workers
            try:
                for _ in range(5):
                    connection.request("POST", "/predict", json.dumps({"rows": [row]}))
                    answer = connection.getresponse()
                    value = json.loads(answer.read())
                    if answer.status != 200:
                        faults.append(value)
                    found.append(value["probabilities"][0]["pos"])
                    if answer.getheader("Connection") == "close":
                        break
                connection.close()
            except Exception as error:
                faults.append(repr(error))

    clients = [threading.Thread(target=ask) for _ in range(2)]
    for client in clients:
        client.start()
    for seed in (31, 32):
        fit_text(path, seed=seed)
        answers.append(st.load(path).predict_proba([row])[0, 1])
        server.wait_for("the new model answers")
        server.said = ""
        end = time.monotonic() + 30
        while answers[-1] not in found[-3:] and time.monotonic() < end:
            time.sleep(0.05)
    ends.set()
    for client in clients:
        client.join()
    assert faults == []
    assert len(set(answers)) == 3
    assert set(found) == set(answers)
    assert server.metric("steepest_reloads_total") == 2
    assert server.stop() == 0


def test_stopping_finishes_the_answers_in_the_making(models, start):
    server = start(models["text"])
    rows = texts(5000, seed=2)[0]
    found = []
    body = json.dumps({"rows": rows})

    def ask():
        connection = server.connect()
        connection.request("POST", "/predict", body)
        found.append(json.loads(connection.getresponse().read()))

    idle = server.connect()
    idle.request("GET", "/healthz")
    idle.getresponse().read()
    client = threading.Thread(target=ask)
    client.start()
    end = time.monotonic() + 30
    while server.metric("steepest_connections ") < 3 and not found and time.monotonic() < end:
        time.sleep(0.005)
    assert server.stop() == 0
    client.join()
    assert len(found[0]["predictions"]) == 5000
