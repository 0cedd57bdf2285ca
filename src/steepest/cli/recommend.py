"""steepest recommend MODEL --user U: the best items for users of a matrix factorization."""

from __future__ import annotations

import argparse
import json
import sys

import steepest as st

EXAMPLES = (
    "steepest recommend films.steepest --user 17",
    "steepest recommend films.steepest --users users.txt -k 20 --json",
    'steepest recommend films.steepest --similar "Toy Story"',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("model", metavar="MODEL", help="model file, or an address such as s3://bucket/m.steepest")
    parser.add_argument("--user", action="append", default=[], metavar="ID", help="id of a user; may be repeated")
    parser.add_argument("--users", metavar="FILE", help="file of ids, one per line; - for standard input")
    parser.add_argument("--similar", metavar="ID", help="list items similar to this one")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="number of items (default: 10)")
    parser.add_argument("--include-seen", action="store_true", help="also list items that the user has rated")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="number of threads (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per user")


def run(options: argparse.Namespace) -> int:
    """Prints user, item and score, one item per line."""
    model = st.load(options.model)
    if not hasattr(model, "recommend"):
        known = f"{options.model} is a {type(model).__name__}"
        raise st.ParameterError(
            f"recommend needs a MatrixFactorization, and {known}; train one on ratings with --task rate"
        )
    model.n_jobs = options.jobs
    if options.similar is not None:
        item = model.id_of(options.similar, "items")
        lists, cold = [(options.similar, model.similar_items([item], options.k)[0])], [False]
    else:
        words = [*options.user, *_read_ids(options.users)]
        if not words:
            raise st.ParameterError("recommend needs --user ID, --users FILE or --similar ID")
        found = model.recommend(
            [model.id_of(word, "users") for word in words], options.k, exclude_seen=not options.include_seen
        )
        lists, cold = [(word, found[n]) for n, word in enumerate(words)], found.cold.tolist()
    for (word, pairs), is_cold in zip(lists, cold, strict=True):
        if is_cold:
            print(f"steepest: {word!r} was not seen in training; these items are popular", file=sys.stderr)
        if options.json:
            items = [{"item": item, "score": score} for item, score in pairs]
            print(json.dumps({"user" if options.similar is None else "like": word, "cold": is_cold, "items": items}))
        else:
            sys.stdout.write("".join(f"{word}\t{item}\t{score:.5f}\n" for item, score in pairs))
    return 0


def _read_ids(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        with sys.stdin if path == "-" else open(path, encoding="utf-8") as lines:
            return [line.strip() for line in lines if line.strip()]
    except OSError as error:
        raise st.DataError(f"{path} cannot be read ({error.strerror}); check the name") from None
