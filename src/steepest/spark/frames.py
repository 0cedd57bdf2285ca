"""What `fit_spark` was asked for, and what its parts need from Spark: a lasting order, a state to ship, rows to get."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from steepest.spark.checkpoints import RoundCheckpoints
from steepest.spark.rows import check_columns
from steepest.spark.sessions import in_plain_words

BLOBS_AT_ONCE = 8  # that Spark hands over in one Arrow batch, which holds at most two gigabytes


@dataclass(frozen=True, slots=True)
class FitOptions:
    """What `fit_spark` was asked for; its docstring says what each option does."""

    features: str | Sequence[str] | None = None
    label: str | None = None
    weight: str | None = None
    order_by: str | Sequence[str] | None = None
    n_features: int | None = None
    n_shards: int | None = None
    method: str | None = None
    rounds: int | None = None
    barrier: bool = False
    checkpoints: RoundCheckpoints | None = None


class Input(NamedTuple):
    """A DataFrame, the column that names the file of each row, and whether rows are lines of libsvm."""

    frame: Any
    place: str | None = None
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """A state that travels with the function, where there is no broadcast."""

    value: Any

    def destroy(self) -> None:
        """Does nothing: the state is stored nowhere else."""


def ship(session: Any, state: Any) -> Any:
    """The state as a broadcast, or, over Spark Connect, in the function itself."""
    return Carried(state) if is_connect(session) else session.sparkContext.broadcast(state)


def is_connect(session: Any) -> bool:
    """Whether the driver's JVM is elsewhere."""
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


def mapped(frame: Any, call: Callable[[Iterator[Any]], Iterable[Any]], schema: Any, **options: Any) -> Any:
    """The frame that a callable makes of the Arrow batches of each partition."""

    def work(batches: Iterator[Any]) -> Iterable[Any]:  # pyspark takes plain functions only
        return call(batches)

    return frame.mapInArrow(work, schema, **options)


def on_one_machine(session: Any) -> bool:
    """Whether driver and executors are one process, so that all see the same files."""
    return not is_connect(session) and re.match(r"local(\[|$)", session.sparkContext.master) is not None


def canonical(
    frame: Any, names: Sequence[str], n_shards: int, order_by: str | Sequence[str] | None = None
) -> tuple[Any, str]:
    """(the DataFrame in canonical order, why that one); see shards.py."""
    from pyspark.sql import functions

    content = functions.xxhash64(*names)
    if order_by is not None:
        keys = [order_by] if isinstance(order_by, str) else list(order_by)
        check_columns(dict(frame.dtypes), [("order_by", key) for key in keys])
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


def with_plain_vectors(frame: Any) -> Any:
    """The frame with MLlib vector columns as their plain structs, in which dense vectors have no nulls.

    Their size and places are null, and Spark takes four times as long to write a null array to Arrow as an empty one.
    """
    from pyspark.sql import functions

    if is_connect(frame.sparkSession) or not hasattr(functions, "unwrap_udt"):
        return frame
    for name in [name for name, kind in frame.dtypes if kind == "vector"]:
        plain = functions.unwrap_udt(functions.col(f"`{name}`"))
        fields = [
            plain["type"].alias("type"),
            functions.coalesce(plain["size"], functions.lit(0)).alias("size"),
            functions.coalesce(plain["indices"], functions.array().cast("array<int>")).alias("indices"),
            plain["values"].alias("values"),
        ]
        frame = frame.withColumn(name, functions.when(plain.isNotNull(), functions.struct(*fields)))
    return frame
