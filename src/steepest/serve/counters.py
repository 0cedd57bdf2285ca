"""What the server counts, in one block of memory that all workers share, and its text for Prometheus.

Each worker adds to a line of its own, so no lock is needed, and whoever answers GET /metrics adds up all lines. A line
outlives its worker: counts go on when a worker is replaced. Routes, statuses and the first labels have fixed places;
labels beyond those share the last one, so that a model of many classes does not flood the monitoring.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from steepest.data.chunk import Array
from steepest.serve.answers import STATUSES

ROUTES = ("predict", "explain", "recommend", "learn", "model", "metrics", "health", "page", "openapi", "infer", "other")
SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # upper ends of the latency histogram
LABELS = 64  # labels that are counted by name; the last place is for all others
OTHER = "(other)"
SIGNALS = ("loss", "calibration", "unseen_features", "unseen_features_learned", "predicted_labels", "learned_labels")
PLAIN = (
    "rows_predicted",
    "rows_learned",
    "loss_sum",
    "loss_rows",
    "errors",
    "calibration_error",
    "features",
    "unseen",
    "features_learned",
    "unseen_learned",
    "prediction_sum",
    "prediction_rows",
    "reloads",
    "reloads_refused",
    "connections_evicted",
    "connections",
    "log_bytes",
    "sequence",
    "snapshot_sequence",
    "torn_bytes",
    "storage_failures",
)


class Counters:
    """The counters of one worker, in memory shared by all workers."""

    def __init__(self, workers: int = 1) -> None:
        sizes = {
            "plain": len(PLAIN),
            "answers": len(ROUTES) * len(STATUSES),
            "seconds": len(ROUTES) * (len(SECONDS) + 2),
            "predicted": LABELS,
            "learned": LABELS,
            "alarms": len(SIGNALS),
            "alarm_times": len(SIGNALS),
        }
        width = sum(sizes.values())
        self._memory = mmap.mmap(-1, workers * width * 8)
        self.all = np.frombuffer(self._memory, np.float64).reshape(workers, width)
        ends = np.cumsum(list(sizes.values())).tolist()
        self._parts = {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        self.use(0)

    def use(self, line: int) -> None:
        """Counts in the line of this worker from now on."""
        own = self.all[line]
        self._plain = own[self._parts["plain"]]
        self._answers = own[self._parts["answers"]].reshape(len(ROUTES), len(STATUSES))
        self._seconds = own[self._parts["seconds"]].reshape(len(ROUTES), len(SECONDS) + 2)
        self._predicted, self._learned = own[self._parts["predicted"]], own[self._parts["learned"]]
        self._alarms, self._alarm_times = own[self._parts["alarms"]], own[self._parts["alarm_times"]]

    def add(self, name: str, amount: float = 1.0) -> None:
        """Adds to a plain counter."""
        self._plain[_PLACES[name]] += amount

    def set(self, name: str, value: float) -> None:
        """Sets a gauge; only a single worker has any."""
        self._plain[_PLACES[name]] = value

    def answered(self, route: int, status: int, seconds: float) -> None:
        """Counts one answer."""
        self._answers[route, _STATUS_PLACES[status]] += 1
        own = self._seconds[route]
        place = 0
        for end in SECONDS:
            if seconds <= end:
                break
            place += 1
        own[place] += 1
        own[-1] += seconds

    def predicted(self, places: Iterable[tuple[int, int]]) -> None:
        """Counts predicted labels, given as (index of the class, how often)."""
        for place, n in places:
            self._predicted[place if place < LABELS - 1 else LABELS - 1] += n

    def learned(self, places: Iterable[int]) -> None:
        """Counts learned labels, given as the index of the class; -1 for a new one."""
        for place in places:
            self._learned[place if 0 <= place < LABELS - 1 else LABELS - 1] += 1

    def alarm(self, signal: str) -> None:
        """Counts a detected change of the stream."""
        place = SIGNALS.index(signal)
        self._alarms[place] += 1
        self._alarm_times[place] = time.time()

    def total(self, name: str) -> float:
        """A plain counter, summed over all workers."""
        return float(self.all[:, self._parts["plain"]][:, _PLACES[name]].sum())

    def forget_labels(self) -> None:
        """Resets the counters of labels, because the classes have changed."""
        self.all[:, self._parts["predicted"]] = 0
        self.all[:, self._parts["learned"]] = 0

    def text(self, classes: Sequence[str], info: dict[str, str], loss: str) -> str:
        """Everything in the text format of Prometheus."""
        return "\n".join(self._lines(classes, info, loss)) + "\n"

    def _part(self, name: str) -> Array:
        return np.asarray(self.all[:, self._parts[name]].sum(axis=0))

    def _lines(self, classes: Sequence[str], info: dict[str, str], loss: str) -> Iterator[str]:
        yield from _head("model_info", "gauge", "The model that is served.")
        yield f"steepest_model_info{{{','.join(f'{k}={_quoted(v)}' for k, v in info.items())}}} 1"
        answers = self._part("answers").reshape(len(ROUTES), len(STATUSES))
        yield from _head("requests_total", "counter", "Answers by route and status.")
        for r, s in np.argwhere(answers > 0).tolist():
            labels = f'route="{ROUTES[r]}",status="{STATUSES[s]}"'
            yield f"steepest_requests_total{{{labels}}} {answers[r, s]:.0f}"
        yield from self._histogram()
        for name, kind, help_text in SINGLE:
            yield from _head(name, kind, help_text)
            yield f"steepest_{name} {_number(self.total(_SOURCES.get(name, name.removesuffix('_total'))))}"
        yield from self._ratios(loss)
        for part, name, help_text in (
            ("predicted", "predicted_labels_total", "Predictions by label."),
            ("learned", "learned_labels_total", "Rows learned by label."),
        ):
            yield from _head(name, "counter", help_text)
            counts = self._part(part).tolist()
            names = [*classes[: LABELS - 1], *[""] * (LABELS - 1 - len(classes)), OTHER]
            for label, count in zip(names, counts, strict=True):
                if label and (count or label != OTHER):
                    yield f"steepest_{name}{{label={_quoted(label)}}} {count:.0f}"
        yield from _head("drift_alarms_total", "counter", "How often a watched stream changed (ADWIN).")
        alarms = self._part("alarms").tolist()
        yield from (
            f'steepest_drift_alarms_total{{signal="{signal}"}} {n:.0f}'
            for signal, n in zip(SIGNALS, alarms, strict=True)
        )
        yield from _head("drift_last_alarm_timestamp_seconds", "gauge", "When it last did; 0 for never.")
        times = self.all[:, self._parts["alarm_times"]].max(axis=0).tolist()
        yield from (
            f'steepest_drift_last_alarm_timestamp_seconds{{signal="{signal}"}} {_number(at)}'
            for signal, at in zip(SIGNALS, times, strict=True)
        )
        yield from _head("resident_memory_bytes", "gauge", "Memory of the worker that answers.")
        yield f"steepest_resident_memory_bytes {resident_bytes()}"

    def _histogram(self) -> Iterator[str]:
        table = self._part("seconds").reshape(len(ROUTES), len(SECONDS) + 2)
        yield from _head("request_seconds", "histogram", "Seconds from a whole request to its answer.")
        for route, row in zip(ROUTES, table, strict=True):
            counts = np.cumsum(row[:-1])
            if counts[-1]:
                ends = [*map(str, SECONDS), "+Inf"]
                for end, count in zip(ends, counts, strict=True):
                    yield f'steepest_request_seconds_bucket{{route="{route}",le="{end}"}} {count:.0f}'
                yield f'steepest_request_seconds_sum{{route="{route}"}} {row[-1]:.9g}'
                yield f'steepest_request_seconds_count{{route="{route}"}} {counts[-1]:.0f}'

    def _ratios(self, loss: str) -> Iterator[str]:
        """Shares and means over everything counted so far; rate() of their parts shows the recent ones."""
        rows = self.total("loss_rows")
        yield from _head("progressive_loss_sum", "counter", "Loss of rows before they were learned, added up.")
        yield f'steepest_progressive_loss_sum{{loss="{loss}"}} {_number(self.total("loss_sum"))}'
        yield from _head("progressive_loss_rows", "counter", "Rows in that sum.")
        yield f'steepest_progressive_loss_rows{{loss="{loss}"}} {_number(rows)}'
        if rows:
            yield from _head("progressive_loss", "gauge", "Mean loss of rows before they were learned.")
            yield f'steepest_progressive_loss{{loss="{loss}"}} {_number(self.total("loss_sum") / rows)}'
        if rows and loss == "log":
            yield from _head("progressive_calibration_error", "gauge", "Calibration error before learning.")
            yield f"steepest_progressive_calibration_error {_number(self.total('calibration_error'))}"
        yield from _head("unseen_feature_share", "gauge", "Share of features that training had not seen.")
        for source, features, unseen in (
            ("predict", "features", "unseen"),
            ("learn", "features_learned", "unseen_learned"),
        ):
            if self.total(features):
                share = self.total(unseen) / self.total(features)
                yield f'steepest_unseen_feature_share{{source="{source}"}} {_number(share)}'


SINGLE = (
    ("rows_predicted_total", "counter", "Rows predicted."),
    ("rows_learned_total", "counter", "Rows learned since the start."),
    ("progressive_errors_total", "counter", "Rows whose label was predicted wrongly before it was learned."),
    ("features_total", "counter", "Features of predicted rows that were looked at (a sample)."),
    ("unseen_features_total", "counter", "Those of them that training had not seen."),
    ("learned_features_total", "counter", "Features of learned rows."),
    ("unseen_learned_features_total", "counter", "Those of them that were new."),
    ("prediction_sum", "counter", "Sum of predicted numbers, for regressors."),
    ("prediction_rows", "counter", "Rows in that sum."),
    ("reloads_total", "counter", "New model files taken over."),
    ("reloads_refused_total", "counter", "New model files that could not be used."),
    ("connections", "gauge", "Open connections."),
    ("connections_evicted_total", "counter", "Idle or slow connections closed to make room."),
    ("log_bytes", "gauge", "Bytes of the log of learned rows."),
    ("sequence", "gauge", "Rows acknowledged by POST /learn, over all starts."),
    ("snapshot_sequence", "gauge", "Rows that the last snapshot holds."),
    ("torn_bytes", "gauge", "Bytes of a torn last record that were cut off at the start."),
    ("storage_failures_total", "counter", "Rows refused with 507 because the log could not be written."),
)
_SOURCES = {
    "progressive_errors_total": "errors",
    "unseen_features_total": "unseen",
    "learned_features_total": "features_learned",
    "unseen_learned_features_total": "unseen_learned",
}
_PLACES = {name: place for place, name in enumerate(PLAIN)}
_STATUS_PLACES = {status: place for place, status in enumerate(STATUSES)}


def _head(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP steepest_{name} {help_text}"
    yield f"# TYPE steepest_{name} {kind}"


def _quoted(value: str) -> str:
    """A label's value as Prometheus writes it."""
    escaped = value[:200].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.9g}"


def resident_bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        if sys.platform == "win32":
            return 0
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
