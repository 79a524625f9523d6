"""The channel between a script and its session: what comes through it, and that it holds nobody up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable

import pytest
from support.waiting import eventually

from profd.daemon.launch.channel import (
    BACKLOG_BYTES,
    CHUNK_BYTES,
    LARGEST_BYTES,
    Message,
    ScriptChannel,
    ScriptWrote,
    decode,
    make_channel,
)
from profd.daemon.launch.channelreader import ScriptChannelReader


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
    assert (
        sum(isinstance(message, ScriptWrote) and b"y" in message.data for message in received) == 1
    )
    theirs.close()
    ours.wrote(b"x")  # a session that is gone costs nothing
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


class Ends:
    """The launcher's end of the channel, and a reader on its other side with what came out of it."""

    def __init__(self) -> None:
        self.output, self.statuses = b"", list[int]()
        self.channel, session_end = make_channel()
        session_end.set_inheritable(True)
        self.channel_fd = session_end.detach()
        self.reader = ScriptChannelReader(self.channel_fd, self._take_output, self.statuses.append)

    def _take_output(self, data: bytes) -> None:
        self.output += data

    async def hear(self, output: bytes) -> None:
        await eventually(lambda: len(self.output) >= len(output), "the output")
        assert self.output == output


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    made = Ends()
    yield made
    made.reader.close()
    made.channel.close()


async def test_output_and_status_come_in_order(ends: Ends) -> None:
    ends.channel.wrote(b"epoch 1\r\n")
    ends.channel.wrote(b"epoch 2\r\n")
    ends.channel.exited(3 << 8)
    await eventually(lambda: ends.statuses, "the status")
    assert (ends.output, ends.statuses) == (b"epoch 1\r\nepoch 2\r\n", [3 << 8])


@pytest.mark.parametrize("after", [b"", b"after"])
async def test_lost_output_is_said_in_its_place_also_where_nothing_comes_after_it(
    ends: Ends, after: bytes
) -> None:
    ends.channel._lost_bytes = 70
    if after:
        ends.channel.wrote(after)
    else:
        ends.channel.wrote_all()
    await ends.hear(b"\r\n[70 bytes of output were not kept]\r\n" + after)


async def test_it_is_open_while_anyone_may_tell_more(ends: Ends) -> None:
    relay = ends.channel.copy()
    ends.channel.close()
    relay.wrote(b"last words")
    await ends.hear(b"last words")
    assert ends.reader.is_open
    relay.close()
    await eventually(lambda: not ends.reader.is_open, "the end")


async def test_a_broken_message_is_passed_over(ends: Ends) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: ends.statuses.append(-1))
    ends.channel._end.send(b"\xc1garbage")
    ends.channel._end.send(b"\x81")
    ends.channel.wrote(b"whole")
    await ends.hear(b"whole")
    assert ends.statuses == []


async def test_no_child_of_the_session_inherits_what_it_was_given(ends: Ends) -> None:
    assert not os.get_inheritable(ends.channel_fd)
