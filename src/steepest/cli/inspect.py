"""steepest inspect MODEL: what a model is, how it was trained, and its largest weights."""

from __future__ import annotations

import argparse
import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import steepest as st
from steepest.cli.columns import as_lines, crosses_of, facts_of
from steepest.cli.data import add_data_arguments, open_data
from steepest.data.tables.roles import listed
from steepest.engine.monitor import describe
from steepest.metrics import plain
from steepest.parameters import did_you_mean
from steepest.report.page import short_numbers
from steepest.report.shapes import shapes_of

BLOCKS = "▁▂▃▄▅▆▇█"
MOST_OUTPUTS = 20  # classes whose weights are listed
MANY = 100_000  # weights among which those of a column are looked for

COMMON = ("top", "only", "column", "json", "data")
EXAMPLES = (
    "steepest inspect reviews.steepest",
    "steepest inspect reviews.steepest --top 30 --class 5",
    "steepest inspect reviews.steepest --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("model", metavar="MODEL", help="model file, or an address such as s3://bucket/m.steepest")
    parser.add_argument(
        "--top", type=int, default=10, metavar="N", help="number of weights of each sign to list (default: 10)"
    )
    help = "list only the weights of this class (default: all)"
    parser.add_argument("--class", dest="only", metavar="CLASS", help=help)
    parser.add_argument("--column", metavar="NAME", help="list only the weights of this column (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    help = "show how many features share a bucket: counted on DATA, or estimated without DATA"
    add_data_arguments(parser, flag="--collisions", nargs="*", help=help)


def run(options: argparse.Namespace) -> int:
    """Prints the description."""
    model = st.load(options.model)
    if options.data is not None:
        report = _collisions(model, options)
        print(json.dumps(asdict(report)) if options.json else report)
        return 0
    facts = describe_model(model, options.model, options.top, options.column)
    if options.only is not None:
        _keep_label(facts, options.only)
    in_words = factors_as_text if isinstance(model, st.MatrixFactorization) else as_text
    print(json.dumps(facts) if options.json else in_words(facts))
    return 0


def _collisions(model: Any, options: argparse.Namespace) -> Any:
    """Returns the report on collisions, counted on the data if there are any."""
    if not hasattr(model, "collision_report"):
        raise st.ParameterError(f"--collisions has no meaning for a {type(model).__name__}; it is for linear models")
    return model.collision_report(open_data(options, model.recipe_, with_labels=False) if options.data else None)


def _keep_label(facts: dict[str, Any], label: str) -> None:
    """Drops the weights of all other classes."""
    known = list(facts["top"]) if isinstance(facts["top"], dict) else []
    if label not in known:
        has = f"it has {listed(known)}" if known else "it has none, so leave --class out"
        raise st.ParameterError(f"--class {label} is not a class of the model; {did_you_mean(label, known)}{has}")
    for part in ("top", "against", "shapes"):
        facts[part] = {name: value for name, value in facts[part].items() if name == label}


def describe_model(model: Any, path: str, top: int, column: str | None = None) -> dict[str, Any]:
    """Returns the description of a model as plain values; `column` restricts the weights to those of one column."""
    if isinstance(model, st.MatrixFactorization):
        return describe_factors(model, path, top)
    clusters = hasattr(model, "cluster_centers_")
    weights, n_outputs = _weights(model)
    if column is not None:
        _check_column(model, column)
    heaviest, against = _heaviest(model, top, column)
    return {
        "model": repr(model),
        "bytes": Path(path).stat().st_size,
        "features": int(model.n_features_in_),
        "hashing": _hashing(model),
        "words": str(getattr(getattr(model, "hasher_", None), "words_", "")),
        "columns": facts_of(getattr(model, "hasher_", None)),
        "crosses": [list(pair) for pair in crosses_of(model)],
        "nonzeros": int(model.n_nonzero_),
        "outputs": n_outputs,
        "graph": model.graph_.describe() if hasattr(model, "graph_") else None,
        "norm": float(np.linalg.norm(weights.astype(np.float64))),
        "intercept": [float(b) for b in model.intercept_] if hasattr(model, "intercept_") else [],
        "clusters": [float(count) for count in model.counts_] if clusters else [],
        "classes": [plain(label) for label in getattr(model, "classes_", [])],
        "reading": model.recipe_,
        "history": model.history_.records,
        "events": model.history_.events,
        "top": {str(output): pairs for output, pairs in heaviest.items()},
        "against": {str(output): pairs for output, pairs in against.items()},
        "shapes": {str(output): curves for output, curves in shapes_of(model).items()},
    }


def _check_column(model: Any, column: str) -> None:
    known = [fact["name"] for fact in facts_of(getattr(model, "hasher_", None))]
    if column not in known:
        near = did_you_mean(column, known)
        has = f"it has {listed(known)}" if known else "it has none, so leave --column out"
        raise st.ParameterError(f"--column {column} is not a column of the model; {near}{has}")


def _heaviest(model: Any, top: int, column: str | None) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns (weights for, weights against) each output; two classes need one list each, as opposites."""
    if not hasattr(model, "top_features"):
        return {}, {}
    both = "against" in inspect.signature(model.top_features).parameters
    two = len(getattr(model, "classes_", ())) == 2 and not model.learner_.several_targets
    many = top if column is None else MANY
    found = model.top_features(many), model.top_features(many, against=True) if both and not two else {}
    if column is None:
        return found
    marks = (f"{column}=", f"{column}~", f"{column}#", f"#{column}=", f"#{column}~")
    heavy, light = ({k: [p for p in v if _is_of(p[0], column, marks)][:top] for k, v in part.items()} for part in found)
    return heavy, light


def _is_of(name: str, column: str, marks: tuple[str, ...]) -> bool:
    return name == column or name.startswith(marks[:3]) or any(mark in name for mark in marks[3:])


def _hashing(model: Any) -> dict[str, Any] | None:
    """Returns the report on collisions, if features were hashed."""
    hashes = getattr(model, "hasher_", None) is not None or getattr(model, "vw_names_", None) is not None
    return asdict(model.collision_report()) if hashes and hasattr(model, "collision_report") else None


def _weights(model: Any) -> tuple[Any, int]:
    """Returns what the norm is taken of (weights into the outputs, votes, or centres), and the number of outputs."""
    if hasattr(model, "weights_"):
        into = np.concatenate([w for name, w in model.weights_.items() if name.endswith(">y")])
        return into, into.shape[1]
    if hasattr(model, "votes_"):
        return model.votes_, model.votes_.shape[1]
    if hasattr(model, "cluster_centers_"):
        return model.cluster_centers_, len(model.cluster_centers_)
    outputs = model.intercept_ if hasattr(model, "intercept_") else model.classes_
    learner = model.learner_
    return learner.used_weights()[1] if hasattr(learner, "used_weights") else learner.weights()[0], len(outputs)


def as_text(facts: dict[str, Any]) -> str:
    """Returns the description of a model as aligned lines for a person."""
    hashing = facts["hashing"]
    columns = ("feature" if hashing is None else "column") + ("" if facts["features"] == 1 else "s")
    lines = [
        facts["model"],
        f"{facts['features']:,} {columns}, {facts['nonzeros']:,} non-zero weights, norm {facts['norm']:.4g}, "
        f"{facts['bytes']:,} bytes",
    ]
    if hashing is not None:
        lines.append(
            f"about {hashing['n_distinct']:,.0f} features in {1 << hashing['n_bits']:,} buckets, "
            f"about {hashing['sharing']:.1%} of them share one; {hashing['named_weight'] or 0:.1%} of the weight is "
            f"named, about {hashing['shared_weight'] or 0:.1%} is in shared buckets"
        )
    if facts["words"]:
        lines.append(facts["words"])
    lines += as_lines(facts["columns"])
    if facts["crosses"]:
        lines.append("crossed: " + ", ".join(" x ".join(pair) for pair in facts["crosses"]))
    if facts["classes"]:
        names = ", ".join(map(str, facts["classes"][:20]))
        lines.append(f"{len(facts['classes'])} classes: {names}{' ...' if len(facts['classes']) > 20 else ''}")
    if facts["graph"]:
        lines.append(facts["graph"])
    if facts["clusters"]:
        sizes = ", ".join(f"{size:,.0f}" for size in facts["clusters"][:20])
        more = " ..." if len(facts["clusters"]) > 20 else ""
        lines.append(f"{len(facts['clusters'])} clusters with the weights {sizes}{more}")
    lines += [describe(record) for record in facts["history"]]
    lines += facts["events"]
    shown = list(facts["top"].items())[:MOST_OUTPUTS] if any(facts["top"].values()) else []
    for output, pairs in shown:
        number = not facts["classes"] and not facts["clusters"]
        lines.append("\ntop features for a high value:" if number else f"\ntop features for {output}:")
        lines += _weight_lines(pairs)
        if facts["against"].get(output):
            lines.append("\ntop features for a low value:" if number else f"\ntop features against {output}:")
            lines += _weight_lines(facts["against"][output])
    if len(facts["top"]) > len(shown) > 0:
        lines.append(f"\n... and {len(facts['top']) - len(shown):,} more classes (--class NAME shows one, --json all)")
    for output, curves in list(facts["shapes"].items())[:MOST_OUTPUTS]:
        lines.append(f"\neffect of numeric columns on {output if facts['classes'] else 'the value'}:")
        width = max(map(len, curves))
        lines += [f"  {name:<{width}}  {spark(points)}" for name, points in curves.items()]
    return "\n".join(lines)


def _weight_lines(pairs: list[tuple[str, float]]) -> list[str]:
    shown = [f"{weight:+,.4f}" if abs(weight) < 1000 else f"{weight:+,.1f}" for _, weight in pairs]
    width = max(map(len, shown), default=0)
    return [f"  {text:>{width}}  {short_numbers(name)}" for text, (name, _) in zip(shown, pairs, strict=True)]


def spark(points: list[tuple[float, float]]) -> str:
    """Returns a curve as a few letters, between the smallest and the largest x, with its range."""
    values = [y for _, y in points]
    low, high = min(values), max(values)
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    drawn = "".join(BLOCKS[round((y - low) / step)] for y in values)
    return f"{points[0][0]:>12,.6g} {drawn:<16} {points[-1][0]:<12,.6g} from {low:+,.4g} to {high:+,.4g}"


def describe_factors(model: st.MatrixFactorization, path: str, top: int) -> dict[str, Any]:
    """Returns the description of a factor model; its top items have the largest biases, or are most popular."""
    nobody = model.recommend([_stranger(model)], top)
    return {
        "model": repr(model),
        "bytes": Path(path).stat().st_size,
        "users": len(model.user_ids_),
        "items": len(model.item_ids_),
        "factors": int(model.n_factors),
        "solver": model.solver_,
        "alpha": model.alpha_,
        "mean": model.mean_,
        "reading": model.recipe_,
        "history": model.history_.records,
        "events": model.history_.events,
        "top": [[plain(item), score] for item, score in nobody[0]],
    }


def _stranger(model: st.MatrixFactorization) -> Any:
    """Returns an id that no user has."""
    known = set(map(str, model.user_ids_[:1_000_000].tolist()))
    return next(name for name in ("nobody", "\0nobody", "\0\0nobody") if name not in known)


def factors_as_text(facts: dict[str, Any]) -> str:
    """Returns the description of a matrix factorization as aligned lines for a person."""
    lines = [
        facts["model"],
        f"{facts['users']:,} users, {facts['items']:,} items, {facts['factors']} factors by {facts['solver']}, "
        f"mean {facts['mean']:.4g}, alpha {facts['alpha']:g}, {facts['bytes']:,} bytes",
    ]
    lines += [describe(record) for record in facts["history"]]
    lines += facts["events"]
    lines.append("\nitems with the highest scores overall:")
    lines += [f"  {score:+.4f}  {item}" for item, score in facts["top"]]
    return "\n".join(lines)
