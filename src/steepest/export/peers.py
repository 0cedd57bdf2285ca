"""Models of the peers become ours and give the same predictions: scikit-learn, LIBLINEAR and fastText.

Only data are read, no pickles. A model of ours that came from a peer predicts, explains, is saved and exported as any
other. fastText's words have another hash than ours, so its models come back as a class of their own, `FastTextModel`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.source import from_arrays
from steepest.engine.history import History
from steepest.errors import DataError
from steepest.export.fasttext_model import FastTextModel
from steepest.learners.targets import distinct
from steepest.models.linear import LinearClassifier, LinearRegressor

SKLEARN = {
    "LogisticRegression": "log",
    "LogisticRegressionCV": "log",
    "LinearSVC": "squared_hinge",
    "SGDClassifier": None,  # by its own parameter
    "Perceptron": "perceptron",
    "RidgeClassifier": "squared_hinge",
    "Ridge": "squared",
    "LinearRegression": "squared",
    "Lasso": "squared",
    "ElasticNet": "squared",
    "SGDRegressor": "squared",
    "LinearSVR": "epsilon_insensitive",
}
SKLEARN_LOSSES = ("log_loss", "hinge", "squared_hinge", "modified_huber", "perceptron")
SOLVERS = {
    "L2R_LR": "log",
    "L2R_LR_DUAL": "log",
    "L1R_LR": "log",
    "L2R_L2LOSS_SVC": "squared_hinge",
    "L2R_L2LOSS_SVC_DUAL": "squared_hinge",
    "L1R_L2LOSS_SVC": "squared_hinge",
    "L2R_L1LOSS_SVC_DUAL": "hinge",
    "MCSVM_CS": "hinge",
    "L2R_L2LOSS_SVR": "epsilon_insensitive",
    "L2R_L2LOSS_SVR_DUAL": "epsilon_insensitive",
    "L2R_L1LOSS_SVR_DUAL": "epsilon_insensitive",
}
LARGEST_HEADER = 64  # lines of a LIBLINEAR file before its weights


def from_sklearn(estimator: Any) -> LinearClassifier | LinearRegressor:
    """Converts a fitted linear model of scikit-learn; the result makes the same predictions.

    Supported: LogisticRegression, LinearSVC, SGDClassifier, Perceptron, RidgeClassifier, and Ridge, LinearRegression,
    Lasso, ElasticNet, SGDRegressor, LinearSVR. Probabilities are the same for the log loss, and for modified_huber with
    two classes. Of a Pipeline, pass the last step, and apply the others to the rows first.

    Examples
    --------
    >>> import steepest as st
    >>> from sklearn.linear_model import LogisticRegression
    >>> theirs = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> st.from_sklearn(theirs).predict([[0.5], [2.5]]).tolist()
    ['no', 'yes']
    """
    name = type(estimator).__name__
    if name not in SKLEARN:
        raise DataError(f"a {name} cannot be converted; {', '.join(SKLEARN)} can")
    if not hasattr(estimator, "coef_"):
        raise DataError(f"this {name} is not fitted; call fit before converting it")
    coef = estimator.coef_
    weights = np.atleast_2d(np.asarray(coef.toarray() if hasattr(coef, "toarray") else coef, np.float64))
    bias = np.broadcast_to(np.atleast_1d(np.asarray(estimator.intercept_, np.float64)), (len(weights),))
    if not hasattr(estimator, "classes_"):
        return linear_model(weights, bias, None, SKLEARN[name] or "squared")
    loss = SKLEARN[name]
    if name == "SGDClassifier":
        loss = estimator.loss.removesuffix("_loss")
        if estimator.loss not in SKLEARN_LOSSES:
            raise DataError(f"SGDClassifier(loss={estimator.loss!r}) is not supported; use 'log_loss' or 'hinge'")
    softmax = name.startswith("LogisticRegression") and len(weights) > 1
    return linear_model(weights, bias, np.asarray(estimator.classes_), str(loss), softmax=softmax)


def from_liblinear(path: str | Path) -> LinearClassifier | LinearRegressor:
    """Converts a model file of LIBLINEAR's `train`; the result makes the same predictions.

    Solvers 0 to 7 and 11 to 13; the weight of LIBLINEAR's bias feature (`-B`) becomes our bias. Columns are counted
    from 0 here and from 1 in LIBLINEAR's data, which `scan_libsvm` takes care of.

    Examples
    --------
    >>> import steepest as st, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "theirs.model")
    >>> header = "solver_type L2R_LR\\nnr_class 2\\nlabel 1 -1\\nnr_feature 2\\nbias -1\\nw\\n"
    >>> _ = open(path, "w").write(header + "0.5\\n-0.5\\n")
    >>> st.from_liblinear(path).predict([[3.0, 0.0], [0.0, 3.0]]).tolist()
    [1, -1]
    """
    header: dict[str, list[str]] = {}
    try:
        with open(path, encoding="ascii") as file:
            for _ in range(LARGEST_HEADER):
                words = file.readline().split()
                if not words or words[0] == "w":
                    break
                header[words[0]] = words[1:]
            values = np.array(file.read().split(), np.float64)
        solver, n_features = header["solver_type"][0], int(header["nr_feature"][0])
        n_classes, bias_value = int(header["nr_class"][0]), float(header["bias"][0])
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except (KeyError, IndexError, ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a model file of LIBLINEAR ({error}); give one that its train wrote") from None
    if solver not in SOLVERS:
        raise DataError(f"{path} has the solver {solver}, which is not supported; {', '.join(SOLVERS)} have")
    regression = solver.endswith(("SVR", "SVR_DUAL"))
    n_columns = 1 if regression or (n_classes == 2 and solver != "MCSVM_CS") else n_classes
    n_rows = n_features + (bias_value >= 0)
    if n_features < 1 or len(values) != n_rows * n_columns or not np.isfinite(values).all():
        raise DataError(f"{path} holds {len(values)} weights of {n_rows * n_columns}, or bad ones; get a fresh copy")
    table = values.reshape(n_rows, n_columns).T
    bias = table[:, -1] * bias_value if bias_value >= 0 else np.zeros(n_columns)
    weights = table[:, :n_features]
    if regression:
        return linear_model(weights, bias, None, SOLVERS[solver])
    labels = np.array([int(label) for label in header.get("label", [])])
    if len(labels) != n_classes or n_classes < 2 or len(set(labels.tolist())) != n_classes:
        raise DataError(f"{path} names {len(labels)} labels for {n_classes} classes; get a fresh copy")
    order = np.argsort(labels)
    if n_columns == 1:  # its score is for the first label, ours for the second in order
        sign = 1.0 if order[1] == 0 else -1.0
        return linear_model(sign * weights, sign * bias, labels[order], SOLVERS[solver])
    weights, bias = weights[order], bias[order]
    if n_classes == 2:  # two columns of two classes are one, their difference
        weights, bias = weights[1:] - weights[:1], bias[1:] - bias[:1]
    return linear_model(weights, bias, labels[order], SOLVERS[solver])


def from_fasttext(path: str | Path) -> FastTextModel:
    """Opens a supervised model file of fastText (`.bin`, not quantized), with the same labels and probabilities.

    Examples
    --------
    >>> import steepest as st
    >>> st.from_fasttext("no-such.bin")
    Traceback (most recent call last):
    ...
    steepest.errors.DataError: no-such.bin cannot be read (No such file or directory); check the path
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    try:
        return FastTextModel.from_bytes(content)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError, MemoryError) as error:
        raise DataError(f"{path} is not a supervised model of fastText ({error}); give a .bin file") from None


def linear_model(
    weights: Array, bias: Array, classes: Array | None, loss: str, *, softmax: bool = False
) -> LinearClassifier | LinearRegressor:
    """Builds our linear model from these weights, one row per output in the order of the classes."""
    n_features = weights.shape[1]
    options: dict[str, Any] = {"dtype": "float64", "random_state": 0, "solver": "sgd", "average": False}
    model: Any
    if classes is None:
        model = LinearRegressor(loss, **options)
        y: Any = np.zeros((2, len(weights))) if len(weights) > 1 else np.zeros(2)
    else:
        model = LinearClassifier(loss, multi_class="softmax" if softmax else "ovr", **options)
        y = classes
    source = from_arrays(np.zeros((len(y), n_features), np.float32), y)
    if classes is not None:
        source.labels = distinct(classes)
    learner = model.new_learner(model.settings_for(None), source)
    learner.announce(source.block)
    learner.take_weights(weights.T, bias)
    learner.rows_learned = 1
    model.adopt(learner, History(), source)
    return model  # type: ignore[no-any-return]
