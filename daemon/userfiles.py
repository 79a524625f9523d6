"""Files as the user of a process sees them.

They are read with that user's rights, below the process's root, with a short timeout. The target
names the files of its code, and may name any: files of others, pipes, a file system whose server is
gone. So a child process with the user's rights opens them (``asuser``). A child that does not
answer in time is given up; then nothing more is read for a while, and until the child is gone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from profd.daemon import asuser, processes
from profd.daemon.errors import OutputUnwritable

DEADLINE_S = 2.0
"""The timeout of a file: network file systems take less, and the caller can wait that long."""
START_S = 10.0
"""The timeout of the child's start.

On a machine with many busy processes Python takes a second or two to start.
"""
PAUSE_S = 30.0
"""After a timeout nothing is read for this long.

So a run spends little of its time waiting.
"""
MOST_FILES, MOST_PACKED_BYTES = 64, 4 << 20
"""How many files are kept after reading, and how many bytes, packed to a fifth."""


class Unanswered(Exception):
    """The child did not answer in time, or is not asked for a while because of that."""


class Changed(Exception):
    """A file has changed since a time: its earlier content is not known."""


class Content(NamedTuple):
    """Packed bytes: what a path led to from ``since_ns`` to ``until_ns``, by the wall clock."""

    packed: bytes
    since_ns: int
    until_ns: int


class UserFiles:
    """The files that a process sees; threads may share it, and it answers one at a time."""

    _root = -1
    _socket: socket.socket | None = None
    _helper: subprocess.Popen[bytes] | None = None
    _paused_until_s = 0.0

    deadline_s, pause_s = DEADLINE_S, PAUSE_S

    def __init__(self, owner: processes.Owner | None = None, root: Path = Path("/")) -> None:
        """Act as ``owner``, or as our own user, with paths below ``root``.

        Raises OSError if the root is gone.
        """
        owner = owner or processes.Owner(os.geteuid(), os.getegid(), tuple(os.getgroups()))
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        ids = (str(self._root), str(owner.uid), str(owner.gid), ",".join(map(str, owner.groups)))
        self._words = [sys.executable, "-I", "-S", str(asuser.__file__), *ids]
        self._lock, self._keeping = threading.Lock(), threading.Lock()
        self._kept: dict[str, Content] = {}

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        self._give_up()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def read(self, path: str) -> bytes:
        """Return a file's bytes, none if it cannot be read.

        Raises Unanswered if it may be readable later.
        """
        return (self._ask(asuser.READ, path)[0] or b"")[asuser.CHANGED.size :]

    def kept(self, path: str, at_ns: int | None = None) -> bytes:
        """Return a file's bytes as they were when it was read, or at a time of the wall clock.

        Raises Unanswered if it may be readable later, and Changed if it had, or may have had, other
        bytes at that time.
        """
        with self._keeping:
            content = self._kept.get(path)
        if content is None or (at_ns is not None and content.until_ns < at_ns):
            content = self._read_now(path)
        with self._keeping:
            self._kept.pop(path, None)
            self._kept[path] = content
            while len(self._kept) > MOST_FILES or self._kept_bytes() > MOST_PACKED_BYTES:
                del self._kept[next(iter(self._kept))]  # the file that was requested longest ago
        if at_ns is not None and content.since_ns > at_ns:
            raise Changed(path)
        return zlib.decompress(content.packed)

    def _kept_bytes(self) -> int:
        return sum(len(one.packed) for one in self._kept.values())

    def _read_now(self, path: str) -> Content:
        now_ns = time.time_ns()
        answer = self._ask(asuser.READ, path)[0] or asuser.CHANGED.pack(0)
        (since_ns,) = asuser.CHANGED.unpack_from(answer)
        return Content(zlib.compress(answer[asuser.CHANGED.size :], 1), since_ns, now_ns)

    def is_file(self, path: str | Path) -> bool:
        """Say whether a path names a plain file; False if the answer does not come in time."""
        return self._try(asuser.IS_FILE, path)[0] is not None

    def open(self, path: str | Path) -> int | None:
        """Return a descriptor of a plain file that is no link, which the caller closes.

        None if there is none.
        """
        _, opened = self._try(asuser.OPEN, path)
        return opened[0] if opened else None

    def make_folder(self, path: str) -> str | None:
        """Make a folder for the user alone in this one, and return its name.

        None if that is impossible.
        """
        answer, _ = self._try(asuser.MAKE, path)
        return answer.decode() if answer is not None else None

    def write(self, path: str | Path, content: bytes) -> None:
        """Make a file for the user alone.

        Raises OutputUnwritable, also if something of its name exists.
        """
        if self._try(asuser.WRITE, path, b"\0" + content)[0] is None:
            raise OutputUnwritable(f"{path} cannot be written", "make room there")

    def remove(self, path: str | Path) -> None:
        self._try(asuser.REMOVE, path)

    def _try(
        self, request: bytes, path: str | Path, content: bytes = b""
    ) -> tuple[bytes | None, list[int]]:
        """Do the same as ``_ask``, but return None as the answer if none comes in time."""
        try:
            return self._ask(request, path, content)
        except Unanswered:
            return None, []

    def _ask(
        self, request: bytes, path: str | Path, content: bytes = b""
    ) -> tuple[bytes | None, list[int]]:
        """Return the answer, None for no file, and the descriptors that come with it.

        Raises Unanswered.
        """
        if not self._lock.acquire(timeout=self.deadline_s):
            raise Unanswered(path)
        try:
            if not self._is_ready():
                raise Unanswered(path)
            return self._exchange(
                request, os.fsencode(path) + content, time.monotonic() + self.deadline_s
            )
        except (OSError, ValueError) as error:
            self._give_up()
            self._paused_until_s = time.monotonic() + self.pause_s
            raise Unanswered(path) from error
        finally:
            self._lock.release()

    def _is_ready(self) -> bool:
        """Start a child unless there is one, or one was given up lately or is not gone.

        Return whether there is a child to ask. Raises OSError.
        """
        if self._socket is not None:
            if self._has_helper():
                return True
            self._give_up()  # it ended because nothing was asked for a while
        if time.monotonic() < self._paused_until_s or self._has_helper():
            return False
        self._socket, theirs = socket.socketpair()
        with theirs:
            # In its own session, so that signals of a terminal or a process group do not reach it.
            fd, null, passed = theirs.fileno(), subprocess.DEVNULL, [self._root]
            self._helper = subprocess.Popen(
                self._words,
                stdin=fd,
                stdout=null,
                stderr=null,
                pass_fds=passed,
                cwd="/",
                start_new_session=True,
            )
        self._socket.settimeout(START_S)
        if self._socket.recv(len(asuser.READY)) != asuser.READY:
            raise ConnectionError("it has ended")
        return True

    def _has_helper(self) -> bool:
        return self._helper is not None and self._helper.poll() is None

    def _exchange(
        self, request: bytes, argument: bytes, until_s: float
    ) -> tuple[bytes | None, list[int]]:
        """Ask and return the answer; raises OSError if none comes in time."""
        asked = self._socket
        assert asked is not None
        asked.settimeout(max(until_s - time.monotonic(), 0.001))
        asked.sendall(request + asuser.HEADER.pack(len(argument)) + argument)
        head, opened, _, _ = socket.recv_fds(asked, asuser.HEADER.size, 1)
        if len(head) < asuser.HEADER.size:
            raise ConnectionError("it has ended")
        (length,) = asuser.HEADER.unpack(head)
        if length == asuser.NOTHING:
            return None, opened
        answer = bytearray()
        while len(answer) < length:
            asked.settimeout(max(until_s - time.monotonic(), 0.001))
            part = asked.recv(length - len(answer))
            if not part:
                raise ConnectionError("it has ended")
            answer += part
        return bytes(answer), opened

    def _give_up(self) -> None:
        """Kill the child; if it hangs in the kernel, it stays until the kernel answers."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._helper is not None:
            # Root may lack the right to end another user's process; this one ends by itself once
            # its socket is closed.
            with contextlib.suppress(subprocess.TimeoutExpired, PermissionError):
                self._helper.kill()
                self._helper.wait(0.1)


