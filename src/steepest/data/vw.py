"""Vowpal Wabbit's text, a row a line: `[label [importance [base]]] ['tag] |[namespace[:scale]] name[:value] ... |...`.

A feature goes to bucket hash(namespace, name) mod 2^n_bits by the package's own frozen hash, so buckets differ from
VW's; whole numbers are names like any other. Features that repeat add up. Importance becomes the row's weight; base and
tag are checked and then dropped, and VW's constant is the model's intercept. Blank lines are no rows, and there are no
comments. Not read: labels other than one number (costs, actions, several classes), and values that are words.

Reference: Langford, Li and Strehl, Vowpal Wabbit online learning project, 2007; its wiki's page "Input format".
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

from steepest.data.chunk import Chunk
from steepest.data.files import Block, Paths, Text, TextFile, open_files
from steepest.data.lines import BadLine, LineSource, Parsed, shown_token
from steepest.data.parameters import ParameterError
from steepest.data.source import Limited, Selected, Source
from steepest.kernels import NameLog, parse_vw

MAX_BITS = 30
MAX_SEED = 2**64 - 1
ROWS_OF_A_BLOCK = 1 << 11  # about

_SKIP = 'pass on_bad_line="skip"'
_FAULTS = {
    "bar_missing": ("the line has no bar '|' before its features", ""),
    "label_missing": (
        "there is no label before the bar",
        f"put a label and a space there, pass with_labels=False if there are none, or {_SKIP}",
    ),
    "label_touches_bar": (
        "{token!r} touches the bar, which makes it a tag and no label",
        f"put a space before the bar, pass with_labels=False if there are no labels, or {_SKIP}",
    ),
    "label_not_a_number": ("the label {token!r} is not a number", ""),
    "importance_not_a_number": (
        "the importance {token!r} is not a number",
        f"if it is a tag, put a ' before it; correct the line or {_SKIP}",
    ),
    "base_not_a_number": (
        "the base {token!r} is not a number",
        f"if it is a tag, put a ' before it; correct the line or {_SKIP}",
    ),
    "label_not_finite": ("the label {token!r} is not finite", ""),
    "importance_not_finite": ("the importance {token!r} is not finite", ""),
    "base_not_finite": ("the base {token!r} is not finite", ""),
    "importance_negative": ("the importance {token} is negative", ""),
    "too_many_numbers": (
        "{token!r} follows the label, the importance and the base",
        f"if it is a tag, put a ' before it; correct the line or {_SKIP}",
    ),
    "tag_not_last": ("the tag {token!r} is not the last word before the bar", ""),
    "namespace_missing": ("{token!r} follows the bar without the name of a namespace", ""),
    "scale_not_a_number": ("the namespace's scale {token!r} is not a number", ""),
    "scale_not_finite": ("the namespace's scale {token!r} is not a finite float32 number", ""),
    "value_not_a_number": (
        "the value {token!r} is not a number",
        f"write name=word for a category, correct the line or {_SKIP}",
    ),
    "value_not_finite": ("the value {token!r} is not a finite float32 number", ""),
    "binary": ("the line holds binary data", f"check that the file is Vowpal Wabbit text or {_SKIP}"),
}


def scan_vw(
    path: Paths | list[TextFile],
    *,
    n_bits: int = 22,
    signed: bool = False,
    seed: int = 0,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> VwSource:
    """Rows of Vowpal Wabbit files, read anew in every epoch.

    Parameters
    ----------
    path : path, pattern, list of them, or "-" for standard input
        Plain or packed by gz, bz2 or zst, as their content tells.
    n_bits : int, 1 to 30
        Features are hashed to 2**n_bits columns.
    signed : bool
        Whether half of the features, as their hash tells, have their values negated, so that collisions cancel on
        average. VW has no signs.
    seed : int
        Another seed, other collisions.
    on_bad_line : "error" or "skip"
        Skipped lines are counted in `source.skipped`.
    with_labels : bool
        False: lines may start without a label, and labels are not kept.

    Examples
    --------
    >>> import tempfile, os, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "two.vw")
    >>> _ = open(path, "w").write("1 2.0 'zebra |size height:1.5 |says black white\\n-1 |size height\\n")
    >>> chunk = next(iter(st.scan_vw(path, n_bits=10)))
    >>> chunk.n_features, chunk.indptr.tolist(), chunk.values.tolist()
    (1024, [0, 3, 4], [1.5, 1.0, 1.0, 1.0])
    >>> chunk.y.tolist(), chunk.weight.tolist(), bool(chunk.indices[0] == chunk.indices[3])
    ([1.0, -1.0], [2.0, 1.0], True)
    """
    if not _is_whole(n_bits, 1, MAX_BITS):
        raise ParameterError(f"n_bits={n_bits!r} must be a whole number from 1 to {MAX_BITS}")
    if not _is_whole(seed, 0, MAX_SEED):
        raise ParameterError(f"seed={seed!r} must be a whole number from 0 to {MAX_SEED}")
    return VwSource(open_files(path), n_bits, signed, seed, on_bad_line, with_labels)


class NameListener(Protocol):
    """Who keeps the names of features while rows are learned."""

    def wants(self, block_id: int) -> bool:
        """Whether the block has not been heard of yet; asked in several threads."""

    def hear(self, block_ids: list[int], log: NameLog, n_rows: int) -> None:
        """The names in a sample of these blocks' rows, in the order in which they are learned."""

    def start_over(self) -> None:
        """Forgets all."""


