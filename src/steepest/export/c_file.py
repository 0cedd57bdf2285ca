"""One C99 file: the template model.c (or factors.c) with its parts chosen, and the model's numbers as tables.

Lines `//@ if part`, `//@ else`, `//@ end` of a template choose parts; what a model does not need is not in its file.
Rows are found by the upper bits of a feature's number in a directory and the lower ones, of 8 or 16 bits, by bisection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.tables.columns import CATEGORY, LIST, NUMBER, TEXT
from steepest.export import runtime
from steepest.export.describe import Column, FactorPairs, Hashing, Scores
from steepest.export.pack import EXACT_CODE, LARGEST, Packed, levels
from steepest.export.unicode import fold_ranges, word_edges

PLANE = 0x10000
WIDTH = 116  # of a line of numbers
TYPES = {"float32": "float", "float16": "uint16_t", "int8": "int8_t"}
_OF_C = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
"""
KEYWORDS = frozenset(_OF_C.split())
HALF = """
static float half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
  return bits >> 15 ? -size : size;
}
"""
EXACT_AT = """
static float exact_at(uint32_t place) {
  uint32_t low = 0, high = N_EXACT - 1;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (exact_places[middle] < place) low = middle + 1; else high = middle;
  }
  return exact_weights[low];
}
"""
POWERS = """  {
    double top = 0, sum = 0;
    for (k = 0; k < N_SCORES; ++k) top = p[k] > top ? p[k] : top;
    for (k = 0; k < N_SCORES; ++k) sum += p[k] = pow((p[k] > 1e-15 ? p[k] : 1e-15) / top, @POWER@);
    for (k = 0; k < N_SCORES; ++k) p[k] /= sum;
  }
}
"""


@dataclass(frozen=True, slots=True)
class TestRow:
    """A row, as C and as the model take it, and the expected result."""

    given: Any
    scores: tuple[float, ...]
    answer: float  # the number of the class, the rating, or the first prediction


def c_source(model: Scores | FactorPairs, packed: Sequence[Packed], rows: Sequence[TestRow], heading: str) -> str:
    """Returns the text of the file."""
    if isinstance(model, FactorPairs):
        return _Factors(model, packed, rows).text(heading)
    return _Scores(model, packed[0], rows).text(heading)


def table_bytes(model: Scores, packed: Packed) -> int:
    """Returns how many bytes the tables take on flash, without code and Unicode tables."""
    keys = 0 if _is_dense(model) else _Keys.of(model).n_bytes
    rarity = 0
    if model.counts is not None:
        kinds = len(np.unique(model.counts))
        rarity = 8 * kinds + len(model.counts) * (1 if kinds <= 256 else 2 if kinds <= PLANE else 4)
    head = 0 if model.head is None or model.end is None else 4 * (model.head.size + model.end.size)
    return keys + rarity + head + packed.n_bytes + 8 * len(model.bias)


