"""Numbers that every estimator gave before a refactoring, kept so that no bit of them changes unnoticed.

Each case builds small synthetic data from a fixed seed, fits and returns its outputs as float64. `predictions.json`
holds their shape, the SHA-256 of their bytes and the first six values. Tests compare shape and values with a tolerance,
since other machines round otherwise; bits are compared on the machine that recorded them:

    python test_golden_predictions.py --bits [part of a name]      cases whose bits differ; exit code 1 if there are any
    python test_golden_predictions.py --record [part of a name]    records anew
"""

from __future__ import annotations

import argparse
import functools
import gzip
import hashlib
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp

import steepest as st
from steepest import kernels
from steepest.models.options import from_flat

STORED = Path(__file__).parents[1] / "golden" / "predictions.json"
SHOWN = 6
LARGEST = 100_000  # numbers of an attribute that are worth their bytes
WORDS = (
    "cheap", "pills", "cash", "win", "prize", "free", "now", "offer", "lunch", "noon", "meeting", "report",
    "agenda", "minutes", "budget", "team", "match", "goal", "league", "coach", "score", "cup", "player", "season",
    "größe", "ÜBER", "naïve", "東京", "data_set", "x1", "the", "a", "of", "to",
)  # fmt: skip
METHODS = ("decision_function", "transform", "predict_proba", "predict", "embed")
ATTRIBUTES = (
    "coef_", "intercept_", "cluster_centers_", "counts_", "inertia_", "votes_", "centers_", "gamma_", "user_factors_",
    "item_factors_", "user_biases_", "item_biases_", "temperature_", "dual_coef_", "slacks_", "support_", "margin_",
    "n_iter_", "n_nonzero_",
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- data


def sparse_rows(rng, n_rows, n_features, n_entries):
    """Unit rows with the same number of entries each."""
    columns = np.sort(np.argsort(rng.random((n_rows, n_features)), axis=1)[:, :n_entries], axis=1)
    values = rng.standard_normal((n_rows, n_entries))
    values /= np.sqrt((values**2).sum(axis=1, keepdims=True))
    starts = np.arange(n_rows + 1) * n_entries
    return sp.csr_matrix((values.ravel().astype(np.float32), columns.ravel(), starts), (n_rows, n_features))


def planted(X, rng, n_outputs):
    """Scores of a hidden linear rule, summed entry by entry."""
    table = rng.standard_normal((X.shape[1], n_outputs))
    rows = X.toarray() if sp.issparse(X) else X
    return np.stack([(rows * table[:, k]).sum(axis=1) for k in range(n_outputs)], axis=1)


def classes(seed, n_classes, n_rows=600, names=None):
    rng = np.random.default_rng(seed)
    X = sparse_rows(rng, n_rows, 80, 8)
    y = (planted(X, rng, n_classes) + 0.2 * rng.standard_normal((n_rows, n_classes))).argmax(axis=1)
    return X, y if names is None else np.array(names)[y]


def dense_classes(n_classes=2, n_rows=300):
    rng = np.random.default_rng(20 + n_classes)
    X = rng.standard_normal((n_rows, 6))
    y = (planted(X, rng, n_classes) + 0.5 * rng.standard_normal((n_rows, n_classes))).argmax(axis=1)
    return X, y


def many_labels():
    rng = np.random.default_rng(4)
    X = sparse_rows(rng, 500, 60, 8)
    return X, (planted(X, rng, 4) + 0.1 * rng.standard_normal((500, 4)) > 0.3).astype(np.int64)


def numbers(n_rows=600, sparse=True):
    rng = np.random.default_rng(5)
    X = sparse_rows(rng, n_rows, 60, 8) if sparse else rng.standard_normal((n_rows, 5))
    return X, planted(X, rng, 1)[:, 0] + 0.1 * rng.standard_normal(n_rows) + 1.5


def counts():
    X, y = numbers()
    return X, np.random.default_rng(6).poisson(np.exp(0.5 * y)).astype(np.float64)


def curve():
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (300, 3))
    return X, X[:, 0] ** 2 - X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(300)


def ring(n_classes=3):
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, (300, 2))
    return X, np.minimum((1.5 * n_classes * (X**2).sum(axis=1) / 2).astype(int), n_classes - 1)


def blobs():
    rng = np.random.default_rng(9)
    return rng.standard_normal((6, 5))[rng.integers(0, 6, 800)] * 3 + rng.standard_normal((800, 5)), None


def groups():
    rng = np.random.default_rng(10)
    X = sparse_rows(rng, 300, 40, 6)
    relevance = np.clip(np.round(planted(X, rng, 1)[:, 0] + 1), 0, 3)
    return X, relevance, np.repeat(np.arange(30), 10)


def texts(n_rows=400, n_labels=3, several=False):
    rng = np.random.default_rng(11)
    label, found = rng.integers(0, n_labels, n_rows), []
    for k in label:
        own = (8 * k + rng.integers(0, 10, 4)) % len(WORDS)
        found.append(" ".join(WORDS[j] for j in [*own, *rng.integers(0, len(WORDS), rng.integers(1, 6))]))
    names = np.array([f"label{k:02d}" for k in range(n_labels)])
    if not several:
        return found, names[label]
    return found, [sorted({names[k], names[j]}) for k, j in zip(label, rng.integers(0, n_labels, n_rows), strict=True)]


def table(as_frame=True, target="class"):
    rng = np.random.default_rng(12)
    words, labels = texts(300, 2)
    frame = pd.DataFrame({
        "text": words,
        "user": [f"u{k}" for k in rng.integers(0, 12, 300)],
        "place": rng.integers(0, 5, 300).astype(str),
        "age": np.round(rng.uniform(18, 80, 300), 1),
        "income": np.round(rng.lognormal(10, 1, 300)),
    })  # fmt: skip
    y = labels if target == "class" else np.log(frame["income"].to_numpy()) + (labels == "label01")
    return frame if as_frame else frame.to_dict("records"), y


def ratings(kind="stars", text=False):
    rng = np.random.default_rng(13)
    users, items = rng.integers(0, 40, 1500), rng.integers(0, 30, 1500)
    p, q = rng.standard_normal((40, 3)), rng.standard_normal((30, 3))
    score = (p[users] * q[items]).sum(axis=1) + 0.3 * rng.standard_normal(1500)
    y = {
        "stars": np.clip(np.round(3 + score), 1, 5),
        "signs": (score > 0).astype(np.float64),
        "counts": rng.poisson(np.exp(0.5 * score)).astype(np.float64) + 1,
        "pairs": None,
    }[kind]
    keep = score > 0 if kind == "pairs" else np.ones(1500, bool)
    pairs = np.stack([users, items], axis=1)[keep]
    if text:
        pairs = np.array([(f"user{u}", f"item{i}") for u, i in pairs], object)
    return pairs, y


def rating_matrix():
    pairs, y = ratings()
    filled = np.full((40, 30), np.nan)
    filled[pairs[:, 0], pairs[:, 1]] = y
    return filled, None


DATA = {
    "two": lambda: classes(1, 2),
    "two-names": lambda: classes(1, 2, names=["no", "yes"]),
    "two-3000": lambda: classes(2, 2, 3000),
    "two-60": lambda: classes(1, 2, 60),  # so few that no BLAS shares its sums out among threads
    "four": lambda: classes(3, 4),
    "four-names": lambda: classes(3, 4, names=["d", "b", "a", "c"]),
    "twenty": lambda: classes(3, 20),
    "dense-two": dense_classes,
    "dense-four": lambda: dense_classes(4),
    "dense-frame": lambda: (pd.DataFrame(dense_classes()[0], columns=list("abcdef")), dense_classes()[1]),
    "labels": many_labels,
    "numbers": numbers,
    "numbers-60": lambda: numbers(60),
    "numbers-3000": lambda: numbers(3000),
    "dense-numbers": lambda: numbers(300, sparse=False),
    "counts": counts,
    "curve": curve,
    "sparse-ring": lambda: (sp.csr_matrix(ring()[0]), ring()[1]),
    "ring": ring,
    "ring-80": lambda: (ring()[0][:80], ring()[1][:80]),
    "ring-two": lambda: ring(2),
    "blobs": blobs,
    "sparse-blobs": lambda: (classes(1, 2)[0], None),
    "groups": groups,
    "texts": texts,
    "texts-two": lambda: texts(400, 2),
    "texts-40": lambda: texts(800, 40),
    "texts-several": lambda: texts(400, 4, several=True),
    "table": table,
    "dicts": lambda: table(as_frame=False),
    "table-numbers": lambda: table(target="number"),
    "arrow": lambda: (pa.Table.from_pandas(table()[0], preserve_index=False), table()[1]),
    "stars": ratings,
    "stars-text": lambda: ratings(text=True),
    "signs": lambda: ratings("signs"),
    "plays": lambda: ratings("counts"),
    "pairs": lambda: ratings("pairs"),
    "matrix": rating_matrix,
    "sparse-matrix": lambda: (sp.csr_matrix(np.nan_to_num(rating_matrix()[0])), None),
}
data = functools.cache(lambda kind: DATA[kind]())


