"""Fuzz targets: every reader and loader of files, over files that a moment before were good ones."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import steepest as st
from fuzz.mutation import Target
from steepest import model_file
from steepest.engine.checkpoint import FILE_NAME
from steepest.features.hasher_check import check_buckets
from steepest.features.names import NameBook
from steepest.models.vectors import dim_of_vectors, read_vectors

NUMBERS = (b"0", b"-1", b"1e308", b"1e-400", b"nan", b"inf", b"99999999999999999999", b"2147483648", b"0x10", b"1_0")


def _use(source: Any) -> None:
    for chunk in itertools.islice(source, 5):
        assert chunk.indptr[0] == 0
        assert len(chunk.indices) == len(chunk.values) == chunk.indptr[-1]
        assert not len(chunk.indices) or 0 <= chunk.indices.min() <= chunk.indices.max() < chunk.n_features
        assert np.isfinite(chunk.values).all()


def _scanned(suffix: str, **options: Any) -> Any:
    def run(data: bytes, folder: Path) -> None:
        path = folder / f"data{suffix}"
        path.write_bytes(data)
        _use(st.scan(path, **options))

    return run


def _table(suffix: str) -> Any:
    def run(data: bytes, folder: Path) -> None:
        path = folder / f"table{suffix}"
        path.write_bytes(data)
        source = st.scan(path, label="y")
        model = st.LinearClassifier(epochs=1, hasher=st.Hasher(n_bits=10), random_state=0)
        model.fit_stream(source)

    return run


def _ratings(data: bytes, folder: Path) -> None:
    path = folder / "ratings.csv"
    path.write_bytes(data)
    st.MatrixFactorization(2, epochs=1, random_state=0).fit_stream(st.scan_ratings(path))


def _vectors(data: bytes, folder: Path) -> None:
    path = folder / "words.vec"
    path.write_bytes(data)
    words, vectors = read_vectors(path, dim_of_vectors(path))
    assert len(words) == len(vectors)
    assert np.isfinite(vectors).all()


def _model(data: bytes, folder: Path) -> None:
    """Without the checksum, so that what lies behind it is reached."""
    path = folder / "m"
    path.write_bytes(data)
    header, arrays = model_file.read(path, verify=False)
    model_file.write(path, header, arrays)
    st.load(path)


ROWS = "".join(f"{i % 2} {1 + i % 5}:{i / 7:.3f} {6 + i % 3}:1\n" for i in range(40)).encode()


def _cache(data: bytes, folder: Path) -> None:
    """A cache that is not as it was is built anew or refused."""
    rows, cache = folder / "rows.svm", folder / "cache"
    rows.write_bytes(ROWS)
    cache.write_bytes(data)
    _use(st.scan_libsvm(rows).cache(cache))


def _good_cache(folder: Path) -> bytes:
    rows, cache = folder / "rows.svm", folder / "cache"
    rows.write_bytes(ROWS)
    _use(st.scan_libsvm(rows).cache(cache))
    return cache.read_bytes()


class _Stop(st.Monitor):
    def __init__(self, after: int) -> None:
        self.left = after

    def wants_stop(self) -> bool:
        self.left -= 1
        return self.left < 0


def _fit(folder: Path, **options: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 2
    model = st.LinearClassifier(epochs=2, solver="sgd", random_state=0)
    source = st.from_arrays(X, y, chunk_rows=20)
    model.fit_stream(source, checkpoint=folder / "c", checkpoint_every="1-rows", **options)
    assert np.isfinite(model.coef_).all()


def _checkpoint(data: bytes, folder: Path) -> None:
    (folder / "c").mkdir(exist_ok=True)
    path = folder / "c" / FILE_NAME
    path.write_bytes(data)
    try:
        header, arrays = model_file.read(path, verify=False)
        model_file.write(path, header, arrays)  # with a checksum that holds
        _fit(folder, resume=True)
    finally:
        for left in (folder / "c").iterdir():
            left.unlink()


def _good_checkpoint(folder: Path) -> bytes:
    _fit(folder, monitor=_Stop(4))
    return (folder / "c" / FILE_NAME).read_bytes()


def _names(data: bytes, folder: Path) -> None:
    state = {
        "numbers": np.frombuffer(data[: len(data) // 44 * 44], np.uint32).reshape(-1, 11),
        "texts": np.resize(np.frombuffer(data or b"\0", np.uint8), (len(data) // 44, 96)),
        "seen_once": np.zeros(64, np.uint64),
        "touched": np.zeros(256, np.uint64),
        "rows": np.array([len(data)]),
    }
    book = NameBook.from_state(16, state)
    book.names_of(book.buckets())
    try:
        check_buckets(book.buckets(), 1 << 10)
    except ValueError:
        return  # as `load` would refuse it
    book.keep_heaviest(lambda buckets: np.ones(len(buckets)))


def _some_names() -> bytes:
    hasher = st.Hasher(names=16, n_bits=10).fit([f"some words {i} of a text {i % 7}" for i in range(60)])
    return bytes(np.asarray(hasher.names_.state()["numbers"]).tobytes())


def _models(folder: Path) -> tuple[bytes, ...]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    texts = [f"free cash {i % 5}" if i % 2 else f"meet me at {i % 7}" for i in range(40)]
    pairs = np.stack([np.arange(40) % 8, np.arange(40) % 5], axis=1)
    fitted = (
        st.LinearClassifier(epochs=1, random_state=0).fit(X, y),
        st.LinearClassifier(epochs=1, hasher=st.Hasher(n_bits=10, names=9), random_state=0).fit(texts, y),
        st.KMeans(2, random_state=0).fit(X),
        st.NetworkClassifier(hidden=(3,), epochs=1, random_state=0).fit(X, y),
        st.RBFClassifier(n_units=3, random_state=0).fit(X, y),
        st.TextClassifier(dim=2, n_bits=10, epochs=1, loss="hs", random_state=0).fit(texts, y),
        st.MatrixFactorization(2, epochs=1, random_state=0).fit(pairs, np.arange(40) / 7),
    )
    found = []
    for model in fitted:
        model.save(folder / "m")
        found.append((folder / "m").read_bytes())
    return tuple(found)


CSV = b'y,price,town,says\n1,3.5,Rome,"free, ""cash"" now"\n0,-1e3,Oslo,\n1,,"a\nb",x y z\n0,7,Rome,meet me\n'
JSONL = b'{"y": 1, "t": "free cash", "n": 2.5}\n{"y": 0, "t": null, "n": [1, 2]}\n{"y": 1, "d": {"a": 1}}\n'
RATINGS = b"user,item,rating\n1,10,4.5\n2,10,3\n1,11,1\n3,12,5\n"
TEXTS = "__label__a free cash\n__label__b,__label__a Straße é漢\n\n__label__c x\n".encode()


def targets() -> list[Target]:
    """All of them; good files to start from are made here."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        models, cache, checkpoint = _models(folder), _good_cache(folder), _good_checkpoint(folder)
    json_pieces = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"\\u0000", b"\\ud800", *NUMBERS)
    table_pieces = (b",", b'"', b"\n", b"\t", b"y", b";", b"''", b"\r", *NUMBERS)
    binary = (b"\x00" * 8, b"\xff" * 8, b'"shape":[', b"1099511627776", b'"F64"', b'\\"v\\"', *json_pieces)
    row_pieces = (b":", b"|", b"#", b" ", b"\n", b"qid:", *NUMBERS)
    return [
        Target("libsvm", (ROWS, b"1 qid:3 1:1 # c\r\n\r\n0\t5:0.125\n"), row_pieces, _scanned(".svm")),
        Target("vw", (b"1 2.0 'tag |f a:1 b |g c\n-1 |f 9 14:1\n",), row_pieces, _scanned(".vw", format="vw")),
        Target("text", (TEXTS,), (b"__label__", b",", b" ", *NUMBERS), _scanned(".txt", format="text")),
        Target("csv", (CSV,), table_pieces, _table(".csv")),
        Target("tsv", (CSV.replace(b",", b"\t"),), table_pieces, _table(".tsv")),
        Target("jsonl", (JSONL, JSONL * 3), json_pieces, _table(".jsonl")),
        Target("ratings", (RATINGS, RATINGS.replace(b",", b"::")), table_pieces, _ratings),
        Target("vec", (b"3 2\nfree 0.5 1\ncash -1 2\nnow 3 4\n",), (b" ", b"\n", *NUMBERS), _vectors),
        Target("model", models, binary, _model),
        Target("cache", (cache,), binary, _cache),
        Target("checkpoint", (checkpoint,), binary, _checkpoint),
        Target("names", (_some_names(),), (b"\x00" * 4, b"\xff" * 4, b"\x30\x00\x00\x00"), _names),
        Target("header", (json.dumps({"a": 1}).encode(), *models), binary, _model),
    ]
