"""Learning that survives: rows go to the log, then to the disk, then into the model, and only then is the answer sent.

One thread takes all requests that wait, predicts their rows (which checks them and gives the progressive loss), writes
them as one frame with one fsync, and learns them in the order of the log. Whoever arrives meanwhile is in the next
group. A restart loads the last snapshot, or the model, and learns the rest of the log by the same calls: the bits are
the same. A snapshot is an ordinary model file; when it is on the disk, a new log begins and the old files go.
Invariants: an acknowledged row is in a snapshot or in a whole frame of a log; the log of another model is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from steepest.data.chunk import Array
from steepest.engine.drift import Drift
from steepest.engine.stream_watch import StreamWatch
from steepest.errors import DataError, ParameterError
from steepest.metrics import ProbabilityMetrics
from steepest.models.supervised import Classifier, Regressor
from steepest.serve.answers import Refusal
from steepest.serve.counters import Counters
from steepest.serve.loading import LoadedModel, load_model
from steepest.serve.options import ServeOptions
from steepest.serve.predictor import Predictor
from steepest.serve.row_log import RowLog, sync_directory
from steepest.serve.rows import LabelReader

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SLICE = 256  # rows that are learned while predictions wait
GROUP = 512  # requests in one frame
LOG_BYTES = 64 << 20  # a log of this size is replaced by a snapshot
POINTS = 200  # of the curve of the loss
LEAST_PROBABILITY = 1e-15
WATCHED_LABELS = 8  # classes whose share is watched for drift
LOG_NAME, SNAPSHOT_NAME = re.compile(r"rows-(\d{20})\.log"), re.compile(r"snapshot-(\d{20})\.steepest")


@dataclass(slots=True)
class Task:
    """One request on its way to the log."""

    rows: list[Any]
    labels: list[Any]
    future: asyncio.Future[Any]
    X: Any = None
    y: Any = None
    written: bytes = b""
    outcome: Any = None


@dataclass(slots=True)
class Curve:
    """The mean loss over the whole stream in at most POINTS points: when they are full, neighbours are joined."""

    block: int = 1
    points: list[tuple[int, float]] = field(default_factory=list)
    _sum: float = 0.0
    _rows: int = 0

    def add(self, sequence: int, loss: float) -> None:
        """The loss of one more row."""
        self._sum += loss
        self._rows += 1
        if self._rows < self.block:
            return
        self.points.append((sequence, self._sum / self._rows))
        self._sum, self._rows = 0.0, 0
        if len(self.points) >= POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [(last, (a + b) / 2) for (_, a), (last, b) in pairs]
            self.block *= 2


class OnlineLearner:
    """The model, its log, and the thread that learns."""

    def __init__(
        self,
        base: LoadedModel,
        options: ServeOptions,
        counters: Counters,
        lock: AbstractContextManager[Any],
        say: Callable[[str], None],
    ) -> None:
        assert options.log is not None
        self.identity = base.identity
        self._directory, self._options = options.log, options
        self._counters, self._lock, self._say = counters, lock, say
        self.sequence = self.snapshot_sequence = 0
        self._log: RowLog
        self._held = _hold(self._directory)
        self.model = self._recover(base)
        self.predictor: Predictor
        self.curve = Curve()
        self.loss_name = ""
        self._drift = {name: Drift() for name in ("loss", "calibration", "unseen_features_learned")}
        self._calibration = ProbabilityMetrics()
        self._errors = StreamWatch()  # of numbers, which have no upper end
        self._label_drift: dict[Any, Drift] = {}
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.n_waiting = 0
        self._next_snapshot = options.snapshot_rows
        self._thread = threading.Thread(target=self._run, name="steepest-learn", daemon=True)

    # --------------------------------------------------------------------------------------------- from the event loop

    def start(self, predictor: Predictor) -> None:
        """Begins to take rows for the model of this predictor."""
        self.predictor = predictor
        self.loss_name = loss_name(predictor)
        self._gauges()
        self._thread.start()

    def submit(self, rows: list[Any], labels: list[Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """A future of {"learned": n, "sequence": k}, or of the refusal."""
        future: asyncio.Future[Any] = loop.create_future()
        self.n_waiting += 1
        self._tasks.put(Task(rows, labels, future))
        return future

    def stop(self) -> None:
        """Learns what waits, writes a snapshot, and gives the directory back."""
        self._tasks.put(None)
        self._thread.join()
        if self.sequence > self.snapshot_sequence:
            self._snapshot()
        self._log.close()
        os.close(self._held)

    def describe(self) -> dict[str, Any]:
        """The part of GET /model about learning."""
        rows = self._counters.total("loss_rows")
        return {
            "sequence": self.sequence,
            "snapshot_sequence": self.snapshot_sequence,
            "loss": self.loss_name,
            "mean_loss": self._counters.total("loss_sum") / rows if rows else None,
            "curve": list(self.curve.points),
        }

    # ----------------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while (first := self._tasks.get()) is not None:
            group = [first]
            with contextlib.suppress(queue.Empty):
                while len(group) < GROUP:
                    task = self._tasks.get_nowait()
                    if task is None:
                        self._tasks.put(None)
                        break
                    group.append(task)
            try:
                self._learn(group)
            except Exception as error:  # a fault of ours: nobody may wait for an answer that never comes
                for task in group:
                    task.outcome = error if task.outcome is None else task.outcome
            self._resolve(group)
            if self.sequence - self.snapshot_sequence >= self._next_snapshot or self._log.n_bytes > LOG_BYTES:
                self._snapshot()

    def _learn(self, group: list[Task]) -> None:
        """Checks, writes and learns the requests of a group; each gets its outcome."""
        labels = LabelReader(self.model)
        good = [task for task in group if self._is_good(task, labels)]
        if not good:
            return
        try:
            self._log.append(self.sequence, [task.written for task in good])
        except OSError as error:
            reason = error.strerror or type(error).__name__
            sentence = f"the rows could not be stored ({reason}) and were not learned; {_way_out(error)}, then retry"
            self._counters.add("storage_failures", sum(len(task.rows) for task in good))
            for task in good:
                task.outcome = Refusal(507, sentence)
            return
        for task in good:
            self._apply(task)
        self._gauges()

    def _is_good(self, task: Task, labels: LabelReader) -> bool:
        """Whether the model takes the rows and labels of a request; what it predicts for them is measured."""
        try:
            task.X, task.y = self.predictor.rows.read(task.rows), labels.read(task.labels)
            self.predictor.check_times(task.X)
            with self._lock:
                found = self.predictor.answer(task.X)
                unseen = self.predictor.unseen(task.X)
            task.written = orjson.dumps({"rows": task.rows, "labels": task.labels})
        except (DataError, ParameterError) as error:
            task.outcome = Refusal(400, str(error))
            return False
        except Exception as error:  # whatever a model may raise on rows it has never seen must not end the thread
            task.outcome = Refusal(400, f"the model cannot take these rows ({type(error).__name__}: {error})")
            return False
        self._measure(task, *found, unseen)
        return True

    def _apply(self, task: Task) -> None:
        n = len(task.rows)
        try:
            learn_rows(self.model, task.X, task.y, self._lock, self._note_classes)
            task.outcome = {"learned": n, "sequence": self.sequence + n}
        except Exception as error:  # the same happens when the log is replayed, so the bits stay the same
            task.outcome = Refusal(400, f"the model could not learn these rows: {error}")
        self.sequence += n
        self._counters.add("rows_learned", n)

    def _note_classes(self) -> None:
        """Updates the names of columns while predictions still wait, so that the next ones have names for all."""
        if len(getattr(self.model, "classes_", ())) != len(self.predictor.classes):
            self.predictor.refresh()

    def _resolve(self, group: list[Task]) -> None:
        def deliver() -> None:
            self.n_waiting -= len(group)
            for task in group:
                if task.future.done():
                    continue
                if isinstance(task.outcome, Exception):
                    task.future.set_exception(task.outcome)
                else:
                    task.future.set_result(task.outcome)

        with contextlib.suppress(RuntimeError):  # the loop has ended; the rows are safe all the same
            group[0].future.get_loop().call_soon_threadsafe(deliver)

    # -------------------------------------------------------------------------------------------------------- watching

    def _measure(self, task: Task, predicted: list[Any], probabilities: Any, unseen: tuple[int, int] | None) -> None:
        """Progressive loss, labels and unseen features of rows that are about to be learned."""
        counters, places = self._counters, self.predictor.places
        n_wrong = 0
        truths = task.y.tolist()
        for number, (truth, guess) in enumerate(zip(truths, predicted, strict=True)):
            row = None if probabilities is None else probabilities[number]
            loss, wrong = row_loss(self.predictor, truth, guess, row)
            n_wrong += wrong
            counters.add("loss_sum", loss)
            self.curve.add(self.sequence + number + 1, loss)
            if self._drift["loss"].add(self._bounded(loss)):
                counters.alarm("loss")
        counters.add("loss_rows", len(truths))
        counters.add("errors", n_wrong)
        if self.predictor.classes and not self.predictor.several:
            counters.learned(places.get(truth, -1) for truth in truths)
            self._watch_labels(truths)
            if probabilities is not None:
                self._watch_calibration(np.array([places.get(truth, -1) for truth in truths]), probabilities)
        if unseen is not None:
            counters.add("features_learned", unseen[0])
            counters.add("unseen_learned", unseen[1])
            if unseen[0] and self._drift["unseen_features_learned"].add(unseen[1] / unseen[0]):
                counters.alarm("unseen_features_learned")

    def _bounded(self, loss: float) -> float:
        """A loss in [0, 1], where drift is watched: 1 - exp(-loss), or the error against the usual one."""
        if self.predictor.classes:
            return loss if self.predictor.several else -math.expm1(-loss)
        return self._errors.bounded([math.sqrt(loss)])[0]

    def _watch_calibration(self, true: Array, probabilities: Array) -> None:
        """Updates the calibration error over all rows, and detects whether it has changed."""
        known = true >= 0
        true, probabilities = true[known], np.asarray(probabilities)[known]
        if not len(true):
            return
        self._calibration.add(true, probabilities, np.ones(len(true)))
        self._counters.set("calibration_error", self._calibration.result()["ece"])
        best = probabilities.argmax(axis=1)
        surprises = (1.0 + (best == true) - probabilities[np.arange(len(best)), best]) / 2  # 0.5 if calibrated
        for surprise in surprises.tolist():
            if self._drift["calibration"].add(surprise):
                self._counters.alarm("calibration")

    def _watch_labels(self, truths: list[Any]) -> None:
        for label in self.predictor.classes[:WATCHED_LABELS]:
            drift = self._label_drift.setdefault(label, Drift())
            for truth in truths:
                if drift.add(float(truth == label)):
                    self._counters.alarm("learned_labels")

    def _gauges(self) -> None:
        self._counters.set("log_bytes", self._log.n_bytes)
        self._counters.set("sequence", self.sequence)
        self._counters.set("snapshot_sequence", self.snapshot_sequence)

    # ------------------------------------------------------------------------------------------- snapshots and restarts

    def _snapshot(self) -> None:
        """Writes the model and begins a new log; if the disk is full, the old log goes on."""
        path = os.path.join(self._directory, f"snapshot-{self.sequence:020d}.steepest")
        try:
            self.model.save(path)
            fresh = RowLog.create(self._log_path(self.sequence), self.identity, self.sequence)
        except (OSError, DataError, MemoryError) as error:  # which must not end the thread
            self._say(f"no snapshot could be written, the log continues: {str(error) or 'out of memory'}")
            self._next_snapshot = self.sequence - self.snapshot_sequence + max(self._options.snapshot_rows // 4, 1)
            return
        self._log.close()
        self._log, self.snapshot_sequence = fresh, self.sequence
        self._next_snapshot = self._options.snapshot_rows
        self._remove_old()
        self._gauges()

    def _log_path(self, first: int) -> str:
        return os.path.join(self._directory, f"rows-{first:020d}.log")

    def _files(self, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
        """(number, path) of the files of one kind, the oldest first."""
        names = sorted(os.listdir(self._directory))
        found = [(pattern.fullmatch(name), name) for name in names]
        return [(int(match[1]), os.path.join(self._directory, name)) for match, name in found if match]

    def _remove_old(self) -> None:
        """Files that the newest snapshot and log have made useless."""
        for pattern in (LOG_NAME, SNAPSHOT_NAME):
            for number, path in self._files(pattern):
                if number < self.snapshot_sequence:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
        sync_directory(self._directory)

    def _recover(self, base: LoadedModel) -> Any:
        """Rebuilds the model with every acknowledged row from the log."""
        logs, snapshots = self._files(LOG_NAME), self._files(SNAPSHOT_NAME)
        if not logs:
            if snapshots:
                raise DataError(f"{self._directory} has a snapshot but no log; choose another --log directory")
            self._log = RowLog.create(self._log_path(0), self.identity, 0)
            return base.model
        opened = []
        for _, path in logs:
            log, requests, torn = RowLog.open(path)
            if log.identity != self.identity:
                log.close()
                raise DataError(
                    f"{path} holds rows learned into another model (its file had the SHA-256 {log.identity[:12]}..., "
                    f"{self._options.model} has {self.identity[:12]}...); give that model, or another --log directory"
                )
            if torn:
                self._counters.add("torn_bytes", torn)
                self._say(f"{path} ended in a torn record: {torn} bytes, which were never acknowledged, were cut off")
            opened.append((log, requests))
        model = base.model
        if snapshots:
            self.snapshot_sequence = self.sequence = snapshots[-1][0]
            model = load_model(snapshots[-1][1]).model
        self._replay(model, [request for _, requests in opened for request in requests])
        for log, _ in opened[:-1]:
            log.close()
        self._log = opened[-1][0]
        self._remove_old()
        return model

    def _replay(self, model: Any, requests: list[tuple[int, Any]]) -> None:
        reader, start, began = Predictor(model, "", "").rows, self.sequence, time.monotonic()
        for row, request in requests:
            if row < self.sequence:  # the snapshot holds it already
                continue
            if row > self.sequence:
                raise DataError(
                    f"{self._directory} lacks the rows {self.sequence + 1} to {row}; restore its files from a copy"
                )
            with contextlib.suppress(Exception):  # what was refused when it came is refused again
                y = LabelReader(model).read(request["labels"])
                learn_rows(model, reader.read(request["rows"]), y, contextlib.nullcontext())
            self.sequence += len(request["rows"])
        if self.sequence > start:
            seconds = time.monotonic() - began
            self._say(f"{self.sequence - start:,} rows learned again from {self._directory} in {seconds:.1f} s")


def learn_rows(
    model: Any, X: Any, y: Any, lock: AbstractContextManager[Any], learned: Callable[[], None] = lambda: None
) -> None:
    """`partial_fit` by slices of a fixed size: predictions never wait long, and a replay makes the same calls.

    Each slice is predicted before it is learned, which keeps probabilities and intervals calibrated.
    """
    options = {"calibrate": True} if isinstance(model, Classifier | Regressor) else {}
    for at in range(0, len(y), SLICE):
        with lock:
            try:
                model.partial_fit(X[at : at + SLICE], y[at : at + SLICE], **options)
            finally:
                learned()


def loss_name(predictor: Predictor) -> str:
    """The name of the progressive loss: "log", "zero_one" or "squared"."""
    if predictor.classes:
        return "log" if predictor.has_probabilities and not predictor.several else "zero_one"
    return "squared"


def row_loss(predictor: Predictor, truth: Any, guess: Any, probabilities: Any) -> tuple[float, bool]:
    """(loss of one row, whether its label was predicted wrongly)."""
    if predictor.several:
        wrong = [predictor.classes[k] for k, has in enumerate(truth) if has] != guess
        return float(wrong), wrong
    if not predictor.classes:
        errors = np.subtract(truth, guess, dtype=np.float64)
        return min(float(np.vdot(errors, errors)), 1e300), False
    wrong = truth != guess
    if probabilities is None:
        return float(wrong), wrong
    place = predictor.places.get(truth)
    p = 0.0 if place is None else float(probabilities[place])
    return -math.log(max(p, LEAST_PROBABILITY)), wrong


def _hold(directory: str) -> int:
    """Makes the directory if need be, and locks it: two servers must not write one log."""
    try:
        os.makedirs(directory, exist_ok=True)
        held = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DataError(f"{directory} cannot be used as --log ({error.strerror}); choose another directory") from None
    if fcntl is not None:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            raise DataError(f"{directory} is used by another server; stop it or choose another --log") from None
    return held


def _way_out(error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "free some space" if full else "check the disk of the --log directory"
