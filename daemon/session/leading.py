"""Tell which thread of a process leads: at each moment, the one that trained last.

The stacks of the leading thread say how a step's time is spent, unless somebody asks for others.
This is the one answer: recordings mark it, and steps, counters and looks for hangs go by it.

Usually that is the main thread. But web interfaces and servers train in a thread of their own,
while the main one polls or joins it; a pool trains each epoch in another thread; a main thread may
end before others do; and a process that an extension has forked may have none.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.frameworks.frames import means
from profd.daemon.stacks.source import own_frames
from profd.daemon.store.records import (
    EventHappened,
    Identity,
    Interval,
    Put,
    RecordingTaken,
    Stack,
    ThreadId,
    ThreadTimeline,
)
from profd.daemon.store.stepfunction import IntervalSet, samples_inside
from profd.daemon.timerange import EVER

_MOST_IDLE, _LEAST_BUSY = 0.02, 0.1
"""The most CPU share of a main thread that only polls; the least of a thread that replaces it."""
_MOST_THREADS = 64
CpuTicks = Callable[[int, int], int]


def cpu_ticks_of(pid: int, os_tid: int) -> int:
    """Return how long a thread has run so far, in clock ticks; 0 if it has ended."""
    stat = processes.read_stat(pid, os_tid)
    return stat.cpu_ticks if stat is not None else 0


_NAME_AND_FILE = itemgetter(0, 1)
Turn = tuple[int, ThreadTimeline]
"""From when on a thread leads."""


class Leaders:
    """The leading thread of each process; ``put`` takes a note if it is not the main one."""

    def __init__(self, put: Put, cpu_ticks: CpuTicks = cpu_ticks_of) -> None:
        self._put = put
        self._cpu_ticks = cpu_ticks
        self._ran: dict[Identity, tuple[int, dict[int, int]]] = {}
        """When a recording ended, and how long its threads had run by then."""
        self._leaders: dict[Identity, ThreadId | None] = {}
        """None stands for the main thread, which trains."""
        self._functions: defaultdict[Identity, set[tuple[str, str]]] = defaultdict(set)
        """The user's functions that train, by name and file."""

    def marked(self, recording: RecordingTaken, *, has_main_ended: bool = False) -> RecordingTaken:
        """Return a recording of a training process with its leading thread as the main one.

        If the training moves to another thread, each of them is the main one for its part, and has
        a second timeline for the rest.
        """
        identity, seen = recording.identity, [one for one in recording.threads if one.intervals]
        main = None if has_main_ended else next((one for one in seen if one.is_main), None)
        if seen == [main] and self._leaders.get(identity, 0) is None:
            return recording
        turns = self._turns(recording, seen, main)
        if not turns:
            return recording
        last, before = turns[-1][1], self.leader(identity)
        self._leaders[identity] = None if last is main else ThreadId(last.os_tid, last.ident)
        if last is not main and before is None:
            name, does = last.name or last.os_tid, "works for" if main else "goes on after"
            text = (
                f"thread {name} of pid {identity.pid} {does} the main one: it is shown in its place"
            )
            self._put(EventHappened(recording.start_ns, EventKind.NOTE, text, identity))
        is_as_it_is = len(turns) == 1 and last is main
        return recording if is_as_it_is else _with_leaders(recording, turns)

    def leader(self, identity: Identity) -> ThreadId | None:
        """Return the thread that led a process last; None if that was the main one."""
        return self._leaders.get(identity)

    def knows(self, identity: Identity) -> bool:
        """Return whether a process has trained: its last recording may come after its end."""
        return identity in self._leaders

    def forget(self, identity: Identity) -> None:
        """Forget the threads of a process that has ended, but not that it trained."""
        self._ran.pop(identity, None)
        self._functions.pop(identity, None)

    def _turns(
        self, recording: RecordingTaken, seen: Sequence[ThreadTimeline], main: ThreadTimeline | None
    ) -> list[Turn]:
        """Return which threads lead, in order of time; none if nothing tells, so that it is main.

        A thread that trains leads from then on, unless the one before it is at its training still:
        in a function of the user's that trains.
        """
        known, functions = self.leader(recording.identity), self._functions[recording.identity]
        leader = next((one for one in seen if known and one.os_tid == known.os_tid), main)

        def trains(one: ThreadTimeline) -> bool:
            numbers = dict.fromkeys(each.stack for each in one.intervals)
            return any(_trains(recording.stacks[number], functions) for number in numbers)

        # Mostly nobody else trains: what the others do is little, and the leader shows it soon.
        if not any(trains(one) for one in seen if one is not leader):
            if leader is None or not trains(leader):
                leader = self._leader_by_work(recording, seen, main, leader)
            return [(0, leader)] if leader else []
        return _in_order(_at_training(recording, seen, functions), leader)

    def _leader_by_work(
        self,
        recording: RecordingTaken,
        seen: Sequence[ThreadTimeline],
        main: ThreadTimeline | None,
        before: ThreadTimeline | None,
    ) -> ThreadTimeline | None:
        """Return the thread that leads although no stack shows that it trains, if any does."""
        if main is not None and self._leaders.get(recording.identity, 0) is None:
            return main
        share = self._shares(recording, seen)
        other = max(
            (one for one in seen if not one.is_main),
            key=lambda one: (one is before, share.get(one.os_tid, 0.0), len(one.intervals)),
            default=None,
        )
        if other is None or main is None or _only_joins(recording, main):
            return other
        own, others = share.get(main.os_tid, 1.0), share.get(other.os_tid, 0.0)
        is_at_work = own <= _MOST_IDLE and others >= max(_LEAST_BUSY, 10 * own)
        # A thread that trains may evaluate or load for the length of a recording.
        waits = other is before and not own >= 10 * others > 0
        return other if is_at_work or waits else None

    def _shares(
        self, recording: RecordingTaken, seen: Sequence[ThreadTimeline]
    ) -> dict[int, float]:
        """Return for what share of the time since the last recording threads ran, if known."""
        identity = recording.identity
        first = sorted(seen, key=lambda one: (not one.is_main, -len(one.intervals)))
        before_ns, before = self._ran.get(identity, (0, {}))
        ran = {
            one.os_tid: self._cpu_ticks(identity.pid, one.os_tid) for one in first[:_MOST_THREADS]
        }
        if any(ran.values()):  # else it has ended
            self._ran[identity] = recording.end_ns, ran
        ticks = max(recording.end_ns - before_ns, 1) * processes.CLOCK_TICKS / SECOND_NS
        return {tid: (now - before[tid]) / ticks for tid, now in ran.items() if tid in before}


