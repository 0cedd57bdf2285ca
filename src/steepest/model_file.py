"""One file format for every model: a JSON header and named arrays in a safetensors file; mapped, checked, not executed.

Format 1: `__metadata__` holds four texts, `format_version`; `steepest`, the header as canonical JSON; `sparse`, the
{name: shape} of arrays stored as `name.index` (flat, ascending) and `name.value`; and `checksum`, the CRC-32 of the
JSON [version, header, sparse, [[name, type, shape], ...]] followed by the tensors' bytes, in the order of names.
Format 2: a sparse array may have `name.mask`, a bit for each element from the lowest on, in place of `name.index`.
CRC-32 is the fastest in the standard library (3.2 GB/s; SHA-256 1.4, BLAKE2b 0.7) and finds every error within 32
neighbouring bits; it guards against damage and is not a signature.
Invariant: `read` gives back bit for bit what `write` stored, and a path holds a complete old or a complete new file.
Reader and writer are our own, because the library's reader opens by name (a file replaced meanwhile would mix two
models), copies every array and takes the last of duplicated names, and its writer copies every array and gives equal
models unequal bytes; a test has it read what is written here. Left out: compression, arrays of texts, appending.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from steepest import atomic, kernels
from steepest.data.chunk import Array
from steepest.data.files.blocks import near_file
from steepest.data.files.checksum import crc32
from steepest.data.files.remote import is_remote, open_bytes, status
from steepest.errors import ModelFileError

FORMAT_VERSION = 2  # the newest that is read; what needs no mask is written as format 1

_METADATA = "__metadata__"
_METADATA_KEYS = {"format_version", "steepest", "sparse", "checksum"}
_OPENING = b'{"__metadata__":'  # how the library begins a header; only the wording of errors depends on it
_HEADER_BYTES = 100_000_000  # the library's own limit
_HEADER_DEPTH = 64  # far below every JSON parser's recursion limit
_DIMENSIONS = 32  # the most that NumPy 1 can hold
_TYPES = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "|u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "BOOL": "|b1",
}
_CODES = {letters: code for code, letters in _TYPES.items()}

_SPARSE_ELEMENTS = 1024  # below this an array is too small to be worth two tensors
# A sparse array grows when it is read, so a tiny file could ask for all memory: growth by more than this factor, which
# is the most that a mask can give, is granted only up to a fixed sum per file; beyond it `write` stores a mask.
_SPARSE_GROWTH = 64
_SPARSE_ALLOWANCE = 128 << 20
_THREADS = 2  # that search for zeros: a second one gains what there is to gain, more would wait for memory


class _RefusedError(Exception):
    """What is wrong and the way out; the public functions put the file's name in front."""


class _Tensor(NamedTuple):
    """Where a stored array lies, in bytes from the start of the tensors."""

    code: str
    shape: tuple[int, ...]
    start: int
    stop: int


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: Mapping[str, Array]) -> int:
    """Store plain values (tuples come back as lists) and arrays by name; return the file's size in bytes."""
    name = os.fsdecode(path)
    try:
        tensors, sparse = _pack(arrays)
        head, names = _layout(tensors, _describe(header, sparse, tensors))
    except _RefusedError as refusal:
        raise ModelFileError(f"cannot write {name}: {refusal}") from None
    with atomic.writing(path, error=ModelFileError) as file:
        file.write(head)
        for tensor in names:
            file.write(_bits(tensors[tensor]).data)
        return file.tell()


