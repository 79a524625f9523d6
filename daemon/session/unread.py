"""Watch whether the stacks of each process are read.

If they are not, report for how long, why, and what helps.

Recordings tell what was read when. A process is *unread* since its last recording with a whole
stack. The reason is looked for in the process as soon as a recording fails or has no stack, since
the process may end meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.events import EventKind
from profd.daemon.stacks.misreads import ROOT_FUNCTIONS
from profd.daemon.store.records import EventHappened, Identity, Put, RecordingTaken
from profd.daemon.tree.unread import RUNS_NOTHING, Reason, why_unread
from profd.daemon.units import percent

SILENT_NS = 5 * SECOND_NS
"""A shorter time may be the start or end of a process, or a moment in which none could be read."""
_MUCH_TORN, _ENOUGH = 0.05, 500
"""Report torn stacks from this share on, of at least this many stacks.

A training run that moves as fast as it can has two or three torn in a hundred.
"""


@dataclass(eq=False)
class _Silence:
    """What is known of a process that is not read.

    That is since when, py-spy's last words, and the reason seen in it.
    """

    since_ns: int
    words: str = ""
    reason: Reason | None = None
    looked_ns: int | None = None
    look: asyncio.Future[None] | None = None
    is_said: bool = False


@dataclass(eq=False)
class ReadingWatch:
    """Takes the outcome of recordings; ``put`` takes events.

    It belongs to the thread of an event loop.
    """

    clock: Clock
    put: Put
    why: Callable[[int], Reason | None] = why_unread

    def __post_init__(self) -> None:
        self._silences: dict[Identity, _Silence] = {}
        self._read: set[Identity] = set()
        self._looks: set[asyncio.Future[None]] = set()
        self._stacks = self._torn = 0
        self._is_torn_said = False

    def take(self, recording: RecordingTaken) -> None:
        """Take a recording, with stacks or without."""
        identity = recording.identity
        self._count(recording)
        if recording.samples <= recording.torn:
            self._miss(identity, recording.start_ns, "")
            return
        if identity not in self._read and _is_without_root(recording):
            look = asyncio.ensure_future(self._look_for_missing(identity))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
        self._read.add(identity)
        silence = self._silences.pop(identity, None)
        if silence is not None and silence.is_said:
            length_s = (recording.start_ns - silence.since_ns) / SECOND_NS
            text = f"pid {identity.pid} is read again, after {length_s:.0f} s"
            self._tell(EventKind.NOTE, text, identity)

    def take_failure(self, identity: Identity, words: str) -> None:
        """Note that no recording could be made, and py-spy's words on it."""
        self._miss(identity, self.clock.now_ns(), words)

    def end(self, identity: Identity) -> None:
        """Stop watching a process that has ended; report it if it could never be read."""
        silence = self._silences.pop(identity, None)
        if (
            silence is not None
            and identity not in self._read
            and silence.reason
            and silence.reason.lasting
        ):
            self._say(identity, silence)
        self._read.discard(identity)

    async def close(self) -> None:
        """Report what was never read up to the end of the recording, however short that was."""
        looks = {silence.look for silence in self._silences.values() if silence.look is not None}
        if looks := looks | self._looks:
            await asyncio.wait(looks, timeout=2.0)
        for identity, silence in self._silences.items():
            if identity not in self._read and silence.reason is not None:
                self._say(identity, silence)

    def _miss(self, identity: Identity, since_ns: int, words: str) -> None:
        """Note that nothing was read.

        Look into the process at first, and again after twice as long.
        """
        if _dies(identity):
            return
        silence = self._silences.setdefault(identity, _Silence(since_ns))
        silence.words = words or silence.words
        now_ns, looked_ns = self.clock.now_ns(), silence.looked_ns
        is_due = looked_ns is None or now_ns - silence.since_ns >= 2 * (
            looked_ns - silence.since_ns
        )
        if is_due and (silence.look is None or silence.look.done()):
            silence.looked_ns = now_ns
            silence.look = asyncio.ensure_future(self._look(identity, silence))
        elif not is_due and now_ns - silence.since_ns >= SILENT_NS:
            self._say(identity, silence)

    async def _look(self, identity: Identity, silence: _Silence) -> None:
        found = await asyncio.to_thread(self.why, identity.pid)
        # A dying process runs nothing any more: only a lasting reason says something.
        if _dies(identity) and not (found and found.lasting):
            return
        silence.reason = found
        if self.clock.now_ns() - silence.since_ns >= SILENT_NS:
            self._say(identity, silence)

    async def _look_for_missing(self, identity: Identity) -> None:
        """Find why the outermost frames of a process's stacks are wrong, and report it.

        They are not those with which Python begins.
        """
        found = await asyncio.to_thread(self.why, identity.pid)
        if found is not None and found.leaves_some:
            text = f"not all frames of pid {identity.pid} are read: {found.what}; {found.remedy}"
            self._tell(EventKind.UNREAD, text, identity)

    def _say(self, identity: Identity, silence: _Silence) -> None:
        if silence.is_said or (silence.reason == RUNS_NOTHING and identity in self._read):
            # A process that has run Python and does not now, ends or waits for a call: there is
            # nothing to read.
            return
        silence.is_said = True
        length_s, words = (self.clock.now_ns() - silence.since_ns) / SECOND_NS, silence.words
        said = f" (py-spy: {words})" if words else ""
        why = f"unknown why, py-spy says: {words or 'nothing, and no stack came'}"
        if silence.reason is not None:
            why = f"{silence.reason.what}{said}; {silence.reason.remedy}"
        text = f"nothing was read from pid {identity.pid} for {length_s:.1f} s: {why}"
        self._tell(EventKind.UNREAD, text, identity)

    def _tell(self, kind: EventKind, text: str, identity: Identity | None = None) -> None:
        self.put(EventHappened(self.clock.now_ns(), kind, text, identity))

    def _count(self, recording: RecordingTaken) -> None:
        self._stacks, self._torn = self._stacks + recording.samples, self._torn + recording.torn
        share = self._torn / self._stacks if self._stacks >= _ENOUGH else 0.0
        if share >= _MUCH_TORN and not self._is_torn_said:
            self._is_torn_said = True
            text = (
                f"{percent(share)} of the stacks were torn and left out: what the shares rest on "
                "is less than usual"
            )
            self._tell(EventKind.NOTE, text)


def _is_without_root(recording: RecordingTaken) -> bool:
    """Return whether none of the main thread's stacks begins as main threads begin."""
    mains = (one for one in recording.threads if one.is_main)
    numbers = {each.stack for one in mains for each in one.intervals}
    seen = {recording.stacks[number][0].function for number in numbers}
    return bool(seen) and ROOT_FUNCTIONS.isdisjoint(seen)


def _dies(identity: Identity) -> bool:
    """Return whether a process has ended or is ending.

    Nothing can be read of it while its memory is released.
    """
    stat = processes.read_running(*identity)
    return stat is None or not (stat.image or processes.shown_as(stat.pid) != stat.pid)
