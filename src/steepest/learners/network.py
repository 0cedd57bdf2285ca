"""Networks by back-propagation: scores from a graph of units, minimising mean loss + alpha R(W) over mini-batches.

The state is one array for each edge and each bias, the moments of the update rule, and a clock. A weight of the input
layer moves in those batches only in which its feature occurs, and pays its penalty when it is next seen, so a row costs
O(non-zeros x units) there; under sgd that is the plain rule, under the others its usual lazy form. Penalties follow the
flow w' = -l2 w - l1 sign(w) over the steps taken, apart from the rescaled gradient; biases and centres are free.

Invariant: as for linear learners, the state depends on the sequence of rows only. Rows wait until the first thousand
have shown the spread of features and targets, then until a mini-batch is full; what is shown includes them. Products
are the kernels' own, whose bits do not depend on threads or shapes as those of a BLAS may.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.learners.base import Progress, State
from steepest.learners.graph import INPUT, OUTPUT, Graph, Passed, backward, forward, product, wiring
from steepest.learners.labels import LabelBook
from steepest.learners.targets import Targets

RULES = {"sgd": 0, "momentum": 1, "adagrad": 2, "adam": 3}
MOMENTS = {"sgd": (), "momentum": ("first",), "adagrad": ("second",), "adam": ("first", "second")}
INITS = ("auto", "uniform", "glorot", "he", "zero")
SCHEDULES = ("auto", "constant", "linear", "invsqrt", "adaptive")
LOOK_ROWS = 1000  # whose spread sets the first weights
DENSE_SHARE = 0.25  # above it, a product of dense matrices is faster than sparse rows (measured)
MOST_DENSE_NUMBERS = 1 << 24  # in a batch
SCORED_ROWS = 1024  # at once, so that memory stays small
FIRST_SNAPSHOT_ROWS = 1 << 16
LARGEST_TABLE_BYTES = 1 << 33
MOST_ROLLBACKS = 60
LEAST_STEP = 0.05  # what schedule="linear" keeps of the first step for rows beyond those planned
INVSQRT_ROWS = 1000.0
KEEP_SECOND = 0.999
EPSILON = {"adagrad": 1e-7, "adam": 1e-8}
STEPS, PATH = 0, 1  # places in the clock


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The choices that make a network learner; plain values that stand in the model file."""

    graph: Mapping[str, Any]
    task: str = "classify"  # or "regress"
    loss: str = "softmax"
    loss_parameter: float = 0.0
    rule: str = "adam"
    momentum: float = 0.9
    schedule: str = "constant"
    eta0: float = 0.003
    planned_rows: float = math.inf  # over which schedule="linear" falls
    l1: float = 0.0
    l2: float = 0.0
    batch_size: int = 32
    biases: bool = True
    init: str = "glorot"
    seed: int = 0
    dtype: str = "float32"
    class_weight: Any = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a file."""
        plain = asdict(self) | {"planned_rows": None if math.isinf(self.planned_rows) else self.planned_rows}
        if isinstance(self.class_weight, dict):
            plain["class_weight"] = [[label, weight] for label, weight in self.class_weight.items()]
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> NetworkSettings:
        """The settings that `as_dict` wrote."""
        values = dict(plain)
        values["planned_rows"] = math.inf if values["planned_rows"] is None else values["planned_rows"]
        if isinstance(values["class_weight"], list):
            values["class_weight"] = dict(values["class_weight"])
        return cls(**values)


@dataclass(slots=True)
class _Batch:
    """Rows in the form in which the first layer takes them."""

    rows: Chunk
    dense: Array | None = None
    used: Array | None = None  # the features that occur, known for dense rows


class NetworkLearner:
    """State and step of a network."""

    def __init__(
        self,
        settings: NetworkSettings,
        n_features: int = 0,
        labels: Sequence[Any] = (),
        start: Mapping[str, Array] | None = None,
    ) -> None:
        s = settings
        self.settings = s
        self.graph = Graph.from_dict(s.graph)
        self.stations = wiring(self.graph)
        self.targets = Targets(s.task, s.loss, s.loss_parameter, s.class_weight, labels)
        self.n_features = n_features
        self.eta0 = s.eta0
        self.rows_learned = 0
        self.rollbacks = 0
        self.spread = 0.0  # mean of |x|^2; 0 until the first rows have been looked at
        self.dense = False  # whether rows have so few zeros that dense products are faster
        self.pending: Chunk | None = None
        self.arrays: dict[str, Array] = {}
        self.start = {} if start is None else dict(start)  # given first values, such as centres
        self._good: dict[str, Array] | None = None
        self._finished_copy: NetworkLearner | None = None
        self._slot = np.zeros(0, np.int32)

    # ------------------------------------------------------------------------------------------------ the contract

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order, in mini-batches; rows that fill none wait."""
        progress = Progress()
        self._finished_copy = None
        while chunk.n_rows:
            needed = self._rows_needed()
            if self.pending is None and chunk.n_rows >= needed:
                taken = chunk.n_rows - chunk.n_rows % self.settings.batch_size if self.spread else needed
                self._learn(chunk.span(0, taken), progress)
            else:
                taken = min(chunk.n_rows, needed - (0 if self.pending is None else self.pending.n_rows))
                part = chunk.span(0, taken)
                self.targets.announce(part)
                self._grow_features(part.n_features)
                self.pending = part.packed() if self.pending is None else concatenate([self.pending, part])
                if self.pending.n_rows >= needed:
                    rows, self.pending = self.pending, None
                    self._learn(rows, progress)
            chunk = chunk.span(taken, chunk.n_rows)
        return progress

    def _rows_needed(self) -> int:
        return self.settings.batch_size if self.spread else self._look_rows()

    def _look_rows(self) -> int:
        """Whole batches, so that no row waits twice."""
        batch = self.settings.batch_size
        return -(-LOOK_ROWS // batch) * batch

    def learn_pending(self) -> Progress:
        """Learns the rows that wait, as if no others were to come."""
        progress = Progress()
        if self.pending is not None:
            rows, self.pending = self.pending, None
            self._finished_copy = None
            self._learn(rows, progress)
        return progress

    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Raw scores, shape (rows, outputs); each row's bits are its own, so threads would change nothing."""
        return self._finished()._scores(chunk)

    def losses(self, coded: Chunk) -> tuple[Array, Array]:
        """(loss of each row visited, its weight), targets coded already."""
        assert coded.y is not None
        weight = np.ones(coded.n_rows) if coded.weight is None else coded.visited(coded.weight)
        scores, targets = self.scores(coded), self._finished().targets
        y = coded.visited(coded.y)
        return targets.losses(scores, y if targets.has_codes else y.reshape(scores.shape)), weight

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Rows with coded targets, for measuring only: unknown classes are refused, class weights not applied."""
        coded = self.targets.code(rows)
        if coded.ndim == 2 and not self.targets.several:
            coded = coded[:, 0]
        y = np.zeros((len(rows.indptr) - 1, *coded.shape[1:]))
        y[rows.row_numbers] = coded
        return rows.with_targets(y, rows.weight)

    def merge(self, states: Sequence[State]) -> NetworkLearner:
        """The mean of several learners' arrays, each counted by the rows it has seen."""
        parts = [NetworkLearner.from_state(self.settings, state)._finished().clone() for state in states]
        seen = np.array([float(part.rows_learned) for part in parts])
        shares = seen / seen.sum() if seen.sum() > 0 else np.full(len(parts), 1 / len(parts))
        merged = parts[0]
        for part in parts:
            part._settle()
        for name in merged.arrays:
            if not name.startswith("stamp "):
                mean = sum(share * part.arrays[name] for share, part in zip(shares, parts, strict=True))
                merged.arrays[name] = np.asarray(mean, merged.arrays[name].dtype)
        for name in merged.arrays:
            if name.startswith("stamp "):
                merged.arrays[name][...] = merged.arrays["clock"][PATH]
        merged.rows_learned = int(seen.sum())
        return merged

    @property
    def state(self) -> dict[str, Array]:
        """Everything that was learned or is needed to go on, as arrays."""
        t = self.targets
        state = {f"learned {name}": array for name, array in self.arrays.items()}
        state |= {f"start {name}": array for name, array in self.start.items()}
        numbers = [self.n_features, t.n_outputs, self.eta0, self.rows_learned, self.rollbacks, self.spread, t.several]
        numbers.append(self.dense)
        state["counters"] = np.array(numbers, np.float64)
        state["class_counts"], state["shift"], state["scale"] = t.counts, t.shift, t.scale
        state["labels"] = np.array(t.book.labels)
        if self.pending is not None:
            rows = self.pending
            state["pending_indptr"], state["pending_indices"] = rows.indptr, rows.indices
            state["pending_values"] = rows.values
            if rows.y is not None:
                state["pending_y"] = rows.y
            if rows.weight is not None:
                state["pending_weight"] = rows.weight
        return state

    @classmethod
    def from_state(cls, settings: NetworkSettings, state: State) -> NetworkLearner:
        """The learner that had this state."""
        start = {name[6:]: np.array(array) for name, array in state.items() if name.startswith("start ")}
        learner = cls(settings, 0, state["labels"].tolist(), start)
        t, counters = learner.targets, state["counters"]
        learner.n_features, t.n_outputs = int(counters[0]), int(counters[1])
        learner.eta0, learner.spread = float(counters[2]), float(counters[5])
        learner.rows_learned, learner.rollbacks = int(counters[3]), int(counters[4])
        t.several, learner.dense = bool(counters[6]), bool(counters[7])
        t.counts, t.shift, t.scale = (np.array(state[name]) for name in ("class_counts", "shift", "scale"))
        learner.arrays = {name[8:]: np.array(array) for name, array in state.items() if name.startswith("learned ")}
        if "pending_indptr" in state:
            learner.pending = Chunk(
                np.array(state["pending_indptr"]),
                np.array(state["pending_indices"]),
                np.array(state["pending_values"]),
                learner.n_features,
                np.array(state["pending_y"]) if "pending_y" in state else None,
                np.array(state["pending_weight"]) if "pending_weight" in state else None,
            )
        return learner

    def clone(self) -> NetworkLearner:
        """An independent copy."""
        return NetworkLearner.from_state(self.settings, self.state)

    @property
    def book(self) -> LabelBook:
        """The classes."""
        return self.targets.book

    @property
    def several_targets(self) -> bool:
        """Whether y has a column an output."""
        return self.targets.several

    @property
    def n_outputs(self) -> int:
        """Outputs of the network."""
        return self.targets.n_outputs

    # ------------------------------------------------------------------------------------------- what was learned

    def _finished(self) -> NetworkLearner:
        """This learner if nothing waits, else a copy that has learned the waiting rows."""
        if self.pending is None:
            return self
        if self._finished_copy is None:
            copy = self.clone()
            copy.learn_pending()
            self._finished_copy = copy
        return self._finished_copy

    def parameters(self) -> dict[str, Array]:
        """Weights by edge ("x>h1"), biases ("bias h1") and widths ("gamma h1") as they would predict."""
        shown, moments = self._finished(), ("first ", "second ", "stamp ", "clock")
        return {
            name: shown._settled(name)[: shown.n_features] if name.startswith(f"{INPUT}>") else array.copy()
            for name, array in shown.arrays.items()
            if not name.startswith(moments)
        }

    def _settled(self, name: str) -> Array:
        """A copy of an edge's weights that owes nothing."""
        table, stamp = self.arrays[name].copy(), self.arrays.get(f"stamp {name}")
        if stamp is not None and len(stamp):
            path = float(self.arrays["clock"][PATH])
            kernels.network_settle(None, stamp.copy(), path, self.settings.l1, self.settings.l2, table)
        return table

    def weights(self) -> tuple[Array, Array]:
        """(all weights, all biases), each in one row."""
        parameters = self.parameters()
        weights = [array.ravel() for name, array in parameters.items() if ">" in name]
        biases = [array.ravel() for name, array in parameters.items() if name.startswith("bias ")]
        return np.concatenate([np.zeros(0), *weights]), np.concatenate([np.zeros(0), *biases])

    def count_nonzero(self) -> int:
        """Weights that are not zero; a 2-norm makes none, so that large tables need not be settled for it."""
        if self.settings.l1 > 0:
            return int(np.count_nonzero(self.weights()[0]))
        return sum(int(np.count_nonzero(array)) for name, array in self.arrays.items() if _is_weight(name))

    @property
    def step_size(self) -> float:
        """The step that the next batch will take."""
        schedule, t = self.settings.schedule, float(self.rows_learned)
        if schedule == "linear":
            return self.eta0 * max(LEAST_STEP, 1.0 - t / self.settings.planned_rows)
        if schedule == "invsqrt":
            return self.eta0 / math.sqrt(1.0 + t / INVSQRT_ROWS)
        return self.eta0

    def lower_step(self, factor: float) -> None:
        """Divides the step size."""
        self.eta0 /= factor

    def penalty(self) -> float:
        """alpha R(W) at the current weights; centres of radial bases are not penalised."""
        s = self.settings
        if s.l1 == 0 and s.l2 == 0:
            return 0.0
        total = 0.0
        shown = self._finished()
        for name in self._penalised() if shown.arrays else ():
            exact = shown._settled(name).astype(np.float64)
            total += s.l1 * float(np.abs(exact).sum()) + 0.5 * s.l2 * float(np.square(exact).sum())
        return total

    # ---------------------------------------------------------------------------------------------------- the step

    def _learn(self, rows: Chunk, progress: Progress) -> None:
        self._grow_features(rows.n_features)
        if not self.spread:
            self.targets.announce(rows)
            self._look(rows)
        size = self.settings.batch_size
        for start in range(0, rows.n_rows, size):
            edge = self._snapshot_edge()
            self._learn_batch(rows.span(start, min(start + size, rows.n_rows)), progress)
            if self.rows_learned >= edge:
                self.keep_good_state()

    def _learn_batch(self, rows: Chunk, progress: Progress) -> None:
        """Forward, loss, backward, and one step down the gradient."""
        t = self.targets
        coded = t.code(rows, grow=True)
        self._grow_outputs()
        weight = t.weigh(rows, coded)
        with np.errstate(over="ignore", invalid="ignore"):
            batch = self._batch(rows)
            passed = self._forward(batch)
            losses, slope = t.losses_and_slopes(passed.h[OUTPUT], coded)
            total = float(losses.sum()) if weight is None else float((losses * weight).sum())
            self.rows_learned += rows.n_rows
            if not math.isfinite(total):
                self._refuse_bad_rows(rows)
                self._roll_back(progress)
                return
            slope /= rows.n_rows
            if weight is not None:
                slope *= weight[:, None]
            self._descend(batch, passed, slope.astype(self.settings.dtype))
        n_weight = float(rows.n_rows) if weight is None else float(weight.sum())
        progress.add(Progress(rows.n_rows, n_weight, total))

    def loss_and_gradients(self, rows: Chunk) -> tuple[float, dict[str, Array]]:
        """Mean loss of some rows, in the units of learning, and its gradient by every parameter; nothing changes."""
        t, n = self.targets, max(1, rows.n_rows)
        coded, dense = t.code(rows), self._densify(rows)[0]
        from_input = {target: self._dense_products(dense, target) for target in self.graph.targets(INPUT)}
        passed = forward(self.stations, self.arrays, from_input)
        slope = t.slopes(passed.h[OUTPUT], coded) / n
        slopes = backward(self.stations, self.arrays, passed, slope.astype(self.settings.dtype))
        gradients = self._gradients(passed, slopes)
        for target in self.graph.targets(INPUT):
            if self.graph.nodes[target].kind == "distance":
                gradient = self._centre_gradient(dense, target, slopes[target])
            else:
                gradient = product(dense, slopes[target], transposed=True)
            gradients[f"{INPUT}>{target}"] = gradient
        return float(t.learned_losses(passed.h[OUTPUT], coded).sum()) / n, gradients

    def _descend(self, batch: _Batch, passed: Passed, slope: Array) -> None:
        slopes = backward(self.stations, self.arrays, passed, slope)
        self.arrays["clock"][STEPS] += 1
        for name, gradient in self._gradients(passed, slopes).items():
            self._update(name, None, gradient)
        for target in self.graph.targets(INPUT):
            if self.graph.nodes[target].kind == "distance":
                self._update(f"{INPUT}>{target}", None, self._centre_gradient(batch.dense, target, slopes[target]))
            elif batch.dense is None and self.settings.rule == "sgd":
                rows, table = batch.rows, self.arrays[f"{INPUT}>{target}"]
                parts = (rows.indptr, rows.indices, rows.values, rows.order)
                kernels.network_descend(*parts, slopes[target], self.step_size, table)
            else:
                self._update(f"{INPUT}>{target}", *self._input_gradient(batch, slopes[target]))
        self._shrink()

    def _gradients(self, passed: Passed, slopes: Mapping[str, Array]) -> dict[str, Array]:
        """Of all parameters but those of the input's edges."""
        gradients = {}
        for node, sources, _ in self.stations:
            name = node.name
            if f"bias {name}" in self.arrays:
                gradients[f"bias {name}"] = slopes[name].sum(axis=0)
            if node.kind == "distance":  # by log gamma: dh / dlog gamma = -gamma z h
                change = passed.z[name] * passed.h[name] * slopes[f"h {name}"]
                gradients[f"gamma {name}"] = -np.exp(self.arrays[f"gamma {name}"]) * change.sum(axis=0)
            for source in sources:
                if source != INPUT:
                    gradients[f"{source}>{name}"] = product(passed.h[source], slopes[name], transposed=True)
        return gradients

    def _input_gradient(self, batch: _Batch, slopes: Array) -> tuple[Array | None, Array]:
        """(features that occur, their rows of X' slopes)."""
        if batch.dense is not None:
            assert batch.used is not None
            gradient = product(batch.dense, slopes, transposed=True)
            return (None, gradient) if len(batch.used) == len(gradient) else (batch.used, gradient[batch.used])
        rows = batch.rows
        room = min(_n_entries(rows), len(self._slot))
        features, gradient = np.empty(room, np.int32), np.empty((max(room, 1), slopes.shape[1]), slopes.dtype)
        n = kernels.network_gather(
            rows.indptr, rows.indices, rows.values, rows.order, slopes, self._slot, features, gradient
        )
        return features[:n], gradient

    def _centre_gradient(self, dense: Array | None, target: str, slopes: Array) -> Array:
        """d |x - w|^2 / dw = 2 (w - x)."""
        assert dense is not None
        centres = self.arrays[f"{INPUT}>{target}"]
        return np.asarray(2 * (centres * slopes.sum(axis=0) - product(dense, slopes, transposed=True)))

    def _update(self, name: str, features: Array | None, gradient: Array) -> None:
        """One step of the rule for all rows of an array, or for some of a table."""
        s, table, steps = self.settings, self.arrays[name], float(self.arrays["clock"][STEPS])
        moments = [self.arrays.get(f"{moment} {name}") for moment in ("first", "second")]
        first, second = (None if moment is None else np.atleast_2d(moment) for moment in moments)
        kernels.network_update(
            RULES[s.rule],
            self.step_size,
            s.momentum,
            KEEP_SECOND,
            EPSILON.get(s.rule, 0.0),
            1.0 - s.momentum**steps,
            1.0 - KEEP_SECOND**steps,
            features,
            np.ascontiguousarray(np.atleast_2d(gradient), table.dtype),
            np.atleast_2d(table),
            first,
            second,
        )

    def _shrink(self) -> None:
        """Weights inside the network pay at once, those of the input when they are next seen."""
        s = self.settings
        if s.l1 == 0 and s.l2 == 0:
            return
        length = self.step_size / (1.0 - s.momentum) if s.rule == "momentum" else self.step_size
        self.arrays["clock"][PATH] += length
        factor = math.exp(-s.l2 * length)
        less = s.l1 / s.l2 * (1.0 - factor) if s.l2 > 0 else s.l1 * length
        for name in self._penalised():
            if not name.startswith(f"{INPUT}>"):
                w = self.arrays[name]
                w *= w.dtype.type(factor)
                if less > 0:
                    w[...] = np.copysign(np.maximum(np.abs(w) - w.dtype.type(less), 0), w)

    def _penalised(self) -> list[str]:
        return [f"{a}>{b}" for a, b in self.graph.edges if self.graph.nodes[b].kind == "dot"]

    def _settle(self) -> None:
        """Pays all that is owed."""
        s = self.settings
        for name, stamp in self.arrays.items():
            if name.startswith("stamp ") and len(stamp):
                table = self.arrays[name.removeprefix("stamp ")]
                kernels.network_settle(None, stamp, float(self.arrays["clock"][PATH]), s.l1, s.l2, table)

    # ------------------------------------------------------------------------------------------- the first layer

    def _batch(self, rows: Chunk) -> _Batch:
        """Rows to learn from, as dense ones where that is faster."""
        if self.dense and (rows.n_rows * self._room() < MOST_DENSE_NUMBERS or self._is_radial()):
            dense, used = self._densify(rows)
            return _Batch(rows, dense, np.flatnonzero(used).astype(np.int32))
        if len(self._slot) != self._room():
            self._slot = np.full(self._room(), -1, np.int32)
        return _Batch(rows)

    def _is_radial(self) -> bool:
        return any(node.kind == "distance" for node in self.graph.nodes.values())

    def _densify(self, rows: Chunk) -> tuple[Array, Array]:
        dense, used = np.zeros((rows.n_rows, self._room()), self.settings.dtype), np.zeros(self._room(), np.uint8)
        done = kernels.network_densify(rows.indptr, rows.indices, rows.values, rows.order, dense, used)
        self._refuse_bad_index(rows, done)
        return dense, used

    def _forward(self, batch: _Batch) -> Passed:
        """A pass for learning: what the input's weights owe is paid on the way."""
        from_input = {}
        for target in self.graph.targets(INPUT):
            name = f"{INPUT}>{target}"
            table, stamp = self.arrays[name], self.arrays.get(f"stamp {name}")
            if batch.dense is not None:
                if stamp is not None:
                    path, s = float(self.arrays["clock"][PATH]), self.settings
                    kernels.network_settle(batch.used, stamp, path, s.l1, s.l2, table)
                from_input[target] = self._dense_products(batch.dense, target)
            else:
                from_input[target] = self._sparse_products(kernels.network_forward, batch.rows, name)
        return forward(self.stations, self.arrays, from_input)

    def _dense_products(self, dense: Array, target: str) -> Array:
        table = self.arrays[f"{INPUT}>{target}"]
        if self.graph.nodes[target].kind == "dot":
            return product(dense, table)
        own = np.einsum("ij,ij->i", dense, dense)[:, None] + np.einsum("jk,jk->k", table, table)
        return np.asarray(np.maximum(own - 2 * product(dense, table), 0))

    def _sparse_products(self, kernel: Any, rows: Chunk, name: str) -> Array:
        table, s = self.arrays[name], self.settings
        out = np.empty((rows.n_rows, table.shape[1]), table.dtype)
        stamp, path = self.arrays.get(f"stamp {name}"), float(self.arrays["clock"][PATH])
        done = kernel(rows.indptr, rows.indices, rows.values, rows.order, table, stamp, path, s.l1, s.l2, out)
        self._refuse_bad_index(rows, done)
        return out

    def _scores(self, chunk: Chunk) -> Array:
        out = np.zeros((chunk.n_rows, self.n_outputs))
        if not self.arrays:
            return out
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, chunk.n_rows, SCORED_ROWS):
                rows = self._known_features(chunk.span(start, min(start + SCORED_ROWS, chunk.n_rows)))
                out[start : start + SCORED_ROWS] = self.targets.scores(self._show(rows).h[OUTPUT])
        return out

    def _show(self, rows: Chunk) -> Passed:
        """A pass that changes nothing; sparse products throughout, so that a row's bits are its own."""
        from_input = {}
        for target in self.graph.targets(INPUT):
            if self.graph.nodes[target].kind == "distance":
                from_input[target] = self._dense_products(self._densify(rows)[0], target)
            else:
                from_input[target] = self._sparse_products(kernels.network_scores, rows, f"{INPUT}>{target}")
        return forward(self.stations, self.arrays, from_input)

    def _known_features(self, rows: Chunk) -> Chunk:
        """The rows without features that were never seen in training, which have no weights."""
        if rows.n_features <= self._room():
            return rows
        rows = rows.packed()
        known = rows.indices < self._room()
        indices, values = np.where(known, rows.indices, 0), np.where(known, rows.values, 0)
        return replace(rows, indices=indices.astype(np.int32), values=values.astype(np.float32))

    # -------------------------------------------------------------------------------------------------- the arrays

    def _room(self) -> int:
        """Features that the tables have room for."""
        return len(self.arrays[f"{INPUT}>{self.graph.targets(INPUT)[0]}"]) if self.arrays else self.n_features

    def _look(self, rows: Chunk) -> None:
        """The spread of features and targets decides how large the first weights are."""
        packed = rows.packed()
        self._refuse_bad_rows(packed)
        square = float(np.square(packed.values.astype(np.float64)).sum()) / max(1, packed.n_rows)
        self.spread = max(square, 1e-12)
        columns = int(packed.indices.max(initial=-1)) + 1  # of these rows: what is read later must not matter
        self.dense = self._is_radial() or len(packed.indices) > DENSE_SHARE * packed.n_rows * columns
        self.targets.look(self.targets.code(packed))
        self._initialise()

    def _initialise(self) -> None:
        self.arrays = {"clock": np.zeros(2)}
        for node, sources, _ in self.stations:
            if self.settings.biases and node.kind == "dot":
                self._add(f"bias {node.name}", self._first_biases(node.name))
            if node.kind == "distance":
                self._add(f"gamma {node.name}", np.zeros(self._size(node.name), self.settings.dtype))
            for source in sources:
                self._add(f"{source}>{node.name}", self._first_weights(source, node.name, 0, self._size(source)))
        for name, array in self.start.items():
            self.arrays[name][: len(array)] = array

    def _add(self, name: str, array: Array) -> None:
        """An array of parameters, with zero moments."""
        self.arrays[name] = array
        for moment in MOMENTS[self.settings.rule]:
            self.arrays[f"{moment} {name}"] = np.zeros_like(array)
        if (
            name.startswith(f"{INPUT}>")
            and name in self._penalised()
            and (self.settings.l1 > 0 or self.settings.l2 > 0)
        ):
            self.arrays[f"stamp {name}"] = np.full(len(array), self.arrays["clock"][PATH])

    def _size(self, name: str) -> int:
        if name == INPUT:
            return self.n_features
        return self.n_outputs if name == OUTPUT else int(self.graph.nodes[name].size or 0)

    def _first_weights(self, source: str, target: str, start: int, stop: int) -> Array:
        """Rows start..stop of an edge's first weights; a row's numbers do not depend on which others are drawn."""
        width, dtype = self._size(target), self.settings.dtype
        size = (stop - start) * width * np.dtype(dtype).itemsize
        if size > LARGEST_TABLE_BYTES:
            raise DataError(
                f"the weights would take {size / 2**30:.1f} GB for {self.n_features:,} features and {width} units; "
                "check the largest feature index, hash the features to fewer, or take fewer units"
            )
        bound = self._bound(target)
        if bound == 0 or self.graph.nodes[target].kind == "distance":
            return np.zeros((stop - start, width), dtype)
        edge = self.graph.edges.index((source, target))
        bits = np.random.PCG64(np.random.SeedSequence([self.settings.seed, edge]))
        bits.advance(start * width)
        uniform = np.random.Generator(bits).random((stop - start, width))
        uniform -= 0.5
        uniform *= 2 * bound
        return uniform.astype(dtype)

    def _first_biases(self, name: str) -> Array:
        """Biases of hidden units differ from the start: an odd function is a trap of its own (two spirals)."""
        fan_in = max(1.0, self._fan_in(name))
        bound = {"uniform": 0.1, "zero": 0.0}.get(self.settings.init, 1.0 / math.sqrt(fan_in))
        place = len(self.graph.edges) + list(self.graph.nodes).index(name)
        uniform = np.random.default_rng([self.settings.seed, place]).uniform(-1.0, 1.0, self._size(name))
        return np.asarray((0.0 if name == OUTPUT else bound) * uniform, self.settings.dtype)

    def _fan_in(self, name: str) -> float:
        """The input counts as |x|^2 units, which is d for standard features."""
        return float(sum(self.spread if a == INPUT else self._size(a) for a in self.graph.sources(name)))

    def _bound(self, target: str) -> float:
        """First weights lie between -bound and bound."""
        init = self.settings.init
        if init in ("uniform", "zero"):
            return 0.1 if init == "uniform" else 0.0
        fan_out = self._size(target) if init == "glorot" else 0.0
        return math.sqrt(6.0 / (self._fan_in(target) + fan_out))

    def _grow_features(self, n_features: int) -> None:
        """Makes room for more features; tables double, so that a growing stream is copied a few times only."""
        known, self.n_features = self.n_features, max(self.n_features, n_features)
        if not self.arrays or self.n_features <= self._room():
            return
        room = self._room()
        size = self.n_features if known == 0 else max(self.n_features, 2 * room)
        for target in self.graph.targets(INPUT):
            name = f"{INPUT}>{target}"
            for moment in MOMENTS[self.settings.rule]:
                old = self.arrays[f"{moment} {name}"]
                self.arrays[f"{moment} {name}"] = np.concatenate(
                    [old, np.zeros((size - room, old.shape[1]), old.dtype)]
                )
            more = self._first_weights(INPUT, target, room, size)
            self.arrays[name] = np.concatenate([self.arrays[name], more])
            if f"stamp {name}" in self.arrays:
                stamp = self.arrays[f"stamp {name}"]
                self.arrays[f"stamp {name}"] = np.append(stamp, np.full(size - room, self.arrays["clock"][PATH]))

    def _grow_outputs(self) -> None:
        """New classes get outputs: two classes shared one, which, negated, speaks for the first of them."""
        width = self.n_outputs
        names = [f"{source}>{OUTPUT}" for source in self.graph.sources(OUTPUT)]
        if self.arrays[names[0]].shape[1] == width:
            return
        names += [f"bias {OUTPUT}"] if self.settings.biases else []
        for name in [f"{kind}{name}" for name in names for kind in ("", "first ", "second ")]:
            if name in self.arrays:
                old = self.arrays[name]
                grown = np.zeros((*old.shape[:-1], width), old.dtype)
                if old.shape[-1] == 1:
                    grown[..., 0], grown[..., 1] = -old[..., 0], old[..., 0]
                    if name.startswith("second "):
                        np.abs(grown, out=grown)
                else:
                    grown[..., : old.shape[-1]] = old
                self.arrays[name] = grown
        self.targets.look(np.zeros((1, width)))
        self._good = None

    # -------------------------------------------------------------------------------------------------- trouble

    def _refuse_bad_index(self, rows: Chunk, done: int) -> None:
        if done == rows.n_rows:
            return
        row = int(rows.row_numbers[done])
        indices = rows.indices[int(rows.indptr[row]) : int(rows.indptr[row + 1])]
        wrong = indices[(indices < 0) | (indices >= self._room())]
        raise DataError(
            f"row {row + rows.first_id} has the column index {int(wrong[0])}, but columns run from 0 "
            f"to {rows.n_features - 1}; check how the matrix was built"
        )

    def _refuse_bad_rows(self, rows: Chunk) -> None:
        """Raises if some row holds what is no number, and returns if the weights are at fault."""
        packed = rows.packed()
        wrong = np.flatnonzero(~np.isfinite(packed.values))
        if len(wrong):
            visit = int(np.searchsorted(packed.indptr, wrong[0], side="right")) - 1
            kind = "NaN" if np.isnan(packed.values[wrong[0]]) else "infinity"
            raise DataError(
                f"Input X contains {kind}: row {int(rows.row_ids[visit])}, column {int(packed.indices[wrong[0]])}; "
                "drop the row or fill the value"
            )

    def _refuse_bad_row(self, rows: Chunk, visit: int) -> None:
        """The same for one row, whose score was no number."""
        self._refuse_bad_rows(rows.span(visit, visit + 1))

    def _roll_back(self, progress: Progress) -> None:
        """Scores ran out of range: back to the last good state with half the step."""
        self.rollbacks += 1
        before = self.eta0
        if self.rollbacks > MOST_ROLLBACKS:
            raise DataError(
                f"learning diverges even with the step size {before:.3g}; scale the features to about one, "
                "or choose a loss that grows more slowly"
            )
        if self._good is None:
            self._initialise()
        else:
            self.arrays = {name: array.copy() for name, array in self._good.items()}
            self._grow_features(self.n_features)
        self.eta0 = before / 2
        progress.events.append(
            f"scores overflowed after {self.rows_learned:,} rows: went back to the last good state and "
            f"halved the step size from {before:.3g} to {self.eta0:.3g}"
        )

    def _snapshot_edge(self) -> int:
        edge = FIRST_SNAPSHOT_ROWS
        while edge <= self.rows_learned:
            edge *= 2
        return edge

    def keep_good_state(self) -> None:
        """Remembers the state to return to if learning diverges; an overflowed one is not worth it."""
        with np.errstate(over="ignore", invalid="ignore"):
            finite = all(math.isfinite(float(array.sum())) for array in self.arrays.values())
        if not finite:
            self._roll_back(Progress())
            return
        old = self._good or {}
        self._good = {name: _copied(array, old.get(name)) for name, array in self.arrays.items()}


def _copied(array: Array, room: Array | None) -> Array:
    """A copy, in memory that is there already if it fits: fresh pages cost more than the copying."""
    if room is None or room.shape != array.shape:
        return array.copy()
    np.copyto(room, array)
    return room


def _is_weight(name: str) -> bool:
    return ">" in name and not name.startswith(("first ", "second ", "stamp "))


def _n_entries(rows: Chunk) -> int:
    if rows.order is None:
        return int(rows.indptr[-1] - rows.indptr[0])
    return int((rows.indptr[rows.order + 1] - rows.indptr[rows.order]).sum())
