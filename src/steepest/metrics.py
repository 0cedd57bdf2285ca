"""Streaming metrics: fed chunk by chunk, constant memory, one dictionary at the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from steepest.data.chunk import Array


class ClassificationMetrics:
    """Mean loss, accuracy and error, and precision, recall and F1 per class, all weighted."""

    def __init__(self, classes: Array) -> None:
        self.classes = classes
        self.rows = 0
        self.weight = self.loss = 0.0
        self.confusion = np.zeros((len(classes), len(classes)))

    def add(self, true: Array, predicted: Array, losses: Array, weight: Array) -> None:
        """Adds rows: true and predicted class indices, losses and weights."""
        self.rows += len(true)
        self.weight += float(weight.sum())
        self.loss += float((losses * weight).sum())
        np.add.at(self.confusion, (true, predicted), weight)

    def result(self) -> dict[str, Any]:
        """The metrics by name; the recall of a class without rows is None."""
        right = np.diag(self.confusion)
        with np.errstate(invalid="ignore", divide="ignore"):
            recall = right / self.confusion.sum(axis=1)
            precision = right / self.confusion.sum(axis=0)
            f1 = 2 * right / (self.confusion.sum(axis=0) + self.confusion.sum(axis=1))
        total = self.weight or math.nan
        return {
            "rows": self.rows,
            "loss": self.loss / total,
            "accuracy": float(right.sum()) / total,
            "error": 1.0 - float(right.sum()) / total,
            "majority": float(self.confusion.sum(axis=1).max(initial=0)) / total,
            "macro_f1": float(np.nanmean(f1)) if len(f1) else math.nan,
            "classes": [
                {"class": plain(label), "precision": finite(p), "recall": finite(r), "rows": float(n)}
                for label, p, r, n in zip(self.classes, precision, recall, self.confusion.sum(axis=1), strict=True)
            ],
        }

    def curves(self) -> dict[str, Any]:
        """The confusion matrix: weights of rows by true class (rows) and predicted class (columns)."""
        return {"confusion": {"classes": [plain(c) for c in self.classes], "rows": self.confusion.tolist()}}


class ProbabilityMetrics:
    """Log loss, Brier score and expected calibration error of probabilities; exact, in constant memory.

    The Brier score is the mean of Σ_k (p_k - y_k)², for two classes of (p - y)² of the second. The calibration error is
    Σ_b |rows of bin b's hits - its probabilities| / rows, over 15 bins of equal width: of P(second class) for two
    classes, of the probability of the predicted class for more (Guo, Pleiss, Sun and Weinberger 2017).
    """

    BINS = 15

    def __init__(self) -> None:
        self.weight = self.log_loss = self.brier = 0.0
        self.claimed, self.found, self.count = (np.zeros(self.BINS) for _ in range(3))

    def add(self, true: Array, probabilities: Array, weight: Array) -> None:
        """Adds rows: true class indices, probabilities of all classes, and weights."""
        rows = np.arange(len(true))
        self.weight += float(weight.sum())
        self.log_loss -= float(weight @ np.log(np.maximum(probabilities[rows, true], 1e-15)))
        if probabilities.shape[1] == 2:
            p, hit = probabilities[:, 1], (true == 1).astype(np.float64)
            self.brier += float(weight @ (p - hit) ** 2)
        else:
            squares = (probabilities**2).sum(axis=1) - 2 * probabilities[rows, true] + 1
            self.brier += float(weight @ squares)
            best = probabilities.argmax(axis=1)
            p, hit = probabilities[rows, best], (best == true).astype(np.float64)
        bins = np.minimum((p * self.BINS).astype(np.int64), self.BINS - 1)
        self.claimed += np.bincount(bins, weight * p, self.BINS)
        self.found += np.bincount(bins, weight * hit, self.BINS)
        self.count += np.bincount(bins, weight, self.BINS)

    def result(self) -> dict[str, Any]:
        """The metrics by name; empty if no probabilities were added."""
        if not self.weight:
            return {}
        error = float(np.abs(self.claimed - self.found).sum())
        return {
            "log_loss": self.log_loss / self.weight,
            "brier": self.brier / self.weight,
            "ece": error / self.weight,
        }

    def curves(self) -> dict[str, Any]:
        """The mean probability, share of hits and weight of each non-empty bin."""
        used = self.count > 0
        claimed, found = self.claimed[used] / self.count[used], self.found[used] / self.count[used]
        bins = zip(claimed.tolist(), found.tolist(), self.count[used].tolist(), strict=True)
        return {"reliability": [{"claimed": c, "found": f, "rows": n} for c, f, n in bins]} if used.any() else {}


class RocMetrics:
    """Areas under the curves of two classes: AUC, and average precision (`pr_auc`).

    Exact up to a million rows. Beyond, scores are counted in 65,536 bins by the upper half of their 32 bits: scores
    that differ by less than 0.8 % may count as tied, which moves the AUC by at most half the share of such pairs.
    """

    EXACT_ROWS = 1_000_000

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array, Array]] = []
        self._rows = 0
        self._bins: Array | None = None  # weights of both classes by bin

    def add(self, positive: Array, scores: Array, weight: Array) -> None:
        """Adds rows: whether each is of the second class, scores and weights."""
        self._parts.append((np.asarray(positive, bool), np.asarray(scores, np.float64), weight))
        self._rows += len(scores)
        if self._rows > self.EXACT_ROWS:
            bins = np.zeros((2, 1 << 16)) if self._bins is None else self._bins
            for true, values, share in self._parts:
                bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
                place = np.where(bits >> 31, 0xFFFFFFFF - bits, bits + 0x80000000) >> 16
                for side in (0, 1):
                    bins[side] += np.bincount(place[true == side], share[true == side], 1 << 16)
            self._bins, self._parts = bins, []

    def _by_score(self) -> tuple[Array, Array, Array] | None:
        """(scores in ascending order, weights of the first class and of the second); None if a class is missing."""
        if self._bins is not None:
            negative, positive = self._bins
            keys = np.arange(1 << 16, dtype=np.int64) << 16
            bits = np.where(keys >= 0x80000000, keys - 0x80000000, 0xFFFFFFFF - keys).astype(np.uint32)
            used = (negative + positive) > 0
            scores, negative, positive = bits[used].view(np.float32).astype(np.float64), negative[used], positive[used]
        elif self._parts:
            true, values, weight = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
            scores, place = np.unique(values, return_inverse=True)
            n = len(scores)
            negative, positive = (np.bincount(place[true == side], weight[true == side], n) for side in (0, 1))
        else:
            return None
        return (scores, negative, positive) if negative.sum() and positive.sum() else None

    def curves(self, most: int = 200) -> dict[str, Any]:
        """Points of the ROC and precision-recall curves: what predicting the second class from a score on gives."""
        found = self._by_score()
        if found is None:
            return {}
        scores, negative, positive = (part[::-1] for part in found)
        hits, others = np.cumsum(positive), np.cumsum(negative)
        shown = np.unique(np.linspace(0, len(scores) - 1, min(most, len(scores))).round().astype(np.int64))
        points = [
            {
                "score": float(scores[k]),
                "recall": float(hits[k] / hits[-1]),
                "precision": float(hits[k] / (hits[k] + others[k])) if hits[k] + others[k] else 1.0,
                "false_positive_rate": float(others[k] / others[-1]),
            }
            for k in shown.tolist()
        ]
        return {"thresholds": points}

    def result(self) -> dict[str, Any]:
        """Both areas by name; empty if a class is missing."""
        found = self._by_score()
        if found is None:
            return {}
        _, negative, positive = found
        below = np.cumsum(negative) - negative
        auc = float((positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum()))
        hits, others = np.cumsum(positive[::-1]), np.cumsum(negative[::-1])
        total = hits + others
        precision = np.divide(hits, total, out=np.zeros(len(total)), where=total > 0)
        return {"auc": auc, "pr_auc": float((positive[::-1] * precision).sum() / positive.sum())}


class MultiLabelMetrics:
    """Mean loss, share of rows with every label right, and micro-averaged precision, recall and F1."""

    def __init__(self) -> None:
        self.rows = 0
        self.weight = self.loss = self.exact = self.hits = self.predicted = self.true = 0.0

    def add(self, true: Array, predicted: Array, losses: Array, weight: Array) -> None:
        """Adds rows: true and predicted 0/1 columns, losses and weights."""
        self.rows += len(true)
        self.weight += float(weight.sum())
        self.loss += float((losses * weight).sum())
        self.exact += float((weight * (true == predicted).all(axis=1)).sum())
        self.hits += float((weight[:, None] * (true & predicted)).sum())
        self.predicted += float((weight[:, None] * predicted).sum())
        self.true += float((weight[:, None] * true).sum())

    def result(self) -> dict[str, Any]:
        """The metrics by name."""
        total = self.weight or math.nan
        return {
            "rows": self.rows,
            "loss": self.loss / total,
            "accuracy": self.exact / total,
            "error": 1.0 - self.exact / total,
            "micro_precision": self.hits / self.predicted if self.predicted else 0.0,
            "micro_recall": self.hits / self.true if self.true else 0.0,
            "micro_f1": 2 * self.hits / (self.predicted + self.true) if self.predicted + self.true else 0.0,
        }


class RegressionMetrics:
    """Mean loss, root mean squared error, mean absolute error and R²."""

    def __init__(self) -> None:
        self.rows = 0
        self.weight = self.loss = self.square = self.absolute = 0.0
        self.mean = self.spread = 0.0  # of the targets, by Welford's recurrence

    def add(self, true: Array, predicted: Array, losses: Array, weight: Array) -> None:
        """Adds rows: targets, predictions, losses and weights."""
        error = np.asarray(predicted - true).reshape(len(true), -1)
        targets = np.asarray(true).reshape(len(true), -1)
        self.rows += len(true)
        batch = float(weight.sum())
        if batch == 0:
            return
        share = weight[:, None] / error.shape[1]
        self.loss += float((losses * weight).sum())
        self.square += float((error**2 * share).sum())
        self.absolute += float((np.abs(error) * share).sum())
        mean = float((targets * share).sum()) / batch
        spread = float(((targets - mean) ** 2 * share).sum())
        total = self.weight + batch
        self.spread += spread + (mean - self.mean) ** 2 * self.weight * batch / total
        self.mean += (mean - self.mean) * batch / total
        self.weight = total

    def result(self) -> dict[str, Any]:
        """The metrics by name."""
        total = self.weight or math.nan
        return {
            "rows": self.rows,
            "loss": self.loss / total,
            "rmse": math.sqrt(self.square / total) if self.weight else math.nan,
            "mae": self.absolute / total,
            "r2": 1 - self.square / self.spread if self.spread > 0 else math.nan,
        }


class RankingMetrics:
    """Precision, recall, NDCG and MAP at k, and AUC, averaged over users with something to find.

    With hits h_1..h_k of a list and n relevant items: precision = sum h / k, recall = sum h / n,
    NDCG = sum h_r / log2(r + 1) over the same for a perfect list, MAP = sum h_r (hits so far / r) / min(n, k). AUC is
    the share of (relevant, other) pairs in the right order, if ranks in the whole list are given.
    """

    def __init__(self, k: int = 10) -> None:
        self.k = k
        self.users = 0
        self.precision = self.recall = self.ndcg = self.average_precision = self.auc = 0.0
        self._auc_users = 0

    def add(self, recommended: Array, relevant: Array) -> None:
        """Adds one user: item codes, best first (-1: none), and the codes of all relevant items."""
        relevant = np.unique(relevant)
        if not len(relevant):
            return
        listed = np.asarray(recommended)[: self.k]
        hits = (np.isin(listed, relevant) & (listed >= 0)).astype(np.float64)
        best = float(discounts(min(len(relevant), self.k)).sum())
        self.users += 1
        self.precision += float(hits.sum()) / self.k
        self.recall += float(hits.sum()) / len(relevant)
        self.ndcg += float((hits * discounts(len(hits))).sum()) / best
        self.average_precision += average_precision(hits, min(len(relevant), self.k))

    def add_scores(self, scores: Array, relevant: Array, excluded: Array | None = None) -> None:
        """Adds one user's scores of all items, for the AUC; ties count half."""
        mask = np.ones(len(scores), bool)
        mask[[] if excluded is None else excluded] = False
        is_relevant = np.zeros(len(scores), bool)
        is_relevant[relevant] = True
        good, bad = scores[is_relevant & mask], np.sort(scores[~is_relevant & mask])
        if len(good) and len(bad):
            below = np.searchsorted(bad, good, "left") + np.searchsorted(bad, good, "right")
            self.auc += float(below.mean()) / 2 / len(bad)
            self._auc_users += 1

    def result(self) -> dict[str, Any]:
        """The metrics by name."""
        n = self.users or math.nan
        found = {
            "users": self.users,
            f"precision@{self.k}": self.precision / n,
            f"recall@{self.k}": self.recall / n,
            f"ndcg@{self.k}": self.ndcg / n,
            f"map@{self.k}": self.average_precision / n,
        }
        if self._auc_users:
            found["auc"] = self.auc / self._auc_users
        return found


