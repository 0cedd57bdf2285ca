"""The table of all estimators: with which parameters, on which rows, and which promises each of them keeps.

`CASES` holds one row per estimator and set of parameters; `test_promises.py` runs every promise over it. A promise that
does not apply is named in `without` with the reason, so that what is not promised can be read here too.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

import steepest as st
from conftest import sparse_problem
from steepest import model_file

PROMISES = {
    "seed": "the same seed gives the same bits",
    "chunks": "neither the size of chunks nor the number of threads changes a bit",
    "arrays": "fit(X, y) is fit_stream of the same rows",
    "pieces": "partial_fit in pieces, through files and pickles, is partial_fit of all rows at once",
    "one_stream": "fit_stream(A then B) in one epoch is partial_fit(A), save, load, partial_fit(B)",
    "resume": "a run that was killed goes on from its checkpoint to the same bits",
    "history": "... and with the same losses on the way",
    "files": "a loaded or unpickled model says and learns the same",
    "alone": "the score of a row does not depend on the rows beside it",
    "finite": "every number shown or saved is finite, whatever the units of the data",
    "steps": "... and whatever the first step size",
}


# ------------------------------------------------------------------------------------------------------------- data


@dataclass(frozen=True)
class Data:
    """Rows with their targets, as arrays and as a source; rankers need `groups` too."""

    X: Any
    y: Any = None
    groups: Any = None
    weight: Any = None
    kind: str = "rows"  # rows, texts, pairs
    cuts: tuple[int, ...] = (1, 400, 1003, 1707)  # between learned rows, around the end of calibrations

    @property
    def n_rows(self) -> int:
        return len(self.X) if self.kind == "texts" else self.X.shape[0]

    def part(self, start: int, stop: int | None = None) -> tuple[Any, ...]:
        """Arguments of fit and partial_fit: these rows only."""
        columns = (self.X, self.y, self.groups, self.weight)
        return tuple(column[start:stop] for column in columns if column is not None)

    def head(self, n: int) -> Data:
        """The first rows."""
        names = [name for name in ("X", "y", "groups", "weight") if getattr(self, name) is not None]
        return replace(self, **dict(zip(names, self.part(0, n), strict=True)))

    @property
    def all(self) -> tuple[Any, ...]:
        return self.part(0)

    @property
    def probe(self) -> Any:
        """Some rows to predict."""
        return self.X[:60]

    def source(self, chunk_rows: int | None = None, *, announced: bool = False) -> Any:
        """The same rows as a source, in chunks of this many rows; classes may be announced, as fit(X, y) does."""
        rows = self.n_rows if chunk_rows is None else chunk_rows
        if self.kind == "pairs":
            return st.from_ratings(self.X[:, 0], self.X[:, 1], self.y, chunk_rows=rows)
        if self.kind == "texts":
            raise TypeError("texts have sources in files only: see text_file")
        if self.groups is not None:
            source = st.LinearRanker().grouped(self.X, self.y, self.groups)
            source.chunk_rows = rows
            return source
        source = st.from_arrays(self.X, self.y, self.weight, chunk_rows=rows)
        if announced and self.y is not None:
            source.labels = np.unique(self.y)
        return source

    def text_file(self, path: Any) -> Any:
        """The texts as a file of fastText's format, to be scanned."""
        lines = (f"__label__{label} {text}\n" for text, label in zip(self.X, self.y, strict=True))
        path.write_text("".join(lines))
        return path

    def scaled(self) -> dict[str, Data]:
        """Some of the rows in units that nobody would choose."""
        if self.kind == "texts":
            return {"plain": self}
        if self.kind == "pairs":
            sized = {"as they are": 1.0} if set(np.unique(self.y)) == {0, 1} else {"huge": 1e30, "tiny": 1e-30}
            return {name: replace(self, y=self.y * factor) for name, factor in sized.items()}
        mixed = 10.0 ** np.random.default_rng(0).uniform(-12, 12, self.X.shape[1])
        factors = {"huge": 1e15, "tiny": 1e-15, "mixed": mixed}
        few = self.head(1200)
        found = {name: replace(few, X=times(few.X, factor)) for name, factor in factors.items()}
        if self.y is not None and np.asarray(self.y).dtype.kind == "f" and self.groups is None:
            found |= {f"targets by {factor}": replace(few, y=few.y * factor) for factor in (1e15, 1e-15)}
        return found


