"""Labelled text, one example per line: `label<TAB>text`, fastText's `__label__a __label__b text`, or plain text.

Texts stay bytes: a hasher takes whatever is not a letter in UTF-8, NUL and broken bytes included, for a separator.
Labels are strings, also "1". Blank lines are not rows, except that without labels each line is a row, so that there is
a prediction for each line. fastText's labels are taken from the start of a line only.
Several labels per line become a 0/1 column for each label; the set of labels is given, or collected in a first pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.files.blocks import Block, Paths, TextFile, open_files
from steepest.data.raw import RawBatch, RawSource
from steepest.data.readers.lines import SKIP, BadLine, LineSource, Parsed
from steepest.data.skipped import EXAMPLES
from steepest.errors import DataError, ParameterError
from steepest.parameters import choice

STYLES = ("auto", "tab", "fasttext", "plain")
PREFIX = b"__label__"
# What style="auto" and multi_label="auto" are inferred from.
HEAD_BYTES = 1 << 20
_TAB, _NEWLINE, _RETURN, _SPACE = b"\t\n\r "
_SHOWN_BYTES = 60

_Fault = tuple[str, str]  # what is wrong with a line, and the remedy
_Labels = tuple[Array, Array, Array]  # lines, and where a label of each starts and stops


def scan_text(
    path: Paths | list[TextFile],
    *,
    style: str = "auto",
    multi_label: bool | str = "auto",
    labels: Iterable[str] | None = None,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> TextSource:
    """Opens files of labelled or plain texts, one per line, as a source of raw rows, hashed while they are read.

    Parameters
    ----------
    path : path, pattern, list of them, or "-" for standard input
        Files, plain or compressed by gz, bz2 or zst, which is detected from their content.
    style : "auto", "tab", "fasttext" or "plain"
        Form of the lines: `label<TAB>text`, `__label__x text`, or text alone. "auto" detects it from the first line.
    multi_label : bool or "auto"
        Whether a line may have several labels (fastText only); "auto" searches the first megabyte for such a line.
    labels : collection of str, optional
        All labels, for multi_label. Without them a first pass over the data collects them.
    on_bad_line : "error" or "skip"
        Skipped lines are counted in `source.skipped`.
    with_labels : bool
        False ignores labels, which may then be absent. With style="tab", a tab still ends the label.

    Examples
    --------
    >>> import tempfile, os, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "two.txt")
    >>> _ = open(path, "w").write("ham\\tsee you\\nspam\\tfree money now\\n")
    >>> source = st.scan_text(path)
    >>> chunk = next(iter(source.with_encoder(lambda batch: st.Hasher().to_chunk(batch.columns))))
    >>> chunk.n_rows, chunk.y.tolist()
    (2, ['ham', 'spam'])
    """
    choice("style", style, STYLES)
    if multi_label not in (True, False, "auto"):
        raise ParameterError(f'multi_label={multi_label!r} is unknown; choose True, False or "auto"')
    given = None if labels is None else sorted({str(label) for label in labels})
    if with_labels and style == "plain":
        raise ParameterError("style='plain' has no labels; pass with_labels=False")
    return TextSource(open_files(path), _Form(style, multi_label, given), on_bad_line, with_labels)


@dataclass(slots=True)
class _Form:
    """The layout of the lines: given, or inferred once and shared by all copies of a source."""

    style: str
    multi_label: bool | str
    labels: list[str] | None


def _style_of(line: bytes, name: str, with_labels: bool) -> str:
    if line.startswith(PREFIX):
        return "fasttext"
    if b"\t" in line and with_labels:
        return "tab"
    if with_labels:
        raise DataError(
            f"{name}: the first line, {_shown(line)}, has no label; write label<TAB>text or __label__x text, "
            "or pass with_labels=False"
        )
    return "plain"


def _starts_with_two_labels(line: bytes) -> bool:
    words = line.split(None, 2)[:2]
    return len(words) == 2 and all(word.startswith(PREFIX) for word in words)


def _shown(text: bytes) -> str:
    shown = text[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return repr(shown + "..." * (len(text) > _SHOWN_BYTES))


class _Lines:
    """The lines of a block, as places in its bytes: without newlines, and carriage returns before them."""

    def __init__(self, data: bytes, *, with_blank: bool) -> None:
        self.data = data
        self.letters = letters = np.frombuffer(data, np.uint8)
        stops = np.flatnonzero(letters == _NEWLINE)
        if len(data) and letters[-1] != _NEWLINE:
            stops = np.append(stops, len(data))
        starts = np.concatenate([np.zeros(min(1, len(stops)), np.int64), stops[:-1] + 1])
        if len(stops):
            stops = stops - ((stops > starts) & (letters[np.maximum(stops - 1, 0)] == _RETURN))
        chosen = slice(None) if with_blank else stops > starts
        self.starts, self.stops = starts[chosen], stops[chosen]

    def cut(self, starts: Array, stops: Array) -> list[bytes]:
        """The bytes between places."""
        data = self.data
        return [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    def first(self, marks: Array, starts: Array) -> Array:
        """The first marked byte from each start on; one that lies behind the data if there is none."""
        places = np.append(np.flatnonzero(marks), len(marks) + 1)
        return np.asarray(places[np.searchsorted(places, starts)])

    def leading_labels(self) -> list[_Labels]:
        """The first fastText labels of lines, then the second ones, and so on: which lines have one, and its places."""
        gaps = (self.letters == _SPACE) | (self.letters == _TAB)
        found = []
        rows, starts, stops = np.arange(len(self.starts)), self.starts, self.stops
        while len(rows):
            marked = stops - starts >= len(PREFIX)
            for place, letter in enumerate(PREFIX):
                maybe = np.flatnonzero(marked)
                marked[maybe] = self.letters[starts[maybe] + place] == letter
            rows, starts, stops = rows[marked], starts[marked], stops[marked]
            ends = np.minimum(self.first(gaps, starts), stops)
            if len(rows):
                found.append((rows, starts + len(PREFIX), ends))
            starts = np.minimum(ends + 1, stops)
        return found


class TextSource(LineSource, RawSource):
    """Texts from files; made by `scan_text`."""

    read = RawSource.read  # of raw rows, through an encoder

    def __init__(self, files: list[TextFile], form: _Form, on_bad_line: str, with_labels: bool) -> None:
        super().__init__(files, on_bad_line, with_labels)
        self._form = form

    @property
    def label_names(self) -> list[str] | None:
        """The labels of a multi-label source."""
        return self._form.labels if self._form.multi_label else None

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options; "auto" until the first read."""
        form = self._form
        return {"format": "txt", "style": form.style, "multi_label": form.multi_label, "labels": form.labels}

    def prepare(self) -> None:
        """Infers how lines are built, and collects the labels if a line may have several."""
        form = self._form
        if form.style == "auto" or (form.multi_label == "auto" and self.with_labels):
            self._infer_form()
        if self.with_labels and form.style == "plain":
            raise ParameterError("style='plain' has no labels; pass with_labels=False")
        if self.with_labels and form.multi_label and form.labels is None:
            form.labels = self.collect_labels(_labels_of)

    def _infer_form(self) -> None:
        form, name = self._form, self.describe()
        head = next(filter(None, (file.head(HEAD_BYTES) for file in self.files)), b"")
        lines = [line for line in head.split(b"\n") if line.strip()]
        if form.style == "auto" and not lines and self.with_labels:
            raise self.no_rows()
        if form.style == "auto":
            form.style = _style_of(lines[0] if lines else b"", name, self.with_labels)
        if form.multi_label == "auto":
            several = form.style == "fasttext" and any(_starts_with_two_labels(line) for line in lines)
            form.multi_label = several or (form.style == "fasttext" and form.labels is not None)

    def parse(self, blocks: list[Block]) -> Parsed:
        """Parses blocks of lines."""
        texts: list[bytes] = []
        targets: list[Array] = []
        bad: list[BadLine] = []
        counts: list[int] = []
        n_bad: list[int] = []
        for number, block in enumerate(blocks):
            lines = _Lines(bytes(block.text), with_blank=not self.with_labels)
            starts, y, faults = self._split(lines)
            good = np.ones(len(starts), bool)
            good[list(faults)] = False
            texts += lines.cut(starts[good], lines.stops[good])
            targets += [] if y is None else [y[good]]
            bad += [BadLine(number, int(lines.starts[row]), *faults[row]) for row in sorted(faults)[:EXAMPLES]]
            counts.append(len(good) - len(faults))
            n_bad.append(len(faults))
        y = np.concatenate(targets) if self.with_labels else None
        return Parsed(RawBatch(texts, len(texts), y), counts, n_bad, bad)

    def _split(self, lines: _Lines) -> tuple[Array, Array | None, dict[int, _Fault]]:
        """(start of each line's text, targets if there are any, faults of bad lines)."""
        if self._form.style == "plain":
            return lines.starts, None, {}
        if self._form.style == "tab":
            tabs = lines.first(lines.letters == _TAB, lines.starts)
            texts = np.where(tabs < lines.stops, tabs + 1, lines.starts)
            return (texts, *_labels_before(lines, tabs)) if self.with_labels else (texts, None, {})
        leading = lines.leading_labels()
        texts = lines.starts.copy()
        for rows, _, ends in leading:
            texts[rows] = np.minimum(ends + 1, lines.stops[rows])
        if not self.with_labels:
            return texts, None, {}
        return texts, *(self._many_labels(lines, leading) if self._form.multi_label else _one_label(lines, leading))

    def _many_labels(self, lines: _Lines, leading: list[_Labels]) -> tuple[Array, dict[int, _Fault]]:
        """Any number of fastText labels per line, none included: a 0/1 column for each label."""
        columns = {label: place for place, label in enumerate(self._form.labels or ())}
        y = np.zeros((len(lines.starts), len(columns)))
        faults: dict[int, _Fault] = {}
        for rows, starts, stops in leading:
            for row, label in zip(rows.tolist(), lines.cut(starts, stops), strict=True):
                place = columns.get(_text(label))
                if place is None:
                    fault = f"the label {_shown(label)} is not among the labels given"
                    faults.setdefault(row, (fault, f"add it to labels or {SKIP}"))
                else:
                    y[row, place] = 1.0
        return y, faults


