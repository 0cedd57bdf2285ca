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
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.learners.base import Progress, State, pending_rows, pending_state
from steepest.learners.graph import INPUT, OUTPUT, Graph, Passed, backward, forward, product, wiring
from steepest.learners.labels import LabelBook
from steepest.learners.network_batches import Batches
from steepest.learners.network_input import DENSE_SHARE, Batch, InputLayer, refuse_bad_index, refuse_bad_rows
from steepest.learners.network_rules import MOMENTS, PATH, STEPS, settle, settled, shrink, update
from steepest.learners.network_settings import NetworkSettings
from steepest.learners.network_start import Start
from steepest.learners.targets import Targets

LOOK_ROWS = 1000  # whose spread sets the first weights
SCORED_ROWS = 1024  # at once, so that memory stays small
FIRST_SNAPSHOT_ROWS = 1 << 16
MOST_ROLLBACKS = 60
LEAST_STEP = 0.05  # what schedule="linear" keeps of the first step for rows beyond those planned
INVSQRT_ROWS = 1000.0


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
        self.input = InputLayer(s, self.graph)
        self.batches = Batches(s, self.stations) if Batches.can_take(self.stations) else None
        self.penalised = [f"{a}>{b}" for a, b in self.graph.edges if self.graph.nodes[b].kind == "dot"]
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
        self._good_rows = 0  # learned when it was kept
        self._finished_copy: NetworkLearner | None = None

    @property
    def n_threads(self) -> int:
        """Threads that share the work on a batch; bits do not depend on them."""
        return self.input.n_threads

    @n_threads.setter
    def n_threads(self, n: int) -> None:
        self.input.n_threads = n

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
        """Raw scores, shape (rows, outputs); each row's bits are its own, so threads change nothing."""
        return self._finished()._scores(chunk, n_threads)

    def losses(self, coded: Chunk, scores: Array | None = None) -> tuple[Array, Array]:
        """(loss of each row visited, its weight), targets coded already; scores that are known need not be found."""
        assert coded.y is not None
        weight = np.ones(coded.n_rows) if coded.weight is None else coded.visited(coded.weight)
        scores, targets = self.scores(coded) if scores is None else scores, self._finished().targets
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
            for name in list(part.arrays):
                settle(part.settings, part.arrays, name)
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
        return state | pending_state(self.pending)

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
        learner.pending = pending_rows(state, learner.n_features)
        return learner

    def clone(self) -> NetworkLearner:
        """An independent copy."""
        copy = NetworkLearner.from_state(self.settings, self.state)
        copy.n_threads = self.n_threads
        return copy

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
            name: settled(shown.settings, shown.arrays, name)[: shown.n_features]
            if name.startswith(f"{INPUT}>")
            else array.copy()
            for name, array in shown.arrays.items()
            if not name.startswith(moments)
        }

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
        return self._step_after(self.rows_learned)

    def _step_after(self, rows: int) -> float:
        schedule = self.settings.schedule
        if schedule == "linear":
            return self.eta0 * max(LEAST_STEP, 1.0 - rows / self.settings.planned_rows)
        if schedule == "invsqrt":
            return self.eta0 / math.sqrt(1.0 + rows / INVSQRT_ROWS)
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
        for name in self.penalised if shown.arrays else ():
            exact = settled(s, shown.arrays, name).astype(np.float64)
            total += s.l1 * float(np.abs(exact).sum()) + 0.5 * s.l2 * float(np.square(exact).sum())
        return total

    # ---------------------------------------------------------------------------------------------------- the step

    def _learn(self, rows: Chunk, progress: Progress) -> None:
        self._grow_features(rows.n_features)
        if not self.spread:
            self.targets.announce(rows)
            self._look(rows)
        known, start = self.targets.code_known(rows), 0
        learn = self._learn_batch if self.dense or self.batches is None else self._learn_batches
        with np.errstate(over="ignore", invalid="ignore"):
            while start < rows.n_rows:
                edge = self._snapshot_edge()
                stop = min(rows.n_rows, start + self._rows_at_once(edge, known is not None))
                start += learn(rows.span(start, stop), None if known is None else known[start:stop], progress)
                if self.rows_learned >= edge:
                    self.keep_good_state()

    def _rows_at_once(self, edge: int, are_known: bool) -> int:
        """Whole batches until the next snapshot; one where classes or their weights may change behind it."""
        size = self.settings.batch_size
        if self.dense or self.batches is None or not are_known or self.targets.class_weight == "balanced":
            return size
        return -(-(edge - self.rows_learned) // size) * size

    def _learn_batches(self, rows: Chunk, coded: Array | None, progress: Progress) -> int:
        """Batches of sparse rows, up to one that overflows; how many rows were taken."""
        assert self.batches is not None
        t, size, before = self.targets, self.settings.batch_size, self.rows_learned
        if coded is None:
            coded = t.code(rows, grow=True)
        self._grow_outputs()
        weight = t.weigh(rows, coded)
        stops = [min(start + size, rows.n_rows) for start in range(0, rows.n_rows, size)]
        steps, slot = [self._step_after(before + stop) for stop in stops], self.input.slot(self.arrays)
        done = self.batches.learn(self.arrays, slot, rows, t, coded, weight, steps, self.n_threads)
        for number, total in enumerate(done.totals[: done.batches].tolist()):
            part = slice(number * size, stops[number])
            n_weight = float(stops[number] - number * size) if weight is None else float(weight[part].sum())
            progress.add(Progress(stops[number] - number * size, n_weight, total))
        if done.bad_row >= 0:
            self.rows_learned += done.batches * size
            refuse_bad_index(rows, done.bad_row, len(slot))
        taken = rows.n_rows if done.batches == len(stops) else stops[done.batches]
        self.rows_learned += taken
        if done.batches < len(stops):
            self._overflowed(rows.span(done.batches * size, taken), progress)
        return taken

    def _learn_batch(self, rows: Chunk, coded: Array | None, progress: Progress) -> int:
        """One batch of rows of any kind through a graph of any kind; how many rows were taken."""
        t = self.targets
        if coded is None:
            coded = t.code(rows, grow=True)
        self._grow_outputs()
        weight = t.weigh(rows, coded)
        batch = self.input.batch(self.arrays, rows, self.dense)
        carried = self.input.learning_pass(self.arrays, batch)
        passed = forward(self.stations, self.arrays, carried, self.n_threads)
        losses, slope = t.losses_and_slopes(passed.h[OUTPUT], coded, weight)
        total = float(losses.sum()) if weight is None else float((losses * weight).sum())
        self.rows_learned += rows.n_rows
        if not math.isfinite(total):
            self._overflowed(rows, progress)
            return rows.n_rows
        self._descend(batch, passed, slope)
        n_weight = float(rows.n_rows) if weight is None else float(weight.sum())
        progress.add(Progress(rows.n_rows, n_weight, total))
        return rows.n_rows

    def loss_and_gradients(self, rows: Chunk) -> tuple[float, dict[str, Array]]:
        """Mean loss of some rows, in the units of learning, and its gradient by every parameter; nothing changes."""
        t, n, layer = self.targets, max(1, rows.n_rows), self.input
        coded, dense = t.code(rows), layer.densify(self.arrays, rows)[0]
        carried = {target: layer.dense_products(self.arrays, dense, target) for target in layer.targets}
        passed = forward(self.stations, self.arrays, carried)
        slope = t.slopes(passed.h[OUTPUT], coded) / n
        slopes = backward(self.stations, self.arrays, passed, slope.astype(self.settings.dtype))
        gradients = self._gradients(passed, slopes)
        for target in layer.targets:
            gradients[f"{INPUT}>{target}"] = layer.dense_gradient(self.arrays, dense, target, slopes[target])
        return float(t.learned_losses(passed.h[OUTPUT], coded).sum()) / n, gradients

    def _descend(self, batch: Batch, passed: Passed, slope: Array) -> None:
        s, layer, eta = self.settings, self.input, self.step_size
        slopes = backward(self.stations, self.arrays, passed, slope, self.n_threads)
        self.arrays["clock"][STEPS] += 1
        for name, gradient in self._gradients(passed, slopes).items():
            update(s, self.arrays, name, None, gradient, eta, self.n_threads)
        for target in layer.targets:
            if batch.dense is None and s.rule == "sgd":
                layer.descend(self.arrays, batch, target, slopes[target], eta)
            else:
                features, gradient = layer.gradient(self.arrays, batch, target, slopes[target])
                update(s, self.arrays, f"{INPUT}>{target}", features, gradient, eta, self.n_threads)
        shrink(s, self.arrays, self.penalised, eta)

    def _gradients(self, passed: Passed, slopes: Mapping[str, Array]) -> dict[str, Array]:
        """Of all parameters but those of the input's edges."""
        gradients = {}
        for node, sources, _ in self.stations:
            name = node.name
            if f"bias {name}" in self.arrays:
                gradients[f"bias {name}"] = np.add.reduce(slopes[name])
            if node.kind == "distance":  # by log gamma: dh / dlog gamma = -gamma z h
                change = passed.z[name] * passed.h[name] * slopes[f"h {name}"]
                gradients[f"gamma {name}"] = -np.exp(self.arrays[f"gamma {name}"]) * change.sum(axis=0)
            for source in sources:
                if source != INPUT:
                    h, slope = passed.h[source], slopes[name]
                    gradients[f"{source}>{name}"] = product(h, slope, transposed=True, n_threads=self.n_threads)
        return gradients

    def _scores(self, chunk: Chunk, n_threads: int) -> Array:
        out = np.zeros((chunk.n_rows, self.n_outputs))
        if not self.arrays:
            return out
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, chunk.n_rows, SCORED_ROWS):
                rows = chunk.span(start, min(start + SCORED_ROWS, chunk.n_rows))
                carried = self.input.showing_pass(self.arrays, rows, n_threads)
                passed = forward(self.stations, self.arrays, carried, n_threads)
                out[start : start + SCORED_ROWS] = self.targets.scores(passed.h[OUTPUT])
        return out

    # -------------------------------------------------------------------------------------------------- the arrays

    def _room(self) -> int:
        """Features that the tables have room for."""
        return self.input.room(self.arrays) if self.arrays else self.n_features

    def _start(self) -> Start:
        return Start(self.settings, self.graph, self.n_features, self.n_outputs, self.spread)

    def _look(self, rows: Chunk) -> None:
        """The spread of features and targets decides how large the first weights are."""
        packed = rows.packed()
        refuse_bad_rows(packed)
        square = float(np.square(packed.values.astype(np.float64)).sum()) / max(1, packed.n_rows)
        self.spread = max(square, 1e-12)
        columns = int(packed.indices.max(initial=-1)) + 1  # of these rows: what is read later must not matter
        self.dense = bool(self.input.distances) or len(packed.indices) > DENSE_SHARE * packed.n_rows * columns
        self.targets.look(self.targets.code(packed))
        self._initialise()

    def _initialise(self) -> None:
        self.arrays = {"clock": np.zeros(2)}
        start = self._start()
        for node, sources, _ in self.stations:
            if self.settings.biases and node.kind == "dot":
                self._add(f"bias {node.name}", start.biases(node.name))
            if node.kind == "distance":
                self._add(f"gamma {node.name}", np.zeros(start.size(node.name), self.settings.dtype))
            for source in sources:
                self._add(f"{source}>{node.name}", start.weights(source, node.name, 0, start.size(source)))
        for name, array in self.start.items():
            self.arrays[name][: len(array)] = array

    def _add(self, name: str, array: Array) -> None:
        """An array of parameters, with zero moments."""
        self.arrays[name] = array
        for moment in MOMENTS[self.settings.rule]:
            self.arrays[f"{moment} {name}"] = np.zeros_like(array)
        if name.startswith(f"{INPUT}>") and name in self.penalised and (self.settings.l1 > 0 or self.settings.l2 > 0):
            self.arrays[f"stamp {name}"] = np.full(len(array), self.arrays["clock"][PATH])

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
            more = self._start().weights(INPUT, target, room, size)
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

    def _refuse_bad_row(self, rows: Chunk, visit: int) -> None:
        """The same for one row, whose score was no number."""
        refuse_bad_rows(rows.span(visit, visit + 1))

    def _overflowed(self, rows: Chunk, progress: Progress) -> None:
        """A batch's loss was no number: its rows are at fault, or the step was too long."""
        refuse_bad_rows(rows)
        self._roll_back(progress)

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
        """Rows after which the next good state is kept: a power of two, and not soon after the last one."""
        edge = FIRST_SNAPSHOT_ROWS
        while edge <= self.rows_learned or edge < 2 * self._good_rows:
            edge *= 2
        return edge

    def keep_good_state(self) -> None:
        """Remembers the state to return to if learning diverges; an overflowed one is not worth it."""
        with np.errstate(over="ignore", invalid="ignore"):
            finite = all(math.isfinite(float(array.sum())) for array in self.arrays.values())
        if not finite:
            self._roll_back(Progress())
            return
        old, self._good_rows = self._good or {}, self.rows_learned
        self._good = {name: _copied(array, old.get(name)) for name, array in self.arrays.items()}


def _copied(array: Array, room: Array | None) -> Array:
    """A copy, in memory that is there already if it fits: fresh pages cost more than the copying."""
    if room is None or room.shape != array.shape:
        return array.copy()
    np.copyto(room, array)
    return room


def _is_table(name: str) -> bool:
    return name.startswith(f"{INPUT}>")


def _is_weight(name: str) -> bool:
    return ">" in name and not name.startswith(("first ", "second ", "stamp "))
