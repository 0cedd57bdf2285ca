"""What factorization machines are worth on real tables of categories, beside our linear models.

    python -m benchmarks.fm [criteo avazu movielens] [--factors 8] [--seeds 3]

criteo and avazu: log loss and AUC on the dev and test rows of ctr-samples (8,000 rows to learn from; numbers of Criteo
as the whole part of their squared logarithm). movielens: RMSE of (user, item) on a fifth of MovieLens-100k. Every
column is a category in 2^20 buckets. Seconds are those of a fit. The data is looked for where STEEPEST_DATA says.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

import steepest as st
from benchmarks import DATA

Rows = tuple[pd.DataFrame, np.ndarray]
AVAZU = [
    *("id", "click", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain"),
    *("app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
    *(f"C{number}" for number in range(14, 22)),
]
NUMBERS = 13  # of Criteo


def criteo(part: str) -> Rows:
    """Thirteen numbers and 26 categories."""
    table = pd.read_csv(DATA / "ctr-samples" / f"criteo-{part}.tsv.gz", sep="\t", header=None)
    X = table.drop(columns=0).astype(object)
    for column in range(1, NUMBERS + 1):
        x = table[column]
        X[column] = x.where(~(x > 2), np.floor(np.log(x.clip(lower=1)) ** 2))
    X.columns = [f"c{column}" for column in X.columns]
    return X.fillna("none").astype(str), table[0].to_numpy() == 1


def avazu(part: str) -> Rows:
    """Twenty-two categories; only the training part has a header."""
    table = pd.read_csv(DATA / "ctr-samples" / f"avazu-{part}.csv.gz", dtype=str, header=None, names=AVAZU)
    table = table[table["id"] != "id"]
    return table.drop(columns=["id", "click"]).fillna("none"), table["click"].to_numpy() == "1"


def movielens(part: str) -> Rows:
    """Users and items; a fifth of the ratings, drawn by chance, is to measure on."""
    names = ["user", "item", "rating", "time"]
    table = pd.read_csv(DATA / "movielens-100k" / "u.data.gz", sep="\t", header=None, names=names)
    learned = np.random.default_rng(0).random(len(table)) < 0.8
    chosen = table[learned if part == "train" else ~learned]
    return chosen[["user", "item"]].astype(str), chosen["rating"].to_numpy(np.float64)


def load(name: str) -> tuple[Rows, Rows]:
    """(rows to learn from, rows to measure on)."""
    if name == "movielens":
        return movielens("train"), movielens("test")
    read = {"criteo": criteo, "avazu": avazu}[name]
    (dev, y_dev), (test, y_test) = read("dev"), read("test")
    return read("train"), (pd.concat([dev, test]), np.concatenate([y_dev, y_test]))


def measure(model: Any, learned: Rows, held_out: Rows) -> dict[str, float]:
    """Seconds of a fit, and what it is worth."""
    started = time.perf_counter()
    model.fit(*learned)
    seconds = time.perf_counter() - started
    X, y = held_out
    if model.kind == "regressor":
        return {"rmse": float(np.sqrt(np.mean((model.predict(X) - y) ** 2))), "seconds": seconds}
    chance = np.clip(model.predict_proba(X)[:, 1], 1e-7, 1 - 1e-7)
    ranks = pd.Series(chance).rank().to_numpy()
    auc = (ranks[y].sum() - y.sum() * (y.sum() + 1) / 2) / (y.sum() * (~y).sum())
    return {"log_loss": float(-np.log(np.where(y, chance, 1 - chance)).mean()), "auc": float(auc), "seconds": seconds}


def main(arguments: list[str] | None = None) -> None:
    """Prints a line per set and model, the mean of all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=["criteo", "avazu", "movielens"])
    parser.add_argument("--factors", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    for name in options.sets:
        learned, held_out = load(name)
        real = name == "movielens"
        linear, machine = (st.LinearRegressor, st.FMRegressor) if real else (st.LinearClassifier, st.FMClassifier)
        hasher = st.Hasher(20, categorical=list(learned[0].columns))
        models: dict[str, tuple[Any, dict[str, Any]]] = {
            "linear": (linear, {}),
            "machine": (machine, {"n_factors": options.factors}),
            "machine, early stopping": (
                machine,
                {"n_factors": options.factors, "epochs": 20, "early_stopping": True},
            ),
            "with fields": (machine, {"n_factors": 4, "fields": True}),
        }
        for kind, (made, params) in models.items():
            found = [
                measure(made(hasher=hasher, random_state=seed, **params), learned, held_out)
                for seed in range(options.seeds)
            ]
            shown = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
            print(f"{name:10} {kind:24}", *(f"{key} {value:.4f}" for key, value in shown.items()), flush=True)


if __name__ == "__main__":
    main()
