"""`export_model`: describes a model, makes its numbers smaller if asked to, checks the result, and writes one file.

Before anything is written, the rows of the test are answered by the plain Python runtime and by the model itself; an
export that disagrees with its model is never written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from steepest import atomic
from steepest.data.chunk import Array, Chunk
from steepest.data.raw import RowEncoder, encoded, first_columns, is_raw
from steepest.data.source import Source
from steepest.data.tables.columns import CATEGORY, LIST, NUMBER, plain_values, read_table
from steepest.errors import DataError, ParameterError
from steepest.export import runtime
from steepest.export.c_file import TestRow, c_source, table_bytes
from steepest.export.describe import Column, Description, FactorPairs, Scores, describe
from steepest.export.pack import PRECISIONS, Packed, pack_table, reduce_scores
from steepest.export.python_file import plain, python_source
from steepest.features.hasher import Hasher
from steepest.features.written import COMPACT, EPOCH, EPOCH_MS
from steepest.parameters import choice, whole

TARGETS = ("c", "python", "onnx")
TEST_ROWS = 12
# Relative to the sizes of what is added up: the kernels add 32-bit numbers, the export 64-bit ones. Of large terms that
# cancel, such as two columns that say almost the same, nothing else can be asked.
CLOSE = 1e-5
SHARES = (0.5, 0.1)  # of the features, in the table of what smaller files cost
PHRASES = (
    "The quick brown fox, and 42 more words_of ONE text!",
    "",
    "naïve café Ünïcödé ǅ ΣΊΣΥΦΟΣ Привет МИР",
    "漢字かな交じり文 and latin",
    "soft\u00adhyphen zero\u200dwidth ﬁn İstanbul ß ẞ",
    "a a a a b b very very very long repeated repeated words",
    "averyveryverylongwordwithoutanyspacesatallthatisbeyondfortyeightbytes 0123456789abcdef",
)


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: bytes of the file and of its tables, and what smaller numbers cost on the rows of a check."""

    path: str
    file_bytes: int
    table_bytes: int
    rows: int
    costs: tuple[dict[str, Any], ...] = ()


def export_model(
    model: Any,
    path: str | Path,
    *,
    to: str = "c",
    precision: str = "float32",
    keep: int | None = None,
    name: str = "steepest",
    check: Source | None = None,
) -> Exported:
    """Writes a fitted model as one C99 file, one Python file without dependencies, or ONNX.

    Parameters
    ----------
    model : LinearClassifier, LinearRegressor, TextClassifier or MatrixFactorization
    path : file to write
    to : {"c", "python", "onnx"}
        Format of the file. An ONNX model reads rows that are already hashed: their indices and values.
    precision : {"float32", "float16", "int8"}
        How weights are stored.
    keep : int, optional
        Number of features to keep: those with the largest weights.
    name : str
        Prefix of the names of the C functions, so that a program can contain several models.
    check : Source, optional
        Labelled rows on which the cost of each precision is measured. The first ones are used by the test in the file.

    Examples
    --------
    >>> import steepest as st, tempfile, os
    >>> model = st.LinearRegressor(random_state=0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.c")
    >>> st.export_model(model, path).rows
    1
    """
    choice("to", to, TARGETS)
    choice("precision", precision, PRECISIONS)
    if keep is not None:
        whole("keep", keep, 1)
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        raise ParameterError(f"name={name!r} cannot begin the names of C functions; use letters, digits and _")
    given = describe(model)
    reduced, packed = reduced_model(given, precision, keep)
    rows = verified(model, reduced, exact=precision == "float32" and keep is None, check=check)
    costs = () if check is None or isinstance(given, FactorPairs) else tuple(measure_costs(model, given, check, keep))
    heading = f"A {given.title} exported by steepest to predict without it."
    if to == "onnx":
        from steepest.export.onnx_file import onnx_bytes

        content = onnx_bytes(reduced)
    elif to == "python":
        content = python_source(reduced, heading).encode()
    else:
        text = c_source(reduced, packed, rows, heading)
        content = text.replace("steepest_", f"{name}_").encode()
    with atomic.writing(path, error=DataError) as file:
        file.write(content)
    n = len(reduced.users) + len(reduced.items) if isinstance(reduced, FactorPairs) else len(reduced.features)
    return Exported(str(path), len(content), size_of(reduced, packed), n, costs)


def reduced_model(model: Description, precision: str, keep: int | None) -> tuple[Description, list[Packed]]:
    """Returns (the model that the export computes, its packed tables)."""
    if isinstance(model, FactorPairs):
        if keep is not None:
            raise ParameterError(f"keep={keep} is for features; a factor model needs all of its users and items")
        tables = [pack_table(table, precision) for table in (model.users, model.items)]
        return replace(model, users=tables[0].restored, items=tables[1].restored), tables
    reduced, packed = reduce_scores(model, precision, keep)
    return reduced, [packed]


