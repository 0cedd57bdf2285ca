"""Checkpoints of rounds on Spark: what the shards have answered, kept by the driver, so that a killed fit goes on.

A fit is a function of what the shards answer: the driver does the rest, and the same each time. So the answers of every
round are kept, and a fit that is resumed is told them again, up to where it was killed; then the shards go on. The bits
are those of a fit that was never interrupted. Mixing, whose answers are whole tables of every shard, keeps the mixture
of the last round instead (engine/checkpoint.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steepest import model_file
from steepest.data.chunk import Array, DataError
from steepest.data.parameters import ParameterError

NAMES = "round-*.steepest"
ONLY_HOW = ("n_jobs", "verbose")  # parameters that change no bit


class Journal:
    """One file a round; removed when the fit is complete."""

    def __init__(self, folder: str | Path, fingerprint: Mapping[str, Any], *, resume: bool) -> None:
        self.folder, self.fingerprint = Path(folder), json.loads(json.dumps(fingerprint))
        self.resume = resume
        self.done = self.told = 0  # rounds that are in files, and those of them that were told again
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"the checkpoint folder {folder} cannot be made ({error.strerror})") from None
        if not resume:
            self.clear()
        while self._path(self.done).exists():
            self.done += 1

    def _path(self, number: int) -> Path:
        return self.folder / NAMES.replace("*", f"{number:06}")

    def recall(self, work: str) -> list[dict[str, Array]] | None:
        """The answers of the next round, if they are known."""
        if self.told == self.done:
            return None
        path = self._path(self.told)
        header, arrays = model_file.read(path)
        if header.get("fingerprint") != self.fingerprint or header.get("work") != work:
            raise DataError(
                f"{path} belongs to a fit with other rows or parameters; remove it, or give another checkpoint folder"
            )
        self.told += 1
        answers: list[dict[str, Array]] = [{} for _ in range(header["parts"])]
        for name, array in arrays.items():
            part, own = name.split(" ", 1)
            answers[int(part)][own] = array
        return answers

    def keep(self, work: str, answers: Sequence[Mapping[str, Array]]) -> None:
        """Writes the answers of a round, whole or not at all."""
        header = {"kind": "round", "fingerprint": self.fingerprint, "work": work, "parts": len(answers)}
        arrays = {f"{part} {name}": array for part, answer in enumerate(answers) for name, array in answer.items()}
        model_file.write(self._path(self.done), header, arrays)
        self.done += 1
        self.told = self.done

    def clear(self) -> None:
        """Nothing is left to resume."""
        for path in self.folder.glob(NAMES):
            path.unlink()


def fingerprint_of(estimator: Any, method: str | None, n_shards: int | None, rounds: int | None) -> dict[str, Any]:
    """What a fit must have in common with the one that it resumes, but for the rows."""
    params = estimator.get_params(deep=True)
    if params.get("random_state", 0) is None:
        raise ParameterError("checkpoint= needs random_state=, an int: a resumed fit has to draw the same numbers")
    plain = {
        name: repr(value) for name, value in params.items() if name not in ONLY_HOW and not hasattr(value, "get_params")
    }
    return {"params": plain, "method": method, "n_shards": n_shards, "rounds": rounds}