_known: weakref.WeakValueDictionary[tuple[processes.Owner, str], UserFiles] = (
    weakref.WeakValueDictionary()
)


def files_of(pid: int) -> UserFiles:
    """Return the files that a process sees, shared by processes that see the same.

    For a process that is gone, return ours, or as root nobody's.
    """
    owner, root, namespace = processes.owner(pid) or processes.NOBODY, Path("/"), ""
    with contextlib.suppress(OSError):
        if not sees_our_files(pid):
            root = processes.PROC / str(pid) / "root"
            namespace = str((processes.PROC / str(pid) / "ns/mnt").readlink())
    files = _known.get((owner, namespace))
    if files is None:
        files = _known[owner, namespace] = UserFiles(owner, root)
    return files


def as_owner(pid: int) -> dict[str, Any]:
    """Return ``subprocess``'s arguments to start a program as a process's user.

    They include the program's environment.
    """
    owner = processes.owner(pid) or processes.NOBODY
    if os.geteuid() != 0 or owner.uid == 0:
        return {}
    environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {"user": owner.uid, "group": owner.gid, "extra_groups": owner.groups, "env": environment}


def sees_our_files(pid: int) -> bool:
    """Say whether a path means the same to a process as here; in a container it does not.

    Raises OSError.
    """
    proc, own = processes.PROC / str(pid), processes.PROC / "self"
    is_same_root = os.path.samestat((proc / "root").stat(), (own / "root").stat())
    return is_same_root and (proc / "ns/mnt").readlink() == (own / "ns/mnt").readlink()
