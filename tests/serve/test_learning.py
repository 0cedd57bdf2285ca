"""No acknowledged row is ever lost: killed, torn, full, restarted, the model has the same bits."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from servers import Server, fit_text, models, refused, start, table, texts  # noqa: F401

import steepest as st
from steepest.serve.learning import learn_rows
from steepest.serve.row_log import RowLog
from steepest.serve.rows import LabelReader, RowReader

pytestmark = pytest.mark.xdist_group("serve-learning")

ROUNDS = int(os.environ.get("STEEPEST_KILL_ROUNDS", "5"))  # 50 for a release


def logged(directory):
    """All requests in the logs of a directory, in order."""
    found = []
    for path in sorted(Path(directory).glob("rows-*.log")):
        log, requests, _ = RowLog.open(str(path))
        log.close()
        found += requests
    return found


def learned_by_hand(path, requests):
    """The model after the same rows, in this process."""
    model = st.load(path)
    model.n_jobs = 1
    reader = RowReader(model)
    for request in requests:
        y = LabelReader(model).read(request["labels"])
        learn_rows(model, reader.read(request["rows"]), y, contextlib.nullcontext())
    return model


def saved(model, path):
    model.save(path)
    return Path(path).read_bytes()


def snapshot(directory):
    (path,) = Path(directory).glob("snapshot-*.steepest")
    return path.read_bytes()


def test_a_truth_value_is_the_class_that_the_training_file_spelled():
    model = st.LinearClassifier(random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], ["FALSE", "FALSE", "TRUE", "TRUE"])
    assert LabelReader(model).read([True, False, "TRUE"]).tolist() == ["TRUE", "FALSE", "TRUE"]
    words = st.LinearClassifier(random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    with pytest.raises(st.DataError, match="label 0 is True; the model's classes are texts"):
        LabelReader(words).read([True])


def test_a_target_that_is_too_large_is_refused_and_learning_goes_on(models, start, tmp_path):
    server = start(models["columns"], "--learn", "--log", tmp_path / "log")
    row = {"size": 30, "town": "Ulm"}
    for label in (1e200, -1e101, 1e300):
        status, said = server.call("/learn", {"rows": [row], "labels": [label]})
        assert (status, "at most 1e+100" in said["error"]) == (400, True)
    assert server.call("/learn", {"rows": [row, row], "labels": [1e60, 95.5]})[0] == 200
    assert server.call("/learn", {"rows": [row], "labels": [95.5]}) == (200, {"learned": 1, "sequence": 3})
    assert server.stop() == 0


def test_a_fault_of_the_server_is_answered_and_does_not_end_learning(models, tmp_path, monkeypatch):
    """The thread that learns outlives whatever is raised in it."""
    import asyncio
    import threading

    from steepest.serve.counters import Counters
    from steepest.serve.learning import OnlineLearner
    from steepest.serve.loading import load_model
    from steepest.serve.options import ServeOptions
    from steepest.serve.server import predictor_of

    options = ServeOptions(models["text"], learn=True, log=str(tmp_path / "log"))
    loaded = load_model(models["text"])
    learner = OnlineLearner(loaded, options, Counters(), threading.RLock(), print)
    learner.start(predictor_of(options, loaded))
    measure = learner._measure

    async def asked(labels):
        return await learner.submit(["great film"], labels, asyncio.get_running_loop())

    monkeypatch.setattr(learner, "_measure", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(asked(["pos"]))
    monkeypatch.setattr(learner, "_measure", measure)
    assert asyncio.run(asked(["pos"])) == {"learned": 1, "sequence": 1}
    learner.stop()


def test_rows_are_learned_and_a_restart_has_the_same_bits(models, start, tmp_path):
    log, base = tmp_path / "log", models["text"]
    rows, labels = texts(60, seed=20)
    requests = [{"rows": rows[i : i + 7], "labels": labels[i : i + 7]} for i in range(0, 60, 7)]
    requests.append({"rows": ["a new kind of film"], "labels": ["mixed"]})  # a class that the model did not have
    server = start(base, "--learn", "--log", log)
    sequence = 0
    for request in requests:
        sequence += len(request["rows"])
        found = server.call("/learn", request)
        assert found == (200, {"learned": len(request["rows"]), "sequence": sequence})
    expected = learned_by_hand(base, requests)
    row = ["a new kind of film"]
    found = server.call("/predict", {"rows": row})[1]
    assert list(found["probabilities"][0]) == ["mixed", "neg", "pos"]
    assert found["predictions"] == expected.predict(row).tolist()
    assert server.metric('steepest_progressive_loss_rows{loss="log"}') == 61
    assert server.metric('steepest_learned_labels_total{label="(other)"}') == 1
    server.kill()  # nothing but the log knows of these rows now
    server = start(base, "--learn", "--log", log)
    assert "61 rows learned again" in server.said
    assert server.call("/model")[1]["learning"]["sequence"] == 61
    assert server.call("/predict", {"rows": row})[1] == found
    assert server.stop() == 0  # which writes a snapshot
    assert snapshot(log) == saved(expected, tmp_path / "expected")


@pytest.mark.parametrize(("snapshot_rows", "rounds"), [(1_000_000, ROUNDS), (150, 2 + ROUNDS // 10)])
def test_killed_in_the_middle_of_learning_no_acknowledged_row_is_lost(models, tmp_path, snapshot_rows, rounds):
    """Clients that learn at full speed, kill -9 at some moment, and again; then the log, the rows and the bits."""
    log, base = tmp_path / "log", models["text"]
    acknowledged = []
    for round_number in range(rounds):
        server = Server(base, "--learn", "--log", log, "--snapshot-rows", snapshot_rows)
        assert server.call("/model")[1]["learning"]["sequence"] >= len(acknowledged)

        def teach(number, server=server, round_number=round_number):
            connection, n = server.connect(), 0
            rows, labels = texts(50, seed=1000 * round_number + number)
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # until it is killed
                while True:
                    mine = [f"{rows[(n + k) % 50]} row{round_number}x{number}x{n}x{k}" for k in range(1 + n % 3)]
                    connection.request("POST", "/learn", json.dumps({"rows": mine, "labels": labels[: len(mine)]}))
                    if json.loads(connection.getresponse().read())["learned"] == len(mine):
                        acknowledged.extend(mine)
                    n += 1

        clients = [threading.Thread(target=teach, args=(number,)) for number in range(3)]
        for client in clients:
            client.start()
        time.sleep(0.15 + 0.1 * (round_number % 4))
        server.kill()
        for client in clients:
            client.join()
    requests = logged(log)
    newest = max(log.glob("snapshot-*.steepest"), default=None)
    behind = 0 if newest is None else int(newest.stem.partition("-")[2])
    later = [request for row, request in requests if row >= behind]
    n_rows = behind + sum(len(request["rows"]) for request in later)
    assert n_rows >= len(acknowledged) > rounds
    if newest is None:
        texts_of_log = [row for request in later for row in request["rows"]]
        assert len(set(texts_of_log)) == len(texts_of_log)
        assert set(acknowledged) <= set(texts_of_log)
    else:
        assert behind >= snapshot_rows
    expected = learned_by_hand(base if newest is None else newest, later)
    server = Server(base, "--learn", "--log", log)
    assert server.call("/model")[1]["learning"]["sequence"] == n_rows
    assert server.stop() == 0
    assert snapshot(log) == saved(expected, tmp_path / "expected")


def test_snapshots_shorten_the_log_without_changing_the_bits(models, start, tmp_path):
    log, base = tmp_path / "log", models["columns"]
    rows, prices = table(90, seed=4)
    requests = [{"rows": rows[i : i + 10], "labels": prices[i : i + 10]} for i in range(0, 90, 10)]
    server = start(base, "--learn", "--log", log, "--snapshot-rows", "30")
    for request in requests:
        assert server.call("/learn", request)[0] == 200
    server.kill()
    names = sorted(os.listdir(log))
    assert "snapshot-00000000000000000060.steepest" in names or "snapshot-00000000000000000090.steepest" in names
    assert sum(len(request["rows"]) for _, request in logged(log)) <= 30
    server = start(base, "--learn", "--log", log)
    assert server.call("/model")[1]["learning"]["sequence"] == 90
    assert server.stop() == 0
    assert snapshot(log) == saved(learned_by_hand(base, requests), tmp_path / "expected")


def test_a_torn_last_record_is_cut_off_and_reported(models, start, tmp_path):
    log, base = tmp_path / "log", models["text"]
    server = start(base, "--learn", "--log", log)
    for text in ("great film", "dull film"):
        assert server.call("/learn", {"rows": [text], "labels": ["pos"]})[0] == 200
    server.kill()
    (path,) = log.glob("rows-*.log")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    server = start(base, "--learn", "--log", log)
    assert "ended in a torn record" in server.said
    assert server.call("/model")[1]["learning"]["sequence"] == 1
    assert server.metric("steepest_torn_bytes") > 0
    assert server.call("/learn", {"rows": ["warm film"], "labels": ["pos"]})[1]["sequence"] == 2
    server.kill()
    assert [request["rows"] for _, request in logged(log)] == [["great film"], ["warm film"]]
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"great")] ^= 1
    path.write_bytes(damaged)
    status, said = refused(base, "--port", "0", "--learn", "--log", log)
    assert (status, "is damaged at byte" in said) == (2, True)


def test_the_log_of_another_model_or_server_is_refused(models, start, tmp_path):
    log = tmp_path / "log"
    server = start(models["text"], "--learn", "--log", log)
    status, said = refused(models["text"], "--port", "0", "--learn", "--log", log)
    assert (status, "is used by another server" in said) == (2, True)
    assert server.call("/learn", {"rows": ["great film"], "labels": ["pos"]})[0] == 200
    assert server.stop() == 0
    other = fit_text(tmp_path / "other.steepest", seed=77)
    status, said = refused(other, "--port", "0", "--learn", "--log", log)
    assert (status, "learned into another model" in said) == (2, True)


def test_a_full_disk_answers_507_and_predictions_go_on(models, tmp_path):
    """A limit on the size of files stands for a full disk: both make the write fail."""
    log, base = tmp_path / "log", models["text"]
    server = Server(
        base,
        "--learn",
        "--log",
        log,
        limits=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    small = {"rows": ["great film"], "labels": ["pos"]}
    assert server.call("/learn", small)[0] == 200
    large = {"rows": ["great film " * 3000] * 40, "labels": ["pos"] * 40}
    status, said = server.call("/learn", large)
    assert (status, "were not learned; free some space" in said["error"]) == (507, True)
    assert server.call("/predict", {"rows": ["great film"]})[0] == 200
    assert server.metric("steepest_storage_failures_total") == 40
    assert server.call("/learn", small)[1]["sequence"] == 2  # what fits is still learned
    server.kill()
    assert [request for _, request in logged(log)] == [small, small]
    server = Server(base, "--learn", "--log", log)
    assert server.call("/model")[1]["learning"]["sequence"] == 2
    assert "torn" not in server.said
    server.kill()


def test_a_new_model_file_does_not_replace_what_was_learned(models, start, tmp_path):
    path = fit_text(tmp_path / "model.steepest")
    server = start(path, "--learn", "--log", tmp_path / "log")
    assert server.call("/learn", {"rows": ["great film"], "labels": ["pos"]})[0] == 200
    before = server.call("/predict", {"rows": ["great film"]})
    fit_text(path, seed=5)
    server.wait_for("belong to the old one")
    assert server.call("/predict", {"rows": ["great film"]}) == before
    assert server.stop() == 0


def test_the_age_of_a_row_is_a_column_of_it(start, tmp_path):
    """Times are in the log like all columns, so a restart has the same bits."""
    rows, labels = texts(120, seed=5)
    rows = [{"review": row, "when": f"2026-03-{1 + n // 10:02d} 10:{n % 60:02d}"} for n, row in enumerate(rows)]
    model = st.LinearClassifier("log", schedule=st.Forgetting("2 days", time="when"), random_state=0)
    model.fit(rows[:60], labels[:60]).save(base := tmp_path / "base.steepest")
    server = start(base, "--learn", "--log", tmp_path / "log")
    assert server.call("/predict", {"rows": [{"review": rows[0]["review"]}]})[0] == 200  # without a time
    shown = [(column["name"], column["kind"]) for column in server.call("/model")[1]["columns"]]
    assert ("when", "time") in shown  # so the page has a field for it
    assert "when" in server.call("/openapi.json")[1]["components"]["schemas"]["Row"]["properties"]
    assert [tensor["name"] for tensor in server.call("/v2/models/base")[1]["inputs"]] == ["review"]
    status, said = server.call("/learn", {"rows": [{"review": "fine film"}], "labels": ["pos"]})
    assert (status, "no times" in said["error"]) == (400, True)
    assert server.call("/learn", {"rows": rows[60:], "labels": labels[60:]}) == (200, {"learned": 60, "sequence": 60})
    found = server.call("/predict", {"rows": rows[:9]})
    server.kill()
    server = start(base, "--learn", "--log", tmp_path / "log")
    assert server.call("/predict", {"rows": rows[:9]}) == found
    assert st.load(base).learner_.arrays["ages"][0] * 2 * 86_400 == st.load(base).hasher_.to_chunk(rows[59:60]).time[0]


def test_factor_models_learn_too(models, start, tmp_path):
    server = start(models["pairs"], "--learn", "--log", tmp_path / "log")
    row = {"user": 4, "item": 5}
    before = server.call("/predict", {"rows": [row]})[1]["predictions"][0]
    for _ in range(5):
        assert server.call("/learn", {"rows": [row] * 20, "labels": [before + 1] * 20})[0] == 200
    after = server.call("/predict", {"rows": [row]})[1]["predictions"][0]
    assert before < after
    server.kill()
    server = start(models["pairs"], "--learn", "--log", tmp_path / "log")
    assert server.call("/predict", {"rows": [row]})[1]["predictions"][0] == after
    server.kill()


@pytest.mark.parametrize("name", ["several", "sparse"])
def test_labels_of_every_kind_are_learned(models, start, tmp_path, name):
    server = start(models[name], "--learn", "--log", tmp_path / "log")
    label = [0, 2] if name == "several" else 1
    row = {"indices": [0, 3], "values": [1.5, -1]}
    assert server.call("/learn", {"rows": [row] * 3, "labels": [label] * 3})[1] == {"learned": 3, "sequence": 3}
    found = server.call("/predict", {"rows": [row]})[1]
    expected = learned_by_hand(models[name], [{"rows": [row] * 3, "labels": [label] * 3}])
    X = [[1.5, 0, 0, -1, 0]]
    assert list(found["probabilities"][0].values()) == expected.predict_proba(X)[0].tolist()
    server.kill()


def test_several_targets_of_a_row_are_a_list(start, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    st.LinearRegressor(random_state=0).fit(X, X[:, :2]).save(base := tmp_path / "two.steepest")
    assert LabelReader(st.load(base)).read([[1, 2.5]]).tolist() == [[1.0, 2.5]]
    server = start(base, "--learn", "--log", tmp_path / "log")
    row = {"indices": [0, 2], "values": [1, 2]}
    assert server.call("/openapi.json")[1]["components"]["schemas"]["Label"]["maxItems"] == 2
    for label in (1.0, [1.0], [1.0, "x"]):
        assert server.call("/learn", {"rows": [row], "labels": [label]})[0] == 400
    assert server.call("/learn", {"rows": [row], "labels": [[3, 0]]}) == (200, {"learned": 1, "sequence": 1})
    assert server.metric("steepest_progressive_loss{") > 0
    assert server.stop() == 0


def test_predictions_while_classes_are_learned_have_the_names_of_their_columns(models, start, tmp_path):
    """Every lesson brings a class that sorts before the others, so that all columns move."""
    server = start(models["text"], "--learn", "--log", tmp_path / "log")
    rows = texts(1500, seed=9)[0]
    faults, ends = [], threading.Event()

    def ask(batch):
        while not ends.is_set():
            status, found = server.call("/predict", {"rows": batch})
            names = list(found.get("probabilities", [{}])[0])
            sums = [sum(p.values()) for p in found.get("probabilities", ())]
            good = status == 200 and names == sorted(names) and {"neg", "pos"} <= set(names)
            if not good or any(abs(total - 1) > 1e-6 for total in sums):
                faults.append((status, names, found.get("error")))

    clients = [threading.Thread(target=ask, args=(batch,)) for batch in (rows[:1], rows)]
    for client in clients:
        client.start()
    for number in range(25):
        body = {"rows": [f"new kind {number}"] * 3, "labels": [f"a{99 - number}"] * 3}
        assert server.call("/learn", body)[0] == 200
    ends.set()
    for client in clients:
        client.join()
    assert faults == []
    assert server.call("/model")[1]["n_classes"] == 27
    server.kill()


def test_probabilities_of_learned_rows_are_watched_and_calibrated_from_the_log_alike(models, start, tmp_path):
    log, base = tmp_path / "log", models["text"]
    server = start(base, "--learn", "--log", log)
    rows, labels = texts(700, seed=9)
    for at in range(0, 600, 50):
        assert server.call("/learn", {"rows": rows[at : at + 50], "labels": labels[at : at + 50]})[0] == 200
    assert 0 <= server.metric("steepest_progressive_calibration_error") < 0.2
    assert server.metric('steepest_drift_alarms_total{signal="calibration"}') == 0
    found = server.call("/predict", {"rows": rows[600:]})[1]
    wrong = [{"pos": "neg", "neg": "pos"}[label] for label in labels]
    for at in range(0, 400, 50):  # all that was right is wrong from now on
        server.call("/learn", {"rows": rows[at : at + 50], "labels": wrong[at : at + 50]})
    assert server.metric('steepest_drift_alarms_total{signal="calibration"}') >= 1
    after = server.call("/predict", {"rows": rows[600:]})[1]
    assert after != found
    server.kill()
    server = start(base, "--learn", "--log", log)
    assert server.call("/predict", {"rows": rows[600:]})[1] == after
    server.kill()
