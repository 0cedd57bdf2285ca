"""The exact minimum of cd's quadratic model over few features, where one feature after the other would take for ever.

    model(w) = q.(w - start) + 1/2 (w - start)' H (w - start) + l2/2 |w|^2 + l1 |w|_1,    the last place is the bias

An active set method: on the face where signs stay as they are the model is a quadratic, whose minimum is one linear
system away; the way there ends at the first weight that becomes zero. When the face's minimum is reached, features that
violate their condition get a step of their own, and the next face is tried (Osborne, Presnell and Turlach, 2000).
Invariant: the model never rises. Left out: more than `MOST_FEATURES` features, where H would be too large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steepest.data.chunk import Array, Chunk

MOST_FEATURES = 512
MOST_FACES = 400
MOST_NEW = 16  # features that leave zero at once
LIFT = 1e-12  # of the largest curvature, where features say the same


@dataclass(frozen=True, slots=True)
class QuadraticModel:
    """H and the gradient at the start, of the features and of the bias behind them."""

    matrix: Array
    gradient: Array
    l1: float
    l2: float
    with_bias: bool

    def minimum(self, start: Array, w: Array, enough: float) -> Array:
        """Near enough to the least model, from w on."""
        w, n = w.copy(), len(w) - 1
        penalised = np.arange(len(w)) < n
        H = self.matrix + np.diag(np.where(penalised, self.l2, 0.0))
        lift = LIFT * float(np.diag(H).max(initial=0.0))
        for _ in range(MOST_FACES):
            gradient = self.gradient + self.matrix @ (w - start) + np.where(penalised, self.l2 * w, 0.0)
            on = np.flatnonzero((w != 0) & penalised)
            face = np.append(on, n) if self.with_bias else on
            pull = gradient[face] + np.where(face < n, self.l1 * np.sign(w[face]), 0.0)
            if np.abs(pull).sum() > enough and self._along_the_face(H, lift, face, pull, w):
                continue
            beyond = np.where(penalised & (w == 0), np.abs(gradient) - self.l1, 0.0)
            if np.maximum(beyond, 0.0).sum() + np.abs(pull).sum() <= enough or not beyond.max(initial=0.0) > 0:
                break
            self._leave_zero(H, gradient, beyond, w)
        return w

    def _along_the_face(self, H: Array, lift: float, face: Array, pull: Array, w: Array) -> bool:
        """One Newton step that keeps all signs; False if it changes nothing."""
        system = H[np.ix_(face, face)] + lift * np.eye(len(face))
        try:
            step = -np.linalg.solve(system, pull)
        except np.linalg.LinAlgError:
            return False
        crosses = (face < len(w) - 1) & (w[face] * (w[face] + step) < 0)
        reach = np.where(crosses, -w[face] / np.where(crosses, step, 1.0), np.inf)
        t = min(1.0, float(reach.min(initial=np.inf)))
        if not np.isfinite(step).all() or not float(pull @ step) < 0:
            return False
        w[face] += t * step
        w[face[reach <= t]] = 0.0
        return True

    def _leave_zero(self, H: Array, gradient: Array, beyond: Array, w: Array) -> None:
        gradient = gradient.copy()
        for j in np.argsort(-beyond)[:MOST_NEW]:
            if beyond[j] <= 0 or not H[j, j] > 0:
                break
            change = -np.sign(gradient[j]) * max(abs(gradient[j]) - self.l1, 0.0) / H[j, j]
            w[j] = change
            gradient += H[:, j] * change


def model_matrix(columns: Chunk, chosen: Array, h: Array) -> Array:
    """X' diag(h) X of the chosen features, and of a last one that is 1 in every row."""
    from scipy.sparse import csr_matrix

    shape = (columns.n_rows, columns.n_features)
    X = csr_matrix((columns.values, columns.indices, columns.indptr), shape=shape)[chosen].astype(np.float64)
    weighted = csr_matrix((X.data * h[X.indices], X.indices, X.indptr), shape=X.shape)
    matrix = np.empty((len(chosen) + 1, len(chosen) + 1))
    matrix[:-1, :-1] = (weighted @ X.T).toarray()
    matrix[-1, :-1] = matrix[:-1, -1] = np.asarray(weighted.sum(axis=1)).ravel()
    matrix[-1, -1] = h.sum()
    return matrix
