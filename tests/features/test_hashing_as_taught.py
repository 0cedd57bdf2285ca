"""Hashing as the lectures teach it, rebuilt by hand: only a feature's bucket and sign are asked of the package."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import steepest as st

pytestmark = pytest.mark.independent

TEXTS = ["the king of spain and the queen", "a king and a queen of hearts", "spain in the rain", "rain and hearts"]
PLAIN = dict(weighting="count", norm=None)


def by_hand(counts, hasher, n_bits):
    """The definition: every feature adds its count, times its sign, to its bucket."""
    row = np.zeros(1 << n_bits)
    for name, count in counts.items():
        row[hasher.bucket(name)] += hasher.sign(name) * count
    return row


def ngrams(words, longest):
    return Counter(" ".join(words[k : k + n]) for n in range(1, longest + 1) for k in range(len(words) - n + 1))


@pytest.mark.parametrize("n_bits", [10, 14])
@pytest.mark.parametrize("signed", [True, False])
def test_a_row_is_the_signed_sum_of_its_features(n_bits, signed):
    hasher = st.Hasher(n_bits, signed=signed, **PLAIN).fit(TEXTS)
    expected = [by_hand(Counter(text.split()), hasher, n_bits) for text in TEXTS]
    np.testing.assert_allclose(hasher.transform(TEXTS).toarray(), expected, atol=1e-6)
    many = [f"word{k}" for k in range(4000)]
    assert abs(np.mean([hasher.sign(word) for word in many])) < 0.06 or not signed  # four standard errors
    filled = np.bincount([hasher.bucket(word) for word in many], minlength=1 << n_bits)
    expected_count = 4000 / (1 << n_bits)
    chi2 = ((filled - expected_count) ** 2 / expected_count).sum()
    assert abs(chi2 - (1 << n_bits)) < 5 * np.sqrt(2 * (1 << n_bits))  # as even as chance makes it


def test_a_bag_is_the_signed_sum_of_its_counts():
    rng = np.random.default_rng(0)
    bags = [dict(Counter(f"w{j}" for j in rng.zipf(1.3, 12) % 3000)) for _ in range(100)]
    hasher = st.Hasher(12, **PLAIN).fit(bags)
    expected = [by_hand(bag, hasher, 12) for bag in bags]
    np.testing.assert_allclose(hasher.transform(bags).toarray(), expected, atol=1e-6)


def test_stop_words_are_not_among_the_words_and_pairs_that_are_hashed():
    stop = {"the", "of", "a", "and"}
    hasher = st.Hasher(14, ngrams=(1, 2), stop_words=stop, **PLAIN).fit(TEXTS)
    expected = [by_hand(ngrams([w for w in text.split() if w not in stop], 2), hasher, 14) for text in TEXTS]
    np.testing.assert_allclose(hasher.transform(TEXTS).toarray(), expected, atol=1e-6)


def test_copies_share_the_length_of_a_feature_among_buckets_of_their_own():
    hasher = st.Hasher(16, copies=3, **PLAIN).fit(TEXTS)
    row = np.zeros(1 << 16)
    for word in TEXTS[3].split():
        for copy in range(3):
            row[hasher.bucket(word, copy)] += hasher.sign(word, copy) / np.sqrt(3)
    np.testing.assert_allclose(hasher.transform(TEXTS[3:]).toarray()[0], row, atol=1e-6)


def test_shared_buckets_and_the_collision_term_are_counted_by_names():
    texts = [" ".join(f"w{j}" for j in np.random.default_rng(seed).zipf(1.2, 15) % 20_000) for seed in range(200)]
    y = np.arange(200) % 2
    model = st.LinearClassifier(hasher=st.Hasher(10), random_state=0).fit(texts, y)
    where = {}
    for name in {word for text in texts for word in text.split()}:
        where.setdefault(model.hasher_.bucket(name), []).append(name)
    shared = {bucket for bucket, names in where.items() if len(names) > 1}
    weight = np.abs(model.coef_[0])
    report = model.collision_report(texts)
    assert report.n_distinct == sum(map(len, where.values()))
    assert report.sharing == pytest.approx(sum(len(where[b]) for b in shared) / report.n_distinct, rel=1e-6)
    assert report.shared_weight == pytest.approx(weight[list(shared)].sum() / weight.sum(), rel=1e-5)
    two = ["a b c d e f g h", "a b x y z u v w"]
    for row in st.Hasher(10, **PLAIN).fit(two).collision_report(data=two).by_bits:
        hasher = st.Hasher(row.n_bits, **PLAIN)
        x, z = (by_hand(Counter(text.split()), hasher, row.n_bits) for text in two)
        assert row.mean_error == pytest.approx(x @ z - 2)  # two words in common
        assert row.expected_rms == pytest.approx(np.sqrt((8 * 8 + 2**2 - 2 * 2) / (1 << row.n_bits)))


def test_a_filter_for_each_user_is_the_model_on_words_and_words_times_users():
    """Daumé's easy adaptation, hashed: with room to spare it is scikit-learn's model on the explicit columns."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(8)]
    rows = [{"user": f"u{rng.integers(3)}", "text": " ".join(rng.choice(words, 3, replace=False))} for _ in range(150)]
    y = np.array([int(("w1" in row["text"]) ^ (row["user"] == "u2" and "w3" in row["text"])) for row in rows])
    names = sorted(set(words) | {f"{u}:{w}" for u in ("u0", "u1", "u2") for w in words} | {"u0", "u1", "u2"})
    dense = np.zeros((150, len(names)))
    for k, row in enumerate(rows):
        dense[k, names.index(row["user"])] = 1
        for word in row["text"].split():
            dense[k, names.index(word)] = 1
            dense[k, names.index(f"{row['user']}:{word}")] = 1
    hasher = st.Hasher(22, cross=[("user", "text")], categorical=["user"], text=["text"], **PLAIN)
    model = st.LinearClassifier("log", alpha=0.01, hasher=hasher, solver="newton_cg", tol=1e-10).fit(rows, y)
    peer = LogisticRegression(C=1 / (0.01 * 150), tol=1e-10, max_iter=10_000).fit(dense, y)
    np.testing.assert_allclose(model.decision_function(rows), peer.decision_function(dense), atol=1e-3)