def _is_dense(model: Scores) -> bool:
    return model.hashing is None and 2 * len(model.features) >= model.n_features


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys of features in two tables: a directory of their upper bits, and their lower bits."""

    low_bits: int
    directory: Array
    low: Array

    @classmethod
    def of(cls, model: Scores) -> _Keys:
        n_bits = max(1, int(model.n_features - 1).bit_length())
        choices = [cls._cut(model.features, n_bits, low) for low in (8, 16, 32)]
        return min(choices, key=lambda keys: keys.n_bytes)

    @classmethod
    def _cut(cls, features: Array, n_bits: int, low_bits: int) -> _Keys:
        high = features.astype(np.int64) >> low_bits
        n_groups = 1 << max(0, n_bits - low_bits)
        directory = np.searchsorted(high, np.arange(n_groups + 1))
        kind = np.uint16 if len(features) < PLANE else np.uint32
        low = features.astype(np.int64) & ((1 << low_bits) - 1)
        return cls(low_bits, directory.astype(kind), low.astype(f"u{low_bits // 8}"))

    @property
    def n_bytes(self) -> int:
        return int(self.directory.nbytes + self.low.nbytes)


class _Scores:
    """Writes the file of a model of scores."""

    def __init__(self, model: Scores, packed: Packed, rows: Sequence[TestRow]) -> None:
        self.model, self.packed, self.rows = model, packed, rows
        self.kinds = {column.kind for column in model.hashing.columns} if model.hashing else set()
        origins = [column.origin for column in model.hashing.inputs] if model.hashing else []
        self.fields = dict(zip(origins, field_names(origins), strict=True))

    def text(self, heading: str) -> str:
        pieces = {
            "HEADING": heading,
            "NOTES": self._notes(),
            "INPUT": self._input(),
            "DATA": self._data(),
            "COLUMNS": self._columns() if self.model.hashing else "",
            "FIND": self._find(),
            "ANSWERS": self._answers() + self._test(),
        }
        return fill_template("model.c", self._parts(), pieces)

    def _parts(self) -> set[str]:
        model, h = self.model, self.model.hashing
        if h is None:
            return {"embedding"} if model.head is not None else set()
        words, values = TEXT in self.kinds, bool({CATEGORY, LIST} & self.kinds)
        parts = {
            "hashing": True,
            "texts": words or values,
            "stream": words or values,
            "words": words,
            "one_text": h.one_text,
            "blocks": words and not h.one_text,
            "lowercase": h.lowercase,
            "stop_words": any(column.stop_words for column in h.columns),
            "word_grams": h.ngrams[1] > 0,
            "several_words": h.ngrams[1] > 1,
            "characters": h.char_ngrams[1] > 0,
            "values": values,
            "numbers": NUMBER in self.kinds,
            "dates": any(column.part for column in h.columns),
            "crosses": bool(h.crosses),
            "copies": h.copies > 1,
            "mixes": h.copies > 1 or bool(h.crosses) or (words and h.ngrams[1] > 1),
            "binary": h.weighting == 1,
            "logarithms": h.weighting == 2,
            "counts": h.uses_counts,
            "rare": h.min_rows > 0,
            "places": h.uses_counts and h.one_text,
            "normalise": h.normalise,
            "embedding": model.head is not None,
        }
        return {name for name, needed in parts.items() if needed}

    def _notes(self) -> str:
        size = table_bytes(self.model, self.packed)
        tables = 4800 if TEXT in self.kinds else 0
        notes = [
            f"Tables: {size + tables:,} bytes of flash ({self.packed.precision}, {len(self.model.features):,} rows)."
        ]
        if self.model.hashing:
            double = 1 + (TEXT in self.kinds and not self.model.hashing.one_text)
            notes.append(
                f"Room for one row: sizeof(steepest_row), {48 * double} KiB, or less with STEEPEST_MAX_FEATURES=500 "
                f"({6 * double} KiB)."
            )
        return "\n".join(f" * {note}" for note in notes)

    def _input(self) -> str:
        lines = [f"#define STEEPEST_N_SCORES {self.model.n_scores}"]
        if self.model.classes is not None:
            lines.append(f"#define STEEPEST_N_CLASSES {len(self.model.classes)}")
        if self.model.hashing:
            lines.append("\ntypedef struct {")
            for column in self.model.hashing.inputs:
                kind = "double" if column.kind == NUMBER else "steepest_text"
                lines.append(f"  {kind} {self.fields[column.origin]}; /* {comment(column.origin)}: {_note(column)} */")
            lines.append("} steepest_input;")
        return "\n".join(lines) + "\n"

    # ------------------------------------------------------------------------------------------------ tables

    def _data(self) -> str:
        model, h = self.model, self.model.hashing
        found = ["/* ---------------------------------------------------------------- the model */", ""]
        found.append(f"#define N_SCORES {model.n_scores}")
        if h is not None:
            found += [
                f"#define N_BITS {h.n_bits}",
                f"#define N_COLUMNS {len(h.columns)}",
                f"#define COPIES {h.copies}",
                f"#define IS_SIGNED {int(h.signed)}",
            ]
            if not h.one_text:
                found.append("#define COPY_VALUE ((float)(1 / sqrt((double)COPIES)))")
            if {CATEGORY, LIST} & self.kinds:
                found.append(f"#define SEED_KEY {u64(h.seed_key)}")
            if TEXT in self.kinds:
                found += self._word_data(h)
            if h.crosses:
                pairs = ", ".join(f"{{{a}, {b}}}" for a, b in h.crosses)
                found.append(f"\nstatic const int crosses[{len(h.crosses)}][2] = {{{pairs}}};")
            for place, column in enumerate(h.columns):
                if column.stop_words:
                    stop = map(u64, column.stop_words)
                    found.append(array("uint64_t", f"stop_words_{place}", stop, len(column.stop_words)))
                if column.knots:
                    found.append(array("double", f"knots_{place}", map(real, column.knots), len(column.knots)))
                    found.append(array("uint64_t", f"hats_{place}", map(u64, column.hats), len(column.hats)))
        if model.head is None:
            found.append(array("double", "bias", map(real, model.bias.tolist()), len(model.bias)))
        else:
            assert model.end is not None
            found.append(f"#define WIDTH {model.width}")
            flat = map(short_real, model.head.ravel().tolist())
            found.append(array("float", "head", flat, f"{len(model.head)}][{model.width}", rows=model.width))
            found.append(array("float", "text_end", map(short_real, model.end.tolist()), model.width))
        if model.counts is not None and h is not None:
            found += self._rarity(model, h)
        return "\n".join(found) + "\n"

    def _word_data(self, h: Hashing) -> list[str]:
        edges = word_edges().tolist()
        near, far = [edge for edge in edges if edge < PLANE], [edge for edge in edges if edge >= PLANE]
        found = [f"#define MIN_LETTERS {h.min_letters}u", f"#define FAR_PARITY {len(near) % 2}u"]
        if h.ngrams[1]:
            found += [f"#define NGRAM_LOW {h.ngrams[0]}", f"#define NGRAM_HIGH {h.ngrams[1]}"]
        if h.char_ngrams[1]:
            found += [f"#define CHARACTER_LOW {h.char_ngrams[0]}u", f"#define CHARACTER_HIGH {h.char_ngrams[1]}u"]
        found.append("\n/* Where runs of other characters and of word characters begin, in turn (Unicode 14). */")
        found.append(array("uint16_t", "word_edges", map(str, near), len(near)))
        found.append(array("uint32_t", "far_edges", map(str, far), len(far)))
        small = [chr(code) for code in range(128)]
        letters = [(c.lower() if h.lowercase else c) if c.isalnum() or c == "_" else "\0" for c in small]
        found.append("\n/* Word characters of ASCII as they are hashed; 0 for all others. */")
        found.append(array("uint8_t", "ascii_letters", (str(ord(c)) for c in letters), 128))
        if h.lowercase:
            folds = fold_ranges().tolist()
            found.append("\ntypedef struct {\n  uint32_t first, last, stride;\n  int32_t difference;\n} fold_range;")
            ranges = (f"{{{first}, {last}, {stride}, {d}}}" for first, last, stride, d in folds)
            found.append(array("fold_range", "folds", ranges, len(folds)))
        return found

    def _rarity(self, model: Scores, h: Hashing) -> list[str]:
        """Returns log((1 + rows) / (1 + rows with it)) + 1 by code; 0 for what too few rows have."""
        kinds, codes = np.unique(np.asarray(model.counts), return_inverse=True)
        log_rows = 1 + np.log1p(h.n_documents)
        kind = "uint8_t" if len(kinds) <= 256 else "uint16_t" if len(kinds) <= PLANE else "uint32_t"
        counts = np.append(kinds, model.default_count).astype(np.float64)
        values = [real(float(x)) for x in np.where(counts < h.min_rows, 0.0, log_rows - np.log1p(counts))]
        return [
            f"\n#define RARITY_OF_OTHERS {values.pop()}",
            array("double", "rarity", values, len(values)),
            array(kind, "rarity_codes", map(str, codes.tolist()), len(codes)),
        ]

    def _find(self) -> str:
        model, packed = self.model, self.packed
        parts = []
        n, width = max(1, len(model.features)), model.width
        if _is_dense(model):
            place = np.full(model.n_features, -1)
            place[model.features] = np.arange(len(model.features))
            codes = np.zeros((model.n_features, width), packed.codes.dtype)
            codes[model.features] = packed.codes
            n = model.n_features
            parts.append(
                f"static int32_t find_row(uint32_t feature) {{ return feature < {n}u ? (int32_t)feature : -1; }}\n"
            )
        else:
            codes = packed.codes
            parts.append(self._keys())
        text = short_real if packed.precision == "float32" else str
        flat = map(text, codes.ravel().tolist() or [0])
        parts.append(array(TYPES[packed.precision], "weights", flat, f"{n}][{width}"))
        at = "weights[place][k]"
        if packed.precision == "float16":
            parts.append(HALF)
            at = f"half({at})"
        elif packed.precision == "int8" and model.head is None:
            parts.append(array("float", "levels", map(short_real, levels().tolist()), 2 * LARGEST + 1))
            parts.append(array("float", "scales", map(short_real, packed.scales.tolist()), width))
            values = packed.restored.ravel()[packed.exact].tolist() or [0.0]
            exact = np.flatnonzero(codes.ravel() == EXACT_CODE).tolist() or [0]
            parts.append(array("uint32_t", "exact_places", map(str, exact), len(values)))
            parts.append(array("float", "exact_weights", map(short_real, values), len(values)))
            parts.append(EXACT_AT.replace("N_EXACT", f"{len(values)}u"))
            stored = f"exact_at((uint32_t)place * {width}u + k)"
            at = f"{at} == {EXACT_CODE} ? {stored} : (float)(levels[{at} + {LARGEST}] * scales[k])"
        elif packed.precision == "int8":
            parts.append(array("float", "scales", map(short_real, packed.scales.tolist()), n))
            at = f"(float)((float){at} * scales[place])"
        parts.append(f"\nstatic float weight_at(int32_t place, uint32_t k) {{ return {at}; }}")
        return "\n".join(parts) + "\n"

    def _keys(self) -> str:
        keys = _Keys.of(self.model)
        wide = "uint16_t" if keys.directory.dtype == np.uint16 else "uint32_t"
        n_groups = len(keys.directory) - 1
        shift = f" >> {keys.low_bits}" if keys.low_bits < 32 else " * 0u"
        low = f"(feature & {(1 << keys.low_bits) - 1}u)"
        return "\n".join(
            [
                array(wide, "directory", map(str, keys.directory.tolist()), n_groups + 1),
                array(f"uint{keys.low_bits}_t", "low_bits", map(str, keys.low.tolist() or [0]), max(1, len(keys.low))),
                "",
                "/* The row of a feature, or -1. */",
                "static int32_t find_row(uint32_t feature) {",
                f"  const uint32_t group = feature{shift}, low_part = {low};",
                "  uint32_t low, high;",
                f"  if (group >= {n_groups}u) return -1;",
                "  low = directory[group];",
                "  high = directory[group + 1];",
                "  while (high - low > 8) {",
                "    const uint32_t middle = (low + high) / 2;",
                "    if (low_bits[middle] < low_part)",
                "      low = middle + 1;",
                "    else",
                "      high = middle + 1;",
                "  }",
                "  while (low < high && low_bits[low] < low_part) ++low;",
                "  return low < high && low_bits[low] == low_part ? (int32_t)low : -1;",
                "}",
                "",
            ]
        )

    # ------------------------------------------------------------------------------------------------ columns

    def _columns(self) -> str:
        h = self.model.hashing
        assert h is not None
        lines = []
        for place, column in enumerate(h.columns):
            if column.kind == NUMBER:
                own = [real(column.centre), real(column.scale), u64(column.missing), u64(column.number)]
                bends = f"{len(column.knots)}, knots_{place}, hats_{place}" if column.knots else "0, NULL, NULL"
                lines.append(f"static const number_column number_{place} = {{{', '.join(own)}, {bends}}};")
        lines.append("\n/* The features of a column; `crossed`: only those that take part in crosses. */")
        lines.append("static void each_feature(const steepest_input *in, int column, int crossed, take_feature take,")
        lines.append("                         void *to) {")
        lines.append("  (void)crossed;")
        lines.append("  switch (column) {")
        for place, column in enumerate(h.columns):
            lines.append(f"    case {place}:")
            lines += [f"      {line}" for line in self._features(place, column)]
            lines.append("      break;")
        lines += ["    default:", "      break;", "  }", "}", ""]
        texts = [place for place, column in enumerate(h.columns) if column.kind == TEXT]
        if not texts or h.one_text:
            return "\n".join(lines)
        lines.append("/* Whether a column holds words: a missing text has none. */")
        lines.append("static int is_text(const steepest_input *in, int column) {")
        for place in texts:
            lines.append(f"  if (column == {place}) return in->{self.fields[h.columns[place].origin]}.data != NULL;")
        lines += ["  return 0;", "}", ""]
        return "\n".join(lines)

    def _features(self, place: int, column: Column) -> list[str]:
        """Returns the statements that take the features of a column."""
        here = f"in->{self.fields[column.origin]}"
        if column.kind == NUMBER:
            given = f"date_part({here}, {column.part.upper()})" if column.part else here
            return [f"number_features({given}, &number_{place}, crossed, take, to);"]
        is_text = column.kind == TEXT
        lines = [f"if ({f'!{here}.data' if is_text else f'is_missing({here})'})"]
        lines.append(f"  take(to, {u64(column.missing)}, 1);")
        if is_text:
            stop = f"stop_words_{place}, {len(column.stop_words)}" if column.stop_words else "NULL, 0"
            return [*lines, "else", f"  text_features({here}, {u64(column.key)}, {stop}, take, to);"]
        label, between = quoted(column.label), quoted(column.separators)
        if column.kind == LIST:
            return [*lines, "else", f"  part_features({here}, {label}, {between}, 1, take, to);"]
        whole = f"take(to, value_feature({label}, {here}), 1);"
        parts = f"if (!crossed) part_features({here}, {quoted(f'{column.name}:')}, {between}, 2, take, to);"
        return [*lines, "else {", f"  {whole}", f"  {parts}", "}"]

    # ------------------------------------------------------------------------------------------------ answers

    def _answers(self) -> str:
        model = self.model
        if model.classes is None:
            link = "exp(score)" if model.link == "exp" else "score"
            note = "/* The prediction that belongs to a score. */"
            return f"\n{note}\ndouble steepest_value(double score) {{ return {link}; }}\n"
        labels = array("char *const", "steepest_classes", (quoted(str(c)) for c in model.classes), len(model.classes))
        found = ["", labels.replace("static const", "const", 1), ""]
        if model.several:
            found.append("/* Whether each label is given, from the scores. */")
            found.append("void steepest_labels(const double *scores, int *given) {")
            found.append("  int k, best = 0, any = 0;")
            found.append("  for (k = 0; k < N_SCORES; ++k) {")
            found.append("    any |= given[k] = scores[k] > 0;")
            found.append("    if (scores[k] > scores[best]) best = k;")
            found.append("  }")
            found.append("  (void)any;\n}" if model.bare else "  if (!any) given[best] = 1;\n}")
        else:
            found.append("/* The number of the predicted class in steepest_classes, from the scores. */")
            found.append("int steepest_class(const double *scores) {")
            if model.n_scores == 1:
                found.append("  return scores[0] > 0;\n}")
            else:
                found.append("  int k, best = 0;")
                found.append("  for (k = 1; k < N_SCORES; ++k)")
                found.append("    if (scores[k] > scores[best]) best = k;")
                found.append("  return best;\n}")
        return "\n".join(found) + "\n" + self._probabilities()

    def _probabilities(self) -> str:
        model = self.model
        if model.link == "none":
            return ""
        head = "\n/* Probabilities of the classes from their scores, STEEPEST_N_CLASSES of them. */\n"
        opening = "void steepest_probabilities(const double *scores, double *p) {\n"
        if model.link == "softmax":
            body = f"""  double top = scores[0], total = 0;
  int k;
  for (k = 1; k < N_SCORES; ++k) top = scores[k] > top ? scores[k] : top;
  for (k = 0; k < N_SCORES; ++k) total += p[k] = exp((scores[k] - top) * {real(model.slope)});
  for (k = 0; k < N_SCORES; ++k) p[k] /= total;
}}
"""
            return head + opening + body
        if model.link == "clip":
            one = "  const double p = (score + 1) / 2;\n  return p < 0 ? 0 : p > 1 ? 1 : p;"
        else:
            one = (
                f"  const double z = {real(model.slope)} * score + {real(model.shift)}, e = exp(-fabs(z));\n"
                "  return (z < 0 ? e : 1.0) / (1.0 + e);"
            )
        first = f"\nstatic double probability(double score) {{\n{one}\n}}\n"
        if model.several:
            body = "  int k;\n  for (k = 0; k < N_SCORES; ++k) p[k] = probability(scores[k]);\n}\n"
        elif model.n_scores == 1:
            body = "  p[1] = probability(scores[0]);\n  p[0] = 1 - p[1];\n}\n"
        else:
            body = """  double total = 0;
  int k;
  for (k = 0; k < N_SCORES; ++k) total += p[k] = probability(scores[k]);
  for (k = 0; k < N_SCORES; ++k) p[k] = total > 0 ? p[k] / total : 1.0 / N_SCORES;