def size_of(model: Description, packed: Sequence[Packed]) -> int:
    """Returns the bytes of the tables."""
    if isinstance(model, FactorPairs):
        return sum(table.n_bytes for table in packed)
    return table_bytes(model, packed[0])


# ----------------------------------------------------------------------------------------------------- test rows


def verified(model: Any, reduced: Description, *, exact: bool, check: Source | None) -> list[TestRow]:
    """Returns test rows with the scores of the plain runtime, compared with the model's own unless it was rounded."""
    if isinstance(reduced, FactorPairs):
        return _verified_pairs(model, reduced, exact)
    scorer = runtime.Scorer(plain(reduced))
    given = sample_rows(reduced, check)
    rows = [TestRow(row, tuple(scorer.scores(row)), 0.0) for row in given]
    if exact and rows:
        own = np.asarray(model_scores(model, reduced, given)).reshape(len(rows), -1)
        found = np.array([row.scores for row in rows])
        sizes = np.array([scorer.size(row) for row in given])[:, None]
        off = np.abs(found - own) / (1 + np.abs(own) + sizes)
        if not (off <= CLOSE).all():
            worst = int(off.max(axis=1).argmax())
            raise DataError(
                f"the export gives {found[worst]} where the model gives {own[worst]} for {given[worst]!r}; "
                "nothing was written: please report it"
            )
    return rows


def model_scores(model: Any, reduced: Scores, given: Sequence[Any]) -> Array:
    """Returns the model's own scores of raw rows or of {feature: value}."""
    X: Any = list(given)
    if reduced.head is not None:  # the decision function has one column for two classes
        learner = model.learner_
        order = slice(None) if reduced.several else learner.book.sorted_labels()[1]
        return np.asarray(learner.scores(model.hasher_.to_chunk(X))[:, order], np.float64)
    if reduced.hashing is None:
        X = np.zeros((len(given), reduced.n_features), np.float32)
        for number, row in enumerate(given):
            for j, x in row.items():
                X[number, j] = x
    if reduced.classes is None:
        means = np.asarray(model.predict(X), np.float64)
        return np.log(means) if reduced.link == "exp" else means
    return np.asarray(model.decision_function(X), np.float64)


def sample_rows(model: Scores, check: Source | None) -> list[Any]:
    """Returns rows to test with: the first ones of the data given, and some that are made up."""
    rng = np.random.default_rng(0)
    made: list[Any] = []
    if model.hashing is None:
        n = max(1, min(6, len(model.features)))
        for _ in range(TEST_ROWS if len(model.features) else 0):
            chosen = np.sort(rng.choice(model.features, n, replace=False)).tolist()
            made.append({int(j): float(np.float32(rng.standard_normal())) for j in chosen})
        return [*made, {}]
    inputs = model.hashing.inputs
    for k in range(TEST_ROWS):
        made.append({column.origin: _made_up(column, k + place, rng) for place, column in enumerate(inputs)})
    if len(inputs) == 1 and not inputs[0].origin:
        made = [row[""] for row in made]
    return [*_first_rows(model, check), *made]


def _made_up(column: Column, k: int, rng: np.random.Generator) -> Any:
    """Returns a value of a column: the example, a strange one, or none."""
    if k % 5 == 4:
        return None
    if column.part:
        seconds = int(rng.integers(-(10**9), 4 * 10**9))
        shown = str(np.datetime64(seconds, "s"))
        numbers = {EPOCH: seconds, EPOCH_MS: 1000 * seconds, COMPACT: shown[:10].replace("-", "")}
        return numbers.get(column.format, shown)
    if column.kind == NUMBER:
        if column.knots and k % 3 == 0:
            return column.knots[int(rng.integers(len(column.knots)))]
        return 0.0 if k % 4 == 2 else float(f"{column.centre + 2 * column.scale * rng.standard_normal():.6g}")
    phrase = PHRASES[k % len(PHRASES)]
    if column.kind == LIST:
        return [column.example, phrase, "17"][: k % 4] if k % 2 else f"{phrase}{column.separators[0]} {column.example}"
    return column.example if column.kind == CATEGORY and k % 2 else phrase


