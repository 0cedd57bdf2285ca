"""The line that a person watches while training."""

from __future__ import annotations

import io
import re

import pytest

from steepest.cli.progress import CLEAR, LineMonitor
from steepest.learners.base import Progress

RECORD = {"epoch": 3, "loss": 0.123456, "rows": 1_000_000, "seconds": 2.0, "rows_per_second": 512_345.0}


def drawn(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    monitor = LineMonitor(out)
    monitor.begins("epoch", 10)
    monitor.epoch_done({**RECORD, "holdout_loss": 0.234567})
    monitor.chunk_done(3, Progress(rows=400_000, loss_sum=40_000.0, weight=400_000.0), 1.0, 1_000_000)
    monitor.clear()
    return out.getvalue()


@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_progress_is_one_clean_line_of_any_width(width, monkeypatch):
    lines = drawn(width, monkeypatch).split(CLEAR)
    assert lines[0] == lines[-1] == ""
    assert len(lines) == 4
    for line in lines[1:-1]:
        assert "\n" not in line
        assert 0 < len(line) < width
        assert line.startswith("epoch ")


def test_a_narrow_terminal_shows_fewer_measures_but_whole_ones(monkeypatch):
    narrow, wide = (drawn(width, monkeypatch).split(CLEAR)[2] for width in (40, 80))
    assert re.fullmatch(r"epoch 4 of 10  loss 0\.1  \d+:\d\d left", narrow)
    assert re.fullmatch(r"epoch 4 of 10  loss 0\.1  held out 0\.23457  400,000 rows/s  \d+:\d\d left", wide)
