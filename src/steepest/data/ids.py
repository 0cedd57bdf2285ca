"""Ids of any type and their codes 0, 1, 2, ...: the order of first sight, so that codes never depend on chunks.

Whole numbers, also those a table made floats of, are one kind of id, texts another; everything else that can be a key
of a dict is a third. A kind that meets another becomes the third: 1 and "1" are then two ids. None and NaN are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import DataError

# Numbers that lie closer together than this many places per id are looked up in a table, others by bisection.
_TABLE_SHARE = 16
_TABLE_LEAST = 1 << 16


def as_ids(values: Any, what: str = "id") -> Array:
    """Ids as int64, as texts (type U), or as objects; a missing one is an error that names its row."""
    ids = _as_objects(values) if isinstance(values, list | tuple) else np.asarray(values)
    if ids.ndim != 1:
        raise DataError(f"the {what}s have shape {ids.shape}; give one id per row")
    if ids.dtype.kind in "iu" and ids.dtype != np.uint64:
        return np.ascontiguousarray(ids, np.int64)
    if ids.dtype.kind == "b":
        return ids.astype(np.int64)
    if ids.dtype.kind == "f":
        return _whole_numbers(ids, what)
    if ids.dtype.kind == "U":
        return ids
    return _objects(ids, what)


def _whole_numbers(ids: Array, what: str) -> Array:
    if not np.isfinite(ids).all():
        row = int(np.flatnonzero(~np.isfinite(ids))[0])
        raise DataError(f"the {what} of row {row} is {ids[row]}; drop rows without an id, or name them")
    whole = ids == np.floor(ids)
    if whole.all() and np.abs(ids).max(initial=0) < 2**53:
        return ids.astype(np.int64)
    return ids.astype(object)


def _objects(ids: Array, what: str) -> Array:
    listed = [value.item() if isinstance(value, np.generic) else value for value in ids.tolist()]
    for row, value in enumerate(listed):
        if value is None or (isinstance(value, float) and math.isnan(value)) or repr(value) in ("NaT", "<NA>"):
            raise DataError(f"the {what} of row {row} is {value!r}; drop rows without an id, or name them")
    kinds = set(map(type, listed))
    if kinds <= {int, bool} and all(-(2**63) <= value < 2**63 for value in listed):
        return np.array(listed, np.int64)
    if kinds == {str}:
        return np.array(listed, np.str_) if max(map(len, listed)) <= 256 else _as_objects(listed)
    if kinds == {bytes}:
        return np.array([value.decode("utf-8", "backslashreplace") for value in listed], np.str_)
    try:
        hash(tuple(listed))
    except TypeError:
        row = next(row for row, value in enumerate(listed) if not _is_hashable(value))
        raise DataError(f"the {what} of row {row}, {listed[row]!r}, cannot be an id; give numbers or texts") from None
    return _as_objects(listed)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _as_objects(listed: Iterable[Any]) -> Array:
    listed = list(listed)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array


class IdBook:
    """All ids seen so far; `ids[code]` is the id of a code."""

    def __init__(self, ids: Array | None = None) -> None:
        self.ids: Array = np.zeros(0, np.int64) if ids is None else ids
        self._index: Any = None  # of numbers
        self._codes: dict[Any, int] | None = None  # of anything

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def kind(self) -> str:
        """What ids are: "number", "text" or "mixed"; an empty book takes any."""
        return {"i": "number", "U": "text"}.get(self.ids.dtype.kind, "mixed")

    def copy(self) -> IdBook:
        """A book that grows on its own."""
        return IdBook(self.ids)

    def codes(self, ids: Array, *, learn: bool = False) -> Array:
        """The codes (int32) of ids that `as_ids` has made; unknown ones are -1, or get the next codes if `learn`."""
        if len(ids) == 0:
            return np.zeros(0, np.int32)
        if len(self) and ids.dtype.kind != self.ids.dtype.kind and (learn or self.kind == "mixed"):
            self._mix()
        if self.kind == "mixed" or ids.dtype.kind == "O":
            return self._by_hash(ids, learn)
        if ids.dtype.kind == "i":
            return self._by_number(ids, learn)
        return self._by_text(ids, learn)

    def id_of(self, text: str) -> Any:
        """The id that a word on the command line means."""
        if self.kind == "text":
            return text
        try:
            number = int(text)
        except ValueError:
            return text
        return number if self.kind == "number" or number in self._dictionary() else text

    def _mix(self) -> None:
        if self.kind != "mixed":
            self.ids, self._index = _as_objects(self.ids.tolist()), None  # equal keys stay equal

    def _append(self, new: Array) -> None:
        if len(self) == 0:
            self.ids = new
        else:
            self.ids = np.concatenate([self.ids, new])
        if len(self) > np.iinfo(np.int32).max:
            raise DataError(f"there are more than {np.iinfo(np.int32).max} different ids; that is too many")
        self._index = self._codes = None

    def _by_number(self, ids: Array, learn: bool) -> Array:
        if len(self) and self.kind != "number":  # numbers asked of a book of texts
            return np.full(len(ids), -1, np.int32)
        codes = self._number_codes(ids)
        unknown = codes < 0
        if learn and unknown.any():
            self._append(_first_seen(ids[unknown]))
            codes = self._number_codes(ids)
        return codes

    def _number_codes(self, ids: Array) -> Array:
        if len(self) == 0:
            return np.full(len(ids), -1, np.int32)
        if self._index is None:
            self._index = _number_index(self.ids)
        low, table, order = self._index
        if order is None:
            place = ids - low
            inside = (place >= 0) & (place < len(table)) & (ids >= low)
            return np.where(inside, table[np.where(inside, place, 0)], np.int32(-1)).astype(np.int32)
        place = np.minimum(np.searchsorted(table, ids), len(table) - 1)
        return np.where(table[place] == ids, order[place], -1).astype(np.int32)

    def _by_text(self, ids: Array, learn: bool) -> Array:
        distinct, inverse = np.unique(ids, return_inverse=True)
        codes = self._look_up(distinct.tolist())
        if learn and (codes < 0).any():
            self._append(_first_seen(ids[codes[inverse] < 0]))
            codes = self._look_up(distinct.tolist())
        return np.asarray(codes[inverse])

    def _by_hash(self, ids: Array, learn: bool) -> Array:
        listed = ids.tolist()
        if learn:
            self._mix()
            index = self._dictionary()
            new = [value for value in dict.fromkeys(listed) if value not in index]
            if new:
                index.update(zip(new, range(len(self), len(self) + len(new)), strict=True))
                self.ids = np.concatenate([_as_objects(self.ids.tolist()), _as_objects(new)])
        return self._look_up(listed)

    def _look_up(self, listed: list[Any]) -> Array:
        index = self._dictionary()
        return np.fromiter((index.get(value, -1) for value in listed), np.int32, len(listed))

    def _dictionary(self) -> dict[Any, int]:
        if self._codes is None:
            self._codes = {value: code for code, value in enumerate(self.ids.tolist())}
        return self._codes

    # ---------------------------------------------------------------------------------------------------- files

    def as_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(plain values, arrays) for a file: numbers as they are, texts as bytes and where each ends."""
        if self.kind == "number":
            return {"kind": "number"}, {"numbers": self.ids}
        if self.kind == "text":
            parts = [text.encode("utf-8", "surrogatepass") for text in self.ids.tolist()]
            ends = np.cumsum([len(part) for part in parts], dtype=np.int64) if parts else np.zeros(0, np.int64)
            return {"kind": "text"}, {"bytes": np.frombuffer(b"".join(parts), np.uint8), "ends": ends}
        for value in self.ids.tolist():
            if type(value) not in (int, str, float, bool):
                raise DataError(
                    f"the id {value!r} is a {type(value).__name__}, which a model file cannot hold; "
                    "make texts or whole numbers of the ids before fitting"
                )
        return {"kind": "mixed", "ids": self.ids.tolist()}, {}

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Array]) -> IdBook:
        """The book that `as_arrays` took apart."""
        if header["kind"] == "number":
            return cls(np.asarray(arrays["numbers"]))
        if header["kind"] == "mixed":
            return cls(_as_objects(header["ids"]))
        data, ends = arrays["bytes"].tobytes(), arrays["ends"].tolist()
        texts = [
            data[start:end].decode("utf-8", "surrogatepass") for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        return cls(np.array(texts, np.str_))


def _first_seen(ids: Array) -> Array:
    """Each different id once, in the order of first sight."""
    if ids.dtype.kind == "i" and len(ids) and int(ids.max()) - int(ids.min()) < _TABLE_SHARE * len(ids) + _TABLE_LEAST:
        # The last write to a place wins, so writing backwards leaves the first.
        first = np.full(int(ids.max()) - int(ids.min()) + 1, -1, np.int64)
        first[ids[::-1] - ids.min()] = np.arange(len(ids))[::-1]
        return np.asarray(ids[np.sort(first[first >= 0])])
    _, first = np.unique(ids, return_index=True)
    return np.asarray(ids[np.sort(first)])


def _number_index(ids: Array) -> tuple[int, Array, Array | None]:
    low, high = int(ids.min()), int(ids.max())
    if high - low < _TABLE_SHARE * len(ids) + _TABLE_LEAST:
        table = np.full(high - low + 1, -1, np.int32)
        table[ids - low] = np.arange(len(ids), dtype=np.int32)
        return low, table, None
    order = np.argsort(ids, kind="stable")
    return low, ids[order], order.astype(np.int32)
