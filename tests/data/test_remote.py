"""Data and models by their address: file:// here, and s3:// from a small server in this process."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pytest

import steepest as st
from steepest.cli import main

ROWS = [(i % 40, "Ulm" if i % 3 else "Bonn", 3 * (i % 40) + 5 * (i % 3)) for i in range(200)]
CSV = "size,town,price\n" + "".join(
    f"{i % 40},{'Ulm' if i % 3 else 'Bonn'},{3 * (i % 40) + 5 * (i % 3)}\n" for i in range(200)
)


class Store(http.server.BaseHTTPRequestHandler):
    """As much of S3 as reading takes: HEAD, GET of a range, and the list of a bucket."""

    files: dict[str, bytes]
    ranges: list[str]

    def do_HEAD(self):
        self._object(body=False)

    def do_GET(self):
        address = urlsplit(self.path)
        query = parse_qs(address.query, keep_blank_values=True)
        if "list-type" not in query:
            self._object(body=True)
            return
        prefix = query.get("prefix", [""])[0]
        found = [name for name in self.files if name.startswith(f"bucket/{prefix}")]
        entries = "".join(
            f"<Contents><Key>{name.removeprefix('bucket/')}</Key><Size>{len(self.files[name])}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name in sorted(found)
        )
        xml = f"<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        self._send(200, xml.encode(), True)

    def _object(self, body):
        content = self.files.get(unquote(urlsplit(self.path).path).lstrip("/"))
        asked = self.headers.get("Range")
        if content is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", body)
        elif asked is None:
            self._send(200, content, body)
        else:
            self.ranges.append(asked)
            start, end = (int(part) for part in asked.removeprefix("bytes=").split("-"))
            part = content[start : end + 1]
            self._send(206, part, body, {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(content)}"})

    def _send(self, status, content, body, headers=()):
        self.send_response(status)
        for name, value in {**dict(headers), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def bucket(monkeypatch):
    """(files by their name, address of one): a bucket on loopback."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    handler = type("Handler", (Store,), {"files": {}, "ranges": [], "protocol_version": "HTTP/1.1"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = f"?scheme=http&endpoint_override=127.0.0.1:{server.server_port}&region=here"
    try:
        yield handler, lambda name: f"s3://bucket/{name}{options}"
    finally:
        server.shutdown()
        server.server_close()


def trained(directory: Path) -> Path:
    (directory / "rows.csv").write_text(CSV)
    source = st.scan(str(directory / "rows.csv"), label="price")
    st.LinearRegressor(hasher=st.Hasher(n_bits=12), random_state=0).fit_stream(source).save(directory / "m.steepest")
    return directory / "m.steepest"


def test_a_model_and_its_rows_come_from_s3(tmp_path, bucket, capsys):
    store, address = bucket
    path = trained(tmp_path)
    store.files["bucket/models/m.steepest"] = path.read_bytes()
    store.files["bucket/rows/a.csv"] = CSV.encode()
    there, here = st.load(address("models/m.steepest")), st.load(path)
    rows = [{"size": 10, "town": "Ulm"}, {"size": 90, "town": "Bonn"}]
    np.testing.assert_array_equal(there.predict(rows), here.predict(rows))
    assert main(["predict", str(path), str(tmp_path / "rows.csv")]) == 0
    expected = capsys.readouterr().out
    assert main(["predict", address("models/m.steepest"), address("rows/a.csv")]) == 0
    assert capsys.readouterr().out == expected
    assert main(["evaluate", address("models/m.steepest"), address("rows/*.csv")]) == 0


def test_blocks_of_a_large_file_are_fetched_by_range(tmp_path, bucket):
    store, address = bucket
    lines = "".join(f"{i % 2} {i % 50}:1 {50 + i % 7}:0.5\n" for i in range(150_000))
    store.files["bucket/rows.libsvm"] = lines.encode()
    (tmp_path / "rows.libsvm").write_text(lines)
    models = [
        st.LinearClassifier(epochs=1, alpha=1e-4, random_state=0).fit_stream(st.scan(place))
        for place in (address("rows.libsvm"), str(tmp_path / "rows.libsvm"))
    ]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    starts = {int(part.removeprefix("bytes=").split("-")[0]) for part in store.ranges}
    assert max(starts) >= (1 << 20) - 1  # the second block, with the byte before it


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv.gz", "csv"])
def test_every_kind_of_file_is_read_by_its_address(tmp_path, ending):
    import gzip

    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    (tmp_path / "rows.csv").write_text(CSV)
    path = tmp_path / f"rows.{ending}"
    table = pyarrow.csv.read_csv(tmp_path / "rows.csv")
    if ending == "csv.gz":
        path.write_bytes(gzip.compress(CSV.encode()))
    elif ending == "parquet":
        pyarrow.parquet.write_table(table, path)
    elif ending == "arrow":
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    models = [
        st.LinearRegressor(hasher=st.Hasher(n_bits=12), random_state=0).fit_stream(st.scan(place, label="price"))
        for place in (str(path), f"file://{path}", f"file://{tmp_path}/rows.{ending[:2]}*{ending[2:]}")
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)


def test_what_is_not_there_is_said_in_one_sentence(tmp_path, bucket, capsys):
    _, address = bucket
    path = trained(tmp_path)
    for model, rows, part in (
        (address("no.steepest"), str(tmp_path / "rows.csv"), "does not exist"),
        (path, address("no.csv"), "does not exist"),
        (path, address("no/*.csv"), "no file matches"),
        (f"file://{tmp_path}", str(path), "is not a file"),
        (f"file://{tmp_path}/rows.csv", str(path), "is not a steepest model"),
        ("s3://", str(path), "s3://"),
        (path, f"file://{tmp_path}", "is a directory"),
    ):
        assert main(["predict", str(model), str(rows)]) == 2
        said = capsys.readouterr().err
        assert part in said
        assert len(said.strip().splitlines()) == 1
    with pytest.raises(st.ModelFileError, match="cannot be written"):
        st.load(path).save(address("m.steepest"))


def test_a_server_takes_its_model_from_an_address(tmp_path):
    pytest.importorskip("orjson", reason="the extra `serve` is not installed")
    from steepest.serve.loading import load_model
    from steepest.serve.options import ServeOptions
    from steepest.serve.server import predictor_of

    path = trained(tmp_path)
    loaded = load_model(f"file://{path}")
    assert loaded.identity == load_model(str(path)).identity
    assert predictor_of(ServeOptions(f"file://{path}?x=1"), loaded).name == "m"
