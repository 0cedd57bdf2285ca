"""Labelled text, one example a line: `label<TAB>text`, fastText's `__label__a __label__b text`, or plain text.

Texts stay bytes: a hasher takes whatever is no letter in UTF-8, NUL and broken bytes included, for a separator. Labels
are strings, also "1". Blank lines are no rows, except that without labels each line is a row, so that predictions stand
beside the lines they belong to. fastText's labels are taken from the start of a line only.
Several labels a line become a 0/1 column for each label; the set of labels is given, or collected in a first pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.files import Block, Paths, TextFile, describe, open_files
from steepest.data.lines import EXAMPLES, BadLine
from steepest.data.parameters import ParameterError, choice
from steepest.data.raw import RawLines, RawRows
from steepest.data.source import Order

STYLES = ("auto", "tab", "fasttext", "plain")
PREFIX = b"__label__"
# What style="auto" and multi_label="auto" look at.
LOOK_BYTES = 1 << 20
_TAB, _NEWLINE, _RETURN, _SPACE = b"\t\n\r "
_SHOWN_BYTES = 60


def scan_text(
    path: Paths | list[TextFile],
    *,
    style: str = "auto",
    multi_label: bool | str = "auto",
    labels: Iterable[str] | None = None,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> TextSource:
    """Labelled or plain texts, one a line, to be hashed while they are read.

    Parameters
    ----------
    path : path, pattern, list of them, or "-" for standard input
        Plain or packed by gz, bz2 or zst, as their content tells.
    style : "auto", "tab", "fasttext" or "plain"
        `label<TAB>text`, `__label__x text`, or text alone; "auto" looks at the first line.
    multi_label : bool or "auto"
        Whether a line may have several labels (fastText only); "auto" looks for such a line in the first megabyte.
    labels : collection of str, optional
        The labels there are, for multi_label. Without them a first pass over the data collects them.
    on_bad_line : "error" or "skip"
        Skipped lines are counted in `source.skipped`.
    with_labels : bool
        False: labels may be absent and are not kept, and each line is a row. A tab, if there is one, still ends the
        label under style="tab".

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


class _Form:
    """How lines are built: given, or found out once and then shared by all copies of a source."""

    def __init__(self, style: str, multi_label: bool | str, labels: list[str] | None) -> None:
        self.style = style
        self.multi_label = multi_label
        self.labels = labels

    def settle(self, files: list[TextFile], with_labels: bool) -> None:
        if self.style != "auto" and (self.multi_label != "auto" or not with_labels):
            return
        head = next(filter(None, (file.head(LOOK_BYTES) for file in files)), b"")
        lines = [line for line in head.split(b"\n") if line.strip()]
        if self.style == "auto" and not lines and with_labels:
            raise DataError(f"{describe(files)}: there is no row in it; give a file with data")
        if self.style == "auto":
            self.style = _style_of(lines[0] if lines else b"", describe(files), with_labels)
        if self.multi_label == "auto":
            several = self.style == "fasttext" and any(_starts_with_two_labels(line) for line in lines)
            self.multi_label = several or (self.style == "fasttext" and self.labels is not None)


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


class _Spans(NamedTuple):
    """Where lines lie in a block."""

    starts: Array
    stops: Array  # without the newline, and a carriage return before it

    def of(self, data: bytes) -> list[bytes]:
        return [data[start:stop] for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True)]

    def where(self, chosen: Array) -> _Spans:
        return _Spans(self.starts[chosen], self.stops[chosen])


