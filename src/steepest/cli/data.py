"""How the verbs open data: the same flags everywhere."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import steepest as st
from steepest.atomic import check_target
from steepest.cli import flags
from steepest.data.files.blocks import open_files
from steepest.data.raw import is_raw, stored_encoder
from steepest.data.readers.raw_arrays import RawArrays
from steepest.data.scan import FORMATS, HEAD_BYTES, adapt_recipe, format_of, reader_options
from steepest.data.source import Source
from steepest.data.store.cache import CachedSource
from steepest.parameters import did_you_mean

KINDS = ("text", "categorical", "numeric")  # also flags of a hasher, and None if not given
CSV = ("columns", "header", "delimiter", "decimal", "newlines_in_values")
READING = ("label", "weight", *KINDS, *CSV, "labels", "zero_based", "n_features", "on_bad_line")
RATINGS = ("user", "item", "rating", "time")
VW = ("n_bits", "signed", "cross")  # flags of a hasher that the reader of Vowpal Wabbit text has, too
# Options of single readers: their values, and what they do.
OTHER_OPTIONS = {
    "style": ("{auto,tab,fasttext,plain}", "where the label is in a line (default: auto)"),
    "multi_label": ("{auto,true,false}", "whether a line may have several labels (default: auto)"),
    "ids": ("{auto,number,text}", "type of the ids (default: auto)"),
    "layout": ("{auto,triples,adjacency}", "how ratings are written (default: auto)"),
}
ELSEWHERE = ("with_labels", "seed", "crosses")  # options of readers that the verbs set themselves


FILES = "files, patterns such as 'rows-*.csv', or - for standard input"


def add_data_arguments(
    parser: argparse.ArgumentParser,
    *,
    labels: bool = True,
    flag: str | None = None,
    nargs: str = "+",
    help: str = FILES,
) -> None:
    """Adds DATA and how to read it; `labels` is false for a verb that has a flag --labels of its own.

    `flag` names a flag in front of the data where they may be left out.
    """
    if flag is None:
        parser.add_argument("data", nargs="+", metavar="DATA", help=help)
    else:
        parser.add_argument(
            flag, dest="data", nargs=nargs, metavar="DATA", help=f"rows: {FILES}" if help == FILES else help
        )
    reading = parser.add_argument_group("reading data")
    help = "format of the data (default: auto: detected from the name or the first lines)"
    reading.add_argument("--format", default="auto", metavar="{auto," + ",".join(FORMATS) + "}", help=help)
    roles = parser.add_argument_group("columns of a table")
    roles.add_argument(
        "--label", metavar="COLUMN", help="column to predict (default: the one called label, target, y or class)"
    )
    roles.add_argument("--weight", metavar="COLUMN", help="column of row weights (default: all rows weigh the same)")
    for kind in KINDS:
        help = f"{kind} columns, separated by commas (default: column types are detected)"
        roles.add_argument(f"--{kind}", metavar="COLUMNS", type=several, help=help)
    unset = argparse.SUPPRESS
    help = "type of one column: text, category, number, list or date; may be repeated"
    roles.add_argument("--kind", dest="kinds", metavar="COLUMN=KIND", action=_Kinds, default=unset, help=help)
    help = "columns to leave out, separated by commas"
    roles.add_argument("--ignore", metavar="COLUMNS", type=several, default=unset, help=help)
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": None}
    roles.add_argument("--header", **switch, help="CSV: the first line is data, not a header")
    roles.add_argument(
        "--columns", metavar="NAMES", type=several, help="CSV without a header: names of its columns (default: 0,1,...)"
    )
    roles.add_argument(
        "--delimiter",
        metavar="LETTER",
        type=_delimiter,
        help="CSV: separator of the columns; tab for a tab (default: detected)",
    )
    help = "CSV: decimal point or decimal comma in numbers (default: detected)"
    roles.add_argument("--decimal", choices=(".", ","), help=help)
    help = "CSV: quoted values may contain line breaks (default: detected)"
    roles.add_argument("--newlines-in-values", **switch, help=help)
    ratings = parser.add_argument_group("columns of ratings")
    for role in RATINGS:
        ratings.add_argument(
            f"--{role}-column",
            dest=role + "_column",
            metavar="COLUMN",
            help=f"column of the {role}: name, or number from 0 (default: detected)",
        )
    reading.add_argument("--limit", type=int, default=None, metavar="ROWS", help="read only the first rows")
    help = "stop at a line that cannot be parsed, or skip and count it (default: error)"
    reading.add_argument("--on-bad-line", choices=("error", "skip"), help=help)
    reading.add_argument(
        "--cache",
        metavar="FILE",
        help="store the parsed rows in this file, and read them from it in later epochs and runs",
    )
    if labels:
        help = "all labels, for rows with several labels; saves a pass over the data"
        reading.add_argument("--labels", metavar="NAMES", type=several, help=help)
    reading.add_argument("--zero-based", **switch, help="libsvm: indices start at 0 (default: detected)")
    help = "libsvm: number of columns (default: the largest index)"
    reading.add_argument("--n-features", type=int, default=None, metavar="N", help=help)
    for option, formats in other_options().items():
        values, about = OTHER_OPTIONS.get(option, ("VALUE", "option of the reader, as in Python"))
        help = f"{', '.join(formats)}: {about}"
        reading.add_argument(flags.flag_of(option), dest=option, metavar=values, type=flags.parse_value, help=help)


class _Kinds(argparse.Action):
    """Collects COLUMN=KIND in a dict; the name of a column may hold "=", a kind does not."""

    def __call__(self, parser: argparse.ArgumentParser, options: Any, values: Any, option: str | None = None) -> None:
        column, equals, kind = str(values).rpartition("=")
        if not equals:
            parser.error(f"argument --kind: {values!r} is not COLUMN=KIND, such as zip=category")
        setattr(options, self.dest, {**(getattr(options, self.dest, None) or {}), column: kind})


def other_options() -> dict[str, list[str]]:
    """Returns the options of readers that have no flag of their own here, and the formats that take them."""
    known = {*READING, *RATINGS, *VW, *ELSEWHERE}
    return {option: formats for option, formats in reader_options().items() if option not in known}


def several(names: str) -> list[str]:
    """Splits names with commas between them."""
    return names.split(",")


def _delimiter(letter: str) -> str:
    return "\t" if letter in ("tab", "\\t") else letter


def open_data(options: argparse.Namespace, recipe: dict[str, Any] | None = None, **extra: Any) -> Source:
    """The source that the flags describe; a model's recipe says how its training data was read."""
    files = open_files(options.data)
    reading = {**adapt_recipe(files[0], recipe or {}, options.format), **extra}
    given = {name: getattr(options, name, None) for name in (*READING, *other_options())}
    if given["columns"] is not None and given["header"] is None:
        given["header"] = False  # else there would be nothing to name
    given |= {role: getattr(options, role + "_column") for role in RATINGS}
    if format_of(files[0], reading.get("format", "auto")) == "vw":
        given |= {name: getattr(options, name, None) for name in VW}
    reading |= {name: value for name, value in given.items() if value is not None}
    source = st.scan(files, **reading)
    if options.cache is not None:
        source = open_cache(source, options.cache)
    return source if options.limit is None else source.limit(options.limit)


