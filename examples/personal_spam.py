"""A spam filter for each user, in one weight table: crosses token#user beside the tokens (Weinberger et al., 2009).

Some mail is spam to everybody; some is spam to one user and news to another. A global filter can only follow the
majority. A personal one also has the features token#user, hashed into the same table: it learns each user's taste from
few mails, and falls back on the tokens alone for users that it has never seen. No user needs a model of their own.

The mail is generated: users get it by a power law, most topics mean the same to all, a third is a matter of taste.
Measured is the spam that gets through when 1 % of the good mail is lost, by how many mails of the user were learned.

    python examples/personal_spam.py                               a table in some ten seconds
    python examples/personal_spam.py --bits 18 20 22 24 26 --picture docs/img/personal_spam.svg
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import steepest as st

GROUPS = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, None))  # mails of a user that were learned
N_TOPICS, TOPICS_OF_A_USER, CONTESTED = 60, 3, 1 / 3
TOPIC_WORDS, COMMON_WORDS = 12, 3000
MAIL_WORDS = (6, 16)  # words of a mail: of its topic, and of no meaning
NOISE = 0.003
FALSE_POSITIVES = 0.01


@dataclass(frozen=True)
class Mails:
    """Rows as `LinearClassifier` takes them, and whose they are."""

    rows: dict[str, list[str]]
    spam: Any
    users: Any


class World:
    """Users with a taste, and the mail they get."""

    def __init__(self, n_users: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_users = n_users
        self.topics = np.array([self.rng.choice(N_TOPICS, TOPICS_OF_A_USER, replace=False) for _ in range(n_users)])
        common = self.rng.random(N_TOPICS) < 0.5  # which topics are spam to everybody
        taste = self.rng.random((n_users, N_TOPICS)) < 0.5
        contested = np.arange(N_TOPICS) < CONTESTED * N_TOPICS
        self.is_spam = np.where(contested, taste, common)
        rank = np.arange(1, n_users + 1)
        self.share = (1 / rank) / (1 / rank).sum()

    def mails(self, users: Any) -> Mails:
        """One mail for each user named."""
        n = len(users)
        topic = self.topics[users, self.rng.integers(0, TOPICS_OF_A_USER, n)]
        spam = self.is_spam[users, topic] ^ (self.rng.random(n) < NOISE)
        of_topic = topic[:, None] * TOPIC_WORDS + self.rng.integers(0, TOPIC_WORDS, (n, MAIL_WORDS[0]))
        common = (COMMON_WORDS * self.rng.random((n, MAIL_WORDS[1])) ** 3).astype(int)  # few of them are frequent
        texts = [
            " ".join([f"topic{j}" for j in row] + [f"word{j}" for j in other])
            for row, other in zip(of_topic.tolist(), common.tolist(), strict=True)
        ]
        return Mails({"text": texts, "user": [f"u{user}" for user in users]}, spam.astype(int), users)

    def stream(self, n_mails: int) -> Mails:
        """Mail as it comes: most of it to few users."""
        return self.mails(self.rng.choice(self.n_users, n_mails, p=self.share))

    def test(self, learned: Any, mails_of_a_group: int) -> list[Mails]:
        """As many new mails for each group of users, by how many of their mails were learned."""
        counts = np.bincount(learned, minlength=self.n_users)
        groups = []
        for low, high in GROUPS:
            users = np.flatnonzero((counts >= low) & (counts <= (high if high is not None else counts.max())))
            if len(users) == 0:
                raise SystemExit(f"no user has {low} mails to learn from; try more users, or other numbers of mails")
            groups.append(self.mails(self.rng.choice(users, mails_of_a_group)))
        return groups


def train(mails: Mails, n_bits: int, *, personal: bool) -> st.LinearClassifier:
    """The global filter knows the words; the personal one also the words of each user."""
    cross = (("text", "user"),) if personal else ()
    columns = {"text": "text", "categorical": "user"} if personal else {"text": "text"}
    hasher = st.Hasher(n_bits, cross=cross, **columns)
    return st.LinearClassifier(hasher=hasher, average=False, epochs=5, random_state=0).fit(mails.rows, mails.spam)


def uncaught(model: st.LinearClassifier, mails: Mails) -> float:
    """The share of spam that gets through where 1 % of the good mail is lost."""
    scores = model.decision_function(mails.rows)
    threshold = np.quantile(scores[mails.spam == 0], 1 - FALSE_POSITIVES)
    return float((scores[mails.spam == 1] <= threshold).mean())


def group_name(low: int, high: int | None) -> str:
    """How a group is headed."""
    if high is None:
        return f"{low}+"
    return str(low) if low == high else f"{low}-{high}"


def measure(
    n_mails: int, n_users: int, n_test: int, bits: Sequence[int], seed: int
) -> dict[tuple[str, int], list[float]]:
    """Uncaught spam of each group, by kind of filter and number of bits."""
    world = World(n_users, seed)
    mails = world.stream(n_mails)
    groups = world.test(mails.users, n_test)
    found = {}
    for n_bits in bits:
        for kind in ("global", "personal"):
            model = train(mails, n_bits, personal=kind == "personal")
            found[kind, n_bits] = [uncaught(model, group) for group in groups]
    return found


def as_table(found: dict[tuple[str, int], list[float]]) -> str:
    """The shares in percent, a filter a line."""
    lines = [f"{'uncaught spam, %':<20}{''.join(f'{group_name(*group):>8}' for group in GROUPS)}"]
    for (kind, n_bits), shares in sorted(found.items()):
        lines.append(f"{kind:<10}{n_bits} bits   {''.join(f'{share:8.1%}' for share in shares)}".replace("%", " "))
    return "\n".join(lines)


def draw(found: dict[tuple[str, int], list[float]], path: str) -> None:
    """The same as a picture, if matplotlib is there."""
    try:
        import matplotlib as mpl
        import matplotlib.pyplot as plt
    except ImportError:
        print("no picture without matplotlib; pip install matplotlib", file=sys.stderr)
        return
    mpl.rcParams.update({"svg.hashsalt": "steepest", "svg.fonttype": "none", "font.size": 9, "legend.frameon": False})
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    names = [group_name(*group) for group in GROUPS]
    shades = np.linspace(0.35, 1.0, len({n_bits for _, n_bits in found}))
    for kind, style, colour in (("global", "--", "0.4"), ("personal", "-", "tab:blue")):
        curves = [(n_bits, shares) for (name, n_bits), shares in sorted(found.items()) if name == kind]
        for shade, (n_bits, shares) in zip(shades, curves, strict=True):
            shown = {"linestyle": style, "color": colour, "alpha": shade, "marker": "o", "markersize": 3}
            axes.plot(names, [100 * share for share in shares], label=f"{kind}, {n_bits} bits", **shown)
    axes.set(
        xlabel="mails of the user that were learned", ylabel="uncaught spam, %, at 1 % false positives", ylim=(0, None)
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")


def main(arguments: Sequence[str] | None = None) -> dict[tuple[str, int], list[float]]:
    """Generates, trains, measures and prints."""
    parser = argparse.ArgumentParser(description="Personal spam filters in one weight table.")
    parser.add_argument("--mails", type=int, default=60_000, help="to learn from")
    parser.add_argument("--users", type=int, default=8_000)
    parser.add_argument("--test", type=int, default=6_000, help="new mails for each group of users")
    parser.add_argument("--bits", type=int, nargs="+", default=[18, 20, 22, 24])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", metavar="FILE", help="also draw it")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    found = measure(options.mails, options.users, options.test, options.bits, options.seed)
    print(as_table(found))
    print(f"{options.mails:,} mails of {options.users:,} users, {time.perf_counter() - started:.0f} s", file=sys.stderr)
    if options.picture:
        draw(found, options.picture)
    return found


if __name__ == "__main__":
    main()