class GroupRankingMetrics:
    """NDCG, NDCG at k and MAP of scores within groups, averaged over the groups with something to find."""

    def __init__(self, k: int = 10) -> None:
        self.k = k
        self.rows = self.groups = 0
        self.ndcg = self.ndcg_at_k = self.average_precision = self.loss = 0.0
        self.pairs = 0

    def add(self, relevance: Array, scores: Array, losses: Array) -> None:
        """Adds one group: relevances of its rows, their scores, and the losses of its pairs."""
        self.rows += len(scores)
        self.pairs += len(losses)
        self.loss += float(losses.sum())
        if not (relevance > 0).any():
            return
        self.groups += 1
        self.ndcg += ndcg(relevance, scores)
        self.ndcg_at_k += ndcg(relevance, scores, self.k)
        hits = (relevance[np.argsort(-scores, kind="stable")] > 0).astype(np.float64)
        self.average_precision += average_precision(hits, int(hits.sum()))

    def result(self) -> dict[str, Any]:
        """The metrics by name."""
        n = self.groups or math.nan
        return {
            "rows": self.rows,
            "groups": self.groups,
            "loss": self.loss / (self.pairs or math.nan),
            "ndcg": self.ndcg / n,
            f"ndcg@{self.k}": self.ndcg_at_k / n,
            "map": self.average_precision / n,
        }


