"""Whatever arrives gets a clear 4xx or one sentence: never a 5xx, never a crash, and others are still served."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from servers import models, replace_file, start  # noqa: F401

pytestmark = pytest.mark.xdist_group("serve-bad_requests")


@pytest.fixture(scope="module")
def server(models, start):
    return start(models["text"], "--max-body", "20000", "--max-rows", "50", "--timeout", "2")


@pytest.fixture(scope="module")
def tables(models, start):
    return start(models["columns"])


def error_of(server, path, body, headers=None):
    """The sentence of a refusal."""
    status, _, data = server.raw("POST", path, body, headers)
    assert 400 <= status < 500, (status, data)
    return status, json.loads(data)["error"]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "not JSON"),
        (b"great film", "not JSON"),
        (b'{"rows": ["great film"]', "not JSON"),
        (b'{"rows": [NaN]}', "not JSON"),
        (b'{"rows": ["\xff\xfe"]}', "not JSON"),
        (b"[" * 15_000, "not JSON"),
        (b'["great film"]', "must be a JSON object"),
        (b'{"row": "great"}', 'needs "rows"'),
        (b'{"rows": "great film"}', 'needs "rows"'),
        (b'{"rows": [17]}', "row 0 is a number; this model takes a text"),
        (b'{"rows": ["good", null]}', "row 1 is null"),
        (b'{"rows": ["good", {"review": "x"}]}', "row 1 is an object"),
        (b'{"rows": [{"revue": "x"}]}', "unknown column 'revue'"),
        (b'{"rows": [{"review": 5}]}', "5"),
        (b'{"rows": [{"review": ["x"]}]}', "holds a list"),
        (b'{"rows": [{"indices": [0], "values": [1]}]}', "unknown column 'indices'"),
    ],
)
def test_a_body_that_is_not_right_is_refused_by_a_sentence(server, body, part):
    status, said = error_of(server, "/predict", body)
    assert (status, part in said) == (400, True), said


def test_wrong_columns_and_values_of_a_table_are_named(tables):
    for row, part in (
        ({"size": "large", "town": "Ulm"}, "large"),
        ({"size": 3, "Town": "Ulm"}, "unknown column 'Town'"),
        ({"size": {"x": 1}}, "holds an object"),
        ("Ulm", "row 0 is a text; this model takes an object of the columns 'size', 'town'"),
        ({"indices": [0], "values": [1.0]}, "unknown column"),
    ):
        status, said = error_of(tables, "/predict", json.dumps({"rows": [row]}))
        assert (status, part in said) == (400, True), said
    assert error_of(tables, "/predict", b'{"rows": [{"size": NaN}]}')[0] == 400
    assert error_of(tables, "/predict", b'{"rows": [{"size": 1e999}]}')[0] == 400
    assert error_of(tables, "/recommend", b'{"users": [1]}')[0] == 404


def test_numbered_features_out_of_range_are_named(models):
    from steepest import load
    from steepest.errors import DataError
    from steepest.serve.rows import RowReader

    reader = RowReader(load(models["sparse"]))
    for row, part in (
        ({"indices": [5], "values": [1]}, "from 0 to 4"),
        ({"indices": [-1], "values": [1]}, "from 0 to 4"),
        ({"indices": [1.0], "values": [1]}, "from 0 to 4"),
        ({"indices": [1, 1], "values": [1, 2]}, "twice"),
        ({"indices": [1], "values": []}, "same length"),
        ({"indices": [1], "values": ["x"]}, "give numbers"),
        ({"indices": [1], "values": [True]}, "give numbers"),
        ({"indices": [1], "values": [1e200]}, "beyond float32"),
        ({"indices": 1, "values": 1}, "lists"),
        ([1.0, 2.0], "5 features"),
        ({}, "an object"),
    ):
        with pytest.raises(DataError, match="row 1") as refusal:
            reader.read([{"indices": [0], "values": [1.5]}, row])
        assert part in str(refusal.value)


def test_limits_on_body_and_rows(server):
    rows = json.dumps({"rows": ["x"] * 51})
    assert error_of(server, "/predict", rows) == (
        413,
        "51 rows are more than 50 at a time; send fewer, or raise --max-rows",
    )
    status, said = error_of(server, "/predict", b"x" * 30_000)
    assert (status, "20000 bytes" in said) == (413, True)
    parts = iter([b"x" * 8000] * 5)
    connection = server.connect()
    connection.request("POST", "/predict", parts, encode_chunked=True)
    assert connection.getresponse().status == 413
    assert error_of(server, "/predict", b"{}", {"X-Long": "a" * 70_000})[0] == 431


def talk(server, data, wait=True):
    """The answer to some raw bytes, after which this side sends no more."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(data)
        if wait:
            client.shutdown(socket.SHUT_WR)
        found = b""
        while part := client.recv(1 << 16):
            found += part
        return found


