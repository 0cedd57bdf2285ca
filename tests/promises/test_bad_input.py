"""Bad files through the command line: one sentence with file and line and status 2, or a counted skip; no crash."""

from __future__ import annotations

import bz2
import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steepest.cli import main

ROWS = [("spam" if i % 2 else "ham", f"word{i % 7} good bad {i}") for i in range(40)]
FILES = {
    "csv": "label,text\n" + "".join(f"{label},{text}\n" for label, text in ROWS),
    "tsv": "label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in ROWS),
    "jsonl": "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in ROWS),
    "txt": "".join(f"{label}\t{text}\n" for label, text in ROWS),
    "ft.txt": "".join(f"__label__{label} {text}\n" for label, text in ROWS),
    "svm": "".join(f"{(-1) ** i} {1 + i % 5}:1.5 {7 + i % 3}:0.5\n" for i in range(40)),
    "vw": "".join(f"{(-1) ** i} |a w{i % 5} x{i % 3}:0.5\n" for i in range(40)),
}
TABLES = ("csv", "tsv", "jsonl", "parquet")
MORE = {"csv": ",", "tsv": "\t", "txt": "\t"}


@pytest.fixture(autouse=True)
def small_tables_only(request):
    """Reading tables needs pyarrow, an extra."""
    if any(word in request.node.name for word in TABLES):
        pytest.importorskip("pyarrow")


def flags(path) -> list[str]:
    suffix = str(path).partition(".")[2]
    columns = ["--text", "text"] if suffix.startswith(TABLES) else []
    return columns + ([] if suffix.startswith(("svm", "vw")) else ["--n-bits", "10"])


def train(path, *more) -> int:
    return main(["train", str(path), "-m", str(path) + ".model", "--epochs", "1", "--quiet", *flags(path.name), *more])


def with_line(kind: str, line: bytes, at: int = 20) -> bytes:
    lines = FILES[kind].encode().split(b"\n")
    return b"\n".join([*lines[:at], line, *lines[at:]])


BAD_LINES = [
    ("csv", b"ham,caf\xe9", "'text' is not UTF-8"),
    ("csv", b"onlyone", "1 value instead of 2"),
    ("csv", b"ham,a,b,c", "4 values instead of 2"),
    ("csv", b",words", "is missing"),
    ("tsv", b"ham\ta\tb", "3 values instead of 2"),
    ("jsonl", b'{"label": "ham", "te', "is not JSON"),
    ("jsonl", b'{"label": "ham", "text": "a\0b"}', "is not JSON"),
    ("jsonl", b'{"label": "ham", "text": "caf\xe9"}', "not UTF-8"),
    ("jsonl", b"17", "a number instead of an object"),
    ("jsonl", b"[" * 100_000, "is not JSON"),
    ("jsonl", b'{"text": "words"}', "is missing"),
    ("txt", b"no tab", "no label before a tab"),
    ("ft.txt", b"no label", "does not start with a label"),
    ("svm", b"1 1:nan", "not a finite"),
    ("svm", b"1 -3:1", "negative"),
    ("svm", b"1 99999999999:1", "too large"),
    ("svm", b"abc 1:1", "not a number"),
    ("svm", b"1 1:1\0", "binary"),
    ("vw", b"1 |a b:inf", "not a finite"),
    ("vw", b"abc |a b", "not a number"),
    ("vw", b"1 |a b\0", "binary"),
    ("vw", b"\xff\xfe", "no bar"),
]


@pytest.mark.parametrize(("kind", "line", "fault"), BAD_LINES)
def test_a_bad_line_is_named_or_skipped_and_counted(kind, line, fault, tmp_path, capsys):
    path = tmp_path / f"bad.{kind}"
    path.write_bytes(with_line(kind, line))
    assert train(path) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"steepest: {path}, line 21: ")
    assert fault in said
    assert said.count("\n") == 1
    assert train(path, "--on-bad-line", "skip") == 0
    said = capsys.readouterr().err
    assert "1 bad line skipped" in said
    assert f"{path}, line 21: " in said


