"""Makes run files of the nodes of a job, one rank on each, by clocks that differ."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import msgspec

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.records import Frame, Identity, Interval, Placement
from support.jobruns import FORWARD, LOAD
from support.synthetic import COMMAND, STARTED_NS, recording, run_started, write_records
from support.training_stacks import BACKWARD, LIBRARY, TRAIN

JOB = "10.0.0.1:29500"
AHEAD_NS = 1_700_000_003
"""By how much the clock of a node is ahead."""
JOINING = (
    Frame("<module>", TRAIN, 96),
    Frame("main", TRAIN, 80),
    Frame("DistributedDataParallel.__init__", LIBRARY + "torch/nn/parallel/distributed.py", 800),
)
SAMPLE_MS = 10
_LENGTH_S = 5

_Span = tuple[float, float, tuple[Frame, ...]]


class Job:
    """A job whose steps take about 93.7 ms; ``jitter_ms`` is by how much they differ.

    They are no multiple of the distance of samples: those would see each step at the same place.
    """

    def __init__(self, *, steps: int = 300, jitter_ms: float = 4.0, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.ends_ms = [1500.0]
        for _ in range(steps):
            self.ends_ms.append(self.ends_ms[-1] + max(93.7 + self.chance.gauss(0, jitter_ms), 30))

    def write(
        self,
        path: Path,
        rank: int,
        *,
        own_share: float = 0.5,
        ahead_ns: int = 0,
        joined: bool = True,
        counted: bool = True,
        sample_ms: int = SAMPLE_MS,
        wait: tuple[Frame, ...] = BACKWARD,
    ) -> Path:
        """Write the file of a rank that works ``own_share`` of each step and waits for the rest.

        ``joined``: it was recorded from its start; ``counted``: its loop counter was read; ``wait``
        is where it waits.
        """
        started_ns = STARTED_NS + ahead_ns
        started = msgspec.structs.replace(
            run_started(started_ns), id=f"run-{rank}", host=f"node{rank}"
        )
        me = Identity(4242, 1000)
        place = Placement(rank, 0, rank, 3, JOB)
        found: list[records.Record] = [
            records.ProcessSeen(me, None, COMMAND, "main", rank, None, "3.11.7", started_ns, place)
        ]
        nameless = (
            (me.pid, "", True, ((JOINING[:1], 100),)),
        )  # so is the main thread in the first recording
        found.append(recording(me, started_ns, nameless, duration_ns=100 * MILLISECOND_NS))
        spans = self._spans(own_share, joined, sample_ms, wait)
        found += self._recordings(me, started_ns, spans, sample_ms)
        if counted:
            found += self._counts(me, started_ns)
        found.append(
            records.RunEnded(
                started_ns + int(self.ends_ms[-1] * MILLISECOND_NS), "target-exited", 0
            )
        )
        return write_records(path, found, started)

    def _spans(
        self, own_share: float, joined: bool, sample_ms: int, wait: tuple[Frame, ...]
    ) -> list[_Span]:
        """Return (from, to, stack) in ms; a stack is seen from the first sample in it on."""
        borders: list[tuple[float, tuple[Frame, ...]]] = [(200.0, JOINING if joined else LOAD)]
        for before, after in itertools.pairwise(self.ends_ms):
            own_ms = (after - before) * own_share
            borders += [(before, LOAD), (before + 0.8 * own_ms, FORWARD), (before + own_ms, wait)]
        phase_ms = self.chance.uniform(0, sample_ms)
        seen: list[tuple[float, tuple[Frame, ...]]] = []
        for at_ms, stack in borders:
            seen_ms = -((phase_ms - at_ms) // sample_ms) * sample_ms + phase_ms
            if seen and seen[-1][0] == seen_ms:
                seen.pop()
            seen.append((seen_ms, stack))
        seen.append((self.ends_ms[-1], LOAD))
        return [
            (start, end, stack)
            for (start, stack), (end, _) in itertools.pairwise(seen)
            if end > start
        ]

    def _recordings(
        self, me: Identity, started_ns: int, spans: list[_Span], sample_ms: int
    ) -> list[records.Record]:
        found: list[records.Record] = []
        for first_ms in range(100, int(self.ends_ms[-1]) + 1, _LENGTH_S * 1000):
            inside = [span for span in spans if first_ms <= span[0] < first_ms + _LENGTH_S * 1000]
            stacks = list(dict.fromkeys(stack for _, _, stack in inside))
            rows = tuple(
                Interval(
                    started_ns + int(start * MILLISECOND_NS),
                    int(end * MILLISECOND_NS) - int(start * MILLISECOND_NS),
                    stacks.index(stack),
                    round((end - start) / sample_ms),
                )
                for start, end, stack in inside
            )
            start_ns = started_ns + first_ms * MILLISECOND_NS
            timeline = records.ThreadTimeline(me.pid, "MainThread", True, rows)
            found.append(
                records.RecordingTaken(
                    me, start_ns, start_ns + _LENGTH_S * SECOND_NS, 1000 // sample_ms, sum(row.samples for row in rows),
                    0, 0, MILLISECOND_NS, MILLISECOND_NS, tuple(stacks), (timeline,),
                )
            )  # fmt: skip
        return found

    def _counts(self, me: Identity, started_ns: int) -> list[records.Record]:
        """Return readings of the counter, each somewhere in a step."""
        found: list[records.Record] = []
        for step in range(5, len(self.ends_ms) - 1, 12):
            at_ms = self.chance.uniform(self.ends_ms[step], self.ends_ms[step + 1])
            point = records.Point("step_count", float(step), me)
            found.append(records.PointsTaken(started_ns + int(at_ms * MILLISECOND_NS), (point,)))
        return found


def write_folder(folder: Path) -> Path:
    """Write the files of two nodes of a job into a new folder, and return it."""
    folder.mkdir()
    job = Job(steps=120)
    for rank in range(2):
        job.write(folder / f"{rank}.profd", rank, own_share=0.9 if rank else 0.4)
    return folder


def write_three_nodes(folder: Path) -> Path:
    """Write the files of three nodes into a folder.

    The clock of the second is ahead, and its rank is late.
    """
    job = Job()
    job.write(folder / "a.profd", 2)
    job.write(folder / "b.profd", 1, own_share=0.9, ahead_ns=AHEAD_NS)
    job.write(folder / "c.profd", 0)
    return folder
