"""Collisions against a count by full names: features, weight in shared buckets, and the error of the hash kernel."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import steepest as st
from steepest.errors import DataError
from steepest.features.hasher import Hasher
from steepest.kernels.reference.text import hash_bytes, key_of, place


def rare_texts(n=3000, seed=0):
    """Most words are rare, so that a book of names knows few of them."""
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{min(j, 60_000)}" for j in rng.zipf(1.15, 20)) for _ in range(n)]


def labels_of(texts, seed=1):
    rng = np.random.default_rng(seed)
    return [int(rng.random() < 0.8) if "w3" in text.split() else int(rng.random() < 0.3) for text in texts]


def brute_force(texts, n_bits, weights):
    """(features, share of them in shared buckets, share of the weight there), with the names of all known."""
    names = {word for text in texts for word in text.split()}
    where = {}
    for name in names:
        where.setdefault(place(hash_bytes(name.encode(), key_of("", 0)), n_bits)[0], []).append(name)
    shared = [bucket for bucket, inside in where.items() if len(inside) > 1]
    heavy = np.abs(np.asarray(weights)).sum(axis=0)
    in_shared = sum(len(where[bucket]) for bucket in shared)
    return len(names), in_shared / len(names), heavy[shared].sum() / heavy.sum()


@pytest.fixture(scope="module")
def crowded():
    texts = rare_texts()
    model = st.LinearClassifier(hasher=Hasher(12, names=500), random_state=0).fit(texts, labels_of(texts))
    return texts, model


def test_the_count_on_data_is_that_by_full_names(crowded):
    texts, model = crowded
    n_features, sharing, weight = brute_force(texts, 12, model.coef_)
    report = model.collision_report(texts)
    assert report.counted
    assert report.n_distinct == pytest.approx(n_features, rel=1e-3)
    assert report.sharing == pytest.approx(sharing, rel=1e-3)
    assert report.shared_weight == pytest.approx(weight, rel=1e-3)
    assert weight > 0.65  # a case in which most of the weight is shared


def test_without_data_the_estimate_is_near(crowded):
    texts, model = crowded
    n_features, sharing, weight = brute_force(texts, 12, model.coef_)
    report = model.collision_report()
    assert not report.counted
    assert report.n_distinct == pytest.approx(n_features, rel=0.1)
    assert report.sharing == pytest.approx(sharing, abs=0.05)
    assert report.shared_weight == pytest.approx(weight, abs=0.1)
    assert "estimated" in str(report)


@pytest.mark.parametrize("signed", [True, False])
def test_the_error_of_the_hash_kernel_is_as_expected(signed):
    rng = np.random.default_rng(0)  # no word is much heavier than others, whose few collisions would decide all
    texts = [" ".join(f"w{j}" for j in rng.integers(3000, size=30)) for _ in range(300)]
    reports = [
        Hasher(12, signed=signed, weighting="count", seed=seed).fit(texts).collision_report(data=texts)
        for seed in range(8)
    ]
    for bits in (10, 12, 14):
        rows = [next(row for row in report.by_bits if row.n_bits == bits) for report in reports]
        found = np.sqrt(np.mean([row.rms_error**2 for row in rows]))  # over hash functions, as expectations are
        expected = rows[0].expected_rms
        assert found == pytest.approx(expected, rel=0.15)
        assert rows[0].sharing == pytest.approx(rows[0].expected_sharing, abs=0.05)
        mean = np.mean([row.mean_error for row in rows])
        assert abs(mean) < 0.2 * expected if signed else mean > 0.2 * expected
    if signed:
        by_bits = {row.n_bits: row.expected_rms for row in reports[0].by_bits}
        assert by_bits[10] == pytest.approx(2 * by_bits[12], rel=1e-6)  # one over the root of m


def test_the_collision_term_is_that_of_two_rows_by_hand():
    texts = ["a b c d e f g h", "a b x y z u v w"]
    report = Hasher(10, weighting="count", norm=None).fit(texts).collision_report(data=texts)
    for row in report.by_bits:
        hashed = [np.zeros(1 << row.n_bits), np.zeros(1 << row.n_bits)]
        for k, text in enumerate(texts):
            for word in text.split():
                bucket, sign = place(hash_bytes(word.encode(), key_of("", 0)), row.n_bits)
                hashed[k][bucket] += sign
        assert row.mean_error == pytest.approx(hashed[0] @ hashed[1] - 2)
        assert row.expected_rms == pytest.approx(np.sqrt((8 * 8 + 2**2 - 2 * 2) / (1 << row.n_bits)))


def test_streams_and_vowpal_wabbit_text_are_counted_too(tmp_path):
    texts = rare_texts(500)
    y = labels_of(texts)
    path, lines = tmp_path / "a.txt", tmp_path / "a.vw"
    path.write_text("".join(f"__label__{label} {text}\n" for label, text in zip(y, texts, strict=True)))
    lines.write_text("".join(f"{2 * label - 1} |t {text}\n" for label, text in zip(y, texts, strict=True)))
    model = st.LinearClassifier(hasher=Hasher(11, names=100), random_state=0).fit_stream(st.scan_text(path))
    report = model.collision_report(st.scan_text(path))
    n_features, sharing, weight = brute_force(texts, 11, model.coef_)
    assert (report.n_distinct, report.sharing) == (n_features, pytest.approx(sharing))
    assert report.shared_weight == pytest.approx(weight, rel=1e-3)
    vw = st.LinearClassifier(random_state=0).fit_stream(st.scan_vw(str(lines), n_bits=11))
    counted = vw.collision_report(st.scan_vw(str(lines), n_bits=11))
    assert counted.n_distinct == n_features
    assert vw.collision_report([f"|t {text}" for text in texts]).shared_weight == pytest.approx(counted.shared_weight)
    assert counted.shared_weight == pytest.approx(vw.collision_report().shared_weight, abs=0.1)


def test_no_rows_give_no_report():
    hasher = Hasher(12).fit(["a b"])
    with pytest.raises(DataError, match="no features to count"):
        hasher.collision_report(data=[""])


def test_the_shell_counts_collisions(tmp_path):
    texts = rare_texts(400)
    path = tmp_path / "a.txt"
    path.write_text("".join(f"__label__{y} {text}\n" for y, text in zip(labels_of(texts), texts, strict=True)))

    def run(*arguments):
        done = subprocess.run([sys.executable, "-m", "steepest", *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("train", path, "-m", tmp_path / "m", "--task", "classify", "--bits", 12, "--epochs", 1, "--quiet")
    model = st.load(tmp_path / "m")
    shown = run("inspect", tmp_path / "m", "--collisions", path)
    assert "counted on the data given" in shown
    assert "hash kernel" in shown
    assert "of the weight is in shared buckets" in shown
    as_json = json.loads(run("inspect", tmp_path / "m", "--json", "--collisions", path))
    assert as_json["shared_weight"] == pytest.approx(brute_force(texts, 12, model.coef_)[2], rel=1e-3)
    assert "estimated from the buckets in use" in run("inspect", tmp_path / "m", "--collisions")
    assert "is in shared buckets" in run("inspect", tmp_path / "m")