def times(X: Any, factor: Any) -> Any:
    scaled = X.multiply(factor).tocsr() if sp.issparse(X) else X * factor
    return scaled.astype(np.float32) if sp.issparse(X) else scaled


NAMES = np.array(["dog", "ant", "cat", "bee"])


def classes(n_classes: int, density: float = 0.06, n_features: int = 120) -> Data:
    """Two classes as numbers, more by their names; the last one appears late."""
    X, y = sparse_problem(n_rows=2500, n_features=n_features, n_classes=n_classes, density=density, seed=5)
    if n_classes == 2:
        return Data(X, y)
    y[:1700] = np.where(y[:1700] == n_classes - 1, 0, y[:1700])
    return Data(X, NAMES[y])


def numbers() -> Data:
    X, _ = sparse_problem(n_rows=2500, n_features=120, seed=2)
    rng = np.random.default_rng(3)
    return Data(X, X @ rng.standard_normal(120) + 0.1 * rng.standard_normal(2500) + 3.0)


def queries() -> Data:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), rng.integers(1, 12, 200))
    X = (rng.standard_normal((len(groups), 8)) * (rng.random((len(groups), 8)) < 0.6)).astype(np.float32)
    quality = X @ np.linspace(-1, 1, 8) + 0.3 * rng.standard_normal(len(groups))
    X[:, 0] += 3 * rng.standard_normal(200)[groups]  # queries differ; only the order inside one means something
    edges = np.searchsorted(groups, [1, 30, 90, 150])  # a group is never cut in two
    return Data(X, np.clip(np.round(quality + 2), 0, 3), groups, cuts=tuple(edges.tolist()))


def topics() -> Data:
    """Sparse rows, each from one of six topics."""
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.full(100, 0.03), 6)
    return Data(sp.csr_matrix(np.array([rng.multinomial(20, chances[k]) for k in np.arange(2300) % 6], np.float32)))


def blobs() -> Data:
    rng = np.random.default_rng(1)
    centres = 4 * rng.standard_normal((5, 12))
    return Data((centres[rng.integers(0, 5, 2300)] + rng.standard_normal((2300, 12))).astype(np.float32))


def moons() -> Data:
    rng = np.random.default_rng(0)
    angle, y = rng.uniform(0, np.pi, 900), np.arange(900) % 2
    X = np.column_stack([np.cos(angle) + y, np.where(y == 1, 0.4 - np.sin(angle), np.sin(angle))])
    return Data(X + 0.15 * rng.standard_normal((900, 2)), np.where(y == 1, "yes", "no"), cuts=(400, 401))


def waves() -> Data:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (900, 1))
    return Data(x, np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(900), cuts=(400, 401))


TOPICS = {
    "food": ["bread", "butter", "oven", "salt", "soup", "knife", "bake", "taste"],
    "code": ["python", "loop", "compile", "bug", "stack", "type", "branch", "merge"],
    "sport": ["goal", "match", "referee", "ball", "league", "coach", "score", "team"],
}


def texts() -> Data:
    rng = np.random.default_rng(0)
    found, labels = [], []
    for label in rng.choice(list(TOPICS), 300):
        words = [*rng.choice(TOPICS[label], 4), *(f"the{k}" for k in rng.integers(0, 30, 4))]
        found.append(" ".join(rng.permutation(words)))
        labels.append(str(label))
    return Data(found, labels, kind="texts", cuts=(3, 100, 181))


