"""Exported models answer as the model does: C when compiled, Python in a bare interpreter, ONNX by its runtime."""

import ctypes
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import steepest as st
from steepest.cli import main
from steepest.export.describe import describe
from steepest.export.pack import pack_weights, reduce_scores, round_counts
from steepest.export.unicode import fold_ranges, word_edges
from steepest.export.write import measure

CC = os.environ.get("CC") or shutil.which("cc")
STRICT = ["-Wall", "-Wextra", "-pedantic", "-std=c99", "-Werror"]
needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler: set CC or install one")
WORDS = [
    "alpha",
    "Beta",
    "gamma_1",
    "délta",
    "ÜBER",
    "Привет",
    "漢字",
    "ΣΊΣΥΦΟΣ",
    "x" * 60,
    "soft\u00adhyphen",
    "İi",
    "42",
]
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, RNG.integers(0, 12))) for _ in range(300)]
TWO = ["spam" if "alpha" in text else "ham" for text in TEXTS]
THREE = RNG.choice(["a", "b", "c"], len(TEXTS)).tolist()
X = RNG.standard_normal((200, 12)).astype(np.float32)
PAIRS = [(f"user-{RNG.integers(20)}", int(RNG.integers(15))) for _ in range(300)]
STARS = RNG.integers(1, 6, len(PAIRS))


def linear(hasher, X=TEXTS, y=TWO, **options):
    return st.LinearClassifier(hasher=hasher, random_state=0, **options).fit(X, y)


MODELS = {
    "words": lambda: linear(st.Hasher(14)),
    "counts": lambda: linear(st.Hasher(14, weighting="count", norm=None, signed=False, lowercase=False)),
    "grams": lambda: linear(st.Hasher(14, ngrams=(1, 3), char_ngrams=(1, 4), stop_words=["beta"], min_token=2)),
    "rare": lambda: linear(st.Hasher(14, ngrams=(1, 2), min_rows=3)),
    "characters": lambda: linear(st.Hasher(12, ngrams=None, char_ngrams=(3, 5), weighting="binary", seed=7)),
    "softmax": lambda: linear(st.Hasher(14), TEXTS, THREE, multi_class="softmax"),
    "several": lambda: linear(
        st.Hasher(14), TEXTS, np.column_stack([np.array(TWO) == "spam", RNG.random(300) < 0.5]) * 1
    ),
    "hinge": lambda: linear(st.Hasher(14), loss="hinge"),
    "numbers": lambda: st.LinearRegressor(random_state=0).fit(X, X @ np.arange(12.0)),
    "poisson": lambda: st.LinearRegressor("poisson", random_state=0).fit(X, RNG.poisson(np.exp(0.3 * X[:, 0]))),
    "text": lambda: st.TextClassifier(n_bits=13, epochs=5, random_state=0).fit(TEXTS, THREE),
    "text-ova": lambda: st.TextClassifier(n_bits=13, epochs=5, loss="ova", random_state=0).fit(TEXTS, TWO),
    "factors": lambda: st.MatrixFactorization(5, random_state=0, epochs=5).fit(PAIRS, STARS),
    "factors-logistic": lambda: st.MatrixFactorization(4, loss="logistic", random_state=0).fit(PAIRS, STARS > 3),
}


@pytest.fixture(scope="module")
def models():
    return {name: make() for name, make in MODELS.items()}