def read(path: str | os.PathLike[str], *, verify: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
    """Give the header and the arrays, read-only and mapped from the file; verify=False leaves the checksum unread."""
    name = os.fsdecode(path)
    try:
        return _unpack(_map(name), verify)
    except _RefusedError as refusal:
        raise ModelFileError(f"{name} {refusal}") from None
    except MemoryError as error:
        raise ModelFileError(
            f"{name} holds arrays too large for this machine's memory: read it on a larger one"
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelFileError(f"{name} cannot be read ({reason}): check the path and its permissions") from error
    except ValueError as error:
        raise ModelFileError(f"{name!r} cannot be read ({error}): check the path") from error


def _canonical(value: Any) -> str:
    """The one JSON text of a value; plain ASCII, so that even half a surrogate pair survives."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(version: int, header: str, sparse: str, tensors: Mapping[str, Array]) -> str:
    names = sorted(tensors)
    table = [[name, _CODES[tensors[name].dtype.str], list(tensors[name].shape)] for name in names]
    crc = crc32(_canonical([version, header, sparse, table]).encode())
    for name in names:
        if tensors[name].size:
            crc = crc32(tensors[name].reshape(-1).view(np.uint8).data, crc)
    return f"crc32:{crc:08x}"


def _bits(array: Array) -> Array:
    """The elements' bit patterns in one row: -0.0 is not zero here, and a NaN equals itself."""
    return array.reshape(-1).view(f"<u{array.itemsize}")


def _has_broken_bools(tensor: Array) -> bool:
    """Whether a truth value is stored as something else than 0 or 1, which compiled code must never meet."""
    return tensor.dtype == np.bool_ and tensor.size > 0 and int(_bits(tensor).max()) > 1


def _unaffordable(dense_bytes: int, stored_bytes: int) -> int:
    """The bytes with which a sparse array weighs on the file's allowance."""
    return 0 if dense_bytes <= _SPARSE_GROWTH * stored_bytes else dense_bytes


# Writing: arrays -> tensors and texts -> bytes


def _pack(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, list[int]]]:
    """The tensors to store, and the shapes of the arrays that became two tensors."""
    tensors: dict[str, Array] = {}
    sparse: dict[str, list[int]] = {}
    grown = 0
    for name in sorted(arrays, key=str):
        array = _storable(name, arrays[name])
        taken = arrays.keys() & {f"{name}.{part}" for part in ("index", "mask", "value")}
        split = None if taken else _split(array, _SPARSE_ALLOWANCE - grown)
        if split is None:
            tensors[name] = np.asarray(array, order="C")
        else:
            grown += _unaffordable(array.nbytes, sum(part.nbytes for part in split.values()))
            sparse[name] = list(array.shape)
            tensors |= {f"{name}.{part}": tensor for part, tensor in split.items()}
    return tensors, sparse


def _needed_version(sparse: Mapping[str, Any], tensors: Mapping[str, Array]) -> int:
    """The oldest format that has what is stored: programs that know no other one read it too."""
    return 2 if any(f"{name}.mask" in tensors for name in sparse) else 1


def _storable(name: str, value: Array) -> Array:
    """The array, little-endian."""
    if not isinstance(name, str) or name == _METADATA or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise _RefusedError(f"an array cannot be called {name!r}: choose another name")
    array = np.asarray(value)
    letters = array.dtype.newbyteorder("<").str
    if letters not in _CODES:
        usable = "bool, integers or floats of 16 to 64 bits (texts go into the header)"
        raise _RefusedError(f"array {name!r} is of type {array.dtype}: use {usable}")
    if array.ndim > _DIMENSIONS:
        raise _RefusedError(f"array {name!r} has {array.ndim} dimensions: use at most {_DIMENSIONS}")
    array = np.asarray(array, dtype=letters)
    if _has_broken_bools(array):
        raise _RefusedError(f"array {name!r} holds truth values other than 0 and 1: convert it with astype(bool)")
    return array


def _split(array: Array, allowance: int) -> dict[str, Array] | None:
    """Places and values of the elements with any bit set, if these are few enough to save room; a list of places only
    if what it grows by is within the allowance."""
    if array.size < _SPARSE_ELEMENTS:
        return None
    bits = _bits(array)
    mask = np.empty(-(-array.size // 8), np.uint8)
    n_set = kernels.mark_nonzeros(bits, mask, _THREADS)
    index_type = np.dtype("<i4" if array.size <= 1 << 31 else "<i8")
    listed = n_set * index_type.itemsize
    affordable = _unaffordable(array.nbytes, listed + n_set * array.itemsize) <= allowance
    by_index = listed <= mask.nbytes and affordable
    places = n_set * index_type.itemsize if by_index else mask.nbytes
    if 10 * n_set >= 4 * array.size or places + n_set * array.itemsize >= array.nbytes:
        return None
    values = np.empty(n_set, bits.dtype)
    kernels.pick_nonzeros(bits, mask, values, _THREADS)
    if not by_index:
        return {"mask": mask, "value": values.view(array.dtype)}
    index = np.empty(n_set, index_type)
    kernels.list_places(mask, index, _THREADS)
    return {"index": index, "value": values.view(array.dtype)}


def _describe(header: dict[str, Any], sparse: dict[str, list[int]], tensors: dict[str, Array]) -> dict[str, str]:
    """The four texts of the file's metadata."""
    if not isinstance(header, dict):
        raise _RefusedError(f"the header is of type {type(header).__name__}: use a dict")
    _check_plain(header, "header", 0)
    try:
        header_text = _canonical(header)
    except ValueError as error:  # an integer too long to be read again
        raise _RefusedError(f"the header is not storable ({error}): use plain values") from None
    sparse_text = _canonical(sparse)
    version = _needed_version(sparse, tensors)
    return {
        "format_version": str(version),
        "steepest": header_text,
        "sparse": sparse_text,
        "checksum": _checksum(version, header_text, sparse_text, tensors),
    }


def _check_plain(value: Any, place: str, depth: int) -> None:
    """Refuse by its place whatever JSON would change silently or not take at all."""
    if depth > _HEADER_DEPTH:
        raise _RefusedError(f"{place} is nested more than {_HEADER_DEPTH} deep: flatten it")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise _RefusedError(f"{place} has the key {key!r}, which is not a text: use str keys")
            _check_plain(item, f"{place}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            if type(item) not in (str, int):  # a million labels should not make a million place names
                _check_plain(item, f"{place}[{number}]", depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _RefusedError(f"{place} is {value}: use None or a finite number")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise _RefusedError(f"{place} is of type {type(value).__name__}: use dict, list, str, int, float, bool or None")


def _layout(tensors: dict[str, Array], metadata: dict[str, str]) -> tuple[bytes, list[str]]:
    """What the file begins with, and the order of the tensors behind it."""
    head: dict[str, Any] = {_METADATA: dict(sorted(metadata.items()))}
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))  # so that all are aligned
    end = 0
    for name in names:
        start, end = end, end + tensors[name].nbytes
        code, shape = _CODES[tensors[name].dtype.str], list(tensors[name].shape)
        head[name] = {"dtype": code, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(math.ceil(len(text) / 8) * 8)
    if len(text) > _HEADER_BYTES:
        raise _RefusedError(
            f"the header takes {len(text)} bytes of at most {_HEADER_BYTES}: move long lists into arrays"
        )
    return len(text).to_bytes(8, "little") + text, names


# Reading: bytes -> checked header -> views; nothing is allocated before its size is checked


def _damaged(what: str) -> NoReturn:
    raise _RefusedError(f"is damaged ({what}): get a fresh copy")


def _map(name: str) -> mmap.mmap | bytes:
    """The whole file: mapped, or fetched if it is elsewhere."""
    try:
        mode = status(name).st_mode
    except FileNotFoundError:
        raise _RefusedError(f"does not exist; {near_file(name)}") from None
    if not stat.S_ISREG(mode):  # to open a pipe would wait for ever
        raise _RefusedError("is not a file, so it is not a steepest model: give the path of a file that steepest saved")
    with open_bytes(name) as file:
        if is_remote(name) and (content := file.read()):
            return content
        if is_remote(name) or not os.fstat(file.fileno()).st_size:
            raise _RefusedError("is empty, so it is not a steepest model: give a file that steepest saved")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _unpack(content: mmap.mmap | bytes, verify: bool) -> tuple[dict[str, Any], dict[str, Array]]:
    head, first = _parse_head(content)
    metadata = _check_metadata(head.pop(_METADATA, None))
    places = _check_places(head, len(content) - first)
    tensors = {name: _view(content, first, place) for name, place in places.items()}
    if verify:
        version = int(metadata["format_version"])
        computed = _checksum(version, metadata["steepest"], metadata["sparse"], tensors)
        if computed != metadata["checksum"]:
            _damaged(f"checksum {metadata['checksum'][:20]!r} in the file, {computed!r} of its content")
    for name, tensor in tensors.items():
        if _has_broken_bools(tensor):
            _damaged(f"tensor {name[:80]!r} holds truth values other than 0 and 1")
    header = _parse(metadata["steepest"], "the steepest header")
    arrays = _restore_sparse(_parse(metadata["sparse"], "the list of sparse arrays"), tensors)
    return header, dict(sorted(arrays.items()))


def _parse_head(content: mmap.mmap | bytes) -> tuple[dict[str, Any], int]:
    """The safetensors header, and the place of the first tensor byte."""
    n_bytes = int.from_bytes(content[:8], "little")
    first = 8 + n_bytes
    try:
        if n_bytes > _HEADER_BYTES:
            _damaged(f"a header of {n_bytes} bytes, of at most {_HEADER_BYTES}")
        if first > len(content):
            _damaged(f"cut short, {len(content)} bytes of at least {first}")
        return _parse(content[8:first], "the file's header"), first
    except _RefusedError:
        if content[8 : 8 + len(_OPENING)] == _OPENING:
            raise
        raise _RefusedError("is not a steepest model: give a file that steepest saved") from None


def _parse(text: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object, strictly: no name twice, no NaN."""
    try:
        letters = text.decode() if isinstance(text, bytes) else text
        value = json.loads(letters, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        _damaged(f"{what} is not valid, {str(error)[:80]}")
    if not isinstance(value, dict):
        _damaged(f"{what} is not an object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _check_metadata(metadata: Any) -> dict[str, str]:
    """The four texts, of a version that this program knows."""
    if not isinstance(metadata, dict) or not metadata.keys() >= {"format_version", "steepest"}:
        raise _RefusedError("is a safetensors file but not a steepest model: give a file that steepest saved")
    if not all(isinstance(text, str) for text in metadata.values()):
        _damaged("metadata that is not a text")
    version = metadata["format_version"]
    if not re.fullmatch("[1-9][0-9]{0,8}", version):
        _damaged(f"format version {version[:20]!r}")
    if int(version) > FORMAT_VERSION:
        raise _RefusedError(
            f"was written by a newer steepest (format {version}, this one reads up to {FORMAT_VERSION}): upgrade"
        )
    if metadata.keys() != _METADATA_KEYS:
        _damaged(f"its metadata has other entries than {', '.join(sorted(_METADATA_KEYS))}")
    return metadata


def _check_places(head: dict[str, Any], n_bytes: int) -> dict[str, _Tensor]:
    """The tensors' places, which must fill the rest of the file without a gap or an overlap."""
    places = {name: _check_place(name, entry) for name, entry in head.items()}
    expected = 0
    for name, place in sorted(places.items(), key=lambda item: item[1][2:]):
        if place.start != expected:
            _damaged(f"tensor {name[:80]!r} starts at byte {place.start}, not at {expected}")
        expected = place.stop
    if expected != n_bytes:
        _damaged(f"{n_bytes} bytes of tensors, {expected} expected")
    return places


def _check_place(name: str, entry: Any) -> _Tensor:
    wrong = f"tensor {name[:80]!r} has an impossible"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _damaged(f"{wrong} description")
    code, offsets = entry["dtype"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _TYPES:
        _damaged(f"{wrong} type")
    n_bytes = _count_bytes(entry["shape"], _TYPES[code], wrong)
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[1] - offsets[0] != n_bytes:
        _damaged(f"{wrong} place")
    return _Tensor(code, tuple(entry["shape"]), *offsets)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def _count_bytes(shape: Any, letters: str, wrong: str) -> int:
    """The bytes of a dense array, once it is sure that NumPy can address it."""
    if not _are_sizes(shape) or len(shape) > _DIMENSIONS:
        _damaged(f"{wrong} shape")
    itemsize = np.dtype(letters).itemsize
    if itemsize * math.prod(max(size, 1) for size in shape) >= 1 << 63:  # NumPy multiplies past a zero, too
        _damaged(f"{wrong} size")
    return int(itemsize * math.prod(shape))


def _view(content: mmap.mmap | bytes, first: int, place: _Tensor) -> Array:
    """The tensor's bytes in the mapped file as an array; read-only, because the map is."""
    dtype = np.dtype(_TYPES[place.code])
    if place.start == place.stop:
        return _frozen(np.empty(place.shape, dtype))
    count = (place.stop - place.start) // dtype.itemsize
    array: Array = np.frombuffer(content, dtype, count, first + place.start).reshape(place.shape)
    # Compiled code needs aligned elements; `write` aligns them, a file from elsewhere may not.
    return array if array.flags.aligned else _frozen(array.copy())


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _restore_sparse(shapes: dict[str, Any], tensors: dict[str, Array]) -> dict[str, Array]:
    """The tensors with each pair of places and values replaced by its dense array."""
    if shapes.keys() & tensors.keys():
        _damaged("an array is stored both dense and sparse")
    arrays, grown = dict(tensors), 0
    for name, shape in shapes.items():
        wrong = f"sparse array {name[:80]!r} has an impossible"
        by_index = f"{name}.index" in arrays
        places, value = arrays.pop(f"{name}.{'index' if by_index else 'mask'}", None), arrays.pop(f"{name}.value", None)
        if places is None or value is None:
            _damaged(f"sparse array {name[:80]!r} lacks its index or mask, or its value")
        dense_bytes = _count_bytes(shape, value.dtype.str, wrong)
        grown += _unaffordable(dense_bytes, places.nbytes + value.nbytes)
        if grown > _SPARSE_ALLOWANCE:
            _damaged(f"{wrong} size, {dense_bytes} bytes from {places.nbytes + value.nbytes}")
        spread = _spread_by_index if by_index else _spread_by_mask
        arrays[name] = _frozen(spread(places, value, shape, wrong))
    return arrays


def _spread_by_index(index: Array, value: Array, shape: list[int], wrong: str) -> Array:
    if index.dtype.str not in ("<i4", "<i8") or index.ndim != 1 or value.shape != index.shape:
        _damaged(f"{wrong} index")
    inside = not index.size or (index[0] >= 0 and index[-1] < math.prod(shape))
    if not inside or not bool(np.all(index[1:] > index[:-1])):
        _damaged(f"{wrong} index")
    dense = np.zeros(shape, value.dtype)
    _bits(dense)[index] = _bits(value)
    return dense


def _spread_by_mask(mask: Array, value: Array, shape: list[int], wrong: str) -> Array:
    size = math.prod(shape)
    if mask.dtype != np.uint8 or mask.shape != (-(-size // 8),) or value.ndim != 1:
        _damaged(f"{wrong} mask")
    dense = np.empty(shape, value.dtype)
    if not kernels.spread_nonzeros(mask, _bits(value), _bits(dense), _THREADS):
        _damaged(f"{wrong} mask")
    return dense