def open_for(model: Any, options: argparse.Namespace, **extra: Any) -> Source:
    """The rows that a fitted model is to read: files, standard input, or one row written in the command itself."""
    if extra.get("with_labels") is False:
        _refuse_other_label(model, options)
    if len(options.data) == 1 and (row := written_row(options.data[0])) is not None:
        return rows_from(model, row)
    name = _only_text(model)
    if name is not None and options.format == "auto" and len(options.data) == 1:
        word = options.data[0]
        if word.isalnum() and not os.path.exists(word):  # a name or a text, who knows
            raise st.DataError(
                f"{word} does not exist; check the name, or pipe it if it is a text: echo {word} | ... -"
            )
        files = open_files(options.data[0])
        if files[0].once and _is_plain_text(files[0].head(HEAD_BYTES), model.recipe_):
            return st.scan(files, format="txt", style="plain", with_labels=False)
        options = argparse.Namespace(**{**vars(options), "data": files})
    return open_data(options, model.recipe_, **extra)


def _refuse_other_label(model: Any, options: argparse.Namespace) -> None:
    """Where labels are not read, a label or weight other than the model's is likely a mistake."""
    for role in ("label", "weight"):
        given, known = getattr(options, role), model.recipe_.get(role)
        if given is not None and role in model.recipe_ and given != known:
            trained = f"the {role} {known!r}" if known else f"no column as the {role}"
            raise st.ParameterError(f"--{role} {given} is not read here, and the model has {trained}; leave it out")


def written_row(text: str) -> str | dict[str, Any] | None:
    """Returns a row instead of a file: a text of several words, or a JSON object; None for the name of a file."""
    is_object = text.lstrip().startswith("{")
    if text == "-" or os.path.exists(text) or not (is_object or len(text.split()) > 1):
        return None
    return json_row(text) if is_object else text


def json_row(text: str) -> dict[str, Any]:
    """Returns a row from a JSON object."""
    try:
        row = json.loads(text)
    except ValueError as error:
        raise st.DataError(f"{text[:60]!r} is not a JSON object ({error}); quote it for the shell") from None
    if not isinstance(row, dict):
        raise st.DataError(f"{text[:60]!r} is not a JSON object; give one, such as '{{\"column\": 1}}'")
    return row


