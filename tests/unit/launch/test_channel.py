"""The channel between a script and its session: what comes through it, and that it holds nobody up."""

from __future__ import annotations

from collections.abc import Callable

from profd.daemon.launch.channel import (
    BACKLOG_BYTES,
    CHUNK_BYTES,
    LARGEST_BYTES,
    Message,
    ScriptChannel,
    ScriptExited,
    ScriptWrote,
    decode,
    make_channel,
)


def test_messages_arrive_one_by_one() -> None:
    ours, theirs = make_channel()
    ours.wrote(b"\0\xff")
    ours.wrote(b"x" * CHUNK_BYTES)
    ours.exited(0x0300)
    received = [decode(theirs.recv(LARGEST_BYTES)) for _ in range(3)]
    assert received == [ScriptWrote(b"\0\xff"), ScriptWrote(b"x" * CHUNK_BYTES), ScriptExited(0x0300)]
    ours.close()
    assert theirs.recv(LARGEST_BYTES) == b""
    theirs.close()


def test_output_waits_for_a_slow_session_up_to_a_bound_and_the_rest_is_counted() -> None:
    ours, theirs = make_channel()
    sent = 1000
    for _ in range(sent):
        ours.wrote(b"x" * CHUNK_BYTES)
    assert ours.has_backlog
    theirs.setblocking(False)
    received = drain(theirs.recv, ours)
    assert BACKLOG_BYTES // CHUNK_BYTES <= len(received) < sent
    assert not ours.has_backlog
    ours.wrote(b"after")
    after = decode(theirs.recv(LARGEST_BYTES))
    assert after == ScriptWrote(b"after", lost_bytes=(sent - len(received)) * CHUNK_BYTES)
    ours.close()
    theirs.close()


def test_what_waits_goes_in_few_packets() -> None:
    ours, theirs = make_channel()
    while not ours.has_backlog:
        ours.wrote(b"x" * CHUNK_BYTES)
    for _ in range(CHUNK_BYTES):
        ours.wrote(b"y")
    theirs.setblocking(False)
    received = drain(theirs.recv, ours)
    assert sum(isinstance(message, ScriptWrote) and b"y" in message.data for message in received) == 1
    ours.close()
    theirs.close()


def test_session_that_is_gone_costs_nothing() -> None:
    ours, theirs = make_channel()
    theirs.close()
    ours.wrote(b"x")
    assert not ours.has_backlog
    ours.exited(0)
    ours.close()


def drain(receive: Callable[[int], bytes], channel: ScriptChannel) -> list[Message]:
    """Return the messages that are there, and those that wait."""
    received = []
    while True:
        try:
            received.append(decode(receive(LARGEST_BYTES)))
        except BlockingIOError:
            if not channel.has_backlog:
                return received
            channel.flush()
