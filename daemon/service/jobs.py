"""Which jobs are to be recorded now, how busy they are, and when to try one again."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from profd.daemon.boundedreads import Unread
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.log import JsonLog
from profd.daemon.service.scanner import (
    HostJob,
    HostProcesses,
    ProcessInfo,
    ProcessScanner,
    job_of,
    matching_rule,
)
from profd.daemon.store.records import Identity

QUIET_BELOW_CORES = 0.02
"""A job that uses less waits for somebody.

What a kernel of a notebook takes to listen is a tenth of it.
"""


class _LastLook(NamedTuple):
    """When a job was looked at last, and the CPU seconds that it had used by then.

    ``busy_ns`` is when it was last known to be busy; the first look counts.
    """

    at_ns: int
    cpu_s: float
    busy_ns: int


class Activity:
    """What was seen of the jobs that are asked about."""

    def __init__(self, table: HostProcesses, clock: Clock) -> None:
        self._table, self._clock = table, clock
        self._seen: dict[Identity, _LastLook] = {}

    def look(self, roots: Iterable[Identity]) -> None:
        """Look at jobs, those that were not looked at lately, and forget all others."""
        now_ns, roots = self._clock.now_ns(), set(roots)
        for root in self._seen.keys() - roots:
            del self._seen[root]
        for root in roots:
            before = self._seen.get(root, _LastLook(0, 0.0, 0))
            passed_s = (now_ns - before.at_ns) / SECOND_NS
            if passed_s < 10:
                continue
            cpu_s = self._table.cpu_s(root.pid)
            is_busy = not before.at_ns or cpu_s - before.cpu_s >= QUIET_BELOW_CORES * passed_s
            self._seen[root] = _LastLook(now_ns, cpu_s, now_ns if is_busy else before.busy_ns)

    def quiet_s(self, root: Identity) -> float:
        """Return for how long a job has been quiet by now; 0 of one that was not looked at."""
        seen = self._seen.get(root)
        return (seen.at_ns - seen.busy_ns) / SECOND_NS if seen else 0.0


STOPPED, DURATION, QUIET = "stopped", "duration", "quiet"
"""Why a run ended, as its file says, if that decides about the next one of the same job."""
QUIET_S = 300.0  # a job that was quiet for so long gives its place to one that waits


@dataclass
class _State:
    """What became of a job so far."""

    is_taken: bool = False  # whether it is recorded, or is not to be
    uid: int | None = None  # its user, while it is recorded
    # whether its recording ended because it was quiet: it is recorded again once it is not
    is_quiet: bool = False
    is_noticed: bool = False  # whether something was logged of its delay or failure
    failures: int = 0
    rest_until_ns: int = 0


@dataclass(eq=False)
class Jobs:
    """The jobs of the host; belongs to one thread, as it reads processes."""

    table: HostProcesses
    configuration: Configuration  # holds for jobs to come; what is recorded stays so
    log: JsonLog
    clock: Clock

    def __post_init__(self) -> None:
        self._scanner = ProcessScanner(self.table, self.clock)
        self._activity = Activity(self.table, self.clock)
        self._states: defaultdict[Identity, _State] = defaultdict(_State)
        self.is_any_waiting = False
        """Whether a job that meets the rules found no room at the last look."""

    def skip(self, root: Identity) -> None:
        self._states[root].is_taken = True

    def adopt(self, root: Identity) -> None:
        self.skip(root)
        self._states[root].uid = self.table.uid(root)

    def _places(self) -> Counter[int]:
        return Counter(state.uid for state in self._states.values() if state.uid is not None)

    def poll(self, room: int) -> list[HostJob]:
        """Return the jobs to be recorded from now on, ``room`` of them at most.

        They count as taken. If there is no room for all, the user with the fewest places comes
        first.
        """
        self.table.begin_turn()
        self._activity.look(
            [
                root
                for root, state in self._states.items()
                if state.is_quiet or state.uid is not None
            ]
        )
        wanting = self._wanting()
        found = self._choose(wanting, room)
        for job in wanting.values():
            self._scanner.look_again(job.member, 2.0)
            if self.is_first_notice(job.root):
                self.log.say(
                    "waiting",
                    "there is no room for another session, or of its user",
                    pid=job.root.pid,
                )
        held, most = self._places(), self.configuration.most_of_one_user
        self.is_any_waiting = any(held[job.uid] < most for job in wanting.values())
        return found

    def _wanting(self) -> dict[Identity, HostJob]:
        """Return the jobs that nobody records, by their roots."""
        wanting: dict[Identity, HostJob] = {}
        recorded: set[int] | None = None
        for process in self._scanner.poll():
            try:
                job = self._job_of(process)
            except Unread:
                self._scanner.look_again(process.identity.pid, 1.0)
                continue
            if job is None or job.root in wanting:
                continue
            recorded = self.table.recorded() if recorded is None else recorded
            members = {job.root.pid, job.member, *self.table.descendants(job.root.pid)}
            is_quiet = self._states[job.root].is_quiet and self._activity.quiet_s(job.root) > 0
            if recorded & members or is_quiet:
                self._scanner.look_again(job.member, 10.0)
            else:
                wanting[job.root] = job
        return wanting

    def _choose(self, wanting: dict[Identity, HostJob], room: int) -> list[HostJob]:
        """Take jobs from the wanting ones, ``room`` of them at most."""
        found: list[HostJob] = []
        while wanting and len(found) < room:
            held = self._places()
            # Among equals the one that began first.
            job = min(
                wanting.values(),
                key=lambda job: (held[job.uid], job.root.start_ticks, job.root.pid),
            )
            if held[job.uid] >= self.configuration.most_of_one_user:
                break
            state = self._states[job.root]
            state.is_taken, state.is_quiet, state.uid = True, False, job.uid
            found.append(wanting.pop(job.root))
        return found

    def quietest(self) -> Identity | None:
        """Return the job that has been quiet longest, if long enough to give up its place."""
        recorded = (root for root, state in self._states.items() if state.uid is not None)
        longest = max(recorded, key=self._activity.quiet_s, default=None)
        is_long = longest is not None and self._activity.quiet_s(longest) >= QUIET_S
        return longest if is_long else None

    def end(self, root: Identity, why: str) -> None:
        """Note why a job's recording ended: unless somebody stopped it, it may begin again."""
        self._states[root].uid = None
        if why in (DURATION, QUIET):
            self._release(root, 0.0)
            self._states[root].is_quiet |= why == QUIET
        elif why != STOPPED:
            self.fail(root)
        for one in [root for root, state in self._states.items() if state.uid is None]:
            if self.table.uid(one) is None:
                del self._states[one]

    def fail(self, root: Identity) -> None:
        """Note that a job could not be recorded; it is tried again, later each time."""
        state = self._states[root]
        state.uid = None
        state.failures += 1
        self._release(root, min(5.0 * 2.0 ** (state.failures - 1), 600.0))

    def is_first_notice(self, root: Identity) -> bool:
        """Say whether nothing was logged of a job's delay or failure yet; note that it is now."""
        is_first = not self._states[root].is_noticed
        self._states[root].is_noticed = True
        return is_first

    def _job_of(self, process: ProcessInfo) -> HostJob | None:
        """Return the job of a process if it is to be recorded, old enough and not taken yet.

        Raises Unread.
        """
        if (rule := matching_rule(self.configuration, process)) is None:
            return None
        # A user's supervisor and that of root find a process at the same time. Root's waits a
        # little longer, so that the user's own records it.
        left_s = rule.min_age_s + (0.0 if process.uid == os.geteuid() else 3.0) - process.age_s
        if left_s > 0:
            self._scanner.look_again(process.identity.pid, left_s)
            return None
        job = job_of(process, rule.name, self.table, self.configuration)
        if job is None or self._states[job.root].is_taken:
            self._scanner.settle(process.identity.pid)
            return None
        rest_s = (self._states[job.root].rest_until_ns - self.clock.now_ns()) / SECOND_NS
        if rest_s > 0:
            self._scanner.look_again(job.member, rest_s)
            return None
        return job

    def _release(self, root: Identity, rest_s: float) -> None:
        """Let a job be found again after a rest, by whichever process of it lives then."""
        state = self._states[root]
        state.is_taken, state.rest_until_ns = False, self.clock.now_ns() + int(rest_s * SECOND_NS)
        for pid in {root.pid, *self.table.descendants(root.pid)}:
            self._scanner.look_again(pid, rest_s)