def compiled(source, *flags, cc=CC, run=()):
    """What the test in a C file prints."""
    program = source.with_suffix(".bin")
    subprocess.run([cc, *STRICT, "-O1", "-DSTEEPEST_TEST", *flags, source, "-o", program, "-lm"], check=True)
    done = subprocess.run([*run, program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@needs_compiler
@pytest.mark.build
@pytest.mark.parametrize("name", MODELS)
def test_the_c_file_compiles_without_a_warning_and_gives_the_same_bits_as_the_definition(models, tmp_path, name):
    st.export_model(models[name], tmp_path / "model.c")
    printed = compiled(tmp_path / "model.c")
    assert "largest difference 0," in printed


@needs_compiler
@pytest.mark.build
@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("name", ["grams", "numbers", "text", "factors"])
def test_smaller_numbers_decode_in_c_to_the_same_bits(models, tmp_path, name, precision):
    st.export_model(models[name], tmp_path / "model.c", precision=precision)
    assert "largest difference 0," in compiled(tmp_path / "model.c")


@needs_compiler
@pytest.mark.build
@pytest.mark.parametrize("name", ["words", "grams", "characters"])
def test_c_hashes_every_text_to_the_bits_of_the_hasher(models, tmp_path, name):
    model = models[name]
    st.export_model(model, tmp_path / "model.c", name="spam")
    library = tmp_path / "model.so"
    subprocess.run([CC, *STRICT, "-O1", "-shared", "-fPIC", tmp_path / "model.c", "-o", library, "-lm"], check=True)
    functions = ctypes.CDLL(str(library))
    rng = np.random.default_rng(1)
    letters = [chr(c) for c in range(32, 0x3000)] + [
        "\u200d",
        "\ufeff",
        "漢",
        "\U00020000",
        "\U0001d400",
        "\U00010400",
    ] * 200
    texts = [" ".join(WORDS) * 3, "", "é" * 100, *("".join(rng.choice(letters, 80)) for _ in range(60))]
    coded = [t.encode() for t in texts] + [rng.integers(0, 256, 200, np.uint8).tobytes() for _ in range(60)]
    room = ctypes.create_string_buffer(1 << 17)
    for text in coded:

        class Text(ctypes.Structure):
            _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))

        given = Text(text, len(text))
        assert functions.spam_hash(ctypes.byref(given), room) == 0
        chunk = model.hasher_.to_chunk([text])
        n = len(chunk.indices)
        buckets = np.frombuffer(room, np.uint32, n)
        values = np.frombuffer(room, np.float32, n, 4 * 4096)
        np.testing.assert_array_equal(buckets, chunk.indices)
        np.testing.assert_array_equal(values.view(np.uint32), chunk.values.view(np.uint32))


@needs_compiler
@pytest.mark.build
def test_a_row_with_too_many_features_is_cut_and_says_so(models, tmp_path):
    st.export_model(models["words"], tmp_path / "model.c")
    program = tmp_path / "small"
    flags = ["-DSTEEPEST_TEST", "-DSTEEPEST_MAX_FEATURES=4"]
    subprocess.run([CC, *STRICT, *flags, tmp_path / "model.c", "-o", program, "-lm"], check=True)
    assert subprocess.run([program], capture_output=True).returncode == 1


@pytest.mark.build
@pytest.mark.parametrize(
    ("compiler", "emulator"), [("arm-linux-gnueabihf-gcc", "qemu-arm"), ("s390x-linux-gnu-gcc", "qemu-s390x")]
)
def test_processors_of_32_bits_and_of_the_other_byte_order_give_the_same_scores(models, tmp_path, compiler, emulator):
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        pytest.skip(f"{compiler} or {emulator} is missing: apt-get install qemu-user, and gcc for it")
    for name in ("grams", "text", "factors"):
        st.export_model(models[name], tmp_path / "model.c", precision="int8")
        printed = compiled(tmp_path / "model.c", "-static", cc=compiler, run=[emulator])
        assert float(printed.split("largest difference ")[1].split(",")[0]) <= 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_the_python_file_predicts_as_the_model_does_without_any_package(models, tmp_path, name):
    model, path = models[name], tmp_path / "model.py"
    st.export_model(model, path, to="python")
    given = {"numbers": X, "poisson": X}.get(name, TEXTS)[:40]
    if name.startswith("factors"):
        given = PAIRS[:40]
        lines = [json.dumps(pair) for pair in given]
    elif given is TEXTS[:40] or isinstance(given[0], str):
        lines = given
    else:
        lines = [json.dumps(row if isinstance(row, dict) else dict(enumerate(map(float, row)))) for row in given]
    bare = [sys.executable, "-I", "-S", str(path)]
    done = subprocess.run(bare, input="\n".join(lines) + "\n", capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    expected = model.predict(given)
    if name == "several":
        assert printed == [str(model.classes_[row > 0].tolist()) for row in expected]
    elif expected.dtype.kind in "US":
        assert printed == expected.tolist()
    else:
        np.testing.assert_allclose([float(line) for line in printed], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["words", "softmax", "text", "text-ova", "several"])
def test_python_and_model_agree_on_probabilities(models, name):
    from steepest.export.python_file import plain
    from steepest.export.runtime import Scorer

    model, given = models[name], TEXTS[:30]
    scorer = Scorer(json.loads(json.dumps(plain(describe(model)))))
    found = [scorer.probabilities(row) for row in given]
    np.testing.assert_allclose(found, model.predict_proba(given), atol=1e-5)


def padded(chunk):
    """Rows as ONNX takes them."""
    lengths = np.diff(chunk.indptr)
    indices = np.zeros((len(lengths), max(1, lengths.max())), np.int64)
    values = np.zeros(indices.shape, np.float32)
    for i, n in enumerate(lengths):
        cut = slice(chunk.indptr[i], chunk.indptr[i + 1])
        indices[i, :n], values[i, :n] = chunk.indices[cut], chunk.values[cut]
    return {"indices": indices, "values": values}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("factors", "factors-logistic")])
