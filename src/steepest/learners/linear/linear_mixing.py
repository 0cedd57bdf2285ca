"""Parameter mixing of linear models: what a shard's learner has changed, and how the common state takes it in.

**Shares.** A shard pulls a weight towards where its rows want it, and comes by 1 - exp(-u) of the way in a round, where
u is its step size times the curvature that its rows have in this weight. All S shards one after the other would have
come by 1 - exp(-S u), so the mean of their changes lacks a factor (1 - exp(-S u)) / (1 - exp(-u)), the gain: S for a
feature so rare that no shard has finished with it, one for a feature that every shard knows. A factor per feature moves
no fixed point: where the mean of the changes is zero, so is the mixture's change.
Curvature is shared with the other features of a row. If they have nothing in common it is the sum of x_j^2; if all n of
them pull together it is n times that, for entries of like size. Rows are between the two: the root of n is taken.
By the same factor the clock goes on: where nothing is gained on the mean it has the noise of S rows per step, and steps
need to fall by the rows of one shard only; where all is summed up, by those of all.
The adaptive solvers keep sums of squares that lower their steps by themselves, and one clock for the penalty of all
features: they take the plain mean, which was measured to be better.

**Units.** Late iterates weigh so much in an average that the unit of their sums grows with time (see schedules.h).
Changes of sums are given in the unit of the common state, which a shard may have left behind; those that wait to be
sent are kept without a unit, since the next round may have another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.learners.base import Delta, Residual
from steepest.learners.linear.linear_settings import CLOCK, WIDE

PIECE_ROWS = 1 << 10  # visited together, so that they stay in the cache; sums are the same for any number
LEAST_PULL = 1e-12
TOP_SHARE = 0.1  # of the entries that moved, sent by "topk"
Share = Array | float  # of a shard: for each feature, or the same for all


# -------------------------------------------------------------------------------------------------------------- shares


def gather_evidence(chunks: Iterable[Chunk], n_features: int) -> Array:
    """How strongly a shard's rows pull at each feature's weight, for a step size and a curvature of one.

    Rows are added one after the other, so that it does not matter how they are cut into chunks.
    """
    pull = np.zeros(n_features)
    for chunk in chunks:
        pull = np.pad(pull, (0, max(0, chunk.n_features - len(pull))))
        for start in range(0, chunk.n_rows, PIECE_ROWS):
            rows = chunk.span(start, min(chunk.n_rows, start + PIECE_ROWS)).packed()
            lengths = np.diff(rows.indptr)
            of_row = np.sqrt(lengths) if rows.weight is None else np.sqrt(lengths) * rows.weight
            parts = rows.values.astype(np.float64)
            parts *= parts
            parts *= np.repeat(of_row, lengths)
            np.add.at(pull, rows.indices.astype(np.intp), parts)
    return pull[:n_features]


def shares_by_rows(rows: Sequence[int], evidence: Sequence[Array] | None = None) -> list[Share]:
    """The weight of each shard in a mean: by its rows, or for each feature by its evidence, if any shard has some."""
    total = max(1, sum(rows))
    uniform = [n / total for n in rows]
    if evidence is None:
        return list(uniform)
    seen = sum(evidence, np.zeros_like(evidence[0]))
    safe = np.where(seen > 0, seen, 1.0)
    return [np.where(seen > 0, own / safe, part) for own, part in zip(evidence, uniform, strict=True)]


def gains(pull: Array, n_shards: int) -> Array:
    """The factor, from 1 to the number of shards, by which the mean change of each feature is multiplied.

    `pull` is the u of one shard in the round: its step size times the curvature of its rows.
    """
    u = np.maximum(pull, LEAST_PULL)
    return np.asarray(np.expm1(-n_shards * u) / np.expm1(-u))


def mean_gain(gain: Array, evidence: Array) -> float:
    """The mean gain, weighted by how strongly rows pull at each feature."""
    total = float(evidence.sum())
    return float((gain * evidence).sum()) / total if total > 0 and math.isfinite(total) else 1.0


# ------------------------------------------------------------------------------------------------------------- changes


def change_since(
    base: Mapping[str, Array], own: Mapping[str, Array], average: str, how: str, residual: Residual
) -> tuple[Delta, Residual]:
    """(what a shard sends of its changes since the common state, the residual that is left to send)."""
    delta, left = Delta(), {}
    unit = _unit(base, average)
    stretch = _unit(own, average) / unit
    for name in WIDE:
        if name not in own:
            continue
        table, in_units = base[name], unit if name == "average" else 1.0
        change = own[name][: len(table)].astype(np.float64) * (stretch if name == "average" else 1.0) - table
        # What is not sent shall leave the average as it is, so that its sum must grow with all the others.
        expected = table * _growth(base, own, stretch) if name == "average" and how == "topk" else 0.0
        change -= expected
        if name in residual:
            change += residual[name] / in_units
        sent, n_bytes = compress(change, how, own[name].itemsize)
        if how in ("topk", "float16"):
            left[name] = (change - sent) * in_units
        delta.changes[name] = sent + expected
        delta.n_bytes += n_bytes
    delta.values = {name: array for name, array in own.items() if name not in WIDE and name != "shrunk"}
    delta.values["clock"] = _stretched(own["clock"], stretch)
    delta.n_bytes += sum(array.nbytes for array in delta.values.values())
    return delta, left


def compress(change: Array, how: str, itemsize: int) -> tuple[Array, int]:
    """(the change as it arrives, its bytes); a sparse entry takes four more bytes for its index."""
    if how == "full":
        return change, change.size * itemsize
    if how == "float16":
        largest = float(np.abs(change).max(initial=0.0)) or 1.0  # travels along; the others are parts of it
        return (change / largest).astype(np.float16).astype(np.float64) * largest, change.size * 2 + 8
    moved = np.flatnonzero(change)
    if how == "delta":  # whichever is shorter: the entries that moved and their places, or all
        return change, min(len(moved) * (itemsize + 4), change.size * itemsize)
    flat, k = change.ravel(), max(1, math.ceil(TOP_SHARE * len(moved)))
    order = np.lexsort((moved, -np.abs(flat[moved])))[:k]
    sent = np.zeros(change.shape)
    sent.ravel()[moved[order]] = flat[moved[order]]
    return sent, k * (itemsize + 4)


def send_back(
    common: Mapping[str, Array], sent: Mapping[str, Array] | None, average: str, how: str
) -> tuple[dict[str, Array], int]:
    """(tables that shards have afterwards, bytes of one message) when the common state is sent to them.

    `sent` are the arrays that they have from the last time, None at first. Tables go as what shards send does: as they
    are under "full", and else as changes of what shards have. Only two are not exact: halves of "float16", and the
    average under "topk". What they leave out is in the next difference, and goes then. The small arrays go as they are.
    """
    n_bytes = sum(array.nbytes for name, array in common.items() if name not in WIDE)
    tables = {name: common[name] for name in WIDE if name in common}
    if how == "full":
        return tables, n_bytes + sum(table.nbytes for table in tables.values())
    if sent is None or any(sent[name].shape != table.shape for name, table in tables.items()):
        sent = {"clock": common["clock"], **{name: np.zeros_like(table) for name, table in tables.items()}}
    unit, there = _unit(sent, average), {}
    stretch = _unit(common, average) / unit
    for name, table in tables.items():
        in_units = stretch if name == "average" else 1.0
        change = table.astype(np.float64) * in_units - sent[name]
        exact = how == "delta" or (how == "topk" and name == "v")
        expected = sent[name] * _growth(sent, common, stretch) if name == "average" and how == "topk" else 0.0
        arrived, size = compress(change - expected, "delta" if exact else how, table.itemsize)
        n_bytes += size
        there[name] = table.copy() if exact else ((sent[name] + expected + arrived) / in_units).astype(table.dtype)
    return there, n_bytes


def take_in(
    arrays: dict[str, Array], deltas: Iterable[Delta], shares: Sequence[Share], pace: float, average: str
) -> int:
    """Adds the shards' changes, each times its share, to the common arrays; returns the rows learned.

    The clock goes on by the shards' mean times the pace.
    """
    t_before, unit = float(arrays["clock"][0]), _unit(arrays, average)
    changes: dict[str, Array] = {}
    values: dict[str, Array] = {}
    rows, t_after = 0, t_before
    for delta, share in zip(deltas, shares, strict=True):
        for name, change in delta.changes.items():
            part = change * _by_entry(share, change)
            changes[name] = part if name not in changes else changes[name] + part
        for name, array in delta.values.items():
            part = float(delta.rows) * array
            values[name] = part if name not in values else values[name] + part
        rows += delta.rows
        t_after += float(delta.values["clock"][0]) - t_before
    if not rows:
        return 0
    if "average" in changes:
        # Where shares add up to more than one, the sum lacks iterates beyond those that were seen.
        v, weight = arrays["v"].astype(np.float64), float(values["clock"][-1] / rows - arrays["clock"][-1])
        total = sum((_by_entry(share, v) for share in shares), np.zeros(1))
        changes["average"] = changes["average"] + np.asarray((total - 1.0) * weight * v)
    for name, sums in values.items():
        arrays[name] = sums / float(rows)
    arrays["clock"][0] = t_before + (t_after - t_before) / len(shares) * pace
    stretch = unit / _unit(arrays, average)
    arrays["clock"] = _stretched(arrays["clock"], stretch)
    for name, change in changes.items():
        table = arrays[name]
        if name == "average":  # in float64 until its unit is right: in the old one it may be too large for float32
            table[...] = (table + change) * stretch
        else:
            table[...] += change.astype(table.dtype)
    if "shrunk" in arrays:
        arrays["shrunk"][...] = 0
    return rows


def _unit(arrays: Mapping[str, Array], average: str) -> float:
    """What sums of iterates are counted in."""
    return 2.0 ** (math.frexp(1.0 + float(arrays["clock"][0]))[1] // 10 * 40) if average == "poly" else 1.0


def _growth(base: Mapping[str, Array], own: Mapping[str, Array], stretch: float) -> float:
    """The relative growth of the total weight of all iterates in the shard's round."""
    before, after = (float(arrays["clock"][CLOCK.index("average_weight")]) for arrays in (base, own))
    return after * stretch / before - 1.0 if before > 0 else 0.0


def _stretched(clock: Array, stretch: float) -> Array:
    """The clock with its sums in another unit."""
    out = clock.copy()
    out[[CLOCK.index(name) for name in ("average_scale", "average_weight")]] *= stretch
    return out


def _by_entry(share: Share, change: Array) -> Array:
    """A share per feature, shaped for a table, which may have room for more features."""
    if np.ndim(share) == 0:
        return np.asarray(share)
    padded = np.pad(np.asarray(share), (0, len(change) - len(np.asarray(share))))
    return padded.reshape(-1, *([1] * (change.ndim - 1)))
