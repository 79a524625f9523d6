"""Since when the main threads of processes stand in one stack, by their recordings. Pure: reads nothing itself.

A wait that spins uses a core like a computation does, and two looks at a loop may well see the same line of it. That
each of some thousand samples shows the same stack is another matter: then it is one long call, or a loop of one line.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import Frame, Identity, RecordingTaken

# The age of the last recording: from one hand-over to the next, and what it takes to read it.
_LATEST_NS = 15 * SECOND_NS


class _Place(NamedTuple):
    stack: tuple[Frame, ...]
    since_ns: int
    until_ns: int


class Standstill:
    """Where the main threads of processes were seen last, and since when."""

    def __init__(self) -> None:
        self._places: dict[Identity, _Place] = {}

    def take(self, recording: RecordingTaken) -> None:
        """Take in a recording of a process."""
        main = next((thread for thread in recording.threads if thread.is_main), None)
        place = self._places.get(recording.identity)
        for interval in main.intervals if main else ():
            stack, end_ns = recording.stacks[interval.stack], interval.start_ns + interval.duration_ns
            since_ns = place.since_ns if place and place.stack == stack else interval.start_ns
            place = _Place(stack, since_ns, end_ns)
        if place is not None:
            self._places[recording.identity] = place

    def keep(self, identities: Collection[Identity]) -> None:
        """Forget all processes but these."""
        self._places = {identity: place for identity, place in self._places.items() if identity in identities}

    def since_ns(self, now_ns: int) -> int | None:
        """Return since when all of them have stood where they stand; None where that is not known of each."""
        if any(place.until_ns < now_ns - _LATEST_NS for place in self._places.values()):
            return None
        return max((place.since_ns for place in self._places.values()), default=None)
