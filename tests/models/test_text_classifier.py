"""TextClassifier: what it learns, its words, its files, the command line and bad input."""

from __future__ import annotations

import json
import math
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import steepest as st
from steepest.cli import main
from steepest.learners.embedding.embedding import LOSSES
from steepest.models.text import choose_dim, choose_epochs, choose_eta0, choose_parallel, choose_sync_every

TOPICS = {
    "food": ["bread", "butter", "oven", "salt", "soup", "knife", "bake", "taste"],
    "code": ["python", "loop", "compile", "bug", "stack", "type", "branch", "merge"],
    "sport": ["goal", "match", "referee", "ball", "league", "coach", "score", "team"],
}


def make_texts(n=240, seed=0, several=False):
    generator = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        chosen = generator.choice(list(TOPICS), 2 if several and generator.random() < 0.5 else 1, replace=False)
        words = [str(generator.choice(TOPICS[topic])) for topic in chosen for _ in range(4)]
        words += [f"the{k}" for k in generator.integers(0, 30, 4)]
        texts.append(" ".join(generator.permutation(words)))
        labels.append(sorted(map(str, chosen)) if several else str(chosen[0]))
    return texts, labels


def make_noisy_texts(n, seed=0):
    """Words of all topics, those of the label twice as often, and a tenth of the labels wrong."""
    generator = np.random.default_rng(seed)
    words = np.array([f"word{k}" for k in range(400)])
    y = generator.integers(0, 5, n)
    drawn = np.where(generator.random((n, 15)) < 0.3, y[:, None] * 80, generator.integers(0, 5, (n, 15)) * 80)
    X = [" ".join(row) for row in words[drawn + generator.integers(0, 80, (n, 15))]]
    return X, np.where(generator.random(n) < 0.1, generator.integers(0, 5, n), y)


def small(**options):
    return st.TextClassifier(**{"n_bits": 12, "epochs": 8, "eta0": 1.0, "random_state": 0, **options})


def same_bits(a, b):
    assert a.learner_.book.labels == b.learner_.book.labels
    for name, array in a.learner_.state.items():
        np.testing.assert_array_equal(array, b.learner_.state[name], err_msg=name)


# ---------------------------------------------------------------------------------------------------- what it learns


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_learns_topics(loss):
    X, y = make_texts()
    model = small(loss=loss).fit(X[:180], y[:180])
    assert model.score(X[180:], y[180:]) > 0.95
    p = model.predict_proba(X[180:])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (model.classes_[p.argmax(axis=1)] == model.predict(X[180:])).all()
    assert model.history_.column("loss")[-1] < model.history_.column("loss")[0]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_best_label_is_the_first_of_the_best_few(loss):
    texts, labels = make_texts()
    model = st.TextClassifier(n_bits=14, epochs=2, loss=loss, random_state=0).fit(texts, labels)
    one, several = model.predict_top(texts, 1), model.predict_top(texts, 3)
    np.testing.assert_array_equal(one[0][:, 0], several[0][:, 0])
    np.testing.assert_allclose(one[1][:, 0], several[1][:, 0], rtol=1e-5)
    np.testing.assert_array_equal(one[0][:, 0], model.predict(texts))


@pytest.mark.parametrize("loss", LOSSES)
def test_several_labels_a_text(loss):
    X, y = make_texts(400, several=True)
    model = small(loss=loss).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.95
    labels, p = model.predict_top(X[300:], 2)
    assert labels.shape == p.shape == (100, 2)
    assert (p[:, 0] >= p[:, 1]).all()
    assert model.predict(X[300:]).shape == (100, 3)
    matrix = np.array([[topic in labels for topic in model.classes_] for labels in y[:300]], float)
    np.testing.assert_array_equal(small(loss=loss).fit(X[:300], matrix).learner_.head, model.learner_.head)


def test_characters_forgive_misspellings():
    X, y = make_texts()
    model = small(ngrams=(1, 1), char_ngrams=(2, 4), n_bits=16).fit(X, y)
    assert model.predict(["breadd buttter", "pythonn compilee"]).tolist() == ["food", "code"]