def test_broken_http_is_refused(server):
    assert talk(server, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert talk(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").startswith(b"HTTP/1.1 400")  # TLS
    cut = b'POST /predict HTTP/1.1\r\nContent-Length: 500\r\n\r\n{"rows": ["gr'
    found = talk(server, cut)
    assert found.startswith(b"HTTP/1.1 400")
    assert b"cut off" in found
    assert talk(server, b"POST /predict HTTP/1.1\r\nContent-Length: -5\r\n\r\n").startswith(b"HTTP/1.1 400")
    both = b"POST /predict HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert talk(server, both).startswith(b"HTTP/1.1 400")  # two lengths: a proxy may believe the other one
    upgrade = b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert talk(server, upgrade).startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
    assert server.call("/healthz")[0] == 200


def test_a_slow_request_is_ended(server):
    found = talk(server, b"POST /predict HTTP/1.1\r\nContent-Length: 10\r\n\r\n{", wait=False)
    assert found.startswith(b"HTTP/1.1 408")


def test_slow_clients_do_not_keep_others_out(models, start):
    """Two hundred clients that never finish, where there is room for fifty: whoever sends a request gets an answer."""
    server = start(models["text"], "--max-connections", "50", "--timeout", "60")
    slow, ends = [], threading.Event()

    def drip():
        while not ends.wait(0.05):
            for client in slow:
                try:
                    client.send(b"x")
                except OSError:
                    continue

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        for _ in range(200):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            client.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")
            slow.append(client)
        for _ in range(30):
            assert server.call("/predict", {"rows": ["great film"]})[0] == 200
        assert server.metric("steepest_connections ") <= 51
        assert server.metric("steepest_connections_evicted_total") >= 150
    finally:
        ends.set()
        dripping.join()
        for client in slow:
            client.close()
    assert server.stop() == 0
    assert "Traceback" not in server.said


def test_labels_that_cannot_be_learned_are_refused_and_nothing_is_logged(models, start, tmp_path):
    server = start(models["text"], "--learn", "--log", tmp_path / "log", "--token", "T")
    bearer = {"Authorization": "Bearer T"}
    for body, part in (
        ({"rows": ["great film"]}, '"labels"'),
        ({"rows": ["great film"], "labels": []}, "1 rows and 0 labels"),
        ({"rows": ["great film"], "labels": [None]}, "label 0"),
        ({"rows": ["great film"], "labels": [["pos"]]}, "label 0"),
        ({"rows": [5], "labels": ["pos"]}, "row 0 is a number"),
        ({"rows": ["great film", {"x": 1}], "labels": ["pos", "neg"]}, "row 1"),
    ):
        status, said = error_of(server, "/learn", json.dumps(body), bearer)
        assert (status, part in said) == (400, True), said
    assert error_of(server, "/learn", b'{"rows": ["x"], "labels": ["pos"]}')[0] == 401
    assert error_of(server, "/learn", b'{"rows": ["x"], "labels": ["pos"]}', {"Authorization": "Bearer no"})[0] == 401
    assert server.call("/model")[1]["learning"]["sequence"] == 0
    assert server.call("/learn", {"rows": ["great film"], "labels": ["pos"]}, "T")[1] == {"learned": 1, "sequence": 1}
    assert server.call("/learn", {"rows": [], "labels": []}, "T")[1] == {"learned": 0, "sequence": 1}
    assert server.stop() == 0


def test_learning_is_off_unless_asked_for(server):
    status, said = error_of(server, "/learn", b'{"rows": ["x"], "labels": ["pos"]}')
    assert (status, "--learn --log DIR" in said) == (403, True)


def test_learning_without_a_token_is_local_and_warned_about(models, start, tmp_path):
    server = start(models["columns"], "--learn", "--log", tmp_path / "log")
    assert "warning: every program on this machine may teach the model" in server.said
    assert server.call("/learn", {"rows": [{"size": 30, "town": "Ulm"}], "labels": [95.5]})[0] == 200
    assert error_of(server, "/learn", b'{"rows": [{"size": 30}], "labels": ["dear"]}')[0] == 400
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--host", "0.0.0.0"], "a token is required"),
        (["--learn"], "--learn needs --log DIR"),
        (["--log", "x"], "give --learn"),
        (["--learn", "--log", "x", "--workers", "2"], "--workers 2"),
        (["--port", "70000"], "--port 70000"),
        (["--max-rows", "0"], "--max-rows 0"),
        (["--host", "no.such.host.invalid"], "a token is required"),
        (["--host", "no.such.host.invalid", "--token", "T"], "is not an address of this machine"),
        (["--host", "192.0.2.1", "--token", "T"], "--host 192.0.2.1 is not an address of this machine"),
        (["--token", "two words"], "--token"),
    ],
)
def test_flags_that_cannot_work_are_refused(models, capsys, flags, part):
    from steepest.cli import main

    port = [] if "--port" in flags else ["--port", "0"]
    assert main(["serve", models["text"], *port, *flags]) == 2
    said = capsys.readouterr().err
    assert part in said
    assert len(said.splitlines()) == 1


