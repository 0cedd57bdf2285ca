"""MLflow: steepest models as a flavour, and as a pyfunc that any MLflow tool can load and serve.

    steepest.export.mlflow.log_model(model, name="model")       # in an active run
    mlflow.pyfunc.load_model(uri).predict(rows)                 # texts, a DataFrame, or an array

The artifact is the model file itself (data only, nothing is unpickled) beside MLflow's own description of it.
"""

from __future__ import annotations

from inspect import signature as signature_of
from pathlib import Path
from typing import Any

from steepest.errors import DataError
from steepest.models.base import load

FLAVOR = "steepest"
FILE = "model.steepest"


def save_model(
    model: Any,
    path: str | Path,
    *,
    mlflow_model: Any = None,
    signature: Any = None,
    input_example: Any = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Writes a fitted model to a directory as MLflow lays it out; the directory must not exist, or be empty."""
    mlflow = _mlflow()
    import steepest

    directory = Path(path)
    if directory.is_dir() and any(directory.iterdir()):
        raise DataError(f"{directory} is not empty; give a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    model.save(directory / FILE)
    described = mlflow.models.Model() if mlflow_model is None else mlflow_model
    if signature is not None:
        described.signature = signature
    if metadata is not None:
        described.metadata = metadata
    if input_example is not None:
        described.saved_input_example_info = None
    mlflow.pyfunc.add_to_model(described, loader_module=__name__, data=FILE, pip_requirements=None)
    described.add_flavor(FLAVOR, steepest_version=steepest.__version__, data=FILE, model_class=type(model).__name__)
    described.save(str(directory / "MLmodel"))
    (directory / "requirements.txt").write_text(f"mlflow\nsteepest=={steepest.__version__}\n", encoding="utf-8")


def log_model(model: Any, name: str = "model", **options: Any) -> Any:
    """Saves a fitted model as an artifact of the active run; options as for `mlflow.models.Model.log`."""
    import steepest.export.mlflow as flavor

    log = _mlflow().models.Model.log
    # From version 3 on models have names, and the path, still the first argument, is left empty.
    place = {"artifact_path": None, "name": name} if "name" in signature_of(log).parameters else {"artifact_path": name}
    return log(**place, flavor=flavor, model=model, **options)


def load_model(path: str | Path) -> Any:
    """Loads the estimator that `save_model` wrote, from a directory or one of MLflow's addresses."""
    text = str(path)
    if not Path(text).exists():
        text = str(_mlflow().artifacts.download_artifacts(artifact_uri=text))
    return load(Path(text) / FILE)


def _load_pyfunc(path: str) -> _Predictor:
    """Loads a model for `mlflow.pyfunc.load_model`; `path` is the model file."""
    return _Predictor(load(Path(path) / FILE if Path(path).is_dir() else path))


class _Predictor:
    """A model with the methods that MLflow calls."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Returns predictions, or probabilities with `params={"proba": True}`."""
        X = model_input
        hasher = getattr(self.model, "hasher_", None)
        if hasher is not None and hasattr(X, "columns") and [column.name for column in hasher.columns_] == [""]:
            X = X.iloc[:, 0].tolist()  # a model of bare texts, and MLflow's table of one column
        return self.model.predict_proba(X) if (params or {}).get("proba") else self.model.predict(X)


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.models
        import mlflow.pyfunc
    except ImportError:
        raise DataError("this needs MLflow; install it with: pip install 'steepest[mlflow]'") from None
    return mlflow
