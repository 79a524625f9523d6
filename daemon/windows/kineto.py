"""The daemon's side of Kineto's on-demand protocol, which asks an unmodified torch for a trace.

libkineto, the profiler inside torch, speaks it if the environment of its process says so (see
``ondemand``): it is a client of the daemon "dynolog", over Unix datagram sockets that are files in
one folder, or, if its environment names no folder, lie in the abstract namespace.

Every datagram is a header and a payload, in the byte order of the machine::

    u64 size      length of the payload
    char type[32] padded with NULs

The client's messages, and the answers to the socket that they came from:

``ctxt``, once at the start, by processes with a GPU::

    i32 gpu, i32 pid, i64 job     answered by ``ctxt`` with i32: processes of the job on the GPU

``req``, every second or so from then on: is there a trace to take? ::

    i32 kinds     bit 0: of hardware events, bit 1: of activities; that is off during a trace
    i32 n, i64 job
    i32 pids[n]   the process itself, then its ancestors

    answered by ``req``: an empty payload is *no*, the text of a configuration is *yes*; its lines
    are KEY=VALUE

A client waits 90 ms for an answer and then goes on. An answer that comes later stays in its socket,
and is taken for that to its next question, and each later one for that to the question after it,
for as long as the process lives: a message that has waited here for too long gets no answer.

The daemon only answers; only the file itself says that a trace is finished. Anything but a message
of the protocol is ignored, and the run goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import SessionFailed

DAEMON_NAME = "dynolog"
"""What a client calls the daemon's socket in the folder."""
ABSTRACT_NAME = b"\0dynolog\0"
_ABSTRACT_CLIENT = b"\0dynoconfigclient"
"""What names begin with outside of any folder; they end with a NUL that belongs to them."""
ACTIVITIES = 2
_HEADER = struct.Struct("=Q32s")
_CONTEXT = struct.Struct("=iiq")
_REQUEST = struct.Struct("=iiq")
_COUNT = struct.Struct("=i")
_CREDENTIALS_NOTE = 2
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_TIMESTAMP_NOTE = 35  # SO_TIMESTAMPNS, which the socket module does not name
# struct timespec, of the wall clock: when the kernel took the datagram
_TIMESTAMP = struct.Struct("@ll")
_NOTES_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_TIMESTAMP.size)
ANSWERED_WITHIN_NS = 50_000_000
_MOST_HEARD = 1000


class Context(msgspec.Struct, frozen=True):
    """A client with a GPU says that it is there."""

    pid: int
    gpu: int


class Inquiry(msgspec.Struct, frozen=True):
    """A client asks whether there is a trace to take.

    ``pids`` are its own and those of its ancestors.
    """

    kinds: int
    pids: tuple[int, ...]

    @property
    def pid(self) -> int:
        return self.pids[0]

    @property
    def is_free(self) -> bool:
        """Whether it could take a trace of activities now."""
        return bool(self.kinds & ACTIVITIES)


def decode(datagram: bytes) -> Context | Inquiry | None:
    """Return the message in a datagram; None if it is none of the protocol."""
    if len(datagram) < _HEADER.size:
        return None
    size, kind = _HEADER.unpack_from(datagram)
    payload = datagram[_HEADER.size :]
    if size != len(payload):
        return None
    name = kind.rstrip(b"\0")
    if name == b"ctxt" and len(payload) == _CONTEXT.size:
        gpu, pid, _ = _CONTEXT.unpack(payload)
        return Context(pid, gpu)
    if name == b"req" and len(payload) >= _REQUEST.size:
        kinds, count, _ = _REQUEST.unpack_from(payload)
        if 0 < count <= 256 and len(payload) == _REQUEST.size + count * _COUNT.size:
            return Inquiry(kinds, struct.unpack_from(f"={count}i", payload, _REQUEST.size))
    return None


def encode(kind: str, payload: bytes) -> bytes:
    return _HEADER.pack(len(payload), kind.encode()) + payload