def test_onnx_runtime_predicts_hashed_rows_as_the_model_does(models, tmp_path, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, path = models[name], tmp_path / "model.onnx"
    st.export_model(model, path, to="onnx")
    session = onnxruntime.InferenceSession(path)
    given = {"numbers": X, "poisson": X}.get(name, TEXTS)
    chunk = st.from_arrays(X).block if given is X else model.hasher_.to_chunk(given)
    found = dict(zip([output.name for output in session.get_outputs()], session.run(None, padded(chunk)), strict=True))
    if given is X:
        np.testing.assert_allclose(found["predictions"][:, 0], model.predict(X), rtol=1e-4, atol=1e-4)
        return
    expected = model.predict(given)
    label = found["label"] if name == "several" else model.classes_[found["label"]]
    np.testing.assert_array_equal(label, expected)
    assert ("probabilities" in found) == hasattr(model, "predict_proba")
    if "probabilities" in found:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(given), atol=1e-5)


@pytest.mark.parametrize("name", ["factors", "factors-logistic"])
def test_onnx_runtime_predicts_pairs_as_the_model_does(models, tmp_path, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = models[name]
    st.export_model(model, tmp_path / "model.onnx", to="onnx")
    places = [{i: k for k, i in enumerate(ids.tolist())} for ids in (model.user_ids_, model.item_ids_)]
    users, items = (np.array([place[pair[side]] for pair in PAIRS]) for side, place in enumerate(places))
    found = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"users": users, "items": items})[0]
    np.testing.assert_allclose(found, model.predict(PAIRS), rtol=1e-4)


def test_the_unicode_tables_are_those_of_the_frozen_hash():
    import unicodedata

    edges, folds = word_edges(), fold_ranges()
    sample = [0xE9, 0xD7, 0x3A3, 0x410, 0x4E2D, 0xFF21, 0x10400, 0x1D400, 0x2028]
    for code in sample:
        is_word = bool(np.searchsorted(edges, code, "right") % 2 == 0)
        assert is_word == (unicodedata.category(chr(code))[0] in "LMN")
    assert any(first <= 0x410 <= last and difference == 32 for first, last, _, difference in folds.tolist())


def test_eight_bits_keep_small_weights_that_even_steps_would_lose():
    rows = np.array([[10.0], [0.05], [-0.02], [0.0]], np.float32)
    packed = pack_weights(rows, "int8")
    assert packed.codes.dtype == np.int8
    np.testing.assert_allclose(packed.restored, rows, atol=0.02, rtol=0.01)
    assert packed.restored[1, 0] > 0 > packed.restored[2, 0]


def test_eight_bits_store_the_largest_weights_exactly_and_the_others_in_finer_steps():
    rng = np.random.default_rng(0)
    few = rng.normal(size=(19, 1)).astype(np.float32) * np.float32([137.4])
    np.testing.assert_array_equal(pack_weights(few, "int8").restored, few)
    many = rng.normal(size=(5000, 2)).astype(np.float32)
    many[:30] *= 1000
    packed = pack_weights(many, "int8")
    assert len(packed.exact) == 64
    np.testing.assert_array_equal(packed.restored[:30][np.abs(many[:30]) > 10], many[:30][np.abs(many[:30]) > 10])
    assert np.abs(packed.restored[30:] - many[30:]).max() < 0.05


def test_rounded_counts_are_few_and_close():
    counts = np.random.default_rng(0).integers(1, 100_000, 20_000).astype(np.uint32)
    rounded = round_counts(counts)
    assert len(np.unique(rounded)) <= 256
    assert np.abs(np.log1p(rounded) - np.log1p(counts)).max() < 0.03
    np.testing.assert_array_equal(round_counts(counts[:200]), counts[:200])


def test_the_measured_accuracy_is_that_of_the_model_and_pruning_keeps_the_heaviest(models):
    model = models["words"]
    source = st.from_arrays(np.zeros((len(TEXTS), 1)), np.array(TWO))  # replaced by hashed rows below
    hashed = model.hasher_.to_chunk(TEXTS, np.array(TWO))
    source = type(source)(hashed)
    whole = describe(model)
    reduced, _ = reduce_scores(whole, "float32")
    assert measure(model, reduced, source)["accuracy"] == pytest.approx(model.score(TEXTS, TWO))
    few, packed = reduce_scores(whole, "int8", 3)
    heaviest = np.argsort(-np.abs(whole.rows[:, 0]))[:3]
    assert set(few.features.tolist()) == set(whole.features[heaviest].tolist())
    assert len(packed.codes) == 3


