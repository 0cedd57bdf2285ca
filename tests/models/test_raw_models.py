"""From raw files to models: text and tables in, names out, in Python and on the command line."""

from __future__ import annotations

import copy
import io
import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import steepest as st
from steepest.cli import main
from steepest.features.names import NameBook

SPAM = ["cheap pills", "win cash now", "free money today", "cheap cash offer", "free pills now"]
HAM = ["meeting at noon", "lunch with anna", "the report is ready", "see you at noon", "notes of the meeting"]


def reviews(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        spam = bool(rng.random() < 0.5)
        words = " ".join(rng.choice(SPAM if spam else HAM, 2))
        rows.append({"label": "spam" if spam else "ham", "text": words, "user": int(rng.integers(0, 5)), "size": 1.5})
    return rows


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def jsonl(tmp_path):
    return written(tmp_path / "mails.jsonl", reviews(3000))


def test_a_raw_file_becomes_a_model_that_names_its_words(jsonl):
    model = st.LinearClassifier(random_state=0).fit_stream(st.scan(jsonl, text="text"))
    assert model.score([row["text"] for row in reviews(200, 1)], [row["label"] for row in reviews(200, 1)]) > 0.99
    assert {"cash", "pills", "cheap"} & {name for name, _ in model.top_features(6)["spam"]}
    parts = model.explain("free lunch")["spam"]
    assert {part.name for part in parts} == {"free", "lunch"}
    assert parts[0].contribution == pytest.approx(parts[0].value * parts[0].weight)
    assert "of the weight is named" in str(model.collision_report())


def test_streamed_and_in_memory_learn_the_same_bits(jsonl):
    rows = reviews(3000)
    hasher = st.Hasher(n_bits=16, ngrams=(1, 2), text="text", categorical="user")
    options = dict(hasher=hasher, shuffle="never", epochs=2, random_state=0)
    streamed = st.LinearClassifier(**options).fit_stream(st.scan(jsonl, text="text", categorical="user"))
    loaded = st.LinearClassifier(**options).fit(rows, [row["label"] for row in rows])
    np.testing.assert_array_equal(streamed.coef_, loaded.coef_)


def test_the_hasher_travels_in_the_model_file(jsonl, tmp_path):
    model = st.LinearClassifier(hasher=st.Hasher(n_bits=15, names=500), random_state=0)
    model.fit_stream(st.scan(jsonl, text="text")).save(tmp_path / "m")
    loaded = st.load(tmp_path / "m")
    texts = ["cheap cash", "see anna at noon"]
    np.testing.assert_array_equal(model.decision_function(texts), loaded.decision_function(texts))
    assert model.top_features(5) == loaded.top_features(5)


def test_tf_idf_counts_each_row_once_whatever_the_epochs(jsonl):
    hasher = st.Hasher(n_bits=12, weighting="tfidf")
    model = st.LinearClassifier(hasher=hasher, epochs=3, random_state=0).fit_stream(st.scan(jsonl, text="text"))
    assert model.hasher_.n_documents_ == 3000
    assert not hasattr(hasher, "document_counts_")  # the hasher given is left as it was


def test_crosses_personalise(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["text,user,label"]
    for _ in range(4000):
        user, word = rng.integers(0, 2), rng.choice(["red", "blue"])
        lines.append(f"{word} things,{user},{int((word == 'red') == (user == 1))}")
    path = tmp_path / "taste.csv"
    path.write_text("\n".join(lines))
    model = tmp_path / "m"
    for cross, least, most in (([], 0.2, 0.8), (["--cross", "text,user"], 0.99, 1.0)):
        arguments = ["--text", "text", "--categorical", "user", "--bits", "16", *cross]
        assert main(["train", str(path), "-m", str(model), *arguments]) == 0
        accuracy = st.load(model).evaluate_stream(st.scan(path, **st.load(model).recipe_))["accuracy"]
        assert least <= accuracy <= most


def test_the_command_line_from_raw_file_to_explanation(jsonl, tmp_path, capsys):
    model = str(tmp_path / "m.steepest")
    assert main(["train", str(jsonl), "-m", model, "--text", "text", "--ngrams", "1,2", "--bits", "18"]) == 0
    assert main(["evaluate", model, str(jsonl), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.99
    unlabelled = tmp_path / "new.jsonl"
    unlabelled.write_text('{"text": "win cash"}\n{"text": "the meeting"}\n')
    assert main(["predict", model, str(unlabelled)]) == 0
    assert capsys.readouterr().out.split() == ["spam", "ham"]
    assert main(["explain", model, "cheap pills at noon"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("for ")
    assert "noon" in shown
    assert main(["inspect", model, "--top", "3"]) == 0
    assert "top features for spam" in capsys.readouterr().out


def test_fasttext_files_with_several_labels(tmp_path, capsys):
    path, model = tmp_path / "tags.txt", tmp_path / "m"
    path.write_text("__label__a __label__b one two\n__label__a one\n__label__b two\n" * 300)
    assert main(["train", str(path), "-m", str(model), "--epochs", "10"]) == 0
    loaded = st.load(model)
    assert loaded.classes_.tolist() == ["a", "b"]
    assert loaded.predict(["one two", "one", "two"]).tolist() == [[1, 1], [1, 0], [0, 1]]


def test_vw_files_train_too(tmp_path):
    path, model = tmp_path / "rows.vw", tmp_path / "m"
    path.write_text("1 |w cheap pills\n-1 |w the meeting\n1 2.0 |w free cash\n-1 |w lunch now\n" * 200)
    assert main(["train", str(path), "-m", str(model), "--loss", "hinge"]) == 0
    assert st.load(model).classes_.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "body"], "no column 'body'"),
        (["--label", "stars"], "no column 'stars'"),
        (["--text", "text", "--ngrams", "2,1"], "--ngrams 2,1 must be"),
        (["--text", "text", "--bits", "50"], "--bits 50"),
        (["--text", "text", "--cross", "text,nobody"], "'nobody'"),
    ],
)
def test_bad_columns_and_hashers_are_one_sentence(jsonl, tmp_path, capsys, arguments, message):
    assert main(["train", str(jsonl), "-m", str(tmp_path / "m"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_raw_rows_need_a_model_with_a_hasher(jsonl, tmp_path):
    model = st.LinearClassifier(random_state=0).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(st.DataError, match="trained without a hasher"):
        list(model.predict_stream(st.scan(jsonl)))
    with pytest.raises(st.ParameterError, match="is not a Hasher"):
        st.LinearClassifier(hasher="words").fit(["a b"], [1])


@pytest.mark.parametrize("weighting", ["count", "tfidf"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_hasher_that_learns_reuses_its_cache_to_the_same_model(jsonl, tmp_path, weighting, early_stopping):
    def fit():
        hasher = st.Hasher(n_bits=15, names=500, weighting=weighting)
        model = st.LinearClassifier(hasher=hasher, early_stopping=early_stopping, random_state=0)
        source = st.scan(jsonl, text="text").cache(tmp_path / "rows.cache")
        return model.fit_stream(source), source

    built, _ = fit()
    written = (tmp_path / "rows.cache").stat().st_mtime_ns
    found, source = fit()
    assert (tmp_path / "rows.cache").stat().st_mtime_ns == written
    assert source.note == ""
    np.testing.assert_array_equal(built.coef_, found.coef_)
    assert built.top_features(20) == found.top_features(20)
    texts = ["cheap cash", "see anna at noon"]
    np.testing.assert_array_equal(built.decision_function(texts), found.decision_function(texts))


def test_a_cache_of_another_hasher_is_built_anew(jsonl, tmp_path):
    for ngrams in ((1, 1), (1, 2)):
        source = st.scan(jsonl, text="text").cache(tmp_path / "rows.cache")
        st.LinearClassifier(hasher=st.Hasher(n_bits=15, ngrams=ngrams), random_state=0).fit_stream(source)
    assert source.note.endswith("was made with other options: rebuilt")


def test_held_out_rows_of_other_files_are_weighed_by_the_training_rows(jsonl, tmp_path):
    held = st.scan(jsonl, text="text").limit(500)
    hasher = st.Hasher(n_bits=15, weighting="tfidf")
    cached, plain = (st.LinearClassifier(hasher=hasher, epochs=2, random_state=0) for _ in range(2))
    plain.fit_stream(st.scan(jsonl, text="text"), held)
    for _ in range(2):
        cached.fit_stream(st.scan(jsonl, text="text"), held.cache(tmp_path / "held.cache"))
        assert cached.history_[1]["holdout_loss"] == pytest.approx(plain.history_[1]["holdout_loss"])


@pytest.mark.parametrize("weighting", ["auto", "tfidf", "count"])
def test_a_cache_of_another_model_of_the_same_kind_is_not_believed(jsonl, tmp_path, weighting):
    rows = jsonl.read_text().splitlines()
    (tmp_path / "half.jsonl").write_text("\n".join(rows[: len(rows) // 2]))
    hasher, cache = st.Hasher(n_bits=16, weighting=weighting), tmp_path / "rows.cache"
    models = [
        st.LinearClassifier(hasher=hasher, random_state=0).fit_stream(st.scan(path))
        for path in (jsonl, tmp_path / "half.jsonl")
    ]
    for model in models:
        fresh = np.concatenate(list(model.predict_stream(st.scan(jsonl), proba=True)))
        cached = np.concatenate(list(model.predict_stream(st.scan(jsonl).cache(cache), proba=True)))
        np.testing.assert_array_equal(cached, fresh)


def test_the_command_line_caches_raw_rows_and_says_when_they_were_stale(jsonl, tmp_path, capsys):
    arguments = ["train", str(jsonl), "-m", str(tmp_path / "m"), "--text", "text", "--holdout", "0.2", "--cache"]
    for _ in range(2):
        assert main([*arguments, str(tmp_path / "rows.cache")]) == 0
        assert "steepest:" not in capsys.readouterr().err  # only the table of columns
    jsonl.write_text(jsonl.read_text() * 2)
    assert main([*arguments, str(tmp_path / "rows.cache")]) == 0
    assert "was made from an older" in capsys.readouterr().err


def rare_but_telling(path, n_rows=30_000):
    """Some words tell the class but are rare; thousands of others are frequent and mean nothing."""
    rng = np.random.default_rng(0)
    with open(path, "w") as out:
        for _ in range(n_rows):
            label = int(rng.integers(0, 2))
            words = [f"word{j}" for j in rng.integers(0, 4000, 60)]
            words += [f"{'yes' if label else 'no'}{rng.integers(0, 30)}"] * 2
            out.write(f"{label}\t{' '.join(words)}\n")


def n_named(model):
    """How many of the 60 heaviest weights have a name."""
    heavy = np.argsort(-np.abs(model.coef_[0]))[:60]
    return sum(bool(names) for names in model.hasher_.names_of(heavy))


def test_names_of_heavy_weights_stay_while_training_in_fixed_memory(tmp_path, monkeypatch):
    rare_but_telling(tmp_path / "a.txt")
    options = {"epochs": 1, "random_state": 0, "shuffle": "never"}

    def fit():
        hasher = st.Hasher(n_bits=18, names=320)
        return st.LinearClassifier(hasher=hasher, **options).fit_stream(st.scan(tmp_path / "a.txt"))

    first, second = fit(), fit()
    assert first.hasher_.names_.n_bytes == NameBook(320).n_bytes
    for name, array in first.hasher_.names_.state().items():  # threads do not change which names are kept
        np.testing.assert_array_equal(array, second.hasher_.names_.state()[name])
    monkeypatch.setattr("steepest.data.raw.RowEncoder.waits", lambda *_: False)
    blind = fit()
    np.testing.assert_array_equal(first.coef_, blind.coef_)
    assert n_named(first) > 1.5 * n_named(blind)


def test_partial_fit_keeps_the_names_of_heavy_weights(tmp_path, monkeypatch):
    rare_but_telling(tmp_path / "a.txt", 8000)
    rows = [line.split("\t") for line in (tmp_path / "a.txt").read_text().splitlines()]

    def fit():
        model = st.LinearClassifier(hasher=st.Hasher(n_bits=18, names=320), random_state=0)
        for start in range(0, len(rows), 500):
            part = rows[start : start + 500]
            model.partial_fit([text for _, text in part], [label for label, _ in part])
        return model

    model = fit()
    monkeypatch.setattr("steepest.features.names.NameBook.keep_heaviest", lambda *_: None)
    assert n_named(model) > 1.5 * n_named(fit())


def test_training_that_stops_while_a_batch_waits_ends_cleanly(tmp_path):
    rare_but_telling(tmp_path / "a.txt")
    source = st.scan(tmp_path / "a.txt")
    model = st.LinearClassifier(hasher=st.Hasher(n_bits=18, names=80), random_state=0)
    chunks = model.hashed(source, learn=True)
    chunks.encoder.heaviness = lambda buckets: np.ones(len(buckets))
    stream = chunks.epoch(0)
    next(stream)
    stream.close()


@pytest.mark.parametrize("names", [0, 100])
@pytest.mark.parametrize("n_classes", [2, 20])
@pytest.mark.parametrize("kind", ["text", "dict"])
def test_one_row_at_a_time_gives_the_bits_of_all_at_once(names, n_classes, kind, tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{k}" for k in rng.zipf(1.3, n) % 500) for n in rng.integers(0, 200, 120)]
    rows = texts if kind == "text" else [{"t": t, "user": i % 7, "n": float(i)} for i, t in enumerate(texts)]
    columns = {} if kind == "text" else {"text": "t", "categorical": "user", "numeric": "n"}
    hasher = st.Hasher(12, ngrams=(1, 2), names=names, **columns)
    y = np.arange(120) % n_classes
    model = st.LinearClassifier(hasher=hasher, epochs=1, random_state=0).fit(rows, y)
    model.save(tmp_path / "m")
    model = st.load(tmp_path / "m")
    together = model.decision_function(rows)
    alone = np.concatenate([model.decision_function([row]) for row in rows])
    assert alone.tobytes() == together.tobytes()
    assert [model.predict([row])[0] for row in rows] == model.predict(rows).tolist()


def some_texts(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{k}" for k in rng.zipf(1.3, n) % 500) for n in rng.integers(0, 60, n_rows)]


@pytest.mark.parametrize(
    ("n_classes", "options"),
    [
        (2, {}),
        (2, {"average": False, "dtype": "float64"}),
        (2, {"solver": "adagrad"}),
        (2, {"penalty": "l1"}),
        (2, {"multi_class": "hashed"}),
        (2, {"parallel": st.Mixing(n_shards=2, vote=True)}),
        (20, {}),
        (20, {"average": False}),
        (20, {"multi_class": "softmax", "n_jobs": 2}),
        (20, {"multi_class": "hashed"}),
    ],
)
@pytest.mark.parametrize("slotted_weights", [100, 1 << 30])
@pytest.mark.parametrize("kind", ["text", "dict"])
def test_raw_rows_have_the_scores_of_their_hashed_rows(n_classes, options, slotted_weights, kind, monkeypatch):
    monkeypatch.setattr("steepest.learners.linear.linear.SLOTTED_WEIGHTS", slotted_weights)
    texts = some_texts(200)
    rows = texts if kind == "text" else [{"t": t, "user": i % 7, "n": float(i % 3)} for i, t in enumerate(texts)]
    columns = {} if kind == "text" else {"text": "t", "categorical": "user", "numeric": "n", "cross": [("t", "user")]}
    hasher = st.Hasher(12, ngrams=(1, 2), **columns)
    model = st.LinearClassifier(hasher=hasher, epochs=1, random_state=0, **options)
    model.fit(rows[:100], np.arange(100) % n_classes)
    hashed = model.hasher_.to_chunk(rows)
    expected = model._decisions(model._scores(hashed))
    assert model.decision_function(rows).tobytes() == expected.tobytes()
    alone = np.concatenate([model.decision_function([row]) for row in rows])
    assert alone.tobytes() == expected.tobytes()
    if kind == "text":  # an empty list has no columns
        assert model.decision_function([]).shape == expected[:0].shape


def test_regressors_and_models_of_several_labels_score_raw_rows_too():
    texts, rng = some_texts(100), np.random.default_rng(0)
    regressor = st.LinearRegressor(hasher=st.Hasher(12), epochs=1, random_state=0).fit(texts, rng.normal(size=100))
    several = st.LinearClassifier(hasher=st.Hasher(12), epochs=1, random_state=0)
    several.fit(texts, rng.integers(0, 2, (100, 4)))
    for model, predict in ((regressor, regressor.predict), (several, several.decision_function)):
        expected = model._scores(model.hasher_.to_chunk(texts))
        assert np.asarray(predict(texts)).tobytes() == expected.tobytes()


def test_a_score_beyond_all_numbers_is_the_same_from_raw_and_from_hashed_rows():
    rows = [{"n": 1.0}, {"n": 2.0}, {"n": 3.0}]
    model = st.LinearRegressor(hasher=st.Hasher(10), dtype="float64", average=False, random_state=0)
    model.fit(rows, [1.0, 2.0, 3.0])
    model.learner_.arrays["v"][...] = np.finfo(float).max
    expected = model._scores(model.hasher_.to_chunk(rows))[:, 0]
    assert np.isinf(expected).any()
    np.testing.assert_array_equal(model.predict(rows), expected)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_threads_that_predict_at_once_get_the_answers_of_one(n_jobs):
    texts = [*some_texts(300), " ".join(some_texts(2000, seed=1))]  # one that outgrows all work space
    hasher = st.Hasher(12, ngrams=(1, 2), char_ngrams=(2, 4), n_jobs=n_jobs)
    model = st.LinearClassifier(hasher=hasher, epochs=1, random_state=0).fit(texts, np.arange(301) % 3)
    expected = model.decision_function(texts)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            found = np.concatenate(list(pool.map(lambda text: model.decision_function([text]), texts)))
            assert found.tobytes() == expected.tobytes()


def test_what_was_prepared_follows_parameters_and_what_is_learned():
    texts, y = some_texts(100), np.arange(100) % 2
    model = st.LinearClassifier(hasher=st.Hasher(12, stop_words=["w1"]), epochs=1, random_state=0).fit(texts, y)

    def scores_like_a_fresh_one():
        fresh = pickle.loads(pickle.dumps(model))
        scores = model.decision_function(texts)
        assert scores.tobytes() == fresh.decision_function(texts).tobytes()
        return scores.tobytes()

    seen = {scores_like_a_fresh_one()}
    model.partial_fit(texts, y)
    seen.add(scores_like_a_fresh_one())
    for params in ({"ngrams": (1, 2)}, {"stop_words": ["w2"]}, {"weighting": "binary"}, {"seed": 7}):
        model.hasher_.set_params(**params)
        seen.add(scores_like_a_fresh_one())
    model.hasher_.document_counts_ = model.hasher_.document_counts_[::-1].copy()
    model.hasher_.weighting = "tfidf"
    seen.add(scores_like_a_fresh_one())
    assert len(seen) == 7
    model.hasher_.n_bits = 13  # buckets of which this model has no weights
    model.hasher_.weighting = "count"
    assert model.decision_function(texts).shape == (100,)


def test_a_hasher_notices_that_a_parameter_was_set():
    hasher = st.Hasher(10)
    before = hasher.transform(["a word and another"])
    hasher.set_params(n_bits=12, ngrams=(1, 2))
    after = hasher.transform(["a word and another"])
    assert (before.shape[1], after.shape[1]) == (1 << 10, 1 << 12)
    assert after.nnz > before.nnz
    hasher.n_bits = 99
    with pytest.raises(st.ParameterError, match="n_bits=99"):
        hasher.transform(["a word"])


def test_a_hasher_in_use_can_be_copied_and_pickled():
    hasher = st.Hasher(10, names=10)
    rows = hasher.fit_transform(["a word and another"])
    for twin in (copy.deepcopy(hasher), pickle.loads(pickle.dumps(hasher))):
        assert (twin.transform(["a word and another"]) != rows).nnz == 0


@pytest.mark.parametrize("epochs", [1, 3])
def test_classes_that_share_a_table_keep_names_while_texts_stream(jsonl, tmp_path, monkeypatch, epochs):
    monkeypatch.setattr("steepest.data.files.blocks.BLOCK_BYTES", 2048)  # many batches, so that names are looked after
    hasher = st.Hasher(n_bits=14, names=200)
    model = st.LinearClassifier(hasher=hasher, multi_class="hashed", epochs=epochs, random_state=0)
    model.fit_stream(st.scan(jsonl, text="text"))
    assert model.evaluate_stream(st.scan(jsonl, text="text"))["accuracy"] > 0.8
    assert all(len(pairs) == 3 for pairs in model.top_features(3).values())


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "arrow"])
def test_a_model_reads_tables_of_other_formats_than_its_own(jsonl, tmp_path, capsys, ending):
    other, model = str(tmp_path / f"other.{ending}"), str(tmp_path / "m.steepest")
    assert main(["convert", str(jsonl), other, "--quiet"]) == 0
    assert main(["train", other, "-m", model, "--text", "text", "--label", "label", "--quiet"]) == 0
    found = []
    for data in (other, str(jsonl), str(tmp_path / "third.csv")):
        if data.endswith("third.csv"):
            assert main(["convert", str(jsonl), data, "--quiet"]) == 0
        capsys.readouterr()
        assert main(["evaluate", model, data, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] == found[2]


def test_json_lines_may_come_through_a_pipe_to_a_model_of_a_csv_file(jsonl, tmp_path, capsys, monkeypatch):
    table, model = str(tmp_path / "table.csv"), str(tmp_path / "m.steepest")
    assert main(["convert", str(jsonl), table, "--quiet"]) == 0
    assert main(["train", table, "-m", model, "--text", "text", "--label", "label", "--quiet"]) == 0
    capsys.readouterr()
    piped = io.TextIOWrapper(io.BytesIO(b'{"text": "win cash"}\n{"text": "the meeting"}\n'))
    monkeypatch.setattr("sys.stdin", piped)
    assert main(["predict", model, "-"]) == 0
    assert capsys.readouterr().out.split() == ["spam", "ham"]


def test_inspect_says_how_crowded_the_buckets_are(jsonl, tmp_path, capsys):
    model = str(tmp_path / "m.steepest")
    assert main(["train", str(jsonl), "-m", model, "--text", "text", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["inspect", model, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["hashing"]["n_distinct"] == pytest.approx(facts["nonzeros"], rel=0.01)
    assert main(["inspect", model]) == 0
    shown = capsys.readouterr().out
    assert f"about {facts['nonzeros']} features in 4,194,304 buckets, about 0.0% of them share one" in shown
    assert "100.0% of the weight is named" in shown


# --------------------------------------------------------------------------------------------------- sizes of numbers


def houses(n_rows, seed=0):
    """A price that follows from numbers of very different size, some of them missing, and from a place."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        rooms, income, east = float(rng.integers(200, 9000)), float(rng.gamma(4.0)), bool(rng.random() < 0.5)
        price = 20 * rooms + 30_000 * income + 40_000 * east + 5000 * rng.normal()
        known = income if rng.random() < 0.9 else None
        rows.append({"rooms": rooms, "income": known, "side": "e" if east else "w", "price": price})
    return rows


@pytest.fixture
def house_file(tmp_path):
    return written(tmp_path / "houses.jsonl", houses(3000))


def fit_houses(path, **more):
    return st.LinearRegressor(hasher=st.Hasher(n_bits=12, **more), random_state=0).fit_stream(
        st.scan(path, label="price")
    )


def test_large_numbers_do_not_drown_small_ones(house_file):
    held_out = houses(500, seed=1)
    prices = [row.pop("price") for row in held_out]
    assert fit_houses(house_file).score(held_out, prices) > 0.85


def test_the_encoding_of_numbers_does_not_depend_on_batches_and_travels_with_the_model(house_file, tmp_path):
    whole = fit_houses(house_file)
    rooms = np.array([row["rooms"] for row in houses(3000)])
    columns = {column.name: column for column in whole.hasher_.columns_}
    inner = np.clip(rooms, *np.quantile(rooms, [0.001, 0.999]))
    assert columns["rooms"].centre == pytest.approx(inner.mean())
    assert columns["rooms"].scale == pytest.approx(inner.std())
    assert columns["income"].missing == pytest.approx(np.mean([row["income"] is None for row in houses(3000)]))
    rows = houses(3000)
    prices = [row.pop("price") for row in rows]
    parts = st.Hasher(n_bits=12).survey(rows)
    chunks = [parts.to_chunk(rows[first:last], learn=True) for first, last in ((0, 1), (1, 700), (700, 3000))]
    at_once = st.Hasher(n_bits=12).to_chunk(rows, learn=True)
    np.testing.assert_array_equal(np.concatenate([chunk.values for chunk in chunks]), at_once.values)
    whole.save(tmp_path / "m")
    loaded = st.load(tmp_path / "m")
    assert loaded.hasher_.columns_ == whole.hasher_.columns_
    np.testing.assert_array_equal(loaded.predict(rows), whole.predict(rows))
    assert whole.score(rows, prices) > 0.85


def test_a_hasher_standardises_numbers_once_it_was_fitted():
    rows = [{"x": 300.0}, {"x": -400.0}, {"x": None}]
    assert np.abs(st.Hasher(n_bits=10).transform(rows).data).tolist() == [300, 400, 1]
    fitted = st.Hasher(n_bits=10)
    together, apart = fitted.fit_transform(rows), fitted.fit(rows).transform(rows)
    np.testing.assert_array_equal(together.data, apart.data)
    np.testing.assert_allclose(np.abs(together.data), [1, 1, 1], rtol=0.01)
    assert fitted.transform([{"x": fitted.columns_[0].centre}]).nnz == 0


def test_numbers_that_are_all_zero_or_missing_stay_what_they_are():
    rows = [{"x": 0.0, "y": None}, {"x": 0.0, "y": None}]
    found = st.Hasher(n_bits=10, numeric=["x", "y"]).fit_transform(rows)
    assert np.isfinite(found.data).all()


def test_a_cache_of_rows_with_other_sizes_is_not_believed(house_file, tmp_path):
    few = written(tmp_path / "few.jsonl", houses(200, seed=5))
    for model in (fit_houses(house_file), fit_houses(few)):
        cached = np.concatenate(list(model.predict_stream(st.scan(house_file, label="price").cache(tmp_path / "c"))))
        np.testing.assert_array_equal(
            cached, np.concatenate(list(model.predict_stream(st.scan(house_file, label="price"))))
        )


def test_a_table_trained_from_a_converted_cache_has_the_same_model(house_file, tmp_path):
    assert main(["convert", str(house_file), str(tmp_path / "h.cache"), "--label", "price", "--quiet"]) == 0
    for data, name in ((house_file, "a"), (tmp_path / "h.cache", "b")):
        assert (
            main(
                [
                    "train",
                    str(data),
                    "-m",
                    str(tmp_path / name),
                    "--task",
                    "regress",
                    "--quiet",
                    *(["--label", "price", "--knots", "false", "--pairs", "0"] if name == "a" else []),
                ]
            )
            == 0
        )
    np.testing.assert_array_equal(*(st.load(tmp_path / name).coef_ for name in "ab"))


def test_a_class_has_its_heaviest_words_however_heavy_those_of_the_other_class_are():
    texts = [f"rare{i} calm day" for i in range(100)] * 3 + ["calm day"] * 400
    model = st.LinearClassifier("log", alpha=1e-6, solver="newton_cg", fit_intercept=False)
    model.fit(texts, ["loud"] * 300 + ["quiet"] * 400)
    quiet = model.top_features(2)["quiet"]
    assert sorted(name for name, _ in quiet) == ["calm", "day"]
    assert quiet[0][1] < model.top_features(100)["loud"][-1][1]