def ratings(kind: str) -> Data:
    rng = np.random.default_rng(13)
    users, items = rng.integers(0, 300, 6000), rng.integers(0, 120, 6000)
    score = (rng.standard_normal((300, 3))[users] * rng.standard_normal((120, 3))[items]).sum(axis=1)
    y = {
        "stars": np.clip(np.round(3 + score), 1, 5),
        "signs": (score > 0).astype(np.float64),
        "counts": rng.poisson(np.exp(0.5 * score)).astype(np.float64) + 1,
    }[kind]
    return Data(np.column_stack([users, items]), y, kind="pairs", cuts=(1, 999, 1001, 3500))


DATA = {
    "two": lambda: classes(2),
    "four": lambda: classes(4),
    "two-weighted": lambda: replace(classes(2), weight=np.linspace(0.5, 1.7, 2500)),
    "four-weighted": lambda: replace(classes(4), weight=np.linspace(0.5, 1.7, 2500)),
    "two-dense": lambda: classes(2, 0.6, 30),
    "four-dense": lambda: classes(4, 0.6, 30),
    "numbers": numbers,
    "queries": queries,
    "topics": topics,
    "blobs": blobs,
    "moons": moons,
    "waves": waves,
    "texts": texts,
    "stars": lambda: ratings("stars"),
    "signs": lambda: ratings("signs"),
    "counts": lambda: ratings("counts"),
}
data = functools.cache(lambda name: DATA[name]())


# ------------------------------------------------------------------------------------------------------------ cases


@dataclass(frozen=True)
class Case:
    """An estimator with parameters, the rows it learns, and the promises that it does not give, with the reason."""

    estimator: str
    rows: str
    params: dict[str, Any] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)
    once: dict[str, Any] = field(default_factory=dict)  # what a fit needs besides to learn as partial_fit does

    @property
    def data(self) -> Data:
        return data(self.rows)

    @property
    def kind(self) -> type:
        return getattr(st, self.estimator)

    def takes(self, parameter: str) -> bool:
        return parameter in self.kind().get_params(deep=False)

    def make(self, **more: Any) -> Any:
        """The estimator, with these parameters besides, where it knows them."""
        known = {name: value for name, value in more.items() if self.takes(name)}
        # These rows are so few that "auto" would minimise exactly; the promises are those of the solvers for many rows.
        usual = {"solver": "stochastic"} if self.estimator in ("LinearClassifier", "LinearRegressor") else {}
        return self.kind(**{"random_state": 0, **usual, **self.params, **known})


BATCH = {
    "pieces": "a solver over the whole data needs all rows at once",
    "one_stream": "a solver over the whole data needs all rows at once",
}
SHARDS = {"one_stream": "rows belong to shards by their place in the whole data, so partial_fit learns serially"}
AT_ONCE = {"resume": "it learns all in one step, so that a killed run has nothing to go on from"}
NO_CHECKPOINT = "it keeps no checkpoints, and says so"
LLOYD = {
    "one_stream": "fit moves the centres by Lloyd's iterations over all rows, partial_fit by mini-batches",
    "resume": NO_CHECKPOINT,
}
LABELS_FIRST = "fit counts labels and rows before its first step, which partial_fit cannot"
ENTRIES = "fit numbers and counts all ids before its first step, partial_fit as they come"
ONE_BATCH = "partial_fit learns the first call in one batch and refuses another"
ANEW = "every call solves anew the rows that it touches"
LOCKLESS = "threads write to the same rows without locks"
DRAWN = "every call draws its own items to compare with"
ROUNDED = "factors are rounded to halves at the end of every call"
SOLVED_ANEW = {"history": "rows are scored by votes that are solved now and then, and again after a restart"}
CENTRES = "the centres are taken from the rows of the first call"

