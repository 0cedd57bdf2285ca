"""What held-out rows show about a model: how to turn its scores into probabilities, and how far it can be off.

Two classes: P = 1 / (1 + exp(-(slope z + shift))) of the score z (Platt 1999), or with shift 0 (a temperature). More
classes: P_k in proportion to p_k^slope of the model's own probabilities p. Which of these, or none, is decided by log
loss on parts of the rows that the map was not fitted on; the model's own probabilities stay unless a map is better by
more than two standard errors of the difference, over rows and over stretches of them. Rows held back are those of early
stopping, of a validation source, of alpha="auto", of `calibrate_on`, or (`Recent`) the last rows of a stream, each
scored before it was learned. Intervals and sets are split conformal (Vovk, Gammerman and Shafer,
2005): with n held-out residuals, the interval reaches as far as the ceil((n + 1) coverage)-th smallest of them. That
holds for rows like those held out: scattered rows speak for others of the same file, stretches of neighbours (`later`)
for rows that come later. In a stream, the level a whose quantile is taken moves with every call (Gibbs and Candes
2021): a <- a + g (coverage - share of the rows covered), where g is GAIN times the rows. a stays between -g and 1 + g,
so over T calls of one size the share covered is as asked up to (1 + 2 g) / (g T), whatever the rows are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import DataError, ParameterError
from steepest.learners.losses import sigmoid

FOLDS = 5
STEPS = 50
STORED = 400  # residuals in a model file: coverage is off by less than 1 / 400
LEAST_ROWS = 20
CERTAINTY = 2.0  # standard errors by which a map must be better than the model's own probabilities
RECENT, EVERY = 4000, 500  # rows of a stream that are remembered; a new map is fitted after so many
MOST_NUMBERS = 1 << 20  # scores that are remembered: with many classes, of fewer rows
TINY = 1e-15
COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99)  # whose levels move in a stream; others lie between
GAIN, MOST_GAIN = 0.005, 0.5  # of a level: per row, and at most for the rows of one call


@dataclass(frozen=True, slots=True)
class Calibration:
    """A map from scores to probabilities, and the residuals of held-out rows."""

    kind: str = "none"  # "none", "temperature" or "platt"
    slope: float = 1.0
    shift: float = 0.0
    rows: int = 0
    residuals: tuple[float, ...] = ()  # ascending: |y - prediction|, or 1 - P of the true class
    later: tuple[float, ...] = ()  # the same of stretches of rows, where such were held back
    later_rows: int = 0
    levels: tuple[float, ...] = ()  # in a stream: what stands for each of COVERAGES

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a model file."""
        return {**asdict(self), **{name: list(getattr(self, name)) for name in _LISTS}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Builds the calibration from the values that `as_dict` gave."""
        known = {**values, **{name: tuple(map(float, values.get(name, ()))) for name in _LISTS}}
        if known["kind"] not in ("none", "temperature", "platt") or not math.isfinite(known["slope"] + known["shift"]):
            raise ValueError("a calibration that is not one")
        if len(known["levels"]) not in (0, len(COVERAGES)) or not all(map(math.isfinite, known["levels"])):
            raise ValueError("the levels of a calibration are not valid")
        return cls(**known)

    def sigmoid(self, scores: Array) -> Array:
        """The calibrated probability of the second class."""
        return sigmoid(self.slope * np.asarray(scores, np.float64) + self.shift)

    def powers(self, probabilities: Array) -> Array:
        """The calibrated probability of every class, from the model's own probabilities."""
        return _powers(np.log(np.maximum(probabilities, TINY)), self.slope)

    def with_residuals(self, residuals: Array, later: Array | None = None) -> Calibration:
        """The same map with the residuals of held-out rows: random ones, and contiguous ones as `later`."""
        far = np.zeros(0) if later is None else later
        return replace(self, residuals=_stored(residuals), later=_stored(far), later_rows=len(far))

    def reach(self, coverage: float, later: bool = False) -> float:
        """The residual that a share `coverage` of new rows does not exceed; infinity if there are too few rows."""
        if not 0 < coverage < 1:
            raise ParameterError(f"coverage={coverage!r} must be between 0 and 1, 0.9 for example")
        if not self.residuals:
            raise DataError("no held-out rows were seen, so the errors are not known; call calibrate_on(X, y) first")
        if later and not self.later:
            raise DataError(
                "no stretches of rows were held out (later=True needs alpha='auto' on at least 4,000 rows that are not "
                "mixed); call calibrate_on(X, y) with the latest rows, and leave later out"
            )
        # Of many residuals only some are stored, evenly spaced in rank.
        stored, rows = (self.later, self.later_rows) if later else (self.residuals, self.rows)
        level = coverage if later or not self.levels else self._level(coverage)
        place = math.ceil((rows + 1) * level)
        if place > rows:
            return math.inf
        return stored[min(len(stored), math.ceil(place * len(stored) / rows)) - 1] if place > 0 else 0.0

    def _level(self, coverage: float) -> float:
        """The level that covers so many rows of the stream now."""
        return float(np.interp(coverage, (0.0, *COVERAGES, 1.0), (0.0, *self.levels, 1.0)))

    def levels_needed(self, residuals: Array) -> Array:
        """For each residual the level above which `reach` is at least as large."""
        below = np.searchsorted(self.residuals, residuals, side="left")
        return np.asarray(below * self.rows // len(self.residuals) / (self.rows + 1))


class Recent:
    """The last rows of a stream, with the scores they got before they were learned and their true targets.

    Invariant: the rows depend on those added and their order, not on how they were cut into calls of `add`.
    """

    def __init__(
        self, n_scores: int, rows: Array | None = None, n_seen: int = 0, levels: tuple[float, ...] = COVERAGES
    ) -> None:
        self.rows = np.zeros((0, n_scores + 2)) if rows is None else rows  # scores, truth, weight
        self.n_seen = n_seen
        self.levels = levels

    def adapt(self, calibration: Calibration | None, residuals: Array) -> None:
        """Moves the levels by rows that are about to be learned; `calibration` is what covered them, or did not."""
        if calibration is None or not calibration.residuals or not len(residuals):
            return
        levels, gain = np.array(self.levels), min(GAIN * len(residuals), MOST_GAIN)
        covered = np.mean(levels > calibration.levels_needed(residuals)[:, None], axis=0)
        self.levels = tuple((levels + gain * (COVERAGES - covered)).tolist())

    def add(self, scores: Array, true: Array, weight: Array) -> Array | None:
        """Adds rows; returns all stored ones when the calibration is due for an update, else None."""
        new = np.column_stack([scores, true, weight])
        if new.shape[1] != self.rows.shape[1]:  # a class came: scores of before have no place for it
            self.rows, self.n_seen = np.zeros((0, new.shape[1])), 0
        due = (self.n_seen + len(new)) // EVERY * EVERY - self.n_seen
        self.n_seen += len(new)
        most = min(RECENT, MOST_NUMBERS // self.rows.shape[1])
        at_due = np.concatenate([self.rows, new[:due]])[-most:] if due > 0 else None
        self.rows = np.concatenate([self.rows, new])[-most:]
        return at_due

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a model file."""
        rows, width = self.rows.tolist(), self.rows.shape[1]
        return {"rows": rows, "width": width, "n_seen": self.n_seen, "levels": list(self.levels)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recent:
        """Builds the object from the values that `as_dict` gave."""
        rows = np.array(values["rows"], np.float64).reshape(-1, int(values["width"]))
        if rows.shape[1] < 3 or len(rows) > RECENT or not np.isfinite(rows).all():
            raise ValueError("the stored rows of a stream are not valid")
        levels = tuple(map(float, values.get("levels", COVERAGES)))
        if len(levels) != len(COVERAGES) or not all(map(math.isfinite, levels)):
            raise ValueError("the levels of a stream are not valid")
        return cls(rows.shape[1] - 2, rows, int(values["n_seen"]), levels)


_LISTS = ("residuals", "later", "levels")  # fields of a calibration that hold several numbers


def _stored(residuals: Array) -> tuple[float, ...]:
    """Residuals in ascending order, at most `STORED` of them."""
    ordered = np.sort(np.asarray(residuals, np.float64))
    if len(ordered) > STORED:
        ordered = ordered[np.ceil(np.arange(1, STORED + 1) * len(ordered) / STORED).astype(np.int64) - 1]
    return tuple(float(f"{residual:.6g}") for residual in ordered)  # short in the file


def calibrate_two(scores: Array, positive: Array, own: Array | None, weight: Array) -> Calibration:
    """Fits the map for two classes; `own`: the model's own probabilities of the second one, or None."""
    y = positive.astype(np.float64)
    before = None if own is None else _two_losses(np.asarray(own, np.float64), y)
    shifted = {"temperature": False, "platt": True}
    maps = {name: fit_sigmoid(scores, y, weight, shifted[name]) for name in shifted}

    def losses(name: str) -> Array:
        found = np.empty(len(y))
        for fold in range(FOLDS):
            held = _folds(len(y)) == fold
            slope, shift = fit_sigmoid(scores[~held], y[~held], weight[~held], shifted[name], maps[name])
            found[held] = _two_losses(sigmoid(slope * scores[held] + shift), y[held])
        return found

    kind = _choose(before, {name: losses(name) for name in maps}, weight)
    slope, shift = maps.get(kind, (1.0, 0.0))
    return Calibration(kind, slope, shift, len(y))


def calibrate_many(own: Array, true: Array, weight: Array) -> Calibration:
    """Fits the power of the model's own probabilities; `true`: class indices."""
    logs = np.log(np.maximum(own, TINY))
    rows = np.arange(len(true))
    before = -np.log(np.maximum(own[rows, true], TINY))
    found = np.empty(len(true))
    for fold in range(FOLDS):
        held = _folds(len(rows)) == fold
        slope = fit_power(logs[~held], true[~held], weight[~held])
        found[held] = -np.log(np.maximum(_powers(logs[held], slope)[np.arange(held.sum()), true[held]], TINY))
    kind = _choose(before, {"temperature": found}, weight)
    slope = 1.0 if kind == "none" else fit_power(logs, true, weight)
    return Calibration(kind, slope, 0.0, len(true))


def fit_sigmoid(
    scores: Array, y: Array, weight: Array, shifted: bool, start: tuple[float, float] | None = None
) -> tuple[float, float]:
    """(slope, shift) of least log loss by Newton's method; targets are drawn in as by one more row of each class."""
    scale = max(float(np.sqrt(np.average(scores**2, weights=weight))), TINY)
    z = scores / scale
    n1, n0 = float(weight @ y), float(weight @ (1 - y))
    target = np.where(y > 0, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
    w = np.array([1.0, 0.0] if start is None else [start[0] * scale, start[1]])

    def loss(w: Array) -> float:
        s = w[0] * z + w[1]
        return float(weight @ (np.logaddexp(0, s) - target * s))

    here = loss(w)
    for _ in range(STEPS):
        p = sigmoid(w[0] * z + w[1])
        g, h = weight * (p - target), weight * np.maximum(p * (1 - p), 1e-12)
        gradient = np.array([g @ z, g.sum() if shifted else 0.0])
        cross = float(h @ z) if shifted else 0.0
        hessian = np.array([[h @ (z * z), cross], [cross, h.sum()]]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while (there := loss(w - size * step)) > here and size > 1e-6:
            size /= 2
        if here - there <= 1e-10 * abs(here):
            break
        w, here = w - size * step, there
    return float(max(w[0], 0.0)) / scale, float(w[1])


def fit_power(logs: Array, true: Array, weight: Array) -> float:
    """The power of least log loss, which is convex in it."""
    rows = np.arange(len(true))

    def loss(log_power: float) -> float:
        s = logs * math.exp(log_power)
        top = s.max(axis=1)
        totals = top + np.log(np.exp(s - top[:, None]).sum(axis=1))
        return float(weight @ (totals - s[rows, true]))

    return math.exp(_least(loss, 1e-3))


def fit_temperature(z: Array, shares: Array, is_softmax: bool) -> float:
    """The number that scores are divided by so that held-out labels are most likely."""
    shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1) if is_softmax else shares

    def loss(log_sharpness: float) -> float:
        s = z * np.exp(log_sharpness)
        if not is_softmax:
            return float(np.logaddexp(0, np.where(shares > 0, -s, s)).sum())
        most = s.max(axis=1, keepdims=True)
        totals = most[:, 0] + np.log(np.exp(s - most).sum(axis=1))
        return float((shares.sum(axis=1) * totals - (shares * s).sum(axis=1)).sum())

    return 1.0 / float(np.exp(_least(loss, 1e-4)))


def _least(loss: Callable[[float], float], tolerance: float) -> float:
    """The place from -4 to 4 at which a convex loss is least, by a bracket that is narrowed by the golden section."""
    low, high, golden = -4.0, 4.0, (5**0.5 - 1) / 2
    while high - low > tolerance:
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if loss(a) < loss(b) else (a, high)
    return (low + high) / 2


def _choose(before: Array | None, maps: Mapping[str, Array], weight: Array) -> str:
    """The map to use: the best one, unless using none is as good within the noise."""
    name = min(maps, key=lambda k: float(weight @ maps[k]))
    if before is not None:
        gain = before - maps[name]
        mean = float(np.average(gain, weights=weight))
        noise = math.sqrt(float(np.average((gain - mean) ** 2, weights=weight)) / max(1, len(gain)))
        folds = _folds(len(gain))
        means = [np.average(gain[folds == k], weights=weight[folds == k] + TINY) for k in range(FOLDS)]
        if mean <= CERTAINTY * max(noise, float(np.std(means)) / math.sqrt(FOLDS)):
            return "none"
    return name


def _folds(n: int) -> Array:
    """Which fifth each row is in: stretches, since neighbours are often alike, and one stretch unlike the next."""
    return np.arange(n) * FOLDS // n


def _two_losses(p: Array, y: Array) -> Array:
    right = np.where(y > 0, p, 1 - p)
    return np.asarray(-np.log(np.maximum(right, TINY)))


def _powers(logs: Array, slope: float) -> Array:
    e = np.exp((logs - logs.max(axis=1, keepdims=True)) * slope)
    return np.asarray(e / e.sum(axis=1, keepdims=True))
