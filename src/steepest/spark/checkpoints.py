"""Checkpoints of rounds on Spark: the answers of the shards, saved by the driver, so that a killed fit goes on.

A fit is a function of what the shards answer: the driver does the rest, and the same each time. So the answers of every
round are saved, and a resumed fit reads them again, up to where it was killed; then the shards go on. The bits are
those of a fit that was never interrupted. Mixing, whose answers are whole tables of every shard, saves the mixture of
the last round instead (engine/checkpoint.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steepest import model_file
from steepest.data.chunk import Array
from steepest.errors import DataError, ParameterError
from steepest.spark.messages import Answer

NAMES = "round-*.steepest"
IRRELEVANT = ("n_jobs", "verbose")  # parameters with which results are bit-identical


class RoundCheckpoints:
    """One file per round; removed when the fit is complete."""

    def __init__(self, directory: str | Path, fingerprint: Mapping[str, Any], *, resume: bool) -> None:
        self.directory, self.fingerprint = Path(directory), json.loads(json.dumps(fingerprint))
        self.resume = resume
        self.saved = self.read = 0  # rounds that are in files, and those of them that were read again
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = "is a file" if Path(directory).is_file() else f"cannot be made ({error.strerror})"
            raise DataError(f"the checkpoint directory {directory} {why}; name another directory") from None
        if not resume:
            self.clear()
        while self._path(self.saved).exists():
            self.saved += 1

    def _path(self, number: int) -> Path:
        return self.directory / NAMES.replace("*", f"{number:06}")

    def next_answers(self, work: str) -> list[Answer] | None:
        """The answers of the next round, if they are saved."""
        if self.read == self.saved:
            return None
        path = self._path(self.read)
        header, arrays = model_file.read(path)
        if header.get("fingerprint") != self.fingerprint or header.get("work") != work:
            raise DataError(
                f"{path} belongs to a fit with other rows or parameters; remove it, or give another checkpoint "
                "directory"
            )
        self.read += 1
        answers: list[Answer] = [{} for _ in range(header["parts"])]
        for name, array in arrays.items():
            part, own = name.split(" ", 1)
            answers[int(part)][own] = array
        return answers

    def save(self, work: str, answers: Sequence[Mapping[str, Array]]) -> None:
        """Writes the answers of a round, whole or not at all."""
        header = {"kind": "round", "fingerprint": self.fingerprint, "work": work, "parts": len(answers)}
        arrays = {f"{part} {name}": array for part, answer in enumerate(answers) for name, array in answer.items()}
        model_file.write(self._path(self.saved), header, arrays)
        self.saved += 1
        self.read = self.saved

    def clear(self) -> None:
        """Removes the checkpoints of a fit that is complete."""
        for path in self.directory.glob(NAMES):
            path.unlink()


def fingerprint_of(estimator: Any, method: str | None, n_shards: int | None, rounds: int | None) -> dict[str, Any]:
    """The values that a fit must have in common with the one that it resumes, except for the rows."""
    params = estimator.get_params(deep=True)
    if params.get("random_state", 0) is None:
        raise ParameterError("checkpoint= needs random_state=, an int: a resumed fit has to draw the same numbers")
    plain = {
        name: repr(value)
        for name, value in params.items()
        if name not in IRRELEVANT and not hasattr(value, "get_params")
    }
    return {"params": plain, "method": method, "n_shards": n_shards, "rounds": rounds}
