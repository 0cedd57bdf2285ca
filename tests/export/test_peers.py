"""Models of scikit-learn, LIBLINEAR and fastText predict the same here; their files are written by our own writers."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from sklearn import linear_model as sk
from sklearn.svm import LinearSVC, LinearSVR

import steepest as st

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 8))
TWO = np.where(X[:, 0] + 0.5 * RNG.standard_normal(300) > 0, "yes", "no")
THREE = RNG.integers(0, 3, 300) * 10
NUMBERS = X @ np.arange(8.0) + 1

CLASSIFIERS = [
    sk.LogisticRegression(),
    sk.SGDClassifier(loss="log_loss", random_state=0),
    sk.SGDClassifier(loss="hinge", random_state=0),
    sk.SGDClassifier(loss="modified_huber", random_state=0),
    LinearSVC(),
    sk.Perceptron(),
    sk.RidgeClassifier(),
]
REGRESSORS = [sk.Ridge(), sk.LinearRegression(), sk.Lasso(0.1), sk.ElasticNet(0.1), sk.SGDRegressor(), LinearSVR()]


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("theirs", CLASSIFIERS, ids=repr)
def test_classifiers_of_scikit_learn_predict_the_same_here(theirs, y, tmp_path):
    theirs = theirs.fit(X, y)
    ours = st.from_sklearn(theirs)
    X32 = X.astype(np.float32)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X32))
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X32), rtol=1e-5, atol=1e-5)
    if "log" in str(getattr(theirs, "loss", "log")) and hasattr(theirs, "predict_proba"):
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X32), atol=1e-5)
    ours.save(tmp_path / "m.steepest")
    np.testing.assert_array_equal(st.load(tmp_path / "m.steepest").predict(X), ours.predict(X))


@pytest.mark.parametrize("theirs", REGRESSORS, ids=repr)
def test_regressors_of_scikit_learn_predict_the_same_here(theirs):
    theirs = theirs.fit(X, NUMBERS)
    np.testing.assert_allclose(
        st.from_sklearn(theirs).predict(X), theirs.predict(X.astype(np.float32)), rtol=1e-5, atol=1e-5
    )


def test_several_targets_of_scikit_learn_come_along():
    theirs = sk.Ridge().fit(X, np.column_stack([NUMBERS, -NUMBERS]))
    np.testing.assert_allclose(st.from_sklearn(theirs).predict(X), theirs.predict(X), rtol=1e-4, atol=1e-4)


def write_liblinear(path, solver, labels, weights, bias):
    """As LIBLINEAR's save_model writes it: a column per class, or one for two classes."""
    lines = [f"solver_type {solver}", f"nr_class {max(2, len(labels))}"]
    lines += [f"label {' '.join(map(str, labels))}"] if len(labels) else []
    lines += [f"nr_feature {len(weights) - (bias >= 0)}", f"bias {bias}", "w"]
    lines += [" ".join(f"{w:.17g}" for w in row) + " " for row in weights]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("bias", [-1, 1, 2.5])
@pytest.mark.parametrize("labels", [[1, -1], [-1, 1], [7, 3, 5]])
def test_a_liblinear_file_predicts_as_its_own_formula_says(tmp_path, labels, bias):
    columns = 1 if len(labels) == 2 else len(labels)
    weights = RNG.standard_normal((8 + (bias >= 0), columns))
    write_liblinear(tmp_path / "m", "L2R_LR", labels, weights, bias)
    rows = np.column_stack([X, np.full(len(X), bias)]) if bias >= 0 else X
    scores = rows.astype(np.float32) @ weights
    best = np.where(scores[:, 0] > 0, 0, 1) if columns == 1 else scores.argmax(axis=1)
    ours = st.from_liblinear(tmp_path / "m")
    np.testing.assert_array_equal(ours.predict(X), np.array(labels)[best])
    np.testing.assert_array_equal(ours.classes_, sorted(labels))
    if columns == 1:
        p = 1 / (1 + np.exp(-scores[:, 0]))
        np.testing.assert_allclose(ours.predict_proba(X)[:, sorted(labels).index(labels[0])], p, atol=1e-5)


