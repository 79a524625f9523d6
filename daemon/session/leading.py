"""Tells which thread of a process leads.

The stacks of the leading thread say where a step's time goes, unless somebody asks for others.

That is the main thread. But web interfaces and servers train in a thread of their own, while the
main one polls or joins it; a main thread may end before others do; and a process that an extension
has forked may have none. Then another thread leads from there on.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from profd.daemon.store.records import (
    EventHappened,
    Identity,
    Record,
    RecordingTaken,
    ThreadTimeline,
)
from profd.daemon.tree import roles


class Leaders:
    """The leading thread of each process, as far as it is not the main one.

    ``put`` takes a note of each new one.
    """

    def __init__(self, put: Callable[[Record], object]) -> None:
        self._put = put
        self._leaders: dict[Identity, int | None] = {}
        """By OS thread id; None: the main thread, which trains."""

    def marked(self, recording: RecordingTaken, *, has_main_ended: bool = False) -> RecordingTaken:
        """Return a recording of a training process with its leading thread as the main one."""
        identity, before = recording.identity, self._leaders.get(recording.identity)
        leader = self._leader(recording, before, has_main_ended=has_main_ended)
        if leader is None:
            return recording
        self._leaders[identity] = None if leader.is_main else leader.os_tid
        if not leader.is_main and leader.os_tid != before:
            why = (
                "goes on after the main one"
                if has_main_ended
                else "does what the main one waits for"
            )
            text = (
                f"thread {leader.name or leader.os_tid} of pid {identity.pid} {why}: it is "
                "shown "
                "in its place"
            )
            self._put(EventHappened(recording.start_ns, "note", text, identity))
        marked = (msgspec.structs.replace(one, is_main=one is leader) for one in recording.threads)
        return msgspec.structs.replace(recording, threads=tuple(marked))

    def knows(self, identity: Identity) -> bool:
        """Say whether a process has trained: its last recording may come after its end."""
        return identity in self._leaders

    def _leader(
        self, recording: RecordingTaken, before: int | None, *, has_main_ended: bool
    ) -> ThreadTimeline | None:
        """Return the thread that leads; None if nothing tells, and so the main one does."""
        seen = [one for one in recording.threads if one.intervals]
        main = None if has_main_ended else next((one for one in seen if one.is_main), None)
        if main is not None and self._has_trained(recording, main):
            return main
        others = sorted(
            (one for one in seen if not one.is_main), key=lambda one: one.os_tid != before
        )
        if (trainer := next((one for one in others if _trains(recording, one)), None)) is not None:
            return trainer
        if main is None or _only_joins(recording, main):
            return max(
                others, key=lambda one: (one.os_tid == before, len(one.intervals)), default=None
            )
        # One that trains may evaluate or load for the length of a recording.
        return others[0] if others and others[0].os_tid == before else None

    def _has_trained(self, recording: RecordingTaken, main: ThreadTimeline) -> bool:
        return self._leaders.get(recording.identity, 0) is None or _trains(recording, main)


_JOINS = ("join", "_wait_for_tstate_lock")


def _only_joins(recording: RecordingTaken, main: ThreadTimeline) -> bool:
    """Say whether a thread waits for the end of another one all the time."""
    leaves = {recording.stacks[one.stack][-1] for one in main.intervals}
    return all(
        leaf.function.rpartition(".")[2] in _JOINS and leaf.file.endswith("/threading.py")
        for leaf in leaves
    )


def _trains(recording: RecordingTaken, thread: ThreadTimeline) -> bool:
    numbers = {one.stack for one in thread.intervals}
    return roles.is_training([recording.stacks[number] for number in numbers])