def test_calibration_on_held_out_rows_lowers_their_loss():
    X, y = make_texts(600, seed=3)
    generator = np.random.default_rng(0)
    y = [label if generator.random() > 0.3 else str(generator.choice(list(TOPICS))) for label in y]  # noise: too sure
    model = small(epochs=40).fit(X[:300], y[:300])
    places = np.searchsorted(model.classes_, y[300:])

    def loss():
        return -np.log(np.maximum(model.predict_proba(X[300:])[np.arange(300), places], 1e-12)).mean()

    before = loss()
    model.calibrate_on(X[300:], y[300:])
    assert model.temperature_ > 1
    assert loss() < before
    assert small(calibrate=0.2).fit(X, y).temperature_ != 1.0


# ------------------------------------------------------------------------------------------------------- states


def test_classes_may_appear_at_any_time():
    X, y = make_texts()
    model = small(loss="hs").partial_fit(X[:3], ["a", "a", "a"])
    for _ in range(8):
        model.partial_fit(X, y)
    assert model.classes_.tolist() == ["a", "code", "food", "sport"]
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("seed", [7, 34, 42])
def test_a_good_state_that_is_far_too_large_is_given_up(seed):
    X, y = np.random.RandomState(0).uniform(size=(30, 3)), np.arange(30) % 3
    model = small(n_bits=10, epochs=50, eta0=1.0, random_state=seed).fit(X, y, sample_weight=[3] * 30)
    assert any("halved" in event for event in model.history_.events)
    assert np.isfinite(model.predict_proba(X)).all()


def test_divergence_rolls_back_and_says_so():
    X, y = make_texts()
    model = small(eta0=1e6).fit(X, y)
    assert any("halved the step size" in event for event in model.history_.events)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_replicas_are_two_and_not_the_serial_learner(loss):
    X, y = make_texts(500)
    one = small(loss=loss, parallel="replicas").fit(X, y)
    assert one.learner_.settings.n_replicas == 2
    assert not np.array_equal(one.learner_.head, small(loss=loss, parallel="serial").fit(X, y).learner_.head)


@pytest.mark.parametrize("loss", LOSSES)
def test_replicas_learn_as_well_as_one(loss):
    X, y = make_noisy_texts(4000)
    alone, apart = (
        small(loss=loss, epochs=5, parallel=kind, n_jobs=2).fit(X[:3000], y[:3000]) for kind in ("serial", "replicas")
    )
    X, y = X[3000:], y[3000:]
    noise = math.sqrt(0.25 / 1000)
    assert alone.score(X, y) > 0.5
    assert apart.score(X, y) > alone.score(X, y) - 2 * noise
    held = [-np.log(model.predict_proba(X)[np.arange(1000), y]).mean() for model in (alone, apart)]
    assert held[1] < 1.05 * held[0]


def test_a_model_of_replicas_goes_on_learning_one_by_one(tmp_path):
    X, y = make_texts(500)
    model = small(parallel="replicas").fit(X[:400], y[:400])
    model.save(tmp_path / "m")
    model.partial_fit(X[400:], y[400:])
    pieces = st.load(tmp_path / "m").partial_fit(X[400:430], y[400:430]).partial_fit(X[430:], y[430:])
    same_bits(model, pieces)


def test_replicas_that_diverge_roll_back_and_say_so():
    X, y = make_texts()
    model = small(eta0=1e6, parallel="replicas", n_jobs=2).fit(X, y)
    assert any("halved the step size" in event for event in model.history_.events)
    assert np.isfinite(model.predict_proba(X)).all()


def test_what_auto_chose_is_told():
    X, y = make_texts(300)
    model = st.TextClassifier(n_bits=12, random_state=0).fit(X, y)
    assert model.history_.events == [
        "dim='auto' chose 16 for 3 labels",
        "eta0='auto' chose 0.5 for 3 labels",
        "epochs='auto' chose 50 for 300 texts",
        "parallel='auto' learns serially: 300 texts are too few to share",
    ]
    assert model.n_iter_ == 50