def test_a_cross_of_namespaces_is_a_feature_for_every_pair(tmp_path):
    """Rows with the same pairs are the same, every pair has a bucket of its own, and values multiply."""
    rng = np.random.default_rng(0)
    lines, pairs = [], []
    for _ in range(60):
        users, items = rng.choice(5, 2, replace=False), rng.choice(7, 3, replace=False)
        values = rng.uniform(1, 2, 5).round(3)
        lines.append(
            "1 |u " + " ".join(f"a{u}:{v}" for u, v in zip(users, values[:2], strict=True))
            + " |i " + " ".join(f"b{i}:{v}" for i, v in zip(items, values[2:], strict=True))
        )  # fmt: skip
        pairs.append({(u, i): values[m] * values[2 + n] for m, u in enumerate(users) for n, i in enumerate(items)})
    path = tmp_path / "rows.vw"
    path.write_text("\n".join(lines) + "\n")
    plain, crossed = (next(iter(st.scan_vw(path, n_bits=24, **more))) for more in ({}, {"cross": [("u", "i")]}))
    bucket_of = {}
    for k, expected in enumerate(pairs):
        own = crossed.indices[crossed.indptr[k] : crossed.indptr[k + 1]].tolist()
        values = np.abs(crossed.values[crossed.indptr[k] : crossed.indptr[k + 1]])
        assert own[:5] == plain.indices[plain.indptr[k] : plain.indptr[k + 1]].tolist()
        assert len(own) == 5 + 6
        np.testing.assert_allclose(np.sort(values[5:]), sorted(expected.values()), rtol=1e-5)
        for bucket, value in zip(own[5:], values[5:], strict=True):
            pair = min(expected, key=lambda p: abs(expected[p] - value))
            assert bucket_of.setdefault(pair, bucket) == bucket
    assert len(set(bucket_of.values())) == len(bucket_of)
