"""The one safe write: a path holds a complete old file, a complete new file, or none, whatever happens meanwhile.

The new file grows under another name in the same directory, is forced to the disk and then renamed, which is one step.
A writer that fails or is interrupted removes its unfinished file; one that was killed leaves it, and the next writer in
the same directory removes it, since the lock of a dead process is gone. Left out: writing in place, appending.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import stat
import time
from collections.abc import Iterator
from typing import IO

from steepest.errors import DataError

try:
    import fcntl
except ImportError:  # Windows, where the files of a living process cannot be removed anyway
    fcntl = None  # type: ignore[assignment]

# Letters of the target's name in the unfinished file's: a long name with more behind it would not be allowed.
_SHOWN_NAME = 40
_NEW_FILE = 0o666  # less the umask
_ENDING = f".{'[0-9a-f]' * 16}.part"  # of unfinished files
# Unfinished files of other names are left alone while they are younger: their writer may be about to lock them.
_YOUNG_SECONDS = 60.0


class _NothingToWrite(Exception):  # noqa: N818, it is not an error
    """Ends a block that was to show only whether a file can be written."""


@contextlib.contextmanager
def writing(
    path: str | os.PathLike[str], what: str = "", error: type[DataError] = DataError, *, durable: bool = True
) -> Iterator[IO[bytes]]:
    """A binary stream whose file takes the name `path` when the block ends; if the block raises, nothing changes.

    Parameters
    ----------
    path : path
        A symbolic link stays one. The permissions of a file that is replaced are kept.
    what : str
        What the file is, put before its name in messages, for example "the cache ".
    error : subclass of DataError
        Raised, with the reason and a remedy, if the system refuses.
    durable : bool
        Whether file and name must survive a power cut, which costs a wait for the disk.
    """
    name = os.fsdecode(path)
    if "\0" in name:
        raise error(f"{what}{name!r} cannot be written, because a path cannot hold a null byte; choose another name")
    try:
        target = os.path.realpath(name)
        mode = _mode_of(target)
        if mode is not None and not stat.S_ISREG(mode):  # a rename would fail over a directory and destroy a device
            raise error(f"{what}{name} cannot be written: something that is not a file has this name; choose another")
        with _unfinished(target, mode) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if mode is not None:
                os.chmod(file.name, stat.S_IMODE(mode))
            if os.name == "nt":  # where an open file cannot be renamed
                file.close()
            os.replace(file.name, target)
        if durable:
            _sync_directory(os.path.dirname(target))
    except OSError as reason:
        said = reason.strerror or type(reason).__name__
        raise error(f"{what}{name} cannot be written ({said}); {_remedy(reason)}") from reason


def check_target(path: str | os.PathLike[str]) -> None:
    """Raises what `writing` would raise now, without changing anything: for programs that write after hours."""
    with contextlib.suppress(_NothingToWrite), writing(path):
        raise _NothingToWrite


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a whole text in UTF-8."""
    with writing(path) as file:
        file.write(text.encode())


def _mode_of(target: str) -> int | None:
    """The type and permissions of the file that is to be replaced, if there is one."""
    if not os.path.exists(target):
        return None
    mode = os.stat(target).st_mode
    if stat.S_ISREG(mode) and not os.access(target, os.W_OK):  # a rename would go past a file's write protection
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return mode


@contextlib.contextmanager
def _unfinished(target: str, mode: int | None) -> Iterator[IO[bytes]]:
    """A new file beside the target, locked while its writer lives; removed unless it was renamed."""
    prefix = remove_leftovers(target)
    permissions = _NEW_FILE if mode is None else 0o600
    file = _locked(prefix, permissions)
    path = file.name
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # what a full disk did not take is still in a buffer
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(path)


def _locked(prefix: str, permissions: int) -> IO[bytes]:
    """A new file of this writer. Another writer may have found it before it was locked, and removed it: then anew."""
    while True:
        path = f"{prefix}{os.urandom(8).hex()}.part"
        file = open(path, "xb", opener=lambda path, flags: os.open(path, flags, permissions))  # noqa: SIM115
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some network disks have no locks
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        if os.path.exists(path):
            return file
        file.close()


def remove_leftovers(target: str | os.PathLike[str]) -> str:
    """Removes unfinished files beside the target whose writers were killed; how names of those for the target begin."""
    directory, name = os.path.split(os.fsdecode(target))
    prefix = os.path.join(directory, f".{name[:_SHOWN_NAME]}.")
    for path in glob.glob(os.path.join(glob.escape(directory), f".*{_ENDING}")):
        with contextlib.suppress(OSError):
            if not path.startswith(prefix) and time.time() - os.stat(path).st_mtime < _YOUNG_SECONDS:
                continue
            if fcntl is None:
                os.unlink(path)
                continue
            with open(path, "rb") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the writer lives
                os.unlink(path)
    return prefix


def _sync_directory(directory: str) -> None:
    """Makes the new name survive a power cut, where the system can; the file itself is complete already."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remedy(reason: OSError) -> str:
    if reason.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free some space or choose another disk"
    if reason.errno in (errno.ENOENT, errno.ENOTDIR):
        return "create its directory first"
    if reason.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "choose a place where you may write, and close programs that use the file"
    return "choose another place"
