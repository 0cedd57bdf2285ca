"""steepest inspect MODEL: what a model is, how it was trained, and its heaviest weights."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import steepest as st
from steepest.engine.monitor import describe
from steepest.metrics import plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All flags of the verb."""
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--top", type=int, default=10, help="how many of the heaviest weights")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Prints the description."""
    facts = describe_model(st.load(options.model), options.model, options.top)
    print(json.dumps(facts) if options.json else as_text(facts))
    return 0


def describe_model(model: Any, path: str, top: int) -> dict[str, Any]:
    """Everything worth knowing, as plain values."""
    clusters = hasattr(model, "cluster_centers_")
    weights = _weights(model)
    top_features = model.top_features(top) if hasattr(model, "top_features") else {}
    return {
        "model": repr(model),
        "bytes": Path(path).stat().st_size,
        "features": int(model.n_features_in_),
        "nonzeros": int(model.n_nonzero_),
        "outputs": int(weights.shape[0]),
        "graph": model.graph_.describe() if hasattr(model, "graph_") else None,
        "norm": float(np.linalg.norm(weights)),
        "intercept": [float(b) for b in model.intercept_] if hasattr(model, "intercept_") else [],
        "clusters": [float(count) for count in model.counts_] if clusters else [],
        "classes": [plain(label) for label in getattr(model, "classes_", [])],
        "reading": model.recipe_,
        "history": model.history_.records,
        "events": model.history_.events,
        "top": {str(output): pairs for output, pairs in top_features.items()},
    }


def _weights(model: Any) -> Any:
    """What the norm is taken of, one row an output: weights into it, votes, or centres."""
    if hasattr(model, "weights_"):
        into = [w for name, w in model.weights_.items() if name.endswith(">y")]
        return np.concatenate(into).T.astype(np.float64)
    if hasattr(model, "votes_"):
        return np.asarray(model.votes_.T, np.float64)
    return np.asarray(model.cluster_centers_ if hasattr(model, "cluster_centers_") else model.coef_, np.float64)


def as_text(facts: dict[str, Any]) -> str:
    """The same for a person."""
    lines = [
        facts["model"],
        f"{facts['features']:,} features, {facts['nonzeros']:,} non-zero weights, norm {facts['norm']:.4g}, "
        f"{facts['bytes']:,} bytes",
    ]
    if facts["classes"]:
        shown = ", ".join(map(str, facts["classes"][:20]))
        lines.append(f"{len(facts['classes'])} classes: {shown}{' ...' if len(facts['classes']) > 20 else ''}")
    if facts["graph"]:
        lines.append(facts["graph"])
    if facts["clusters"]:
        sizes = ", ".join(f"{size:,.0f}" for size in facts["clusters"][:20])
        more = " ..." if len(facts["clusters"]) > 20 else ""
        lines.append(f"{len(facts['clusters'])} clusters, of the weight {sizes}{more}")
    lines += [describe(record) for record in facts["history"]]
    lines += facts["events"]
    for output, pairs in facts["top"].items() if any(facts["top"].values()) else ():
        lines.append(f"\nheaviest for {output}:")
        lines += [f"  {weight:+.4f}  {name}" for name, weight in pairs]
    return "\n".join(lines)
