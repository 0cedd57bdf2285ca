"""The model file of a server: read into memory of its own, so that nothing done to the file can disturb an answer.

A file that is overwritten in place would change, or cut off, the memory of a program that maps it. The bytes are
therefore copied into an anonymous file that only this process and its workers can reach (Linux), which the model maps.
Where the system has no such files, the model is mapped from its own file, and must be replaced by renaming.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from steepest.data.files.remote import open_bytes
from steepest.errors import DataError, ModelFileError
from steepest.models.base import load
from steepest.serve.row_log import write_all

BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, and the SHA-256 of the file that it came from."""

    model: Any
    identity: str


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identifies a file's version by its metadata; another stamp means that it may have changed."""

    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, path: str) -> Stamp | None:
        """The stamp now; None if there is no such file."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


def load_model(path: str) -> LoadedModel:
    """Reads, checks and loads a model file."""
    digest = hashlib.sha256()
    private = os.memfd_create("steepest-model") if hasattr(os, "memfd_create") else None
    try:
        try:
            with open_bytes(path) as file:
                while block := file.read(BLOCK):
                    digest.update(block)
                    if private is not None:
                        write_all(private, block)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ModelFileError(f"{path} cannot be read ({reason}): check the path and its permissions") from None
        name = path if private is None else f"/proc/self/fd/{private}"
        try:
            model = load(name)
        except DataError as error:
            raise type(error)(str(error).replace(name, path)) from None
        return LoadedModel(model, digest.hexdigest())
    finally:
        if private is not None:
            os.close(private)  # what is mapped stays
