"""What the launcher tells its session: what the script wrote and how it ended.

One message is one packet, so that a message is whole or lost. The launcher's end never blocks: the script matters more
than the copy of its output, and a session that is slow or gone must not slow it. Knows nothing of either process.
"""

from __future__ import annotations

import contextlib
import select
import socket

import msgspec

CHUNK_BYTES = 32 * 1024
"""The most of the script's output in one message."""
LARGEST_BYTES = CHUNK_BYTES + 256
"""Room that any packet fits in."""
_END_TIMEOUT_MS = 2_000


class ScriptWrote(msgspec.Struct, frozen=True, tag="wrote"):
    """Bytes that the script wrote to its terminal; ``lost_bytes`` before them could not be passed on."""

    data: bytes
    lost_bytes: int = 0


class ScriptExited(msgspec.Struct, frozen=True, tag="exited"):
    """The script has ended; ``status`` is as of ``waitpid``."""

    status: int


Message = ScriptWrote | ScriptExited

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class ScriptLink:
    """The launcher's end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lost_bytes = 0

    def wrote(self, data: bytes) -> None:
        """Pass on what the script wrote, at most ``CHUNK_BYTES``; counted as lost where the session has no room."""
        if self._send(ScriptWrote(data, self._lost_bytes)):
            self._lost_bytes = 0
        else:
            self._lost_bytes += len(data)

    def exited(self, status: int) -> None:
        """Pass on that the script has ended. Waits two seconds for room: there is no script left to hold up."""
        poller = select.poll()
        poller.register(self._end, select.POLLOUT)
        poller.poll(_END_TIMEOUT_MS)
        self._send(ScriptExited(status))

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _send(self, message: Message) -> bool:
        """Send without waiting; False where the session has no room, or is gone."""
        with contextlib.suppress(OSError):
            self._end.send(_encoder.encode(message), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return True
        return False


def make_link() -> tuple[ScriptLink, socket.socket]:
    """Return the launcher's end, and the session's: a socket that gives one message (see ``decode``) a read."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return ScriptLink(ours), theirs


def decode(packet: bytes) -> Message:
    """Return the message in a packet; an empty packet is none: it says that the launcher is gone."""
    message: Message = _decoder.decode(packet)
    return message
