"""The link between launcher and session: what comes through it, and that it never holds the launcher up."""

from __future__ import annotations

from collections.abc import Callable

from profd.daemon.supervise.link import (
    CHUNK_BYTES,
    LARGEST_BYTES,
    Message,
    ScriptExited,
    ScriptWrote,
    decode,
    make_link,
)


def test_messages_arrive_one_by_one() -> None:
    ours, theirs = make_link()
    ours.wrote(b"\0\xff")
    ours.wrote(b"x" * CHUNK_BYTES)
    ours.exited(0x0300)
    received = [decode(theirs.recv(LARGEST_BYTES)) for _ in range(3)]
    assert received == [ScriptWrote(b"\0\xff"), ScriptWrote(b"x" * CHUNK_BYTES), ScriptExited(0x0300)]
    ours.close()
    assert theirs.recv(LARGEST_BYTES) == b""
    theirs.close()


def test_output_that_a_slow_session_has_no_room_for_is_counted() -> None:
    ours, theirs = make_link()
    sent = 1000
    for _ in range(sent):
        ours.wrote(b"x" * CHUNK_BYTES)
    theirs.setblocking(False)
    received = drain(theirs.recv)
    ours.wrote(b"after")
    after = decode(theirs.recv(LARGEST_BYTES))
    assert 0 < len(received) < sent
    assert after == ScriptWrote(b"after", lost_bytes=(sent - len(received)) * CHUNK_BYTES)
    ours.close()
    theirs.close()


def test_session_that_is_gone_costs_nothing() -> None:
    ours, theirs = make_link()
    theirs.close()
    ours.wrote(b"x")
    ours.exited(0)
    ours.close()


def drain(receive: Callable[[int], bytes]) -> list[Message]:
    """Return the messages that are there."""
    received = []
    while True:
        try:
            received.append(decode(receive(LARGEST_BYTES)))
        except BlockingIOError:
            return received
