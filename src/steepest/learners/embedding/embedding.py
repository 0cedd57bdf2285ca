"""The learner of text classifiers: an embedding for each hashed feature, their mean, and a linear head.

    h = (E_end + Σ v_j E_j) / (1 + Σ|v_j|),  scores = W h
    W_k <- W_k - eta g_k h,  E_j <- E_j - eta v_j / (1 + Σ|v|) Σ_k g_k W_k,  g = d loss / d score

Joulin, Grave, Bojanowski and Mikolov (2016), "Bag of tricks for efficient text classification". Embeddings start at
zero and the head at random, so that features which were never seen add nothing, take no memory and are not stored.
A row's step depends on how many rows came before it, not on chunks. Left out: averaging, penalties.

Replicas: of `n_replicas * sync_every` texts, a round, each replica learns its `sync_every` from the rows and the head
as they were at the start; then all that they have learned is added up. Texts of a round that is not full wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, places_between
from steepest.data.source import mix
from steepest.errors import DataError
from steepest.learners.base import Progress, State
from steepest.learners.embedding.label_tree import LabelTree, check_tree
from steepest.learners.resumable import Resumable, refuse_overflow
from steepest.learners.settings import PlainSettings
from steepest.learners.snapshot import LastGoodState
from steepest.learners.state_check import StateCheck
from steepest.learners.targets import LabelBook, refuse_bad_row
from steepest.learners.waiting import WaitingRows

LOSSES = ("softmax", "ova", "ns", "hs")
LANES = 8  # floats of a vector; a row of the table is a multiple of it
MOST_ROLLBACKS = 30
FIRST_SNAPSHOT_ROWS = 1 << 14
BLOCK_ROWS = 1 << 12  # of the table that are in cache at once
SAMPLE_SIZE = 1 << 18  # labels to draw negatives from
FINE = 0  # what became of a row


@dataclass(frozen=True, slots=True)
class EmbeddingSettings(PlainSettings):
    """The settings of an embedding learner: plain values, as in the model file."""

    dim: int
    loss: str
    eta0: float
    total: float = 0.0  # rows that will come, epochs included; 0: not known
    half: float = 10_000.0  # of an endless stream: rows after which the step has fallen by sqrt(2)
    negatives: int = 5
    seed: int = 0
    head_scale: float = 1.0
    n_replicas: int = 1
    sync_every: int = 16  # texts that a replica learns by itself


class EmbeddingLearner(Resumable):
    """State and step of a text classifier: the embeddings and the output layer ("head")."""

    state_arrays = ()  # of the table only the rows in use
    state_numbers = ("n_features", "eta0", "rows_learned", "good.rollbacks", "several_targets", "tree.root")

    def __init__(
        self,
        settings: EmbeddingSettings,
        n_features: int,
        labels: Sequence[Any] = (),
        counts: Sequence[float] | None = None,
        *,
        several_targets: bool = False,
    ) -> None:
        self.settings = settings
        self.n_features = n_features
        self.several_targets = several_targets
        self.n_threads = 1  # more than one without replicas: Hogwild
        self.waiting = WaitingRows()  # texts of a round that is not full
        self.book = LabelBook(labels)
        self.label_counts = None if counts is None else np.asarray(counts, np.float64)
        self.tree = LabelTree()
        if settings.loss == "hs":
            self.tree = LabelTree.huffman([1.0] * len(self.book) if counts is None else counts)
        self.eta0 = settings.eta0
        self.rows_learned = 0
        self.stride = -(-settings.dim // LANES) * LANES
        self.table = self._empty_table()
        self.head = np.zeros((0, self.stride), np.float32)
        self._fresh: list[Array] = []
        self.good = LastGoodState(FIRST_SNAPSHOT_ROWS, MOST_ROLLBACKS)
        self._rolled_back_at = -1  # rows learned at the last time
        self._sample = np.zeros(0, np.int32)
        self._coded: tuple[Any, int, Any] = (None, 0, None)
        self._grow_head()

    # ------------------------------------------------------------------------------------------------ the contract

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order."""
        progress = Progress()
        if chunk.y is None:
            raise DataError("the rows have no labels, so nothing can be learned from them; name their column")
        if self.settings.n_replicas == 1:
            self._learn(chunk, progress)
            return progress
        for rows in self.waiting.ready(chunk, lambda: self._round):
            whole = rows.n_rows - rows.n_rows % self._round
            self._learn(rows.span(0, whole), progress, self._round)
            self.waiting.put_back(rows.span(whole, rows.n_rows))
        return progress

    def finish(self) -> Progress:
        """Learns the texts that wait for their round, one after the other."""
        return self.waiting.finish(self._learn)

    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Raw scores, shape (rows, labels): logits, or log-probabilities under "hs"."""
        n = max(1, len(self.book)) if self.settings.loss == "hs" else self.n_outputs
        out = np.zeros((chunk.n_rows, n), np.float32)
        if self.n_outputs == 0:
            return out
        head = self.head[: self.n_outputs]
        done = kernels.embedding_scores(chunk.as_rows(), self.table, head, self.tree.native(), out, n_threads)
        if done < chunk.n_rows:
            refuse_bad_row(chunk, done, self.n_features)
        flat = out.ravel()
        if not math.isfinite(flat.dot(flat)):  # the quickest question; squares that overflow are asked about again
            for visit in np.flatnonzero(~np.isfinite(out).all(axis=1)).tolist():
                refuse_bad_row(chunk, visit, self.n_features)
        return out

    def hidden(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """The texts as points: h of each row, shape (rows, dim)."""
        out = np.empty((chunk.n_rows, self.stride), np.float32)
        done = kernels.embedding_hidden(chunk.as_rows(), self.table, out, n_threads)
        if done < chunk.n_rows:
            refuse_bad_row(chunk, done, self.n_features)
        return out[:, : self.settings.dim]

    def losses(self, coded: Chunk) -> tuple[Array, Array]:
        """(loss, weight) of each row visited; negative sampling is measured as one versus all."""
        assert coded.y is not None
        scores = self.scores(coded).astype(np.float64)
        weight = np.ones(coded.n_rows) if coded.weight is None else coded.visited(coded.weight)
        shares = self.indicators(coded.visited(coded.y))
        if self.settings.loss in ("ova", "ns"):
            margins = np.where(shares > 0, scores, -scores)
            return np.asarray(np.logaddexp(0, -margins).sum(axis=1)), weight
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1)
        most = scores.max(axis=1, keepdims=True)
        log_total = most + np.log(np.exp(scores - most).sum(axis=1, keepdims=True))
        return np.asarray((shares * (log_total - scores)).sum(axis=1)), weight

    def indicators(self, y: Array) -> Array:
        """Shares of the labels of each row: one for a single label, split among several."""
        if y.ndim == 2:
            return (y > 0).astype(np.float64)
        n_labels = len(self.book)
        known = y >= 0
        shares = np.zeros((len(y), n_labels))
        shares[np.flatnonzero(known), y[known].astype(np.int64)] = 1.0
        return shares

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Labels as codes; -1 for one that was never seen, which counts for nothing."""
        if rows.y is None:
            raise DataError("the data holds no labels to measure on; name their column")
        if self.several_targets:
            return rows
        codes = self.book.codes(rows.y)
        weight = np.ones(len(codes)) if rows.weight is None else rows.weight
        return replace(rows, y=codes, weight=np.where(codes >= 0, weight, 0.0))

    def weights(self) -> tuple[Array, Array]:
        """(the head, one row per output; the row that ends every text)."""
        dim = self.settings.dim
        return self.head[: self.n_outputs, :dim], self.table[-1, :dim]

    def count_nonzero(self) -> int:
        """Numbers that were learned."""
        return (sum(len(part) for part in self._fresh) + self.n_outputs) * self.settings.dim

    def penalty(self) -> float:
        """Returns 0: there is no penalty."""
        return 0.0

    @property
    def step_size(self) -> float:
        """The step size of the next row."""
        s = self.settings
        if s.total > 0:
            return self.eta0 * max(0.0, 1 - self.rows_learned / s.total)
        return self.eta0 / math.sqrt(1 + self.rows_learned / s.half)

    def keep_good_state(self) -> None:
        """Copies the state, to return to if learning diverges, once the rows have doubled since the last copy."""
        if not self.good.is_recent(self.rows_learned):
            rows = np.append(self._used_rows(), np.int32(self.n_features))
            vectors = np.take(self.table, rows, axis=0)  # in a third of the time that table[rows] takes
            kept = {"rows": rows, "vectors": vectors, "head": self.head}
            self.good.keep(kept, self.rows_learned, owned=("rows", "vectors"))

    def lower_step(self, factor: float) -> None:
        """Divides the step size."""
        self.eta0 /= factor

    @property
    def state(self) -> dict[str, Array]:
        """All arrays that were learned or are needed to continue; of the table only rows ever learned."""
        rows, dim = self.used_rows(), self.settings.dim
        state = super().state | {
            "rows": rows,
            "table": self.table[rows, :dim],
            "end": self.table[-1, :dim],
            "head": self.head[: self.n_outputs, :dim],
            "children": self.tree.children,
            "labels": np.array(self.book.labels),
        }
        if self.label_counts is not None:
            state["label_counts"] = self.label_counts
        return state | self.waiting.state()

    @classmethod
    def check_state(cls, settings: EmbeddingSettings, state: State) -> None:
        """Raises ValueError unless a learner with these settings could have had this state."""
        check = StateCheck.of(state, cls.state_numbers)
        if settings.loss not in LOSSES:
            raise ValueError(f"the loss is {settings.loss!r}"[:200])
        n_labels, hierarchical = check.labels(), settings.loss == "hs"
        n_outputs = max(0, n_labels - 1) if hierarchical else n_labels
        forms = {"rows": "i rows", "table": "f rows dim", "end": "f dim", "head": "f outputs dim"}
        check.arrays(forms, dim=settings.dim, outputs=n_outputs)
        check.codes(state["rows"], check.n_features, "rows")
        check.arrays({"children": f"i {n_outputs if hierarchical else 0} 2"})
        if "label_counts" in state:
            check.arrays({"label_counts": f"f {n_labels}"})
            if (state["label_counts"] < 0).any():
                raise ValueError("label_counts are negative")
        root = check.whole(
            "the root of the tree of labels", check.numbers["root"], 0, max(0, len(state["children"]) - 1)
        )
        check_tree(state["children"], root, n_labels)
        check.waiting(check.n_features)

    @classmethod
    def from_state(cls, settings: EmbeddingSettings, state: State) -> EmbeddingLearner:
        """Builds a learner from its settings and state."""
        *_, root = state["counters"].tolist()
        learner = cls(settings, int(state["counters"][0]))
        learner.book = LabelBook(state["labels"].tolist())
        learner.label_counts = np.array(state["label_counts"]) if "label_counts" in state else None
        learner.tree = LabelTree(np.array(state["children"]), int(root))
        learner.restore(state)
        learner.put_rows(state["rows"], state["table"])
        learner.table[-1, : settings.dim] = state["end"]
        learner._grow_head()
        if state["head"].shape != (learner.n_outputs, settings.dim):
            raise ValueError(f"a head of shape {state['head'].shape} for {len(learner.book)} labels")
        learner.head[: learner.n_outputs, : settings.dim] = state["head"]
        learner.waiting = WaitingRows.from_state(state, learner.n_features)
        return learner

    def __reduce__(self) -> Any:
        return EmbeddingLearner.from_state, (self.settings, self.state)

    def put_rows(self, rows: Array, vectors: Array) -> None:
        """Sets the embeddings of some features."""
        rows = np.asarray(rows, np.int32)
        if len(rows) and (rows.min() < 0 or rows.max() >= self.n_features):
            raise ValueError("an embedding of a feature that is not there")
        self.table[rows, : self.settings.dim] = vectors
        self._fresh.append(np.array(rows))

    def clone(self) -> EmbeddingLearner:
        """An independent copy."""
        copy = EmbeddingLearner.from_state(self.settings, self.state)
        copy.n_threads = self.n_threads
        return copy

    # ------------------------------------------------------------------------------------------- what was learned

    @property
    def n_outputs(self) -> int:
        """Rows of the head in use: one per label, or one per inner node of the tree."""
        return max(0, len(self.book) - 1) if self.settings.loss == "hs" else len(self.book)

    def used_rows(self) -> Array:
        """Features that have an embedding, ascending."""
        rows = np.unique(self._used_rows())
        self._fresh = [rows]
        return rows

    def _used_rows(self) -> Array:
        if len(self._fresh) != 1:
            self._fresh = [np.concatenate([np.zeros(0, np.int32), *self._fresh])]
        return self._fresh[0]

    def heaviness(self, features: Array) -> Array:
        """How long the embeddings of these features are."""
        squares = np.empty(len(features), np.float32)
        for start in range(0, len(features), BLOCK_ROWS):  # a copy of all would cost more than their sums
            part = slice(start, start + BLOCK_ROWS)
            vectors = np.take(self.table, features[part], axis=0)
            np.einsum("ij,ij->i", vectors, vectors, out=squares[part])
        return np.asarray(np.sqrt(squares), np.float64)

    def refuse_overflow(self) -> None:
        """Raises if a number that was learned is not finite, without the copy of it that `state` makes."""
        refuse_overflow({"table": self.table, "head": self.head})

    def go_on(self) -> None:
        """Continues as on an endless stream: one text after the other, with the schedule of a stream."""
        if self.settings.total or self.settings.n_replicas > 1:
            self.settings = replace(self.settings, total=0.0, n_replicas=1)

    # ----------------------------------------------------------------------------------------------------- labels

    def add_labels(self, labels: Sequence[Any]) -> None:
        """Makes room for labels that were not known."""
        for label in labels:
            self.book.add(label)
        if self.label_counts is not None:
            self.label_counts = np.append(self.label_counts, np.zeros(len(labels)))
        self._sample = np.zeros(0, np.int32)
        self._grow_head()

    def _grow_head(self) -> None:
        if self.settings.loss == "hs":
            self.tree.grow(len(self.book))
        have, need = len(self.head), self.n_outputs
        if need <= have:
            return
        room = need if have == 0 else max(need, 2 * have)
        head = np.zeros((room, self.stride), np.float32)
        head[:, : self.settings.dim] = _random_rows(room, self.settings)
        head[:have] = self.head
        self.head = head

    def _rows_until_new(self, chunk: Chunk, unit: int = 1) -> tuple[Chunk, Array | None, Array]:
        """The whole units of rows before the first one with labels that are not known (in that one they are then), and
        the targets of these visits."""
        starts, codes = self._block_targets(chunk)
        if starts is not None:
            return (chunk, *_gathered(starts, codes, chunk))
        visited = chunk.visited(codes)
        unknown = np.flatnonzero(visited < 0)
        if len(unknown) == 0:
            return chunk, None, visited
        whole = int(unknown[0]) // unit * unit
        if whole:
            return chunk.span(0, whole), None, visited[:whole]
        assert chunk.y is not None
        labels = chunk.visited(chunk.y)[unknown[unknown < unit]].tolist()
        self.add_labels(list(dict.fromkeys(labels)))
        return self._rows_until_new(chunk, unit)

    def _block_targets(self, chunk: Chunk) -> tuple[Array | None, Array]:
        """Targets of all rows of the block, coded once for the many chunks that visit it."""
        assert chunk.y is not None
        if len(chunk.y) <= self._round:  # texts that have waited are not to push out a whole block
            return self._code(chunk.y)
        coded: tuple[Array | None, Array]
        key, n_labels, coded = self._coded
        if key is not chunk.y or n_labels != len(self.book):
            coded = self._code(chunk.y)
            self._coded = chunk.y, len(self.book), coded
        return coded

    def _code(self, y: Array) -> tuple[Array | None, Array]:
        if self.several_targets != (y.ndim == 2) or (y.ndim == 2 and y.shape[1] != len(self.book)):
            raise DataError(f"y has the shape {y.shape}, but the model has {len(self.book)} labels; keep its columns")
        if not self.several_targets:
            return None, self.book.codes(y).astype(np.int32)
        rows, columns = np.nonzero(y > 0)
        return np.searchsorted(rows, np.arange(len(y) + 1)).astype(np.int64), columns.astype(np.int32)

    def _negatives(self) -> Array:
        """Sampling weights of negative labels: roots of their counts, or all equal if not counted."""
        if self.settings.loss == "ns" and len(self._sample) == 0:
            counts = np.ones(len(self.book)) if self.label_counts is None else np.maximum(self.label_counts, 1.0)
            share = np.sqrt(counts) / np.sqrt(counts).sum()
            size = max(SAMPLE_SIZE, len(counts))
            self._sample = np.repeat(np.arange(len(counts), dtype=np.int32), np.ceil(share * size).astype(np.int64))
        return self._sample

    # ---------------------------------------------------------------------------------------------------- the step

    def _learn(self, chunk: Chunk, progress: Progress, unit: int = 1) -> None:
        """Learns rows one after the other, or whole rounds, of so many rows each, by the replicas."""
        done = 0
        while done < chunk.n_rows:
            rows, edge = chunk.span(done, chunk.n_rows), self.good.next_rows(self.rows_learned)
            if self.settings.total == 0:
                rows = rows.span(0, min(rows.n_rows, max(1, (edge - self.rows_learned) // unit) * unit))
            rows, starts, targets = self._rows_until_new(rows, unit)
            n_learned, status = self._run_kernel(rows, starts, targets, progress, apart=unit > 1)
            done += n_learned
            if status != FINE and unit > 1:  # a round with a row in trouble is learned in turn
                self._learn(chunk.span(done, done + unit), progress)
                done += unit
            elif status != FINE:
                refuse_bad_row(rows, n_learned, self.n_features)
                self._roll_back(progress)
            if self.settings.total == 0 and self.rows_learned >= edge:
                self.keep_good_state()

    @property
    def _round(self) -> int:
        return self.settings.n_replicas * self.settings.sync_every

    def _run_kernel(
        self, rows: Chunk, starts: Array | None, targets: Array, progress: Progress, *, apart: bool = False
    ) -> tuple[int, int]:
        """(rows learned, what became of the next one); `apart`: by the replicas."""
        s = self.settings
        done, status = rows.n_rows, FINE
        if self.n_outputs:  # a tree of one label has nothing to decide
            choices = kernels.EmbeddingChoices(
                loss=LOSSES.index(s.loss),
                eta0=self.eta0,
                total=s.total,
                half=s.half,
                negatives=s.negatives,
                seed=s.seed & 0xFFFFFFFFFFFFFFFF,
                sample=self._negatives(),
                n_replicas=s.n_replicas if apart else 1,
                rows_each=s.sync_every,
            )
            done, status, loss, weight, fresh = kernels.embedding_learn(
                rows.as_rows(),
                (starts, targets),
                self.table,
                self.head[: self.n_outputs],
                self.tree.native(),
                choices,
                float(self.rows_learned),
                self.n_threads if apart or s.n_replicas == 1 else 1,
            )
            if len(fresh):
                self._fresh.append(fresh)
            progress.loss_sum += loss
            progress.weight += weight
        self.rows_learned += done
        progress.rows += done
        return done, status

    def _roll_back(self, progress: Progress) -> None:
        """Returns to the last good state with half the step size, because scores overflowed."""
        self.eta0 = self.good.halve_step(self.eta0, self.rows_learned, progress)
        if self._rolled_back_at == self.rows_learned:  # it was not a good state: finite, but far too large
            self.good.forget()
        self._rolled_back_at = self.rows_learned
        self.table[self._used_rows()] = 0.0
        self.table[-1] = 0.0
        if self.good.exists:
            kept = self.good.restored()
            self.table[kept["rows"]] = kept["vectors"]
            self.head[: len(kept["head"])] = kept["head"]
        else:
            self.head[...] = 0.0
            self.head[:, : self.settings.dim] = _random_rows(len(self.head), self.settings)

    def _empty_table(self) -> Array:
        """Zeros, beginning at a cache line: rows of 16 floats then never lie in two."""
        size = (self.n_features + 1) * self.stride
        room = np.zeros(size + 16, np.float32)
        skip = -(room.ctypes.data // 4) % 16
        return room[skip : skip + size].reshape(self.n_features + 1, self.stride)


def _gathered(starts: Array, labels: Array, chunk: Chunk) -> tuple[Array, Array]:
    """(starts, labels) of the rows that a chunk visits."""
    if chunk.order is None:
        return starts, labels
    pointers, entries = places_between(starts[chunk.order], starts[chunk.order + 1])
    return pointers, labels[entries]


def _random_rows(n: int, settings: EmbeddingSettings) -> Array:
    """Rows of the head at the start: uniform between ±head_scale / sqrt(dim), each a function of its number."""
    uniform = mix(np.arange(n * settings.dim), settings.seed).astype(np.float64) / 2.0**63 - 1
    return (uniform * settings.head_scale / math.sqrt(settings.dim)).astype(np.float32).reshape(n, settings.dim)