"""
            body += "}\n" if model.power == 1 else POWERS.replace("@POWER@", real(model.power))
        return first + head + opening + body

    # ------------------------------------------------------------------------------------------------ the test

    def _test(self) -> str:
        if not self.rows:
            return ""
        n = len(self.rows)
        scores = [real(score) for row in self.rows for score in row.scores]
        found = ["\n#ifdef STEEPEST_TEST", "#include <stdio.h>", ""]
        found.append(array("double", "expected", scores, f"{n}][N_SCORES"))
        if self.model.hashing:
            found.append("static const steepest_input test_rows[] = {")
            found += [f"    {{{self._initialiser(row.given)}}}," for row in self.rows]
            found.append("};")
        else:
            starts = np.cumsum([0] + [len(row.given) for row in self.rows])
            indices = [str(j) for row in self.rows for j in row.given] or ["0"]
            values = [short_real(x) for row in self.rows for x in row.given.values()] or ["0"]
            found.append(array("uint32_t", "test_starts", map(str, starts.tolist()), n + 1))
            found.append(array("uint32_t", "test_index", indices, len(indices)))
            found.append(array("float", "test_value", values, len(values)))
        found += ["", "int main(void) {"]
        if self.model.hashing:
            found.append("  static steepest_row room;")
            call = "steepest_scores(&test_rows[i], &room, scores)"
        else:
            begin = "test_starts[i]"
            call = f"steepest_scores(test_index + {begin}, test_value + {begin}, test_starts[i + 1] - {begin}, scores)"
        found.append(MAIN.replace("@N@", str(n)).replace("@CALL@", call))
        return "\n".join(found)

    def _initialiser(self, given: Any) -> str:
        h = self.model.hashing
        assert h is not None
        row = given if isinstance(given, dict) else {h.columns[0].origin: given}
        read = ((column, runtime.read_value(asdict(column), row.get(column.origin))) for column in h.inputs)
        return ", ".join(literal(value, column.kind) for column, value in read)


MAIN = """  double scores[STEEPEST_N_SCORES], worst = 0;
  int i, k, same = 0, faults = 0;
  for (i = 0; i < @N@; ++i) {
    faults += @CALL@ != 0;
    for (k = 0; k < STEEPEST_N_SCORES; ++k) {
      const double off = fabs(scores[k] - expected[i][k]) / (1 + fabs(expected[i][k]));
      same += memcmp(&scores[k], &expected[i][k], sizeof scores[k]) == 0;
      if (!(off <= 1e-6)) ++faults;
      if (off > worst) worst = off;
    }
  }
  printf("%d rows, %d of %d scores bit-identical, largest difference %.3g, %d faults\\n", @N@, same,
         @N@ * STEEPEST_N_SCORES, worst, faults);
  return faults != 0;
}
#endif
"""


class _Factors:
    """Writes the file of a factor model."""

    def __init__(self, model: FactorPairs, packed: Sequence[Packed], rows: Sequence[TestRow]) -> None:
        self.model, self.packed, self.rows = model, packed, rows
        self.sides = (("user", model.user_ids), ("item", model.item_ids))

    def text(self, heading: str) -> str:
        model = self.model
        kinds = {"text_ids" if ids and isinstance(ids[0], str) else "number_ids" for _, ids in self.sides}
        parts = kinds | ({"sigmoid"} if model.link == "sigmoid" else set())
        size = sum(packed.n_bytes for packed in self.packed)
        note = f" * Tables: {size:,} bytes of flash ({self.packed[0].precision}) and the ids; no room is needed."
        pieces = {
            "HEADING": heading,
            "NOTES": note,
            "DATA": self._data(),
            "FIND": self._find(),
            "ANSWERS": self._test(),
        }
        return fill_template("factors.c", parts, pieces)

    def _data(self) -> str:
        model = self.model
        found = [f"#define STEEPEST_N_USERS {len(model.user_ids)}", f"#define STEEPEST_N_ITEMS {len(model.item_ids)}"]
        found.append(f"#define RANK {model.rank}u")
        for name, value in (("OFFSET", model.offset), ("SCALE", model.scale), ("MEAN", model.mean)):
            found.append(f"#define {name} {real(value)}")
        if model.link != "sigmoid":
            found += [f"#define LOWEST {real(model.low)}", f"#define HIGHEST {real(model.high)}"]
        found.append("")
        for side, packed in zip(("user", "item"), self.packed, strict=True):
            text = short_real if packed.precision == "float32" else str
            n, width = packed.codes.shape
            flat = map(text, packed.codes.ravel().tolist())
            found.append(array(TYPES[packed.precision], f"{side}_rows", flat, f"{n}][{width}"))
            if packed.precision == "int8":
                found.append(array("float", f"{side}_scales", map(short_real, packed.scales.tolist()), n))
        for side, ids in self.sides:
            found += self._ids(side, ids)
        return "\n".join(found) + "\n"

    def _ids(self, side: str, ids: tuple[Any, ...]) -> list[str]:
        if ids and isinstance(ids[0], str):
            coded = [text.encode() for text in ids]
            order = sorted(range(len(ids)), key=lambda k: coded[k])
            blob = b"".join(coded[k] + b"\0" for k in order)
            starts = np.cumsum([0] + [len(coded[k]) + 1 for k in order])[:-1]
            letters = (str(byte - 256 * (byte > 127)) for byte in blob)
            return [
                array("signed char", f"{side}_bytes", letters, len(blob)),
                array("uint32_t", f"{side}_starts", map(str, starts.tolist()), len(ids)),
                array("uint32_t", f"{side}_order", map(str, order), len(ids)),
            ]
        order = sorted(range(len(ids)), key=lambda k: ids[k])
        values = (f"INT64_C({ids[k]})" if ids[k] > -(2**63) else "INT64_MIN" for k in order)
        return [
            array("int64_t", f"{side}_ids", values, len(ids)),
            array("uint32_t", f"{side}_order", map(str, order), len(ids)),
        ]

    def _find(self) -> str:
        found = [HALF] if self.packed[0].precision == "float16" else []
        for (side, ids), packed in zip(self.sides, self.packed, strict=True):
            at = f"{side}_rows[row][k]"
            if packed.precision == "float16":
                at = f"half({at})"
            elif packed.precision == "int8":
                at = f"(float)((float){at} * {side}_scales[row])"
            found.append(f"static float {side}_at(int32_t row, uint32_t k) {{ return {at}; }}\n")
            text = bool(ids) and isinstance(ids[0], str)
            given = "const char *id" if text else "int64_t id"
            looked = f"find_number({side}_ids, {side}_order, {len(ids)}, id)"
            if text:
                looked = f"find_text((const char *){side}_bytes, {side}_starts, {side}_order, {len(ids)}, id)"
            found.append(f"/* The row of a {side}, or -1. */")
            found.append(f"int32_t steepest_find_{side}({given}) {{\n  return {looked};\n}}\n")
        return "\n".join(found)

    def _test(self) -> str:
        if not self.rows:
            return ""
        pairs = []
        for row in self.rows:
            shown = [quoted(str(i)) if isinstance(i, str) else f"INT64_C({i})" for i in row.given]
            pairs.append(f"    check({shown[0]}, {shown[1]}, {real(row.answer)});")
        kinds = ["const char *" if ids and isinstance(ids[0], str) else "int64_t " for _, ids in self.sides]
        return "\n".join(
            [
                "\n#ifdef STEEPEST_TEST",
                "#include <stdio.h>",
                "",
                "static int same, faults;",
                "static double worst;",
                "",
                f"static void check({kinds[0]}user, {kinds[1]}item, double expected) {{",
                "  const double found = steepest_predict(steepest_find_user(user), steepest_find_item(item));",
                "  const double off = fabs(found - expected) / (1 + fabs(expected));",
                "  same += memcmp(&found, &expected, sizeof found) == 0;",
                "  if (!(off <= 1e-6)) ++faults;",
                "  if (off > worst) worst = off;",
                "}",
                "",
                "int main(void) {",
                *(line[2:] for line in pairs),
                f'  printf("{len(pairs)} pairs, %d bit-identical, largest difference %.3g, %d faults\\n", same, worst,',
                "         faults);",
                "  return faults != 0;",
                "}",
                "#endif",
                "",
            ]
        )


# ------------------------------------------------------------------------------------------------------ C as text


def fill_template(name: str, parts: set[str], pieces: dict[str, str]) -> str:
    """Returns the template with the parts chosen and the pieces put in."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    kept, shown = [], [True]
    for line in text.splitlines():
        word = line.strip()
        if word.startswith("//@ if "):
            shown.append(word.removeprefix("//@ if ") in parts)
        elif word == "//@ else":
            shown[-1] = not shown[-1]
        elif word == "//@ end":
            shown.pop()
        elif all(shown):
            kept.append(line)
    text = "\n".join(kept) + "\n"
    for piece, content in pieces.items():
        text = text.replace(f"@{piece}@", content)
    return text


