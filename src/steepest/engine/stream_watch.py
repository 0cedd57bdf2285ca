"""Drift of a stream while it is learned: detects changes of loss, calibration, labels and unseen features.

Each is a number in [0, 1] per row, measured before the row is learned, in a window that drops its old part when that
differs from the new one (drift.py). Errors of numbers are unbounded, so e counts as e / (e + m), m the mean so far.
Invariant: it depends on the rows and their order, not on how they were cut into calls, except for unseen features,
which are counted per call. It is saved with the model, so a restart continues where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steepest.engine.drift import Drift

LABELS = 8  # classes whose share is watched


class StreamWatch:
    """Change detectors for a stream, one per watched quantity; `add` returns the changes."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._n_errors, self._error = 0, 0.0  # how many errors of numbers, and their sum
        self._drifts: dict[str, Drift] = {}

    def add(
        self,
        losses: Sequence[float],
        surprises: Sequence[float] = (),
        labels: Sequence[Any] = (),
        known: Sequence[Any] = (),
        unseen: float | None = None,
    ) -> list[str]:
        """Adds rows that are about to be learned; returns a sentence for each change found.

        Losses in [0, 1]; surprises in [0, 1], 0.5 on average where probabilities are right; labels and those `known`;
        the share of features that were never seen.
        """
        start, self.n_rows = self.n_rows, self.n_rows + len(losses)
        found = self._watch("loss", losses, start)
        found += self._watch("calibration", surprises, start)
        for label in known[:LABELS]:
            found += self._watch(f"the share of label {label!r}", [float(each == label) for each in labels], start)
        return found + self._watch("the share of unseen features", () if unseen is None else (unseen,), start)

    def bounded(self, errors: Iterable[float]) -> list[float]:
        """Maps errors of numbers to [0, 1): an error as large as the mean so far gives 0.5."""
        found = []
        for error in errors:
            usual = self._error / self._n_errors if self._n_errors else error
            found.append(error / (error + usual) if error > 0 else 0.0)
            self._n_errors, self._error = self._n_errors + 1, min(self._error + error, 1e300)
        return found

    def _watch(self, what: str, values: Sequence[float], start: int) -> list[str]:
        drift, found = self._drifts.get(what), []
        if drift is None and len(values):
            drift = self._drifts[what] = Drift()
        for number, value in enumerate(values, start + 1):
            assert drift is not None
            before = drift.mean
            if drift.add(value):
                change = f"{what} went from {before:.3g} to {drift.mean:.3g}"
                found.append(f"drift after {number:,} rows of the stream: {change}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a model file."""
        drifts = {what: drift.as_list() for what, drift in self._drifts.items()}
        return {"rows": self.n_rows, "errors": [self._n_errors, self._error], "drifts": drifts}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StreamWatch:
        """Builds the watch from the values that `as_dict` gave."""
        found = cls()
        found.n_rows, (n_errors, error) = int(values["rows"]), values["errors"]
        found._n_errors, found._error = int(n_errors), float(error)
        if min(found.n_rows, found._n_errors) < 0 or not math.isfinite(found._error):
            raise ValueError("the state of the drift detection is not valid")
        found._drifts = {str(what): Drift.from_list(parts) for what, parts in values["drifts"].items()}
        return found
