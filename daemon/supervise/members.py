"""The living processes of a run: each is sampled, and its steps followed, from when it comes to when it ends.

Knows nothing of how a run begins or ends, nor of what becomes of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from profd.daemon.clock import Clock
from profd.daemon.store.records import EventHappened, Identity, ProcessEnded, Record, RecordingTaken
from profd.daemon.supervise import exitstatus
from profd.daemon.supervise.placement import in_words
from profd.daemon.supervise.sampling import Sampling
from profd.daemon.supervise.stepping import Stepping
from profd.daemon.supervise.tree import Appeared, Change, Execed, Member, ProcessTree, Vanished

_COMMAND_LENGTH = 200


class Members:
    """Follows a tree of processes; ``put`` takes the records of who came, changed and ended.

    ``python_threads`` are those of each living process as its last recording had them, by their OS thread ids.
    ``root_status`` is how the root ended, as of ``waitpid``, once that is known.
    """

    def __init__(
        self,
        tree: ProcessTree,
        sampling: Sampling,
        stepping: Stepping | None,
        clock: Clock,
        put: Callable[[Record], object],
    ) -> None:
        """Without ``stepping`` no steps are followed."""
        self.root_status: int | None = None
        self._tree = tree
        self._sampling = sampling
        self._stepping = stepping
        self._clock = clock
        self._put = put
        self._python_threads: dict[Identity, frozenset[int]] = {}

    @property
    def python_threads(self) -> Mapping[Identity, frozenset[int]]:
        """The Python threads of the living processes that were recorded."""
        return self._python_threads

    def look(self) -> None:
        """Look at the tree, and take in who came, who became another program, and who ended."""
        for change in self._tree.poll():
            self._take_change(change)

    def look_at_end(self) -> None:
        """Look a last time: take in who ended, and begin nothing."""
        for change in self._tree.poll():
            if isinstance(change, Vanished):
                self._take_end(change.member, change.exit_status)

    def take_recording(self, recording: RecordingTaken) -> None:
        """Learn roles and threads from a recording on its way; it may come after its process has ended."""
        if recording.identity in self._tree.members:
            self._python_threads[recording.identity] = frozenset(thread.os_tid for thread in recording.threads)
        if member := self._tree.take_stacks(recording.identity, recording.stacks):
            self._put(self._tree.record_of(member))

    def _take_change(self, change: Change) -> None:
        member = change.member
        if isinstance(change, Vanished):
            self._take_end(member, change.exit_status)
            return
        self._put(self._tree.record_of(member))
        command = " ".join(member.command)[:_COMMAND_LENGTH]
        if isinstance(change, Appeared):
            self._say("started", f"{_who(member)}: {command}", member)
        elif isinstance(change, Execed):
            self._say("exec", f"process {member.identity.pid} became {command}", member)
        self._follow(member)

    def _follow(self, member: Member) -> None:
        if member.python is None:
            self._sampling.end(member)
            return
        self._sampling.begin(member)
        if self._stepping is not None:
            self._stepping.begin(member)

    def _take_end(self, member: Member, status: int | None) -> None:
        self._python_threads.pop(member.identity, None)
        if self._stepping is not None:
            self._stepping.end(member.identity)
        code, number = exitstatus.code_and_signal(status)
        self._put(ProcessEnded(member.identity, self._clock.now_ns(), code, number))
        if member.identity != self._tree.root:
            self._say("ended", f"{member.role} {member.identity.pid} {exitstatus.in_words(code, number)}", member)
        elif status is not None:
            self.root_status = status

    def _say(self, kind: str, text: str, member: Member) -> None:
        self._put(EventHappened(self._clock.now_ns(), kind, text, member.identity))


def _who(member: Member) -> str:
    """Return what a process is, with its place in a job where it has one: ``main 4242 (rank 5 of 8)``."""
    place = f" ({in_words(member.placement)})" if member.placement else ""
    return f"{member.role} {member.identity.pid}{place}"