def array(kind: str, name: str, values: Iterable[str], size: int | str, *, rows: int = 0) -> str:
    """Returns a constant table; of several dimensions, as in "3][4", `rows` puts in the braces or leaves them out."""
    listed = list(values)
    if isinstance(size, str):
        width = int(size.rpartition("[")[2]) if size.rpartition("[")[2].isdigit() else rows
        if width:
            listed = ["{" + ", ".join(listed[k : k + width]) + "}" for k in range(0, len(listed), width)]
        else:  # N_SCORES is a number of the file
            per = len(listed) // int(size.partition("]")[0])
            listed = ["{" + ", ".join(listed[k : k + per]) + "}" for k in range(0, len(listed), per)]
    lines, line = [], "   "
    for value in listed:
        if len(line) + len(value) > WIDTH and line.strip():
            lines.append(line)
            line = "   "
        line += f" {value},"
    return f"static const {kind} {name}[{size}] = {{\n" + "\n".join([*lines, line]) + "\n};"


def real(value: float) -> str:
    """Returns a 64-bit number as text that reads back as the same bits."""
    text = repr(float(value))
    return text if any(letter in text for letter in ".en") else text + ".0"


def short_real(value: float) -> str:
    """Returns a 32-bit number as text that reads back as the same bits."""
    text = f"{value:.9g}"
    return text + "f" if any(letter in text for letter in ".e") else text + ".0f"