LINEAR = {
    "sgd": dict(solver="sgd"),
    "asgd": dict(solver="asgd"),
    "asgd-eta": dict(solver="asgd", average="eta"),
    "adagrad": dict(solver="adagrad"),
    "coin": dict(solver="coin"),
    "ftrl-l1": dict(solver="ftrl", penalty="l1", alpha=1e-4),
    "ftrl-l1-batches": dict(solver="ftrl", penalty="l1", alpha=1e-4, batch_size=9),
    "sgd-l1": dict(solver="sgd", penalty="l1", alpha=1e-3),
    "sgd-elasticnet": dict(solver="sgd", penalty="elasticnet", alpha=1e-3),
    "truncated": dict(solver=st.Truncated(every=7), penalty="l1", alpha=1e-3),
    "forgetting": dict(schedule=st.Forgetting(half_life=60)),
    "forgetting-l1": dict(solver="sgd", penalty="l1", alpha=1e-3, schedule=st.Forgetting(half_life=60)),
    "forgetting-adagrad": dict(solver="adagrad", schedule=st.Forgetting(half_life=5, steps="constant")),
    "batches": dict(solver="sgd", batch_size=7),
    "given-step": dict(solver="sgd", eta0=0.5),
    "float64": dict(solver="sgd", dtype="float64"),
    "balanced": dict(solver="sgd", class_weight="balanced"),
    "hinge": dict(loss="hinge", solver="sgd", alpha=1e-3),
    "softmax": dict(multi_class="softmax", solver="sgd"),
    "hashed": dict(multi_class=st.Hashed(12)),
    "hashed-sgd": dict(multi_class=st.Hashed(8), solver="sgd", loss="hinge", dtype="float64"),
    "hashed-ftrl": dict(multi_class=st.Hashed(12), solver="ftrl", penalty="l1", alpha=1e-4),
    "hashed-adagrad": dict(multi_class=st.Hashed(10), solver="adagrad", batch_size=5),
    "shuffle-never": dict(shuffle="never"),
    "shuffle-once": dict(shuffle="once"),
    "shuffle-rows": dict(shuffle="rows"),
    "adaptive": dict(
        early_stopping=st.EarlyStopping(patience=3), solver="sgd", eta0=50.0, schedule="adaptive", epochs=6
    ),
    "replicas": dict(parallel=st.Replicas(sync_every=100)),
    "replicas-batches": dict(parallel=st.Replicas(3, sync_every=50), batch_size=7),
    "replicas-sgd": dict(parallel=st.Replicas(4, sync_every=64), solver="sgd", dtype="float64"),
    "replicas-l2": dict(parallel=st.Replicas(sync_every=64), solver="sgd", alpha=0.1),
    "replicas-ftrl": dict(parallel=st.Replicas(sync_every=80), solver="ftrl", penalty="l1", alpha=1e-4),
    "replicas-hashed": dict(parallel=st.Replicas(sync_every=90), multi_class=st.Hashed(14)),
}
MIXING = {
    "mixing": dict(parallel=st.Mixing(5)),
    "mixing-once": dict(parallel=st.Mixing(7, rounds=1)),
    "mixing-often": dict(parallel=st.Mixing(3, rounds=9)),
    "mixing-l1": dict(parallel=st.Mixing(3), solver="sgd", penalty="l1", alpha=1e-4),
    "mixing-topk": dict(parallel=st.Mixing(4, send="topk", weights="uniform")),
    "mixing-ftrl": dict(parallel=st.Mixing(4, send="delta"), solver="ftrl"),
}
SOLVERS = {
    "gd": dict(solver="gd"),
    "gd-hinge": dict(solver="gd", loss="hinge"),
    "gd-lp": dict(solver="gd", penalty=st.LP(1.5)),
    "cg": dict(solver="cg"),
    "lbfgs": dict(solver="lbfgs"),
    "lbfgs-hinge": dict(solver="lbfgs", loss="hinge"),
    "lbfgs-l1": dict(solver="lbfgs", penalty="l1"),
    "lbfgs-hinge-l1": dict(solver="lbfgs", loss="hinge", penalty="l1"),
    "newton": dict(solver="newton_cg"),
    "newton-hinge": dict(solver="newton_cg", loss="hinge"),
    "newton-lp": dict(solver="newton_cg", penalty=st.LP(2.5)),
    "dual": dict(solver="dual_cd", loss="hinge", tol=1e-9),
    "saga": dict(solver="saga", loss="log"),
    "saga-l1": dict(solver="saga", loss="log", penalty="l1"),
    "cd": dict(solver="cd", loss="log", penalty="l1"),
}
NETWORK = {
    "adam": dict(),
    "sgd-l1": dict(solver="sgd", penalty="l1", alpha=1e-3),
    "momentum-l2": dict(solver="momentum", alpha=1e-2),
    "adagrad": dict(solver="adagrad", penalty="elasticnet", alpha=1e-3, schedule="invsqrt"),
    "deep": dict(hidden=(5, 4), link="relu", dtype="float64"),
    "balanced": dict(class_weight="balanced"),
}
WIDE = {  # layers large enough that threads share them out
    "wide-sgd": dict(solver="sgd"),
    "wide-l2": dict(alpha=1e-3),
    "wide-adagrad": dict(solver="adagrad", dtype="float64"),
}
NINE_FIELDS = [column % 9 for column in range(120)]
FM = {
    "log": dict(),
    "hinge-balanced": dict(loss="hinge", class_weight="balanced", normalise=True),
    "fields": dict(fields=NINE_FIELDS, alpha=1e-2),
}
INVSQRT = dict(schedule="invsqrt")  # the other one needs the number of rows, which partial_fit does not know
TEXT = dict(n_bits=12, epochs=3, eta0=1.0, dim=8, parallel="serial", names=0)

