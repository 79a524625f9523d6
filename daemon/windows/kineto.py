"""The daemon's side of Kineto's on-demand protocol, which asks an unmodified torch for a trace.

libkineto, the profiler inside torch, speaks it if the environment of its process says so (see
``ondemand``): it is a client of the daemon "dynolog", over Unix datagram sockets that are files in
one folder. Only the user of the run may enter it.

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
ACTIVITIES = 2
_HEADER = struct.Struct("=Q32s")
_CONTEXT = struct.Struct("=iiq")
_REQUEST = struct.Struct("=iiq")
_COUNT = struct.Struct("=i")
_TIMESTAMP_NOTE = 35  # SO_TIMESTAMPNS, which the socket module does not name
# struct timespec, of the wall clock: when the kernel took the datagram
_TIMESTAMP = struct.Struct("@ll")
_NOTES_BYTES = socket.CMSG_SPACE(_TIMESTAMP.size)
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

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._wanted: dict[int, Callable[[], str]] = {}
        self.given: dict[int, int] = {}
        """The processes that got their order, and how often each said that it is at no trace.

        What each has said since it got its order counts.
        """
        self.clients: set[int] = set()
        """The processes that have ever asked for work."""

    def start(self) -> None:
        """Bind the socket, and answer from now on; raises SessionFailed."""
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._socket.setsockopt(socket.SOL_SOCKET, _TIMESTAMP_NOTE, 1)
        try:
            self._socket.bind(str(self._folder / DAEMON_NAME))
        except OSError as error:
            self.close()
            what = f"{self._folder} takes no socket ({error})"
            raise SessionFailed(what, "set PROFD_HOME to a local folder") from error
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def ask(self, pid: int, configuration: Callable[[], str]) -> None:
        """Give a process a configuration, made then, when it asks next and is free for a trace."""
        self._wanted[pid] = configuration
        self.given.pop(pid, None)

    def withdraw(self, pid: int) -> None:
        """Ask nothing of a process any more, and forget what it has got."""
        self._wanted.pop(pid, None)
        self.given.pop(pid, None)

    def close(self) -> None:
        if self._socket is not None:
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
            if message is None:
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

    def _reply(self, message: Context | Inquiry, sender: str | None) -> None:
        if isinstance(message, Context):
            self._answer(sender, encode("ctxt", _COUNT.pack(1)))
            return
        order = self._wanted.get(message.pid) if message.is_free else None
        if self._answer(sender, encode("req", order().encode() if order else b"")) and order:
            del self._wanted[message.pid]
            self.given[message.pid] = 0

    def _answer(self, client: str | None, datagram: bytes) -> bool:
        """Send a datagram to a client; False if it is gone, or does not listen."""
        if self._socket is None or client is None:
            return False
        try:
            self._socket.sendto(datagram, client)
        except OSError:
            return False
        return True


def _age_ns(notes: Sequence[tuple[int, int, bytes]]) -> int:
    """Return for how long a datagram has waited here, by the time that the kernel noted on it."""
    for _, _, note in notes:
        seconds, rest_ns = _TIMESTAMP.unpack(note)
        return time.time_ns() - (int(seconds) * SECOND_NS + int(rest_ns))
    return 0
