"""The table of formats: what is detected, and what it takes to add a format."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

import steepest as st
from steepest.cli import main
from steepest.data.files.blocks import open_files
from steepest.data.scan import ENDINGS, FORMATS, WEAK_ENDINGS, Format, format_of_name, guess_format, reader_options


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_reader(name):
    assert callable(FORMATS[name].load())
    for ending in FORMATS[name].endings:
        assert format_of_name(f"/some/where{ending.upper()}.gz") == name


def test_endings_are_those_of_one_format():
    endings = [ending for known in FORMATS.values() for ending in (*known.endings, *known.weak_endings)]
    assert sorted(endings) == sorted({*ENDINGS, *WEAK_ENDINGS})


@pytest.mark.parametrize(
    ("text", "name", "format"),
    [
        ("1 3:4\n", "x", "libsvm"),
        ("1 3:4\n", "x.txt", "libsvm"),
        ("-1 'tag |a b\n", "x", "vw"),
        ("__label__a b\n", "x", "txt"),
        ("a\tb\n", "x.txt", "txt"),
        ("1 3:4\n", "x.csv", "csv"),
    ],
)
def test_formats_are_detected(tmp_path, text, name, format):
    (tmp_path / name).write_text(text)
    assert guess_format(open_files(tmp_path / name)[0]) == format


def test_what_no_format_fits_is_refused_with_the_formats_there_are(tmp_path):
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(st.DataError, match=r"cannot be detected from .*'hello'; name it .*libsvm, vw, csv"):
        st.scan(tmp_path / "x")
    with pytest.raises(st.ParameterError, match="format='y' is unknown; choose one of auto, libsvm, vw"):
        st.scan(tmp_path / "x", format="y")


READER = """
from steepest.data.chunk import Chunk
from steepest.data.readers.lines import LineSource, Parsed
import numpy as np

class NumberSource(LineSource):
    def __init__(self, files, scale, on_bad_line, with_labels):
        super().__init__(files, on_bad_line, with_labels)
        self.scale = scale

    @property
    def recipe(self):
        return {"format": "numbers", "scale": self.scale}

    def parse(self, blocks):
        counts = [bytes(block.text).count(b"\\n") for block in blocks]
        rows = np.array([line.split() for block in blocks for line in bytes(block.text).splitlines()], float)
        indptr = np.arange(len(rows) + 1, dtype=np.int64)
        values = (rows[:, 1] * self.scale).astype(np.float32)
        y = rows[:, 0] if self.with_labels else None
        return Parsed(Chunk(indptr, np.zeros(len(rows), np.int32), values, 1, y), counts, [0] * len(blocks))

def scan_numbers(path, *, scale=1.0, on_bad_line="error", with_labels=True):
    return NumberSource(path, scale, on_bad_line, with_labels)
"""


def test_a_new_format_is_a_reader_and_a_line_in_the_table(tmp_path, monkeypatch):
    module = ModuleType("steepest.data.readers.numbers")
    exec(READER, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FORMATS, "numbers", Format("readers.numbers.scan_numbers"))
    assert reader_options()["scale"] == ["numbers"]
    path = tmp_path / "rows.txt"
    path.write_text("".join(f"{i % 2} {(i % 2) - 0.5}\n" for i in range(100)))
    chunk = next(iter(st.scan(path, format="numbers", scale=2)))
    assert np.unique(chunk.values).tolist() == [-1, 1]
    model = str(tmp_path / "m")
    assert main(["train", str(path), "--format", "numbers", "--scale", "3", "-m", model, "--quiet"]) == 0
    assert st.load(model).recipe_ == {"format": "numbers", "scale": 3}
    assert main(["evaluate", model, str(path), "--json"]) == 0
    with pytest.raises(st.ParameterError, match="scale= has no meaning for the format libsvm"):
        st.scan(path, format="libsvm", scale=2)
