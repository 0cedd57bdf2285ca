"""What callers may rely on: routes, bodies, answers and who may call."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from servers import models, start, table, texts  # noqa: F401

import steepest as st

pytestmark = pytest.mark.xdist_group("serve-contract")


@pytest.fixture(scope="module")
def text_server(models, start):
    return start(models["text"])


@pytest.fixture(scope="module")
def table_server(models, start):
    return start(models["columns"])


def test_predictions_and_probabilities_are_those_of_the_model(text_server, models):
    model, rows = st.load(models["text"]), texts(300, seed=5)[0]
    status, found = text_server.call("/predict", {"rows": rows})
    assert status == 200
    assert found["predictions"] == model.predict(rows).tolist()
    for row, p in zip(found["probabilities"], model.predict_proba(rows).tolist(), strict=True):
        assert row == dict(zip(["neg", "pos"], p, strict=True))


@pytest.mark.parametrize("name", ["text", "embedding"])
def test_long_requests_of_texts_are_answered_as_their_texts(models, start, name):
    model, rows = st.load(models[name]), [f'{row} "é" 漢 \U0001f600' for row in texts(1200, seed=6)[0]]
    server = start(models[name])
    status, found = server.call("/predict", {"rows": rows})
    assert (status, found["predictions"]) == (200, model.predict(rows).tolist())
    np.testing.assert_allclose([list(p.values()) for p in found["probabilities"]], model.predict_proba(rows), rtol=1e-6)
    status, said = server.call("/predict", {"rows": [*rows, 5]})
    assert (status, "row 1200 is a number" in said["error"]) == (400, True)
    status, said = server.call("/predict", {"rows": rows * 9})
    assert (status, "10800 rows are more than 10000" in said["error"]) == (413, True)


def test_a_text_may_also_be_an_object_of_its_column(text_server):
    as_text = text_server.call("/predict", {"rows": ["great film"]})
    assert as_text == text_server.call("/predict", {"rows": [{"review": "great film"}]})
    assert text_server.call("/predict", {"rows": []}) == (200, {"predictions": [], "probabilities": []})


def test_shares_and_bias_add_up_to_the_score(text_server, models):
    model = st.load(models["text"])
    for row in ("great superb film", "awful dull film"):
        status, found = text_server.call("/explain", {"row": row})
        assert status == 200
        assert found["prediction"] == model.predict([row])[0] == found["output"]
        assert found["total"] == pytest.approx(found["bias"] + sum(f["share"] for f in found["features"]))
        score = model.decision_function([row])[0]
        assert found["total"] == pytest.approx(abs(score), rel=1e-4)
        assert {f["name"] for f in found["features"]} == set(row.split())
    assert len(text_server.call("/explain", {"row": "great superb film", "top": 1})[1]["features"]) == 1


def test_rows_of_columns_are_predicted_and_explained(table_server, models):
    rows, _ = table(50, seed=9)
    model = st.load(models["columns"])
    status, found = table_server.call("/predict", {"rows": rows})
    assert (status, list(found)) == (200, ["predictions"])
    assert found["predictions"] == model.predict(rows).tolist()
    status, found = table_server.call("/explain", {"row": rows[0]})
    assert found["total"] == pytest.approx(found["prediction"], rel=1e-4)
    assert {f["name"] for f in found["features"]} == {"size", f"town={rows[0]['town']}"}
    assert table_server.call("/predict", {"rows": [{"size": 50.0}, {}]})[0] == 200  # what is missing counts as missing


def test_sparse_pairs_are_numbered_features(models, start):
    server, model = start(models["sparse"]), st.load(models["sparse"])
    X = np.array([[0.5, 0, -2.0, 0, 0], [0, 0, 0, 0, 0]])
    rows = [{"indices": [0, 2], "values": [0.5, -2.0]}, {"indices": [], "values": []}]
    status, found = server.call("/predict", {"rows": rows})
    assert status == 200
    assert found["predictions"] == model.predict(X).tolist()
    assert list(found["probabilities"][0]) == ["0", "1", "2"]
    status, found = server.call("/explain", {"row": rows[0]})
    place = model.classes_.tolist().index(found["prediction"])
    assert found["total"] == pytest.approx(model.decision_function(X)[0, place], rel=1e-4)
    assert server.stop() == 0


@pytest.mark.parametrize("name", ["several", "network", "clusters", "embedding"])
def test_every_kind_of_model_answers_as_its_own_methods_do(models, name):
    """In this process: a server adds nothing to what the predictor gives."""
    from steepest.serve.predictor import Predictor, named

    model = st.load(models[name])
    predictor = Predictor(model, name, "")
    X = ["great film", "dull plot"] if name == "embedding" else [[0.1, 0.2, 0.3, 0.4, 0.5], [1.0, -1.0, 0, 0, 0]]
    labels, probabilities = predictor.answer(predictor.rows.read(X))
    expected = model.predict(X)
    if name == "several":
        assert labels == [[k for k in range(3) if row[k]] for row in expected.tolist()]
    else:
        assert labels == expected.tolist()
    if hasattr(model, "predict_proba"):
        given = [list(row.values()) for row in named(predictor.class_names, probabilities.tolist())]
        np.testing.assert_allclose(given, model.predict_proba(X), rtol=1e-6)
    if predictor.explains:
        part = predictor.explain(X[1])
        assert part["total"] == pytest.approx(part["bias"] + math.fsum(f["share"] for f in part["features"]))
    predictor.describe()
    predictor.warm_up()


def test_bags_of_words_are_rows_with_counts(models, start, tmp_path):
    server, model = start(models["bags"], "--learn", "--log", tmp_path / "log"), st.load(models["bags"])
    rows = [{"great": 2, "film": 1}, {"dull": 1.5, "plot": None}, {}]
    status, found = server.call("/predict", {"rows": rows})
    assert (status, found["predictions"]) == (200, model.predict(rows).tolist())
    assert [list(p.values()) for p in found["probabilities"]] == model.predict_proba(rows).tolist()
    assert {f["name"] for f in server.call("/explain", {"row": rows[0]})[1]["features"]} == {"great", "film"}
    tensor = {"name": "bag", "datatype": "BYTES", "shape": [3], "data": list(map(json.dumps, rows))}
    outputs = server.call("/v2/models/bags/infer", {"inputs": [tensor]})[1]["outputs"]
    assert outputs[0]["data"] == found["predictions"]
    tensor["data"] = ["{", "{}", "{}"]
    assert server.call("/v2/models/bags/infer", {"inputs": [tensor]})[0] == 400
    for row in ("great film", {"great": "two"}, {"great": {"x": 1}}, None):
        assert server.call("/predict", {"rows": [row]})[0] == 400
    assert server.call("/learn", {"rows": rows[:1], "labels": ["neg"]})[1] == {"learned": 1, "sequence": 1}
    assert server.stop() == 0
    frame = [{**row, "words": {"cheap" if row["size"] < 100 else "dear": 1.0, "flat": 2.0}} for row in table(200)[0]]
    st.LinearRegressor(random_state=0).fit(frame, table(200)[1]).save(tmp_path / "both.steepest")
    server = start(tmp_path / "both.steepest")
    expected = st.load(tmp_path / "both.steepest").predict(frame[:5]).tolist()
    assert server.call("/predict", {"rows": frame[:5]})[1]["predictions"] == expected
    status, said = server.call("/predict", {"rows": [{"words": [1]}]})
    assert (status, "an object of words" in said["error"]) == (400, True)
    assert server.stop() == 0


def test_factor_models_predict_pairs_and_recommend(models, start):
    server, model = start(models["pairs"]), st.load(models["pairs"])
    status, found = server.call("/predict", {"rows": [{"user": 3, "item": 4}, ["5", "7"]]})
    assert status == 200
    np.testing.assert_allclose(found["predictions"], model.predict([[3, 4], [5, 7]]), rtol=1e-6)
    status, found = server.call("/recommend", {"users": [4, 99_999], "k": 4})
    assert status == 200
    first, cold = found["recommendations"]
    assert [(i["item"], i["score"]) for i in first["items"]] == model.recommend([4], 4)[0]
    assert (first["cold"], cold["cold"], len(cold["items"])) == (False, True, 4)
    assert server.call("/explain", {"row": [3, 4]})[0] == 404
    assert server.stop() == 0


def test_lines_are_answered_as_they_come(text_server):
    rows = texts(700, seed=8)[0]
    lines = [json.dumps(row) for row in rows]
    lines[3], lines[5] = "{broken", "17"
    connection = text_server.connect()
    parts = ("\n".join(lines)).encode()
    cut = [parts[i : i + 1000] for i in range(0, len(parts), 1000)]
    connection.request("POST", "/predict", iter(cut), {"Content-Type": "application/x-ndjson"}, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.getheader("Transfer-Encoding") == "chunked"
    found = [json.loads(line) for line in answer.read().splitlines()]
    assert len(found) == len(rows)
    assert "line 4 is not JSON" in found[3]["error"]
    assert "line 6 is a number; this model takes a text" in found[5]["error"]
    expected = text_server.call("/predict", {"rows": rows})[1]
    for n in set(range(len(rows))) - {3, 5}:
        assert found[n]["prediction"] == expected["predictions"][n]
        assert found[n]["probabilities"] == expected["probabilities"][n]
    connection.request("GET", "/healthz")  # the connection is as good as before
    assert connection.getresponse().status == 200


def test_pipelined_requests_are_answered_in_order(text_server):
    import socket

    slow, quick = json.dumps({"row": "great film"}), json.dumps({"rows": ["dull film"]})
    with socket.create_connection(("127.0.0.1", text_server.port)) as client:
        for path, body in (("/explain", slow), ("/predict", quick), ("/explain", slow), ("/healthz", "")):
            method = "POST" if body else "GET"
            client.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        client.settimeout(30)
        data = b""
        while data.count(b"HTTP/1.1 200") < 4 or not data.endswith(b'"ok"}'):
            data += client.recv(1 << 16)
    places = [data.index(part) for part in (b'"bias"', b'"predictions"', b'"status"')]
    assert places == sorted(places)
    assert data.count(b'"bias"') == 2


def test_lines_behind_another_request_are_answered_as_lines(text_server):
    import socket

    def request(path, body, kind):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return (head + body).encode()

    first = request("/explain", '{"row": "great film"}', "application/json")
    with socket.create_connection(("127.0.0.1", text_server.port), timeout=30) as client:
        client.sendall(first + request("/predict", '"great film"\n\n17\n"dull"', "application/x-ndjson"))
        client.shutdown(socket.SHUT_WR)
        data = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert data.count(b"HTTP/1.1 200") == 2
    lines = [json.loads(line) for line in data.rpartition(b"\r\n\r\n")[2].splitlines()]
    assert [line.get("prediction") for line in lines] == ["pos", None, "neg"]
    assert "line 3 is a number" in lines[1]["error"]


def test_an_address_may_be_absolute(text_server):
    assert text_server.raw("GET", f"http://127.0.0.1:{text_server.port}/healthz")[0] == 200


def test_model_health_metrics_and_pages(text_server):
    status, found = text_server.call("/model")
    assert (found["row"], found["classes"], found["columns"][0]["name"]) == ("text", ["neg", "pos"], "review")
    assert found["learning"] is None
    assert text_server.call("/healthz") == (200, {"status": "ok"})
    assert text_server.call("/readyz") == (200, {"status": "ready"})
    before = text_server.metric('steepest_predicted_labels_total{label="pos"}')
    text_server.call("/predict", {"rows": ["great superb lovely"] * 3})
    assert text_server.metric('steepest_predicted_labels_total{label="pos"}') == before + 3
    status, headers, page = text_server.raw("GET", "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"http://" not in page.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in page
    assert b"POST /predict" in text_server.raw("GET", "/docs")[2]
    status, headers, body = text_server.raw("HEAD", "/model")
    assert (status, body) == (200, b"")
    assert text_server.raw("GET", "/predict")[0] == 405
    assert text_server.raw("GET", "/predict")[1]["Allow"] == "POST"
    assert text_server.call("/nothing")[0] == 404


def test_metrics_are_text_that_prometheus_reads(text_server):
    text = text_server.raw("GET", "/metrics")[2].decode()
    kinds = {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            float(value)
            base = name.partition("{")[0]
            stem = base.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            assert base in kinds or stem in kinds, line
    assert kinds["steepest_request_seconds"] == "histogram"


def test_open_inference_routes(text_server, table_server, models):
    assert text_server.call("/v2")[1]["name"] == "steepest"
    assert text_server.call("/v2/health/live")[0] == text_server.call("/v2/health/ready")[0] == 200
    about = text_server.call("/v2/models/text")[1]
    assert about["inputs"] == [{"name": "review", "datatype": "BYTES", "shape": [-1]}]
    assert text_server.call("/v2/models/text/ready")[1] == {"name": "text", "ready": True}
    tensor = {"name": "review", "datatype": "BYTES", "shape": [2, 1], "data": ["great film", "dull film"]}
    status, found = text_server.call("/v2/models/text/infer", {"id": "7", "inputs": [tensor]})
    plain = text_server.call("/predict", {"rows": tensor["data"]})[1]
    outputs = {output["name"]: output for output in found["outputs"]}
    assert (status, found["id"], found["model_name"]) == (200, "7", "text")
    assert outputs["predictions"]["data"] == plain["predictions"]
    assert outputs["probabilities"]["shape"] == [2, 2]
    flat = [p for row in plain["probabilities"] for p in row.values()]
    assert outputs["probabilities"]["data"] == flat
    assert text_server.call("/v2/models/text/infer", {"inputs": [{**tensor, "shape": [3]}]})[0] == 400
    assert text_server.call("/v2/models/other/infer", {"inputs": [tensor]})[0] == 404
    version = about["versions"][0]
    assert text_server.call(f"/v2/models/text/versions/{version}")[0] == 200
    size = {"name": "size", "datatype": "FP64", "shape": [2], "data": [50.0, 60.5]}
    town = {"name": "town", "datatype": "BYTES", "shape": [2], "data": ["Ulm", "Bonn"]}
    status, found = table_server.call("/v2/models/columns/infer", {"inputs": [size, town]})
    rows = [{"size": 50.0, "town": "Ulm"}, {"size": 60.5, "town": "Bonn"}]
    assert found["outputs"][0]["data"] == table_server.call("/predict", {"rows": rows})[1]["predictions"]


def test_a_token_guards_every_route_but_probes_and_the_page(models, start):
    server = start(models["text"], "--token", "secret")
    rows = {"rows": ["great film"]}
    assert server.call("/predict", rows)[0] == 401
    assert server.call("/predict", rows, token="wrong")[0] == 401
    assert server.call("/predict", rows, token="secret")[0] == 200
    assert server.raw("GET", "/model", headers={"Authorization": "bearer secret"})[0] == 200
    assert server.raw("GET", "/model", headers={"Authorization": "Basic secret"})[0] == 401
    assert server.call("/model")[0] == 401
    assert [server.raw("GET", path)[0] for path in ("/", "/healthz", "/readyz", "/v2/health/live")] == [200] * 4
    assert server.raw("GET", "/metrics", headers={"Authorization": "Bearer secret"})[0] == 200
    lines = {"Content-Type": "application/x-ndjson"}
    assert server.raw("POST", "/predict", b'"great"\n', lines)[0] == 401
    assert server.stop() == 0


def test_a_page_of_another_site_may_not_call(text_server):
    body = json.dumps({"rows": ["great film"]})
    own = f"127.0.0.1:{text_server.port}"
    for origin, host, status in (
        (f"http://{own}", own, 200),
        ("https://evil.example", own, 403),
        ("http://evil.example", "evil.example", 403),  # a name that its owner points at this machine
    ):
        assert text_server.raw("POST", "/predict", body, {"Origin": origin, "Host": host})[0] == status


def test_workers_share_one_socket_and_count_together(models, start):
    server = start(models["text"], "--workers", "2")
    for _ in range(40):
        assert server.call("/predict", {"rows": ["great film"]})[0] == 200
    assert server.metric("steepest_rows_predicted_total") == 40
    assert server.stop() == 0
    assert "Traceback" not in server.said


def test_workers_end_when_their_parent_is_killed(models, start):
    server = start(models["text"], "--workers", "2")
    server.kill()
    end = time.monotonic() + 30
    with pytest.raises(OSError):  # noqa: PT011, PT012 - refused, once the last of them has gone
        while time.monotonic() < end:
            server.call("/healthz")
            time.sleep(0.1)


def test_rows_are_taken_as_files_write_them(start, tmp_path):
    """Numbers and dates as texts, lists, columns that training left out; derived columns are not asked for."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "id": f"r{n}",
            "size": f"{rng.integers(1000, 9000):,}",
            "tags": [str(tag) for tag in rng.choice(["red", "blue", "big"], 2, replace=False)],
            "day": f"2024-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}",
        }
        for n in range(300)
    ]
    model = st.LinearClassifier(hasher=st.Hasher(n_bits=12), random_state=0)
    with pytest.warns(UserWarning, match="column 'id'"):
        model.fit(rows, [int("red" in row["tags"]) for row in rows]).save(tmp_path / "model.steepest")
    server = start(tmp_path / "model.steepest", "--learn", "--log", tmp_path / "log")
    found = server.call("/predict", {"rows": rows[:50]})[1]
    assert [list(p.values()) for p in found["probabilities"]] == model.predict_proba(rows[:50]).tolist()
    numbers = [{**row, "size": int(row["size"].replace(",", ""))} for row in rows[:50]]
    assert server.call("/predict", {"rows": numbers})[1] == found
    assert [column["name"] for column in server.call("/model")[1]["columns"]] == ["size", "tags", "day"]
    for row, part in (({"size": "large"}, "give a number"), ({"day": "soon"}, "give a date"), ({"size": [1]}, "list")):
        status, said = server.call("/predict", {"rows": [row]})
        assert (status, part in said["error"]) == (400, True), said
    assert server.call("/predict", {"rows": [{"size": "?", "day": ""}]})[0] == 200
    assert server.call("/learn", {"rows": rows[:2], "labels": ["1", 0]})[1]["learned"] == 2  # as answers name classes
    assert server.call("/learn", {"rows": rows[:1], "labels": ["7"]})[0] == 400


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/jsonl; charset=utf-8"])
def test_lines_are_known_by_every_usual_type(text_server, kind):
    status, headers, data = text_server.raw("POST", "/predict", b'"great film"\n"dull film"', {"Content-Type": kind})
    assert (status, headers["Content-Type"], data.count(b"\n")) == (200, "application/x-ndjson", 2)
