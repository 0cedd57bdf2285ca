"""What travels between driver and executors: rows of Arrow batches, named arrays as bytes, and answers of shards.

Executors run callables on the Arrow batches of a partition (`mapInArrow`). A block is named arrays as one string of
bytes; an answer is named arrays too, but a row per array, since neither Arrow nor the JVM holds two gigabytes in one
value. pyspark is imported when a function needs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.errors import DataError

ANSWER = "shard int, name string, dtype string, shape string, data binary"
ERROR, MISSING, DONE = "error", "missing", "done"  # names of rows that are not arrays of an answer

Answer = dict[str, Array]


class FilesMissingError(Exception):
    """A task runs where its shard's files are not."""


def partition_number() -> int:
    """The number of the partition that this task works on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def lines_of(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The rows of Arrow batches, one after the other."""
    for batch in batches:
        yield from batch.to_pylist()


def one_row(schema: str, **values: Any) -> Any:
    """One row as an Arrow batch; columns that are not named are null."""
    import pyarrow as pa

    types = {
        "int": pa.int32(),
        "long": pa.int64(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    fields = [tuple(column.split()) for column in schema.split(", ")]
    columns = [pa.array([values.get(name)], types[kind]) for name, kind in fields]
    return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in fields])


# ------------------------------------------------------------------------------------------------------------- answers


def answer_rows(shard: int, answer: Mapping[str, Array]) -> Iterator[Any]:
    """An answer as Arrow batches, the last of which says that it is complete."""
    for name, array in answer.items():
        data = np.ascontiguousarray(array)
        shape = json.dumps(data.shape)
        yield one_row(ANSWER, shard=shard, name=name, dtype=str(data.dtype), shape=shape, data=data.tobytes())
    yield one_row(ANSWER, shard=shard, name=DONE)


def read_answers(lines: Iterable[Mapping[str, Any]]) -> dict[int, Answer]:
    """The complete answers, by shard."""
    found: dict[int, Answer] = {}
    done: set[int] = set()
    for line in lines:
        if line["name"] == ERROR:
            raise DataError(line["dtype"])
        if line["name"] == MISSING:
            raise FilesMissingError
        answer = found.setdefault(line["shard"], {})
        if line["name"] == DONE:
            done.add(line["shard"])
        else:
            shape = json.loads(line["shape"])
            answer[line["name"]] = np.frombuffer(line["data"], line["dtype"], int(np.prod(shape))).reshape(shape)
    return {shard: found[shard] for shard in sorted(done)}


def add_up(parts: Sequence[Mapping[str, Array]]) -> Answer:
    """Arrays of the same name added in order."""
    total = {name: array.copy() for name, array in parts[0].items()}
    for part in parts[1:]:
        for name, array in part.items():
            total[name] += array
    return total


def size_of(answers: Iterable[Mapping[str, Array]]) -> int:
    """Bytes of the numbers in these answers."""
    return sum(array.nbytes for answer in answers for array in answer.values() if array.dtype.kind not in "OU")


def as_text(value: Any) -> Array:
    """Plain values as an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def from_text(array: Array) -> Any:
    """What `as_text` wrote."""
    return json.loads(array.tobytes())


# -------------------------------------------------------------------------------------------------------------- blocks


def to_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Named arrays as one string of bytes: the length of a head, the head, the arrays, all padded to eight bytes."""
    parts = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    head = json.dumps([[name, str(part.dtype), part.shape] for name, part in parts.items()]).encode()
    head += b" " * (-len(head) % 8)
    out: list[Any] = [len(head).to_bytes(8, "little"), head]
    for part in parts.values():
        if part.size:
            out += [part.data.cast("B"), bytes(-part.nbytes % 8)]
    return b"".join(out)


def from_bytes(data: Any) -> dict[str, Array]:
    """The arrays that `to_bytes` wrote, as views."""
    at = 8 + int(np.frombuffer(data, np.int64, 1)[0])
    arrays: dict[str, Array] = {}
    for name, dtype, shape in json.loads(bytes(data[8:at])):
        part: Array = np.frombuffer(data, dtype, int(np.prod(shape)), at).reshape(shape)
        arrays[name] = part
        at += part.nbytes + -part.nbytes % 8
    return arrays


def chunk_arrays(chunk: Chunk) -> dict[str, Array]:
    """The rows of a chunk, whose targets are numbers, as named arrays."""
    whole = chunk.order is None and chunk.indptr[0] == 0 and chunk.indptr[-1] == len(chunk.indices)
    rows = chunk if whole else chunk.packed()
    arrays: Answer = {"indptr": rows.indptr, "indices": rows.indices, "values": rows.values}
    arrays["n_features"] = np.array([rows.n_features])
    for name, part in (("y", rows.y), ("weight", rows.weight)):
        if part is not None:
            arrays[name] = np.asarray(part, np.float64)
    return arrays


def chunk_of(arrays: Mapping[str, Array], labels: Sequence[Any] | None = None) -> Chunk:
    """The rows that `chunk_arrays` took apart; `labels` are those that the targets are the numbers of."""
    y = arrays.get("y")
    if labels is not None and y is not None:
        y = np.asarray(labels)[y.astype(np.int64)]
    n_features = int(arrays["n_features"][0])
    return Chunk(arrays["indptr"], arrays["indices"], arrays["values"], n_features, y, arrays.get("weight"))