# ------------------------------------------------------------------------------------------------------------- files


@functools.cache
def folder():
    made = tempfile.TemporaryDirectory(prefix="golden-")
    folder.kept = made  # removed when the process ends
    return Path(made.name)


def libsvm_lines(kind):
    X, y, *qid = data(kind)
    for row in range(X.shape[0]):
        cut = slice(X.indptr[row], X.indptr[row + 1])
        entries = " ".join(f"{j + 1}:{x:.7g}" for j, x in zip(X.indices[cut], X.data[cut], strict=True))
        yield f"{y[row]:g} {f'qid:{qid[0][row]} ' if qid else ''}{entries}"


def vw_lines(signs):
    frame, y = data("table")
    for row, label in zip(frame.itertuples(), y, strict=True):
        target = (1 if label == "label01" else -1) if signs else f"{np.log(row.income):.6g}"
        weight = " 2.0" if row.Index % 7 == 0 else ""
        words = row.text.replace(":", " ")
        yield f"{target}{weight} 'r{row.Index}|words {words} |who u={row.user} |n:0.5 age:{row.age / 50:.4g}"


def table_with_label():
    frame, y = data("table")
    return frame.assign(label=y)


def text_lines(style):
    for words, label in zip(*data("texts-several" if style == "several" else "texts"), strict=True):
        if style == "tab":
            yield f"{label}\t{words}"
        else:
            yield " ".join(f"__label__{name}" for name in np.atleast_1d(label)) + f" {words}"


def rating_lines(style):
    if style == "adjacency":
        pairs = data("pairs")[0]
        for user in np.unique(pairs[:, 0]):
            yield " ".join(map(str, [user, *pairs[pairs[:, 0] == user, 1]]))
        return
    pairs, y = data("stars-text" if style == "csv" else "stars")
    if style == "csv":
        yield "user,item,rating,timestamp"
    for number, ((user, item), value) in enumerate(zip(pairs, y, strict=True)):
        yield ("," if style == "csv" else "::").join(map(str, [user, item, value, 1000 + number]))


def write_arrow(path):
    arrow = pa.Table.from_pandas(table_with_label(), preserve_index=False)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, arrow.schema) as writer:
        writer.write_table(arrow)


def lines_to(make, *args):
    return lambda path: path.write_text("".join(f"{line}\n" for line in make(*args)), encoding="utf-8")


FILES = {
    "two.svm": lines_to(libsvm_lines, "two"),
    "four.svm": lines_to(libsvm_lines, "four"),
    "numbers.svm": lines_to(libsvm_lines, "numbers"),
    "groups.svm": lines_to(libsvm_lines, "groups"),
    "two.svm.gz": lambda path: path.write_bytes(gzip.compress("\n".join(libsvm_lines("two")).encode(), mtime=0)),
    "signs.vw": lines_to(vw_lines, True),
    "numbers.vw": lines_to(vw_lines, False),
    "table.csv": lambda path: table_with_label().to_csv(path, index=False),
    "table.jsonl": lambda path: table_with_label().to_json(path, orient="records", lines=True, force_ascii=False),
    "table.parquet": lambda path: table_with_label().to_parquet(path, index=False),
    "table.arrow": write_arrow,
    "tab.txt": lines_to(text_lines, "tab"),
    "fast.txt": lines_to(text_lines, "fasttext"),
    "several.txt": lines_to(text_lines, "several"),
    "ratings.csv": lines_to(rating_lines, "csv"),
    "ratings.dat": lines_to(rating_lines, "::"),
    "adjacency.txt": lines_to(rating_lines, "adjacency"),
}


@functools.cache
def file(name):
    path = folder() / name
    FILES[name](path)
    return path


# ------------------------------------------------------------------------------------------------ what a case returns


def flat(*parts):
    """All numbers of these parts, one after the other, as float64."""
    return np.concatenate([np.asarray(as_numbers(part), np.float64).ravel() for part in parts])


def as_numbers(part):
    if sp.issparse(part):
        return flat(part.data, part.indices, part.indptr)
    if isinstance(part, list | tuple | dict):
        inner = list(part.values()) if isinstance(part, dict) else part
        return flat(*inner) if len(inner) else np.zeros(0)
    if isinstance(part, str):
        return text_number(part)
    array = np.asarray(part)
    return [as_numbers(value) for value in array.ravel().tolist()] if array.dtype.kind in "OUS" else array


def text_number(text):
    """A number for a name, such as a label: 48 bits of its hash."""
    return int.from_bytes(hashlib.sha256(str(text).encode()).digest()[:6], "big") / 2**48


def head(X, n=60):
    return X.iloc[:n] if hasattr(X, "iloc") else X[:n]


def answers(model, X):
    """What the model says of these rows, then what it has learned."""
    said = [getattr(model, name)(X) for name in METHODS if hasattr(model, name)]
    return flat(*said, learned(model))


def learned(model):
    known = [getattr(model, name) for name in ATTRIBUTES if hasattr(model, name)]
    weights = list(model.weights_.values()) if hasattr(model, "weights_") else []
    arrays = [value.toarray() if sp.issparse(value) else value for value in [*known, *weights] if value is not None]
    return [value for value in arrays if np.size(value) <= LARGEST]


def build(estimator, params, **defaults):
    """An estimator; dictionaries make hashers, functions are called now."""
    if estimator in ("LinearClassifier", "LinearRegressor") and not {"tol", "p"} & params.keys():
        defaults["solver"] = "stochastic"  # these rows are so few that "auto" would minimise exactly
    made = {name: value() if callable(value) else value for name, value in {**defaults, **params}.items()}
    if isinstance(made.get("hasher"), dict):
        made["hasher"] = st.Hasher(**made["hasher"])
    kind = getattr(st, estimator)
    return kind(**from_flat(kind, made))


# Ways to learn; each takes an estimator and a kind of data.


def fit(model, kind):
    X, *targets = data(kind)
    return answers(model.fit(X, *targets), head(X))


def weighted(model, kind):
    X, y = data(kind)
    weight = np.random.default_rng(14).uniform(0.1, 3.0, X.shape[0] if hasattr(X, "shape") else len(X))
    return answers(model.fit(X, y, sample_weight=weight), head(X))


