"""Tell which thread of a process leads.

The stacks of the leading thread say how a step's time is spent, unless somebody asks for others.

Usually that is the main thread. But web interfaces and servers train in a thread of their own,
while the main one polls or joins it; a main thread may end before others do; and a process that an
extension has forked may have none. Then another thread leads from there on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.frameworks.frames import means
from profd.daemon.store.records import (
    EventHappened,
    Identity,
    Record,
    RecordingTaken,
    ThreadTimeline,
)
from profd.daemon.tree import roles

_MOST_IDLE, _LEAST_BUSY = 0.02, 0.1
"""The most CPU share of a main thread that only polls; the least of a thread that replaces it."""
_MOST_THREADS = 64
CpuTicks = Callable[[int, int], int]


def cpu_ticks_of(pid: int, os_tid: int) -> int:
    """Return how long a thread has run so far, in clock ticks; 0 if it has ended."""
    stat = processes.read_stat(pid, os_tid)
    return stat.cpu_ticks if stat is not None else 0


class Leaders:
    """The leading thread of each process, if it is not the main one.

    ``put`` takes a note of each new one.
    """

    def __init__(self, put: Callable[[Record], object], cpu_ticks: CpuTicks = cpu_ticks_of) -> None:
        self._put, self._cpu_ticks = put, cpu_ticks
        self._ran: dict[Identity, tuple[int, dict[int, int]]] = {}
        """When a recording ended, and how long its threads had run by then."""
        self._leaders: dict[Identity, int | None] = {}
        """By OS thread id; None stands for the main thread, which trains."""

    def marked(self, recording: RecordingTaken, *, has_main_ended: bool = False) -> RecordingTaken:
        """Return a recording of a training process with its leading thread as the main one."""
        identity, before = recording.identity, self._leaders.get(recording.identity)
        leader = self._leader(recording, before, has_main_ended=has_main_ended)
        if leader is None:
            return recording
        self._leaders[identity] = None if leader.is_main else leader.os_tid
        if not leader.is_main and leader.os_tid != before:
            why = (
                "goes on after the main one" if has_main_ended else "works while the main one waits"
            )
            text = (
                f"thread {leader.name or leader.os_tid} of pid {identity.pid} {why}: it is shown "
                "in its place"
            )
            self._put(EventHappened(recording.start_ns, EventKind.NOTE, text, identity))
        marked = (msgspec.structs.replace(one, is_main=one is leader) for one in recording.threads)
        return msgspec.structs.replace(recording, threads=tuple(marked))

    def knows(self, identity: Identity) -> bool:
        """Return whether a process has trained: its last recording may come after its end."""
        return identity in self._leaders

    def _leader(
        self, recording: RecordingTaken, before: int | None, *, has_main_ended: bool
    ) -> ThreadTimeline | None:
        """Return the thread that leads; None if nothing tells, so that the main one does."""
        seen = [one for one in recording.threads if one.intervals]
        main = None if has_main_ended else next((one for one in seen if one.is_main), None)
        if main is not None and self._has_trained(recording, main):
            return main
        others = sorted(
            (one for one in seen if not one.is_main), key=lambda one: one.os_tid != before
        )
        if (trainer := next((one for one in others if _trains(recording, one)), None)) is not None:
            return trainer
        return self._leader_by_work(recording, main, others, before)

    def _leader_by_work(
        self,
        recording: RecordingTaken,
        main: ThreadTimeline | None,
        others: Sequence[ThreadTimeline],
        before: int | None,
    ) -> ThreadTimeline | None:
        """Return the thread that leads although no stack shows that it trains, if any does."""
        share = self._shares(recording)
        worker = _working(main, others, share, before)
        if worker is not None:
            return worker
        if main is None or _only_joins(recording, main):
            return max(
                others, key=lambda one: (one.os_tid == before, len(one.intervals)), default=None
            )
        # A thread that trains may evaluate or load for the length of a recording.
        leads = bool(others) and others[0].os_tid == before
        return others[0] if leads and not _works(share, main, others[0]) else None

    def _shares(self, recording: RecordingTaken) -> dict[int, float]:
        """Return for what share of the time since the last recording threads ran, if known."""
        identity, seen = recording.identity, [one for one in recording.threads if one.intervals]
        seen.sort(key=lambda one: (not one.is_main, -len(one.intervals)))
        before_ns, before = self._ran.get(identity, (0, {}))
        ran = {
            one.os_tid: self._cpu_ticks(identity.pid, one.os_tid) for one in seen[:_MOST_THREADS]
        }
        if any(ran.values()):  # else it has ended
            self._ran[identity] = recording.end_ns, ran
        ticks = max(recording.end_ns - before_ns, 1) * processes.CLOCK_TICKS / SECOND_NS
        return {tid: (now - before[tid]) / ticks for tid, now in ran.items() if tid in before}

    def forget(self, identity: Identity) -> None:
        """Forget how long the threads of a process ran; the process has ended."""
        self._ran.pop(identity, None)

    def _has_trained(self, recording: RecordingTaken, main: ThreadTimeline) -> bool:
        return self._leaders.get(recording.identity, 0) is None or _trains(recording, main)


def _only_joins(recording: RecordingTaken, main: ThreadTimeline) -> bool:
    """Return whether a thread only waited for another one to end."""
    leaves = {recording.stacks[one.stack][-1] for one in main.intervals}
    return all(means(leaf, "joins a thread") for leaf in leaves)


def _working(
    main: ThreadTimeline | None,
    others: Sequence[ThreadTimeline],
    share: dict[int, float],
    before: int | None,
) -> ThreadTimeline | None:
    """Return the thread that works most in place of a main one.

    The thread that led before comes first.
    """
    if main is None or share.get(main.os_tid, 1.0) > _MOST_IDLE:
        return None
    working = (one for one in others if share.get(one.os_tid, 0.0) >= _LEAST_BUSY)
    working = (one for one in working if _works(share, one, main))
    return max(working, key=lambda one: (one.os_tid == before, share[one.os_tid]), default=None)


def _works(share: dict[int, float], one: ThreadTimeline, other: ThreadTimeline) -> bool:
    """Return whether a thread ran at least ten times as long as another one."""
    return share.get(one.os_tid, 0.0) > 0 and share[one.os_tid] >= 10 * share.get(
        other.os_tid, math.inf
    )


def _trains(recording: RecordingTaken, thread: ThreadTimeline) -> bool:
    numbers = {one.stack for one in thread.intervals}
    return roles.is_training([recording.stacks[number] for number in numbers])
