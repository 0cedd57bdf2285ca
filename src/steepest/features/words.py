"""Words to leave out: rare and frequent ones by the number of rows that have them, and function words by a list.

Rows are counted in a pass of their own, before the first one is hashed, in at most 64 MB: the first MOST_WORDS
different words have a counter each, which is exact; words after them share a count-min sketch. Its counts are never too
low, and too high by more than e N / 2^SKETCH_BITS for fewer than 2 % of its words, N being the times that it was asked
to count. So a sketch may keep a word that is a little too rare; no word is lost to min_count that has enough rows.
What was decided is stored as hashes and bits, and new rows are read by it without counting again: a word that was never
seen has no rows. See `native/text/word_filter.h` for the counters.
Rare n-grams are left out in another way, by the counts of tf-idf: `count_rows` makes a pass for them before learning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.data.raw import columns_of
from steepest.data.source import Source
from steepest.errors import DataError

if TYPE_CHECKING:
    from steepest.features.hasher import Hasher

MOST_WORDS = 3 << 19
SKETCH_BITS = 21
# Words that hold English sentences together: articles, pronouns, prepositions, conjunctions, auxiliary verbs, and the
# pieces that an apostrophe leaves of them.
_ENGLISH = """
    a about above across after afterwards again against ain all almost along already also although always am among an
    and another any anybody anyone anything anywhere are aren around as at away back be became because become been
    before behind being below beneath beside besides between beyond both but by can cannot couldn could d did didn do
    does doesn doing don done down during each either else ever every everybody everyone everything everywhere except
    few for from further had hadn has hasn have haven having he hence her here hers herself him himself his how however
    i if in indeed inside instead into is isn it its itself just least less ll m many may maybe me might mightn mine
    more moreover most much must mustn my myself near neither never nevertheless no nobody none nor not nothing now
    nowhere of off often on once one only onto or other others otherwise ought our ours ourselves out outside over own
    per perhaps quite rather re s same shall shan she should shouldn since so some somebody somehow someone something
    sometimes somewhere soon still such t than that the their theirs them themselves then there therefore these they
    this those though through throughout thus to together too toward towards under unless until up upon us ve very was
    wasn we were weren what whatever when whenever where whereas wherever whether which whichever while who whoever whom
    whose why will with within without won would wouldn yes yet you your yours yourself yourselves
"""
STOP_LISTS = {"english": frozenset(_ENGLISH.split())}


@dataclass(frozen=True, slots=True)
class KeptWords:
    """The words that are kept or left out, listed by hash; for words beyond the lists, by the bits of a sketch."""

    listed: Array  # hashes, ascending
    keeps_listed: bool
    enough: Array  # bits of a sketch's cells with enough rows; empty if all words were counted exactly
    too_many: Array  # the same for cells with too many
    n_rows: int
    n_words: int  # counted exactly
    n_kept: int  # of those
    n_sketched: int  # rows with words that the sketch counted

    @classmethod
    def of(cls, counts: kernels.WordCounts, min_count: int, max_share: float) -> KeptWords:
        """Decides which words are kept, from their counts."""
        hashes, rows, cells = counts.counts()
        most = math.floor(max_share * counts.n_rows)
        kept = (rows >= min_count) & (rows <= most)
        by_list = min_count > 1
        return cls(
            np.sort(hashes[kept if by_list else ~kept]),
            by_list,
            _bits(cells >= min_count) if by_list else _bits(cells[:0] > 0),
            _bits(cells > most),
            counts.n_rows,
            len(hashes),
            int(kept.sum()),
            counts.n_sketched,
        )

    @property
    def exact(self) -> bool:
        """Whether all words were counted exactly."""
        return self.n_sketched == 0

    @property
    def error(self) -> float:
        """How much too high the sketch may have counted; exceeded for fewer than 2 % of its words."""
        return math.e * self.n_sketched / (1 << SKETCH_BITS)

    def as_filter(self) -> kernels.WordFilter:
        """The decision in the kernel's form."""
        return kernels.WordFilter(self.listed, self.keeps_listed, self.enough, self.too_many, SKETCH_BITS)

    def __str__(self) -> str:
        said = f"{self.n_kept:,} of {self.n_words:,} words kept, by their counts in {self.n_rows:,} rows"
        if self.exact:
            return said
        return f"{said}; further words by a sketch, whose counts are at most {self.error:.2g} too high"

    def state(self) -> dict[str, Array]:
        """The complete state as arrays for a model file."""
        facts = [self.keeps_listed, self.n_rows, self.n_words, self.n_kept, self.n_sketched]
        return {
            "listed": self.listed,
            "enough": self.enough,
            "too_many": self.too_many,
            "facts": np.array(facts, np.int64),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> KeptWords:
        """Builds the object from the arrays that `state` gave."""
        try:
            keeps_listed, *facts = (int(fact) for fact in state["facts"])
            listed: Array = np.array(state["listed"], np.uint64)
            enough, too_many = (np.array(state[name], np.uint8) for name in ("enough", "too_many"))
            found = cls(listed, bool(keeps_listed), enough, too_many, *facts)
            if len(facts) != 4 or min(facts) < 0 or listed.ndim + enough.ndim + too_many.ndim != 3:
                raise ValueError("its numbers do not fit together")
            found.as_filter()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"the words that the model keeps cannot be read ({error}); the file is damaged") from None
        return found


def _bits(cells: Array) -> Array:
    return np.packbits(cells, bitorder="little")


def count_words(source: Source, hasher: Hasher) -> None:
    """Decides which words a hasher keeps by the rows of a raw source that are to be learned, in a pass over it."""
    if not hasher.counts_words or hasattr(hasher, "words_"):
        return
    if source.root.read_once:
        raise DataError(
            f"{source.root.read_once} can be read only once, but min_count and max_share need a pass over the data "
            "before learning; save it in a file, or name words by stop_words"
        )
    hasher.count_words(columns_of(source))


def count_rows(source: Source, hasher: Hasher, most_entries: float = math.inf) -> bool:
    """Counts the rows with each word and n-gram in a pass of its own, if a hasher leaves out rare ones.

    False if it does not, or if there are too many entries: then rare ones are not left out.
    """
    if not hasher.leaves_out_rare or hasattr(hasher, "document_counts_"):
        return False
    if source.root.read_once:
        raise DataError(
            f"{source.root.read_once} can be read only once, but min_rows needs a pass over the data before learning; "
            "save it in a file, or leave min_rows out"
        )
    n_entries = 0
    with closing(columns_of(source)) as parts:
        for columns in parts:
            n_entries += hasher.count_rows(columns)
            if n_entries > most_entries:
                hasher.forget_counts()
                hasher.min_rows = 1
                return False
    return True
