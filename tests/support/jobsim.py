"""A job of many ranks on GPUs under the watch for hangs: time, stacks and readings are made up, RAS
is the stand-in.

The waits are those of NCCL: a rank that waits for others runs, at a core of CPU time, and its GPU
shows 100 %. The watch is profd's own, and asks over TCP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from profd.daemon.collectives.client import Address
from profd.daemon.collectives.ras import Ras
from profd.daemon.hangs.job import JobInquiry
from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.waits import Wait
from profd.daemon.hangs.watch import HangWatch
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    HangFound,
    Identity,
    Placement,
    Point,
    PointsTaken,
    ProcessEnded,
    Record,
    RecordingTaken,
)
from profd.daemon.tree.tree import Member
from support.clocks import StoppedClock
from support.ras import FakeCommunicator, RasServer, job_of
from support.synthetic import recording

TRAIN = "/srv/train.py"
SITE = "/usr/lib/python3.11/site-packages"
ROOT = Frame("<module>", TRAIN, 90)
STEP = Frame("train_step", TRAIN, 41)
FORWARD = (ROOT, STEP, Frame("Linear.forward", f"{SITE}/torch/nn/modules/linear.py", 125))
ITEM = (ROOT, Frame("train_step", TRAIN, 47))
"""Asks for the loss: waits in C, in the user's line."""
BARRIER = (
    ROOT,
    Frame("epoch_end", TRAIN, 60),
    Frame("barrier", f"{SITE}/torch/distributed/distributed_c10d.py", 4800),
)
SAVE = (ROOT, Frame("save", TRAIN, 55), Frame("_save", f"{SITE}/torch/serialization.py", 966))
DEBUGGER = (
    ROOT,
    Frame("train_step", TRAIN, 43),
    Frame("Pdb.interaction", "/usr/lib/python3.11/pdb.py", 360),
)
QUEUE = (
    ROOT,
    Frame("<module>", TRAIN, 30),
    Frame(
        "_MultiProcessingDataLoaderIter._get_data", f"{SITE}/torch/utils/data/dataloader.py", 1284
    ),
)
COMPILE = tuple(
    (ROOT, STEP, Frame(f"pass_{number}", f"{SITE}/torch/_inductor/scheduler.py", 100 + number))
    for number in range(50)
)
EVALUATE = tuple((ROOT, Frame("evaluate", TRAIN, 70 + number)) for number in range(8))

INIT = (
    ROOT,
    Frame("setup", TRAIN, 12),
    Frame("init_process_group", f"{SITE}/torch/distributed/distributed_c10d.py", 1700),
)

RUNS, LOCK = Wait("running", "it is running"), Wait("lock", "a lock (futex 0x7f)")


class Named(NamedTuple):
    """A process, and its rank."""

    rank: int | None
    pid: int


@dataclass
class Rank:
    """What one rank does at this moment."""

    member: Member
    stack: tuple[Frame, ...] = FORWARD
    wait: Wait = RUNS
    cores: float = 1.0
    bytes_per_s: int = 0
    is_alive: bool = True

    def do(
        self, stack: tuple[Frame, ...], wait: Wait = RUNS, cores: float = 1.0, bytes_per_s: int = 0
    ) -> None:
        self.stack, self.wait, self.cores, self.bytes_per_s = stack, wait, cores, bytes_per_s

    def wait_for_others(self) -> None:
        """Wait for the GPU, and so for the other ranks, as NCCL does."""
        self.do(ITEM)


