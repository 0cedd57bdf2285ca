"""ONNX for rows that are hashed already: indices (batch, n) and values (batch, n), a value of 0 where a row is shorter.

scores = sum over n of W[indices] values + bias; a text classifier has (end + that sum) / (1 + sum |values|) times its
head. Outputs: `scores`, `probabilities` where the model has them, and `label`, the number of the class. A factor model
takes `users` and `items`, numbers of rows, and gives `predictions`. Made with opset 17.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import DataError
from steepest.export.describe import Description, FactorPairs, Scores

OPSET, IR_VERSION = 17, 8


def onnx_bytes(model: Description) -> bytes:
    """Returns the content of the file."""
    graph = _Graph()
    if isinstance(model, FactorPairs):
        graph.factors(model)
    else:
        graph.scores(model)
    return graph.content(model.title)


class _Graph:
    """Nodes and constants in the order in which they are computed."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise DataError("ONNX needs the package onnx; install it with: pip install 'steepest[onnx]'") from None
        self.onnx: Any = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def content(self, title: str) -> bytes:
        """Returns the graph as bytes, checked by ONNX itself."""
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, title, self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, producer_name="steepest", opset_imports=opsets, ir_version=IR_VERSION)
        self.onnx.checker.check_model(made)
        return bytes(made.SerializeToString())

    def constant(self, name: str, values: Array) -> str:
        """Adds a constant; returns its name."""
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, operation: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Adds an operation; returns the name of its output."""
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [output], **attributes))
        return output

    def give(self, name: str, kind: str, shape: list[Any], *, output: bool = False) -> None:
        """Adds an input or an output."""
        element = getattr(self.onnx.TensorProto, kind)
        info = self.onnx.helper.make_tensor_value_info(name, element, shape)
        (self.outputs if output else self.inputs).append(info)

    def scores(self, model: Scores) -> None:
        """Adds the operations of a model of scores."""
        self.give("indices", "INT64", ["batch", "n"])
        self.give("values", "FLOAT", ["batch", "n"])
        rows = self._rows(model)
        axis, last = self.constant("axis_n", np.array([1])), self.constant("axis_last", np.array([-1]))
        column = self.node("Unsqueeze", ["values", last], "column")
        products = self.node("Mul", [rows, column], "products")
        sums = self.node("ReduceSum", [products, axis], "sums", keepdims=0)
        if model.head is None:
            self.node("Add", [sums, self.constant("bias", model.bias.astype(np.float32))], "scores")
        else:
            assert model.end is not None
            ended = self.node("Add", [sums, self.constant("end", model.end.astype(np.float32))], "ended")
            mass = self.node("ReduceSum", [self.node("Abs", ["values"], "sizes"), axis], "size", keepdims=1)
            total = self.node("Add", [mass, self.constant("one", _floats([1]))], "mass")
            hidden = self.node("Div", [ended, total], "hidden")
            self.node("MatMul", [hidden, self.constant("head", model.head.T.astype(np.float32))], "scores")
        self.give("scores", "FLOAT", ["batch", model.n_scores], output=True)
        self._answers(model)

    def _rows(self, model: Scores) -> str:
        """Adds the table with the rows of the batch's features, by a list of places where most features have none."""
        n, width = model.n_features, model.width
        table = np.zeros((1 + len(model.features), width), np.float32)
        table[1:] = model.rows
        if n * width * 4 <= 4 * n + table.nbytes:
            dense = np.zeros((n, width), np.float32)
            dense[model.features] = model.rows
            return self.node("Gather", [self.constant("weights", dense), "indices"], "rows")
        places = np.zeros(n, np.int32)
        places[model.features] = np.arange(1, len(table))
        place = self.node("Gather", [self.constant("places", places), "indices"], "place")
        return self.node("Gather", [self.constant("weights", table), place], "rows")

    def _answers(self, model: Scores) -> None:
        if model.classes is None:
            found = self.node("Exp" if model.link == "exp" else "Identity", ["scores"], "predictions")
            self.give(found, "FLOAT", ["batch", model.n_scores], output=True)
            return
        n = len(model.classes)
        if model.link in ("sigmoid", "softmax", "clip"):
            self._probabilities(model)
            self.give("probabilities", "FLOAT", ["batch", n], output=True)
        if model.several:
            above = self.node("Greater", ["scores", self.constant("zero", _floats([0]))], "above")
            self.node("Cast", [above], "label", to=self.onnx.TensorProto.INT64)
            self.give("label", "INT64", ["batch", n], output=True)
            return
        if model.n_scores == 1:
            above = self.node("Greater", ["scores", self.constant("zero", _floats([0]))], "above")
            whole = self.node("Cast", [above], "whole", to=self.onnx.TensorProto.INT64)
            self.node("Squeeze", [whole, "axis_n"], "label")
        else:
            self.node("ArgMax", ["scores"], "label", axis=1, keepdims=0)
        self.give("label", "INT64", ["batch"], output=True)

    def _probabilities(self, model: Scores) -> None:
        slope = self.constant("slope", _floats([0.5 if model.link == "clip" else model.slope]))
        shift = self.constant("shift", _floats([0.5 if model.link == "clip" else model.shift]))
        scaled = self.node("Add", [self.node("Mul", ["scores", slope], "sloped"), shift], "scaled")
        if model.link == "softmax":
            self.node("Softmax", [scaled], "probabilities", axis=1)
            return
        if model.link == "clip":
            bounds = [self.constant("zero_bound", _floats(0.0)), self.constant("one_bound", _floats(1))]
            each = self.node("Clip", [scaled, *bounds], "each")
        else:
            each = self.node("Sigmoid", [scaled], "each")
        if model.several:
            self.node("Identity", [each], "probabilities")
        elif model.n_scores == 1:
            other = self.node("Sub", [self.constant("whole_one", _floats([1])), each], "other")
            self.node("Concat", [other, each], "probabilities", axis=1)
        else:
            total = self.node("ReduceSum", [each, "axis_n"], "total", keepdims=1)
            safe = self.node("Max", [total, self.constant("tiny", _floats([1e-30]))], "safe")
            if model.power == 1:
                self.node("Div", [each, safe], "probabilities")
                return
            # Powers of shares as logarithms: a small power makes much of what is lost of a small share.
            if model.link == "clip":
                logs = self.node("Log", [self.node("Div", [each, safe], "shares")], "log_shares")
            else:
                logs = self.node(
                    "Neg", [self.node("Softplus", [self.node("Neg", [scaled], "other_way")], "soft")], "logs"
                )
                logs = self.node("LogSoftmax", [logs], "log_shares", axis=1)
            floor = self.node("Max", [logs, self.constant("least", _floats([np.log(1e-15)]))], "floor")
            powers = self.node("Mul", [floor, self.constant("power", _floats([model.power]))], "powers")
            self.node("Softmax", [powers], "probabilities", axis=1)

    def factors(self, model: FactorPairs) -> None:
        """Adds the operations of a factor model."""
        for side in ("users", "items"):
            self.give(side, "INT64", ["batch"])
        last = self.constant("axis_last", np.array([1]))
        tables = {"users": model.users.copy(), "items": model.items.copy()}
        for side, table in tables.items():
            self.node("Gather", [self.constant(f"{side}_rows", table[:, 1:]), side], f"{side}_factors")
            self.node("Gather", [self.constant(f"{side}_biases", table[:, 0]), side], f"{side}_bias")
        products = self.node("Mul", ["users_factors", "items_factors"], "products")
        total = self.node("ReduceSum", [products, last], "product", keepdims=0)
        biases = self.node("Add", ["users_bias", "items_bias"], "biases")
        shifted = self.node("Add", [self.node("Add", [total, biases], "inner"), self._number("offset", model)], "raw")
        scored = self.node("Mul", [shifted, self._number("scale", model)], "scored")
        score = self.node("Add", [scored, self._number("mean", model)], "score")
        if model.link == "sigmoid":
            self.node("Sigmoid", [score], "predictions")
        else:
            largest = float(np.finfo(np.float32).max)
            low, high = max(model.low, -largest), min(model.high, largest)
            bounds = [self.constant("low", _floats(low)), self.constant("high", _floats(high))]
            self.node("Clip", [score, *bounds], "predictions")
        self.give("predictions", "FLOAT", ["batch"], output=True)

    def _number(self, name: str, model: FactorPairs) -> str:
        return self.constant(name, _floats([getattr(model, name)]))


def _floats(values: Any) -> Array:
    return np.asarray(values, np.float32)