def listened_to(source: Source, listener: Callable[[VwSource], NameListener]) -> Source:
    """The source with a listener put in at the bottom, if its rows are parsed from this format in each run."""
    if isinstance(source, VwSource):
        return source.listened_to(listener(source))
    if not isinstance(source, Limited | Selected):
        return source
    result = copy.copy(source)
    result.parent = listened_to(source.parent, listener)
    return result


class VwSource(LineSource):
    """Rows of Vowpal Wabbit files; made by `scan_vw`."""

    n_features: int
    listener: NameListener | None = None

    def __init__(
        self, files: list[TextFile], n_bits: int, signed: bool, seed: int, on_bad_line: str, with_labels: bool
    ) -> None:
        super().__init__(files, on_bad_line)
        self.n_bits = n_bits
        self.n_features = 1 << n_bits
        self.signed = signed
        self.seed = seed
        self.with_labels = with_labels

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and how features are hashed."""
        return {"format": "vw", "n_bits": self.n_bits, "signed": self.signed, "seed": self.seed}

    def fingerprint(self) -> dict[str, Any]:
        """With labels or without."""
        return {**super().fingerprint(), "with_labels": self.with_labels}

    def listened_to(self, listener: NameListener) -> VwSource:
        """The same rows, of whose features somebody wants to know the names."""
        source = self._copy()
        source.listener = listener
        return source

    def start_over(self) -> None:
        """Names are told anew."""
        if self.listener is not None:
            self.listener.start_over()

    def hear(self, names: tuple[list[int], NameLog, int]) -> None:
        """Passes names on."""
        if self.listener is not None:
            self.listener.hear(*names)

    def parse_blocks(self, blocks: list[Block]) -> Parsed:
        """With the names of blocks that are new to the listener."""
        texts, listener = [block.text for block in blocks], self.listener
        new = [] if listener is None else [block for block in blocks if listener.wants(block.first_id)]
        # A sample that gets thinner block by block, whatever the order in which they are read.
        return self._parse(
            texts,
            [block.number * ROWS_OF_A_BLOCK if block in new else -1 for block in blocks],
            [block.first_id for block in new],
        )

    def parse(self, texts: list[Text]) -> Parsed:
        """Blocks of lines."""
        return self._parse(texts, [], [])

    def _parse(self, texts: list[Text], log_from: list[int], new: list[int]) -> Parsed:
        indptr, indices, values, y, weight, rows, n_bad, bad, log = parse_vw(
            texts,
            log_from=log_from,
            n_bits=self.n_bits,
            signed=self.signed,
            with_labels=self.with_labels,
            skip_bad=self.on_bad_line == "skip",
            seed=self.seed,
        )
        chunk = Chunk(indptr, indices, values, self.n_features, y, weight)
        names = (new, log, sum(rows)) if new else None
        return Parsed(chunk, rows, n_bad, [_bad_line(texts, *place) for place in bad], names)


def _bad_line(texts: list[Text], text: int, line: int, token: int, length: int, fault: str) -> BadLine:
    what, remedy = _FAULTS[fault]
    what = what.format(token=shown_token(texts[text], token, length))
    return BadLine(text, line, what, remedy) if remedy else BadLine(text, line, what)


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
