"""The model file: exact round trips, complete files or none, and one sentence for everything that is not a model."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from steepest import model_file
from steepest.errors import DataError, ModelFileError
from steepest.model_file import FORMAT_VERSION, read, write

GOLDEN = Path(__file__).parent / "golden" / "model-format-1.steepest"
GOLDEN_2 = GOLDEN.with_name("model-format-2.steepest")
SOURCES = str(Path(model_file.__file__).parents[1])
DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
DENSE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([True, False])}


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def same_content(left: tuple, right: tuple) -> bool:
    (left_header, left_arrays), (right_header, right_arrays) = left, right
    return (
        json.dumps(left_header, sort_keys=True) == json.dumps(right_header, sort_keys=True)
        and left_arrays.keys() == right_arrays.keys()
        and all(same_bits(left_arrays[name], right_arrays[name]) for name in left_arrays)
    )


def stored_head(path: Path) -> dict:
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


def stored_tensors(path: Path) -> dict:
    return {name: entry for name, entry in stored_head(path).items() if name != "__metadata__"}


def mostly_zero(n: int, n_set: int, dtype: str = "f4") -> np.ndarray:
    array = np.zeros(n, dtype)
    array[np.arange(n_set) * (n // max(n_set, 1))] = 1
    return array


# ---- the golden file: format 1 stays readable for ever


def golden_content() -> tuple[dict, dict[str, np.ndarray]]:
    """What the golden file holds: arbitrary bytes (NaNs of every kind among them) in every type, and a sparse array.

    The file was made once by `write(GOLDEN, *golden_content())`. It is never made again: a change that breaks the test
    below breaks the models people have kept. A new format gets a golden file of its own beside this one.
    """

    def noise(label: str, n_bytes: int) -> bytes:
        return hashlib.shake_128(label.encode()).digest(n_bytes)

    arrays = {f"dense {name}": np.frombuffer(noise(name, 48), name).copy() for name in DTYPES if name != "?"}
    arrays["dense ?"] = np.frombuffer(noise("?", 9), "u1") % 2 == 1
    arrays["ключ/ñ\n"] = np.frombuffer(noise("matrix", 48), "f4").reshape(2, 3, 2).copy()
    arrays["scalar"] = np.array(-0.0)
    arrays["empty"] = np.zeros((3, 0, 2), "i2")
    sparse = np.zeros((50, 40), "f4")
    sparse.reshape(-1)[::61] = np.frombuffer(noise("sparse", 4 * 33), "f4")
    sparse[49, 39] = -0.0
    arrays["sparse"] = sparse
    arrays["nothing"] = np.zeros(4096, "f8")
    header = {
        "estimator": "LinearClassifier",
        "labels": ["да", "naïve", "😀", "\ud800", 'quote " and \\', "\x00\x1f\x7f"],
        "numbers": [0, -1, 2**70, 0.1, -0.0, 5e-324, 1.7976931348623157e308],
        "nested": {"": {}, "none": None, "flags": [True, False], "empty": []},
    }
    return header, arrays


def test_the_golden_file_of_format_1_is_read_exactly():
    assert same_content(read(GOLDEN), golden_content())
    assert stored_head(GOLDEN)["__metadata__"]["format_version"] == "1"
    assert {"sparse.index", "nothing.index"} < stored_tensors(GOLDEN).keys()


def masked_content() -> tuple[dict, dict[str, np.ndarray]]:
    """What the golden file of format 2 holds: the same, and arrays with a third of their elements set."""
    header, arrays = golden_content()
    for width in (1, 2, 4, 8):
        bits = np.zeros(1031, f"u{width}")
        bits[1::3] = np.frombuffer(hashlib.shake_128(b"third").digest(width * 344), f"u{width}") | 1
        arrays[f"third {width}"] = bits
    return header, arrays


def test_the_golden_file_of_format_2_is_read_exactly():
    assert same_content(read(GOLDEN_2), masked_content())
    assert stored_head(GOLDEN_2)["__metadata__"]["format_version"] == "2"
    assert {"sparse.index", *(f"third {width}.mask" for width in (1, 2, 4, 8))} < stored_tensors(GOLDEN_2).keys()


# ---- round trips


arrays_of_any_bits = st.sampled_from(DTYPES).flatmap(
    lambda dtype: npst.arrays(
        "u1" if dtype == "?" else dtype.replace("f", "u").replace("i", "u"),
        npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
        elements=st.integers(0, 1) if dtype == "?" else None,
    ).map(lambda bits: bits.view(dtype))
)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
array_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda name: name != "__metadata__")


@given(
    header=st.dictionaries(st.text(), plain_values, max_size=4),
    arrays=st.dictionaries(array_names, arrays_of_any_bits, max_size=4),
)
def test_a_round_trip_keeps_every_bit(header, arrays):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m"
        n_bytes = write(path, header, arrays)
        assert n_bytes == path.stat().st_size
        assert same_content(read(path), (header, arrays))
        assert same_content(read(path, verify=False), (header, arrays))


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.sampled_from([(1023,), (1024,), (2000,), (40, 50), (4, 1, 512)]),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_round_trip_keeps_every_bit_at_any_share_of_zeros(dtype, shape, share, seed):
    random = np.random.default_rng(seed)
    n = int(np.prod(shape))
    itemsize = np.dtype(dtype).itemsize
    bits = np.frombuffer(random.bytes(n * itemsize), f"u{itemsize}").copy()
    bits[random.random(n) < share] = 0
    array = (bits % 2 if dtype == "?" else bits).view(dtype).reshape(shape)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m"
        write(path, {}, {"w": array})
        assert same_content(read(path), ({}, {"w": array}))
        size = sum(e["data_offsets"][1] - e["data_offsets"][0] for e in stored_tensors(path).values())
        assert size <= array.nbytes


@pytest.mark.parametrize(
    "layout", [np.asfortranarray, lambda a: a[::2, ::-1], lambda a: a.T, lambda a: a.astype(">f4")]
)
def test_any_memory_layout_is_stored(tmp_path, layout):
    array = layout(np.arange(12, dtype=np.float32).reshape(3, 4))
    write(tmp_path / "m", {}, {"w": array})
    restored = read(tmp_path / "m")[1]["w"]
    assert restored.dtype == np.dtype("<f4")
    np.testing.assert_array_equal(restored, array)


def test_tuples_come_back_as_lists(tmp_path):
    write(tmp_path / "m", {"ngrams": (1, 2)}, {})
    assert read(tmp_path / "m")[0] == {"ngrams": [1, 2]}


def test_equal_models_are_equal_bytes(tmp_path):
    for number in range(8):  # the library alone shuffles the metadata at random
        write(tmp_path / str(number), *golden_content())
    assert len({(tmp_path / str(number)).read_bytes() for number in range(8)}) == 1


def test_dense_arrays_are_views_of_the_file_and_nothing_can_be_changed(tmp_path):
    write(tmp_path / "m", {}, {"dense": np.arange(5000.0), "sparse": mostly_zero(5000, 5), "empty": np.zeros(0)})
    arrays = read(tmp_path / "m")[1]
    assert not arrays["dense"].flags.owndata
    assert not any(array.flags.writeable for array in arrays.values())
    with pytest.raises(ValueError, match="read-only"):
        arrays["dense"][0] = 1


def test_arrays_outlive_the_replaced_file(tmp_path):
    write(tmp_path / "m", {}, {"w": np.full(5000, 1.0)})
    old = read(tmp_path / "m")[1]["w"]
    write(tmp_path / "m", {}, {"w": np.full(5000, 2.0)})
    assert (old == 1).all()


def test_a_model_can_be_written_over_the_file_it_is_mapped_from(tmp_path):
    write(tmp_path / "m", {"a": 1}, {"w": np.arange(5000.0)})
    content = read(tmp_path / "m")
    write(tmp_path / "m", *content)
    assert same_content(read(tmp_path / "m"), content)


def test_elements_are_aligned_for_compiled_code(tmp_path):
    write(tmp_path / "m", *golden_content())
    assert all(array.flags.aligned for array in read(tmp_path / "m")[1].values())
    head = {"a": tensor("U8", [1], 0, 1), "b": tensor("F64", [1], 1, 9)}
    (tmp_path / "odd").write_bytes(model_bytes(head, bytes(9)))
    assert read(tmp_path / "odd", verify=False)[1]["b"].flags.aligned


def test_the_library_reads_what_we_write(tmp_path):
    from safetensors import safe_open

    header, arrays = {"a": "ü"}, {**DENSE, "s": mostly_zero(2000, 10)}
    write(tmp_path / "m", header, arrays)
    with safe_open(tmp_path / "m", framework="np") as file:
        assert set(file.keys()) == {"w", "b", "s.index", "s.value"}
        assert all(same_bits(file.get_tensor(name), DENSE[name]) for name in DENSE)
        assert json.loads(file.metadata()["steepest"]) == header
        assert json.loads(file.metadata()["sparse"]) == {"s": [2000]}


# ---- sparse storage


@pytest.mark.parametrize(
    ("array", "parts"),
    [
        (mostly_zero(1023, 0), {"w"}),  # too small
        (mostly_zero(1024, 0), {"w.index", "w.value"}),
        (mostly_zero(2000, 62), {"w.index", "w.value"}),  # 248 bytes of places, as a mask has 250
        (mostly_zero(2000, 63), {"w.mask", "w.value"}),
        (mostly_zero(2000, 799), {"w.mask", "w.value"}),
        (mostly_zero(2001, 799, "i1"), {"w.mask", "w.value"}),
        (mostly_zero(2000, 800), {"w"}),  # exactly 60 % zeros
        (np.full(2000, -0.0), {"w"}),  # minus zero has a bit set
    ],
)
def test_mostly_zero_arrays_are_stored_sparse(tmp_path, array, parts):
    write(tmp_path / "m", {}, {"w": array})
    assert stored_tensors(tmp_path / "m").keys() == parts
    assert stored_head(tmp_path / "m")["__metadata__"]["format_version"] == ("2" if "w.mask" in parts else "1")
    assert same_bits(read(tmp_path / "m")[1]["w"], array)


def test_sparse_storage_keeps_minus_zero_and_the_payload_of_nans(tmp_path):
    bits = np.zeros(4096, np.uint64)
    bits[[7, 8, 9, 4095]] = [0x8000000000000000, 0x7FF0000000000001, 0xFFF8DEADBEEF0000, 1]
    n_bytes = write(tmp_path / "m", {}, {"w": bits.view(np.float64)})
    assert n_bytes < 1000
    np.testing.assert_array_equal(read(tmp_path / "m")[1]["w"].view(np.uint64), bits)


def test_names_that_look_like_halves_of_a_sparse_array_do_not_collide(tmp_path):
    arrays = {name: mostly_zero(2000, 5) + i for i, name in enumerate(["w", "w.index"])}
    arrays |= {
        "v": mostly_zero(2000, 5),
        "v.value": np.arange(3),
        "u": mostly_zero(2000, 3),
        "w.index.value": np.ones(1),
        "t": mostly_zero(2000, 500),
        "t.mask": np.arange(3),
        "s": mostly_zero(2000, 5),
        "s.mask": mostly_zero(2000, 500),
    }
    write(tmp_path / "m", {}, arrays)
    assert same_content(read(tmp_path / "m"), ({}, arrays))


def test_write_stores_a_mask_where_read_would_not_grow_a_list_of_places(tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "_SPARSE_ALLOWANCE", 40_000)
    arrays = {"a": mostly_zero(8000, 1), "b": mostly_zero(8000, 1), "c": mostly_zero(8000, 100)}
    write(tmp_path / "m", {}, arrays)
    parts = {"a.index", "a.value", "b.mask", "b.value", "c.index", "c.value"}
    assert stored_tensors(tmp_path / "m").keys() == parts
    assert same_content(read(tmp_path / "m"), ({}, arrays))


# ---- what cannot be written


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": [1, {"b": float("nan")}]}, r"header\['a'\]\[1\]\['b'\] is nan"),
        ({"a": float("-inf")}, r"header\['a'\] is -inf"),
        ({"a": {1: 2}}, r"header\['a'\] has the key 1"),
        ({"a": np.int64(3)}, r"header\['a'\] is of type int64"),
        ({"a": b"bytes"}, r"header\['a'\] is of type bytes"),
        ({"a": 10**5000}, "the header is not storable"),
        ([], "the header is of type list: use a dict"),
    ],
)
def test_a_header_that_json_would_change_is_refused_by_its_place(tmp_path, header, message):
    with pytest.raises(ModelFileError, match=message):
        write(tmp_path / "m", header, {})
    assert os.listdir(tmp_path) == []


def test_a_header_nested_too_deep_is_refused(tmp_path):
    header = {}
    for _ in range(64):
        header = {"a": header}
    write(tmp_path / "m", header, {})
    assert read(tmp_path / "m")[0] == header
    with pytest.raises(ModelFileError, match="nested more than 64 deep"):
        write(tmp_path / "m", {"a": header}, {})
    circle = []
    circle.append(circle)
    with pytest.raises(ModelFileError, match="nested more than 64 deep"):
        write(tmp_path / "m", {"a": circle}, {})


def test_a_header_too_long_to_be_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "_HEADER_BYTES", 1000)
    with pytest.raises(ModelFileError, match="of at most 1000: move long lists into arrays"):
        write(tmp_path / "m", {"a": "x" * 1000}, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("w", np.zeros(3, complex), "array 'w' is of type complex128"),
        ("w", np.array(["a"]), "array 'w' is of type <U1.*texts go into the header"),
        ("w", np.array([object()]), "array 'w' is of type object"),
        ("w", np.zeros(1, np.longdouble), "array 'w' is of type"),
        ("w", np.array([2], np.uint8).view(bool), "array 'w' holds truth values other than 0 and 1"),
        ("__metadata__", np.zeros(3), "an array cannot be called '__metadata__'"),
        ("\ud800", np.zeros(3), "an array cannot be called"),
        (7, np.zeros(3), "an array cannot be called 7"),
    ],
)
def test_an_array_outside_the_format_is_refused_by_its_name(tmp_path, name, array, message):
    with pytest.raises(ModelFileError, match=message):
        write(tmp_path / "m", {}, {name: array})
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 has no such arrays")
def test_more_dimensions_than_every_numpy_has_are_refused(tmp_path):
    write(tmp_path / "m", {}, {"w": np.zeros((1,) * 32)})
    assert read(tmp_path / "m")[1]["w"].ndim == 32
    with pytest.raises(ModelFileError, match="array 'w' has 33 dimensions: use at most 32"):
        write(tmp_path / "m", {}, {"w": np.zeros((1,) * 33)})


# ---- a complete old or a complete new file


def failing(number):
    def fail(*_args, **_options):
        raise OSError(number, os.strerror(number))

    return fail


FAILURES = [
    ("os.fsync", failing(errno.ENOSPC), r"No space left on device\); free some space"),
    ("os.replace", failing(errno.EACCES), r"Permission denied\); choose a place where you may write"),
    ("os.chmod", failing(errno.EIO), r"Input/output error\); choose another place"),
    ("builtins.open", failing(errno.ENOSPC), r"No space left on device\); free some space"),
]


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize(("function", "failure", "message"), FAILURES)
def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, function, failure, message, existing):
    if function == "os.chmod" and not existing:
        pytest.skip("a new file has its permissions from the beginning")
    path = tmp_path / "m"
    if existing:
        write(path, {"version": "old"}, DENSE)
    with monkeypatch.context() as patch:
        patch.setattr(function, failure)
        with pytest.raises(ModelFileError, match=message) as caught:
            write(path, {"version": "new"}, DENSE)
    assert str(path) in str(caught.value)
    assert os.listdir(tmp_path) == (["m"] if existing else [])
    assert not existing or same_content(read(path), ({"version": "old"}, DENSE))


@pytest.mark.skipif(sys.platform == "win32", reason="directories cannot be synchronised there")
@pytest.mark.parametrize("directories_fail", [False, True])
def test_the_file_and_then_its_name_are_put_onto_the_disk(tmp_path, monkeypatch, directories_fail):
    synchronised = []

    def record(descriptor):
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synchronised.append((kind, "m" in os.listdir(tmp_path)))
        if directories_fail and kind == "directory":  # some file systems cannot; the model is complete all the same
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", record)
    write(tmp_path / "m", {}, DENSE)
    assert synchronised == [("file", False), ("directory", True)]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "m", {}, DENSE)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the size limit of a process is a POSIX feature")
def test_a_disk_that_fills_up_in_the_middle_leaves_the_old_file(tmp_path):
    write(tmp_path / "m", {"version": "old"}, DENSE)
    script = """
