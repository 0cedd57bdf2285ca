"""Vowpal Wabbit's text, by line: `[label [importance [base]]] ['tag] |[namespace[:scale]] name[:value] ... |...`.

A feature goes to bucket hash(namespace, name) mod 2^n_bits by the package's own frozen hash, so buckets differ from
VW's; whole numbers are names like any other. Features that repeat add up. Importance becomes the row's weight; base and
tag are checked and then dropped, and VW's constant is the model's intercept. Blank lines are not rows, and there are
no comments. Not read: labels other than one number (costs, actions, several classes), and values that are words.

Reference: Langford, Li and Strehl, Vowpal Wabbit online learning project, 2007; its wiki's page "Input format".
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from steepest.data.chunk import Chunk
from steepest.data.files.blocks import Block, Paths, TextFile, open_files
from steepest.data.readers.lines import SKIP, LineSource, Parsed, bad_lines
from steepest.data.source import Source
from steepest.errors import ColumnWarning, DataError, ParameterError
from steepest.kernels import NameLog, parse_vw

HEAD_BYTES = 1 << 20
_NAMESPACE = re.compile(rb"\|([^\s|:]*)")
MAX_BITS = 30
MAX_SEED = 2**64 - 1
ROWS_PER_BLOCK = 1 << 11  # about

_IF_TAG = f"if it is a tag, put a ' before it; correct the line or {SKIP}"
_FAULTS = {
    "bar_missing": ("the line has no bar '|' before its features", ""),
    "label_missing": (
        "there is no label before the bar",
        f"put a label and a space there, pass with_labels=False if there are none, or {SKIP}",
    ),
    "label_touches_bar": (
        "{token!r} touches the bar, which makes it a tag, not a label",
        f"put a space before the bar, pass with_labels=False if there are no labels, or {SKIP}",
    ),
    "label_not_a_number": ("the label {token!r} is not a number", ""),
    "importance_not_a_number": ("the importance {token!r} is not a number", _IF_TAG),
    "base_not_a_number": ("the base {token!r} is not a number", _IF_TAG),
    "label_not_finite": ("the label {token!r} is not finite", ""),
    "importance_not_finite": ("the importance {token!r} is not finite", ""),
    "base_not_finite": ("the base {token!r} is not finite", ""),
    "importance_negative": ("the importance {token} is negative", ""),
    "too_many_numbers": ("{token!r} follows the label, the importance and the base", _IF_TAG),
    "tag_not_last": ("the tag {token!r} is not the last word before the bar", ""),
    "namespace_missing": ("{token!r} follows the bar without the name of a namespace", ""),
    "scale_not_a_number": ("the namespace's scale {token!r} is not a number", ""),
    "scale_not_finite": ("the namespace's scale {token!r} is not a finite float32 number", ""),
    "value_not_a_number": (
        "the value {token!r} is not a number",
        f"write name=word for a category, correct the line or {SKIP}",
    ),
    "value_not_finite": ("the value {token!r} is not a finite float32 number", ""),
    "cross_too_large": (
        "a cross has more than 16 million pairs of features in this line",
        f"cross smaller namespaces, or {SKIP}",
    ),
    "cross_not_finite": (
        "the product of two crossed values is not a finite float32 number",
        f"scale the values of a namespace, as in |a:0.001, or {SKIP}",
    ),
    "binary": ("the line holds binary data", f"check that the file is Vowpal Wabbit text or {SKIP}"),
}


def scan_vw(
    path: Paths | list[TextFile],
    *,
    n_bits: int = 22,
    signed: bool = False,
    seed: int = 0,
    on_bad_line: str = "error",
    with_labels: bool = True,
    cross: Sequence[tuple[str, str]] = (),
    crosses: Sequence[tuple[str, str]] = (),
) -> VwSource:
    """Opens Vowpal Wabbit files as a source.

    Parameters
    ----------
    path : path, pattern, list of them, or "-" for standard input
        Files, plain or compressed by gz, bz2 or zst, which is detected from their content.
    n_bits : int, 1 to 30
        Features are hashed to 2**n_bits columns.
    signed : bool
        Negate the values of half of the features, chosen by their hash, so that collisions cancel on average. VW has
        no signs.
    seed : int
        Seed of the hash function; another seed gives other collisions.
    on_bad_line : "error" or "skip"
        Skipped lines are counted in `source.skipped`.
    with_labels : bool
        False ignores labels; lines may then start with a feature.
    cross : pairs of namespaces
        Namespaces to cross, as with VW's `-q ab`: each pair of their features in a line becomes a feature, with the
        product of their values. The first letter is enough if only one namespace starts with it.
    crosses : pairs of namespaces
        The same with whole names, as in the recipe of a source.

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
    for name, value, least, most in (("n_bits", n_bits, 1, MAX_BITS), ("seed", seed, 0, MAX_SEED)):
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ParameterError(f"{name}={value!r} must be a whole number from {least} to {most}")
    for pair in (*cross, *crosses):
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise ParameterError(f"cross={pair!r} must be a pair of namespaces, as in cross=[('user', 'item')]")
    source = VwSource(open_files(path), n_bits, signed, seed, on_bad_line, with_labels)
    source.cross = tuple((a, b) for a, b in cross)
    source.crosses = tuple((a, b) for a, b in crosses)
    return source


