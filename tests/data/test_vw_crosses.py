"""Crosses of the namespaces of Vowpal Wabbit text: VW's -q, by name, in rows, names, files and the shell."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import steepest as st
from steepest.cli import main
from steepest.errors import ColumnWarning, DataError, ParameterError
from steepest.kernels import parse_vw
from steepest.kernels.reference.text import crossed, hash_bytes, key_of, mix, place


def feature(space, name, seed):
    key = key_of("", seed)
    return mix(hash_bytes(space.encode(), key), hash_bytes(name.encode(), key))


def read_slowly(rows, crosses, n_bits, signed, seed):
    """(bucket, value) of each row's features, then of its crosses."""
    found = []
    for row in rows:
        features = {}
        entries = []
        for space, name, value in row:
            entries.append((feature(space, name, seed), value))
            features.setdefault(space, []).append(entries[-1])
        for a, b in crosses:
            entries += crossed(features.get(a, []), features.get(b, []), a == b)
        placed = [(*place(hashed, n_bits), value) for hashed, value in entries]
        found.append([(bucket, value * (sign if signed else 1)) for bucket, sign, value in placed])
    return found


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("seed", [0, 7])
def test_crosses_are_those_of_the_slow_reader(signed, seed):
    rng = np.random.default_rng(seed)
    spaces = ["user", "item", "a namespace that is longer than sixteen bytes".replace(" ", "_"), "b"]
    crosses = [("user", "item"), ("item", "item"), (spaces[2], "user"), ("user", "nowhere")]
    rows = [
        [(spaces[k], f"x{rng.integers(40)}", float(np.float32(rng.normal()))) for k in rng.integers(4, size=size)]
        for size in rng.integers(0, 25, 200)
    ]
    text = "".join(
        "1 " + "".join(f"|{s} {n}:{v!r} " for s, n, v in row) + ("|e\n" if not row else "\n") for row in rows
    )
    expected = read_slowly(rows, crosses, 18, signed, seed)
    half = text.index("\n", len(text) // 2) + 1
    parts = [text[:half].encode(), text[half:].encode()]
    indptr, indices, values, *_ = parse_vw(
        parts, n_bits=18, signed=signed, with_labels=True, skip_bad=False, seed=seed, crosses=crosses
    )
    assert np.diff(indptr).tolist() == [len(row) for row in expected]
    assert indices.tolist() == [bucket for row in expected for bucket, _ in row]
    np.testing.assert_array_equal(values, np.array([v for row in expected for _, v in row], np.float32))


def parity_rows(path, n=400):
    """Labels that only the pair of user and item decides."""
    rng = np.random.default_rng(0)
    users, items = rng.integers(6, size=n), rng.integers(6, size=n)
    lines = [f"{1 if (u + i) % 2 else -1} |user u{u} |item i{i}\n" for u, i in zip(users, items, strict=True)]
    path.write_text("".join(lines))
    return str(path)


def test_a_model_learns_predicts_and_names_crosses(tmp_path):
    path = parity_rows(tmp_path / "a.vw")
    plain = st.LinearClassifier(random_state=0).fit_stream(st.scan_vw(path, n_bits=16))
    model = st.LinearClassifier(random_state=0).fit_stream(st.scan_vw(path, n_bits=16, signed=True, cross=[("u", "i")]))
    lines = [line.partition(" ")[2] for line in (tmp_path / "a.vw").read_text().splitlines()]
    truth = [int(line.partition(" ")[0]) for line in (tmp_path / "a.vw").read_text().splitlines()]
    assert np.mean(plain.predict(lines) == truth) < 0.8
    assert np.mean(model.predict(lines) == truth) == 1
    assert model.recipe_["crosses"] == [["user", "item"]]
    names = [name for name, _ in model.top_features(3)[1]]
    assert all("#" in name and name.startswith("user^u") for name in names)
    for name, weight in model.top_features(5)[1]:  # the sign of the hash is taken out
        a, b = (int(part[-1]) for part in name.split("#"))
        assert weight > 0
        assert (a + b) % 2 == 1
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(st.load(tmp_path / "m").decision_function(lines), model.decision_function(lines))
    scored = np.concatenate(list(st.load(tmp_path / "m").predict_stream(st.scan_vw(path, **reading(model)))))
    np.testing.assert_array_equal(scored, model.predict(lines))


def reading(model):
    return {name: value for name, value in model.recipe_.items() if name != "format"}


def test_namespaces_are_meant_by_name_or_by_a_first_letter_that_is_theirs_alone(tmp_path):
    path = tmp_path / "a.vw"
    path.write_text("1 |user x |item y |italy z |i w\n")

    def crosses(*pairs):
        source = st.scan_vw(str(path), cross=pairs)
        source.prepare()
        return source.crosses

    assert crosses(("user", "item"), ("u", "i")) == (("user", "item"), ("user", "i"))
    path.write_text("1 |user x |item y |italy z\n")
    with pytest.raises(ParameterError, match="several start with it: 'italy', 'item'"):
        crosses(("u", "i"))
    with pytest.warns(ColumnWarning, match="'elsewhere', but the first lines have 'italy'"):
        assert crosses(("user", "elsewhere")) == (("user", "elsewhere"),)
    with pytest.raises(ParameterError, match="must be a pair of namespaces"):
        st.scan_vw(str(path), cross=["ui"])


def test_the_shell_crosses_namespaces_and_shows_them(tmp_path, capsys):
    path, model = parity_rows(tmp_path / "a.vw"), str(tmp_path / "m")
    flags = ["--cross", "u,i", "--cross", "user,user", "--quiet"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        assert main(["train", path, "-m", model, *flags]) == 0
        assert main(["inspect", model, "--top", "2"]) == 0
    shown = capsys.readouterr().out
    assert "crossed: user x item, user x user" in shown
    assert "#item^i" in shown
    assert main(["evaluate", model, path]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_products_that_are_too_large_are_named(tmp_path):
    path = tmp_path / "a.vw"
    path.write_text("1 |a x:1e30 |b y:1e30\n")
    with pytest.raises(DataError, match="product of two crossed values"):
        next(iter(st.scan_vw(str(path), cross=[("a", "b")])))
    path.write_text("1 |a " + " ".join(f"x{k}" for k in range(5000)) + "\n")
    with pytest.raises(DataError, match="more than 16 million pairs"):
        next(iter(st.scan_vw(str(path), cross=[("a", "a")])))