import resource, sys
import numpy as np
from steepest.model_file import write
from steepest.errors import ModelFileError
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    write(sys.argv[1], {}, {"w": np.ones(1 << 18)})
except ModelFileError as error:
    print(error)
"""
    output = run(script, tmp_path / "m")
    assert output == f"{tmp_path / 'm'} cannot be written (File too large); free some space or choose another disk\n"
    assert os.listdir(tmp_path) == ["m"]
    assert same_content(read(tmp_path / "m"), ({"version": "old"}, DENSE))


def run(script: str, *arguments: object, options: tuple[str, ...] = ()) -> str:
    command = [sys.executable, *options, "-c", script, *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": SOURCES}, capture_output=True, text=True, check=True
    )
    return done.stdout


WRITE_FOR_EVER = """
import itertools, sys
import numpy as np
from steepest.model_file import write
for step in itertools.count(int(sys.argv[2])):
    write(sys.argv[1], {"step": step}, {"w": np.full(50_000, step, np.int64)})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be replaced there, and there is no SIGKILL")
def test_a_reader_sees_complete_files_while_writers_are_killed(tmp_path):
    path, steps = tmp_path / "m", set()
    write(path, {"step": 1}, {"w": np.full(50_000, 1, np.int64)})
    for first in range(1000, 6000, 1000):
        command = [sys.executable, "-c", WRITE_FOR_EVER, str(path), str(first)]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": SOURCES}) as writer:
            try:
                deadline = time.monotonic() + 60
                n_seen = len(steps)
                while len(steps) < n_seen + 4:
                    assert time.monotonic() < deadline, "the writer does not get on"
                    header, arrays = read(path)
                    assert (arrays["w"] == header["step"]).all()
                    steps.add(header["step"])
                time.sleep(first % 7 / 500)  # so that the signal comes at different moments of a write
            finally:
                writer.send_signal(signal.SIGKILL)
        header, arrays = read(path)
        assert (arrays["w"] == header["step"]).all()
    assert write(path, {"step": 1}, {}) == path.stat().st_size


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(
        ModelFileError, match=r"nowhere.m cannot be written \(No such file.*\); create its directory first"
    ):
        write(tmp_path / "nowhere" / "m", {}, {})


