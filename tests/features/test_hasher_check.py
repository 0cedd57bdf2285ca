"""The state of a hasher that no hasher could have written is refused before anything is built from it."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import steepest as st
from steepest.errors import DataError

ROWS = [
    {"price": i * 0.37, "town": "ab"[i % 2], "says": f"free cash {i % 40} now and {i % 7} then for all of us"}
    for i in range(100)
]


def hasher():
    return st.Hasher(n_bits=12, names=50, weighting="tfidf", cross=[("town", "price")], knots=True).fit(ROWS)


def restored(**changes):
    """The hasher from its state with some of the first column, or of the header or arrays, changed."""
    header, arrays = (copy.deepcopy(part) for part in hasher().state())
    for name, value in changes.items():
        if name in header:
            header[name] = value
        elif name.replace("__", ".") in arrays:
            arrays[name.replace("__", ".")] = value
        else:
            header["columns"][0][name] = value
    return st.Hasher.from_state(header, arrays)


def test_an_honest_state_is_taken():
    honest = restored()
    np.testing.assert_array_equal(honest.transform(ROWS).toarray(), hasher().transform(ROWS).toarray())


@pytest.mark.parametrize(
    "changes",
    [
        dict(kind="pickle"),
        dict(kind=["number"]),
        dict(name=7),
        dict(name="town"),
        dict(scale=0.0),
        dict(scale=1e-320),
        dict(scale=True),
        dict(centre="0"),
        dict(centre=10**400),
        dict(knots=[1.0, 0.0]),
        dict(knots=[None]),
        dict(knots=list(range(5000))),
        dict(part="soul"),
        dict(n_inputs=-1),
        dict(n_inputs="3"),
        dict(columns=[]),
        dict(crosses=[["town", "nowhere"]]),
        dict(crosses=[["town"]]),
        dict(misfits={"town": -1}),
        dict(misfits=[1]),
        dict(n_documents=1),
        dict(n_documents=1e300),
        dict(document_counts=np.zeros(7, np.uint32)),
        dict(document_counts=np.full(4096, -1)),
        dict(names__numbers=np.zeros((1, 11), np.uint32)),
        dict(names__seen_once=np.zeros(1 << 10, np.uint64)),
        dict(names__rows=np.array([], np.int64)),
    ],
    ids=lambda changes: str(changes)[5:60],
)
def test_a_forged_state_is_refused_in_a_sentence(changes):
    with pytest.raises((ValueError, TypeError, DataError)) as refusal:
        restored(**changes)
    assert "\n" not in str(refusal.value)


def test_room_for_names_is_not_made_beyond_what_the_names_in_the_file_explain():
    header, arrays = hasher().state()
    header["params"]["names"] = 1 << 26
    with pytest.raises(DataError, match="room for 67108864 names"):
        st.Hasher.from_state(header, arrays)