def u64(value: int) -> str:
    """Returns an unsigned 64-bit constant."""
    return f"UINT64_C(0x{value:016X})"


def quoted(text: str | bytes) -> str:
    """Returns a string literal, in ASCII."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    found = ""
    for byte in data:
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        found += chr(byte) if plain else f"\\{byte:03o}"
    found = found.replace("steepest_", "steepest\\137")  # the names of functions may begin otherwise, texts do not
    return f'"{found}"'


def literal(value: str | bytes | float | None, kind: str) -> str:
    """Returns a value of a column as an initialiser."""
    if not isinstance(value, str | bytes):
        return "NAN" if kind == NUMBER and value is None else "{NULL, 0}" if value is None else real(value)
    size = len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    return f"{{{quoted(value)}, {size}}}"


def _note(column: Column) -> str:
    """Returns a comment on what a member of the input holds."""
    if column.part:
        return "date, as seconds since 1970-01-01 00:00 by its own clock; NAN: missing"
    if column.kind == NUMBER:
        marked = ", without currency and unit" if column.format else ""
        return f"number{marked}; NAN, infinite or beyond 32 bits: missing"
    if column.kind == LIST:
        shown = [f"'{c}'" if c.isprintable() else f"byte {ord(c)}" for c in column.separators]
        return comment(f"list, with {' or '.join(shown)} between its values")
    example = f", such as {column.example!r}" if column.kind == CATEGORY and column.example else ""
    return comment(f"{column.kind}{example}")


def comment(text: str) -> str:
    """Returns a name that cannot end a comment."""
    return "".join(c if c.isprintable() else " " for c in text).replace("*/", "* /") or "the text"


def field_names(names: Sequence[str]) -> list[str]:
    """Returns a name in C for each column, no two alike."""
    found: list[str] = []
    for place, name in enumerate(names):
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name) or "text"
        is_macro = plain == plain.upper() or plain in ("linux", "unix")  # or may be one
        plain = f"column_{plain}" if is_macro or plain[0] in "_0123456789" or plain in KEYWORDS else plain
        found.append(f"{plain}_{place}" if plain in found else plain)
    return found