def test_only_files_are_replaced(tmp_path):
    (tmp_path / "directory").mkdir()
    with pytest.raises(ModelFileError, match="not a file has this name"):
        write(tmp_path / "directory", {}, {})
    assert os.listdir(tmp_path) == ["directory"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_neither_replaced_nor_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a file has this name"):
        write(tmp_path / "pipe", {}, {})
    with pytest.raises(ModelFileError, match="is not a file, so it is not a steepest model"):
        read(tmp_path / "pipe")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_permissions_follow_the_umask_or_the_replaced_file(tmp_path):
    previous = os.umask(0o027)
    try:
        write(tmp_path / "m", {}, {})
        assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o640
        (tmp_path / "m").chmod(0o604)
        write(tmp_path / "m", {}, {})
        assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o604
    finally:
        os.umask(previous)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write everywhere")
def test_protected_places_are_refused(tmp_path):
    write(tmp_path / "m", {}, {})
    (tmp_path / "m").chmod(0o444)
    with pytest.raises(ModelFileError, match=r"Permission denied\); choose a place where you may write"):
        write(tmp_path / "m", {}, {})
    (tmp_path / "m").chmod(0)
    with pytest.raises(ModelFileError, match=r"cannot be read \(Permission denied\)"):
        read(tmp_path / "m")
    tmp_path.chmod(0o555)
    with pytest.raises(ModelFileError, match=r"Permission denied\); choose a place where you may write"):
        write(tmp_path / "other", {}, {})
    tmp_path.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege there")
def test_a_symbolic_link_keeps_pointing_to_the_model(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "m")
    write(tmp_path / "link", {"a": 1}, {})
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "m")[0] == read(tmp_path / "link")[0] == {"a": 1}


