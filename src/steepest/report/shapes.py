"""What a linear model has learned of its numeric columns: the value each adds to the score, as points of a curve.

A number gives a line and, with knots, hats beside it; between two knots the curve is straight, so its values at the
knots are the whole curve. Crosses with other columns are not part of it.
"""

from __future__ import annotations

from typing import Any

Curve = list[tuple[float, float]]
MOST_COLUMNS = 40
MOST_CLASSES = 10
REACH = 2.0  # standard deviations to both sides of the mean, where a column has no knots


def shapes_of(model: Any) -> dict[Any, dict[str, Curve]]:
    """For each output the curves of its columns of numbers; of two classes, those of the second."""
    hasher = getattr(model, "hasher_", None)
    columns = [column for column in getattr(hasher, "columns_", ()) if column.kind == "number"][:MOST_COLUMNS]
    if not columns or not hasattr(model, "explain") or hasattr(model, "cluster_centers_"):
        return {}
    labels = list(getattr(model, "classes_", [0]))
    chosen = labels[1:] if len(labels) == 2 else labels[:MOST_CLASSES]
    chosen = [label.item() if hasattr(label, "item") else label for label in chosen]
    found: dict[Any, dict[str, Curve]] = {label: {} for label in chosen}
    for column in columns:
        if column.source or column.format:  # parts of dates and marked numbers have no plain value to ask for
            continue
        places = column.knots or (column.centre - REACH * column.scale, column.centre + REACH * column.scale)
        for x in places:
            parts = model.explain({column.name: float(x)})
            for label in chosen:
                y = sum(p.contribution for p in parts.get(label, ()) if _belongs(p.name, column.name))
                found[label].setdefault(column.name, []).append((float(x), float(y)))
    return {label: curves for label, curves in found.items() if curves}


def _belongs(name: str, column: str) -> bool:
    """Whether a feature is the line or a hat of the column, and not a cross."""
    return name == column or (name.startswith(f"{column}~") and "#" not in name)