class TextSource(RawLines):
    """Texts from files; made by `scan_text`.

    Attributes
    ----------
    label_names : list of str or None
        What the columns of a multi-label target stand for, once it is known.
    """

    def __init__(self, files: list[TextFile], form: _Form, on_bad_line: str, with_labels: bool) -> None:
        super().__init__(files, on_bad_line)
        self.with_labels = with_labels
        self._form = form

    @property
    def label_names(self) -> list[str] | None:
        """The labels of a multi-label source."""
        return self._form.labels if self._form.multi_label else None

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options; "auto" until the first read has settled them."""
        form = self._form
        return {"format": "txt", "style": form.style, "multi_label": form.multi_label, "labels": form.labels}

    def fingerprint(self) -> dict[str, Any]:
        """With labels or without."""
        return {**super().fingerprint(), "with_labels": self.with_labels}

    def prepare(self) -> None:
        """Settles how lines are built, and collects the labels if a line may have several."""
        self._form.settle(self.files, self.with_labels)
        if self.with_labels and self._form.style == "plain":
            raise ParameterError("style='plain' has no labels; pass with_labels=False")
        if self.with_labels and self._form.multi_label and self._form.labels is None:
            self._form.labels = self._collect_labels()

    def _collect_labels(self) -> list[str]:
        once = [file.name for file in self.files if file.once]
        if once:
            raise DataError(f"{once[0]} can be read only once, so its labels cannot be collected; pass labels=[...]")
        found: set[bytes] = set()
        for file in self.files:
            for block in self._blocks([file], Order(), 0):
                data = bytes(block.text)
                for _, labels in _leading_labels(np.frombuffer(data, np.uint8), _lines(data)):
                    found.update(labels.of(data))
        return sorted(_text(label) for label in found)

    def split(self, blocks: list[Block]) -> RawRows:
        """Blocks of lines."""
        texts: list[bytes] = []
        targets: list[Array] = []
        bad: list[BadLine] = []
        rows: list[int] = []
        n_bad: list[int] = []
        for number, block in enumerate(blocks):
            before = len(texts)
            faults = self._split_block(bytes(block.text), texts, targets)
            bad += [BadLine(number, *fault) for fault in faults[:EXAMPLES]]
            n_bad.append(len(faults))
            rows.append(len(texts) - before)
        return RawRows(texts, rows, np.concatenate(targets) if self.with_labels else None, None, bad, n_bad)

    def _split_block(self, data: bytes, texts: list[bytes], targets: list[Array]) -> list[tuple[int, str, str]]:
        """Adds the block's texts and targets; returns its bad lines as (offset, fault, remedy)."""
        lines = _lines(data)
        letters = np.frombuffer(data, np.uint8)
        if not self.with_labels:
            texts += self._without_labels(letters, lines).of(data)
            return []
        lines = lines.where(lines.stops > lines.starts)
        if self._form.style == "tab":
            return _split_tab(data, letters, lines, texts, targets)
        if self._form.multi_label:
            return self._split_many(data, letters, lines, texts, targets)
        return _split_one(data, letters, lines, texts, targets)

    def _without_labels(self, letters: Array, lines: _Spans) -> _Spans:
        if self._form.style == "tab":
            tabs = _first(letters == _TAB, lines)
            return _Spans(np.where(tabs < lines.stops, tabs + 1, lines.starts), lines.stops)
        if self._form.style == "fasttext":
            starts = lines.starts.copy()
            for rows, labels in _leading_labels(letters, lines):
                starts[rows] = np.minimum(labels.stops + 1, lines.stops[rows])
            return _Spans(starts, lines.stops)
        return lines

    def _split_many(
        self, data: bytes, letters: Array, lines: _Spans, texts: list[bytes], targets: list[Array]
    ) -> list[tuple[int, str, str]]:
        """Any number of labels a line, none included."""
        columns = {label: place for place, label in enumerate(self._form.labels or ())}
        y = np.zeros((len(lines.starts), len(columns)))
        starts = lines.starts.copy()
        faults: dict[int, tuple[int, str, str]] = {}
        for rows, labels in _leading_labels(letters, lines):
            starts[rows] = np.minimum(labels.stops + 1, lines.stops[rows])
            for row, label in zip(rows.tolist(), labels.of(data), strict=True):
                place = columns.get(_text(label))
                if place is None:
                    fault = f"the label {_shown(label)} is not among the labels given"
                    faults.setdefault(
                        row, (int(lines.starts[row]), fault, 'add it to labels or pass on_bad_line="skip"')
                    )
                else:
                    y[row, place] = 1.0
        good = np.ones(len(y), bool)
        good[list(faults)] = False
        texts += _Spans(starts, lines.stops).where(good).of(data)
        targets.append(y[good])
        return [faults[row] for row in sorted(faults)]