# ---- damage: every byte, every length


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> tuple[bytes, tuple]:
    content = ({"labels": ["a", "ü"], "t": 1}, {**DENSE, "s": mostly_zero(1024, 3, "f8")})
    path = tmp_path_factory.mktemp("small") / "m"
    write(path, *content)
    return path.read_bytes(), content


def raises_or_equals(path: Path, original: tuple, **options: bool) -> bool:
    """Whether the file was refused; if it was read, its content must be the original."""
    try:
        content = read(path, **options)
    except ModelFileError:
        return True
    assert same_content(content, original)
    return False


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80, 0xFF])
def test_a_change_of_any_single_byte_never_gives_another_model(tmp_path, small, flip):
    data, original = small
    refused = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= flip
        (tmp_path / "m").write_bytes(damaged)
        refused += raises_or_equals(tmp_path / "m", original)
    assert refused >= len(data) - 8  # only the padding of the header (at most 7 spaces) may change unseen


def test_any_cut_or_longer_file_is_refused(tmp_path, small):
    data, _ = small
    for length in range(len(data)):
        (tmp_path / "m").write_bytes(data[:length])
        with pytest.raises(ModelFileError):
            read(tmp_path / "m", verify=False)
    (tmp_path / "m").write_bytes(data + b"\0")
    with pytest.raises(ModelFileError, match="is damaged"):
        read(tmp_path / "m", verify=False)