def rows_from(model: Any, row: str | dict[str, Any]) -> Source:
    """Returns a source of one row that is written out, as the model reads it."""
    hasher = getattr(model, "hasher_", None)
    if hasher is None:
        if isinstance(row, dict):
            raise st.DataError(
                f"this {type(model).__name__} was trained without columns; write the row as in its training file"
            )
        recipe = {**model.recipe_, "with_labels": False}
        line = io.StringIO(row + "\n")
        line.name = "the row"
        return st.scan(line, **recipe)
    if isinstance(row, str) and _only_text(model) is None:
        names = list(dict.fromkeys(column.origin for column in hasher.used_columns))
        example = json.dumps(dict.fromkeys(names[:3], "..."))
        raise st.DataError(f"the model reads the columns {', '.join(names[:20])}; write the row as JSON: '{example}'")
    if isinstance(row, dict):
        known = {column.origin for column in hasher.columns_}
        for name in row:
            if name not in known and name != model.recipe_.get("label"):
                near = did_you_mean(name, known)
                raise st.DataError(
                    f"the model has no column {name!r}; {near}its columns are {', '.join(sorted(known))}"
                )
    return RawArrays([row])


def _only_text(model: Any) -> str | None:
    """Returns the column of a model that reads one text and nothing else."""
    columns: Sequence[Any] = getattr(getattr(model, "hasher_", None), "columns_", ())
    return columns[0].name if len(columns) == 1 and columns[0].kind == "text" else None


def _is_plain_text(head: bytes, recipe: dict[str, Any]) -> bool:
    """Whether lines are texts as they are, where a table was learned: neither JSON nor the header or columns of it."""
    if not head or head.lstrip()[:1] == b"{" or "delimiter" not in recipe:
        return False
    first = head.lstrip(b"\r\n").split(b"\n", 1)[0].decode("utf-8", "replace").strip().split(recipe["delimiter"])
    known = recipe.get("columns") or []
    if recipe.get("header", True):
        return not {name.strip('" ') for name in first} & set(known)
    return len(first) not in (len(known), len(known) - 1) or len(first) == 1


def hasher_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the flags of a hasher that were given."""
    asked = flags.estimator_arguments(options, st.Hasher)
    asked.pop("n_jobs", None)
    return {name: value for name, value in asked.items() if value is not None or name not in KINDS}


def takes_hasher(source: Source) -> bool:
    """Returns whether rows are raw, or hashed into the cache that is read, whose hasher must be the requested one."""
    return is_raw(source) or stored_encoder(source) is not None


def refuse_hasher_flags(source: Source, given: Iterable[str]) -> None:
    """Refuses flags of a hasher where no row has raw columns, so that none is ignored."""
    form = source.recipe.get("format", "such")
    for name in given:
        if form != "vw" or name not in VW:
            why = "whose features are hashed as written" if form == "vw" else "whose columns are numbered already"
            raise st.ParameterError(f"{flags.flag_of(name)} has no meaning for {form} rows, {why}; leave it out")


def check_writable(file: str | None, data: Iterable[str], model: str | None = None) -> None:
    """Refuses, before hours of training and not after, a file that cannot be written, or is the data or the model."""
    if file is None:
        return
    if not file:
        raise st.ParameterError("the name of the output is empty; give the name of a file")
    directory = os.path.dirname(file)
    if directory and not os.path.isdir(directory):
        raise st.DataError(f"the directory {directory} for {Path(file).name} does not exist; make it first")
    if os.path.isdir(file):
        raise st.DataError(f"{file} is a directory; give the name of a file")
    check_target(file)
    for what, paths in (("data", data), ("model", () if model is None else (model,))):
        if os.path.realpath(file) in map(os.path.realpath, paths):
            raise st.DataError(f"{file} is the {what} itself; choose another name for the output")


def open_cache(source: Source, path: str) -> Source:
    """Returns the source through its cache, which is built now; reports a cache that could not be used."""
    cached = source.cache(path)
    if isinstance(cached, CachedSource) and not is_raw(source) and cached.open().note:
        print(f"steepest: {cached.note}", file=sys.stderr)
    return cached


def _note(source: Source) -> str:
    return next((part.note for part in source.lineage if isinstance(part, CachedSource)), "")


def tell_skipped(source: Source) -> None:
    """Reports bad lines that were left out, and a cache that was of no use."""
    if is_raw(source) and (note := _note(source)):  # its cache was made ready only when a hasher was known
        print(f"steepest: {note}", file=sys.stderr)
    skipped = source.skipped
    if skipped.n:
        lines = "line" if skipped.n == 1 else "lines"
        print(f"steepest: {skipped.n:,} bad {lines} skipped, the first:", file=sys.stderr)
        for example in skipped.examples:
            print(f"  {example}", file=sys.stderr)