def _split_tab(
    data: bytes, letters: Array, lines: _Spans, texts: list[bytes], targets: list[Array]
) -> list[tuple[int, str, str]]:
    tabs = _first(letters == _TAB, lines)
    good = (tabs < lines.stops) & (tabs > lines.starts)
    _keep(data, _Spans(lines.starts, tabs).where(good), _Spans(tabs + 1, lines.stops).where(good), texts, targets)
    remedy = 'write label<TAB>text or pass on_bad_line="skip"'
    faulty = lines.where(~good)
    return [
        (start, f"the line {_shown(line)} has no label before a tab", remedy)
        for start, line in zip(faulty.starts.tolist(), faulty.of(data), strict=True)
    ]


def _split_one(
    data: bytes, letters: Array, lines: _Spans, texts: list[bytes], targets: list[Array]
) -> list[tuple[int, str, str]]:
    """Exactly one fastText label a line."""
    labelled = _has_label(letters, lines.starts, lines.stops)
    ends = np.minimum(_first(_is_gap(letters), lines), lines.stops)
    starts = np.minimum(ends + 1, lines.stops)
    second = labelled & _has_label(letters, starts, lines.stops)
    good = labelled & ~second
    _keep(
        data,
        _Spans(lines.starts + len(PREFIX), ends).where(good),
        _Spans(starts, lines.stops).where(good),
        texts,
        targets,
    )
    faults = []
    for row in np.flatnonzero(~good).tolist():
        line = _shown(data[lines.starts[row] : lines.stops[row]])
        if second[row]:
            faults.append((int(lines.starts[row]), f"the line {line} has a second label", "pass multi_label=True"))
        else:
            remedy = 'write __label__x text or pass on_bad_line="skip"'
            faults.append((int(lines.starts[row]), f"the line {line} does not start with a label", remedy))
    return faults


def _keep(data: bytes, labels: _Spans, rows: _Spans, texts: list[bytes], targets: list[Array]) -> None:
    texts += rows.of(data)
    found = labels.of(data)
    decoded = {label: _text(label) for label in set(found)}
    targets.append(np.array([decoded[label] for label in found], np.str_))


def _text(label: bytes) -> str:
    return label.decode("utf-8", "backslashreplace")


def _lines(data: bytes) -> _Spans:
    letters = np.frombuffer(data, np.uint8)
    stops = np.flatnonzero(letters == _NEWLINE)
    if len(data) and letters[-1] != _NEWLINE:
        stops = np.append(stops, len(data))
    starts = np.concatenate([np.zeros(min(1, len(stops)), np.int64), stops[:-1] + 1])
    ends_in_return = (stops > starts) & (letters[np.maximum(stops - 1, 0)] == _RETURN) if len(stops) else stops > starts
    return _Spans(starts, stops - ends_in_return)


def _first(marks: Array, lines: _Spans) -> Array:
    """The first marked byte from each start on; one that lies behind the data if there is none."""
    places = np.append(np.flatnonzero(marks), len(marks) + 1)
    return np.asarray(places[np.searchsorted(places, lines.starts)])


def _is_gap(letters: Array) -> Array:
    return np.asarray((letters == _SPACE) | (letters == _TAB))


def _has_label(letters: Array, starts: Array, stops: Array) -> Array:
    """Whether fastText's mark stands at each start."""
    has = stops - starts >= len(PREFIX)
    for place, letter in enumerate(PREFIX):
        rows = np.flatnonzero(has)
        has[rows] = letters[starts[rows] + place] == letter
    return np.asarray(has)


def _leading_labels(letters: Array, lines: _Spans) -> list[tuple[Array, _Spans]]:
    """The first labels of lines, then the second ones, and so on: which lines have one, and where, without the mark."""
    gaps = _is_gap(letters)
    found = []
    rows = np.arange(len(lines.starts))
    starts, stops = lines
    while len(rows):
        marked = _has_label(letters, starts, stops)
        rows, starts, stops = rows[marked], starts[marked], stops[marked]
        ends = np.minimum(_first(gaps, _Spans(starts, stops)), stops)
        if len(rows):
            found.append((rows, _Spans(starts + len(PREFIX), ends)))
        starts = np.minimum(ends + 1, stops)
    return found