def test_damage_is_told_with_the_way_out(tmp_path, small):
    data, _ = small
    (tmp_path / "m").write_bytes(data[:-1] + b"\xff")
    with pytest.raises(DataError, match=r"m is damaged \(.*\): get a fresh copy$"):
        read(tmp_path / "m")
    (tmp_path / "m").write_bytes(data[:40])
    with pytest.raises(
        ModelFileError, match=r"m is damaged \(cut short, 40 bytes of at least \d+\): get a fresh copy$"
    ):
        read(tmp_path / "m")


def test_the_checksum_is_what_finds_a_changed_weight(tmp_path, small):
    data, _ = small
    position = data.index(DENSE["w"].tobytes()) + 5
    damaged = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
    (tmp_path / "m").write_bytes(damaged)
    with pytest.raises(
        ModelFileError, match=r"is damaged \(checksum 'crc32:........' in the file, 'crc32:........' of"
    ):
        read(tmp_path / "m")
    assert not same_bits(read(tmp_path / "m", verify=False)[1]["w"], DENSE["w"])


changes = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 8), st.binary(max_size=8))


@settings(max_examples=300)
@given(edits=st.lists(changes, min_size=1, max_size=4))
def test_random_damage_never_gives_another_model(small, edits):
    data, original = small
    for place, n_removed, inserted in edits:
        start = int(place * len(data))
        data = data[:start] + inserted + data[start + n_removed :]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m"
        path.write_bytes(data)
        raises_or_equals(path, original)
        with contextlib.suppress(ModelFileError):
            read(path, verify=False)


# ---- foreign and hostile files


def tensor(dtype: object, shape: object, *offsets: object) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def model_bytes(head: object, data: bytes = b"", **metadata: object) -> bytes:
    """A file by hand; a head that is text is taken as it is, otherwise it gets the four texts of a model."""
    if isinstance(head, dict):
        texts = {"format_version": "1", "steepest": "{}", "sparse": "{}", "checksum": "crc32:00000000", **metadata}
        head = json.dumps({"__metadata__": texts, **head})
    text = head.encode() if isinstance(head, str) else head
    return len(text).to_bytes(8, "little") + text + data


def sparse_bytes(
    shape: object, index: list[int], value: list[float], *, index_type: str = "<i4", **metadata: object
) -> bytes:
    codes = {"<i4": "I32", "<i8": "I64", "<u4": "U32"}
    stored = np.array(index, index_type).tobytes()
    values = np.array(value, "<f4").tobytes()
    head = {
        "w.index": tensor(codes[index_type], [len(index)], 0, len(stored)),
        "w.value": tensor("F32", [len(value)], len(stored), len(stored) + len(values)),
    }
    return model_bytes(head, stored + values, **{"sparse": json.dumps({"w": shape}), **metadata})


