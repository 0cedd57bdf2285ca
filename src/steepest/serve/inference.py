"""The Open Inference Protocol (KServe V2 over HTTP), so that existing platforms can ask a model of ours.

Tensors in: one per column of the model, named as the column ("text" for a model of texts, "bag" for one of bags of
words, each the text of a JSON object), or "features" of shape [n, d] for numbered features, or "user" and "item".
Tensors out: "predictions", and "probabilities" of shape [n, classes], whose order is in the metadata. Left out: the
binary extension and several labels per row as one tensor (JSON texts).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from steepest.errors import DataError
from steepest.features.columns import TIME
from steepest.serve.predictor import Predictor
from steepest.serve.rows import BAG, PAIRS, SPARSE, TEXT

NUMBERS = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64")


def server_metadata(version: str) -> dict[str, Any]:
    """The answer of GET /v2."""
    return {"name": "steepest", "version": version, "extensions": []}


def model_metadata(predictor: Predictor) -> dict[str, Any]:
    """The answer of GET /v2/models/NAME."""
    outputs = [{"name": "predictions", "datatype": _type_of_labels(predictor), "shape": [-1]}]
    if predictor.has_probabilities:
        shape = [-1, len(predictor.classes)]
        outputs.append(
            {
                "name": "probabilities",
                "datatype": "FP64",
                "shape": shape,
                "parameters": {"classes": predictor.class_names},  # type: ignore[dict-item]
            }
        )
    return {
        "name": predictor.name,
        "versions": [predictor.identity[:12]],
        "platform": "steepest",
        "inputs": inputs(predictor),
        "outputs": outputs,
    }


def inputs(predictor: Predictor) -> list[dict[str, Any]]:
    """The tensors that a model takes."""
    reader = predictor.rows
    if reader.form == PAIRS:
        return [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in ("user", "item")]
    if reader.form == SPARSE:
        return [{"name": "features", "datatype": "FP32", "shape": [-1, reader.n_features]}]
    if reader.form in (TEXT, BAG):
        return [{"name": reader.columns[0].name or reader.form, "datatype": "BYTES", "shape": [-1]}]
    kinds = {"number": "FP64"}
    asked = [column for column in reader.columns if column.kind != TIME]  # which predictions do not need
    return [{"name": c.name, "datatype": kinds.get(c.kind, "BYTES"), "shape": [-1]} for c in asked]


def rows_of(predictor: Predictor, request: Any) -> list[Any]:
    """The rows of an inference request."""
    tensors = request.get("inputs") if type(request) is dict else None
    if type(tensors) is not list or not tensors:
        raise DataError('the body needs "inputs", a list of tensors; GET /v2/models/NAME shows which')
    columns = {}
    for tensor in tensors:
        name, values = _values(tensor)
        columns[name] = values
    known = [str(tensor["name"]) for tensor in inputs(predictor)]
    for name in columns:
        if name not in known:
            raise DataError(f"the input {name!r} is unknown; the model takes {', '.join(map(repr, known))}")
    for column in predictor.rows.columns:
        name = column.name or BAG
        if column.kind == BAG and name in columns:
            columns[name] = [_bag(name, value) for value in columns[name]]
    if predictor.rows.form in (TEXT, BAG, SPARSE, PAIRS):
        for name in known:
            if name not in columns:
                raise DataError(f"the input {name!r} is missing")
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"the inputs have different lengths, {sorted(lengths)}; give one value per row")
    if predictor.rows.form in (TEXT, BAG, SPARSE):
        return columns[known[0]]
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _bag(name: str, value: Any) -> Any:
    """Words with their counts, which a tensor holds as the text of a JSON object."""
    try:
        return orjson.loads(value) if type(value) is str else value
    except ValueError:
        raise DataError(f"the input {name!r} holds {value!r:.60}; give the text of a JSON object") from None


def _values(tensor: Any) -> tuple[str, list[Any]]:
    """(name, one value or list of values per row) of a tensor, whose data may be flat or nested."""
    if type(tensor) is not dict or type(tensor.get("name")) is not str:
        raise DataError("a tensor needs a name, datatype, shape and data")
    name, shape, data = tensor["name"], tensor.get("shape"), tensor.get("data")
    if tensor.get("datatype") not in (*NUMBERS, "BYTES"):
        raise DataError(f"the input {name!r} has the datatype {tensor.get('datatype')!r}; use BYTES or a number type")
    if type(shape) is not list or len(shape) not in (1, 2) or any(type(n) is not int or n < 0 for n in shape):
        raise DataError(f"the input {name!r} has the shape {shape!r}; use [rows] or [rows, columns]")
    if type(data) is not list:
        raise DataError(f"the input {name!r} has no list as data")
    flat = [value for part in data for value in (part if type(part) is list else [part])]
    width = shape[1] if len(shape) == 2 else 1
    if len(flat) != shape[0] * width:
        raise DataError(f"the input {name!r} has {len(flat)} values, but its shape {shape} needs {shape[0] * width}")
    if len(shape) == 2 and not (width == 1 and tensor["datatype"] == "BYTES"):
        return name, [flat[at * width : (at + 1) * width] for at in range(shape[0])]
    return name, flat


def infer(predictor: Predictor, request: Any, answer: Callable[[list[Any]], tuple[list[Any], Any]]) -> dict[str, Any]:
    """The answer of POST /v2/models/NAME/infer; `answer` gives predictions and probabilities of rows."""
    labels, probabilities = answer(rows_of(predictor, request))
    if predictor.several:
        labels = [orjson.dumps(label).decode() for label in labels]
    outputs = [{"name": "predictions", "datatype": _type_of_labels(predictor), "shape": [len(labels)], "data": labels}]
    if probabilities is not None:
        flat = probabilities.reshape(-1).tolist()
        shape = list(probabilities.shape)
        outputs.append({"name": "probabilities", "datatype": "FP64", "shape": shape, "data": flat})
    wanted = request.get("outputs")
    if type(wanted) is list and wanted:
        names = {output.get("name") for output in wanted if type(output) is dict}
        outputs = [output for output in outputs if output["name"] in names]
    found = {"model_name": predictor.name, "model_version": predictor.identity[:12], "outputs": outputs}
    if type(request.get("id")) is str:
        found["id"] = request["id"]
    return found


def _type_of_labels(predictor: Predictor) -> str:
    if predictor.several:
        return "BYTES"
    if predictor.classes:
        kinds = {int: "INT64", float: "FP64", bool: "BOOL"}
        return kinds.get(type(predictor.classes[0]), "BYTES")
    return "INT64" if predictor.kind == "clusterer" else "FP64"