def test_a_port_in_use_a_bad_file_and_a_model_that_cannot_learn(server, models, tmp_path, capsys):
    from steepest.cli import main

    assert main(["serve", models["text"], "--port", str(server.port)]) == 2
    assert f"port {server.port} of 127.0.0.1 cannot be used" in capsys.readouterr().err
    (tmp_path / "bad").write_bytes(b"not a model")
    for path in (tmp_path / "bad", tmp_path / "none"):
        assert main(["serve", str(path), "--port", "0"]) == 2
        said = capsys.readouterr().err
        assert str(path) in said
        assert "/proc/" not in said
    assert main(["serve", models["clusters"], "--port", "0", "--learn", "--log", str(tmp_path / "log")]) == 2
    said = capsys.readouterr().err
    assert "this KMeans cannot learn row by row; serve a classifier, a regressor or a matrix factorization" in said


def test_another_kind_of_model_in_the_place_of_the_file_is_not_taken(models, start, tmp_path):
    path = tmp_path / "model.steepest"
    replace_file(models["text"], path)
    server = start(path)
    before = server.call("/predict", {"rows": ["great film"]})
    for bad in (models["columns"], models["sparse"]):
        replace_file(bad, path)
        server.wait_for("the old model stays")
        server.said = ""
        assert server.call("/predict", {"rows": ["great film"]}) == before
    path.write_bytes(b"overwritten in place, where a program that maps the file would crash")
    server.wait_for("the old model stays")
    path.unlink()
    time.sleep(0.6)
    assert server.call("/predict", {"rows": ["great film"]}) == before
    assert server.metric("steepest_reloads_refused_total") == 3
    assert server.stop() == 0


def test_nothing_in_a_request_reaches_the_file_system(server):
    for path in ("/../../etc/passwd", "/v2/models/../../etc/passwd", "/%2e%2e/etc/passwd", "/v2/models//etc/passwd"):
        assert server.raw("GET", path)[0] == 404
    assert error_of(server, "/v2/models//etc/passwd/infer", b"{}")[0] == 404
