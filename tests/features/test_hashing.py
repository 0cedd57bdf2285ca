"""Hashing: the frozen contract, the quality of the hash, the kernel against its definition, and the transformer."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from steepest import LinearClassifier, kernels, load
from steepest.data.chunk import concatenate
from steepest.data.tables.columns import arrow_codes, arrow_missing, arrow_numbers, arrow_texts
from steepest.errors import DataError, ParameterError
from steepest.features.hasher import Hasher, NameBook
from steepest.kernels.reference import text as reference

KEY = kernels.hash_key("", 0)
WEIGHTINGS = ("count", "binary", "log")
RECORDS = [
    {"text": "free money now", "user": 17, "price": 3.5, "vip": True},
    {"text": "lunch now or later", "user": 4, "price": 0.0, "vip": False},
    {"text": "money for lunch", "user": 17, "price": -2.0, "vip": True},
]


def buckets(features, n_bits):
    return (features >> np.uint64(32) & np.uint64((1 << n_bits) - 1)).astype(np.int64)


def signs(features):
    return np.where(features >> np.uint64(63), -1.0, 1.0)


def rows_of(chunk):
    ends = chunk.indptr.tolist()
    entries = list(zip(chunk.indices.tolist(), chunk.values.tolist(), strict=True))
    return [dict(entries[first:last]) for first, last in pairwise(ends)]


def assert_same_rows(a, b):
    np.testing.assert_array_equal(a.indptr, b.indptr)
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.values, b.values)


def numbered_tokens(n, prefix=b"token"):
    """Tokens token0, token1, ... as the kernel takes them."""
    digits, offsets = kernels.write_integers(np.arange(n))
    data = np.zeros(len(digits) + n * len(prefix), np.uint8)
    shifted = offsets + np.arange(n + 1) * len(prefix)
    for place, letter in enumerate(prefix):
        data[shifted[:-1] + place] = letter
    body = np.ones(len(data), bool)
    body[(shifted[:-1, None] + np.arange(len(prefix))).ravel()] = False
    data[body] = digits
    return data, shifted, None


# -------------------------------------------------------------------------------------------------- the frozen contract

# Never change these numbers: saved models depend on them. A new hash needs a new id and must leave this one alone.
GOLDEN = {
    "": 0xA8D140107514D729,
    "a": 0xC06A42555F92CB3B,
    "the": 0xD1C07CE9ED959591,
    "hashing": 0xFF07882F6165162C,
    "0123456789": 0x23917AF323EABAAA,
    "exactly sixteen!": 0x909209D42A83AFDC,
    "seventeen letters": 0x62FFAB3B79161BC4,
    "größe": 0xCE3F73C850D0605C,
    "東": 0x0F64BBEB9B82543F,
    "a rather long token that needs three rounds of folding": 0x5D986B55CB39139E,
}
GOLDEN_BUCKETS = {  # at 22 bits
    "a": (2769493, -1),
    "the": (31977, -1),
    "0123456789": (1145587, 1),
    "東": (2407403, 1),
    "new york": (2716570, 1),
    "'<ne'": (1430689, None),
    "<missing>": (3405377, None),
}


def test_the_hash_is_frozen():
    assert kernels.hash_id == "steepest-1"
    assert KEY == 0xBA57B627B24519F7
    assert kernels.hash_key("title", 0) == 0xCDDB4EA1016D5F9B
    assert kernels.hash_key("", 7) == 0x738054ADBDEA7F84
    assert {token: int(kernels.hash_texts([token], KEY)[0]) for token in GOLDEN} == GOLDEN


def test_buckets_and_signs_are_frozen():
    hasher = Hasher(22, ngrams=(2, 2), char_ngrams=(3, 3), norm=None, min_token=1)
    assert {name: hasher.bucket(name) for name in GOLDEN_BUCKETS} == {
        name: b for name, (b, _) in GOLDEN_BUCKETS.items()
    }
    assert hasher.bucket("new", copy=1) == 1548676
    for name, (bucket, sign) in GOLDEN_BUCKETS.items():
        if sign is not None:
            n = len(name.split())
            row = rows_of(Hasher(22, ngrams=(n, n), norm=None, min_token=1).to_chunk([name]))[0]
            assert row == {bucket: sign}


@given(st.binary(max_size=80), st.integers(0, 2**64 - 1))
def test_hash_equals_its_definition(data, key):
    assert int(kernels.hash_texts([data], key)[0]) == reference.hash_bytes(data, key)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.text(max_size=20))
def test_mix_and_keys_equal_their_definition(a, b, name):
    mixed = kernels.mix_hashes(np.array([a], np.uint64), np.array([b], np.uint64))
    assert int(mixed[0]) == reference.mix(a, b)
    assume(name.isprintable())
    assert kernels.hash_key(name, a) == reference.key_of(name, a)


# -------------------------------------------------------------------------------------------------- quality of the hash


def flip_shares(before, after):
    flipped = (before ^ after).view(np.uint8).reshape(-1, 8)
    return np.unpackbits(flipped, axis=1).mean(axis=0)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 9, 12, 16, 17, 24, 31, 33, 48])
def test_each_input_bit_flips_each_output_bit_half_of_the_time(length):
    generator = np.random.default_rng(length)
    tokens = generator.integers(0, 256, (4000, length), dtype=np.uint8)
    keys = [int(key) for key in generator.integers(0, 2**63, 8 if length < 3 else 1)]
    offsets = np.arange(len(tokens) + 1) * length
    for bit in range(8 * length):
        flipped = tokens.copy()
        flipped[:, bit // 8] ^= 1 << bit % 8
        shares = [
            flip_shares(
                kernels.hash_texts((tokens.ravel(), offsets, None), key),
                kernels.hash_texts((flipped.ravel(), offsets, None), key),
            )
            for key in keys
        ]
        if length > 1:
            assert np.mean(shares, axis=0).min() > 0.45
            assert np.mean(shares, axis=0).max() < 0.55
        else:  # one byte has but 128 pairs, so that single output bits scatter; their mean may not
            assert abs(np.mean(shares) - 0.5) < 0.02


def test_mixing_passes_the_same_test():
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, 2**64, (2, 8000), dtype=np.uint64)
    mixed = kernels.mix_hashes(a, b)
    for bit in np.uint64(1) << np.arange(64, dtype=np.uint64):
        for other in (kernels.mix_hashes(a ^ bit, b), kernels.mix_hashes(a, b ^ bit)):
            shares = flip_shares(mixed, other)
            assert shares.min() > 0.45
            assert shares.max() < 0.55
    assert (kernels.mix_hashes(b, a) != mixed).all()


@pytest.mark.parametrize("n_bits", [14, 16, 18, 20, 22, 24])
def test_occupancy_is_that_of_random_throws(n_bits):
    m = 1 << n_bits
    # One throw scatters by 0.5 / sqrt(m) of the expectation, so small tables are thrown at with several seeds.
    seeds = max(1, (1 << 20) // m)
    n = min(m, 1 << 21)
    tokens = numbered_tokens(n)
    used = [
        np.count_nonzero(
            np.bincount(buckets(kernels.hash_texts(tokens, kernels.hash_key("", seed)), n_bits), minlength=m)
        )
        for seed in range(seeds)
    ]
    assert np.mean(used) == pytest.approx(m * (1 - np.exp(-n / m)), rel=0.002)


def test_signs_are_balanced_and_independent_of_buckets():
    features = kernels.hash_texts(numbered_tokens(1 << 20), KEY)
    sign = signs(features)
    assert abs(sign.mean()) < 0.004  # four standard deviations of 2^20 coins
    odd = buckets(features, 1) == 1
    assert abs(sign[odd].mean()) < 0.006


@pytest.mark.independent
def test_inner_products_are_unbiased_and_vary_with_one_over_m():
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(2, 200))
    tokens = numbered_tokens(200)
    errors = {}
    for n_bits in (6, 8, 10):
        error = []
        for seed in range(2000):
            features = kernels.hash_texts(tokens, kernels.hash_key("", seed))
            where, sign = buckets(features, n_bits), signs(features)
            px, py = (np.bincount(where, sign * v, minlength=1 << n_bits) for v in (x, y))
            error.append(px @ py - x @ y)
        errors[n_bits] = np.array(error)
    variance = (x @ x) * (y @ y) + (x @ y) ** 2 - 2 * np.sum(x * x * y * y)
    for n_bits, error in errors.items():
        expected = variance / (1 << n_bits)
        assert abs(error.mean()) < 4 * np.sqrt(expected / len(error))
        assert error.var() == pytest.approx(expected, rel=0.15)


# ---------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World! x_1 42", ["hello", "world", "x_1", "42"]),
        ("don't", ["don"]),
        ("a I é ab", ["ab"]),
        ("ΟΔΟΣ οδος", ["οδοσ", "οδοσ"]),
        ("Straße ÉCOLE ЁЖ ԱԲ İstanbul", ["straße", "école", "ёж", "աբ", "istanbul"]),
        ("東京タワー abc中d", ["東", "京", "タワー", "abc", "中"]),
        ("हिन्दी ไทย 한국어", ["हिन्दी", "ไทย", "한국어"]),
        ("co\u00adop\u200derate", ["cooperate"]),
        ("one\u2014two\u00a0three…four", ["one", "two", "three", "four"]),
        (b"ab\xffcd\xc3", ["ab", "cd"]),
        ("ab\ud800cd", ["ab", "cd"]),
        ("", []),
    ],
)
def test_words(text, words):
    assert kernels.split_words(text, True, 2) == words
    assert reference.words_of(text) == words


PIECES = ["plain text here ", "é", "漢字", "\U0001f600", "\0", "\uffff", "\U0010ffff"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xc0\xaf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"]


def read_json(body):
    found = kernels.json_texts(body)
    if found is None:
        return None
    data, offsets = found
    return [data[a:b].tobytes() for a, b in pairwise(offsets.tolist())]


JSON_PIECES = ['"', "\\", "\n", "\t", "\x01", "\x7f", "/", "\ud83d", "\ude00", "\u2028", *PIECES]


@given(st.lists(st.lists(st.sampled_from(JSON_PIECES)).map("".join)), st.booleans(), st.sampled_from([None, 1]))
def test_texts_of_a_request_are_those_of_json(texts, as_codes, indent):
    body = json.dumps({"rows": texts}, ensure_ascii=as_codes, indent=indent).encode("utf-8", "surrogatepass")
    assert read_json(body) == reference.json_texts(body)


@given(
    st.integers(0, 60), st.sampled_from([b"", *(bytes([byte]) for byte in b'"\\,[]{}:u0d \n\x80\xff')]), st.booleans()
)
def test_a_broken_request_is_left_to_a_general_reader(place, byte, replaces):
    body = b' {"rows": ["a \\"b\\"", "\\u00e9\\ud83d\\ude00", "\xc3\xa9"]}\n'
    changed = body[:place] + byte + body[place + replaces :]
    assert read_json(changed) in (None, reference.json_texts(changed))


@given(st.lists(st.sampled_from([piece.encode() for piece in PIECES] + BROKEN) | st.binary(max_size=3), max_size=8))
def test_utf8_is_what_python_takes_for_it(pieces):
    text = b"".join(pieces)
    try:
        text.decode()
        expected = True
    except UnicodeDecodeError:
        expected = False
    assert kernels.is_utf8(text) is expected


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("n_before", [0, 7, 8, 9])
def test_broken_bytes_anywhere_are_no_utf8(broken, n_before):
    assert kernels.is_utf8(b"a" * n_before + "é".encode() + b"b" * 20)
    assert not kernels.is_utf8(b"a" * n_before + broken + b"b" * 20)
    assert not kernels.is_utf8(b"a" * n_before + broken)


def test_words_keep_their_case_on_request():
    assert kernels.split_words("Ab ÉÉ", False, 2) == ["Ab", "ÉÉ"]


def test_every_character_is_classed_and_folded_as_unicode_says():
    # The table is frozen at Unicode 14; later Pythons know more characters, so only what is old enough to agree counts.
    old = unicodedata.ucd_3_2_0
    same = unicodedata.unidata_version == "14.0.0"
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    wrong = [
        hex(ord(c))
        for c in characters
        if (same or old.category(c) != "Cn")
        and kernels.split_words(f"x{c}y", True, 1) != reference.words_of(f"x{c}y", True, 1)
    ]
    assert wrong == []


known_characters = st.characters(exclude_categories=("Cs", "Cn")).filter(
    lambda c: unicodedata.ucd_3_2_0.category(c) != "Cn"
)
documents = st.one_of(
    st.text(known_characters, max_size=120),
    st.text("abAB_9 .,é中ß\u0301", max_size=120),
    st.text("ab ", max_size=400),
    st.text(known_characters, max_size=60).map(lambda text: text.encode()[1:-1]),
)


@given(documents, st.booleans(), st.integers(1, 4))
def test_words_equal_their_definition(document, lowercase, min_letters):
    assert kernels.split_words(document, lowercase, min_letters) == reference.words_of(document, lowercase, min_letters)


def test_long_words_and_documents():
    document = " ".join(["x" * 100_000, "é" * 50_000, "short"])
    assert kernels.split_words(document, True, 2) == document.split()


# ---------------------------------------------------------------------------------------- the kernel and its definition

recipes = st.builds(
    reference.Recipe,
    n_bits=st.sampled_from([10, 12, 20, 30]),
    ngrams=st.sampled_from([(1, 1), (1, 2), (2, 3), (1, 4), (0, 0)]),
    char_ngrams=st.sampled_from([(0, 0), (1, 3), (3, 5)]),
    weighting=st.sampled_from(WEIGHTINGS),
    copies=st.integers(1, 3),
    min_letters=st.integers(1, 3),
    is_signed=st.booleans(),
    lowercase=st.booleans(),
    normalise=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    stop_words=st.sampled_from([(), ("ab", "a")]),
)


def column(kind, name, separators="", **more):
    return reference.Column(kind, name, separators, **more)


def bent(name):
    knots = (-2.5, -1.0, 0.25, 4.0)
    return column(reference.NUMBER, name, centre=1, scale=3, knots=knots, knot_names=[f"{name}~{k}" for k in knots])


LAYOUTS = [
    ([column(reference.TEXT, "")], []),
    ([column(reference.TEXT, "t"), column(reference.CATEGORY, "u"), column(reference.NUMBER, "p")], [(0, 1), (1, 2)]),
    (
        [
            column(reference.NUMBER, "p", centre=-0.5, scale=2.5),
            column(reference.TEXT, "t"),
            column(reference.TEXT, "s"),
        ],
        [(1, 2), (0, 1)],
    ),
    (
        [bent("p"), column(reference.CATEGORY, "u", "_- "), column(reference.LIST, "l", "|;"), bent("q")],
        [(0, 1), (2, 1), (0, 3)],
    ),
    ([bent("p"), column(reference.TEXT, "t"), column(reference.LIST, "l", "|")], [(0, 1), (1, 2)]),
]


def run_kernel(columns, table, crosses, recipe, n_threads=1, book=None):
    return kernels.hash_rows(*prepare(columns, table, crosses, recipe), None, None, 0.0, book, n_threads)


def prepare(columns, table, crosses, recipe):
    heads = [
        (c.kind, c.name, "", c.separators, (c.centre, c.scale), list(c.knots), list(c.knot_names)) for c in columns
    ]
    fields = [
        np.array([np.nan if v is None else v for v in values]) if c.kind == reference.NUMBER else values
        for c, values in zip(columns, table, strict=True)
    ]
    options = kernels.HashOptions(
        n_bits=recipe.n_bits,
        ngrams=recipe.ngrams,
        char_ngrams=recipe.char_ngrams,
        weighting=WEIGHTINGS.index(recipe.weighting),
        copies=recipe.copies,
        min_letters=recipe.min_letters,
        is_signed=recipe.is_signed,
        lowercase=recipe.lowercase,
        normalise=recipe.normalise,
        seed=recipe.seed,
    )
    return kernels.HashRecipe(heads, crosses, list(recipe.stop_words), options), fields


@settings(deadline=None)
@given(st.data(), recipes, st.sampled_from(LAYOUTS))
def test_rows_equal_their_definition(data, recipe, layout):
    columns, crosses = layout
    n_rows = data.draw(st.integers(1, 4))
    kinds = {
        reference.TEXT: documents,
        reference.CATEGORY: st.text(max_size=20) | st.sampled_from(["NaN", "?", "a_b c", "-", " a- b"]),
        reference.LIST: st.lists(st.sampled_from(["a", " b", "é", "", "None"]), max_size=4).map("|".join),
        reference.NUMBER: st.sampled_from([0.0, 1.0, -2.5, 0.25, 4.5, -3.0]) | st.floats(-3, 5, width=32),
    }
    table = [data.draw(st.lists(st.none() | kinds[c.kind], min_size=n_rows, max_size=n_rows)) for c in columns]
    indptr, indices, values = run_kernel(columns, table, crosses, recipe)
    for i in range(n_rows):
        expected = reference.hash_row(columns, [values[i] for values in table], crosses, recipe)
        where = indices[indptr[i] : indptr[i + 1]].tolist()
        assert len(set(where)) == len(where)
        assert set(where) == set(expected)
        got = values[indptr[i] : indptr[i + 1]]
        largest = max(map(abs, expected.values()), default=1.0)
        np.testing.assert_allclose(got, [expected[j] for j in where], rtol=1e-5, atol=1e-5 * largest)


@given(st.lists(st.none() | st.binary(max_size=200), min_size=1, max_size=8), recipes)
def test_any_bytes_are_welcome(rows, recipe):
    indptr, indices, values = run_kernel([column(reference.TEXT, "")], [rows], [], recipe)
    assert len(indptr) == len(rows) + 1
    assert ((indices >= 0) & (indices < 1 << recipe.n_bits)).all()
    assert np.isfinite(values).all()


def many_texts(n=3000, seed=0):
    generator = np.random.default_rng(seed)
    words = np.array([f"w{k}" for k in range(5000)] + ["größe", "中文"])
    ranks = np.minimum(generator.zipf(1.3, (n, 30)), len(words)) - 1
    return [" ".join(words[row]) for row in ranks]


@pytest.mark.parametrize("n_jobs", [2, 3, 4])
@pytest.mark.parametrize("names", [0, 50])
def test_threads_do_not_change_a_bit(n_jobs, names):
    texts = many_texts()
    one, several = (Hasher(18, ngrams=(1, 2), names=names, n_jobs=jobs) for jobs in (1, n_jobs))
    assert_same_rows(one.to_chunk(texts, learn=True), several.to_chunk(texts, learn=True))
    if names:
        for a, b in zip(one.names_.state().values(), several.names_.state().values(), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("has_slots", [False, True])
def test_scores_of_raw_rows_equal_their_definition(n_outputs, has_slots, dtype):
    rng = np.random.default_rng(0)
    recipe = reference.Recipe(n_bits=10, ngrams=(1, 2), weighting="log", normalise=True)
    (columns, crosses), n_rows = LAYOUTS[1], 40
    texts = [" ".join(f"w{k}" for k in rng.integers(0, 99, size)) for size in rng.integers(0, 30, n_rows)]
    table = [texts, [None, "u1", "u2", "u3"] * 10, rng.normal(size=n_rows).tolist()]
    wide, bias = rng.normal(size=(1 << 10, n_outputs)).astype(dtype), rng.normal(size=n_outputs)
    weights, slots = wide, None
    if has_slots:
        owners = rng.permutation(1 << 10)[:500]
        slots = np.zeros(1 << 10, np.int32)
        slots[owners] = np.arange(1, 501)
        weights, wide = wide[owners], np.where(slots[:, None] > 0, wide, 0)
    task = (*prepare(columns, table, crosses, recipe), None, 0.0, 1)
    scores = kernels.score_rows(*task, weights, 2.0, bias, slots, 1)
    rows = [reference.hash_row(columns, [column[i] for column in table], crosses, recipe) for i in range(n_rows)]
    expected = [reference.score_row(row, 2.0 * wide.astype(float), bias) for row in rows]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert kernels.score_rows(*task, weights, np.inf, bias, slots, 1) is None
    assert kernels.score_rows(*task, weights[:400], 1.0, bias, slots, 1) is None
    with pytest.raises(ValueError, match="another number of columns"):
        kernels.score_rows(task[0], task[1][:2], *task[2:], weights, 1.0, bias, slots, 1)
    with pytest.raises(ValueError, match="do not fit the bias"):
        kernels.score_rows(*task, weights, 1.0, np.zeros(7), slots, 1)


def test_damaged_arguments_are_refused():
    data, offsets = np.zeros(3, np.uint8), np.array([0, 4])
    with pytest.raises(ValueError, match="beyond the data"):
        kernels.hash_texts((data, offsets, None), 0)
    with pytest.raises(ValueError, match="must not decrease"):
        kernels.hash_texts((data, np.array([0, 3, 1, 2]), None), 0)
    with pytest.raises(ValueError, match="one flag per text"):
        kernels.hash_texts((data, np.array([0, 3]), np.ones(2, np.uint8)), 0)
    with pytest.raises(ValueError, match="a cross names a column"):
        run_kernel([column(reference.TEXT, "")], [["a"]], [(0, 1)], reference.Recipe())
    knots = column(reference.NUMBER, "p", knots=(1.0, 1.0), knot_names=("a", "b"))
    with pytest.raises(ValueError, match="knots must increase"):
        run_kernel([knots], [[1.0]], [], reference.Recipe())
    with pytest.raises(ValueError, match="scale must be positive"):
        run_kernel([column(reference.NUMBER, "p", scale=0.0)], [[1.0]], [], reference.Recipe())


# ----------------------------------------------------------------------------------------------------------- the Hasher


def test_rows_have_length_one_unless_told():
    chunk = Hasher(20, ngrams=(1, 2)).to_chunk(many_texts(50))
    squares = np.add.reduceat(chunk.values.astype(float) ** 2, chunk.indptr[:-1])
    np.testing.assert_allclose(squares, 1, rtol=1e-6)
    plain = Hasher(20, norm=None).to_chunk(["now now now then"])
    assert sorted(np.abs(plain.values)) == [1, 3]


@pytest.mark.parametrize(("weighting", "expected"), [("count", 3.0), ("binary", 1.0), ("log", 1 + np.log(3))])
def test_weightings(weighting, expected):
    row = rows_of(Hasher(20, norm=None, weighting=weighting, signed=False).to_chunk(["now now now then"]))[0]
    assert sorted(row.values()) == pytest.approx([1.0, expected])


def test_unsigned_rows_are_the_signed_ones_without_sign():
    texts = many_texts(20)
    signed, unsigned = (Hasher(24, signed=s).to_chunk(texts) for s in (True, False))
    np.testing.assert_array_equal(signed.indices, unsigned.indices)
    np.testing.assert_array_equal(np.abs(signed.values), unsigned.values)
    assert (signed.values < 0).any()


def test_stop_words_are_left_out_before_ngrams_are_built():
    with_stops = Hasher(20, ngrams=(1, 2), stop_words={"The", "of"}).to_chunk(["the king of spain"])
    assert_same_rows(with_stops, Hasher(20, ngrams=(1, 2)).to_chunk(["king spain"]))


def test_character_ngrams_forgive_misspellings():
    def similarity(hasher):
        rows = [dict(row) for row in rows_of(hasher.to_chunk(["accommodation", "acommodation"]))]
        return sum(value * rows[1].get(bucket, 0.0) for bucket, value in rows[0].items())

    assert similarity(Hasher(20)) == 0
    assert similarity(Hasher(20, ngrams=None, char_ngrams=(3, 5))) > 0.6


def test_substrings_are_the_character_ngrams_from_one():
    hasher = Hasher(22, ngrams=None, char_ngrams=(1, 2), norm=None, names=100)
    hasher.fit(["ab"])
    names = {name for (name,) in hasher.names_of(hasher.names_.buckets())}
    assert names == {"'a'", "'b'", "'<a'", "'ab'", "'b>'"}


def test_copies_share_the_length_of_a_feature():
    one, three = (rows_of(Hasher(24, copies=c, norm=None).to_chunk(["new york new"]))[0] for c in (1, 3))
    assert len(three) == 3 * len(one)
    assert set(one) < set(three)
    assert sum(v * v for v in three.values()) == pytest.approx(sum(v * v for v in one.values()))
    hasher = Hasher(24, copies=3)
    assert {hasher.bucket("york", copy=c) for c in range(3)} < set(three)


def kinds_of(hasher):
    return {column.name: column.kind for column in hasher.columns_}


def test_crosses_come_beside_the_plain_features():
    hasher = Hasher(24, cross=(("text", "user"),), norm=None, names=100, weighting="count")
    rows = rows_of(hasher.to_chunk([{"text": "free money money", "user": 17}], learn=True))
    names = ["free", "money", "user=17", "free#user=17", "money#user=17"]
    assert {abs(rows[0][hasher.bucket(name)]) for name in ("money", "money#user=17")} == {2.0}
    assert set(rows[0]) == {hasher.bucket(name) for name in names}
    assert hasher.names_of([hasher.bucket(name) for name in names]) == [[name] for name in names]
    assert kinds_of(hasher) == {"text": "text", "user": "category"}


def test_crosses_with_numbers_carry_the_product():
    hasher = Hasher(24, cross=[("user", "price"), ("price", "size")], categorical="user", numeric=["price", "size"])
    row = rows_of(hasher.to_chunk([{"user": "u", "price": 3.0, "size": -2.0}]))[0]
    assert abs(row[hasher.bucket("user=u#price")]) == 3.0
    assert abs(row[hasher.bucket("price#size")]) == 6.0
    assert abs(row[hasher.bucket("user=u")]) == 1.0


def test_kinds_of_columns_are_guessed_once():
    hasher = Hasher(20)
    hasher.to_chunk(RECORDS)
    assert kinds_of(hasher) == {"text": "text", "user": "number", "price": "number", "vip": "category"}
    before = hasher.to_chunk([{"text": "oneword", "user": 1, "price": 1, "vip": "never seen"}])
    assert kinds_of(hasher)["text"] == "text"
    assert len(before.indices) == 4


def test_named_columns_are_used_and_no_others():
    hasher = Hasher(20, text="text", categorical=["user"])
    hasher.to_chunk(RECORDS)
    assert kinds_of(hasher) == {"text": "text", "user": "category"}


def arrow_tables(records):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(records)
    yield table
    yield table.to_batches()[0]
    yield pyarrow.concat_tables([table.slice(0, 1), table.slice(1)])
    large = table.set_column(0, "text", table["text"].cast(pyarrow.large_string()))
    yield large.set_column(1, "user", table["user"].cast(pyarrow.int32()))
    yield pyarrow.concat_tables([table, table]).slice(len(table))


def data_frames(records):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(records)
    yield frame
    yield frame.astype({"text": object, "user": "Int64"})
    yield frame.astype({"vip": "category"})


@pytest.mark.parametrize("missing", [False, True])
def test_dicts_frames_and_arrow_give_equal_rows(missing):
    records = [dict(record) for record in RECORDS]
    if missing:
        records[1]["text"] = records[0]["user"] = records[2]["price"] = records[2]["vip"] = None

    def rows(X):
        hasher = Hasher(22, text="text", categorical=["user", "vip"], numeric="price", cross=[("text", "user")])
        return hasher.to_chunk(X)

    expected = rows(records)
    columns = {name: [record[name] for record in records] for name in records[0]}
    for X in [columns, *data_frames(records), *arrow_tables(records)]:
        assert_same_rows(expected, rows(X))


def test_lists_arrays_and_series_of_texts_give_equal_rows():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    texts = [*many_texts(30), "", None]
    expected = Hasher(20).to_chunk(texts)
    series = pandas.Series(texts, name="text")
    array = pyarrow.array(texts)
    forms = [tuple(texts), iter(texts), np.array(texts, object), series, series.astype("string"), array]
    for X in [*forms, pyarrow.chunked_array([array[:7], array[7:]]), pyarrow.array([None, *texts])[1:]]:
        assert_same_rows(expected, Hasher(20).to_chunk(X))
    encoded = [None if text is None else text.encode() for text in texts]
    assert_same_rows(expected, Hasher(20).to_chunk(encoded))
    assert_same_rows(expected, Hasher(20).to_chunk(pyarrow.array(encoded)))


def test_missing_values_are_features_of_their_own():
    hasher = Hasher(22, text="text", categorical="user", numeric="price", norm=None)
    rows = rows_of(hasher.to_chunk([{"text": None, "user": float("nan"), "price": None}, {"text": "", "user": ""}]))
    missing = {name: hasher.bucket(f"{name}=<missing>") for name in ("text", "user", "price")}
    assert {abs(rows[0][bucket]) for bucket in missing.values()} == {1.0}
    assert len(rows[0]) == 3
    assert missing["text"] not in rows[1]
    assert missing["price"] in rows[1]
    assert missing["user"] in rows[1]
    assert rows_of(Hasher(22).to_chunk([None]))[0].keys() == {Hasher(22).bucket("<missing>")}


def test_a_category_is_the_same_however_it_is_stored():
    pandas = pytest.importorskip("pandas")
    hasher = Hasher(22, categorical="id")
    expected = hasher.to_chunk([{"id": 17}, {"id": -4}])
    stored = [["17", "-4"], np.array([17, -4], np.int8), np.array([17.0, -4.0]), pandas.Series([17, -4], dtype="Int64")]
    for ids in stored:
        assert_same_rows(expected, hasher.to_chunk({"id": ids}))


def test_numbers_keep_their_size_beside_a_normalised_text():
    hasher = Hasher(22, text="text", numeric="price")
    row = rows_of(hasher.to_chunk([{"text": "free money", "price": 250.0}, {"text": "free money", "price": 0.0}]))
    assert abs(row[0][hasher.bucket("price")]) == 250.0
    assert abs(row[0][hasher.bucket("free")]) == pytest.approx(0.5**0.5)
    assert len(row[1]) == 2


def test_columns_keep_the_same_words_apart():
    hasher = Hasher(22, text=["title", "body"], names=10)
    hasher.fit([{"title": "spam", "body": "spam"}])
    assert hasher.bucket("title:spam") != hasher.bucket("body:spam")
    assert hasher.names_of([hasher.bucket("body:spam")]) == [["body:spam"]]


def test_targets_and_weights_travel_with_the_rows():
    chunk = Hasher(10).to_chunk(["a b", "c d"], ["no", "yes"], [1.0, 2.0])
    assert chunk.n_features == 1024
    assert chunk.y.tolist() == ["no", "yes"]
    assert chunk.weight.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({"n_bits": 31}, ["a"], "n_bits=31"),
        ({"ngrams": (2, 1)}, ["a"], r"ngrams=\(2, 1\)"),
        ({"char_ngrams": (0, 2)}, ["a"], "char_ngrams"),
        ({"copies": 0}, ["a"], "copies=0"),
        ({"weighting": "idf"}, ["a"], "choose one of 'auto', 'count', 'binary', 'log', 'tfidf'"),
        ({"norm": "l1"}, ["a"], "norm='l1'"),
        ({"stop_words": "the"}, ["a"], "one string"),
        ({"cross": ("text", "user")}, ["a"], "pairs of column names"),
        ({"cross": [("text", "user")]}, [{"text": "a"}], "column 'user'"),
        ({"text": "t", "categorical": "t"}, [{"t": "x"}], "more than once"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, X, message):
    with pytest.raises(ParameterError, match=message):
        Hasher(**{"n_bits": 10, **parameters}).to_chunk(X)


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({}, "one text", "single str"),
        ({}, ["text", 5], "row 1 of X is 5"),
        ({"text": "t"}, [{"t": 5}], "row 0 of column 't' is 5"),
        ({"numeric": "p"}, [{"p": "cheap"}], "row 0 of column 'p' is 'cheap'"),
        ({"numeric": "p"}, [{"p": float("inf")}], "row 0 of column 'p' is inf"),
        ({}, [1.0, 2.0], "Reshape your data"),
        ({}, [{"a": 1}, 5], "row 1 of X is a int among dicts"),
    ],
)
def test_errors_name_the_culprit(parameters, X, message):
    with pytest.raises(DataError, match=message):
        Hasher(**{"n_bits": 10, **parameters}).to_chunk(X)


def test_another_form_of_input_is_refused():
    pandas = pytest.importorskip("pandas")
    hasher = Hasher(10)
    hasher.to_chunk(["a list of texts"])
    with pytest.raises(DataError, match="made for a list of texts"):
        hasher.to_chunk(pandas.DataFrame({"text": ["a frame"]}))


# --------------------------------------------------------------------------------------------------------------- tf-idf


@pytest.mark.parametrize("norm", ["l2", None])
def test_tfidf_is_that_of_scikit_learn_on_the_hashed_counts(norm):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    texts = many_texts(400)
    counter = Hasher(16, ngrams=(1, 2), norm=None, signed=False)
    counts = counter.transform(texts)
    peer = text.TfidfTransformer(norm=norm, sublinear_tf=True).fit(counts)
    hasher = Hasher(16, ngrams=(1, 2), weighting="tfidf", norm=norm, signed=False)
    assert abs(hasher.fit_transform(texts) - peer.transform(counts)).max() < 1e-5
    new = ["w1 w2 unseen w1"]
    assert abs(hasher.transform(new) - peer.transform(counter.transform(new))).max() < 1e-5


@pytest.mark.parametrize("table", [many_texts(300), [{"t": text, "x": 2.0} for text in many_texts(300)]])
def test_tfidf_while_learning_weighs_each_row_by_those_before_it(table):
    whole = Hasher(14, weighting="tfidf", n_jobs=4).to_chunk(table, learn=True)
    pieces = Hasher(14, weighting="tfidf", n_jobs=1)
    chunks = [pieces.to_chunk(table[start : start + 70], learn=True) for start in range(0, 300, 70)]
    assert rows_of(concatenate(chunks)) == rows_of(whole)
    before = Hasher(14, weighting="tfidf").fit(table[:200])  # the last of them among them
    assert rows_of(before.to_chunk(table[199:200])) == [rows_of(whole)[199]]


def test_auto_weighs_by_tfidf_once_texts_were_learned():
    texts = many_texts(50)
    assert rows_of(Hasher(14).to_chunk(texts)) == rows_of(Hasher(14, weighting="count").to_chunk(texts))
    assert rows_of(Hasher(14).fit(texts).to_chunk(texts)) == rows_of(
        Hasher(14, weighting="tfidf").fit(texts).to_chunk(texts)
    )
    prices = [{"user": "u", "price": 3.0}, {"user": "v", "price": 1.0}]
    counted = Hasher(14, weighting="count").fit(prices)
    assert rows_of(Hasher(14).fit(prices).to_chunk(prices)) == rows_of(counted.to_chunk(prices))


def test_document_counts_stream():
    texts = many_texts(400)
    whole = Hasher(14, weighting="tfidf", n_jobs=4).fit(texts)
    pieces = Hasher(14, weighting="tfidf", n_jobs=1)
    for start in range(0, 400, 90):
        pieces.partial_fit(texts[start : start + 90])
    assert pieces.n_documents_ == 400
    np.testing.assert_array_equal(whole.document_counts_, pieces.document_counts_)
    with pytest.raises(ValueError, match="call fit or partial_fit first"):
        Hasher(14, weighting="tfidf").transform(texts)


# ---------------------------------------------------------------------------------------------------------------- names


def every_name(hasher):
    known = hasher.names_.buckets()
    return [
        (bucket, name) for bucket, names in zip(known.tolist(), hasher.names_of(known), strict=True) for name in names
    ]


def test_every_name_hashes_to_its_bucket():
    records = [{"text": t, "user": k % 7, "price": k / 3} for k, t in enumerate(many_texts(300))]
    columns = {
        "text": "text",
        "categorical": "user",
        "numeric": "price",
        "cross": [("text", "user"), ("user", "price")],
    }
    hasher = Hasher(16, ngrams=(1, 3), char_ngrams=(2, 3), names=500, **columns).fit(records)
    named = every_name(hasher)
    assert len(named) > 2000
    assert [(b, name) for b, name in named if hasher.bucket(name) != b] == []
    kinds = {
        kind: sum(mark in name for _, name in named)
        for kind, mark in (("cross", "#"), ("character", "'"), ("gram", " "))
    }
    assert min(kinds.values()) > 100


def test_small_data_is_named_completely():
    hasher = Hasher(20, ngrams=(1, 2), names=100)
    chunk = hasher.to_chunk(["new york is big", "so is tokyo"], learn=True)
    names = hasher.names_of(chunk.indices)
    assert names[:3] == [["new"], ["york"], ["is"]]
    assert ["is big"] in names
    assert [] not in names


def test_a_shared_bucket_tells_both_names():
    tokens = [f"token{k}" for k in range(3000)]
    where = buckets(kernels.hash_texts(tokens, KEY), 10)
    rivals = [token for token, bucket in zip(tokens, where, strict=True) if bucket == where[0]][:3]
    hasher = Hasher(10, names=1000).fit([rivals[1], rivals[0], rivals[0], rivals[2]])
    assert hasher.names_of([where[0]]) == [[rivals[0], rivals[1]]]


def test_the_book_does_not_grow():
    hasher = Hasher(22, ngrams=(1, 2), names=100)
    hasher.fit(many_texts(50))
    room = hasher.names_.n_bytes
    for seed in range(1, 4):
        hasher.partial_fit(many_texts(2000, seed))
    assert hasher.names_.n_bytes == room < 100_000
    assert hasher.names_.n_names <= 400
    numbers = hasher.names_.state()["numbers"]
    assert len(numbers) == hasher.names_.n_names


def test_frequent_features_stay_in_a_small_book():
    generator = np.random.default_rng(0)
    texts = [f"often{k % 20} " + " ".join(f"rare{x}" for x in generator.integers(0, 10**6, 30)) for k in range(4000)]
    hasher = Hasher(22, names=50).fit(texts)
    kept = hasher.names_of([hasher.bucket(f"often{k}") for k in range(20)])
    assert kept == [[f"often{k}"] for k in range(20)]


def test_the_names_of_heavy_weights_stay():
    hasher = Hasher(22, names=50)
    hasher.fit(many_texts(200))
    known = hasher.names_.buckets()
    weights = np.zeros(1 << 22, np.float32)
    heavy = known[::5][:50]
    weights[heavy] = 1.0
    weights[known[1]] = np.nan
    before = hasher.names_of(heavy)
    hasher.names_.keep_heaviest(lambda buckets: weights[buckets])
    hasher.partial_fit([f"new{k} thing{k}" for k in range(256) for _ in range(8)])
    assert hasher.names_of(heavy) == before
    assert any(name.startswith("new") for _, name in every_name(hasher))


def test_names_do_not_depend_on_the_size_of_pieces():
    texts = many_texts(3000)
    whole, pieces = Hasher(18, names=64).fit(texts), Hasher(18, names=64)
    for start in range(0, 3000, 321):
        pieces.partial_fit(texts[start : start + 321])
    for a, b in zip(whole.names_.state().values(), pieces.names_.state().values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_book_goes_on_where_it_was_saved():
    texts = many_texts(3000)
    whole, first = Hasher(18, names=64).fit(texts), Hasher(18, names=64).fit(texts[:1000])
    second = Hasher.from_state(*first.state()).partial_fit(texts[1000:])
    for a, b in zip(whole.names_.state().values(), second.names_.state().values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_damaged_book_is_refused():
    state = Hasher(18, names=64).fit(many_texts(100)).names_.state()
    for key, change in [("numbers", lambda a: a + 1), ("texts", lambda a: a[1:]), ("touched", lambda a: a[1:])]:
        with pytest.raises(DataError, match="damaged"):
            NameBook.from_state(64, {**state, key: change(state[key])})
    with pytest.raises(DataError, match="damaged"):
        NameBook.from_state(64, {})


def test_long_names_are_cut_between_characters():
    hasher = Hasher(20, names=10).fit(["ü" * 40])
    ((name,),) = hasher.names_of(hasher.names_.buckets())
    assert name == "ü" * 22 + "…"


def test_a_row_that_is_read_alone_has_the_values_that_it_has_among_others():
    rows = [{"text": "free money", "price": 3e6}, {"text": "dear money", "price": 1e6}]
    hasher = Hasher(12, names=20, numeric="price", text="text").fit(rows)
    columns = hasher.columns_
    row, own, _ = hasher.read_row(rows[0])
    alone = hasher.to_chunk(rows[:1])
    np.testing.assert_array_equal(row.indices, alone.indices)
    np.testing.assert_array_equal(row.values, alone.values)
    assert hasher.columns_ == columns
    assert sorted(name for names in own for name in names) == ["free", "money", "price"]


def test_names_must_have_been_kept():
    with pytest.raises(DataError, match="names=0"):
        Hasher(10, names=0).names_of([1])
    with pytest.raises(ValueError, match="not fitted"):
        Hasher(10).names_of([1])
    with pytest.raises(DataError, match="not the name of a feature"):
        Hasher(10).bucket("?!")


@pytest.mark.parametrize("n_bits", [12, 14, 18])
def test_collision_report_finds_the_number_of_features(n_bits):
    n = 1 << n_bits
    texts = [" ".join(f"t{k}" for k in range(start, start + 64)) for start in range(0, n, 64)]
    report = Hasher(n_bits, names=1000).fit(texts).collision_report()
    assert report.n_distinct == pytest.approx(n, rel=0.05)
    assert report.occupancy == pytest.approx(1 - np.exp(-1), rel=0.03)
    assert report.sharing == pytest.approx(1 - np.exp(-1), rel=0.03)
    assert report.suggested_bits == n_bits + 1


def test_collision_report_weighs_what_is_named_and_shared():
    tokens = [f"token{k}" for k in range(200)]
    hasher = Hasher(10, names=1000).fit(tokens)
    where = buckets(kernels.hash_texts(tokens, KEY), 10)
    weights = np.zeros(1024)
    weights[where] = 1.0
    crowded = np.bincount(where, minlength=1024) > 1
    report = hasher.collision_report(weights)
    assert report.named_weight == 1.0
    assert report.shared_weight == pytest.approx(crowded.sum() / (weights > 0).sum())
    unnamed = np.flatnonzero(weights == 0)[:1]
    weights[unnamed] = weights.sum()
    assert hasher.collision_report(weights).named_weight == pytest.approx(0.5)
    assert "% of the weight is named" in str(report)
    without = Hasher(10).collision_report(np.ones((2, 1024)))
    assert without.named_weight is None
    assert without.occupancy == 1
    with pytest.raises(DataError, match="needs weights"):
        Hasher(10).collision_report()
    with pytest.raises(DataError, match="no axis of length 1024"):
        hasher.collision_report(np.ones(7))


# --------------------------------------------------------------------------------------------------------- scikit-learn


def test_state_round_trips():
    hasher = Hasher(14, weighting="tfidf", stop_words={"w1", "w2"}, names=64, ngrams=(1, 2)).fit(many_texts(100))
    header, arrays = hasher.state()
    copy = Hasher.from_state(header, arrays)
    assert_same_rows(hasher.to_chunk(many_texts(50, 1)), copy.to_chunk(many_texts(50, 1)))
    assert every_name(copy) == every_name(hasher)
    with pytest.raises(DataError, match="steepest-0"):
        Hasher.from_state({**header, "hash": "steepest-0"}, arrays)


def test_pickle_and_clone():
    base = pytest.importorskip("sklearn.base")
    hasher = Hasher(14, weighting="tfidf", names=64, stop_words=frozenset({"w1"}), cross=()).fit(many_texts(100))
    copy = pickle.loads(pickle.dumps(hasher))
    assert_same_rows(hasher.to_chunk(many_texts(50, 1)), copy.to_chunk(many_texts(50, 1)))
    assert every_name(copy) == every_name(hasher)
    fresh = base.clone(hasher)
    assert fresh.get_params() == hasher.get_params()
    assert not hasattr(fresh, "names_")
    assert repr(Hasher(18, ngrams=(1, 2))) == "Hasher(n_bits=18, ngrams=(1, 2))"
    with pytest.raises(ValueError, match="no parameter 'bits'"):
        hasher.set_params(bits=3)


def test_a_pipeline_learns():
    linear_model = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    texts = [f"{'good fine' if k % 2 else 'bad awful'} {text}" for k, text in enumerate(many_texts(200))]
    y = [k % 2 for k in range(200)]
    model = pipeline.make_pipeline(Hasher(16, names=200, weighting="tfidf"), linear_model.SGDClassifier(random_state=0))
    model.fit(texts[:150], y[:150])
    assert model.score(texts[150:], y[150:]) == 1.0
    hasher, classifier = model[0], model[1]
    heaviest = np.argsort(-np.abs(classifier.coef_[0]))[:4]
    assert {name for (name,) in hasher.names_of(heaviest)} == {"good", "fine", "bad", "awful"}
    assert hasher.collision_report(classifier.coef_).named_weight > 0.5
    model.set_params(hasher__n_bits=12).fit(texts, y)
    assert model[0].transform(texts).shape == (200, 4096)


@pytest.mark.filterwarnings("ignore:Estimator Hasher does not inherit")
def test_scikit_learn_has_no_complaints():
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    for hasher in (Hasher(10), Hasher(10, names=20, weighting="tfidf")):
        results = checks.check_estimator(hasher, on_skip=None, on_fail=None)
        assert [(r["check_name"], str(r["exception"])) for r in results if r["status"] == "failed"] == []


def test_importing_the_hasher_imports_nothing_heavy():
    heavy = {"sklearn", "scipy", "pandas", "pyarrow"}
    code = f"import sys, steepest.features.hasher; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout.strip() == "[]"


def test_a_hasher_that_knows_its_texts_refuses_what_is_none_as_at_first():
    hasher = Hasher(ngrams=(1, 2)).fit(["one text", "another text"])
    alone = [hasher.transform([text]).toarray() for text in ("one text", "another one", "")]
    together = hasher.transform(np.array(["one text", "another one", ""], object)).toarray()
    np.testing.assert_array_equal(np.vstack(alone), together)
    np.testing.assert_array_equal(hasher.transform(["one text", None]).toarray()[0], together[0])
    np.testing.assert_array_equal(hasher.transform([None, "one text"]).toarray()[1], together[0])
    for rows in (["one text", 7], [None, 7], [{"text": "one"}, "one text"]):
        with pytest.raises(DataError):
            hasher.transform(rows)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_text_alone_gets_the_answer_that_it_gets_among_others(n_classes, tmp_path):
    texts = [f"{'abc'[i % n_classes]} word{i % 7} word{i % 5}" for i in range(90)]
    y = np.array(["first", "second", "third"])[np.arange(90) % n_classes]
    model = LinearClassifier(hasher=Hasher(n_bits=12, ngrams=(1, 2)), random_state=0).fit(texts[::-1], y[::-1])
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    together = loaded.predict(texts)
    assert (together == y).mean() > 0.9
    alone = [loaded.predict([text]) for text in texts]
    np.testing.assert_array_equal(np.concatenate(alone), together)
    alone[0][:] = "other"  # an answer belongs to the caller
    np.testing.assert_array_equal(loaded.predict(texts), together)


@given(st.lists(st.one_of(st.none(), st.text("ab\u00e9 ", max_size=20)), max_size=200), st.integers(0, 5))
def test_texts_are_numbered_in_the_order_in_which_they_come(texts, cut):
    pa = pytest.importorskip("pyarrow")
    numbers, firsts = reference.number_texts(texts)
    array = pa.array(["x", *texts], pa.string())[1:]  # an offset inside a buffer
    parts = pa.chunked_array([array[:cut], array[cut:]], pa.string())
    for values in (texts, arrow_texts(array), arrow_texts(parts)):
        found = kernels.number_texts(values)
        assert (found[0].tolist(), found[1].tolist()) == (numbers, firsts)
    words, codes = arrow_codes(parts)
    assert words == [texts[row] for row in firsts]
    assert codes.tolist() == numbers
    assert arrow_missing(parts).tolist() == [text is None for text in texts]


def test_more_texts_than_the_first_table_holds_are_numbered():
    texts = [str(i % 5000) for i in range(20_000)]
    numbers, firsts = kernels.number_texts(texts)
    assert (numbers.tolist(), firsts.tolist()) == ([i % 5000 for i in range(20_000)], list(range(5000)))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint64", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("values", [[1, 0, 1, 1], [None, 1, None, 0], [None, None], []])
def test_numbers_of_arrow_are_those_that_arrow_itself_gives(kind, values):
    pa = pytest.importorskip("pyarrow")
    made = [None if value is None else np.dtype(kind).type(value) for value in values]
    array = pa.array([np.dtype(kind).type(1), *made], kind)[1:]
    for column in (array, pa.chunked_array([array[:1], array[1:]], array.type)):
        expected = [math.nan if value is None else float(value) for value in column.to_pylist()]
        np.testing.assert_array_equal(arrow_numbers(column).astype(float), expected)
    assert arrow_numbers(pa.array(["x"])) is None


def test_lists_of_tokens_are_the_texts_they_were_cut_from():
    hasher = Hasher(n_bits=12)
    tokens, texts = [["free", "cash"], ["meeting"], ["free"]], ["free cash", "meeting", "free"]
    assert (hasher.transform(tokens) != hasher.transform(texts)).nnz == 0


@pytest.mark.parametrize("more", [[["free"]], [["free", "cash"]], [["free"], ["meeting"]], [["a", "b", "c"], []]])
def test_a_hasher_of_texts_takes_token_lists_of_any_lengths(more):
    hasher = Hasher(n_bits=12).fit([["free", "cash"], ["meeting"]])
    assert (hasher.transform(more) != hasher.transform([" ".join(tokens) for tokens in more])).nnz == 0