def discounts(n: int) -> Array:
    """1 / log2(place + 1) of the first n places."""
    return np.asarray(1 / np.log2(np.arange(2, n + 2)))


def ndcg(relevance: Array, scores: Array, k: int | None = None) -> float:
    """Discounted gains (2^relevance - 1) of the k best scores, as a share of the best order's.

    Rows of equal score share the mean of their gains; relevance below 0 counts as 0; nothing to find is NaN.
    """
    gains = 2.0 ** np.maximum(relevance, 0) - 1
    n = len(gains) if k is None else min(k, len(gains))
    best = float(np.sort(gains)[::-1][:n] @ discounts(n))
    _, ties, counts = np.unique(-np.asarray(scores), return_inverse=True, return_counts=True)
    shared = np.bincount(ties, gains) / counts
    found = float(np.repeat(shared, counts)[:n] @ discounts(n))
    return found / best if best > 0 else math.nan


def average_precision(hits: Array, n_relevant: int) -> float:
    """Mean precision at the places of the relevant rows: sum of h_r (hits so far / r), over n_relevant."""
    return float((hits * np.cumsum(hits) / np.arange(1, len(hits) + 1)).sum()) / n_relevant


def plain(label: Any) -> Any:
    """A label as a JSON value."""
    return label.item() if isinstance(label, np.generic) else label


def finite(value: float) -> float | None:
    """The number, or None if it is not finite."""
    return float(value) if math.isfinite(value) else None