def test_auto_follows_the_size_of_the_data():
    assert [choose_epochs(n)[0] for n in (0, 5_000, 25_000, 1_000_000, None)] == [50, 50, 10, 5, 1]
    assert [choose_dim(n)[0] for n in (2, 31, 32, 255, 256)] == [16, 16, 32, 32, 64]
    assert [choose_eta0(n)[0] for n in (2, 31, 32, 256)] == [0.5, 0.5, 1.0, 1.0]
    assert [choose_parallel(n)[0] for n in (9_999, 10_000, None)] == ["serial", "replicas", "replicas"]
    assert [choose_sync_every(n) for n in (None, 0.0, 10.0, 384.0, 1e6)] == [16, 16, 16, 4, 2]


def test_a_pipe_is_learned_once(tmp_path):
    X, y = make_texts(300)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    lines = "".join(f"__label__{label} {text}\n" for text, label in zip(X, y, strict=True))
    writer = threading.Thread(target=path.write_text, args=(lines,))
    writer.start()
    model = st.TextClassifier(n_bits=12, random_state=0).fit_stream(st.scan_text(path))
    writer.join()
    assert model.n_iter_ == 1
    assert model.learner_.rows_learned == 300
    assert "epochs='auto' chose 1: the data can be read only once" in model.history_.events


def test_auto_takes_the_dimension_of_vectors_to_start_from(tmp_path):
    X, y = make_texts(300)
    small(dim=7).fit(X, y).save_vectors(tmp_path / "words.vec")
    model = st.TextClassifier(n_bits=12, pretrained=tmp_path / "words.vec", random_state=0).fit(X, y)
    assert model.vector("bread").shape == (7,)


def test_hogwild_learns_as_well():
    X, y = make_texts(600)
    assert small(parallel="hogwild", n_jobs=2).fit(X[:500], y[:500]).score(X[500:], y[500:]) > 0.95


# ---------------------------------------------------------------------------------------------------------- words


def test_words_of_one_topic_are_nearest_and_vectors_travel(tmp_path):
    X, y = make_texts(600)
    model = small(n_bits=20).fit(X, y)
    near = [word for word, _ in model.nearest("bread", 60) if not word.startswith("the")]
    assert set(near[:7]) == set(TOPICS["food"]) - {"bread"}
    model.save_vectors(tmp_path / "words.vec", ["bread", "python"])
    first = (tmp_path / "words.vec").read_text().split("\n")
    assert first[0] == "2 16"
    warm = small(n_bits=20, pretrained=tmp_path / "words.vec", eta0=0.0).fit(X, y)
    np.testing.assert_allclose(warm.vector("bread"), model.vector("bread"), rtol=1e-4)
    assert not warm.vector("goal").any()
    with pytest.raises(ValueError, match="never seen"):
        model.nearest("xylophone")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 8\nbread " + "1 " * 8, "vectors of 8 numbers, but dim=16"),
        ("2 16\nbread" + " 1" * 16 + "\n", "1 words of 2"),
        ("1 16\nbread" + " 1.00" * 11 + "\n", "line 2: 'bread' has 11 numbers, not 16"),
        ("1 16\nbread" + " 1" * 15 + " x\n", "not a number"),
        ("bread 1 2 3\n", "line 1"),
        ("1 16\nbread" + " nan" * 16 + "\n", "not finite"),
    ],
)
def test_bad_vector_files_are_told_in_one_sentence(tmp_path, content, message):
    (tmp_path / "bad.vec").write_text(content)
    with pytest.raises(ValueError, match=message):
        small(dim=16, pretrained=tmp_path / "bad.vec").fit(*make_texts(20))


# ---------------------------------------------------------------------------------------------------------- files