@pytest.mark.parametrize("kind", ["csv", "txt", "ft.txt", "svm", "vw", "jsonl"])
def test_a_label_unseen_in_training_is_named_or_skipped(kind, tmp_path, capsys):
    path, new = tmp_path / f"good.{kind}", tmp_path / f"new.{kind}"
    path.write_text(FILES[kind])
    assert train(path) == 0
    unseen = {"csv": b"eggs,a b", "svm": b"7 1:1", "vw": b"7 |a b", "jsonl": b'{"label": "eggs", "text": "a"}'}
    new.write_bytes(with_line(kind, unseen.get(kind, b"eggs\ta b" if kind == "txt" else b"__label__eggs a b")))
    assert main(["evaluate", f"{path}.model", str(new), "--json"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"steepest: {new}, line 21: the label ")
    assert "never seen in training; the classes are" in said
    assert "give --on-bad-line skip" in said
    assert main(["evaluate", f"{path}.model", str(new), "--json", "--on-bad-line", "skip"]) == 0
    out, said = capsys.readouterr()
    assert json.loads(out)["rows"] == 40
    assert "1 bad line skipped" in said
    assert f"{new}, line 21: " in said


def test_a_label_unseen_in_training_in_a_parquet_file(tmp_path, capsys):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    labels, texts = map(list, zip(*ROWS, strict=True))
    for name in ("good", "new"):
        pq.write_table(pa.table({"label": labels, "text": texts}), tmp_path / f"{name}.parquet")
        labels[7] = "eggs"
    assert train(tmp_path / "good.parquet") == 0
    call = ["evaluate", str(tmp_path / "good.parquet.model"), str(tmp_path / "new.parquet"), "--json"]
    assert main(call) == 2
    assert "new.parquet, row 7: the label 'eggs' was never seen" in capsys.readouterr().err
    assert main([*call, "--on-bad-line", "skip"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 39


@pytest.mark.parametrize("kind", sorted(FILES))
@pytest.mark.parametrize("packing", ["gz", "bz2", "zst"])
def test_a_cut_file_is_never_taken_for_a_short_one(kind, packing, tmp_path, capsys):
    if packing == "zst":
        pack = pytest.importorskip("zstandard").ZstdCompressor().compress
    else:
        pack = {"gz": gzip.compress, "bz2": bz2.compress}[packing]
    packed = pack((FILES[kind] * (1 if kind in ("csv", "tsv") else 50)).encode())
    path = tmp_path / f"cut.{kind}.{packing}"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    for more in ((), ("--on-bad-line", "skip")):
        assert train(path, *more) == 2
        assert f"{path} is cut short" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (b"label,label", "more than one column 'label'"),
        (b"a,b", "give --label with one of 'a', 'b'"),
        (b",", "give --label with one of 'unnamed 0'"),
        (b'"label,text', "which column is the label"),
        (b"label,te\xffxt", "has no column 'text'"),
        (b"label", "has no column 'text'"),
    ],
)
def test_a_damaged_header_of_a_csv_file(header, fault, tmp_path, capsys):
    path = tmp_path / "header.csv"
    path.write_bytes(FILES["csv"].encode().replace(b"label,text", header, 1))
    assert train(path) == 2
    said = capsys.readouterr().err
    assert fault in said
    assert str(path) in said
    assert len(said) < 500


@pytest.mark.parametrize("kind", sorted(FILES))
@pytest.mark.parametrize("content", [b"", b"\n\n\n"])
def test_a_file_without_rows(kind, content, tmp_path, capsys):
    path = tmp_path / f"none.{kind}"
    path.write_bytes(content)
    assert train(path) == 2
    assert "give a file with data" in capsys.readouterr().err


def test_another_schema_in_the_third_parquet_file(tmp_path, capsys):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    labels, texts = map(list, zip(*ROWS, strict=True))
    for number, columns in enumerate([{"text": texts}, {"text": texts}, {"text": list(range(40))}, {"words": texts}]):
        pq.write_table(pa.table({"label": labels, **columns}), tmp_path / f"{number}.parquet")
    for last, fault in ((2, "'text' holds int64, but string in"), (3, "has no column 'text'")):
        names = [str(tmp_path / f"{number}.parquet") for number in (0, 1, last)]
        assert main(["train", *names, "-m", str(tmp_path / "m"), "--text", "text", "--quiet"]) == 2
        said = capsys.readouterr().err
        assert fault in said
        assert f"{last}.parquet" in said


@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt", "svm", "vw"])
def test_a_line_far_longer_than_a_block(kind, tmp_path, capsys):
    """It is a row like others, or refused by its line."""
    words = b"word " * 2_000_000
    line = {"svm": b"1 # ", "vw": b"1 |a b # ", "txt": b"ham\t", "csv": b"ham,", "jsonl": b'{"label": "ham", "text": "'}
    path = tmp_path / f"long.{kind}"
    path.write_bytes(with_line(kind, line[kind] + words + (b'"}' if kind == "jsonl" else b"")))
    assert train(path) in (0, 2)
    said = capsys.readouterr().err
    assert not said or str(path) in said


PIECES = [
    b"\n",
    b"\r\n",
    b'"',
    b",",
    b"\t",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"{",
    b"}",
    b"[",
    b"|",
    b":",
    b"__label__",
    b"nan",
    b"1e999",
]
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1), st.sampled_from(["insert", "delete", "cut"]), st.sampled_from(PIECES) | st.binary(max_size=4)
    ),
    min_size=1,
    max_size=6,
)


def mutated(data: bytes, edits) -> bytes:
    for where, what, piece in edits:
        at = int(where * len(data))
        data = data[:at] if what == "cut" and at > len(data) // 2 else data
        data = data[:at] + data[at + 7 :] if what == "delete" else data
        data = data[:at] + piece + data[at:] if what == "insert" else data
    return data


@pytest.mark.parametrize("kind", sorted(FILES))
@given(edits=EDITS, skip=st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_file_is_learned_or_refused_in_one_sentence(kind, edits, skip, tmp_path, capsys):
    path = tmp_path / f"m.{kind}"
    path.write_bytes(mutated(FILES[kind].encode(), edits))
    status = train(path, *(["--on-bad-line", "skip"] if skip else []))
    out, said = capsys.readouterr()
    assert status in (0, 2)
    assert not out
    if status == 2:
        assert said.startswith("steepest: ")
        assert said.count("\n") == 1
        assert len(said) < 2000
    elif not skip:
        assert not said
