"""What is read beside the stacks, with a writer and a clock in the test's hands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clocks import StoppedClock
from support.synthetic import identity_of, run_started
from support.training_stacks import describe

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.controlgroups import Group
from profd.daemon.machine import cgroup
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.session.budget import CostMeter, Governor, Spending
from profd.daemon.session.readings import Readings
from profd.daemon.store.reader import RunReader
from profd.daemon.store.writer import RunWriter
from profd.daemon.tree.tree import Member


class Desk:
    """Readings of this process into a real run file; profd itself costs ``cores``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cores = 0.01
        self.clock = StoppedClock()
        self.governor = Governor(100, 0.1)
        self.writer = RunWriter(path, run_started(), describe)
        self.readings = Readings(self.clock, self.governor, self.writer.put)

    async def take(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(1)
            member = Member(identity_of(), None, (), "main", None, None, "3.11", 1)
            await self.readings.take({member.identity: member}, {})

    def events(self) -> list[tuple[str, str]]:
        self.writer.close()
        with RunReader(self.path) as reader:
            # On a busy machine a thread's reading takes longer than ten seconds of the clock, which
            # only tests move.
            return [
                (event.kind, event.text)
                for event in reader.events()
                if "does not answer" not in event.text
            ]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(tmp_path / "run.profd")
    monkeypatch.setattr(CostMeter, "take", lambda meter: Spending(made.cores, 1.0))
    yield made
    made.writer.close()


async def test_processes_host_and_own_cost_are_written(desk: Desk) -> None:
    await desk.take(2)
    assert desk.events() == []
    with RunReader(desk.path) as reader:
        names = {row.name for row in reader.list_series()}
    assert {
        "cpu_cores",
        "rss_bytes",
        "host_memory_used_bytes",
        "profd_cpu_cores",
        "profd_rss_bytes",
    } <= names


async def test_free_memory_is_given_back_twice_a_minute(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[int]()
    monkeypatch.setattr(
        processes, "trim_heap", lambda: given.append(desk.clock.now_ns() // SECOND_NS)
    )
    begun_s = desk.clock.now_ns() // SECOND_NS
    await desk.take(65)
    assert [at_s - begun_s for at_s in given] == [30, 60]


HOUR_NS = 3_600_500_000_000


@pytest.mark.parametrize(
    ("jump_ns", "slept_ns", "said"),
    [
        (
            HOUR_NS,
            HOUR_NS,
            "the machine was suspended for 3600.500 s, which the run's times leave out",
        ),
        (-HOUR_NS, 0, "the wall clock jumped by -3600.500 s"),
    ],
    ids=["suspended", "set"],
)
async def test_a_suspended_machine_is_said_and_is_no_jump(
    desk: Desk, jump_ns: int, slept_ns: int, said: str
) -> None:
    await desk.take()
    desk.clock.jump_ns, desk.clock.slept_ns = jump_ns, slept_ns
    await desk.take(2)
    desk.clock.jump_ns += 900_000_000  # slewed, not set; or a nap
    desk.clock.slept_ns += 900_000_000 if slept_ns else 0
    await desk.take()
    assert desk.events() == [("wall-jump", said)]


async def test_a_change_of_the_rate_is_said(desk: Desk) -> None:
    desk.cores = 0.2
    await desk.take(30)
    assert desk.governor.rate_hz < 100
    desk.cores = 0.01
    await desk.take(100)
    assert desk.governor.rate_hz == 100
    events = desk.events()
    assert {kind for kind, text in events if "samples at" in text} == {"rate"}
    assert events[0][1].endswith(" Hz instead of 100 Hz, to stay within its budget")
    assert events[-1][1].startswith("profd samples at 100 Hz instead of ")
    assert events[-1][1].endswith(", as there is room again")


@pytest.mark.parametrize(
    ("rates_hz", "said_hz"),
    [((90.0, 80.0, 90.0, 70.0), 80), ((20.0,), 20)],
    ids=["small changes", "low from the start"],
)
async def test_a_rate_far_from_that_last_said_is_said(
    desk: Desk, rates_hz: tuple[float, ...], said_hz: int
) -> None:
    for rate_hz in rates_hz:
        desk.governor.mean_hz = rate_hz
        await desk.take()
    assert desk.events() == [
        ("rate", f"profd samples at {said_hz} Hz instead of 100 Hz, to stay within its budget")
    ]


async def test_a_budget_that_cannot_be_kept_is_said_once(desk: Desk) -> None:
    desk.cores = 0.2
    await desk.take(100)
    assert desk.governor.rate_hz == RECORDING.lowest_rate_hz
    said = [text for _, text in desk.events() if "more than its budget" in text]
    assert said == ["profd costs more than its budget even at 3 Hz, which is its lowest rate"]


async def test_kills_by_the_kernel_are_read_at_the_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = [2]
    monkeypatch.setattr(
        cgroup, "groups_of", lambda pid, controller, mounted: [Group(2, "/none", "/job")]
    )
    monkeypatch.setattr(cgroup, "oom_kills_of", lambda group: kills[0])
    await desk.take()
    kills[0] = 3
    await desk.readings.close()
    assert desk.events() == [
        ("oom", "out of memory: the kernel ended a process of the control group /job")
    ]
