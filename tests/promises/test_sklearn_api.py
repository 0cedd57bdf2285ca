"""scikit-learn's own checks, and the ways its users put estimators together."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import steepest as st

ORDER = "a stochastic pass, or a choice of centres, depends on the order of the rows, which repeating rows changes"


def expected_failures(estimator):
    if repr(estimator) == "RBFRegressor()":
        return {}
    kinds = ["dense"] if isinstance(estimator, st.TextClassifier) else ["dense", "sparse"]
    return {f"check_sample_weight_equivalence_on_{kind}_data": ORDER for kind in kinds}


@parametrize_with_checks(
    [
        st.LinearClassifier(),
        st.LinearClassifier("hinge", solver="sgd"),
        st.LinearRegressor(),
        st.NetworkClassifier(),
        st.NetworkRegressor(),
        st.FMClassifier(),
        st.FMRegressor(),
        st.RBFClassifier(),
        st.RBFRegressor(),
        st.KMeans(3),
        st.TextClassifier(n_bits=10, epochs=50, eta0=1.0),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.thorough
@parametrize_with_checks(
    [
        st.LinearClassifier(multi_class="softmax", solver="ftrl"),
        st.LinearRegressor("huber", solver="adagrad"),
        st.FMClassifier(4, fields=True, loss="squared_hinge", normalise=True),
        st.FMRegressor(loss="huber", early_stopping=True),
        st.RBFClassifier(8, init="sample", votes="backprop"),
        st.RBFRegressor(init="all", votes="fixed"),
        st.KMeans(3, solver="lloyd"),
        st.KMeans(3, init="k-means||", batch_size=7),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks_with_other_parameters(estimator, check):
    check(estimator)


def test_pipeline_and_grid_search():
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), st.LinearClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"linearclassifier__alpha": [1e-4, 1e-2]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.95
    assert np.mean(cross_val_score(pipeline, X, y, cv=3)) > 0.95


def test_clone_repr_and_parameters():
    model = st.LinearClassifier("hinge", alpha=0.1, epochs=7)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert repr(model) == "LinearClassifier(loss='hinge', alpha=0.1, epochs=7)"
    assert is_classifier(model)
    assert is_regressor(st.LinearRegressor())
    with pytest.raises(ValueError, match="no parameter 'alhpa'"):
        model.set_params(alhpa=1)


def test_data_frames_keep_their_column_names():
    frame = load_iris(as_frame=True)
    model = st.LinearClassifier(random_state=0).fit(frame.data, frame.target)
    assert model.feature_names_in_.tolist() == frame.data.columns.tolist()
    assert model.top_features(1)[0][0][0] in set(frame.data.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.data[frame.data.columns[::-1]])
