"""k-means beside scikit-learn, at equal inertia: MNIST with 10 and 100 clusters, and hashed 20 newsgroups with 20.

mnist-10, mnist-100, news              mini-batches, `fit` from the matrix on, with the inertia that came out
mnist-10-lloyd, ..., news-lloyd        Lloyd's algorithm until it stands still

MNIST is a dense float32 matrix, the newsgroups a CSR matrix of 2^18 hashed columns. Seconds: processor time of a fit,
the median over seeds; `inertia` is the mean over seeds, a row. The data is looked for where STEEPEST_DATA says.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import CACHE, DATA
from benchmarks.compare import Job, Result, Settings, Target, main

FULL = Settings(rows=60_000, text_rows=11_314, large_rows=0, launches=3)
QUICK = Settings(rows=3_000, text_rows=1_000, large_rows=0, launches=1)
BITS = 18


def load_mnist(settings: Settings) -> Any:
    import numpy as np

    packed = (DATA / "mnist" / "train-images-idx3-ubyte.gz").read_bytes()
    pixels = np.frombuffer(gzip.decompress(packed), np.uint8, offset=16).reshape(-1, 784)
    return (pixels[: settings.rows] / 255).astype(np.float32)


def news_path(settings: Settings) -> Path:
    return CACHE / f"news-{settings.text_rows}-{BITS}.npz"


def load_news(settings: Settings) -> Any:
    import scipy.sparse as sp

    return sp.csr_matrix(sp.load_npz(news_path(settings)))


def write_news(settings: Settings) -> None:
    """Hashed, by the term's frequency and rarity, unit rows; made once, so that no runner pays for it."""
    import scipy.sparse as sp

    import steepest as st

    packed = (DATA / "20newsgroups" / "20news-bydate-train.jsonl.gz").read_bytes()
    texts = [json.loads(line)["text"] for line in gzip.decompress(packed).splitlines()[: settings.text_rows]]
    rows = st.Hasher(n_bits=BITS, weighting="tfidf").fit_transform(texts)
    CACHE.mkdir(exist_ok=True)
    sp.save_npz(news_path(settings), sp.csr_matrix(rows))


def prepare(settings: Settings, chosen: list[str]) -> None:
    if any(name.startswith("news") for name in chosen) and not news_path(settings).exists():
        write_news(settings)


def steepest_model(k: int, seed: int, **choices: Any) -> Any:
    import steepest as st

    return st.KMeans(k, random_state=seed, **choices)


def sklearn_minibatch(k: int, seed: int, **choices: Any) -> Any:
    from sklearn.cluster import MiniBatchKMeans

    return MiniBatchKMeans(k, random_state=seed, n_init=1, **choices)


def sklearn_lloyd(k: int, seed: int, **choices: Any) -> Any:
    from sklearn.cluster import KMeans

    return KMeans(k, random_state=seed, n_init=1, **choices)


def fit(
    settings: Settings,
    load: Callable[[Settings], Any],
    make: Callable[..., Any],
    k: int,
    seeds: int = 0,
    **choices: Any,
) -> Result:
    warnings.simplefilter("ignore")
    X = load(settings)
    make(2, 0).fit(X[:1000])  # pays for imports
    seconds, inertias, epochs = [], [], []
    for seed in range(seeds or settings.launches):
        start = time.process_time()
        model = make(k, seed, **choices).fit(X)
        seconds.append(time.process_time() - start)
        inertias.append(model.inertia_ / X.shape[0])
        epochs.append(model.n_iter_)
    return {
        "seconds": statistics.median(seconds),
        "inertia": statistics.mean(inertias),
        "epochs": statistics.median(epochs),
    }


def no_slower_and_no_worse(peer: str) -> list[Target]:
    def ratio(results: dict[str, Result]) -> float:
        return results[peer]["seconds"] / next(iter(results.values()))["seconds"]

    def gap(results: dict[str, Result]) -> float:
        return 100 * (next(iter(results.values()))["inertia"] / results[peer]["inertia"] - 1)

    return [
        Target(f"times faster than {peer}", ratio, "at least", 1),
        Target(f"% inertia above {peer}", gap, "at most", 0.1),
    ]


def minibatch_job(load: Callable[[Settings], Any], k: int, **more: Any) -> Job:
    runners = {
        "steepest minibatch": partial(fit, load=load, make=steepest_model, k=k),
        "steepest minibatch, 2 epochs": partial(fit, load=load, make=steepest_model, k=k, **more),
        "scikit-learn MiniBatchKMeans": partial(fit, load=load, make=sklearn_minibatch, k=k),
    }
    return Job(runners, no_slower_and_no_worse("scikit-learn MiniBatchKMeans"))


def lloyd_job(load: Callable[[Settings], Any], k: int, seeds: int) -> Job:
    runners = {
        "steepest lloyd": partial(fit, load=load, make=steepest_model, k=k, seeds=seeds, solver="lloyd"),
        "scikit-learn KMeans": partial(fit, load=load, make=sklearn_lloyd, k=k, seeds=seeds),
    }
    return Job(runners, no_slower_and_no_worse("scikit-learn KMeans"))


JOBS = {
    "mnist-10": minibatch_job(load_mnist, 10, epochs=2),
    "mnist-100": minibatch_job(load_mnist, 100, epochs=2),
    "news": minibatch_job(load_news, 20, epochs=2),
    "mnist-10-lloyd": lloyd_job(load_mnist, 10, 3),
    "mnist-100-lloyd": lloyd_job(load_mnist, 100, 2),
    "news-lloyd": lloyd_job(load_news, 20, 3),
}


if __name__ == "__main__":
    sys.exit(main("benchmarks.kmeans", JOBS, prepare, full=FULL, quick=QUICK))
