"""Checkpoints: the learner's whole state and its place in the data, saved at intervals, so that a run can resume.

A run resumed from a checkpoint ends with the same bits as one that was never interrupted: the state is complete, the
order of rows is a function of the seed and the epoch, and saving happens between chunks only.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steepest import model_file
from steepest.atomic import check_target, remove_leftovers
from steepest.data.chunk import Array
from steepest.data.raw import rereading_encoder
from steepest.data.source import Source
from steepest.engine.history import History
from steepest.engine.stopping import Watch
from steepest.errors import DataError, ModelFileError, ParameterError
from steepest.learners.base import Progress, join_words, split_words

FILE_NAME = "checkpoint.steepest"
EARLIER_NAME = "checkpoint.earlier.steepest"  # the one before, should the newest be damaged
EVERY = "60s"
ENCODER = "encoder: "  # marks the arrays of what a hasher has learned
BEST = "best epoch: "  # marks the arrays of the learner that early stopping would return to


@dataclass(slots=True)
class Place:
    """The position of a run in the data: epoch, chunks done in it, and rows and losses of it so far."""

    epoch: int = 0
    chunks: int = 0
    rows: int = 0
    progress: Progress = field(default_factory=Progress)


class Checkpoints:
    """Saves a run to a file in a directory at intervals, keeps the previous file, and restores the run.

    If raw rows are hashed again in every epoch, checkpoints after the first epoch hold the state of the hasher; during
    the first one, a resumed run learns it again from the rows that it skips.
    """

    def __init__(
        self,
        directory: str | Path,
        restore: Callable[[dict[str, Array]], Any],
        fingerprint: dict[str, Any],
        *,
        source: Source | None = None,
        resume: bool = False,
        every: str = EVERY,
    ) -> None:
        self.path = Path(directory) / FILE_NAME
        self.earlier = Path(directory) / EARLIER_NAME
        self.restore = restore
        self.fingerprint = json.loads(json.dumps(fingerprint))  # as it will be read back
        self.source = source
        self.resuming = resume
        self.seconds, self.rows = parse_every(every)
        self._last = time.monotonic()
        self._last_rows: int | None = None
        self._make_directory()
        check_target(self.path)  # found now and not after the first interval

    def _make_directory(self) -> None:
        directory = self.path.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = "is a file" if directory.is_file() else f"cannot be made ({error.strerror})"
            raise DataError(f"the checkpoint directory {directory} {why}; name another directory") from None

    def maybe_save(self, learner: Callable[[], Any], history: History, place: Place, watch: Watch) -> str:
        """Saves if the interval, in seconds or in rows, has passed since the last time; returns what `save` does."""
        rows = place.rows + sum(int(record["rows"]) for record in history) if self.rows < math.inf else 0
        if self._last_rows is None:
            self._last_rows = 0 if rows <= self.rows else rows
        if time.monotonic() - self._last >= self.seconds or rows - self._last_rows >= self.rows:
            self._last_rows = rows
            return self.save(learner(), history, place, watch)
        return ""

    def save(self, learner: Any, history: History, place: Place, watch: Watch) -> str:
        """Saves now; returns "", or why it failed: the old file stays then, and what was learned is still in memory."""
        state = dict(learner.state)
        if watch.best_learner is not None:
            state |= {BEST + name: array for name, array in watch.best_learner.state.items()}
        words, arrays = split_words(state)
        encoder = rereading_encoder(self.source) if place.epoch > 0 else None
        learned, learned_arrays = (None, {}) if encoder is None else encoder.state()
        arrays |= {ENCODER + name: array for name, array in learned_arrays.items()}
        header = {
            "kind": "checkpoint",
            "fingerprint": self.fingerprint,
            "place": asdict(place),
            "history": history.as_dict(),
            "watch": watch.as_dict(),
            "words": words,
            "encoder": learned,
        }
        try:
            self._make_directory()  # it may have been removed meanwhile
            if self.path.exists():
                os.replace(self.path, self.earlier)
            model_file.write(self.path, header, arrays)
        except (DataError, OSError) as error:
            return f"no checkpoint: {error}"
        finally:
            self._last = time.monotonic()
        return ""

    def resume(self) -> tuple[Any, History, Place, Watch] | None:
        """The learner, history, place and watch of the last checkpoint; None to start from the beginning."""
        if not self.resuming or not (self.path.exists() or self.earlier.exists()):
            return None
        header, arrays = self._read()
        if header.get("kind") != "checkpoint" or header.get("fingerprint") != self.fingerprint:
            raise DataError(
                f"{self.path} belongs to a run with other data or parameters; "
                "remove it, give another --checkpoint directory, or resume with the same command"
            )
        try:
            return self._rebuild(header, arrays)
        except (DataError, ParameterError, ModelFileError, MemoryError):
            raise
        except Exception as error:  # as for a model file: checks come first, this is the net below them
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise ModelFileError(
                f"{self.path} is not a complete checkpoint ({said}); remove it to start again"
            ) from None

    def _rebuild(self, header: dict[str, Any], arrays: dict[str, Array]) -> tuple[Any, History, Place, Watch]:
        if (learned := header.get("encoder")) is not None and (encoder := rereading_encoder(self.source)) is not None:
            encoder.go_on_from(learned, {name.removeprefix(ENCODER): array for name, array in arrays.items()})
        state = join_words(header["words"], arrays)
        best = {name.removeprefix(BEST): array for name, array in state.items() if name.startswith(BEST)}
        watch = Watch.from_dict(header["watch"], self.restore(best) if best else None)
        progress = Progress(**header["place"].pop("progress"))
        place = Place(**header["place"], progress=progress)
        counts = (place.epoch, place.chunks, place.rows)
        if not all(type(count) is int and 0 <= count < 1 << 53 for count in counts):
            raise ValueError(f"the place is {counts}")
        return self.restore(state), History.from_dict(header["history"]), place, watch

    def _read(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Reads the newest checkpoint, or the previous one if the newest is damaged or incomplete."""
        try:
            return model_file.read(self.path)
        except ModelFileError:
            if not self.earlier.exists():
                raise
            return model_file.read(self.earlier)

    def clear(self) -> None:
        """Removes the checkpoints of a run that is complete."""
        with contextlib.suppress(OSError):  # a model that was learned is not lost because they cannot be removed
            self.path.unlink(missing_ok=True)
            self.earlier.unlink(missing_ok=True)
        remove_leftovers(self.path)  # of a process that was killed while it wrote


def parse_every(every: str) -> tuple[float, float]:
    """(seconds, rows) between two checkpoints, from "30s" or "100000-rows"; one of the two is infinite."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]+)?)\s*-?\s*(s|rows)\s*", str(every))
    if found is None:
        raise ParameterError(f"checkpoint_every={every!r} is unknown; give seconds, such as '30s', or '100000-rows'")
    number = float(found[1])
    return (number, math.inf) if found[2] == "s" else (math.inf, max(1.0, number))
