"""The OpenAPI 3.1 description of a server, made for the model that it serves, and a page that shows it."""

from __future__ import annotations

from html import escape
from typing import Any

from steepest.serve import inference
from steepest.serve.options import ServeOptions
from steepest.serve.predictor import Predictor
from steepest.serve.rows import BAG, COLUMNS, PAIRS, TEXT, LabelReader

Schema = dict[str, Any]
ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
STATUS: Schema = {"type": "object"}
ID: Schema = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
COMMON = {
    "400": "The body is not what this model takes; the sentence says what to change.",
    "401": "The token is missing or wrong.",
    "403": "Not allowed here: learning is off, or the call comes from a page of another site.",
    "404": "This model, or this path, does not have it.",
    "405": "Another method is needed; the header Allow names it.",
    "408": "The request took too long to arrive or to compute.",
    "413": "More bytes or rows than the limits allow.",
    "429": "Too much is waiting; try again.",
    "431": "The headers are too large.",
}


def describe(predictor: Predictor, options: ServeOptions, version: str) -> Schema:
    """The whole description."""
    paths: dict[str, Any] = {
        "/predict": {"post": _post("Predictions for rows.", _rows(options), _predictions(predictor), lines=True)},
        "/explain": {"post": _post("What made one prediction.", QUESTION, EXPLANATION)},
        "/recommend": {"post": _post("The best items for users.", _users(options), RECOMMENDATIONS)},
        "/learn": {"post": _post("Learns rows, once they are on the disk.", _lesson(options), LEARNED, storage=True)},
        "/model": {"get": _get("What is served.", STATUS)},
        "/metrics": {"get": _get("Counts for Prometheus.", None)},
        "/openapi.json": {"get": _get("This description.", STATUS)},
        "/healthz": {"get": _get("Whether the process lives.", STATUS)},
        "/readyz": {"get": _get("Whether requests are accepted.", STATUS)},
        "/v2": {"get": _get("Open Inference: the server.", STATUS)},
        "/v2/health/live": {"get": _get("Open Inference: whether the process lives.", STATUS)},
        "/v2/health/ready": {"get": _get("Open Inference: whether requests are accepted.", STATUS)},
        f"/v2/models/{predictor.name}": {"get": _get("Open Inference: tensors of the model.", STATUS)},
        f"/v2/models/{predictor.name}/ready": {"get": _get("Open Inference: whether it is loaded.", STATUS)},
        f"/v2/models/{predictor.name}/infer": {
            "post": _post("Open Inference: predictions.", _infer(predictor), STATUS)
        },
    }
    found: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": f"{predictor.name}: {type(predictor.model).__name__}",
            "version": version,
            "description": f"A row is {predictor.rows.expected()}.",
        },
        "paths": paths,
        "components": {"schemas": {"Row": _row_schema(predictor), "Label": _label_schema(predictor), "Error": ERROR}},
    }
    if options.token is not None:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        guarded: dict[str, list[str]] = {"token": []}
        if options.guards_everything:
            found["security"] = [guarded]
        else:
            paths["/learn"]["post"]["security"] = [guarded]
    return found


def _answers(schema: Schema | None, *, storage: bool = False, lines: bool = False) -> Schema:
    content = {"text/plain": {"schema": {"type": "string"}}} if schema is None else {"application/json": _of(schema)}
    if lines:
        content["application/x-ndjson"] = {"schema": {"type": "string"}}
    found: Schema = {"200": {"description": "Done.", "content": content}}
    refusals = {**COMMON, "507": "The disk is full: nothing was learned."} if storage else COMMON
    for status, why in refusals.items():
        found[status] = {
            "description": why,
            "content": {"application/json": _of({"$ref": "#/components/schemas/Error"})},
        }
    return found


def _of(schema: Schema) -> Schema:
    return {"schema": schema}


def _get(summary: str, schema: Schema | None) -> Schema:
    return {"summary": summary, "responses": _answers(schema)}


def _post(summary: str, body: Schema, answer: Schema, *, storage: bool = False, lines: bool = False) -> Schema:
    content: Schema = {"application/json": _of(body)}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": _answers(answer, storage=storage, lines=lines),
    }


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


def _list(item: Schema, most: int | None = None) -> Schema:
    return {"type": "array", "items": item} | ({} if most is None else {"maxItems": most})


ROW: Schema = {"$ref": "#/components/schemas/Row"}
LABEL: Schema = {"$ref": "#/components/schemas/Label"}
NUMBER: Schema = {"type": "number"}
QUESTION = _object({"row": ROW, "top": {"type": "integer", "minimum": 1, "maximum": 1_000_000}}, ["row"])
SHARE = _object({"name": {"type": "string"}, "share": NUMBER, "value": NUMBER, "weight": NUMBER, "others": _list({})})
EXPLANATION = _object({"prediction": {}, "output": {}, "bias": NUMBER, "total": NUMBER, "features": _list(SHARE)})
RANKED = _object({"user": {}, "cold": {"type": "boolean"}, "items": _list(_object({"item": {}, "score": NUMBER}))})
RECOMMENDATIONS = _object({"recommendations": _list(RANKED)})
LEARNED = _object({"learned": {"type": "integer"}, "sequence": {"type": "integer"}})