def _only_joins(recording: RecordingTaken, main: ThreadTimeline) -> bool:
    """Return whether a thread only waited for another one to end."""
    leaves = {recording.stacks[one.stack][-1] for one in main.intervals}
    return all(means(leaf, "joins a thread") for leaf in leaves)


def _trains(stack: Stack, functions: set[tuple[str, str]]) -> bool:
    """Return whether a stack is in a function of the user's that trains.

    The innermost one around a backward pass is added to the ``functions`` that are known to.
    """
    if not functions.isdisjoint(map(_NAME_AND_FILE, stack)):
        return True
    at = next((depth for depth, frame in enumerate(stack) if means(frame, "backward")), 0)
    own = own_frames(stack[:at])[-1:]
    functions.update(map(_NAME_AND_FILE, own))
    return bool(own)


Span = tuple[Interval, ThreadTimeline]


def _at_training(
    recording: RecordingTaken, seen: Sequence[ThreadTimeline], functions: set[tuple[str, str]]
) -> list[Span]:
    """Return the stays in which threads train."""
    for _ in range(2):  # the second time by all functions that the first has found
        trains = [_trains(stack, functions) for stack in recording.stacks]
    return [(each, one) for one in seen for each in one.intervals if trains[each.stack]]


def _in_order(spans: list[Span], leader: ThreadTimeline | None) -> list[Turn]:
    """Return the turns by the stays in which threads train; ``leader`` led before them."""
    spans.sort(key=lambda span: (span[0].start_ns, span[1] is not leader))
    turns, ends_ns = [(0, leader or spans[0][1])], defaultdict[int, int](int)
    for each, one in spans:
        if each.start_ns >= ends_ns[turns[-1][1].os_tid] and one is not turns[-1][1]:
            turns.append((each.start_ns, one))
        ends_ns[one.os_tid] = each.start_ns + each.duration_ns
    return turns


def _with_leaders(recording: RecordingTaken, turns: Sequence[Turn]) -> RecordingTaken:
    led: defaultdict[int, IntervalSet] = defaultdict(IntervalSet)
    for (from_ns, leader), (to_ns, _) in itertools.pairwise([*turns, (EVER.to_ns, turns[0][1])]):
        led[leader.os_tid].add(from_ns, to_ns)
    parts = (_in_turns(one, led[one.os_tid]) for one in recording.threads)
    return msgspec.structs.replace(recording, threads=tuple(itertools.chain(*parts)))


def _in_turns(thread: ThreadTimeline, led: IntervalSet) -> Iterator[ThreadTimeline]:
    """Yield a thread while it leads, and while it does not, as far as it was seen so.

    It begins to lead with a stay, so that each stay is led up to a moment at most.
    """
    parts: dict[bool, list[Interval]] = {True: [], False: []}
    for one in thread.intervals:
        led_ns = led.between(one.start_ns, one.start_ns + one.duration_ns)
        samples = samples_inside(one.samples, one.duration_ns, led_ns)
        rest = one.start_ns + led_ns, one.duration_ns - led_ns, one.stack, one.samples - samples
        for is_main, part in ((True, (one.start_ns, led_ns, one.stack, samples)), (False, rest)):
            if part[1]:
                parts[is_main].append(Interval(*part))
    for is_main, intervals in parts.items():
        if intervals or not (is_main or thread.intervals):
            yield msgspec.structs.replace(thread, is_main=is_main, intervals=tuple(intervals))
