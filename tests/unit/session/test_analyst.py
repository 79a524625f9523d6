"""What a session takes from the process that looks for findings, and that its death hurts no
recording.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest
from support.clocks import StoppedClock
from support.waiting import eventually

from profd.daemon.clock import SECOND_NS
from profd.daemon.session import analyst
from profd.daemon.session.analyst import RESTS_S, AnalystProcess
from profd.daemon.store.records import AnalysisLost, EventHappened, FindingsTaken, Found, Record

SEEN = FindingsTaken(7, (Found("input-bound", "critical", "input-bound: waits", "{}"),))
WHOLE = FindingsTaken(9, SEEN.findings, "profd 0.1")

Start = Callable[..., AnalystProcess]


def says(*taken: FindingsTaken, then: str = "input()") -> list[str]:
    """Return the words of a process that writes these lines."""
    text = b"".join(msgspec.json.encode(one) + b"\n" for one in taken).decode()
    return [
        sys.executable,
        "-c",
        f"import sys; sys.stdout.write({text!r}); sys.stdout.flush(); {then}",
    ]


@pytest.fixture
def put() -> list[Record]:
    return []


@pytest.fixture
async def start(put: list[Record], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    monkeypatch.setattr(analyst, "UNWATCHED_S", 0)
    begun: list[AnalystProcess] = []

    def start(
        words: Sequence[str],
        rests_s: Sequence[float] = (0,),
        *,
        is_read: bool = False,
        grant: Callable[[float], bool] = lambda _: True,
    ) -> AnalystProcess:
        about = words, StoppedClock(), put.append, rests_s
        begun.append(AnalystProcess(*about, is_read=lambda: is_read, grant=grant))
        return begun[-1]

    yield start
    for one in begun:
        await one.close(0)


REPEATS = (
    f"print({msgspec.json.encode(SEEN).decode()!r}, flush=True) if sys.stdin.read(1) == "
    "'r' else None"
)


async def test_while_somebody_reads_what_is_found_each_look_asks_for_the_next(
    start: Start, put: list[Record]
) -> None:
    start(says(SEEN, then=f"{REPEATS}; {REPEATS}; input()"), is_read=True)
    await eventually(lambda: len(put) == 3, "three looks")


@pytest.mark.parametrize(("is_read", "times"), [(False, 4), (True, 0)])
async def test_what_nobody_reads_starts_once_the_budget_has_room(
    start: Start, put: list[Record], is_read: bool, times: int
) -> None:
    asked: list[float] = []

    def grant(cpu_s: float) -> bool:
        asked.append(cpu_s)
        return len(asked) == 4

    start(says(SEEN), is_read=is_read, grant=grant)
    await eventually(lambda: len(put) == 1, "a look")
    assert len(asked) == times


async def test_while_nobody_reads_it_the_next_look_waits_until_somebody_does(
    start: Start, put: list[Record]
) -> None:
    started = start(says(SEEN, then=f"{REPEATS}; sys.stdin.read(1)"))
    await eventually(lambda: len(put) == 1, "a look")
    started.ask()
    await eventually(lambda: len(put) == 2, "another look")
    await started.close(within_s=60)  # nothing was said but one letter, and the line at the end


async def test_at_the_end_the_whole_run_is_asked_for(start: Start, put: list[Record]) -> None:
    answers = (
        f"sys.stdin.read(1); sys.stdout.write({msgspec.json.encode(WHOLE).decode()!r} + chr(10))"
    )
    started = start(says(SEEN, then=answers))
    await eventually(lambda: put, "a look")
    await started.close(within_s=60)
    assert put == [SEEN, WHOLE]


async def test_one_that_is_slow_at_the_end_is_not_waited_for(
    start: Start, put: list[Record]
) -> None:
    started = start(says(SEEN, then="[input() for _ in range(9)]"))
    await eventually(lambda: put, "a look")
    await started.close(within_s=0.01)
    assert put == [SEEN]


async def test_a_long_run_is_waited_for_a_second_for_each_5000(
    start: Start, put: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = f"sys.stdin.read(1); print({msgspec.json.encode(WHOLE).decode()!r}, flush=True)"
    started = start(says(SEEN, then=answers))
    await eventually(lambda: put, "a look")
    monkeypatch.setattr(started, "_begun_ns", started.clock.now_ns() - 5000 * 60 * SECOND_NS)
    await started.close(within_s=1e-9)
    assert put == [SEEN, WHOLE]


async def test_a_run_that_ends_before_it_was_looked_at_waits_for_nothing(
    start: Start, put: list[Record]
) -> None:
    await start(says(WHOLE), rests_s=(1000,)).close(within_s=1000)
    assert put == []


@pytest.mark.parametrize(
    "words", [[sys.executable, "-c", "raise SystemExit(3)"], ["/does/not/exist"]]
)
async def test_one_that_dies_is_started_again_but_not_for_ever_and_that_is_said_once(
    start: Start, put: list[Record], words: list[str]
) -> None:
    assert RESTS_S[1:] == (60.0, 60.0)  # a minute later, twice
    start(words, rests_s=(0, 0, 0))
    await eventually(lambda: put.count(AnalysisLost(StoppedClock().at_ns)) == 3, "three ends")
    (said,) = [one for one in put if isinstance(one, EventHappened)]
    assert said.text == "nothing looks for findings at the moment: the process that does has ended"


@pytest.mark.parametrize("line", ["'what?'", "'{}'", "'x' * (5 << 20)"])
async def test_one_that_talks_nonsense_is_ended(start: Start, put: list[Record], line: str) -> None:
    start([sys.executable, "-c", f"print({line}); input()"])
    await eventually(lambda: AnalysisLost(StoppedClock().at_ns) in put, "its end")


async def test_one_that_dies_at_the_end_is_not_said_and_not_waited_for(
    start: Start, put: list[Record]
) -> None:
    started = start(says(SEEN, then="sys.stdin.read(1); raise SystemExit(3)"), rests_s=(0, 1000))
    await eventually(lambda: put, "a look")
    await started.close(within_s=1000)
    assert put == [SEEN]