def test_a_liblinear_file_of_a_regression_predicts_numbers(tmp_path):
    weights = RNG.standard_normal((9, 1))
    write_liblinear(tmp_path / "m", "L2R_L2LOSS_SVR", [], weights, 1)
    expected = X.astype(np.float32) @ weights[:8, 0] + weights[8, 0]
    np.testing.assert_allclose(st.from_liblinear(tmp_path / "m").predict(X), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("solver", [0, 2, 3, 4, 5])
@pytest.mark.parametrize("y", [np.where(TWO == "yes", 1, -1), THREE], ids=["two", "three"])
def test_the_real_liblinear_predicts_the_same(tmp_path, solver, y):
    liblinear = pytest.importorskip("liblinear.liblinearutil", reason="liblinear-official is in the bench extra")
    theirs = liblinear.train(y.tolist(), X.tolist(), f"-s {solver} -B 1 -q")
    liblinear.save_model(str(tmp_path / "m"), theirs)
    labels, _, _ = liblinear.predict([], X.astype(np.float32).astype(float).tolist(), theirs, "-q")
    np.testing.assert_array_equal(st.from_liblinear(tmp_path / "m").predict(X), np.array(labels, int))


def fnv(word):
    code = 2166136261
    for byte in word:
        code = ((code ^ (struct.unpack("b", bytes([byte]))[0] & 0xFFFFFFFF)) * 16777619) % (1 << 32)
    return code


def write_fasttext(path, words, labels, rows, head, *, ngrams=1, bucket=0, minn=0, maxn=0, loss=3):
    """As fastText's saveModel writes it."""
    dim = head.shape[1]
    content = struct.pack("<ii", 793712314, 12)
    content += struct.pack("<12id", dim, 5, 5, 1, 5, ngrams, loss, 3, bucket, minn, maxn, 100, 1e-4)
    content += struct.pack("<iiiqq", len(words) + len(labels), len(words), len(labels), 100, -1)
    for kind, entries in ((0, words), (1, labels)):
        for k, entry in enumerate(entries):
            content += entry.encode() + b"\0" + struct.pack("<qb", 100 - k, kind)
    for matrix in (rows, head):
        content += struct.pack("<?qq", False, *matrix.shape) + matrix.astype("<f4").tobytes()
    path.write_bytes(content)


def test_a_fasttext_file_predicts_as_its_own_formula_says(tmp_path):
    words, labels = ["</s>", "good", "bad", "été"], ["__label__pos", "__label__neg"]
    rows, head = RNG.standard_normal((4 + 50, 6)), RNG.standard_normal((2, 6))
    write_fasttext(tmp_path / "m.bin", words, labels, rows, head, ngrams=2, bucket=50)
    signed = [h - (1 << 32) if h >> 31 else h for h in (fnv(w.encode()) for w in ("été", "good", "</s>"))]
    grams = [4 + ((a * 116049371 + b) % (1 << 64)) % 50 for a, b in pairwise(signed)]
    hidden = rows.astype(np.float32)[[3, 1, 0, *grams]].mean(axis=0)
    scores = head.astype(np.float32) @ hidden
    model = st.from_fasttext(tmp_path / "m.bin")
    p = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(model.predict_proba(["été good"])[0], p, rtol=1e-4)
    assert model.predict(["été good"])[0] == labels[int(p.argmax())]


FASTTEXT = {
    "words": {},
    "word n-grams": {"ngrams": 3, "bucket": 40},
    "character n-grams": {"minn": 2, "maxn": 4, "bucket": 40},
    "both": {"ngrams": 2, "minn": 1, "maxn": 5, "bucket": 40},
    "tree": {"loss": 1},
    "one against all": {"loss": 4, "ngrams": 2, "bucket": 40},
}


@pytest.mark.parametrize("name", FASTTEXT)
def test_the_real_fasttext_predicts_the_same_from_the_same_file(tmp_path, name):
    fasttext = pytest.importorskip("fasttext", reason="fasttext-numpy2 is in the bench extra")
    rng, options = np.random.default_rng(5), FASTTEXT[name]
    words = ["</s>", "alpha", "beta", "délta", "漢字", "x1", "hello,", "World"]
    labels = [f"__label__{letter}" for letter in "abcde"]
    rows = rng.standard_normal((len(words) + options.get("bucket", 0), 6))
    write_fasttext(tmp_path / "m.bin", words, labels, rows, rng.standard_normal((5, 6)), **options)
    theirs, ours = fasttext.load_model(str(tmp_path / "m.bin")), st.from_fasttext(tmp_path / "m.bin")
    asked = [" ".join(rng.choice([*words[1:], "unseen", "ß"], 5)) for _ in range(40)]
    asked += ["", "  alpha   x1 ", "__label__a alpha", "</s> beta"]
    for text, p in zip(asked, ours.predict_proba(asked), strict=True):
        given = dict(zip(*theirs.predict(text, k=5), strict=True))
        mine = dict(zip(ours.classes_.tolist(), p.tolist(), strict=True))
        assert len(given) == 5
        for label, share in given.items():  # fastText adds 0.00001 to each
            assert mine[label] == pytest.approx(share, abs=5e-5), text


def test_bad_files_are_refused_in_one_sentence(tmp_path):
    bad = tmp_path / "bad"
    for content in (b"", b"solver_type L2R_LR\n", b"\xff\xfe", b"nr_class 2\nlabel 1 -1\nw\n1 2 3\n"):
        bad.write_bytes(content)
        for read in (st.from_liblinear, st.from_fasttext):
            with pytest.raises(st.DataError, match=r"bad "):
                read(bad)
    write_liblinear(bad, "ONECLASS_SVM", [1, -1], np.ones((2, 1)), -1)
    with pytest.raises(st.DataError, match="ONECLASS_SVM"):
        st.from_liblinear(bad)
    write_liblinear(bad, "L2R_LR", [1, 1], np.ones((2, 1)), -1)
    with pytest.raises(st.DataError, match="labels"):
        st.from_liblinear(bad)
    write_fasttext(bad, ["</s>"], ["__label__a"], np.ones((1, 3)), np.ones((1, 3)))
    whole = bad.read_bytes()
    for size in range(0, len(whole), 7):
        bad.write_bytes(whole[:size])
        with pytest.raises(st.DataError, match="fastText"):
            st.from_fasttext(bad)
    with pytest.raises(st.DataError, match="not fitted"):
        st.from_sklearn(sk.Ridge())
    with pytest.raises(st.DataError, match="cannot be converted"):
        st.from_sklearn(object())


def test_mlflow_loads_a_model_as_its_own_flavour_and_as_a_function_of_rows(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is in the mlflow extra")
    pandas = pytest.importorskip("pandas")
    from steepest.export import mlflow as flavor

    texts = ["cheap pills", "lunch at noon", "cheap cash", "see you at lunch"] * 10
    model = st.LinearClassifier(hasher=st.Hasher(12), random_state=0).fit(texts, ["spam", "ham"] * 20)
    flavor.save_model(model, tmp_path / "model")
    np.testing.assert_array_equal(flavor.load_model(tmp_path / "model").predict(texts), model.predict(texts))
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert list(loaded.predict(pandas.DataFrame({"text": texts}))) == model.predict(texts).tolist()
    assert "steepest" in (tmp_path / "model" / "MLmodel").read_text()
    with pytest.raises(st.DataError, match="not empty"):
        flavor.save_model(model, tmp_path / "model")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = flavor.log_model(model, name="spam")
    back = mlflow.pyfunc.load_model(logged.model_uri)
    assert list(back.predict(pandas.DataFrame({"text": texts}))) == model.predict(texts).tolist()
