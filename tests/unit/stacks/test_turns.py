"""Turns of the processes that share one recording."""

from __future__ import annotations

import asyncio

from support.waiting import settled

from profd.daemon.stacks.turns import Turns


class Queue:
    """Some that want one turn each, with what they have to show."""

    def __init__(self, due: dict[str, float]) -> None:
        self.due, self.order = due, list[str]()
        self.going = set[str]()
        """Those that go away once they are called."""
        self._turns, self._go_on = Turns(), asyncio.Event()
        self.tasks = {name: asyncio.ensure_future(self._take(name)) for name in due}

    async def _take(self, name: str) -> None:
        async with self._turns.taken(lambda: self.show(name)):
            self.order.append(name)
            await self._go_on.wait()

    def show(self, name: str) -> float:
        """Return what one has to show, as it is asked to choose the next."""
        if name in self.going:
            asyncio.get_running_loop().call_soon(self.tasks[name].cancel)
        return self.due[name]

    async def end(self, *leaving: str) -> list[str]:
        """Let all have their turns, but for those that leave the moment the first one ends."""
        self._go_on.set()
        for name in leaving:
            self.tasks[name].cancel()
        ended = await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert not [one for one in ended if isinstance(one, Exception)]
        return self.order


async def test_who_has_most_to_show_by_then_is_next() -> None:
    queue = Queue({"first": 0, "idle": 1, "busy": 5, "new": 3})
    await settled()
    assert queue.order == ["first"]
    queue.due["idle"] = 4
    assert await queue.end() == ["first", "busy", "idle", "new"]


async def test_who_leaves_the_queue_holds_up_nobody() -> None:
    queue = Queue({"first": 0, "busy": 5, "idle": 1})
    await settled()
    queue.tasks["busy"].cancel()
    assert await queue.end() == ["first", "idle"]


async def test_who_leaves_as_a_turn_ends_holds_up_nobody() -> None:
    queue = Queue({"first": 0, "busy": 5, "idle": 1})
    await settled()
    assert await queue.end("busy") == ["first", "idle"]


async def test_who_is_called_and_does_not_come_holds_up_nobody() -> None:
    queue = Queue({"first": 0, "busy": 5, "idle": 1})
    await settled()
    queue.going.add("busy")
    assert await queue.end() == ["first", "idle"]


async def test_who_had_a_turn_waits_for_the_others_that_want_one() -> None:
    turns, order = Turns(), list[str]()

    async def take(name: str, times: int) -> None:
        for _ in range(times):
            async with turns.taken(lambda: 0.0):
                order.append(name)
                await settled()

    await asyncio.gather(take("first", 3), take("second", 2))
    assert order == ["first", "second", "first", "second", "first"]