@dataclass
class JobSim:
    """A job; ``steps_known`` where its loop counter can be read.

    In each second it does what the test says.
    """

    size: int
    steps_known: bool = True
    after_s: float = 30.0
    version: str = "2.30.7"
    put: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = StoppedClock()
        self.world: FakeCommunicator = job_of(self.size)
        self.ranks: list[Rank] = []
        for rank in range(self.size):
            place = Placement(rank, rank, 0, self.size, "job")
            identity = Identity(1000 + rank, 1)
            self.ranks.append(
                Rank(
                    Member(
                        identity, None, ("python", TRAIN), "main", rank, None, "3.11.7", 1, place
                    )
                )
            )
        self.steps, self.gpu = 0, 1.0
        self.server = RasServer([self.world], self.version)
        self._cpu_s = dict.fromkeys(range(self.size), 0.0)
        self._bytes = 0.0
        self._second = 0
        inquiry = JobInquiry(self.clock, self.put.append, find=self._find)
        self.watch = HangWatch(
            self.after_s,
            self.clock,
            self.members,
            self.put.append,
            look=self._look,
            ask=inquiry.ask,
        )

    def __enter__(self) -> JobSim:
        self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    def members(self) -> list[Member]:
        return [rank.member for rank in self.ranks if rank.is_alive]

    def train(self, steps_per_s: int = 2) -> None:
        for _ in range(steps_per_s):
            self.world.launch("AllReduce")
            self.steps += 1
        for number, rank in enumerate(self.ranks):
            rank.do(FORWARD if (self._second + number) % 2 else ITEM)

    def kill(self, number: int) -> None:
        """End a rank by SIGKILL; RAS finds that out."""
        rank = self.ranks[number]
        rank.is_alive = False
        self.watch.take(ProcessEnded(rank.member.identity, self.clock.now_ns(), None, 9))
        self.world.ranks[number].answers = False
        self.world.ranks[number].is_dead = True

    def begin_anew(self, rank: Rank, identity: Identity) -> None:
        """Replace the process of a rank by another."""
        self.watch.take(ProcessEnded(rank.member.identity, self.clock.now_ns(), 1, None))
        rank.member = msgspec.structs.replace(rank.member, identity=identity)

    async def pass_s(self, seconds: int, each: Callable[[int], object] = lambda _: None) -> None:
        """Let seconds go by; ``each`` says what the ranks do in each."""
        for second in range(seconds):
            self._second += 1
            each(second)
            begun_ns = self.clock.now_ns()
            self.clock.advance(1)
            self.watch.take(PointsTaken(self.clock.now_ns(), tuple(self._points())))
            for number, rank in enumerate(self.ranks):
                if rank.is_alive:
                    self._cpu_s[number] += rank.cores
                    self._bytes += rank.bytes_per_s
                    self.watch.take(_recording(rank, begun_ns))
            await self.watch.check()

    async def settle(self) -> None:
        """Train for so long that RAS may be asked, though no step is seen.

        What happens meanwhile is left out.
        """
        await self.pass_s(1, lambda _: self.train())
        self.clock.advance(600)
        await self.pass_s(30, lambda _: self.train())

    def hangs(self) -> list[HangFound]:
        return [record for record in self.put if isinstance(record, HangFound)]

    def notes(self) -> list[str]:
        return [
            record.text
            for record in self.put
            if isinstance(record, EventHappened) and record.kind == "note"
        ]

    def _points(self) -> Iterator[Point]:
        for rank in self.ranks:
            if rank.is_alive:
                yield Point("cpu_cores", rank.cores, rank.member.identity)
                if self.steps_known:
                    yield Point("step_count", self.steps, rank.member.identity)
        for number in range(min(self.size, 8)):
            yield Point("gpu_utilization_share", self.gpu, device=f"GPU {number}")

    def _look(self, members: object, at_ns: int, *, mains_only: bool) -> Look:
        alive = [(number, rank) for number, rank in enumerate(self.ranks) if rank.is_alive]
        standing = tuple(
            StackState(rank.member, "MainThread", True, rank.stack, rank.wait) for _, rank in alive
        )
        cpu_s: dict[int | None, float] = {number: self._cpu_s[number] for number, _ in alive}
        return Look(at_ns, standing, int(self._bytes), cpu_s=cpu_s)

    def _find(self, pids: tuple[int, ...]) -> Ras:
        return Ras(Address("127.0.0.1", self.server.port), {pid: pid for pid in pids})


def _recording(rank: Rank, begun_ns: int) -> RecordingTaken:
    identity = rank.member.identity
    return recording(
        identity, begun_ns, ((identity.pid, "MainThread", True, ((rank.stack, 1000),)),)
    )
