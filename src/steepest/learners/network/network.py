"""Networks by back-propagation: scores from a graph of units, minimising mean loss + alpha R(W) over mini-batches.

The state is one array for each edge and each bias, the moments of the solver, and a clock. A weight of the input
layer moves in those batches only in which its feature occurs, and pays its penalty when it is next seen, so a row costs
O(non-zeros x units) there; under sgd that is the plain step, under the others its usual lazy form. Penalties follow the
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

from steepest.data.chunk import Array, Chunk
from steepest.learners.base import Progress, State
from steepest.learners.network.graph import INPUT, OUTPUT, Graph, Passed, backward, forward, product, wiring
from steepest.learners.network.network_batches import Batches
from steepest.learners.network.network_input import DENSE_SHARE, MOST_DENSE_NUMBERS, InputLayer, refuse_bad_index
from steepest.learners.network.network_settings import SOLVERS, NetworkSettings
from steepest.learners.network.network_start import Start
from steepest.learners.network.network_updates import MOMENTS, PATH, STEPS, paid_weights, pay_penalty, shrink, update
from steepest.learners.resumable import all_finite, refuse_overflow
from steepest.learners.schedules import FIRST_ROWS
from steepest.learners.snapshot import LastGoodState
from steepest.learners.state_check import StateCheck
from steepest.learners.targets import TargetLearner, Targets, refuse_bad_rows
from steepest.learners.waiting import WaitingRows

SCORED_ROWS = 1024  # at once, so that memory stays small
LEAST_STEP = 0.05  # what schedule="linear" keeps of the first step for rows beyond those planned
INVSQRT_ROWS = 1000.0


class NetworkLearner(TargetLearner):
    """State and step of a network."""

    state_arrays = ()
    state_numbers = ("n_features", "eta0", "rows_learned", "good.rollbacks", "spread", "dense")

    def __init__(
        self,
        settings: NetworkSettings,
        n_features: int = 0,
        labels: Sequence[Any] = (),
        start: Mapping[str, Array] | None = None,
    ) -> None:
        s = settings
        self.settings: NetworkSettings = s
        self.graph = Graph.from_dict(s.graph)
        self.stations = wiring(self.graph)
        self.input = InputLayer(s, self.graph)
        self.batches = Batches(s, self.stations) if Batches.can_take(self.stations) else None
        self.penalised = [f"{a}>{b}" for a, b in self.graph.edges if self.graph.nodes[b].kind == "dot"]
        self.targets = Targets(s.task, s.loss, s.loss_parameter, s.class_weight, labels)
        self.n_features = n_features
        self.eta0: float = s.eta0
        self.rows_learned = 0
        self.spread = 0.0  # mean of |x|^2; 0 until the first rows have shown it
        self.dense = False  # whether rows have so few zeros that dense products are faster
        self.waiting = WaitingRows()
        self.arrays: dict[str, Array] = {}
        self.start = {} if start is None else dict(start)  # given first values, such as centres
        self.good = LastGoodState()

    @property
    def n_threads(self) -> int:
        """The number of threads that share a batch; results do not depend on it."""
        return self.input.n_threads

    @n_threads.setter
    def n_threads(self, n: int) -> None:
        self.input.n_threads = n

    # ------------------------------------------------------------------------------------------------ the contract

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order, in mini-batches; rows that fill none wait."""
        progress = Progress()
        self._finished = None
        for rows in self.waiting.ready(chunk, self._rows_needed, self._announce):
            if not self.spread:
                first = self._rows_needed()
                self._learn(rows.span(0, first), progress)
                rows = rows.span(first, rows.n_rows)
            whole = rows.n_rows - rows.n_rows % self.settings.batch_size
            if whole:
                self._learn(rows.span(0, whole), progress)
            self.waiting.put_back(rows.span(whole, rows.n_rows), self._announce)
        return progress

    def _rows_needed(self) -> int:
        """A batch; at the start as many whole batches as show the spread, so that no row waits twice."""
        batch = self.settings.batch_size
        return batch if self.spread else -(-FIRST_ROWS // batch) * batch

    def _announce(self, rows: Chunk) -> None:
        self.targets.announce(rows)
        self._grow_features(rows.n_features)

    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Raw scores, shape (rows, outputs); each row is summed on its own, so any number of threads agrees."""
        shown = self.finished()
        out = np.zeros((chunk.n_rows, shown.n_outputs))
        if not shown.arrays:
            return out
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, chunk.n_rows, SCORED_ROWS):
                rows = chunk.span(start, min(start + SCORED_ROWS, chunk.n_rows))
                carried = shown.input.showing_pass(shown.arrays, rows, n_threads)
                passed = forward(shown.stations, shown.arrays, carried, n_threads)
                out[start : start + SCORED_ROWS] = shown.targets.scores(passed.h[OUTPUT])
        return out

    def merge(self, states: Sequence[State]) -> NetworkLearner:
        """The mean of several learners' arrays, each counted by the rows it has seen."""
        parts = [NetworkLearner.from_state(self.settings, state).finished().clone() for state in states]
        seen = np.array([float(part.rows_learned) for part in parts])
        shares = seen / seen.sum() if seen.sum() > 0 else np.full(len(parts), 1 / len(parts))
        merged = parts[0]
        for part in parts:
            for name in list(part.arrays):
                pay_penalty(part.settings, part.arrays, name)
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
        """All arrays that were learned or are needed to continue."""
        state = {f"learned {name}": array for name, array in self.arrays.items()}
        state |= {f"start {name}": array for name, array in self.start.items()}
        return state | {"shift": self.targets.shift, "scale": self.targets.scale} | super().state

    @classmethod
    def check_state(cls, settings: NetworkSettings, state: State) -> None:
        """Raises ValueError unless a learner with these settings could have had this state."""
        check = StateCheck.of(state, cls.state_numbers)
        n = check.n_features
        if settings.solver not in SOLVERS:
            raise ValueError(f"the solver is {settings.solver!r}"[:200])
        if not settings.planned_rows > 0:
            raise ValueError(f"the planned rows are {settings.planned_rows}")
        k = check.targets(settings.task)
        n_shown = check.arrays({"shift": "f outputs", "scale": "f outputs"})["outputs"]
        if not 0 < n_shown <= k or (state["scale"] <= 0).any():
            raise ValueError("shift and scale do not belong to the outputs")
        check.waiting(n)
        graph = Graph.from_dict(settings.graph)
        learned = {name[8:] for name in state if name.startswith("learned ")}
        if not learned:
            return
        check.arrays({"learned clock": "f8 2"})
        n_known = np.asarray(state[f"learned {graph.sources(OUTPUT)[0]}>{OUTPUT}"]).shape[-1]  # a new class may wait
        if n_known > k:
            raise ValueError(f"the network has {n_known} outputs of {k}")
        sizes = {name: str(node.size) for name, node in graph.nodes.items()} | {INPUT: "features", OUTPUT: str(n_known)}
        parts = {f"{a}>{b}": f"{sizes[a]} {sizes[b]}" for a, b in graph.edges}
        for name, node in graph.nodes.items():
            if name != INPUT and node.kind == "dot" and settings.biases:
                parts[f"bias {name}"] = sizes[name]
            if node.kind == "distance":
                parts[f"gamma {name}"] = sizes[name]
        rows_of_input = {len(state[f"learned {name}"]) for name in learned if f"{INPUT}>" in name}
        if len(rows_of_input) > 1 or min(rows_of_input, default=n) < n:
            raise ValueError("the arrays of the input have not a row per feature")
        moments = [mark for mark in ("first ", "second ") if any(name.startswith(mark) for name in learned)]
        kind = np.dtype(settings.dtype).str[1:]
        check.arrays(
            {f"learned {mark}{name}": f"{kind} {shape}" for name, shape in parts.items() for mark in ("", *moments)}
        )
        stamps = {f"learned stamp {a}>{b}": f"f8 {sizes[a]}" for a, b in graph.edges if f"stamp {a}>{b}" in learned}
        check.arrays(stamps, features=next(iter(rows_of_input), n))
        known = {f"{mark}{name}" for name in parts for mark in ("", "first ", "second ", "stamp ")} | {"clock"}
        if learned - known:
            raise ValueError(f"the network has no {sorted(learned - known)[0]}")

    @classmethod
    def from_state(cls, settings: NetworkSettings, state: State) -> NetworkLearner:
        """Builds a learner from its settings and state."""
        start = {name[6:]: np.array(array) for name, array in state.items() if name.startswith("start ")}
        learner = cls(settings, 0, state["labels"].tolist(), start)
        learner.restore(state)
        learner.targets.shift, learner.targets.scale = np.array(state["shift"]), np.array(state["scale"])
        learner.arrays = {name[8:]: np.array(array) for name, array in state.items() if name.startswith("learned ")}
        return learner

    # ------------------------------------------------------------------------------------------- what was learned

    def parameters(self) -> dict[str, Array]:
        """Weights by edge ("x>h1"), biases ("bias h1") and widths ("gamma h1") as used for prediction."""
        shown, moments = self.finished(), ("first ", "second ", "stamp ", "clock")
        return {
            name: paid_weights(shown.settings, shown.arrays, name)[: shown.n_features]
            if name.startswith(f"{INPUT}>")
            else array.copy()
            for name, array in shown.arrays.items()
            if not name.startswith(moments)
        }

    def refuse_overflow(self) -> None:
        """Raises if a number that was learned is not finite, with the rows that wait and with penalties applied."""
        super().refuse_overflow()
        refuse_overflow(self.parameters())

    def weights(self) -> tuple[Array, Array]:
        """(all weights, all biases), each in one row."""
        parameters = self.parameters()
        weights = [array.ravel() for name, array in parameters.items() if ">" in name]
        biases = [array.ravel() for name, array in parameters.items() if name.startswith("bias ")]
        return np.concatenate([np.zeros(0), *weights]), np.concatenate([np.zeros(0), *biases])

    def count_nonzero(self) -> int:
        """The number of weights that are not zero; a pending 2-norm makes none zero, so it is not applied for this."""
        if self.settings.l1 > 0:
            return int(np.count_nonzero(self.weights()[0]))
        return sum(int(np.count_nonzero(array)) for name, array in self.arrays.items() if _is_weight(name))

    @property
    def step_size(self) -> float:
        """The step size of the next batch."""
        return self._step_after(self.rows_learned)

    def _step_after(self, rows: int) -> float:
        schedule = self.settings.schedule
        if schedule == "linear":
            return self.eta0 * max(LEAST_STEP, 1.0 - rows / self.settings.planned_rows)
        if schedule == "invsqrt":
            return self.eta0 / math.sqrt(1.0 + rows / INVSQRT_ROWS)
        return self.eta0

    def penalty(self) -> float:
        """alpha R(W) at the current weights; centres of radial bases are not penalised."""
        s = self.settings
        if s.l1 == 0 and s.l2 == 0:
            return 0.0
        total = 0.0
        shown = self.finished()
        for name in self.penalised if shown.arrays else ():
            exact = paid_weights(s, shown.arrays, name).astype(np.float64)
            total += s.l1 * float(np.abs(exact).sum()) + 0.5 * s.l2 * float(np.square(exact).sum())
        return total

    # ---------------------------------------------------------------------------------------------------- the step

    def _learn(self, rows: Chunk, progress: Progress) -> None:
        self._grow_features(rows.n_features)
        if not self.spread:
            self.targets.announce(rows)
            self.survey(rows)
        known, start = self.targets.code_known(rows), 0
        learn = self._learn_batches if self._by_kernels else self._learn_batch
        with np.errstate(over="ignore", invalid="ignore"):
            while start < rows.n_rows:
                edge = self.good.next_rows(self.rows_learned)
                stop = min(rows.n_rows, start + self._rows_at_once(edge, known is not None))
                start += learn(rows.span(start, stop), None if known is None else known[start:stop], progress)
                if self.rows_learned >= edge and not self.good.is_recent(self.rows_learned):
                    self.keep_good_state()

    @property
    def _by_kernels(self) -> bool:
        """Whether kernels learn whole batches: rows are sparse, or would be too large as dense ones."""
        too_large = self.settings.batch_size * self._room() >= MOST_DENSE_NUMBERS
        return self.batches is not None and (not self.dense or too_large)

    def _rows_at_once(self, edge: int, are_known: bool) -> int:
        """Whole batches until the next snapshot; one where classes or their weights may change behind it."""
        size = self.settings.batch_size
        if not self._by_kernels or not are_known or self.targets.class_weight == "balanced":
            return size
        return -(-(edge - self.rows_learned) // size) * size

    def _coded(self, rows: Chunk, coded: Array | None) -> tuple[Array, Array | None]:
        """(targets, weights) of a batch; None: classes are to be taken in first."""
        if coded is None:
            coded = self.targets.code(rows, grow=True)
        self._grow_outputs()
        return coded, self.targets.weigh(rows, coded)

    def _learn_batches(self, rows: Chunk, coded: Array | None, progress: Progress) -> int:
        """Learns batches of sparse rows, up to one that overflows; returns how many rows were taken."""
        assert self.batches is not None
        t, size, before = self.targets, self.settings.batch_size, self.rows_learned
        coded, weight = self._coded(rows, coded)
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
        """Learns one batch of dense rows through any graph; returns how many rows were taken."""
        coded, weight = self._coded(rows, coded)
        dense, used = self.input.densify(self.arrays, rows)
        carried = self.input.learning_pass(self.arrays, dense, used)
        passed = forward(self.stations, self.arrays, carried, self.n_threads)
        losses, gradient = self.targets.losses_and_gradients(passed.h[OUTPUT], coded, weight)
        total = float(losses.sum()) if weight is None else float((losses * weight).sum())
        self.rows_learned += rows.n_rows
        if not math.isfinite(total):
            self._overflowed(rows, progress)
            return rows.n_rows
        self._descend(dense, used, passed, gradient)
        n_weight = float(rows.n_rows) if weight is None else float(weight.sum())
        progress.add(Progress(rows.n_rows, n_weight, total))
        return rows.n_rows

    def _descend(self, dense: Array, used: Array, passed: Passed, gradient: Array) -> None:
        s, layer, eta = self.settings, self.input, self.step_size
        of_nodes = backward(self.stations, self.arrays, passed, gradient, self.n_threads)
        self.arrays["clock"][STEPS] += 1
        for name, gradient in self._gradients(passed, of_nodes).items():
            update(s, self.arrays, name, None, gradient, eta, self.n_threads)
        for target in layer.targets:
            features, gradient = layer.gradient(self.arrays, dense, used, target, of_nodes[target])
            update(s, self.arrays, f"{INPUT}>{target}", features, gradient, eta, self.n_threads)
        shrink(s, self.arrays, self.penalised, eta)

    def _gradients(self, passed: Passed, of_nodes: Mapping[str, Array]) -> dict[str, Array]:
        """The gradients of all parameters except those of the input's edges."""
        gradients = {}
        for node, sources, _ in self.stations:
            name = node.name
            if f"bias {name}" in self.arrays:
                gradients[f"bias {name}"] = np.add.reduce(of_nodes[name])
            if node.kind == "distance":  # by log gamma: dh / dlog gamma = -gamma z h
                change = passed.z[name] * passed.h[name] * of_nodes[f"h {name}"]
                gradients[f"gamma {name}"] = -np.exp(self.arrays[f"gamma {name}"]) * change.sum(axis=0)
            for source in sources:
                if source != INPUT:
                    h, gradient = passed.h[source], of_nodes[name]
                    gradients[f"{source}>{name}"] = product(h, gradient, transposed=True, n_threads=self.n_threads)
        return gradients

    # -------------------------------------------------------------------------------------------------- the arrays

    def _room(self) -> int:
        """The number of features that the tables have room for."""
        return self.input.room(self.arrays) if self.arrays else self.n_features

    def _start(self) -> Start:
        return Start(self.settings, self.graph, self.n_features, self.n_outputs, self.spread)

    def survey(self, rows: Chunk) -> None:
        """Measures the spread of features and targets, which decides the size of the first weights."""
        packed = rows.packed()
        refuse_bad_rows(packed)
        square = float(np.square(packed.values.astype(np.float64)).sum()) / max(1, packed.n_rows)
        self.spread = max(square, 1e-12)
        columns = int(packed.indices.max(initial=-1)) + 1  # of these rows: what is read later must not matter
        self.dense = bool(self.input.distances) or len(packed.indices) > DENSE_SHARE * packed.n_rows * columns
        self.targets.measure_spread(self.targets.code(packed))
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
        for moment in MOMENTS[self.settings.solver]:
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
            more = self._start().weights(INPUT, target, room, size)
            self.arrays[name] = np.concatenate([self.arrays[name], more])
            for mark, fill in (("first", 0.0), ("second", 0.0), ("stamp", self.arrays["clock"][PATH])):
                if (old := self.arrays.get(f"{mark} {name}")) is not None:
                    rows = np.full((size - room, *old.shape[1:]), fill, old.dtype)
                    self.arrays[f"{mark} {name}"] = np.concatenate([old, rows])

    def _grow_outputs(self) -> None:
        """Adds outputs for new classes; the one output of two classes becomes two, negated for the first class."""
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
        self.targets.measure_spread(np.zeros((1, width)))
        self.good.forget()

    # -------------------------------------------------------------------------------------------------- trouble

    def _overflowed(self, rows: Chunk, progress: Progress) -> None:
        """Handles a batch whose loss is not finite: raises for a bad row, else rolls back."""
        refuse_bad_rows(rows)
        self.roll_back(progress)

    def roll_back(self, progress: Progress) -> None:
        """Returns to the last good state with half the step size, because scores overflowed."""
        self.eta0 = self.good.halve_step(self.eta0, self.rows_learned, progress)
        if self.good.exists:
            self.arrays = self.good.restored()
            self._grow_features(self.n_features)
        else:
            self._initialise()

    def keep_good_state(self) -> None:
        """Copies the state, to return to if learning diverges; rolls back if it has overflowed already."""
        if all(all_finite(array) for array in self.arrays.values()):
            self.good.keep(self.arrays, self.rows_learned)
        else:
            self.roll_back(Progress())


def _is_weight(name: str) -> bool:
    return ">" in name and not name.startswith(("first ", "second ", "stamp "))
