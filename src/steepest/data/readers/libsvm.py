"""libsvm (svmlight) files: `label [qid:group] index:value index:value ... # comment`, one row per line.

Indices may be unsorted and repeated; repeated ones add up. Blank lines and comments are not rows. A qid becomes the
row's `group`, for ranking. Values become float32 and labels float64, each the nearest one. Not read: several labels per
row, and bare indices without a value.

Reference: Chang and Lin, LIBSVM: a library for support vector machines, 2011.
"""

from __future__ import annotations

from typing import Any

from steepest.data.chunk import Chunk
from steepest.data.files.blocks import Block, Paths, Text, TextFile, open_files
from steepest.data.readers.lines import SKIP, LineSource, Parsed, bad_lines
from steepest.errors import DataError, ParameterError
from steepest.kernels import parse_libsvm

# What zero_based="auto" is inferred from.
HEAD_BYTES = 1 << 20
MAX_FEATURES = 2**31 - 1

_FAULTS = {
    "label_missing": (
        "the line starts with {token!r} instead of a label",
        f"put a label first, pass with_labels=False if there are none, or {SKIP}",
    ),
    "label_not_a_number": ("the label {token!r} is not a number", ""),
    "label_not_finite": ("the label {token!r} is not finite", ""),
    "several_labels": ("the line has several labels {token!r}", f"keep one label per line or {SKIP}"),
    "group_not_a_number": ("the qid {token!r} is not a whole number", ""),
    "index_not_a_number": ("the index {token!r} is not a whole number", ""),
    "index_negative": ("the index {token} is negative", ""),
    "index_zero": ("the index 0 is in a file that counts from 1", "pass zero_based=True if it counts from 0"),
    "index_too_large": ("the index {token} is too large", f"hash to fewer than 2^31 features or {SKIP}"),
    "index_beyond": ("the index {token} lies beyond n_features={n_features}", f"pass a larger n_features or {SKIP}"),
    "colon_missing": ("the index {token!r} has no value", f"write index:value or {SKIP}"),
    "value_not_a_number": ("the value {token!r} is not a number", ""),
    "value_not_finite": ("the value {token!r} is not a finite float32 number", ""),
    "binary": ("the line holds binary data", f"check that the file is libsvm text or {SKIP}"),
}


def scan_libsvm(
    path: Paths | list[TextFile],
    *,
    zero_based: bool | str = "auto",
    n_features: int | None = None,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> LibsvmSource:
    """Opens libsvm files as a source.

    Parameters
    ----------
    path : path, pattern, list of them, or "-" for standard input
        Files, plain or compressed by gz, bz2 or zst, which is detected from their content.
    zero_based : bool or "auto"
        Whether indices start at 0. "auto" searches the first megabyte for an index 0.
    n_features : int or None
        Number of columns; a larger index is an error. None: the largest index of each chunk.
    on_bad_line : "error" or "skip"
        Skipped lines are counted in `source.skipped`.
    with_labels : bool
        False ignores labels; lines may then start with a feature.

    Examples
    --------
    >>> import tempfile, os, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "two.svm")
    >>> _ = open(path, "w").write("+1 1:0.5 3:2\\n-1 2:1\\n")
    >>> chunk = next(iter(st.scan_libsvm(path)))
    >>> chunk.n_rows, chunk.n_features, chunk.indices.tolist(), chunk.y.tolist()
    (2, 3, [0, 2, 1], [1.0, -1.0])
    """
    if zero_based not in (True, False, "auto"):
        raise ParameterError(f'zero_based={zero_based!r} is unknown; choose True, False or "auto"')
    if n_features is not None and not 1 <= n_features <= MAX_FEATURES:
        raise ParameterError(f"n_features={n_features} must lie between 1 and {MAX_FEATURES}")
    return LibsvmSource(open_files(path), zero_based, n_features, on_bad_line, with_labels)


class LibsvmSource(LineSource):
    """Rows of libsvm files; made by `scan_libsvm`."""

    def __init__(
        self,
        files: list[TextFile],
        zero_based: bool | str,
        n_features: int | None,
        on_bad_line: str,
        with_labels: bool,
    ) -> None:
        super().__init__(files, on_bad_line, with_labels)
        self.n_features = n_features
        self._base = {"zero_based": zero_based}  # inferred once and then shared by all copies

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options; zero_based is "auto" until the first read."""
        return {"format": "libsvm", **self._base, "n_features": self.n_features}

    def prepare(self) -> None:
        """Infers whether indices count from 0."""
        if self._base["zero_based"] == "auto":
            head = next(filter(None, (file.head(HEAD_BYTES) for file in self.files)), b"")
            indices = parse_libsvm([_whole_lines(head)], zero_based=True, with_labels=False, skip_bad=True)[1]
            self._base["zero_based"] = bool((indices == 0).any())

    def parse(self, blocks: list[Block]) -> Parsed:
        """Parses blocks of lines."""
        return self.parse_texts([block.text for block in blocks])

    def parse_texts(self, texts: list[Text]) -> Parsed:
        """Parses texts of whole lines."""
        indptr, indices, values, y, group, n_features, rows, n_bad, bad = parse_libsvm(
            texts,
            zero_based=bool(self._base["zero_based"]),
            with_labels=self.with_labels,
            skip_bad=self.on_bad_line == "skip",
            n_features=self.n_features or MAX_FEATURES,
        )
        chunk = Chunk(indptr, indices, values, self.n_features or n_features, y, group=group)
        return Parsed(chunk, rows, n_bad, bad_lines(_FAULTS, texts, bad, n_features=self.n_features))


def read_lines(text: bytes, zero_based: bool, n_features: int | None) -> Chunk:
    """Lines of libsvm text as a chunk; the first bad one is an error."""
    parsed = LibsvmSource([], zero_based, n_features, "skip", True).parse_texts([text])
    if parsed.bad:
        raise DataError(parsed.bad[0].fault)
    rows: Chunk = parsed.rows
    return rows


def _whole_lines(head: bytes) -> bytes:
    """The text without its last line, which may be cut; a single line loses its last entry instead."""
    stop = head.rfind(b"\n") + 1 or head.rfind(b" ") + 1
    return head[:stop] if len(head) >= HEAD_BYTES else head
