"""A model checker: learn, merge, save, load, pickle, look, clone and start over in any order, for every estimator.

After any sequence the model holds, bit for bit, what a plain replay has learned: a new estimator that was given the
same rows by the same calls, and nothing else between them. Runs that are stopped at checkpoints, any number of times,
end as one that was not. Shards that learn apart and are merged give the same bits in whatever order they learn, and
also where each has been to another process, as its state or as a pickle. CI takes a few sequences;
HYPOTHESIS_EXAMPLES=1000 in the environment takes more.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path

import hypothesis.strategies as some
import pytest
from estimators import CASES, REFUSED, bits
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from sklearn.base import clone

import steepest as st

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "3"))
LEARNERS = (
    "linear/sgd-two", "linear/asgd-four", "linear/ftrl-l1-four", "linear/adagrad-two", "linear/coin-four",
    "linear/hashed-four", "linear/replicas-batches-two", "linear/mixing-two", "linear/truncated-two", "linear/lbfgs",
    "linear/saga", "linear/cd", "linear/numbers", "ranker/blocks", "network/adam-four", "network/numbers",
    "radial/fixed-RBFClassifier", "radial/closed-form-RBFRegressor", "k-means/minibatch-blobs", "text/softmax",
    "text/hs", "factors/sgd", "factors/als", "factors/blocks",
)  # fmt: skip
MERGED = (
    "linear/sgd-two", "linear/asgd-four", "linear/ftrl-l1-four", "linear/adagrad-two", "linear/coin-four",
    "linear/truncated-two", "linear/numbers", "network/adam-four", "network/numbers", "radial/fixed-RBFClassifier",
    "radial/closed-form-RBFRegressor", "k-means/minibatch-blobs",
)  # fmt: skip
ROWS = 400


def merge(model, *shards, far=False):
    """The model takes in what copies of it learn from the shards; `far`: the last one first, each sent on the way."""
    common = model.learner_
    by_deltas = hasattr(common, "delta")
    replies = [None] * len(shards)
    for place in reversed(range(len(shards))) if far else range(len(shards)):
        base = type(common).from_state(common.settings, sent(common.state)) if far and not by_deltas else common
        own = base.fork() if by_deltas else base.clone()
        for chunk in st.from_arrays(*shards[place]).epoch(0):
            own.step(chunk)
        own.finish()
        reply = own.delta(common, "full", {})[0] if by_deltas else own.state
        replies[place] = sent(reply) if far else reply
    if by_deltas:
        common.merge(replies, *common.shares([reply.rows for reply in replies]))
    else:
        model.learner_ = common.merge(replies)


def sent(reply):
    return pickle.loads(pickle.dumps(reply))


class StopAfter(st.Monitor):
    """Asks for an end after some chunks."""

    def __init__(self, n):
        self.left = n

    def wants_stop(self):
        self.left -= 1
        return self.left < 0


class Machine(RuleBasedStateMachine):
    """One estimator under test, and the calls that a replay makes."""

    name = ""

    def __init__(self):
        super().__init__()
        self.case = CASES[self.name]
        self.data = self.case.data.head(ROWS)
        self.calls = []
        self.folder = tempfile.TemporaryDirectory()
        self.place = Path(self.folder.name)
        self.files = {}

    def teardown(self):
        self.check()
        self.folder.cleanup()

    @initialize()
    def begin(self):
        self.model = self.case.make()

    def cut(self, start, n):
        """Some rows; a group of rows is never cut in two."""
        if self.data.groups is None:
            return self.data.part(start, start + n)
        edges = sorted({0, *self.data.cuts, self.data.n_rows})
        spots = [edge for edge in edges if edge <= self.data.n_rows]
        first = start % (len(spots) - 1)
        return self.data.part(spots[first], spots[first + 1])

    @property
    def learns_more(self):
        return self.case.without.get("pieces") not in REFUSED

    @rule()
    def fit(self):
        """Forgets what was learned before."""
        self.model.fit(*self.data.all)
        self.calls = [("fit", self.data.all)]

    @precondition(lambda self: self.learns_more)
    @rule(start=some.integers(0, ROWS - 60), n=some.integers(30, 200))
    def partial_fit(self, start, n):
        rows = self.cut(start, n)
        self.model.partial_fit(*rows)
        self.calls.append(("partial_fit", rows))

    @precondition(lambda self: self.calls and self.name in MERGED)
    @rule(starts=some.lists(some.integers(0, ROWS - 60), min_size=1, max_size=3), n=some.integers(30, 120))
    def merge(self, starts, n):
        """Copies that learn some rows apart, and are merged."""
        shards = [self.cut(start, n) for start in starts]
        merge(self.model, *shards)
        self.calls.append(("merge", shards))

    @precondition(lambda self: self.calls)
    @rule(slot=some.integers(0, 2))
    def save(self, slot):
        path = self.place / f"{slot}.steepest"
        self.model.save(path)
        self.files[path] = list(self.calls)

    @precondition(lambda self: self.files)
    @rule(choice=some.integers(0, 2))
    def load(self, choice):
        """Goes back to an earlier model; what was learned since is forgotten."""
        path = sorted(self.files)[choice % len(self.files)]
        self.model, self.calls = st.load(path), list(self.files[path])

    @rule()
    def pickle(self):
        self.model = pickle.loads(pickle.dumps(self.model))

    @precondition(lambda self: self.calls)
    @rule()
    def look(self):
        """Changes nothing."""
        self.model.predict(self.data.probe)
        repr(self.model)

    @rule()
    def clone(self):
        """Parameters without what was learned."""
        self.model, self.calls = clone(self.model), []

    @precondition(lambda self: "resume" not in self.case.without and self.data.kind != "texts")
    @rule(stops=some.lists(some.integers(0, 6), max_size=3))
    def fit_with_stops(self, stops):
        """A run that is stopped at some chunks and goes on is one that was not."""
        checkpoint = self.place / "c"
        for after in stops:
            self.model.fit_stream(
                self.data.source(100), checkpoint=checkpoint, resume=True, monitor=StopAfter(after),
                checkpoint_every="1-rows",
            )  # fmt: skip
        self.model.fit_stream(self.data.source(100), checkpoint=checkpoint, resume=True, checkpoint_every="1-rows")
        self.calls = [("fit_stream", (self.data.source(100),))]

    def check(self):
        if not self.calls:
            return
        replay = self.case.make()
        for method, rows in self.calls:
            if method == "merge":
                merge(replay, *rows, far=True)
            else:
                getattr(replay, method)(*rows)
        ours, others = bits(self.model, self.place), bits(replay, self.place)
        assert ours.keys() == others.keys()
        assert [name for name in ours if ours[name] != others[name]] == []


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_order_of_calls_learns_what_a_plain_replay_does(name):
    machine = type("Machine", (Machine,), {"name": name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=8,
            deadline=None,
            derandomize=EXAMPLES < 10,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("name", MERGED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_shards_merge_to_the_same_bits_in_any_order_and_after_a_journey(name, tmp_path):
    data = CASES[name].data.head(ROWS)
    near, far, alone = (CASES[name].make().partial_fit(*data.part(0, 100)) for _ in range(3))
    shards = [data.part(100, 180), data.part(180, 220), data.part(220, 360)]
    merge(near, *shards)
    merge(far, *shards, far=True)
    assert bits(near, tmp_path) == bits(far, tmp_path) != bits(alone, tmp_path)
