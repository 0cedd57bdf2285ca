"""Words that must not come back into the code and the pages: each has a plain one in its place."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSTEAD = {
    "crew": "worker pool",
    "gang": "worker pool",
    "herd": "workers",
    "pupil": "learner",
    "shelf": "row store",
    "wish": "requested",
    "wishes": "options",
    "heed": "respect",
    "heeds": "respects",
    "told": "detected, reported or shown",
    "sisters": "related flags",
    "settle": "apply, resolve or write back",
    "settles": "resolves",
    "dealt": "shared out",
    "heard": "seen",
    "hire": "start",
    "at hand": "available",
    "change no bit": "results are bit-identical",
    "(?:rows?|bytes|numbers?|lines?|seconds|passes|jobs?) an? (?:cluster|epoch|iteration|row|round|output)": "per",
    "(?:is|are) no (?:number|size|feature|JSON object|whole number)": "is not a ...",
    "changes no bit": "results are bit-identical",
    "(?:row|rows|one|answer|once|twice) an? (?:line|row)": "per",
    "wished": "requested",
    "agenda": "plan",
    "welcome": "allowed or accepted",
    "folders?": "directory",
    "(?:ending|flag|file|header|line|name) tells": "sets, shows or reports",
    "as if nothing had happened": "with the same bits",
}
FILES = [
    path
    for tree, endings in {"src": (".py",), "native": (".h", ".cpp"), "docs": (".md",)}.items()
    for path in sorted((ROOT / tree).rglob("*"))
    if path.suffix in endings
]


@pytest.mark.quick
@pytest.mark.parametrize("word", INSTEAD)
def test_a_word_of_the_old_vocabulary_does_not_come_back(word):
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (*FILES, ROOT / "README.md", ROOT / "CONTRIBUTING.md")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"write {INSTEAD[word]!r} instead of {word!r}: {found[:10]}"