FIRST_ROWS = blobs().X[:5]

CASES = {
    **{
        f"linear/{name}-{rows}": Case("LinearClassifier", rows, dict(epochs=3) | params)
        for name, params in LINEAR.items()
        for rows in ("two", "four")
    },
    **{
        f"linear/{name}-{rows}": Case(
            "LinearClassifier",
            rows,
            dict(epochs=3) | params,
            SHARDS | (AT_ONCE if name == "mixing-once" else {}),
        )
        for name, params in MIXING.items()
        for rows in ("two", "four")
    },
    **{
        f"linear/{name}": Case("LinearClassifier", "four-weighted", dict(alpha=1e-3, max_iter=6) | params, BATCH)
        for name, params in SOLVERS.items()
    },
    **{
        f"linear/{name}-held-out": Case(
            "LinearClassifier",
            "two-weighted",
            dict(alpha=1e-3, early_stopping=st.EarlyStopping(patience=50), max_iter=6) | params,
            BATCH,
        )
        for name, params in SOLVERS.items()
        if name != "dual"  # done in one step
    },
    "linear/numbers": Case("LinearRegressor", "numbers", dict(epochs=3)),
    "linear/huber": Case("LinearRegressor", "numbers", dict(epochs=3, loss="huber", solver="adagrad")),
    "linear/closed-form": Case("LinearRegressor", "numbers", dict(solver="closed_form", alpha=1e-3), BATCH | AT_ONCE),
    **{
        f"ranker/{name}": Case("LinearRanker", "queries", dict(epochs=3) | params)
        for name, params in {"blocks": dict(), "never": dict(shuffle="never"), "all": dict(pairs="all")}.items()
    },
    **{
        f"network/{name}-{rows}": Case(
            "NetworkClassifier", rows, dict(hidden=(6,), epochs=2, batch_size=16) | params, once=INVSQRT
        )
        for name, params in NETWORK.items()
        for rows in ("four", "four-dense")
    },
    **{
        f"network/shuffle-{how}": Case(
            "NetworkClassifier",
            "two-dense",
            dict(hidden=(6,), epochs=3, batch_size=16, shuffle=how, early_stopping=True, penalty="l1", alpha=1e-4),
            once=INVSQRT,
        )
        for how in ("never", "blocks", "rows")
    },
    **{
        f"network/{name}": Case(
            "NetworkClassifier", "four", dict(hidden=(48, 32), epochs=1, batch_size=64) | params, once=INVSQRT
        )
        for name, params in WIDE.items()
    },
    "network/numbers": Case("NetworkRegressor", "numbers", dict(hidden=(6,), epochs=2, batch_size=16), once=INVSQRT),
    **{
        f"fm/{name}-{rows}": Case("FMClassifier", rows, dict(n_factors=3, epochs=3) | params)
        for name, params in FM.items()
        for rows in ("two", "four", "four-dense")
    },
    "fm/numbers": Case("FMRegressor", "numbers", dict(epochs=3)),
    "fm/quantile": Case("FMRegressor", "numbers", dict(epochs=3, loss=st.Quantile(0.8), fields=NINE_FIELDS)),
    "fm/early-stopping": Case("FMClassifier", "two", dict(epochs=4, early_stopping=True, shuffle="rows")),
    **{
        f"radial/{name}-{estimator}": Case(
            estimator,
            rows,
            dict(n_units=12, init="sample") | params,
            {"pieces": CENTRES, "one_stream": CENTRES} | ({} if "epochs" in params else SOLVED_ANEW),
        )
        for name, params in {
            "closed-form": dict(),
            "fixed": dict(votes="fixed"),
            "backprop": dict(votes="backprop", batch_size=16, epochs=2),
        }.items()
        for estimator, rows in (("RBFClassifier", "moons"), ("RBFRegressor", "waves"))
    },
    **{
        f"k-means/{solver}-{rows}": Case(
            "KMeans",
            rows,
            dict(n_clusters=7, solver=solver, epochs=4, tol=None, init_size=500, batch_size=256),
            {} if solver == "minibatch" else LLOYD,
        )
        for solver in ("minibatch", "lloyd")
        for rows in ("topics", "blobs")
    },
    **{
        f"text/{name}{loss}": Case(
            "TextClassifier",
            "texts",
            TEXT | dict(loss=loss) | params,
            {"one_stream": LABELS_FIRST} if name or loss in ("ns", "hs") else {},
            once=INVSQRT,
        )
        for name, params in {"": dict(), "replicas-": dict(parallel=st.Replicas(sync_every=7))}.items()
        for loss in ("softmax", "ova", "ns", "hs")
    },
    **{
        f"factors/{name}": Case(
            "MatrixFactorization", rows, dict(n_factors=6, epochs=5) | params, {"one_stream": ENTRIES} | without
        )
        for name, rows, params, without in (
            ("sgd", "stars", dict(), {}),
            ("logistic", "signs", dict(loss="logistic"), {}),
            ("bpr", "counts", dict(loss="bpr"), {"pieces": DRAWN}),
            ("bold", "stars", dict(schedule="bold"), {}),
            ("blocks", "stars", dict(n_blocks=3), {}),
            ("float16", "stars", dict(dtype="float16"), {"pieces": ROUNDED}),
            ("early-stopping", "stars", dict(early_stopping=st.EarlyStopping(patience=1)), {}),
            ("als", "stars", dict(solver="als"), {"pieces": ANEW}),
            ("implicit", "counts", dict(loss="implicit", n_factors=40), {"pieces": ANEW}),
            ("kl", "counts", dict(loss="kl"), {"pieces": ANEW}),
            ("full", "counts", dict(loss="full", solver="als"), {"pieces": ANEW}),
            ("full-sgd", "counts", dict(loss="full"), {"pieces": ANEW}),
            ("hogwild", "stars", dict(parallel="hogwild"), {"chunks": LOCKLESS}),
            ("lbfgs", "stars", dict(solver="lbfgs"), {"pieces": ONE_BATCH, "resume": NO_CHECKPOINT}),
        )
    },
}


