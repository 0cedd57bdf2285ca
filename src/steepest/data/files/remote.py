"""Files by their address, here or elsewhere: s3://, gs://, hdfs://, abfs:// and file:// through pyarrow's file systems.

One way to open, to ask for size and time, and to list, for data and for models. Options are in the address, as pyarrow
reads them (`s3://bucket/rows.csv?region=eu-west-1`); keys come from the environment and the usual files. A file is read
by ranges, so blocks and row groups are fetched when they are needed and nothing is copied to the disk. Whatever goes
wrong is an OSError with one sentence. Left out: writing, and http addresses, which do not all have ranges.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, cast

SCHEMES = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "file")
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # for a pipe that nobody writes to


class Status(NamedTuple):
    """The result of `status`, with the fields of `os.stat` that are used."""

    st_mode: int
    st_size: int
    st_mtime_ns: int


def is_remote(path: str) -> bool:
    """Whether a path is the address of a file system that pyarrow reaches."""
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


def open_bytes(path: str) -> IO[bytes]:
    """The file, at its first byte; it can be sought. A pipe that has taken its name meanwhile is not waited for."""
    if not is_remote(path):
        return open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | NO_WAIT))
    with _plain_errors(path):
        system, place = _found(path)
        return cast(IO[bytes], system.open_input_file(place))


def status(path: str) -> Status | os.stat_result:
    """Kind, size and time of the last change."""
    if not is_remote(path):
        return os.stat(path)
    from pyarrow import fs

    with _plain_errors(path):
        system, place = _found(path)
        info = system.get_file_info(place)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        kind = stat.S_IFDIR if info.type == fs.FileType.Directory else stat.S_IFREG
        return Status(kind, info.size or 0, info.mtime_ns or 0)


def matching(path: str) -> list[str]:
    """The addresses that an address with * or [] in its last part stands for, in order; itself if it has neither."""
    address, mark, options = path.partition("?")
    if not any(letter in address for letter in "*["):
        return [path]
    from pyarrow import fs

    head, _, pattern = address.rpartition("/")
    with _plain_errors(path):
        system, place = _found(f"{head}{mark}{options}")
        infos = system.get_file_info(fs.FileSelector(place, allow_not_found=True))
    names = sorted(info.base_name for info in infos if info.type == fs.FileType.File)
    return [f"{head}/{name}{mark}{options}" for name in names if fnmatch.fnmatchcase(name, pattern)]


@functools.lru_cache(maxsize=256)  # a file system asks for regions and keys when it is made
def _found(path: str) -> tuple[Any, str]:
    from pyarrow import fs

    system, place = fs.FileSystem.from_uri(path)
    return system, place


@contextmanager
def _plain_errors(path: str) -> Iterator[None]:
    """Turns pyarrow's exceptions into OSError with one short sentence as the reason."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path) from error
    except (OSError, ValueError, NotImplementedError, ImportError) as error:
        said = " ".join(str(error).split())[:300]
        raise OSError(errno.EIO, said or type(error).__name__, path) from error
