"""Mixing, iterative mixing, Hogwild: what parallel learners lose, and how the loss is won back.

Shards that learn alone and are averaged once see a fraction of the rows each; mixing after every epoch
gives every shard what the others learned. Hogwild's threads write into one table without locks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

EPOCHS = (1, 2, 4, 8)
SHARDS = 8


def main(folder: Any = None) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 50)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ rng.standard_normal(50) + 0.1 * rng.standard_normal(4000) > 0, 1, -1)
    options: dict[str, Any] = dict(alpha=1e-4, random_state=0)
    least = st.LinearClassifier("log", solver="newton_cg", tol=1e-9, **options).fit(X, y).objective(X, y)
    ways: dict[str, Any] = {
        "one learner": "serial",
        f"{SHARDS} shards, mixed once": st.Mixing(n_shards=SHARDS, rounds=1),
        f"{SHARDS} shards, mixed every epoch": st.Mixing(n_shards=SHARDS),
        "hogwild, 2 threads": "hogwild",
    }
    found = {}
    for name, parallel in ways.items():
        jobs = 2 if parallel == "hogwild" else 1
        run: dict[str, Any] = dict(solver="sgd", average=False, parallel=parallel, n_jobs=jobs)
        models = [st.LinearClassifier("log", epochs=epochs, **run, **options).fit(X, y) for epochs in EPOCHS]
        found[name] = [model.objective(X, y) - least for model in models]
        print(f"{name:<30}" + " ".join(f"{gap:.4f}" for gap in found[name]))
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        for (name, gaps), style in zip(found.items(), ("o-", "s--", "D-.", "^:"), strict=True):
            axes.loglog(EPOCHS, gaps, style, label=name)
        axes.set(xlabel="epochs", ylabel="objective above the minimum", title="Parallel learners")
        axes.set_xticks(EPOCHS, [str(epochs) for epochs in EPOCHS])
        axes.minorticks_off()
        axes.legend(fontsize=7)
        save(figure, "mixing.svg", folder)
    return found


if __name__ == "__main__":
    main()