# What is promised and does not hold yet, by promise; the tests fail as soon as one of them does.
BROKEN: dict[str, list[str]] = {}

# Where a row of weight 3 is three copies of it and one of weight 0 none: case, and how closely (0: every bit).
STEP = dict(eta0=0.5, shuffle="never", epochs=2)
EXACT = dict(alpha=1e-2, tol=1e-10, dtype="float64", max_iter=1000)
COPIES = {
    **{
        f"linear/{solver}": (Case("LinearClassifier", "two", STEP | dict(solver=solver)), 0.0)
        for solver in ("sgd", "asgd")
    },
    "linear/hinge": (Case("LinearClassifier", "four", STEP | dict(solver="sgd", loss="hinge")), 0.0),
    "linear/adagrad": (Case("LinearClassifier", "two", STEP | dict(solver="adagrad")), 0.0),
    "linear/ftrl": (Case("LinearClassifier", "two", STEP | dict(solver="ftrl", penalty="l1", alpha=1e-4)), 0.0),
    "linear/numbers": (Case("LinearRegressor", "numbers", STEP | dict(solver="sgd")), 0.0),
    "linear/lbfgs": (Case("LinearClassifier", "two", EXACT | dict(solver="lbfgs")), 1e-5),
    "linear/newton": (Case("LinearClassifier", "four", EXACT | dict(solver="newton_cg")), 1e-6),
    "linear/dual": (Case("LinearClassifier", "two", EXACT | dict(solver="dual_cd", loss="hinge")), 1e-4),
    "linear/cd": (Case("LinearRegressor", "numbers", EXACT | dict(solver="cd", penalty="l1")), 1e-5),
    "linear/closed-form": (Case("LinearRegressor", "numbers", dict(solver="closed_form", alpha=1e-3)), 1e-5),
    **{
        f"factors/{name}": (Case("MatrixFactorization", rows, dict(n_factors=6, epochs=5) | params), 2e-3)
        for name, rows, params in (
            ("als", "stars", dict(solver="als")),
            ("als-count", "stars", dict(solver="als", weighting="count")),
            ("implicit", "counts", dict(loss="implicit")),
            ("kl", "counts", dict(loss="kl")),
            ("full", "counts", dict(loss="full", solver="als")),
        )
    },
    "k-means/lloyd": (Case("KMeans", "blobs", dict(n_clusters=5, init=FIRST_ROWS, solver="lloyd", tol=None)), 1e-6),
    "k-means/one-batch": (
        Case("KMeans", "blobs", dict(n_clusters=5, init=FIRST_ROWS, epochs=1, shuffle="never", batch_size=100_000)),
        1e-5,
    ),
}
NO_COPIES = {
    "LinearRanker": "it takes no weights of rows",
    "NetworkClassifier": "a batch is the mean of its rows, and copies fill it",
    "NetworkRegressor": "a batch is the mean of its rows, and copies fill it",
    "TextClassifier": "a weight multiplies the step of its row",
    "FMClassifier": "the first thousand rows say in which unit values are measured, and copies are among them",
    "FMRegressor": "the first thousand rows say in which unit values are measured, and copies are among them",
    "RBFClassifier": "which rows become centres depends on how many there are",
    "RBFRegressor": "which rows become centres depends on how many there are",
}