class KinetoDaemon:
    """Answers the clients in one folder.

    It hands a configuration to those that a trace is wanted of.
    """

    def __init__(self, folder: Path | None) -> None:
        """``folder`` None is the abstract namespace."""
        self._folder = folder
        self._socket: socket.socket | None = None
        self._wanted: dict[int, Callable[[], str]] = {}
        self.given: dict[int, int] = {}
        """The processes that got their order, and how often each said that it is at no trace.

        What each has said since it got its order counts.
        """
        self.clients: set[int] = set()
        """The processes that have ever asked for work."""
        self._starts = 0

    def start(self) -> None:
        """Bind the socket and answer until the last of as many ``close``; raises SessionFailed."""
        if not self._starts:
            self._listen()
        self._starts += 1

    def _listen(self) -> None:
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _TIMESTAMP_NOTE, 1)
        try:
            self._bind(self._socket)
        except OSError as error:
            self.close()
            if error.errno == errno.EADDRINUSE:
                raise SessionFailed(
                    "another daemon serves this Kineto", "ask that for a trace, or end it"
                ) from error
            what = f"{self._folder} takes no socket ({error})"
            raise SessionFailed(what, "set PROFD_HOME to a local folder") from error
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def _bind(self, daemon: socket.socket) -> None:
        """Bind a socket to the daemon's name, even if a dead one left its own; raises OSError."""
        if self._folder is None:
            daemon.bind(ABSTRACT_NAME)
            return
        path = self._folder / DAEMON_NAME
        if _is_served(path):
            raise OSError(errno.EADDRINUSE, "somebody listens")
        path.unlink(missing_ok=True)
        daemon.bind(str(path))

    def ask(self, pid: int, configuration: Callable[[], str]) -> None:
        """Give a process a configuration, made then, when it asks next and is free for a trace."""
        self._wanted[pid] = configuration
        self.given.pop(pid, None)

    def withdraw(self, pid: int) -> None:
        """Ask nothing of a process any more, and forget what it has got."""
        self._wanted.pop(pid, None)
        self.given.pop(pid, None)

    def close(self) -> None:
        """Take one ``start`` back."""
        self._starts = max(self._starts - 1, 0)
        if self._socket is not None and not self._starts:
            with contextlib.suppress(RuntimeError):  # never started in a loop, or after its end
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        for _ in range(64):  # at one go: a flood does not block the rest of the session
            if self._socket is None:
                return
            try:
                datagram, notes, _, sender = self._socket.recvmsg(4096, _NOTES_BYTES)
            except OSError:  # nothing left to read
                return
            message = decode(datagram)
            if message is None or not _is_of(message.pid, notes):
                continue
            if isinstance(message, Inquiry):
                self._count(message)
            if _age_ns(notes) <= ANSWERED_WITHIN_NS:
                self._reply(message, sender)

    def _count(self, inquiry: Inquiry) -> None:
        if len(self.clients) >= _MOST_HEARD:  # each was a process that lived
            self.clients = {pid for pid in self.clients if processes.read_stat(pid) is not None}
        self.clients.add(inquiry.pid)
        if inquiry.is_free and inquiry.pid in self.given:
            self.given[inquiry.pid] += 1

    def _reply(self, message: Context | Inquiry, sender: str | bytes | None) -> None:
        if isinstance(message, Context):
            self._answer(sender, encode("ctxt", _COUNT.pack(1)))
            return
        order = self._wanted.get(message.pid) if message.is_free else None
        if self._answer(sender, encode("req", order().encode() if order else b"")) and order:
            del self._wanted[message.pid]
            self.given[message.pid] = 0

    def _answer(self, client: str | bytes | None, datagram: bytes) -> bool:
        """Send a datagram to a client in the folder; False if it is gone, or does not listen."""
        if self._socket is None or client is None or not self._is_client(client):
            return False
        try:
            self._socket.sendto(datagram, client)
        except OSError:
            return False
        return True

    def _is_client(self, address: str | bytes) -> bool:
        """Say whether an address is one that clients have."""
        if self._folder is None:
            return isinstance(address, bytes) and address.startswith(_ABSTRACT_CLIENT)
        return isinstance(address, str) and Path(address).parent == self._folder


Notes = Sequence[tuple[int, int, bytes]]
"""What the kernel noted on a datagram: the level, the kind and the bytes of each note."""


def _noted(notes: Notes, kind: int, form: struct.Struct) -> tuple[int, ...] | None:
    """Return the numbers in a note of the kernel; None if there is no whole one of its kind."""
    found = (note for level, one, note in notes if (level, one) == (socket.SOL_SOCKET, kind))
    return next((form.unpack_from(note) for note in found if len(note) >= form.size), None)


def _is_of(pid: int, notes: Notes) -> bool:
    """Say whether the user of a process, or root, sent a datagram, as the kernel noted on it."""
    sender = _noted(notes, _CREDENTIALS_NOTE, _CREDENTIALS)
    return sender is not None and sender[1] in (0, processes.owner_uid(pid))


def _age_ns(notes: Notes) -> int:
    """Return for how long a datagram has waited here, by the time that the kernel noted on it."""
    sent = _noted(notes, _TIMESTAMP_NOTE, _TIMESTAMP)
    return time.time_ns() - (sent[0] * SECOND_NS + sent[1]) if sent else 0


def _is_served(path: Path) -> bool:
    """Say whether somebody listens to a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