def pieces(model, kind):
    X, *targets = data(kind)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    for start in range(0, n, n // 3 + 1):
        cut = slice(start, start + n // 3 + 1)
        model.partial_fit(X[cut], *[None if y is None else y[cut] for y in targets])
    return answers(model, head(X))


def goes_on(model, kind):
    """Fitted, then one more pass over the first rows."""
    X, *targets = data(kind)
    model.fit(X, *targets).partial_fit(head(X), *[None if y is None else y[:60] for y in targets])
    return answers(model, head(X))


def saved(model, kind, **options):
    X, *targets = data(kind)
    path = folder() / "model.steepest"
    model.fit(X, *targets).save(path, **options)
    again = st.load(path)
    return flat(answers(again, head(X)), answers(model, head(X)))


def quantized(model, kind):
    return saved(model, kind, quantize=True)


def quantized_small(model, kind):
    return saved(model, kind, quantize=True, size="14KB")


def measured(model, kind):
    """What is measured and told of a model: score, objective, evaluation, heaviest features, explanations."""
    X, *targets = data(kind)
    model.fit(X, *targets)
    found = [model.score(X, *targets)]
    if hasattr(model, "objective") and getattr(model, "hasher", None) is None:
        found.append(model.objective(X, *targets))
    if len(targets) == 1 and getattr(model, "hasher", None) is None:
        found.append(evaluation(model, st.from_arrays(X, targets[0])))
    if hasattr(model, "top_features"):
        found.append([list(map(list, best)) for best in model.top_features(5).values()])
    if hasattr(model, "explain"):
        told = model.explain(X[0] if isinstance(X, list) else head(X, 1))
        found.append([[part.name, part.value, part.contribution] for parts in told.values() for part in parts])
    return flat(*found)


# Measures that came after the recording; tests/models/test_calibrated.py compares them with scikit-learn's.
LATER_MEASURES = ("log_loss", "brier", "ece", "auc", "pr_auc")


def evaluation(model, source):
    found = model.evaluate_stream(source)
    numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
    later = ("seconds", "error", *LATER_MEASURES)
    numbers = {name: value for name, value in numbers.items() if name not in later}
    return [numbers[name] for name in sorted(numbers) if np.isfinite(numbers[name])]


def recommends(model, kind):
    X, y = data(kind)
    model.fit(X, y)
    lists = [
        model.recommend(X[:5, 0], k=4),
        model.recommend(X[:5, 0], k=4, exclude_seen=False),
        model.similar_items(X[:5, 1], k=3),
        model.similar_users(X[:5, 0], k=3),
    ]
    return flat(*[part for found in lists for part in (found.scores, found.codes, found.cold)])


def folded(model, kind):
    X, y = data(kind)
    model.fit(X, y)
    new = np.stack([np.full(8, 999), np.arange(8)], axis=1)
    model.fold_in(new, np.arange(8) % 5 + 1.0)
    return answers(model, np.concatenate([new, X[:50]]))


def told_why(model, kind):
    X, y = data(kind)
    return flat(*[list(pair) for pair in model.fit(X, y).explain(X[0, 0], X[1, 1], k=5)])


def words_inside(model, kind):
    X, y = data(kind)
    model.fit(X, y)
    model.save_vectors(folder() / "words.vec")
    near = [list(pair) for pair in model.nearest("cheap", k=5)]
    top = [list(map(list, best)) for best in model.top_features(4).values()]
    return flat(model.vector("cheap"), near, model.predict_top(head(X), k=2), top, model.score(X, y), model.words())


def from_vectors(model, kind):
    X, y = data(kind)
    path = folder() / "start.vec"
    lines = (f"{word} {k / 40:.3f} {-k / 80:.3f} 0.1 -0.2" for k, word in enumerate(WORDS[:20]))
    path.write_text("\n".join(["20 4", *lines]) + "\n", encoding="utf-8")
    return answers(model.set_params(pretrained=path).fit(X, y), head(X))


def calibrated(model, kind):
    X, y = data(kind)
    return answers(model.fit(X[:300], y[:300]).calibrate_on(X[300:], y[300:]), head(X))


def streamed(model, kind, source=None, **options):
    """Learned from a source; what was measured on it, and predictions of its rows."""
    source = scan(kind) if source is None else source
    model.fit_stream(source, **options)
    return flat(evaluation(model, source), *model.predict_stream(source), learned(model))


def cached(model, kind):
    return streamed(model, kind, scan(kind).cache(folder() / f"{kind}.cache"))


def validated(model, kind):
    most, held_out = scan(kind).holdout(0.3, seed=1)
    return streamed(model, kind, most, validation=held_out)


def limited(model, kind):
    source = scan(kind)
    return flat(streamed(model, kind, source.limit(150)), streamed(model, kind, source.sample(120, seed=2)))


def checkpointed(model, kind):
    return streamed(model, kind, checkpoint=folder() / "checkpoint")


# name of a source: (function, file, options)
SOURCES = {
    "svm": ("scan_libsvm", "two.svm", {}),
    "svm-gz": ("scan_libsvm", "two.svm.gz", dict(n_features=90)),
    "svm-four": ("scan_libsvm", "four.svm", dict(zero_based=True)),
    "svm-numbers": ("scan_libsvm", "numbers.svm", dict(zero_based=False)),
    "svm-groups": ("scan_libsvm", "groups.svm", {}),
    "vw": ("scan_vw", "signs.vw", dict(n_bits=12)),
    "vw-signed": ("scan_vw", "numbers.vw", dict(n_bits=12, signed=True, seed=3)),
    "csv": ("scan_csv", "table.csv", dict(label="label")),
    "csv-roles": (
        "scan_csv",
        "table.csv",
        dict(label="label", text="text", categorical=["user", "place"], numeric="age", weight="income"),
    ),
    "csv-numbers": ("scan_csv", "table.csv", dict(label="income", text="text", categorical="user", numeric="age")),
    "jsonl": ("scan_jsonl", "table.jsonl", dict(label="label")),
    "parquet": ("scan_parquet", "table.parquet", dict(label="label")),
    "arrow-file": ("scan_arrow", "table.arrow", dict(label="label")),
    "tab": ("scan_text", "tab.txt", {}),
    "fasttext": ("scan_text", "fast.txt", dict(style="fasttext")),
    "fasttext-several": ("scan_text", "several.txt", dict(multi_label=True)),
    "ratings-csv": ("scan_ratings", "ratings.csv", {}),
    "ratings-dat": ("scan_ratings", "ratings.dat", dict(ids="text")),
    "adjacency": ("scan_ratings", "adjacency.txt", dict(layout="adjacency")),
    "auto": ("scan", "two.svm", {}),
}


def scan(kind):
    function, name, options = SOURCES[kind]
    return getattr(st, function)(file(name), **options)


# ------------------------------------------------------------------------------------------------------------- tables
# name: (estimator, kind of data or source, parameters[, way to learn])

STOCHASTIC = ("sgd", "asgd", "adagrad", "ftrl", "coin")
BINARY_LOSSES = ("log", "hinge", "squared_hinge", "exponential", "modified_huber", "perceptron")
REAL_LOSSES = ("squared", "huber", "epsilon_insensitive", "quantile", "poisson")
BATCH = {  # solver: losses it can learn
    "gd": ("log", "hinge", "squared"),
    "closed_form": ("squared",),
    "cg": ("log", "squared", "poisson"),
    "lbfgs": ("log", "hinge", "exponential", "squared", "huber", "quantile"),
    "newton_cg": ("log", "hinge", "modified_huber", "squared", "poisson", "epsilon_insensitive"),
    "saga": ("log", "squared"),
}
H = dict(n_bits=12, ngrams=(1, 1))


def linear_of(loss):
    if loss in BINARY_LOSSES:
        return "LinearClassifier", "two"
    return "LinearRegressor", "counts" if loss == "poisson" else "numbers"


LINEAR = {
    **{f"linear/loss-{loss}": (*linear_of(loss), dict(loss=loss)) for loss in BINARY_LOSSES + REAL_LOSSES},
    **{
        f"linear/sgd-{loss}": (*linear_of(loss), dict(loss=loss, solver="sgd", alpha=1e-4))
        for loss in BINARY_LOSSES + REAL_LOSSES
    },
    **{f"linear/{solver}-four": ("LinearClassifier", "four", dict(solver=solver)) for solver in STOCHASTIC},
    **{f"linear/{solver}-numbers": ("LinearRegressor", "numbers", dict(solver=solver)) for solver in STOCHASTIC},
    **{
        f"linear/{solver}-{loss}": (*linear_of(loss), dict(loss=loss, solver=solver, alpha=1e-3, max_iter=50))
        for solver, losses in BATCH.items()
        for loss in losses
    },
    **{
        f"linear/dual_cd-{loss}": (estimator, kind, dict(loss=loss, solver="dual_cd", alpha=1e-3, max_iter=50))
        for estimator, kind, losses in (
            ("LinearClassifier", "two-60", ("log", "hinge", "squared_hinge", "modified_huber")),
            ("LinearRegressor", "numbers-60", ("squared", "huber", "epsilon_insensitive", "quantile")),
        )
        for loss in losses
    },
    "linear/auto-two": ("LinearClassifier", "two-names", dict()),
    "linear/auto-four": ("LinearClassifier", "four-names", dict()),
    "linear/auto-dense": ("LinearClassifier", "dense-two", dict()),
    "linear/auto-frame": ("LinearClassifier", "dense-frame", dict()),
    "linear/auto-dense-numbers": ("LinearRegressor", "dense-numbers", dict()),
    "linear/generator": ("LinearClassifier", "two", dict(random_state=lambda: np.random.default_rng(3))),
    # penalties
    "linear/l1": ("LinearClassifier", "two", dict(penalty="l1", alpha=1e-3)),
    "linear/l1-sgd": ("LinearClassifier", "two", dict(penalty="l1", alpha=1e-3, solver="sgd")),
    "linear/l1-adagrad": ("LinearClassifier", "two", dict(penalty="l1", alpha=1e-3, solver="adagrad")),
    "linear/l1-truncated": ("LinearClassifier", "two", dict(penalty="l1", alpha=1e-3, solver="truncated")),
    "linear/l1-truncated-set": (
        "LinearClassifier",
        "two",
        dict(penalty="l1", alpha=1e-3, solver="truncated", truncate_every=25, truncate_below=0.5),
    ),
    "linear/l1-four-sgd": ("LinearClassifier", "four", dict(penalty="l1", alpha=1e-3, solver="sgd")),
    "linear/elasticnet": ("LinearClassifier", "two", dict(penalty="elasticnet", alpha=1e-3, l1_ratio=0.4)),
    "linear/elasticnet-sgd": ("LinearRegressor", "numbers", dict(penalty="elasticnet", alpha=1e-3, solver="sgd")),
    "linear/none": ("LinearClassifier", "two", dict(penalty="none")),
    "linear/lp-1": ("LinearClassifier", "two", dict(penalty="lp", p=1.0, alpha=1e-3, average=False)),
    "linear/lp-2": ("LinearClassifier", "two", dict(penalty="lp", p=2.0, alpha=1e-3, solver="sgd")),
    "linear/lp-3": ("LinearClassifier", "two", dict(penalty="lp", p=3.0, alpha=1e-3, tol=1e-6)),
    "linear/lp-1.5": ("LinearRegressor", "numbers", dict(penalty="lp", p=1.5, alpha=1e-3, tol=1e-6)),
    "linear/l1-lbfgs": ("LinearClassifier", "two", dict(penalty="l1", alpha=2e-3, solver="lbfgs")),
    "linear/l1-gd": ("LinearRegressor", "numbers", dict(penalty="l1", alpha=2e-3, solver="gd", max_iter=60)),
    **{
        f"linear/l1-cd-{loss}": (*linear_of(loss), dict(loss=loss, penalty="l1", alpha=2e-3, solver="cd"))
        for loss in ("log", "squared_hinge", "modified_huber", "squared", "huber", "poisson")
    },
    "linear/l1-saga": ("LinearClassifier", "two", dict(penalty="l1", alpha=2e-3, solver="saga", max_iter=40)),
    "linear/elasticnet-cd": ("LinearRegressor", "numbers", dict(penalty="elasticnet", alpha=2e-3, solver="cd")),
    "linear/none-lbfgs": ("LinearRegressor", "numbers", dict(penalty="none", solver="lbfgs")),
    "linear/C": ("LinearClassifier", "two", dict(loss="hinge", C=0.5)),
    "linear/C-dual": ("LinearClassifier", "two", dict(loss="hinge", C=0.5, solver="dual_cd")),
    # solver="auto" with a small tol
    "linear/tol-log": ("LinearClassifier", "two", dict(loss="log", tol=1e-6, alpha=1e-4)),
    "linear/tol-hinge": ("LinearClassifier", "two", dict(loss="hinge", tol=1e-6, alpha=1e-3)),
    "linear/tol-l1": ("LinearClassifier", "two", dict(tol=1e-6, alpha=1e-3, penalty="l1")),
    "linear/tol-squared": ("LinearRegressor", "numbers", dict(tol=1e-6, alpha=1e-4)),
    "linear/tol-large": ("LinearClassifier", "two", dict(tol=1e-2, epochs=20)),
    **{
        f"linear/tol-on-{what}": ("LinearClassifier", "two", dict(solver="lbfgs", tol=1e-3, tol_on=what, alpha=1e-4))
        for what in ("auto", "gradient", "objective", "parameters")
    },
    # schedules, averages, batches, order
    **{
        f"linear/schedule-{name}": ("LinearClassifier", "two", dict(schedule=name, alpha=1e-4, solver="sgd"))
        for name in ("auto", "constant", "invsqrt", "bottou", "optimal", "adaptive")
    },
    "linear/schedule-adaptive-long": ("LinearClassifier", "two", dict(schedule="adaptive", eta0=5.0, epochs=15)),
    "linear/schedule-gd": ("LinearRegressor", "numbers", dict(solver="gd", schedule="constant", eta0=0.5, max_iter=30)),
    "linear/eta0": ("LinearClassifier", "two", dict(eta0=0.3)),
    **{
        f"linear/average-{wish}": ("LinearClassifier", "four", dict(average=wish))
        for wish in (True, False, "uniform", "eta", "poly")
    },
    "linear/averaged-perceptron": ("LinearClassifier", "two", dict(loss="perceptron", average=True)),
    "linear/batch-size": ("LinearClassifier", "two", dict(batch_size=16)),
    "linear/batch-size-ftrl": ("LinearClassifier", "two", dict(batch_size=7, solver="ftrl")),
    **{
        f"linear/shuffle-{how}": ("LinearClassifier", "two", dict(shuffle=how))
        for how in ("blocks", "rows", "once", "never")
    },
    "linear/no-intercept": ("LinearClassifier", "two", dict(fit_intercept=False)),
    "linear/float64": ("LinearClassifier", "two", dict(dtype="float64")),
    "linear/float64-lbfgs": ("LinearClassifier", "two", dict(dtype="float64", solver="lbfgs", alpha=1e-3)),
    "linear/epsilon": ("LinearRegressor", "numbers", dict(loss="huber", epsilon=0.5)),
    "linear/quantile-0.9": ("LinearRegressor", "numbers", dict(loss="quantile", quantile=0.9)),
    # stopping
    "linear/early-stopping": ("LinearClassifier", "two", dict(early_stopping=True, epochs=20)),
    "linear/early-stopping-refit": (
        "LinearClassifier",
        "two",
        dict(early_stopping=True, refit=True, epochs=20, patience=1, validation_fraction=0.3),
    ),
    "linear/early-stopping-numbers": ("LinearRegressor", "numbers", dict(early_stopping=True, epochs=20)),
    "linear/early-stopping-lbfgs": ("LinearClassifier", "two", dict(early_stopping=True, solver="lbfgs", alpha=1e-6)),
    # several classes and labels
    "linear/softmax": ("LinearClassifier", "four", dict(multi_class="softmax")),
    "linear/softmax-sgd": ("LinearClassifier", "four", dict(multi_class="softmax", solver="sgd", alpha=1e-4)),
    "linear/softmax-ftrl": ("LinearClassifier", "four", dict(multi_class="softmax", solver="ftrl")),
    "linear/softmax-lbfgs": ("LinearClassifier", "four", dict(multi_class="softmax", solver="lbfgs", alpha=1e-3)),
    "linear/softmax-newton": ("LinearClassifier", "four", dict(multi_class="softmax", solver="newton_cg", alpha=1e-3)),
    "linear/hashed": ("LinearClassifier", "four", dict(multi_class="hashed", table_bits=10)),
    "linear/hashed-two": ("LinearClassifier", "two", dict(multi_class="hashed", table_bits=10)),
    "linear/hashed-ftrl": ("LinearClassifier", "four", dict(multi_class="hashed", table_bits=8, solver="ftrl")),
    "linear/hashed-average": ("LinearClassifier", "twenty", dict(multi_class="hashed", table_bits=12, average=True)),
    "linear/ovr-lbfgs": ("LinearClassifier", "four", dict(solver="lbfgs", alpha=1e-3)),
    "linear/ovr-dual": ("LinearClassifier", "four", dict(solver="dual_cd", loss="hinge", alpha=1e-3)),
    "linear/ovr-jobs": ("LinearClassifier", "twenty", dict(n_jobs=2)),
    "linear/dense-four": ("LinearClassifier", "dense-four", dict(multi_class="softmax")),
    "linear/labels": ("LinearClassifier", "labels", dict()),
    "linear/labels-log-jobs": ("LinearClassifier", "labels", dict(loss="log", n_jobs=2)),
    "linear/labels-hashed": ("LinearClassifier", "labels", dict(multi_class="hashed", table_bits=9)),
    "linear/labels-lbfgs": ("LinearClassifier", "labels", dict(solver="lbfgs", alpha=1e-3)),
    # weights of rows and classes
    "linear/balanced": ("LinearClassifier", "two", dict(class_weight="balanced")),
    "linear/class-weight": ("LinearClassifier", "four-names", dict(class_weight=lambda: {"a": 3.0, "c": 0.5})),
    "linear/balanced-pieces": ("LinearClassifier", "two", dict(class_weight="balanced"), pieces),
    "linear/weights": ("LinearClassifier", "two", dict(), weighted),
    "linear/weights-balanced-lbfgs": (
        "LinearClassifier",
        "two",
        dict(class_weight="balanced", solver="lbfgs", alpha=1e-3),
        weighted,
    ),
    "linear/weights-numbers": ("LinearRegressor", "numbers", dict(solver="sgd"), weighted),
    "linear/weights-cd": ("LinearRegressor", "numbers", dict(solver="cd", penalty="l1", alpha=1e-3), weighted),
    "linear/weights-dual": ("LinearClassifier", "two-60", dict(solver="dual_cd", loss="hinge", alpha=1e-3), weighted),
    "linear/weights-replicas": ("LinearClassifier", "two", dict(parallel="replicas", sync_every=64), weighted),
    # in pieces, from files
    "linear/pieces": ("LinearClassifier", "four", dict(), pieces),
    "linear/pieces-ftrl": ("LinearClassifier", "two-names", dict(solver="ftrl", penalty="l1", alpha=1e-4), pieces),
    "linear/pieces-batch": ("LinearRegressor", "numbers", dict(batch_size=50), pieces),
    "linear/pieces-labels": ("LinearClassifier", "labels", dict(), pieces),
    "linear/goes-on": ("LinearClassifier", "two", dict(), goes_on),
    "linear/goes-on-numbers": ("LinearRegressor", "numbers", dict(solver="adagrad"), goes_on),
    "linear/saved": ("LinearClassifier", "four-names", dict(), saved),
    "linear/saved-numbers": ("LinearRegressor", "numbers", dict(loss="huber"), saved),
    "linear/saved-lbfgs": ("LinearClassifier", "two", dict(solver="lbfgs", alpha=1e-3), saved),
    "linear/saved-vote": ("LinearClassifier", "two", dict(parallel="mixing", n_shards=3, vote=True), saved),
    "linear/measured": ("LinearClassifier", "two", dict(alpha=1e-3), measured),
    "linear/measured-four": ("LinearClassifier", "four-names", dict(multi_class="softmax"), measured),
    "linear/measured-hashed": ("LinearClassifier", "four", dict(multi_class="hashed", table_bits=10), measured),
    "linear/measured-labels": ("LinearClassifier", "labels", dict(), measured),
    "linear/measured-numbers": ("LinearRegressor", "numbers", dict(penalty="l1", alpha=1e-3), measured),
}

MANY = dict(parallel="mixing", n_shards=4)
PARALLEL = {
    **{
        f"parallel/{name}-jobs-{n_jobs}": ("LinearClassifier", "two-3000", dict(n_jobs=n_jobs, **params))
        for n_jobs in (1, 2)
        for name, params in {
            "serial": dict(),
            "auto": dict(parallel="auto"),
            "replicas": dict(parallel="replicas", sync_every=256),
            "mixing": MANY,
            "lbfgs": dict(solver="lbfgs", alpha=1e-4),
        }.items()
    },
    "parallel/replicas-3": ("LinearClassifier", "four", dict(parallel="replicas", n_replicas=3, sync_every=50)),
    "parallel/replicas-sgd": ("LinearRegressor", "numbers", dict(parallel="replicas", sync_every=40, solver="sgd")),
    "parallel/replicas-ftrl": (
        "LinearClassifier",
        "two",
        dict(parallel="replicas", sync_every=64, solver="ftrl", penalty="l1", alpha=1e-4, n_jobs=2),
    ),
    "parallel/replicas-softmax": (
        "LinearClassifier",
        "four",
        dict(parallel="replicas", multi_class="softmax", sync_every=64),
    ),
    "parallel/replicas-hashed": (
        "LinearClassifier",
        "four",
        dict(parallel="replicas", multi_class="hashed", table_bits=9, sync_every=64),
    ),
    **{
        f"parallel/send-{send}": ("LinearClassifier", "two", MANY | dict(send=send))
        for send in ("full", "delta", "topk", "float16")
    },
    **{f"parallel/mix-{mix}": ("LinearRegressor", "numbers", MANY | dict(mix=mix)) for mix in ("evidence", "uniform")},
    **{f"parallel/vote-{vote}": ("LinearClassifier", "four", MANY | dict(vote=vote)) for vote in (True, "ensemble")},
    **{f"parallel/rounds-{n}": ("LinearClassifier", "two", MANY | dict(rounds=n, epochs=4)) for n in (1, 2, 12)},
    "parallel/mixing-sgd": ("LinearClassifier", "two", MANY | dict(solver="sgd", alpha=1e-3, n_jobs=2)),
    "parallel/mixing-l1": ("LinearClassifier", "two", MANY | dict(solver="sgd", penalty="l1", alpha=1e-3)),
    "parallel/mixing-ftrl": ("LinearClassifier", "two", MANY | dict(solver="ftrl", mix="uniform")),
    "parallel/mixing-stopping": ("LinearClassifier", "two", MANY | dict(early_stopping=True, epochs=15)),
    "parallel/mixing-one": ("LinearClassifier", "two", dict(parallel="mixing", n_shards=1)),
}

RANKER = {
    **{
        f"ranker/loss-{loss}": ("LinearRanker", "groups", dict(loss=loss)) for loss in ("log", "hinge", "squared_hinge")
    },
    **{f"ranker/{solver}": ("LinearRanker", "groups", dict(solver=solver, epochs=2)) for solver in STOCHASTIC},
    **{
        f"ranker/{solver}": ("LinearRanker", "groups", dict(solver=solver, alpha=1e-3, pairs=3, max_iter=30))
        for solver in ("lbfgs", "newton_cg", "dual_cd", "saga", "gd", "cg")
    },
    "ranker/all-pairs": ("LinearRanker", "groups", dict(pairs="all")),
    "ranker/cd": ("LinearRanker", "groups", dict(solver="cd", penalty="l1", alpha=1e-3, pairs=3)),
    "ranker/l1": ("LinearRanker", "groups", dict(penalty="l1", alpha=1e-3, pairs=2)),
    "ranker/early-stopping": ("LinearRanker", "groups", dict(early_stopping=True, epochs=10)),
    "ranker/replicas": ("LinearRanker", "groups", dict(parallel="replicas", n_jobs=2, pairs=40, eta0=0.1)),
    "ranker/mixing": ("LinearRanker", "groups", dict(parallel="mixing")),
    "ranker/pieces": ("LinearRanker", "groups", dict(), pieces),
    "ranker/saved": ("LinearRanker", "groups", dict(dtype="float64"), saved),
    "ranker/measured": ("LinearRanker", "groups", dict(), measured),
    "ranker/stream": ("LinearRanker", "svm-groups", dict(), streamed),
}

HASHED = {
    **{
        f"hashed/{name}": ("LinearClassifier", "texts", dict(hasher=H | options))
        for name, options in {
            "plain": dict(),
            "ngrams": dict(ngrams=(1, 3)),
            "char-ngrams": dict(char_ngrams=(2, 4)),
            "only-chars": dict(ngrams=None, char_ngrams=(1, 3)),
            "copies": dict(copies=3),
            "unsigned": dict(signed=False),
            "seed": dict(seed=99, n_bits=10),
            "names": dict(names=100),
            "case": dict(lowercase=False),
            "stop-words": dict(stop_words=["the", "a", "of"], min_token=2),
            "no-norm": dict(norm=None),
            **{f"weighting-{how}": dict(weighting=how) for how in ("auto", "count", "binary", "log", "tfidf")},
        }.items()
    },
    "hashed/table": ("LinearClassifier", "table", dict(hasher=H)),
    "hashed/dicts": ("LinearClassifier", "dicts", dict(hasher=H)),
    "hashed/arrow": ("LinearClassifier", "arrow", dict(hasher=H)),
    "hashed/cross": ("LinearClassifier", "table", dict(hasher=H | dict(cross=[("text", "user"), ("user", "place")]))),
    "hashed/cross-copies": ("LinearClassifier", "dicts", dict(hasher=H | dict(cross=[("text", "user")], copies=2))),
    "hashed/roles": (
        "LinearClassifier",
        "table",
        dict(hasher=H | dict(text="text", categorical=["user"], numeric=["age"])),
    ),
    "hashed/scaled": ("LinearRegressor", "table-numbers", dict(hasher=H)),
    "hashed/numbers": ("LinearRegressor", "table-numbers", dict(hasher=H, solver="lbfgs", alpha=1e-3)),
    "hashed/budget": ("LinearClassifier", "texts", dict(memory_budget="64MB", hasher=dict(names=50))),
    "hashed/shared": ("LinearClassifier", "texts", dict(hasher=H, multi_class="hashed")),
    "hashed/lbfgs": ("LinearClassifier", "texts", dict(hasher=dict(n_bits=10), solver="lbfgs", alpha=1e-3)),
    "hashed/pieces": ("LinearClassifier", "texts", dict(hasher=H), pieces),
    "hashed/saved": ("LinearClassifier", "texts", dict(hasher=H | dict(names=100, ngrams=(1, 2))), saved),
    "hashed/measured": ("LinearClassifier", "texts-two", dict(hasher=H | dict(names=100)), measured),
    "hashed/network": ("NetworkClassifier", "texts", dict(hasher=H, hidden=(4,), epochs=3)),
    "hashed/k-means": ("KMeans", "texts", dict(hasher=dict(n_bits=10), n_clusters=3)),
    "hashed/rbf": ("RBFClassifier", "texts-two", dict(hasher=dict(n_bits=10), n_units=8)),
}

STREAMS = {
    **{
        f"stream/{kind}": ("LinearClassifier", kind, dict(), streamed)
        for kind in ("svm", "svm-gz", "svm-four", "auto", "vw")
    },
    **{
        f"stream/{kind}": ("LinearClassifier", kind, dict(hasher=H), streamed)
        for kind in ("csv", "csv-roles", "jsonl", "parquet", "arrow-file", "tab", "fasttext", "fasttext-several")
    },
    "stream/svm-numbers": ("LinearRegressor", "svm-numbers", dict(), streamed),
    "stream/vw-signed": ("LinearRegressor", "vw-signed", dict(loss="huber"), streamed),
    "stream/csv-numbers": ("LinearRegressor", "csv-numbers", dict(hasher=H, loss="huber", epochs=2), streamed),
    "stream/csv-cross": (
        "LinearClassifier",
        "csv",
        dict(hasher=H | dict(cross=[("text", "user")], copies=2, char_ngrams=(3, 3), weighting="log")),
        streamed,
    ),
    "stream/tab-ngrams": (
        "LinearClassifier",
        "tab",
        dict(hasher=H | dict(ngrams=(1, 2), names=50, weighting="tfidf"), multi_class="softmax"),
        streamed,
    ),
    "stream/lbfgs": ("LinearClassifier", "svm", dict(solver="lbfgs", alpha=1e-3), streamed),
    "stream/dual": ("LinearClassifier", "svm", dict(solver="dual_cd", loss="hinge", alpha=1e-3), streamed),
    "stream/replicas": ("LinearClassifier", "svm", dict(parallel="replicas", sync_every=64, n_jobs=2), streamed),
    "stream/mixing": ("LinearClassifier", "svm", MANY, streamed),
    "stream/early-stopping": (
        "LinearClassifier",
        "svm-four",
        dict(early_stopping=True, refit=True, epochs=10),
        streamed,
    ),
    "stream/cached": ("LinearClassifier", "svm", dict(), cached),
    "stream/cached-csv": ("LinearClassifier", "csv", dict(hasher=H), cached),
    "stream/validated": ("LinearClassifier", "svm", dict(early_stopping=True, epochs=10), validated),
    "stream/limited": ("LinearClassifier", "svm", dict(), limited),
    "stream/checkpoint": ("LinearClassifier", "svm", dict(), checkpointed),
    "stream/network": ("NetworkClassifier", "svm", dict(hidden=(4,), epochs=2), streamed),
    "stream/rbf": ("RBFRegressor", "svm-numbers", dict(n_units=6), streamed),
    "stream/text": ("TextClassifier", "tab", dict(n_bits=12, epochs=3), streamed),
    "stream/text-several": ("TextClassifier", "fasttext-several", dict(n_bits=12, epochs=3, loss="ova"), streamed),
    **{
        f"stream/{kind}": ("MatrixFactorization", kind, dict(n_factors=4, epochs=5, loss=loss), streamed)
        for kind, loss in {"ratings-csv": "squared", "ratings-dat": "absolute", "adjacency": "implicit"}.items()
    },
}

F = dict(n_factors=4, epochs=6)
FACTORS = {
    **{
        f"factors/{solver}-{loss}": ("MatrixFactorization", kind, F | dict(loss=loss, solver=solver))
        for loss, kind, solvers in (
            ("squared", "stars", ("sgd", "als", "lbfgs")),
            ("absolute", "stars", ("sgd",)),
            ("logistic", "signs", ("sgd", "lbfgs")),
            ("hinge", "signs", ("sgd",)),
            ("bpr", "pairs", ("sgd",)),
            ("implicit", "plays", ("sgd", "als")),
            ("kl", "plays", ("als",)),
        )
        for solver in solvers
    },
    **{
        f"factors/{loss}-{weighting}": ("MatrixFactorization", kind, F | dict(loss=loss, weighting=weighting))
        for loss, kind in (("squared", "stars"), ("implicit", "pairs"))
        for weighting in ("mixed", "count", "none")
    },
    "factors/alpha": ("MatrixFactorization", "stars", F | dict(alpha=0.2, eta0=0.05)),
    "factors/l1": ("MatrixFactorization", "stars", F | dict(l1=0.01)),
    "factors/l1-kl": ("MatrixFactorization", "plays", F | dict(loss="kl", l1=0.1)),
    "factors/no-biases": ("MatrixFactorization", "stars", F | dict(biases=False, clip=False)),
    "factors/nonnegative": ("MatrixFactorization", "stars", F | dict(nonnegative=True)),
    "factors/nonnegative-als": ("MatrixFactorization", "stars", F | dict(nonnegative=True, solver="als")),
    "factors/confidence": ("MatrixFactorization", "plays", F | dict(loss="implicit", confidence=2.0)),
    "factors/bold": ("MatrixFactorization", "stars", F | dict(schedule="bold")),
    "factors/blocks": ("MatrixFactorization", "stars", F | dict(n_blocks=3, n_jobs=2)),
    "factors/als-jobs": ("MatrixFactorization", "stars", F | dict(solver="als", n_jobs=2)),
    "factors/early-stopping": ("MatrixFactorization", "stars", F | dict(early_stopping=True, epochs=20, patience=1)),
    "factors/float16": ("MatrixFactorization", "stars", F | dict(dtype="float16"), saved),
    "factors/text-ids": ("MatrixFactorization", "stars-text", F, saved),
    "factors/weights": ("MatrixFactorization", "stars", F, weighted),
    "factors/weights-als": ("MatrixFactorization", "stars", F | dict(solver="als"), weighted),
    "factors/pieces": ("MatrixFactorization", "stars", F, pieces),
    "factors/pieces-als": ("MatrixFactorization", "stars", F | dict(solver="als"), pieces),
    "factors/goes-on": ("MatrixFactorization", "stars", F, goes_on),
    "factors/recommends": ("MatrixFactorization", "stars", F, recommends),
    "factors/recommends-implicit": ("MatrixFactorization", "plays", F | dict(loss="implicit"), recommends),
    "factors/folded": ("MatrixFactorization", "stars", F | dict(solver="als"), folded),
    "factors/told-why": ("MatrixFactorization", "stars", F | dict(solver="als"), told_why),
}

CLUSTERS = {
    **{
        f"k-means/{solver}-{init}": ("KMeans", "blobs", dict(n_clusters=6, solver=solver, init=init))
        for solver in ("minibatch", "lloyd")
        for init in ("k-means++", "k-means||", "random")
    },
    "k-means/sparse": ("KMeans", "sparse-blobs", dict(n_clusters=5)),
    "k-means/sparse-lloyd": ("KMeans", "sparse-blobs", dict(n_clusters=5, solver="lloyd", restarts=2, n_jobs=2)),
    "k-means/given": ("KMeans", "blobs", dict(n_clusters=4, init=lambda: blobs()[0][:4], solver="lloyd")),
    "k-means/given-minibatch": ("KMeans", "blobs", dict(n_clusters=4, init=lambda: blobs()[0][:4])),
    "k-means/batches": (
        "KMeans",
        "blobs",
        dict(n_clusters=6, batch_size=64, epochs=4, tol=None, init_size=200, shuffle="rows", restarts=3),
    ),
    "k-means/jobs": ("KMeans", "blobs", dict(n_clusters=6, n_jobs=2, shuffle="never")),
    "k-means/weights": ("KMeans", "blobs", dict(n_clusters=6), weighted),
    "k-means/weights-lloyd": ("KMeans", "blobs", dict(n_clusters=6, solver="lloyd"), weighted),
    "k-means/pieces": ("KMeans", "blobs", dict(n_clusters=6, batch_size=100), pieces),
    "k-means/goes-on": ("KMeans", "blobs", dict(n_clusters=6, batch_size=100), goes_on),
    "k-means/saved": ("KMeans", "blobs", dict(n_clusters=6), saved),
    "k-means/measured": ("KMeans", "sparse-blobs", dict(n_clusters=4, batch_size=128), measured),
    "k-means/stream": ("KMeans", "svm", dict(n_clusters=4, batch_size=128), streamed),
}


def graph():
    made = st.Graph().add("h", 4, "tanh", inputs="x").add("k", 3, "relu", inputs=["x", "h"])
    return made.connect("k", "y").connect("x", "y")


N = dict(hidden=(5,), epochs=4)
NETWORKS = {
    **{
        f"network/loss-{loss}": ("NetworkClassifier", "ring", N | dict(loss=loss))
        for loss in ("softmax", *BINARY_LOSSES)
    },
    **{
        f"network/loss-{loss}": ("NetworkRegressor", "counts" if loss == "poisson" else "curve", N | dict(loss=loss))
        for loss in REAL_LOSSES
    },
    **{
        f"network/link-{link}": ("NetworkClassifier", "ring", N | dict(link=link))
        for link in ("tanh", "sigmoid", "relu", "sign", "identity")
    },
    **{
        f"network/solver-{solver}": ("NetworkClassifier", "two", N | dict(solver=solver))
        for solver in ("adam", "sgd", "momentum", "adagrad")
    },
    **{
        f"network/schedule-{name}": ("NetworkRegressor", "curve", N | dict(schedule=name))
        for name in ("auto", "constant", "linear", "invsqrt", "adaptive")
    },
    **{
        f"network/init-{name}": ("NetworkClassifier", "ring", N | dict(init=name))
        for name in ("auto", "glorot", "he", "uniform", "zero")
    },
    **{
        f"network/penalty-{name}-{solver}": (
            "NetworkClassifier",
            "two",
            N | dict(penalty=name, alpha=1e-3, solver=solver, **(dict(l1_ratio=0.3) if name == "elasticnet" else {})),
        )
        for name in ("none", "l2", "l1", "elasticnet")
        for solver in ("adam", "momentum")
    },
    "network/adaptive-long": ("NetworkRegressor", "curve", N | dict(schedule="adaptive", eta0=0.1, epochs=20)),
    "network/deep": ("NetworkClassifier", "ring", N | dict(hidden=(6, 4))),
    "network/deep-sparse": ("NetworkClassifier", "four", N | dict(hidden=(6, 4))),
    "network/hidden-auto": ("NetworkClassifier", "ring", N | dict(hidden="auto")),
    "network/hidden-number": ("NetworkClassifier", "ring", N | dict(hidden=3)),
    "network/graph": ("NetworkClassifier", "ring", N | dict(hidden=graph)),
    "network/graph-saved": ("NetworkRegressor", "curve", N | dict(hidden=graph), saved),
    "network/two": ("NetworkClassifier", "ring-two", N),
    "network/labels": ("NetworkClassifier", "labels", N),
    "network/batch-size": ("NetworkClassifier", "ring", N | dict(batch_size=64, n_jobs=2)),
    "network/all-rows": ("NetworkRegressor", "curve", N | dict(batch_size=1000, eta0=0.05)),
    "network/eta0": ("NetworkClassifier", "ring", N | dict(solver="momentum", momentum=0.5, eta0=0.1)),
    "network/restarts": ("NetworkClassifier", "ring", N | dict(restarts=3)),
    "network/restarts-all": ("NetworkRegressor", "curve", N | dict(restarts=2, validation_fraction=0)),
    "network/early-stopping": ("NetworkClassifier", "ring", N | dict(early_stopping=True, epochs=12)),
    "network/tol": ("NetworkClassifier", "ring", N | dict(tol=0.05, epochs=12)),
    "network/no-intercept": ("NetworkClassifier", "ring", N | dict(fit_intercept=False)),
    "network/balanced": ("NetworkClassifier", "ring", N | dict(class_weight="balanced")),
    "network/class-weight": ("NetworkClassifier", "ring", N | dict(class_weight=lambda: {0: 2.0, 1: 0.5})),
    "network/shuffle": ("NetworkClassifier", "ring", N | dict(shuffle="never")),
    "network/float64": ("NetworkClassifier", "ring", N | dict(dtype="float64")),
    "network/epsilon": ("NetworkRegressor", "curve", N | dict(loss="huber", epsilon=0.5)),
    "network/quantile": ("NetworkRegressor", "curve", N | dict(loss="quantile", quantile=0.9)),
    "network/weights": ("NetworkClassifier", "ring", N, weighted),
    "network/pieces": ("NetworkClassifier", "ring", N | dict(batch_size=32), pieces),
    "network/goes-on": ("NetworkRegressor", "curve", N, goes_on),
    "network/saved": ("NetworkClassifier", "four-names", N, saved),
    "network/measured": ("NetworkClassifier", "two", N, measured),
}

FM = {
    "fm/two": ("FMClassifier", "two", dict(n_factors=4)),
    "fm/four": ("FMClassifier", "four-names", dict(n_factors=4, loss="hinge", class_weight="balanced")),
    "fm/numbers": ("FMRegressor", "curve", dict(n_factors=4, loss="huber")),
    "fm/fields": ("FMClassifier", "table", dict(n_factors=4, fields=True, hasher=dict(n_bits=14))),
    "fm/stream": ("FMRegressor", "svm-numbers", dict(n_factors=4, normalise=True), streamed),
    "fm/saved": ("FMClassifier", "four-names", dict(n_factors=4), saved),
}

RADIAL = {
    **{
        f"rbf/{init}-{votes}": ("RBFClassifier", "ring-80", dict(n_units=10, init=init, votes=votes, epochs=3))
        for init, votes in (
            ("k-means", "closed_form"),
            ("k-means", "backprop"),
            ("sample", "closed_form"),
            ("sample", "backprop"),
            ("sample", "fixed"),
            ("all", "closed_form"),
            ("all", "fixed"),
        )
    },
    "rbf/all-backprop": ("RBFClassifier", "ring", dict(init="all", votes="backprop", early_stopping=True, epochs=3)),
    **{
        f"rbf/numbers-{init}-{votes}": ("RBFRegressor", "curve", dict(n_units=10, init=init, votes=votes, epochs=3))
        for init, votes in (("k-means", "closed_form"), ("sample", "backprop"), ("all", "fixed"))
    },
    **{
        f"rbf/solver-{solver}": ("RBFClassifier", "ring", dict(n_units=8, votes="backprop", epochs=3, solver=solver))
        for solver in ("sgd", "momentum", "adagrad")
    },
    **{
        f"rbf/schedule-{name}": ("RBFRegressor", "curve", dict(n_units=8, votes="backprop", epochs=3, schedule=name))
        for name in ("constant", "invsqrt", "adaptive")
    },
    "rbf/gamma": ("RBFClassifier", "ring-two", dict(n_units=10, gamma=3.0, alpha=1e-3)),
    "rbf/gamma-backprop": ("RBFRegressor", "curve", dict(n_units=8, gamma=0.5, votes="backprop", eta0=0.02, epochs=3)),
    "rbf/sparse": ("RBFClassifier", "sparse-ring", dict(n_units=10)),
    "rbf/balanced": ("RBFClassifier", "ring", dict(n_units=10, class_weight="balanced")),
    "rbf/jobs": ("RBFClassifier", "ring", dict(n_units=10, n_jobs=2, shuffle="blocks", votes="backprop", epochs=3)),
    "rbf/weights": ("RBFRegressor", "curve", dict(n_units=10), weighted),
    "rbf/pieces": ("RBFClassifier", "ring", dict(n_units=10), pieces),
    "rbf/saved": ("RBFClassifier", "ring", dict(n_units=10), saved),
    "rbf/saved-backprop": ("RBFRegressor", "curve", dict(n_units=10, votes="backprop", epochs=3), saved),
    "rbf/measured": ("RBFClassifier", "ring", dict(n_units=10), measured),
}

T = dict(n_bits=12, epochs=4, dim=8)
TEXTS = {
    **{
        f"text/loss-{loss}": ("TextClassifier", "texts", T | dict(loss=loss)) for loss in ("softmax", "ova", "ns", "hs")
    },
    **{
        f"text/many-{loss}": ("TextClassifier", "texts-40", T | dict(loss=loss, dim="auto", epochs=2))
        for loss in ("softmax", "ova", "ns", "hs")
    },
    **{
        f"text/several-{loss}": ("TextClassifier", "texts-several", T | dict(loss=loss))
        for loss in ("softmax", "ova", "ns", "hs")
    },
    "text/auto": ("TextClassifier", "texts", dict(n_bits=12)),
    "text/two": ("TextClassifier", "texts-two", T),
    "text/words": ("TextClassifier", "texts", T | dict(ngrams=(1, 1), lowercase=False)),
    "text/chars": ("TextClassifier", "texts", T | dict(ngrams=None, char_ngrams=(2, 4))),
    "text/both": ("TextClassifier", "texts", T | dict(ngrams=(1, 3), char_ngrams=(3, 3), names=0)),
    "text/eta0": ("TextClassifier", "texts", T | dict(eta0=0.1, schedule="invsqrt")),
    "text/linear": ("TextClassifier", "texts", T | dict(schedule="linear")),
    "text/negatives": ("TextClassifier", "texts-40", T | dict(loss="ns", negatives=2, epochs=2)),
    "text/calibrate": ("TextClassifier", "texts", T | dict(calibrate=0.2)),
    "text/calibrated": ("TextClassifier", "texts", T, calibrated),
    **{
        f"text/shuffle-{how}": ("TextClassifier", "texts", T | dict(shuffle=how)) for how in ("blocks", "once", "never")
    },
    **{f"text/replicas-jobs-{n}": ("TextClassifier", "texts", T | dict(parallel="replicas", n_jobs=n)) for n in (1, 2)},
    "text/replicas-3": ("TextClassifier", "texts", T | dict(parallel="replicas", n_replicas=3, sync_every=5)),
    "text/serial": ("TextClassifier", "texts", T | dict(parallel="serial")),
    "text/table": ("TextClassifier", "table", T),
    "text/dicts": ("TextClassifier", "dicts", T | dict(loss="ova")),
    "text/weights": ("TextClassifier", "texts", T, weighted),
    "text/pieces": ("TextClassifier", "texts", T, pieces),
    "text/goes-on": ("TextClassifier", "texts", T | dict(loss="hs"), goes_on),
    "text/saved": ("TextClassifier", "texts", T, saved),
    "text/saved-hs": ("TextClassifier", "texts-40", T | dict(loss="hs", epochs=2), saved),
    "text/quantized": ("TextClassifier", "texts", T, quantized),
    "text/quantized-small": ("TextClassifier", "texts", T, quantized_small),
    "text/words-inside": ("TextClassifier", "texts", T, words_inside),
    "text/from-vectors": ("TextClassifier", "texts", T | dict(dim=4), from_vectors),
}

HASHERS = {  # name: (kind of data, parameters)
    "plain": ("texts", dict()),
    "default-bits": ("texts", dict(n_bits=22)),
    "ngrams": ("texts", dict(ngrams=(2, 3))),
    "chars": ("texts", dict(char_ngrams=(1, 4), signed=False)),
    "copies": ("texts", dict(copies=4, seed=7)),
    "tfidf": ("texts", dict(weighting="tfidf")),
    "log": ("texts", dict(weighting="log", norm=None)),
    "binary": ("texts", dict(weighting="binary", stop_words=["the"], min_token=3)),
    "table": ("table", dict()),
    "dicts": ("dicts", dict(names=50)),
    "arrow": ("arrow", dict(lowercase=False)),
    "cross": ("table", dict(cross=[("text", "user"), ("user", "place")])),
    "scaled": ("table", dict()),
    "roles": ("dicts", dict(text="text", numeric=["age", "income"], n_jobs=1)),
}


# --------------------------------------------------------------------------------------- cases with code of their own


def hashed_rows(kind, params):
    hasher = st.Hasher(**{**H, **params})
    X = data(kind)[0]
    fresh = [] if hasher.weighting == "tfidf" else [hasher.transform(X)]
    return flat(*fresh, hasher.fit(X).transform(X), [hasher.bucket("cheap"), hasher.sign("cheap")])


def hasher_in_pieces():
    hasher, (X, _) = st.Hasher(names=50, weighting="tfidf", **H), data("texts")
    for start in (0, 150, 300):
        hasher.partial_fit(X[start : start + 150])
    again = st.Hasher.from_state(*hasher.state())
    named = sorted(name for names in hasher.names_of(range(4096)) for name in names)
    return flat(again.transform(X), hasher.transform(X), named)


def matrix_of_ratings(kind, params):
    model = build("MatrixFactorization", F | params, random_state=0).fit(data(kind)[0])
    pairs = [(u, i) for u in range(10) for i in range(6)]
    return flat(model.predict(pairs), learned(model))


def frame_of_ratings():
    pairs, y = data("stars-text")
    frame = pd.DataFrame({"user": pairs[:, 0], "item": pairs[:, 1], "rating": y})
    return flat(build("MatrixFactorization", F, random_state=0).fit(frame).predict(pairs[:50]))


def cross_validated(estimator, kind, params, **options):
    X, y = data(kind)
    found = st.cross_validate(build(estimator, params), X, y, folds=3, **options)
    return flat(*[found[name] for name in found.metrics], [fold["rows"] for fold in found.folds])


def tuned(estimator, kind, params, **options):
    X, y = data(kind)
    found = st.tune(build(estimator, params), X, y, trials=6, random_state=1, **options)
    trials = [[t.number, t.rows, t.score, [t.changes[name] for name in sorted(t.changes)]] for t in found.trials]
    return flat(answers(found.best_estimator, head(X)), found.best.number, *trials)


def along_path(estimator, kind, params, **options):
    X, y = data(kind)
    found = st.regularization_path(build(estimator, params), X, y, n_alphas=5, **options)
    columns = [found.column(name) for name in ("alpha", "nonzeros", "train_loss", "objective", "held_out_loss")]
    return flat(*columns, *[found.coef(k) for k in range(5)], *[place.bias for place in found.places])


def first_points():
    """Of a race, the first run of each solver: the clock decides only how many follow."""
    X, y = data("two")
    found = st.race(
        st.LinearClassifier("log", alpha=1e-2), X, y, solvers=["sgd", "asgd", "lbfgs", "saga"], seconds=1e-9
    )
    first = [racer.points[0] for racer in found.racers]
    return flat(*[[point.effort, point.objective, point.test_loss, point.test_error] for point in first])


def sparse_and_back():
    X, y = data("two")
    model = st.LinearClassifier(penalty="l1", alpha=1e-3, solver="ftrl", random_state=0).fit(X, y).sparsify()
    narrow = model.decision_function(head(X))
    return flat(narrow, model.densify().decision_function(head(X)), model.coef_)


def new_classes_in_pieces():
    X, y = data("four-names")
    model = st.LinearClassifier(random_state=0)
    model.partial_fit(X[:200], y[:200], classes=["a", "b", "c", "d"]).partial_fit(X[200:], y[200:])
    return answers(model, head(X))


def proba_of_a_stream():
    model = st.LinearClassifier(solver="stochastic", random_state=0).fit_stream(scan("svm-four"))
    return flat(*model.predict_stream(scan("svm-four"), proba=True))


def shards_of_a_source():
    chunks = [chunk for shard in st.from_arrays(*data("two-3000")).shards(3) for chunk in shard.shuffle("rows", 5)]
    return flat(*[part for chunk in chunks for part in (chunk.row_ids, chunk.visited(chunk.y))])


OWN = {
    **{f"hasher/{name}": functools.partial(hashed_rows, *row) for name, row in HASHERS.items()},
    "hasher/pieces": hasher_in_pieces,
    "factors/matrix": functools.partial(matrix_of_ratings, "matrix", dict()),
    "factors/sparse-matrix": functools.partial(matrix_of_ratings, "sparse-matrix", dict(loss="implicit")),
    "factors/frame": frame_of_ratings,
    "cv/classes": functools.partial(cross_validated, "LinearClassifier", "four", dict()),
    "cv/jobs": functools.partial(cross_validated, "LinearClassifier", "four", dict(), n_jobs=2, random_state=3),
    "cv/plain-folds": functools.partial(cross_validated, "LinearClassifier", "two", dict(), stratified=False),
    "cv/groups": functools.partial(cross_validated, "LinearClassifier", "two", dict(), groups=np.arange(600) // 10),
    "cv/numbers": functools.partial(cross_validated, "LinearRegressor", "numbers", dict(), metrics=["loss", "rmse"]),
    "cv/texts": functools.partial(cross_validated, "LinearClassifier", "texts", dict(hasher=H)),
    "cv/network": functools.partial(cross_validated, "NetworkClassifier", "ring", N),
    "cv/rbf": functools.partial(cross_validated, "RBFRegressor", "curve", dict(n_units=8)),
    "tune/classes": functools.partial(tuned, "LinearClassifier", "two-3000", dict(epochs=2)),
    "tune/numbers": functools.partial(tuned, "LinearRegressor", "numbers-3000", dict(epochs=2), metric="rmse"),
    "tune/space": functools.partial(
        tuned,
        "LinearClassifier",
        "two-3000",
        dict(epochs=2),
        space={"alpha": [1e-5, 1e-3], "loss": ["log", "hinge"]},
        metric="accuracy",
        holdout=0.3,
    ),
    "path/l1": functools.partial(along_path, "LinearClassifier", "two", dict(penalty="l1")),
    "path/elasticnet": functools.partial(along_path, "LinearRegressor", "numbers", dict(penalty="elasticnet")),
    "path/l2": functools.partial(along_path, "LinearClassifier", "four", dict(loss="log")),
    "path/saga": functools.partial(along_path, "LinearRegressor", "numbers", dict(penalty="l1"), solver="saga"),
    "path/ftrl": functools.partial(along_path, "LinearClassifier", "two", dict(penalty="l1"), solver="ftrl", test=None),
    "race/first-points": first_points,
    "stream/proba": proba_of_a_stream,
    "stream/shards": shards_of_a_source,
    "linear/sparse-and-back": sparse_and_back,
    "linear/classes-in-pieces": new_classes_in_pieces,
}


def run_row(estimator, kind, params, way=fit):
    return way(build(estimator, params, random_state=0), kind)


TABLES = (LINEAR, PARALLEL, RANKER, HASHED, STREAMS, FACTORS, CLUSTERS, NETWORKS, FM, RADIAL, TEXTS)
CASES = {name: functools.partial(run_row, *row) for table in TABLES for name, row in table.items()} | OWN


# -------------------------------------------------------------------------------------------------------- comparison


def run(name):
    return np.ascontiguousarray(CASES[name](), np.float64)


def entry(found):
    bits = hashlib.sha256(found.tobytes()).hexdigest()
    return {"shape": list(found.shape), "sha256": bits, "first": [float(x) for x in found.ravel()[:SHOWN]]}


# Minima found to a tolerance by a path that turns on the last bits of exp and of sums, which differ between processors.
ROUGH = {"linear/dual_cd-log": 1e-2, "linear/lbfgs-hinge": 1e-4}
# Other instruction sets add up in another order, and a few paths then part.
RECORDED_WITH, OTHER_WAYS = "v3", 0.1


@functools.cache
def stored():
    return json.loads(STORED.read_text(encoding="utf-8"))


def test_every_case_is_recorded():
    assert sorted(stored()) == sorted(CASES)
    assert len(CASES) == sum(map(len, TABLES)) + len(OWN), "two cases have the same name"


@pytest.mark.parametrize("name", sorted(CASES))
def test_outputs_are_those_of_before(name):
    found = run(name)
    assert list(found.shape) == stored()[name]["shape"]
    rtol, atol = (ROUGH.get(name, 1e-6), 1e-9) if kernels.isa == RECORDED_WITH else (OTHER_WAYS, OTHER_WAYS)
    np.testing.assert_allclose(found.ravel()[:SHOWN], stored()[name]["first"], rtol=rtol, atol=atol)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--bits", action="store_true", help="print the cases whose bits differ")
    action.add_argument("--record", action="store_true", help="record anew")
    parser.add_argument("--slow", action="store_true", help="print the ten slowest cases too")
    parser.add_argument("part", nargs="?", default="", help="only cases with this in their name")
    options = parser.parse_args(arguments)
    known = stored() if STORED.exists() else {}
    differing, seconds, kept = [], {}, {name: known[name] for name in known if name in CASES}
    for name in sorted(CASES):
        if options.part not in name:
            continue
        start = time.perf_counter()
        try:
            now = entry(run(name))
        except Exception as error:  # the rest is still worth knowing
            now = {"sha256": "", "fault": f"{type(error).__name__}: {error}"}
        seconds[name] = time.perf_counter() - start
        if "fault" in now or (options.bits and now["sha256"] != known.get(name, {}).get("sha256")):
            differing.append(name)
            was = known[name]["first"] if name in known else "not recorded"
            print(name, now.get("fault") or f"was {was}, is {now['first']}")
        else:
            kept[name] = now
    if options.record and not differing:
        lines = (f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    if options.slow:
        for name in sorted(seconds, key=lambda name: -seconds[name])[:10]:
            print(f"{seconds[name]:8.3f} s  {name}")
    print(f"{len(seconds)} cases, {len(differing)} {'failed' if options.record else 'differ'}")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
