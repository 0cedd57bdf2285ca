"""What the parts of this package ask of Spark itself: an order that stays, a state to take along, rows to collect."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from steepest.data.chunk import DataError
from steepest.spark.errors import in_plain_words

BLOBS_AT_ONCE = 8  # that Spark hands over in one Arrow batch, which holds at most two gigabytes


@dataclass(frozen=True, slots=True)
class Carried:
    """A state that travels with the function, where there is no broadcast."""

    value: Any


def ship(session: Any, state: Any) -> Any:
    """The state as a broadcast, or, over Spark Connect, in the function itself."""
    if is_connect(session):
        return Carried(state)
    return session.sparkContext.broadcast(state)


def is_connect(session: Any) -> bool:
    """Whether there is no JVM at hand."""
    return "connect" in type(session).__module__


def by_number(frame: Any, n: int, expression: str) -> Any:
    """Partition k gets the rows with number k; before Spark 4.1 some partitions may get several numbers."""
    from pyspark.sql import functions

    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(n, functions.expr(expression))
    return frame.repartition(n, functions.expr(expression))


def collect(session: Any, frame: Any, *, blobs: bool = True) -> Any:
    """The rows as an Arrow table; errors in the words of this package."""
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = session.conf.get(key, None)
    try:
        if blobs:
            session.conf.set(key, str(BLOBS_AT_ONCE))
        return frame.toArrow()
    except Exception as error:
        raise in_plain_words(error) from None
    finally:
        if blobs:
            session.conf.unset(key) if before is None else session.conf.set(key, before)


def function_of(call: Callable[[Iterator[Any]], Iterable[Any]]) -> Callable[[Iterator[Any]], Iterable[Any]]:
    """A plain function, as pyspark wants it."""

    def work(batches: Iterator[Any]) -> Iterable[Any]:
        return call(batches)

    return work


def on_one_machine(session: Any) -> bool:
    """Whether driver and executors are one process, so that all see the same files."""
    return not is_connect(session) and re.match(r"local(\[|$)", session.sparkContext.master) is not None


def canonical(
    frame: Any, names: Sequence[str], n_shards: int, order_by: str | Sequence[str] | None = None
) -> tuple[Any, str]:
    """(the DataFrame in canonical order, why that); see the module's docstring."""
    from pyspark.sql import functions

    content = functions.xxhash64(*names)
    if order_by is not None:
        keys = [order_by] if isinstance(order_by, str) else list(order_by)
        for key in keys:
            if key not in frame.columns:
                raise DataError(f"order_by={key!r} is no column; the DataFrame has {', '.join(frame.columns)}")
        return frame.orderBy(*keys, content), f"rows in the order of {', '.join(keys)}"
    if not _has_exchange(frame):
        return frame, "rows in the order of the DataFrame"
    ordered = frame.repartition(n_shards, content).sortWithinPartitions(content)
    return ordered, "rows in the order of their content: the DataFrame's own is another one each time; see order_by"


def _has_exchange(frame: Any) -> bool:
    """Whether rows are shuffled on their way, after which they come in no certain order."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain()
    return "Exchange" in out.getvalue()


def without_nulls_inside(frame: Any, name: str) -> Any:
    """The frame with an MLlib vector column as its plain struct, in which dense vectors have no nulls.

    Their size and places are null, and Spark takes four times as long to write a null array to Arrow as an empty one.
    """
    from pyspark.sql import functions

    if is_connect(frame.sparkSession) or not hasattr(functions, "unwrap_udt"):
        return frame
    plain = functions.unwrap_udt(functions.col(f"`{name}`"))
    fields = [
        plain["type"].alias("type"),
        functions.coalesce(plain["size"], functions.lit(0)).alias("size"),
        functions.coalesce(plain["indices"], functions.array().cast("array<int>")).alias("indices"),
        plain["values"].alias("values"),
    ]
    return frame.withColumn(name, functions.when(plain.isNotNull(), functions.struct(*fields)))
