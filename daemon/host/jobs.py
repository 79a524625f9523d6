"""Which jobs are to be recorded now: those that meet the rules, are nobody's yet, and for which there is room.

Knows what became of each job so far, and when to try one again. Starts nothing itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.host.census import Census, ProcessTable
from profd.daemon.host.journal import Journal
from profd.daemon.host.lineage import Job, job_of
from profd.daemon.host.rules import Rules
from profd.daemon.host.subject import Subject
from profd.daemon.store.records import Identity

_ROOM_REST_S = 2.0
_ELSEWHERE_REST_S = 10.0
_FIRST_REST_S = 5.0
_LONGEST_REST_S = 600.0
# Of one user's supervisor and the system's, which find a process at the same time, its user's comes first.
_OTHERS_GRACE_S = 3.0
STOPPED, DURATION = "stopped", "duration"
"""Why a run ended, as its file says it, where that decides about the next one of the same job."""


class Jobs:
    """The jobs of the host."""

    def __init__(self, census: Census, table: ProcessTable, rules: Rules, journal: Journal, clock: Clock) -> None:
        self._clock = clock
        self._uid = os.geteuid()
        self._census = census
        self._table = table
        self._rules = rules
        self._journal = journal
        self._taken: set[Identity] = set()
        self._told: set[Identity] = set()
        self._failures: dict[Identity, int] = {}
        self._resting_ns: dict[Identity, int] = {}

    def use(self, rules: Rules) -> None:
        """Go by other rules from now on; what is recorded stays so."""
        self._rules = rules

    def take(self, roots: Iterable[Identity]) -> None:
        """Take in jobs that are recorded already, or are not to be."""
        self._taken.update(roots)

    def poll(self, room: int) -> list[Job]:
        """Return the jobs to be recorded from now on, ``room`` of them at most; they count as taken."""
        found: list[Job] = []
        recorded: set[int] | None = None
        for subject in self._census.poll():
            job = self._job_of(subject)
            if job is None:
                continue
            recorded = self._table.recorded() if recorded is None else recorded
            if self._is_free(job, recorded, room - len(found)):
                self._taken.add(job.root)
                found.append(job)
        return found

    def end(self, job: Job, why: str) -> None:
        """Take in why the recording of a job ended: one that somebody stopped is not begun again, others are."""
        if why == DURATION:
            self._release(job.root, 0.0)
        elif why != STOPPED:
            self.fail(job)
        self._forget_ended()

    def fail(self, job: Job) -> None:
        """Take in that a job could not be recorded; it is tried again, later each time."""
        self._failures[job.root] = self._failures.get(job.root, 0) + 1
        self._release(job.root, min(_FIRST_REST_S * 2.0 ** (self._failures[job.root] - 1), _LONGEST_REST_S))

    def has_told(self, job: Job) -> bool:
        """Say whether something was said of a job once before; from now on it was."""
        if job.root in self._told:
            return True
        self._told.add(job.root)
        return False

    def _job_of(self, subject: Subject) -> Job | None:
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

    def _is_free(self, job: Job, recorded: set[int], room: int) -> bool:
        if recorded & {job.root.pid, job.member, *self._table.descendants(job.root.pid)}:
            self._census.look_again(job.member, _ELSEWHERE_REST_S)
            return False
        if room <= 0:
            self._census.look_again(job.member, _ROOM_REST_S)
            if not self.has_told(job):
                self._journal.say("waiting", "the budget has no room for another session", pid=job.root.pid)
            return False
        return True

    def _release(self, root: Identity, rest_s: float) -> None:
        """Let a job be found again after a rest, by whichever process of it lives then."""
        self._taken.discard(root)
        self._resting_ns[root] = self._clock.now_ns() + int(rest_s * SECOND_NS)
        for pid in {root.pid, *self._table.descendants(root.pid)}:
            self._census.look_again(pid, rest_s)

    def _forget_ended(self) -> None:
        """Let go of what is known of processes that are gone."""
        known = {*self._taken, *self._told, *self._failures, *self._resting_ns}
        gone = {root for root in known if not self._is_there(root)}
        self._taken -= gone
        self._told -= gone
        self._failures = {root: count for root, count in self._failures.items() if root not in gone}
        self._resting_ns = {root: due_ns for root, due_ns in self._resting_ns.items() if root not in gone}

    def _is_there(self, root: Identity) -> bool:
        program = self._table.program(root.pid)
        return program is not None and program.identity == root