def _labels_before(lines: _Lines, tabs: Array) -> tuple[Array, dict[int, _Fault]]:
    """The label of each line that has one before its first tab."""
    good = (tabs < lines.stops) & (tabs > lines.starts)
    faults = _faults(lines, ~good, "has no label before a tab", f"write label<TAB>text or {SKIP}")
    return _texts(lines.cut(lines.starts, np.where(good, tabs, lines.starts))), faults


def _one_label(lines: _Lines, leading: list[_Labels]) -> tuple[Array, dict[int, _Fault]]:
    """The fastText label of each line that has exactly one."""
    n_labels = np.zeros(len(lines.starts), np.int64)
    starts, stops = lines.starts.copy(), lines.starts.copy()
    for rows, first, last in leading:
        n_labels[rows] += 1
        starts[rows], stops[rows] = first, last
    none = _faults(lines, n_labels == 0, "does not start with a label", f"write __label__x text or {SKIP}")
    several = _faults(lines, n_labels > 1, "has a second label", "pass multi_label=True")
    return _texts(lines.cut(starts, stops)), none | several


def _faults(lines: _Lines, bad: Array, what: str, remedy: str) -> dict[int, _Fault]:
    rows = np.flatnonzero(bad)
    shown = map(_shown, lines.cut(lines.starts[rows], lines.stops[rows]))
    return {row: (f"the line {line} {what}", remedy) for row, line in zip(rows.tolist(), shown, strict=True)}


def _labels_of(block: Block) -> set[str]:
    """All fastText labels of a block."""
    lines = _Lines(bytes(block.text), with_blank=False)
    return {_text(label) for _, starts, stops in lines.leading_labels() for label in set(lines.cut(starts, stops))}


def _texts(labels: list[bytes]) -> Array:
    decoded = {label: _text(label) for label in set(labels)}
    return np.array([decoded[label] for label in labels], np.str_)


def _text(label: bytes) -> str:
    return label.decode("utf-8", "backslashreplace")
