"""Which way of learning in parallel: the option checked, and "auto" decided and explained in one sentence.

Replicas and mixing give the same bits for any number of threads; hogwild does not, so "auto" takes it only where no
seed asks for the same bits. The limits were measured on RCV1-shaped rows; see docs/how-it-works/parallel.md.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("serial", "replicas", "hogwild", "mixing", "auto")
LEAST_ROUNDS = 8  # of replicas in an epoch, below which threads have nothing to gain
REPLICA_WEIGHTS = 1 << 18  # replicas of larger tables leave the caches
HOGWILD_WEIGHTS = 1 << 20  # on smaller tables threads wait for each other's cache lines


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of the data that the choice depends on; None where the source does not know one."""

    n_rows: int | None
    n_weights: int | None
    row_length: float | None


def decide(shape: Shape, n_threads: int, round_rows: int, *, seeded: bool) -> tuple[str, str]:
    """(kind, why) for parallel="auto"."""
    kind, why = _kind(shape, n_threads, round_rows, seeded)
    return kind, f"parallel='auto' {'learns serially' if kind == 'serial' else f'chose {kind}'}: {why}"


def _kind(shape: Shape, n_threads: int, round_rows: int, seeded: bool) -> tuple[str, str]:
    if n_threads == 1:
        return "serial", "n_jobs=1 leaves one thread"
    if shape.n_weights is None:
        return "serial", "the number of weights is not known before reading"
    if shape.n_rows is not None and shape.n_rows < LEAST_ROUNDS * round_rows:
        return "serial", f"{shape.n_rows:,} rows are too few to share"
    weights = f"{shape.n_weights:,} weights"
    if shape.n_weights >= HOGWILD_WEIGHTS and seeded:
        return "serial", f"{weights} call for hogwild, and random_state for equal bits"
    if shape.n_weights >= HOGWILD_WEIGHTS:
        return "hogwild", f"{weights} are too many for replicas"
    if shape.n_weights > REPLICA_WEIGHTS:
        return "serial", f"{weights} are too many for replicas and too few for hogwild"
    if shape.row_length is not None and 4 * shape.row_length * round_rows < shape.n_weights:
        return "serial", f"rows of {shape.row_length:.0f} entries are too short to share"
    return "replicas", f"{weights} fit the caches of {n_threads} threads"