def masked_bytes(shape: object, mask: bytes, value: list[float], code: str = "U8", **metadata: object) -> bytes:
    values = np.array(value, "<f4").tobytes()
    width = {"U8": 1, "U16": 2}[code]
    head = {
        "w.value": tensor("F32", [len(value)], 0, len(values)),
        "w.mask": tensor(code, [len(mask) // width], len(values), len(values) + len(mask)),
    }
    texts = {"format_version": "2", "sparse": json.dumps({"w": shape}), **metadata}
    return model_bytes(head, values + mask, **texts)


def zipped() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "z"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "text " * 100)
        return path.read_bytes()


DEEP = 100_000
NOT_A_MODEL = "is not a steepest model: give a file that steepest saved$"
FOREIGN = {
    "pickle": (pickle.dumps({"coef_": list(range(1000))}), NOT_A_MODEL),
    "old pickle": (pickle.dumps({"coef_": list(range(1000))}, protocol=0), NOT_A_MODEL),
    "zip": (zipped(), NOT_A_MODEL),
    "gzip": (b"\x1f\x8b\x08" + bytes(100), NOT_A_MODEL),
    "text": (b"1 1:0.5 7:1\n" * 100, NOT_A_MODEL),
    "json": (b'{"coef": [1, 2, 3], "intercept": 0}', NOT_A_MODEL),
    "zeros": (bytes(1000), NOT_A_MODEL),
    "one byte": (b"{", NOT_A_MODEL),
    "empty": (b"", "is empty, so it is not a steepest model: give a file that steepest saved$"),
    "safetensors": (
        model_bytes('{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        "not a steepest model",
    ),
    "other metadata": (
        model_bytes('{"__metadata__":{"format":"pt"}}'),
        "is a safetensors file but not a steepest model",
    ),
    "no metadata": (model_bytes('{"__metadata__":null}'), "is a safetensors file but not a steepest model"),
}
HOSTILE = {
    "header of 2^63 bytes": (
        (1 << 63).to_bytes(8, "little") + model_bytes({})[8:],
        "not a steepest model|a header of 9",
    ),
    "header of 2^63 bytes in order": (
        (1 << 63).to_bytes(8, "little") + b'{"__metadata__":{}}',
        r"is damaged \(a header of 9223372036854775808 bytes, of at most 100000000\)",
    ),
    "header longer than the file": (
        (99_999_999).to_bytes(8, "little") + b'{"__metadata__":{}}',
        r"is damaged \(cut short, 27 bytes of at least 100000007\)",
    ),
    "newer": (model_bytes({}, format_version="7"), r"newer steepest \(format 7, this one reads up to 2\): upgrade$"),
    "newer with other entries": (model_bytes({}, format_version="12", extra="x"), r"newer steepest \(format 12, this"),
    "version 0": (model_bytes({}, format_version="0"), "is damaged .format version '0'"),
    "version x": (model_bytes({}, format_version="x" * 1000), "is damaged .format version 'xxxxxxxxxxxxxxxxxxxx'"),
    "version of many digits": (model_bytes({}, format_version="9" * 9999), "is damaged .format version '9"),
    "version that is a number": (model_bytes({}, format_version=1), "metadata that is not a text"),
    "unknown entry": (model_bytes({}, extra="x"), "metadata has other entries than checksum, format_version"),
    "header of lists": (
        model_bytes('{"__metadata__":' + "[" * DEEP + "]" * DEEP + "}"),
        "the file's header is not valid",
    ),
    "wide header": (
        model_bytes('{"__metadata__":[' + "[]," * DEEP + "[]]}"),
        "is a safetensors file but not a steepest model",
    ),
    "header of objects": (model_bytes('{"__metadata__":' + '{"a":' * DEEP), "the file's header is not valid"),
    "shape of lists": (
        model_bytes({"w": tensor("F32", 1, 0, 4)}).replace(b"1", b"[" * DEEP, 1),
        "damaged|not a steepest",
    ),
    "inner header of lists": (model_bytes({}, steepest='{"a":' + "[" * DEEP), "the steepest header is not valid"),
    "inner header is a list": (model_bytes({}, steepest="[]"), "the steepest header is not an object"),
    "inner header not finite": (model_bytes({}, steepest='{"a":NaN}'), "NaN is not a number"),
    "inner header infinite": (model_bytes({}, steepest='{"a":-Infinity}'), "-Infinity is not a number"),
    "inner header twice": (model_bytes({}, steepest='{"a":1,"a":2}'), "a name occurs twice"),
    "inner header of digits": (
        model_bytes({}, steepest='{"a":' + "9" * 100_000 + "}"),
        "the steepest header is not valid",
    ),
    "header not UTF-8": (model_bytes(b'{"__metadata__":"\xff\xfe"}'), "the file's header is not valid, 'utf-8' codec"),
    "header not finite": (model_bytes('{"__metadata__":{},"w":Infinity}'), "Infinity is not a number"),
    "header a list": (model_bytes("[1, 2]"), NOT_A_MODEL),
    "name twice": (
        model_bytes(
            model_bytes({"a": tensor("U8", [1], 0, 1), "b": tensor("U8", [1], 0, 1)})[8:].replace(b'"b"', b'"a"'), b"1"
        ),
        "a name occurs twice",
    ),
    "negative shape": (
        model_bytes({"w": tensor("F32", [-1, -1], 0, 4)}, bytes(4)),
        "tensor 'w' has an impossible shape",
    ),
    "shape of 2^63": (model_bytes({"w": tensor("F32", [1 << 63], 0, 4)}, bytes(4)), "'w' has an impossible shape"),
    "shape that wraps to 4": (
        model_bytes({"w": tensor("U8", [(1 << 62) + 1, 4], 0, 4)}, bytes(4)),
        "'w' has an impossible size",
    ),
    "nothing times too much": (model_bytes({"w": tensor("F32", [0, 1 << 62, 8], 0, 0)}), "'w' has an impossible size"),
    "shape of floats": (model_bytes({"w": tensor("F32", [1.0], 0, 4)}, bytes(4)), "'w' has an impossible shape"),
    "shape of truth": (model_bytes({"w": tensor("F32", [True], 0, 4)}, bytes(4)), "'w' has an impossible shape"),
    "shape of text": (model_bytes({"w": tensor("F32", "1", 0, 4)}, bytes(4)), "'w' has an impossible shape"),
    "many dimensions": (model_bytes({"w": tensor("F32", [1] * 33, 0, 4)}, bytes(4)), "'w' has an impossible shape"),
    "unknown type": (model_bytes({"w": tensor("F31", [1], 0, 4)}, bytes(4)), "'w' has an impossible type"),
    "type that is a list": (model_bytes({"w": tensor(["F32"], [1], 0, 4)}, bytes(4)), "'w' has an impossible type"),
    "no description": (model_bytes({"w": [1, 2]}), "'w' has an impossible description"),
    "more description": (model_bytes({"w": {**tensor("F32", [0], 0, 0), "x": 1}}), "'w' has an impossible description"),
    "other size": (model_bytes({"w": tensor("F32", [2], 0, 4)}, bytes(4)), "'w' has an impossible place"),
    "negative place": (model_bytes({"w": tensor("F32", [1], -4, 0)}, bytes(4)), "'w' has an impossible place"),
    "reversed place": (model_bytes({"w": tensor("F32", [1], 4, 0)}, bytes(4)), "'w' has an impossible place"),
    "three offsets": (model_bytes({"w": tensor("F32", [1], 0, 4, 4)}, bytes(4)), "'w' has an impossible place"),
    "place past the end": (model_bytes({"w": tensor("F32", [1], 4, 8)}, bytes(4)), "'w' starts at byte 4, not at 0"),
    "longer than the file": (
        model_bytes({"w": tensor("F32", [9], 0, 36)}, bytes(4)),
        "4 bytes of tensors, 36 expected",
    ),
    "larger than any file": (
        model_bytes({"w": tensor("U8", [1 << 62], 0, 1 << 62)}, bytes(4)),
        "4 bytes of tensors, 4611686018427387904 expected",
    ),
    "overlap": (
        model_bytes({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, bytes(12)),
        "tensor 'b' starts at byte 4, not at 8",
    ),
    "gap": (
        model_bytes({"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 8, 12)}, bytes(12)),
        "tensor 'b' starts at byte 8, not at 4",
    ),
    "bytes after the end": (model_bytes({"w": tensor("F32", [1], 0, 4)}, bytes(5)), "5 bytes of tensors, 4 expected"),
    "broken truth": (model_bytes({"w": tensor("BOOL", [2], 0, 2)}, b"\1\2"), "truth values other than 0 and 1"),
    "sparse index past the end": (sparse_bytes([10], [3, 10], [1, 1]), "sparse array 'w' has an impossible index"),
    "sparse index negative": (sparse_bytes([10], [-1, 3], [1, 1]), "sparse array 'w' has an impossible index"),
    "sparse index unsorted": (sparse_bytes([10], [3, 2], [1, 1]), "sparse array 'w' has an impossible index"),
    "sparse index twice": (sparse_bytes([10], [3, 3], [1, 1]), "sparse array 'w' has an impossible index"),
    "sparse index in nothing": (sparse_bytes([0], [0], [1]), "sparse array 'w' has an impossible index"),
    "sparse index of another type": (sparse_bytes([9], [3], [1], index_type="<u4"), "'w' has an impossible index"),
    "sparse lengths differ": (sparse_bytes([10], [3, 4], [1]), "sparse array 'w' has an impossible index"),
    "sparse of a terabyte": (sparse_bytes([1 << 38], [], []), "sparse array 'w' has an impossible size, 1099511627776"),
    "sparse of 2^64": (sparse_bytes([1 << 32, 1 << 32], [], []), "sparse array 'w' has an impossible size"),
    "sparse negative": (sparse_bytes([-10], [], []), "sparse array 'w' has an impossible shape"),
    "sparse no shape": (sparse_bytes({"a": 1}, [], []), "sparse array 'w' has an impossible shape"),
    "mask too short": (masked_bytes([17], b"\x01\x00", [1]), "sparse array 'w' has an impossible mask"),
    "mask too long": (masked_bytes([8], b"\x01\x00", [1]), "sparse array 'w' has an impossible mask"),
    "mask of more bits": (masked_bytes([16], b"\x03\x00", [1]), "sparse array 'w' has an impossible mask"),
    "mask of fewer bits": (masked_bytes([16], b"\x01\x00", [1, 2]), "sparse array 'w' has an impossible mask"),
    "mask beyond the end": (masked_bytes([12], b"\x00\x10", [1]), "sparse array 'w' has an impossible mask"),
    "mask of another type": (masked_bytes([16], b"\x01\x00", [1], "U16"), "sparse array 'w' has an impossible mask"),
    "sparse missing": (model_bytes({}, sparse='{"w":[10]}'), "sparse array 'w' lacks its index or mask, or its value"),
    "sparse half missing": (
        model_bytes({"w.index": tensor("I32", [0], 0, 0)}, sparse='{"w":[10]}'),
        "sparse array 'w' lacks its index or mask, or its value",
    ),
    "sparse is a list": (model_bytes({}, sparse='["w"]'), "the list of sparse arrays is not an object"),
    "sparse and dense": (sparse_bytes([10], [], [], sparse='{"w.index":[10]}'), "stored both dense and sparse"),
    "many small terabytes": (
        model_bytes(
            {
                f"{i}.{half}": tensor(code, [0], 0, 0)
                for i in range(2000)
                for half, code in [("index", "I32"), ("value", "F32")]
            },
            sparse=json.dumps({str(i): [1 << 20] for i in range(2000)}),
        ),
        "has an impossible size",
    ),
}


@pytest.mark.parametrize("kind", [*FOREIGN, *HOSTILE])
def test_foreign_and_hostile_files_are_refused_in_one_sentence(tmp_path, kind):
    data, message = {**FOREIGN, **HOSTILE}[kind]
    path = tmp_path / "model.steepest"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message) as caught:
        read(path, verify=False)  # so that it is not the checksum that saves us
    sentence = str(caught.value)
    assert sentence.startswith(f"{path} ")
    assert "\n" not in sentence
    assert len(sentence) < len(str(path)) + 300
    with pytest.raises(ModelFileError):
        read(path)


@pytest.mark.parametrize("kind", [*FOREIGN, *HOSTILE])
def test_memory_stays_a_small_multiple_of_a_refused_file(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(model_file, "_SPARSE_ALLOWANCE", 0)  # the fixed sum that sparse arrays may take
    data = {**FOREIGN, **HOSTILE}[kind][0]
    (tmp_path / "m").write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            read(tmp_path / "m", verify=False)
        assert tracemalloc.get_traced_memory()[1] < 30 * len(data) + 500_000
    finally:
        tracemalloc.stop()


def test_a_handmade_file_is_read_if_nothing_is_wrong(tmp_path):
    """Without this the hostile files might be refused for the wrong reason."""
    (tmp_path / "m").write_bytes(sparse_bytes([3, 4], [2, 11], [5, 6], steepest='{"a":1}'))
    header, arrays = read(tmp_path / "m", verify=False)
    expected = np.zeros((3, 4), np.float32)
    expected[0, 2], expected[2, 3] = 5, 6
    assert same_content((header, arrays), ({"a": 1}, {"w": expected}))
    with pytest.raises(ModelFileError, match="checksum"):
        read(tmp_path / "m")


def test_missing_files_and_directories_are_told(tmp_path):
    with pytest.raises(ModelFileError, match=r"nowhere does not exist; .*check the name"):
        read(tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match="is not a file, so it is not a steepest model"):
        read(tmp_path)
    with pytest.raises(ModelFileError, match="null byte"):
        read("a\0b")
    with pytest.raises(ModelFileError, match="null"):
        write("a\0b", {}, {})
    write(tmp_path / "m", {}, {})
    with pytest.raises(ModelFileError, match=r"cannot be read|does not exist"):
        read(tmp_path / "m" / "below")


def test_memory_that_is_not_there_is_told(tmp_path, monkeypatch):
    write(tmp_path / "m", {}, {"w": mostly_zero(2000, 1)})

    def exhausted(*_args):
        raise MemoryError

    monkeypatch.setattr(model_file.np, "zeros", exhausted)
    with pytest.raises(ModelFileError, match="too large for this machine's memory"):
        read(tmp_path / "m")


def places_in(value: object, place: tuple = ()) -> list[tuple]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place] + [found for key, child in children for found in places_in(child, (*place, key))]


any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.integers(-2, 70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=300)
@given(place=st.integers(0, 10**6), value=any_json)
def test_a_header_with_any_value_in_any_place_is_read_or_refused(small, place, value):
    data, _ = small
    first = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:first])
    head["__metadata__"]["sparse"] = json.dumps({"s": [1024]})
    places = places_in(head)[1:]
    *parents, last = places[place % len(places)]
    parent = head
    for key in parents:
        parent = parent[key]
    parent[last] = value
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m"
        path.write_bytes(model_bytes(json.dumps(head), data[first:]))
        with contextlib.suppress(ModelFileError):
            for array in read(path, verify=False)[1].values():
                array.tobytes()


@settings(max_examples=200)
@given(shape=any_json, index=st.lists(st.integers(-3, 40), max_size=4), value=st.lists(st.just(1.0), max_size=4))
def test_any_sparse_array_is_restored_or_refused(shape, index, value):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m"
        path.write_bytes(sparse_bytes(shape, index, value))
        try:
            restored = read(path, verify=False)[1]["w"]
        except ModelFileError:
            return
        assert list(restored.shape) == shape
        assert np.flatnonzero(restored).tolist() == index


# ---- what reading costs at start-up


def test_importing_and_reading_load_no_library(tmp_path):
    write(tmp_path / "m", {}, DENSE)
    script = """
import sys
from steepest.model_file import read
read(sys.argv[1])
print(sorted({name.split(".")[0] for name in sys.modules} & {"safetensors", "scipy", "sklearn", "pickle5", "rich"}))
"""
    assert run(script, tmp_path / "m") == "[]\n"


def test_the_version_is_one():
    """Raise it only together with a reader for both versions and a second golden file."""
    assert FORMAT_VERSION == 2