def test_an_export_that_disagrees_with_its_model_is_never_written(models, tmp_path, monkeypatch):
    monkeypatch.setattr("steepest.export.runtime.K3", 12345)
    with pytest.raises(st.DataError, match="nothing was written"):
        st.export_model(models["grams"], tmp_path / "model.c")
    assert not (tmp_path / "model.c").exists()


def test_what_cannot_be_exported_is_refused_in_one_sentence(models, tmp_path):
    blobs = st.KMeans(2, random_state=0).fit(X)
    with pytest.raises(st.DataError, match="KMeans cannot be exported"):
        st.export_model(blobs, tmp_path / "model.c")
    hashed = st.LinearClassifier(multi_class="hashed", random_state=0).fit(X, RNG.integers(0, 3, len(X)))
    with pytest.raises(st.DataError, match="multi_class='hashed'"):
        st.export_model(hashed, tmp_path / "model.c")
    tree = st.TextClassifier(n_bits=10, loss="hs", epochs=1, random_state=0).fit(TEXTS, THREE)
    with pytest.raises(st.DataError, match="loss='hs'"):
        st.export_model(tree, tmp_path / "model.c")
    with pytest.raises(st.DataError, match="not fitted"):
        st.export_model(st.LinearClassifier(), tmp_path / "model.c")
    for bad in ({"to": "java"}, {"precision": "int4"}, {"keep": 0}, {"name": "9x"}):
        with pytest.raises(st.ParameterError, match=next(iter(bad))):
            st.export_model(models["words"], tmp_path / "model.c", **bad)
    with pytest.raises(st.ParameterError, match="keep=5"):
        st.export_model(models["factors"], tmp_path / "model.c", keep=5)


def test_the_shell_exports_and_reports_the_cost_of_each_precision(models, tmp_path, capsys):
    data, model = tmp_path / "rows.csv", tmp_path / "model.steepest"
    lines = [f"{label},{text}" for label, text in zip(TWO, TEXTS, strict=True) if text]
    data.write_text("label,text\n" + "\n".join(lines), encoding="utf-8")
    assert main(["train", str(data), "--text", "text", "-m", str(model), "--n-bits", "14", "--random-state", "0"]) == 0
    capsys.readouterr()
    assert main(["export", str(model), "--to", "c", "--precision", "int8", "--check", str(data)]) == 0
    report = capsys.readouterr().err
    assert (tmp_path / "model.c").is_file()
    assert {"float32", "float16", "int8"} <= {line.split()[0] for line in report.splitlines()[2:]}
    assert main(["export", str(model), "--to", "python", "-o", str(model)]) == 2
    assert "is the model itself" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "missing"), "--to", "c"]) == 2


@pytest.mark.parametrize("options", [{}, {"loss": "hinge"}, {"multi_class": "softmax"}], ids=str)
def test_exported_probabilities_are_the_calibrated_ones(options):
    from steepest.export.python_file import plain
    from steepest.export.runtime import Scorer

    rng = np.random.default_rng(3)
    several = "multi_class" in options
    y = rng.integers(0, 3 if several else 2, 400)
    rows = (rng.standard_normal((400, 40)) + y[:, None] / 4).astype(np.float32)
    model = st.LinearClassifier(epochs=100, alpha=1e-7, random_state=0, **options).fit(rows[:100], y[:100])
    model.calibrate_on(rows[100:], y[100:])
    assert model.calibration_.kind != "none"
    scorer = Scorer(plain(describe(model)))
    found = [scorer.probabilities(row.tolist()) for row in rows[:20]]
    np.testing.assert_allclose(found, model.predict_proba(rows[:20]), atol=1e-5)
    if hasattr(model, "predict_proba") and "loss" not in options:
        assert np.abs(found - model.predict_proba(rows[:20], calibrated=False)).max() > 0.01


def test_calibrated_shares_of_one_against_the_rest_are_powers_of_the_models_own(tmp_path):
    from steepest.export.python_file import plain
    from steepest.export.runtime import Scorer

    rng = np.random.default_rng(4)
    y = rng.integers(0, 3, 400)
    rows = (rng.standard_normal((400, 40)) + y[:, None] / 4).astype(np.float32)
    model = st.LinearClassifier("log", epochs=100, alpha=1e-7, random_state=0).fit(rows[:100], y[:100])
    model.calibrate_on(rows[100:], y[100:])
    assert model.calibration_.kind == "temperature"
    expected = model.predict_proba(rows[:20])
    scorer = Scorer(plain(describe(model)))
    np.testing.assert_allclose([scorer.probabilities(row.tolist()) for row in rows[:20]], expected, atol=1e-5)
    onnxruntime = pytest.importorskip("onnxruntime")
    st.export_model(model, tmp_path / "model.onnx", to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(["probabilities"], padded(st.from_arrays(rows[:20]).block))[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
