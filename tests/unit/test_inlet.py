"""What comes from a launched script: over a real socket pair, and from a real pseudo-terminal once that is gone."""

from __future__ import annotations

import asyncio
import os
import tty
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from profd.daemon.supervise.inlet import ScriptInlet
from profd.daemon.supervise.link import ScriptLink, make_link

DEADLINE_S = 30.0


@dataclass
class Heard:
    """What came out of an inlet."""

    output: bytes = b""
    statuses: list[int] = field(default_factory=list)

    def take_output(self, data: bytes) -> None:
        self.output += data

    def take_status(self, status: int) -> None:
        self.statuses.append(status)

    async def until(self, is_enough: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not is_enough():
                await asyncio.sleep(0)

        await asyncio.wait_for(wait(), DEADLINE_S)


@dataclass
class Ends:
    """The launcher's end of the link, both ends of a pseudo-terminal, and an inlet on their other sides."""

    link: ScriptLink
    link_fd: int
    master: int
    slave: int
    heard: Heard
    inlet: ScriptInlet

    async def hear(self, output: bytes) -> None:
        await self.heard.until(lambda: len(self.heard.output) >= len(output))
        assert self.heard.output == output


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    master, slave = os.openpty()
    tty.setraw(slave)
    link, session_end = make_link()
    session_end.set_inheritable(True)
    os.set_inheritable(master, True)
    heard = Heard()
    link_fd = session_end.detach()
    inlet = ScriptInlet(link_fd, master, heard.take_output, heard.take_status)
    made = Ends(link, link_fd, master, slave, heard, inlet)
    yield made
    inlet.close()
    link.close()
    os.close(master)
    if made.slave >= 0:
        os.close(made.slave)


async def test_output_and_status_come_in_order(ends: Ends) -> None:
    ends.link.wrote(b"epoch 1\r\n")
    ends.link.wrote(b"epoch 2\r\n")
    ends.link.exited(3 << 8)
    await ends.heard.until(lambda: bool(ends.heard.statuses))
    assert (ends.heard.output, ends.heard.statuses) == (b"epoch 1\r\nepoch 2\r\n", [3 << 8])


async def test_lost_output_is_said_in_its_place(ends: Ends) -> None:
    ends.link._lost_bytes = 70
    ends.link.wrote(b"after")
    await ends.hear(b"\r\n[70 bytes of output were not kept]\r\nafter")


async def test_terminal_is_the_launchers_while_it_lives(ends: Ends) -> None:
    os.write(ends.slave, b"for the launcher")
    ends.link.wrote(b"copied")
    await ends.hear(b"copied")
    assert os.read(ends.master, 100) == b"for the launcher"


async def test_terminal_is_drained_once_the_launcher_is_gone(ends: Ends) -> None:
    ends.link.wrote(b"copied ")
    ends.link.close()
    os.write(ends.slave, b"drained")
    await ends.hear(b"copied drained")


async def test_drained_terminal_that_ends_is_left_alone(ends: Ends) -> None:
    ends.link.close()
    os.write(ends.slave, b"last")
    await ends.hear(b"last")
    os.close(ends.slave)
    ends.slave = -1
    await ends.heard.until(lambda: not asyncio.get_running_loop().remove_reader(ends.master))


async def test_a_broken_message_is_passed_over(ends: Ends) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: ends.heard.statuses.append(-1))
    ends.link._end.send(b"\xc1garbage")
    ends.link._end.send(b"\x81")
    ends.link.wrote(b"whole")
    await ends.hear(b"whole")
    assert ends.heard.statuses == []


async def test_closing_twice_and_after_the_launcher_is_harmless(ends: Ends) -> None:
    ends.link.close()
    ends.inlet.close()
    ends.inlet.close()


async def test_no_child_of_the_session_inherits_what_it_was_given(ends: Ends) -> None:
    assert not os.get_inheritable(ends.link_fd)
    assert not os.get_inheritable(ends.master)


async def test_without_a_link_there_is_nothing_to_read() -> None:
    heard = Heard()
    ScriptInlet(None, None, heard.take_output, heard.take_status).close()
    assert heard == Heard()