# Reasons for which partial_fit is refused rather than done another way.
REFUSED = (BATCH["pieces"], ONE_BATCH)


def giving(promise: str) -> list[str]:
    """The cases that give a promise."""
    assert promise in PROMISES
    return [name for name, case in CASES.items() if promise not in case.without]


# ---------------------------------------------------------------------------------------------------- what is compared

# Not what was learned: parameters, where the rows came from, and how long it took.
ASKED = {"history", "params", "settings", "recipe", "n_iter", "label_kind"}


def bits(model: Any, folder: Any) -> dict[str, Any]:
    """All that a model has learned, to the last bit: what its file holds."""
    path = folder / "bits.steepest"
    model.save(path)
    header, arrays = model_file.read(path)
    learned = {name: value for name, value in header.items() if name not in ASKED}
    return learned | {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def said(model: Any, X: Any) -> dict[str, np.ndarray]:
    """What a model says of these rows, by every method that it has."""
    methods = ("decision_function", "predict_proba", "predict", "transform")
    return {name: np.asarray(getattr(model, name)(X)) for name in methods if hasattr(model, name)}


def shown(model: Any) -> dict[str, np.ndarray]:
    """The learned arrays that a model shows: attributes whose names end in an underscore."""
    names = {name for name in [*dir(type(model)), *vars(model)] if name.endswith("_") and not name.startswith("_")}
    found = {name: getattr(model, name) for name in sorted(names) if hasattr(model, name)}
    found |= found.pop("weights_", {})
    arrays = {name: value.data if sp.issparse(value) else value for name, value in found.items()}
    return {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}
