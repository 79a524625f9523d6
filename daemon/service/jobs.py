"""Which jobs are to be recorded now, and how busy they are.

Knows what became of each job so far, and when to try one again. Starts nothing itself.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.service.log import JsonLog
from profd.daemon.service.processes import Census, Job, ProcessInfo, ProcessTable, Rules, job_of
from profd.daemon.store.records import Identity

QUIET_BELOW_CORES = 0.02
"""A job that uses less waits for somebody: what a kernel of a notebook takes to listen is a tenth of it."""
_LOOK_EVERY_S = 10.0


class Activity:
    """What was seen of the jobs that are asked about."""

    def __init__(self, table: ProcessTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._seen: dict[Identity, tuple[int, float]] = {}
        """When each was looked at last, and the CPU seconds that it had used by then."""
        self._busy_ns: dict[Identity, int] = {}
        """When it was last known to be busy; the first look counts."""

    def look(self, roots: Iterable[Identity]) -> None:
        """Look at jobs, those that were not looked at lately, and forget all others."""
        now_ns, roots = self._clock.now_ns(), set(roots)
        for root in self._seen.keys() - roots:
            del self._seen[root], self._busy_ns[root]
        for root in roots:
            at_ns, before_s = self._seen.get(root, (0, 0.0))
            if now_ns - at_ns < _LOOK_EVERY_S * SECOND_NS:
                continue
            cpu_s = self._table.cpu_s(root.pid)
            if not at_ns or cpu_s - before_s >= QUIET_BELOW_CORES * (now_ns - at_ns) / SECOND_NS:
                self._busy_ns[root] = now_ns
            self._seen[root] = (now_ns, cpu_s)

    def quiet_s(self, root: Identity) -> float:
        """Return for how long a job has been quiet by now; 0 of one that was not looked at."""
        if root not in self._seen:
            return 0.0
        return (self._seen[root][0] - self._busy_ns[root]) / SECOND_NS


_MANY = 1 << 30
_ROOM_REST_S = 2.0
_ELSEWHERE_REST_S = 10.0
_FIRST_REST_S = 5.0
_LONGEST_REST_S = 600.0
# Of one user's supervisor and the system's, which find a process at the same time, its user's comes first.
_OTHERS_GRACE_S = 3.0
STOPPED, DURATION, QUIET = "stopped", "duration", "quiet"
"""Why a run ended, as its file says it, where that decides about the next one of the same job."""
QUIET_S = 300.0
"""A job that was quiet for so long gives its place to one that waits."""


class Jobs:
    """The jobs of the host."""

    def __init__(
        self,
        census: Census,
        table: ProcessTable,
        rules: Rules,
        journal: JsonLog,
        clock: Clock,
        most_of_one_user: Callable[[], int] = lambda: _MANY,
    ) -> None:
        self._clock = clock
        self._uid = os.geteuid()
        self._census = census
        self._table = table
        self._rules = rules
        self._journal = journal
        self._activity = Activity(table, clock)
        self._most_of_one_user = most_of_one_user
        self._taken: set[Identity] = set()
        self._places: dict[Identity, int] = {}
        """The jobs that are recorded, and of which user."""
        self._resting: set[Identity] = set()
        """The jobs that were let go as they were quiet; they are recorded again once they are not."""
        self.is_any_waiting = False
        """Whether a job that meets the rules found no room at the last look."""
        self._told: set[Identity] = set()
        self._failures: dict[Identity, int] = {}
        self._resting_ns: dict[Identity, int] = {}

    def use(self, rules: Rules) -> None:
        """Go by other rules from now on; what is recorded stays so."""
        self._rules = rules

    def take(self, roots: Iterable[Identity]) -> None:
        """Take in jobs that are recorded already, or are not to be."""
        self._taken.update(roots)

    def adopt(self, root: Identity) -> None:
        """Take in a job that another supervisor has begun to record."""
        self._taken.add(root)
        program = self._table.program(root.pid)
        if program is not None:
            self._places[root] = program.uid

    def poll(self, room: int) -> list[Job]:
        """Return the jobs to be recorded from now on, ``room`` of them at most; they count as taken.

        Where there is not room for all, users come in turns: who has the fewest places comes first.
        """
        self._activity.look({*self._places, *self._resting})
        wanting: dict[Identity, tuple[Job, int]] = {}
        recorded: set[int] | None = None
        for subject in self._census.poll():
            job = self._job_of(subject)
            if job is None or job.root in wanting:
                continue
            recorded = self._table.recorded() if recorded is None else recorded
            if self._is_free(job, recorded):
                wanting[job.root] = job, subject.uid
        found: list[Job] = []
        while wanting and len(found) < room:
            held = Counter(self._places.values())
            # Of equal ones who began first.
            root = min(wanting, key=lambda root: (held[wanting[root][1]], root.start_ticks, root.pid))
            if held[wanting[root][1]] >= self._most_of_one_user():
                break
            job, self._places[root] = wanting.pop(root)
            self._taken.add(root)
            self._resting.discard(root)
            found.append(job)
        for job, _ in wanting.values():
            self._wait(job)
        held = Counter(self._places.values())
        self.is_any_waiting = any(held[uid] < self._most_of_one_user() for _, uid in wanting.values())
        return found

    def quietest(self) -> Identity | None:
        """Return the job that has been quiet longest, of those that were long enough to give their place to another."""
        quiet = {root: self._activity.quiet_s(root) for root in self._places}
        longest = max(quiet, key=quiet.__getitem__, default=None)
        return longest if longest is not None and quiet[longest] >= QUIET_S else None

    def end(self, job: Job, why: str) -> None:
        """Take in why the recording of a job ended: one that somebody stopped is not begun again, others are."""
        self._places.pop(job.root, None)
        if why in (DURATION, QUIET):
            self._release(job.root, 0.0)
            if why == QUIET:
                self._resting.add(job.root)
        elif why != STOPPED:
            self.fail(job)
        self._forget_ended()

    def fail(self, job: Job) -> None:
        """Take in that a job could not be recorded; it is tried again, later each time."""
        self._places.pop(job.root, None)
        self._failures[job.root] = self._failures.get(job.root, 0) + 1
        self._release(job.root, min(_FIRST_REST_S * 2.0 ** (self._failures[job.root] - 1), _LONGEST_REST_S))

    def has_told(self, job: Job) -> bool:
        """Say whether something was said of a job once before; from now on it was."""
        if job.root in self._told:
            return True
        self._told.add(job.root)
        return False

    def _job_of(self, subject: ProcessInfo) -> Job | None:
        """Return the job of a process that is to be recorded and old enough, and not taken yet."""
        rule = self._rules.match(subject)
        if rule is None:
            return None
        grace_s = 0.0 if subject.uid == self._uid else _OTHERS_GRACE_S
        if subject.age_s < rule.min_age_s + grace_s:
            self._census.look_again(subject.identity.pid, rule.min_age_s + grace_s - subject.age_s)
            return None
        job = job_of(subject, rule.name, self._table, self._rules)
        if job is None or job.root in self._taken:
            self._census.settle(subject.identity.pid)
            return None
        rest_s = (self._resting_ns.get(job.root, 0) - self._clock.now_ns()) / SECOND_NS
        if rest_s > 0:
            self._census.look_again(job.member, rest_s)
            return None
        return job

    def _is_free(self, job: Job, recorded: set[int]) -> bool:
        if recorded & {job.root.pid, job.member, *self._table.descendants(job.root.pid)}:
            self._census.look_again(job.member, _ELSEWHERE_REST_S)
            return False
        if job.root in self._resting and self._activity.quiet_s(job.root) > 0:
            self._census.look_again(job.member, _ELSEWHERE_REST_S)
            return False
        return True

    def _wait(self, job: Job) -> None:
        self._census.look_again(job.member, _ROOM_REST_S)
        if not self.has_told(job):
            self._journal.say("waiting", "there is no room for another session, or of its user", pid=job.root.pid)

    def _release(self, root: Identity, rest_s: float) -> None:
        """Let a job be found again after a rest, by whichever process of it lives then."""
        self._taken.discard(root)
        self._resting_ns[root] = self._clock.now_ns() + int(rest_s * SECOND_NS)
        for pid in {root.pid, *self._table.descendants(root.pid)}:
            self._census.look_again(pid, rest_s)

    def _forget_ended(self) -> None:
        """Let go of what is known of processes that are gone."""
        known = {*self._taken, *self._told, *self._resting, *self._failures, *self._resting_ns}
        gone = {root for root in known if not self._is_there(root)}
        self._taken -= gone
        self._told -= gone
        self._resting -= gone
        self._failures = {root: count for root, count in self._failures.items() if root not in gone}
        self._resting_ns = {root: due_ns for root, due_ns in self._resting_ns.items() if root not in gone}

    def _is_there(self, root: Identity) -> bool:
        program = self._table.program(root.pid)
        return program is not None and program.identity == root
