"""The channel from a launched script to its session.

The relay sends the script's output, and the launcher sends how the script ended.

Each message is one packet, so it arrives whole or is lost. The end that relay and launcher share
never blocks: the script matters more than the copy of its output, and a session that is slow or
gone must not slow it.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque

import msgspec

CHUNK_BYTES = 32 * 1024  # the most output of the script in one message
LARGEST_BYTES = CHUNK_BYTES + 256  # any packet fits into this
BACKLOG_BYTES = 4 << 20  # the most output that waits for a slow session; a run keeps as much


class ScriptWrote(msgspec.Struct, frozen=True, tag="wrote"):
    """Bytes that the script wrote to its terminal.

    ``lost_bytes`` before them could not be passed on.
    """

    data: bytes
    lost_bytes: int = 0


class ScriptExited(msgspec.Struct, frozen=True, tag="exited"):
    """The script has ended; ``status`` is as of ``waitpid``."""

    status: int


Message = ScriptWrote | ScriptExited

_decoder = msgspec.msgpack.Decoder(Message)
_AT_ONCE = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


def is_ready(fd: int, events: int = select.POLLIN, patience_ms: int | None = 0) -> bool:
    """Wait for something to read (or for room, by ``POLLOUT``), or for the other end to be gone."""
    poller = select.poll()
    poller.register(fd, events)
    return bool(poller.poll(patience_ms))


def packet_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection of processes: what one sends the other reads whole."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def offer(end: socket.socket, packet: bytes) -> None:
    """Send a packet to another process of the launch; it is lost if that is busy or gone."""
    with contextlib.suppress(OSError):
        end.send(packet, _AT_ONCE)


class ScriptChannel:
    """The launcher's end of the channel; the relay has a copy."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._backlog: deque[ScriptWrote] = deque()
        self._backlog_bytes = 0
        self._lost_bytes = 0

    @property
    def has_backlog(self) -> bool:
        """Whether something waits for room; call ``flush`` when the descriptor is writable."""
        return bool(self._backlog)

    def wrote(self, data: bytes) -> None:
        """Pass on what the script wrote, at most ``CHUNK_BYTES``, as soon as there is room.

        It counts as lost if too much waits already.
        """
        if self._backlog_bytes + len(data) > BACKLOG_BYTES:
            self._lost_bytes += len(data)
            return
        last = self._backlog[-1] if self._backlog else None
        if last is not None and not self._lost_bytes and len(last.data) + len(data) <= CHUNK_BYTES:
            self._backlog[-1] = ScriptWrote(last.data + data, last.lost_bytes)
        else:
            self._backlog.append(ScriptWrote(data, self._lost_bytes))
            self._lost_bytes = 0
        self._backlog_bytes += len(data)
        self.flush()

    def wrote_all(self) -> None:
        if self._lost_bytes:
            self._backlog.append(ScriptWrote(b"", self._lost_bytes))
            self._lost_bytes = 0
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as there is room; drop it if the session is gone."""
        while self._backlog:
            try:
                self._send(self._backlog[0])
            except BlockingIOError:
                return
            except OSError:
                self._backlog.clear()
                self._backlog_bytes = 0
                return
            self._backlog_bytes -= len(self._backlog.popleft().data)

    def exited(self, status: int) -> None:
        """Pass on that the script has ended.

        This waits two seconds for room: there is no script left to hold up.
        """
        is_ready(self.fileno(), select.POLLOUT, 2_000)
        with contextlib.suppress(OSError):
            self._send(ScriptExited(status))

    def fileno(self) -> int:
        return self._end.fileno()

    def copy(self) -> ScriptChannel:
        return ScriptChannel(self._end.dup())

    def close(self) -> None:
        self._end.close()

    def _send(self, message: Message) -> None:
        self._end.send(msgspec.msgpack.encode(message), _AT_ONCE)


def make_channel() -> tuple[ScriptChannel, socket.socket]:
    """Return the launcher's end, and the session's.

    The session's end is a socket; each read of it gives one message (see ``decode``).
    """
    ours, theirs = packet_pair()
    return ScriptChannel(ours), theirs


def decode(packet: bytes) -> Message:
    """Return the message in a packet. An empty packet is no message: it ends the channel."""
    message: Message = _decoder.decode(packet)
    return message
