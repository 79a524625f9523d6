"""Acts as the user of a process, in a program of its own.

It reads and writes files as that user sees them. It runs as ``python -I -S asuser.py ROOT UID GID
GROUP,...``, with a socket as stdin for the requests of ``userfiles``; ``ROOT`` is a descriptor of
the root folder of the process. If it has the rights of root, it gives them up before the first
request. It imports only the standard library, because that user may not be allowed to read profd's
folder.

A path means what it means to the process: each link is followed below its root, and no device, pipe
or socket is opened. The program may hang in a file system that is gone; ``userfiles`` has a
timeout.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

READ, IS_FILE, OPEN, MAKE, WRITE, REMOVE = b"r", b"i", b"o", b"m", b"w", b"d"
"""Requests: the bytes of a file, after the time of their last change.

The others: whether there is such a file; a descriptor of it; a new folder in another one; a new
file with the content that follows the NUL after its path; the removal of a file, or of a folder
with its files.
"""
HEADER, CHANGED = struct.Struct("!I"), struct.Struct("!q")
READY = b"R"
"""Sent once, before the first request."""
NOTHING = 0xFFFFFFFF
"""Takes the place of a length if there is no such file."""
MOST_BYTES = 4 << 20
IDLE_S = 5.0
"""The program ends after this many seconds without a request.

In most runs all files are read at the start, and the program takes 6 MB.
"""
_PATH = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
_NO_LINK = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW


def open_below(root: int, path: str, changes: list[int] | None = None) -> int:
    """Return an ``O_PATH`` descriptor of a path below a folder, links followed as below ``/``.

    ``changes`` gets the time at which each link on the way was made, and last the time at which a
    name in the folder of the path changed. Raises OSError.
    """
    changes = [] if changes is None else changes
    if len(path) > 4096:
        raise OSError(errno.ENAMETOOLONG, "the path is too long")
    at = [os.dup(root)]
    waiting, links = path.split("/")[::-1], 0
    try:
        while waiting:
            name = waiting.pop()
            if name == "..":
                if len(at) > 1:
                    os.close(at.pop())
            elif name not in ("", "."):
                found = os.open(name, _PATH, dir_fd=at[-1])
                if stat.S_ISLNK((state := os.fstat(found)).st_mode):
                    links += 1
                    changes.append(state.st_ctime_ns)
                    if links > 40:
                        os.close(found)
                        raise OSError(errno.ELOOP, "there are too many links")
                    target = os.readlink("", dir_fd=found)
                    os.close(found)
                    waiting += target.split("/")[::-1]
                    while target.startswith("/") and len(at) > 1:
                        os.close(at.pop())
                else:
                    at.append(found)
        changes.append(os.fstat(at[max(len(at) - 2, 0)]).st_mtime_ns)
        return os.dup(at[-1])
    finally:
        for fd in at:
            os.close(fd)


def read(root: int, path: str) -> bytes | None:
    """Return the bytes of a plain file, after the time of their last change.

    None if there is no readable file, or it is larger than a source file. The time is in ns since
    the epoch: since then the path has led to these bytes.
    """
    changes: list[int] = []
    with _below(root, path, changes) as found:
        state = os.fstat(found)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MOST_BYTES:
            return None
        # Read the very file that was checked: the path may lead to another one by now.
        with open(f"/proc/self/fd/{found}", "rb") as file:  # noqa: PTH123  pathlib would be half of the start
            content = file.read(MOST_BYTES)
        # after reading, so that no change meanwhile seems older than the bytes
        state = os.fstat(found)
    # Not st_mtime, which can be set back, as `cp -p` does.
    own_ns, folder_ns = state.st_ctime_ns, changes.pop()
    if state.st_nlink > 1:
        # st_ctime also changes when the file gets another name in another folder. Installers link
        # the files of one cache into many places, so a name counts only if the folder of this one
        # changed.
        own_ns = min(own_ns, max(state.st_mtime_ns, folder_ns))
    return CHANGED.pack(max(own_ns, *changes, 0)) + content


def is_file(root: int, path: str) -> bytes | None:
    with _below(root, path) as found:
        return b"" if stat.S_ISREG(os.fstat(found).st_mode) else None


def open_file(root: int, path: str) -> int | None:
    """Return a descriptor of a plain file that is no link, for reading.

    None if it is something else.
    """
    folder, _, name = path.rpartition("/")
    with _below(root, folder) as above:
        found = os.open(name, _NO_LINK | os.O_RDONLY, dir_fd=above)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    return None


def make_folder(root: int, path: str) -> bytes:
    """Make a folder for this user alone, with a name that nobody can guess, and return the name."""
    name = f"profd-window-{os.urandom(8).hex()}"
    with _below(root, path) as above:
        os.mkdir(name, 0o700, dir_fd=above)
    return name.encode()


def write(root: int, path: str, content: bytes) -> bytes:
    """Make a file for this user alone; raises OSError if something of that name exists."""
    folder, _, name = path.rpartition("/")
    with _below(root, folder) as above:
        made = os.open(name, _NO_LINK | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=above)
    with os.fdopen(made, "wb") as file:
        file.write(content)
    return b""


def remove(root: int, path: str) -> bytes:
    above, _, name = path.rpartition("/")
    with _below(root, above) as outer:
        try:
            os.unlink(name, dir_fd=outer)
        except IsADirectoryError:
            with _closing(os.open(name, _NO_LINK | os.O_DIRECTORY, dir_fd=outer)) as inner:
                for file in os.listdir(inner):
                    os.unlink(file, dir_fd=inner)
            os.rmdir(name, dir_fd=outer)
    return b""


def _below(root: int, path: str, changes: list[int] | None = None) -> AbstractContextManager[int]:
    return _closing(open_below(root, path, changes))


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def become(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Take on a user and its groups, for good, if this process is root."""
    if os.geteuid() == 0 and uid != 0:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


_ANSWERS: Mapping[bytes, Callable[[int, str], bytes | int | None]] = {
    READ: read,
    IS_FILE: is_file,
    OPEN: open_file,
    MAKE: make_folder,
    REMOVE: remove,
}
"""By request what gives the bytes of the answer, or a descriptor, which has none."""


def serve(requests: socket.socket, root: int) -> None:
    """Answer requests, one after the other, until the socket is closed.

    Raises TimeoutError if none comes.
    """
    requests.settimeout(IDLE_S)
    with requests, requests.makefile("rb") as coming:
        while head := coming.read(1 + HEADER.size):
            request, argument = head[:1], coming.read(*HEADER.unpack(head[1:]))
            answer: bytes | int | None = None
            try:
                if request == WRITE:
                    name, _, content = argument.partition(b"\0")
                    answer = write(root, os.fsdecode(name), content)
                else:
                    answer = _ANSWERS[request](root, os.fsdecode(argument))
            except (
                OSError,
                ValueError,
            ):  # missing, not ours to enter, or a name that no file system takes
                pass
            opened = [answer] if isinstance(answer, int) else []
            text = answer if isinstance(answer, bytes) else b""
            length = HEADER.pack(NOTHING if answer is None else len(text))
            socket.send_fds(requests, [length], opened)
            requests.sendall(text)
            for fd in opened:
                os.close(fd)


if __name__ == "__main__":
    _root, _uid, _gid, _groups = sys.argv[1:]
    become(int(_uid), int(_gid), [int(word) for word in _groups.split(",") if word])
    _requests = socket.socket(fileno=os.dup(0))
    _requests.sendall(READY)
    try:  # noqa: SIM105  contextlib takes 4 ms to import, and a megabyte
        serve(_requests, int(_root))
    except TimeoutError:
        pass