class NameRecorder(Protocol):
    """Records the names of features while rows are learned."""

    def is_new(self, block_id: int) -> bool:
        """Whether nothing of the block was recorded yet; asked in several threads."""

    def record(self, block_ids: list[int], log: NameLog, n_rows: int) -> None:
        """Takes the names in a sample of these blocks' rows, in the order in which they are learned."""

    def start_over(self) -> None:
        """Forgets all names."""


def recording_names(source: Source, make: Callable[[VwSource], NameRecorder]) -> Source:
    """The source with a name recorder at its root, if its rows are parsed from this format in each run."""

    def listen(base: Source) -> Source:
        if isinstance(base, VwSource):
            base = base.copy()
            base.recorder = make(base)
        return base

    return source.rebased(listen)


def with_bits(source: Source, n_bits: int) -> Source:
    """The same rows, read anew and hashed to another number of bits."""

    def change(base: Source) -> Source:
        if not isinstance(base, VwSource):
            raise DataError(
                "the rows are not read from Vowpal Wabbit text, so their features have no names; give the text"
            )
        base.prepare()
        changed = base.copy()
        changed.n_bits, changed.n_features, changed.recorder = n_bits, 1 << n_bits, None
        return changed

    return source.rebased(change)


class VwSource(LineSource):
    """Rows of Vowpal Wabbit files; made by `scan_vw`."""

    n_features: int
    recorder: NameRecorder | None = None
    cross: tuple[tuple[str, str], ...] = ()  # as given
    crosses: tuple[tuple[str, str], ...] = ()  # by the names of namespaces

    def __init__(
        self, files: list[TextFile], n_bits: int, signed: bool, seed: int, on_bad_line: str, with_labels: bool
    ) -> None:
        super().__init__(files, on_bad_line, with_labels)
        self.n_bits = n_bits
        self.n_features = 1 << n_bits
        self.signed = signed
        self.seed = seed

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and how features are hashed."""
        known = {"format": "vw", "n_bits": self.n_bits, "signed": self.signed, "seed": self.seed}
        return known | ({"crosses": [list(pair) for pair in self.crosses]} if self.crosses else {})

    def prepare(self) -> None:
        """Finds the namespaces that crosses mean, in the first lines."""
        if not self.cross:
            return
        head = b"".join(file.head(HEAD_BYTES) for file in self.files[:8])
        known = sorted({name.decode("utf-8", "replace") for name in _NAMESPACE.findall(head)})
        self.crosses += tuple((_found(a, known), _found(b, known)) for a, b in self.cross)
        self.cross = ()

    def start_over(self) -> None:
        """Forgets the recorded names."""
        if self.recorder is not None:
            self.recorder.start_over()

    def record_names(self, names: tuple[list[int], NameLog, int]) -> None:
        """Passes names on to the recorder."""
        if self.recorder is not None:
            self.recorder.record(*names)

    def parse(self, blocks: list[Block]) -> Parsed:
        """Parses blocks of lines, with the names of those that are new to the recorder."""
        texts, recorder = [block.text for block in blocks], self.recorder
        new = [recorder is not None and recorder.is_new(block.first_id) for block in blocks]
        # A sample that gets thinner block by block, whatever the order in which they are read.
        first_rows = [
            block.number * ROWS_PER_BLOCK if is_new else -1 for block, is_new in zip(blocks, new, strict=True)
        ]
        indptr, indices, values, y, weight, rows, n_bad, bad, log = parse_vw(
            texts,
            log_from=first_rows if any(new) else [],
            n_bits=self.n_bits,
            signed=self.signed,
            with_labels=self.with_labels,
            skip_bad=self.on_bad_line == "skip",
            seed=self.seed,
            crosses=self.crosses,
        )
        chunk = Chunk(indptr, indices, values, self.n_features, y, weight)
        names = ([block.first_id for block, is_new in zip(blocks, new, strict=True) if is_new], log, sum(rows))
        return Parsed(chunk, rows, n_bad, bad_lines(_FAULTS, texts, bad), names if any(new) else None)


def _found(name: str, known: list[str]) -> str:
    """The namespace that a name, or its first letter, stands for."""
    if name in known:
        return name
    like = [space for space in known if space.startswith(name)] if len(name) == 1 else []
    if len(like) > 1:
        listed = ", ".join(map(repr, like[:10]))
        raise ParameterError(f"cross names {name!r}, but several start with it: {listed}; write the name in full")
    if not like:
        listed = ", ".join(map(repr, known[:10])) or "none"
        warnings.warn(
            f"cross names the namespace {name!r}, but the first lines have {listed}: it is crossed if it occurs",
            ColumnWarning,
            stacklevel=3,
        )
    return like[0] if like else name
