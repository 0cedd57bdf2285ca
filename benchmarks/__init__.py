"""Measurements of the package beside its peers: `python -m benchmarks.linear --help`."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Real data sets are not part of the project.
DATA = Path(os.environ.get("STEEPEST_DATA", ROOT.parent / "shared" / "data"))
CACHE = ROOT / "benchmarks" / "cache"
TEST_ROWS = 23_149


def text_path(n_rows: int, suffix: str, part: str = "train") -> Path:
    """Where the first n rows are kept as text; suffix is svm or vw."""
    return CACHE / f"rcv1-{part}-{n_rows}.{suffix}"