def test_small_files_cost_little_accuracy_and_say_how_much(tmp_path, capsys):
    X, y = make_texts(600)
    model = small(n_bits=16).fit(X[:400], y[:400])
    full = model.save(tmp_path / "full")
    told = model.save(tmp_path / "quantized", quantize=True, check=(X[400:], y[400:]))
    assert told["rows"] == full["rows"]
    assert told["accuracy"] >= told["accuracy_before"] - 0.02
    pruned = model.save(tmp_path / "pruned", size="24KB", check=(X[400:], y[400:]))
    assert pruned["bytes"] <= 24_000 < full["bytes"]
    assert pruned["accuracy"] > 0.9
    assert capsys.readouterr().err == ""
    model.set_params(verbose=1).save(tmp_path / "told", quantize=True, check=(X[400:], y[400:]))
    assert f"became {told['accuracy']:.4f}" in capsys.readouterr().err
    np.testing.assert_allclose(st.load(tmp_path / "quantized").predict_proba(X), model.predict_proba(X), atol=0.02)
    with pytest.raises(ValueError, match="size='1KB' is too small"):
        model.save(tmp_path / "none", size="1KB")


def test_a_damaged_file_is_refused(tmp_path):
    model = small().fit(*make_texts(60))
    header, arrays = model._file_parts()
    from steepest import model_file

    arrays["rows"] = arrays["rows"] + (1 << 20)
    model_file.write(tmp_path / "bad", {"kind": "model", "class": "TextClassifier", **header}, arrays)
    with pytest.raises(ValueError, match="not a complete TextClassifier"):
        st.load(tmp_path / "bad")


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim"),
        ({"dim": 10**6}, "too large"),
        ({"loss": "hinge"}, "loss"),
        ({"eta0": -1}, "eta0"),
        ({"eta0": float("nan")}, "eta0"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": "many"}, "epochs"),
        ({"parallel": st.Replicas(n=0)}, "n_replicas"),
        ({"parallel": st.Replicas(sync_every=0)}, "sync_every"),
        ({"parallel": "magic"}, "parallel"),
        ({"schedule": "magic"}, "schedule"),
        ({"ngrams": (2, 1)}, "ngrams"),
        ({"calibrate": 2.0}, "calibrate"),
        ({"negatives": 0}, "negatives"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options).fit(*make_texts(20))


def test_bad_targets_are_told():
    X, _ = make_texts(4)
    with pytest.raises(ValueError, match="one class"):
        small().fit(X, ["a"] * 4)
    with pytest.raises(ValueError, match="y has 3"):
        small().fit(X, ["a", "b", "a"])
    model = small().fit(X, [["a"], ["b"], ["a", "b"], ["a"]])
    with pytest.raises(ValueError, match="'c' was never seen"):
        model.partial_fit(X, [["a"], ["b"], ["c"], ["a"]])


def test_infinite_numbers_are_refused():
    model = small(names=0).fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    with pytest.raises(ValueError, match="infinity"):
        model.predict([[np.inf, 1.0]])
    with pytest.raises(ValueError, match="infinity"):
        small().fit([[np.inf, 1.0], [1.0, 0.0]], ["a", "b"])


def test_empty_and_unknown_texts_are_predicted():
    model = small().fit(*make_texts())
    assert np.isfinite(model.predict_proba(["", "zzz qqq", "\0"])).all()


# ---------------------------------------------------------------------------------------------------- command line


def test_the_command_line_reads_fasttext_files(tmp_path, capsys):
    X, y = make_texts(400, several=True)
    lines = [" ".join(f"__label__{name}" for name in names) + f" {text}\n" for text, names in zip(X, y, strict=True)]
    (tmp_path / "train.txt").write_text("".join(lines[:300]))
    (tmp_path / "test.txt").write_text("".join(lines[300:]))
    model, test = str(tmp_path / "m"), str(tmp_path / "test.txt")
    command = ["train", str(tmp_path / "train.txt"), "--task", "text", "-m", model, "--epochs", "8", "--bits", "14"]
    assert main([*command, "--ngrams", "1,2", "--eta0", "1", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["evaluate", model, test, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["rows"] == 100
    assert result["accuracy"] == result["precision_at_1"] > 0.9
    assert main(["predict", model, test]) == 0
    predicted = capsys.readouterr().out.split()
    assert np.mean([a in b for a, b in zip(predicted, y[300:], strict=True)]) == result["accuracy"]
    assert main(["inspect", model, "--top", "3"]) == 0
    assert "3 classes: code, food, sport" in capsys.readouterr().out
    assert main([*command, "--copies", "2"]) == 2
    assert "--copies has no meaning with --task text" in capsys.readouterr().err


@pytest.mark.parametrize("held", [True, False])
def test_the_command_line_tells_what_a_small_file_costs(tmp_path, capsys, held):
    X, y = make_noisy_texts(600)
    data, model = tmp_path / "train.txt", str(tmp_path / "m")
    data.write_text("".join(f"__label__{label} {text}\n" for text, label in zip(X, y, strict=True)))
    train = ["train", str(data), "--task", "text", "-m", model, "--epochs", "5", "--size", "20kB"]
    train += ["--holdout", "0.2"] if held else []
    assert main(train) == 0
    told = capsys.readouterr().err
    size = os.path.getsize(model)
    assert size <= 20_000
    rows = "held-out rows" if held else "the training rows"
    found = re.search(rf"{size:,} bytes .* accuracy on {rows}: ([\d.]+) before, ([\d.]+) from the file", told)
    assert found
    assert 0 < float(found[2]) <= 1
    assert main([*train, "--json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [f"{last[name]:.4f}" for name in ("accuracy_before", "accuracy")] == [found[1], found[2]]


def test_a_small_file_is_refused_to_other_tasks(tmp_path, capsys):
    assert main(["train", "missing.svm", "-m", str(tmp_path / "m"), "--task", "classify", "--quantize"]) == 2
    assert "--quantize has no meaning with --task classify" in capsys.readouterr().err


def test_a_table_with_a_text_column(tmp_path):
    X, y = make_texts()
    rows = [json.dumps({"body": text, "label": label}) for text, label in zip(X, y, strict=True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    source = st.scan_jsonl(tmp_path / "rows.jsonl", text="body", label="label")
    model = small().fit_stream(source)
    assert model.evaluate_stream(source)["accuracy"] > 0.95
    assert model.vector("bread").any()


# ------------------------------------------------------------------------------------------------------ golden file

GOLDEN = Path(__file__).parents[1] / "golden"
OLD_TEXTS = ["fresh bread", "a python bug", "the referee", ""]


@pytest.mark.parametrize("name", ["text-softmax-1", "text-hs-quantized-1"])
def test_golden_models_load_and_predict_the_stored_numbers(name):
    stored = json.loads((GOLDEN / f"{name}.json").read_text())
    model = st.load(GOLDEN / f"{name}.steepest")
    assert model.classes_.tolist() == stored["classes"]
    np.testing.assert_allclose(model.predict_proba(OLD_TEXTS), stored["probabilities"], rtol=1e-4, atol=1e-6)
    model.partial_fit(OLD_TEXTS[:2], ["food", "code"])  # and they can go on learning


def write_golden():
    """Run once a format version, never to make a failing test pass."""
    for name, options in (("text-softmax-1", {}), ("text-hs-quantized-1", {"loss": "hs", "char_ngrams": (2, 3)})):
        model = small(names=50, **options).fit(*make_texts(60))
        model.save(GOLDEN / f"{name}.steepest", quantize="quantized" in name)
        probabilities = st.load(GOLDEN / f"{name}.steepest").predict_proba(OLD_TEXTS).tolist()
        plain = {"classes": model.classes_.tolist(), "probabilities": probabilities}
        (GOLDEN / f"{name}.json").write_text(json.dumps(plain, indent=1))


if __name__ == "__main__":
    write_golden()


@pytest.mark.parametrize("y", [np.array(["spam", "ham"] * 10, object), np.array(["spam", "ham"] * 10)])
def test_a_model_of_labels_in_an_array_of_objects_is_saved_and_loaded(y, tmp_path):
    model = st.TextClassifier(n_bits=12, epochs=5, random_state=0).fit(["cheap pills", "lunch at noon"] * 10, y)
    model.save(tmp_path / "m")
    assert st.load(tmp_path / "m").classes_.tolist() == model.classes_.tolist() == ["ham", "spam"]
