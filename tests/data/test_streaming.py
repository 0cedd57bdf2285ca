"""Files larger than memory: what training from a file costs, and what it starts."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import steepest as st
from steepest.data.store import row_store

PEAK = """
import sys
import steepest as st
from steepest.data.store import row_store
row_store.IN_MEMORY, row_store.MOST_ENTRIES = int(sys.argv[2]), int(sys.argv[3])
st.LinearClassifier(epochs=2, random_state=0).fit_stream(st.scan_libsvm(sys.argv[1]))
status = open("/proc/self/status").read()  # getrusage would count the memory of the process that started this one
print(status.split("VmHWM:")[1].split()[0])
"""

BATCH_PEAK = """
import sys
import steepest as st
from steepest.data.store import row_store
row_store.IN_MEMORY = row_store.MOST_ENTRIES = 100_000  # far less than both files hold: each pass reads anew
model = st.LinearClassifier(solver=sys.argv[2], max_iter=2, alpha=1e-3).fit_stream(st.scan_libsvm(sys.argv[1]))
status = open("/proc/self/status").read()
print(status.split("VmHWM:")[1].split()[0], model.history_.records[-1]["objective"])
"""


def write_rows(path, n_rows):
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(2000):
        columns = np.sort(rng.choice(5000, 40, replace=False)) + 1
        entries = " ".join(f"{j}:{x:.4f}" for j, x in zip(columns, rng.random(40), strict=True))
        lines.append(f"{int(columns.sum() % 2)} {entries}")
    block = "\n".join(lines) + "\n"
    with open(path, "w") as file:
        for _ in range(n_rows // 2000):
            file.write(block)


def peak_megabytes(path, n_rows, in_memory=row_store.IN_MEMORY, in_files=row_store.MOST_ENTRIES):
    write_rows(path, n_rows)
    command = [sys.executable, "-c", PEAK, str(path), str(in_memory), str(in_files)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1024


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")


@on_linux
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    """Where the rows are too many to be kept: 36 MB, enough to fill all buffers, and 290 MB."""
    few, many = (peak_megabytes(tmp_path / "rows.svm", n_rows, 100_000, 100_000) for n_rows in (80_000, 640_000))
    assert many - few < 40
    assert many < 200


@on_linux
@pytest.mark.parametrize("in_memory", [100_000, row_store.IN_MEMORY], ids=["in a file", "in memory"])
def test_rows_that_are_kept_stay_within_the_promise(tmp_path, in_memory):
    assert peak_megabytes(tmp_path / "rows.svm", 290_000, in_memory) < 250


@on_linux
@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg"])
def test_batch_solvers_take_no_memory_for_the_rows_of_a_file(tmp_path, solver):
    path = tmp_path / "rows.svm"
    peaks, objectives = [], []
    for n_rows in (80_000, 640_000):  # 36 MB, enough to fill all buffers, and 290 MB
        write_rows(path, n_rows)
        command = [sys.executable, "-c", BATCH_PEAK, str(path), solver]
        peak, objective = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        peaks.append(int(peak) / 1024)
        objectives.append(float(objective))
    assert peaks[1] - peaks[0] < 30  # chunks under way, more or fewer; kept rows would be 205 MB
    assert objectives[1] == pytest.approx(objectives[0])  # the same 2,000 rows, more often


def test_file_and_arrays_learn_the_same_in_file_order(tmp_path):
    from sklearn.datasets import load_svmlight_file

    path = tmp_path / "rows.svm"
    write_rows(path, 4000)
    X, y = load_svmlight_file(str(path))
    options = dict(shuffle="never", epochs=2, random_state=0)
    streamed = st.LinearClassifier(**options).fit_stream(st.scan_libsvm(path))
    loaded = st.LinearClassifier(**options).fit(X, y)
    np.testing.assert_array_equal(streamed.coef_, loaded.coef_)


def test_a_file_that_vanishes_is_one_sentence(tmp_path):
    path = tmp_path / "rows.svm"
    write_rows(path, 2000)
    source = st.scan_libsvm(path)
    path.unlink()
    with pytest.raises(st.DataError, match=r"rows\.svm"):
        st.LinearClassifier().fit_stream(source)


def test_importing_and_fitting_start_nothing_heavy():
    script = (
        "import sys, steepest as st; st.LinearClassifier().fit([[0., 1.], [1., 0.]], [0, 1]).predict([[0., 1.]]);"
        "heavy = {'sklearn', 'scipy', 'pandas', 'pyarrow', 'rich', 'safetensors', 'matplotlib'} & set(sys.modules);"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