def _row_schema(predictor: Predictor) -> Schema:
    reader = predictor.rows
    if reader.form == TEXT:
        name = reader.columns[0].name
        as_object = {
            "type": "object",
            "properties": {name: {"type": ["string", "null"]}},
            "additionalProperties": False,
        }
        return {"anyOf": [{"type": "string"}, as_object]} if name else {"type": "string"}
    if reader.form == PAIRS:
        return {**_object({"user": ID, "item": ID}), "additionalProperties": False}
    count = {"type": ["number", "null"], "minimum": -1e30, "maximum": 1e30}
    if reader.form == BAG:
        return {"type": "object", "additionalProperties": count}
    if reader.form == COLUMNS:
        kinds: dict[str, Schema] = {
            BAG: {"type": ["object", "null"], "additionalProperties": count},
            "text": {"type": ["string", "null"]},
            "category": {"type": ["string", "integer", "boolean", "null"]},
            "number": {"type": ["number", "null"]},
            "date": {"type": ["string", "integer", "null"], "description": "written as in the training data"},
            "time": {"type": ["string", "number", "null"], "description": "of the row; only rows to learn need it"},
            "list": {"type": ["array", "string", "null"], "items": {"type": ["string", "integer", "null"]}},
        }
        columns = {column.name: kinds.get(column.kind, {}) for column in reader.columns}
        return {"type": "object", "properties": columns, "additionalProperties": False}
    index = {"type": "integer", "minimum": 0, "maximum": reader.n_features - 1}
    value = {"type": "number", "minimum": -1e30, "maximum": 1e30}
    pairs = _object({"indices": {**_list(index), "uniqueItems": True}, "values": _list(value)})
    forms = [{**pairs, "additionalProperties": False}]
    forms += [{"type": "string"}] if reader.takes_lines else []
    return {"anyOf": forms, "description": reader.expected()}


def _label_schema(predictor: Predictor) -> Schema:
    if predictor.several:
        return _list({"enum": predictor.classes[:1000]})
    if not predictor.classes:
        number, n = {"type": "number", "minimum": -1e30, "maximum": 1e30}, LabelReader(predictor.model).n_targets
        return {**_list(number), "minItems": n, "maxItems": n} if n else number
    return ID if isinstance(predictor.classes[0], str) else {"type": "integer"}


def _rows(options: ServeOptions) -> Schema:
    return _object({"rows": _list(ROW, options.max_rows)})


def _users(options: ServeOptions) -> Schema:
    k = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10}
    return _object({"users": _list(ID, options.max_rows), "k": k, "include_seen": {"type": "boolean"}}, ["users"])


def _lesson(options: ServeOptions) -> Schema:
    return _object({"rows": _list(ROW, options.max_rows), "labels": _list(LABEL, options.max_rows)})


def _predictions(predictor: Predictor) -> Schema:
    found = {"predictions": _list({})}
    if predictor.has_probabilities:
        found["probabilities"] = _list({"type": "object", "additionalProperties": {"type": "number"}})
    return _object(found)


def _infer(predictor: Predictor) -> Schema:
    names = [tensor["name"] for tensor in inference.inputs(predictor)]
    tensor = _object(
        {
            "name": {"enum": names},
            "datatype": {"type": "string"},
            "shape": _list({"type": "integer", "minimum": 0}),
            "data": _list({}),
        }
    )
    return _object({"id": {"type": "string"}, "inputs": _list(tensor)}, ["inputs"])


STYLE = """
:root { color-scheme: light dark } body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 52rem;
padding: 0 1rem } code, pre { font: 14px/1.5 ui-monospace, monospace } section { border-top: 1px solid #8886;
padding: .5rem 0 } pre { overflow-x: auto; background: #8881; padding: .6rem }
"""


def page(description: Schema) -> str:
    """The description as HTML."""
    info = description["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style><main><h1>{escape(info['title'])}</h1>",
        f"<p>{escape(info['description'])} <a href='/'>Try it</a>, read <a href='/openapi.json'>openapi.json</a>.</p>",
    ]
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            parts.append(
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about['summary'])}</p>"
            )
            if "requestBody" in about:
                schema = about["requestBody"]["content"]["application/json"]["schema"]
                parts.append(f"<p>Body: {_fields(schema)}</p>")
            content = about["responses"]["200"]["content"]
            answer = content.get("application/json", {}).get("schema", {})
            parts.append(f"<p>Answer: {_fields(answer) or 'text'}</p></section>")
    return "".join(parts) + "</main></html>"


def _fields(schema: Schema) -> str:
    needed = schema.get("required", ())
    names = [escape(name) + ("" if name in needed else "?") for name in schema.get("properties", {})]
    return ", ".join(f"<code>{name}</code>" for name in names) or escape(schema.get("type", ""))
