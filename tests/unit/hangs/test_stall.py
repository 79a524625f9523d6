"""Two looks at a run that makes no progress: when each is taken, and of what."""

from __future__ import annotations

import pytest
from support.clocks import StoppedClock

from profd.daemon.clock import SECOND_NS
from profd.daemon.hangs.look import Look
from profd.daemon.hangs.stall import TwoLooks


class Stage:
    """A run that is stalled from the start, and the looks at it."""

    def __init__(self) -> None:
        self.clock, self.taken = StoppedClock(), list[tuple[float, bool]]()
        self.began_ns, self.can_be_read, self.takes_s = self.clock.now_ns(), True, 0.0
        self.looks = TwoLooks(self.clock, self._look)

    def stalled_s(self) -> float:
        return (self.clock.now_ns() - self.began_ns) / SECOND_NS

    async def _look(self, mains_only: bool) -> Look | None:
        self.taken.append((self.stalled_s(), mains_only))
        self.clock.advance(self.takes_s)
        return Look(self.clock.now_ns(), ()) if self.can_be_read else None

    async def found_in_s(self, seconds: int) -> list[float]:
        """Return when there were two looks, if one asks each second for one minute's timeout."""
        found = []
        for _ in range(seconds):
            self.clock.advance(1)
            if await self.looks.check(self.stalled_s(), 60.0):
                found.append(self.stalled_s())
        return found


async def test_the_second_look_comes_within_the_timeout_and_is_the_first_of_the_next_two() -> None:
    stage = Stage()
    assert await stage.found_in_s(90) == [57, 84]
    assert stage.taken == [(30, True), (57, False), (84, False)]


async def test_progress_makes_the_first_look_worthless() -> None:
    stage = Stage()
    await stage.found_in_s(50)
    stage.began_ns = stage.clock.now_ns()
    assert await stage.found_in_s(56) == []
    assert await stage.found_in_s(1) == [57]


async def test_a_first_look_that_came_late_has_its_time_until_the_second() -> None:
    stage = Stage()
    stage.clock.advance(55)
    assert await stage.found_in_s(29) == [83]


async def test_the_second_look_comes_earlier_if_looks_take_long() -> None:
    stage = Stage()
    stage.takes_s = 0.5
    assert await stage.found_in_s(60) == [54]


@pytest.mark.parametrize("stalled_s", [40, 100])
async def test_without_a_look_there_are_no_two(stalled_s: int) -> None:
    stage = Stage()
    stage.can_be_read = False
    assert await stage.found_in_s(stalled_s) == []