def _first_rows(model: Scores, check: Source | None) -> list[Any]:
    """The first raw rows of a source."""
    if check is None or not is_raw(check) or (found := first_columns(check)) is None:
        return []
    assert model.hashing is not None
    names = [column.origin for column in model.hashing.inputs]
    columns = {name: plain_values(column)[: TEST_ROWS // 2] for name, column in read_table(found).columns.items()}
    if names == [""] and len(columns) == 1:
        return next(iter(columns.values()))
    if set(names) <= set(columns):
        parts = zip(*(columns[name] for name in names), strict=True)
        return [dict(zip(names, values, strict=True)) for values in parts]
    return []


def _verified_pairs(model: Any, reduced: FactorPairs, exact: bool) -> list[TestRow]:
    factors = runtime.Factors(plain(reduced))
    rng = np.random.default_rng(0)
    users, items = reduced.user_ids, reduced.item_ids
    pairs = [(users[rng.integers(len(users))], items[rng.integers(len(items))]) for _ in range(TEST_ROWS)]
    strange = ("an unknown id" if isinstance(users[0], str) else -(2**40), items[0])
    pairs.append(strange)
    rows = [TestRow(pair, (), factors.predict(*pair)) for pair in pairs]
    if exact:
        own = model.predict(pairs)
        found = np.array([row.answer for row in rows])
        if not (np.abs(found - own) <= CLOSE * (1 + np.abs(own))).all():
            raise DataError("the export disagrees with the model; nothing was written: please report it")
    return rows


# ----------------------------------------------------------------------------------------------- what it costs


def measure_costs(model: Any, given: Scores, check: Source, keep: int | None) -> list[dict[str, Any]]:
    """Returns bytes and quality on labelled rows for each precision, with all features and with fewer."""
    n = len(given.features)
    choices: list[tuple[str, int | None]] = [(precision, None) for precision in PRECISIONS]
    kept = sorted({max(1, round(n * share)) for share in SHARES} | ({keep} if keep else set()), reverse=True)
    choices += [("int8", k) for k in kept if k < n]
    found = []
    for precision, limit in choices:
        reduced, packed = reduce_scores(given, precision, limit)
        measures = measure(model, reduced, check)
        size = table_bytes(reduced, packed)
        found.append({"precision": precision, "features": len(reduced.features), "bytes": size, **measures})
    return found


def measure(model: Any, reduced: Scores, check: Source) -> dict[str, float]:
    """Returns the accuracy, or the root mean squared error, of what an export computes."""
    rows = right = 0.0
    square = 0.0
    table = np.zeros((reduced.n_features, reduced.width), np.float32)
    table[reduced.features] = reduced.rows
    for chunk in _hashed(model, reduced, check):
        if chunk.y is None:
            raise DataError("the rows to check on have no labels; name their column")
        scores = chunk_scores(reduced, table, chunk)
        y = chunk.visited(chunk.y)
        rows += len(y)
        if reduced.classes is None:
            values = np.exp(scores) if reduced.link == "exp" else scores
            square += float(((values.reshape(y.shape) - y) ** 2).sum())
        elif reduced.several:
            right += float(((scores > 0) == (y > 0)).all(axis=1).sum())
        else:
            best = (scores[:, 0] > 0).astype(np.int64) if reduced.n_scores == 1 else scores.argmax(axis=1)
            right += float((np.array(reduced.classes, object)[best] == y.astype(object)).sum())
    if not rows:
        raise DataError("there are no rows to check on")
    return {"rmse": float(np.sqrt(square / rows))} if reduced.classes is None else {"accuracy": right / rows}


def _hashed(model: Any, reduced: Scores, check: Source) -> Source:
    """Returns the rows as the export sees them: with its own counts."""
    if reduced.hashing is None or not is_raw(check):
        return model.hashed(check, learn=False)  # type: ignore[no-any-return]
    header, arrays = model.hasher_.state()
    if reduced.counts is not None:
        counts = np.full(reduced.n_features, reduced.default_count, np.uint32)
        counts[reduced.features] = reduced.counts
        arrays = {**arrays, "document_counts": counts}
    hasher = Hasher.from_state(header, arrays)
    return encoded(check, RowEncoder(hasher, False), hasher.signature())


def chunk_scores(model: Scores, table: Array, chunk: Chunk) -> Array:
    """Returns scores of hashed rows, by NumPy."""
    rows = chunk.packed()
    indices, values = rows.indices, rows.values.astype(np.float64)
    known = indices < len(table)
    indices, values = np.where(known, indices, 0), np.where(known, values, 0.0)
    lengths = np.diff(rows.indptr)
    owner = np.repeat(np.arange(rows.n_rows), lengths)
    sums = np.empty((rows.n_rows, model.width))
    for k in range(model.width):
        sums[:, k] = np.bincount(owner, values * table[indices, k], rows.n_rows)
    if model.head is None:
        return np.asarray(sums + model.bias)
    assert model.end is not None
    mass = 1 + np.bincount(owner, np.abs(rows.values), rows.n_rows)
    return np.asarray((sums + model.end) / mass[:, None] @ model.head.T.astype(np.float64))
