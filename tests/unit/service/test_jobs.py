"""Which jobs the supervisor begins: each once, at its root, when there is room, and again when that
makes sense.
"""

from __future__ import annotations

import pytest
from support.clocks import StoppedClock
from support.hostfakes import UID, FakeTable, Said

from profd.daemon.service.configuration import Configuration, JobRule
from profd.daemon.service.jobs import (
    DURATION,
    QUIET,
    QUIET_BELOW_CORES,
    QUIET_S,
    STOPPED,
    Activity,
    Jobs,
)
from profd.daemon.service.scanner import HostJob
from profd.daemon.store.records import Identity

TORCH = Configuration(rule=(JobRule("torch", torch=True, min_age_s=5),), most_per_user=9)


class Host:
    """Jobs of a made-up host."""

    def __init__(self, configuration: Configuration = TORCH) -> None:
        self.table, self.clock, self.said = FakeTable(), StoppedClock(), Said()
        self.jobs = Jobs(self.table, configuration, self.said, self.clock)

    def poll(self, after_s: float = 0.0, room: int = 9) -> list[HostJob]:
        self.clock.advance(after_s)
        return self.jobs.poll(room)

    def roots(self, after_s: float = 0.0, room: int = 9) -> list[int]:
        return [job.root.pid for job in self.poll(after_s, room)]


@pytest.fixture
def host() -> Host:
    return Host()


def test_a_training_is_begun_once_it_meets_a_rule_and_is_old_enough_and_no_more(host: Host) -> None:
    host.table.add(7)
    assert host.roots() == []
    host.table.add(7, torch=True, age_s=1.0)
    assert host.roots(2) == []
    host.table.add(7, torch=True, age_s=5.0)
    assert host.roots(3.9) == []
    assert host.roots(0.1) == [7]
    assert [host.roots(60) for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize("launcher", ["mpirun", "/usr/bin/mpiexec", ""])
def test_ranks_belong_to_their_launcher_and_workers_to_their_trainer(
    host: Host, launcher: str
) -> None:
    host.table.add(
        5, *(launcher, "-n", "2") if launcher else (), torch=not launcher, python=not launcher
    )
    if launcher:
        host.table.add(6, "bash", parent=5, python=False)
    for pid in (7, 8):
        host.table.add(pid, torch=True, parent=6 if launcher else 5)
    assert host.roots() == [5]


@pytest.mark.parametrize(
    ("command", "uid", "begun"),
    [
        (("python", "-m", "jupyter"), UID, [7]),
        (("mpirun",), UID + 1, [7]),
        (("python", "/usr/bin/profd", "run", "--", "python", "train.py"), UID, []),
    ],
    ids=["of a notebook", "of a launcher of another user", "of profd run, which records it"],
)
def test_a_training_is_its_own_job(
    host: Host, command: tuple[str, ...], uid: int, begun: list[int]
) -> None:
    host.table.add(5, *command, python=False, uid=uid)
    host.table.add(6, "bash", parent=5, python=False)
    host.table.add(7, torch=True, parent=6)
    assert host.roots() == begun


def test_what_somebody_records_is_left_until_that_ends(host: Host) -> None:
    host.table.add(7, torch=True)
    host.table.add(8, torch=True, parent=7)
    host.table.being_recorded = {8}
    assert host.roots() == []
    host.table.being_recorded = set()
    assert host.roots(9) == []
    assert host.roots(1) == [7]


def test_jobs_beyond_the_room_wait_and_are_logged_once(host: Host) -> None:
    for pid in (7, 8, 9):
        host.table.add(pid, torch=True)
    (first,) = host.poll(room=1)
    assert host.roots(2, room=0) == []
    assert host.said.events == ["waiting", "waiting"]
    host.jobs.end(first.root, "target-exited")
    host.table.remove(first.root.pid)
    assert len(host.roots(2, room=2)) == 2


def test_the_next_slice_begins_at_once_unless_the_job_was_stopped(host: Host) -> None:
    host.table.add(7, torch=True)
    for _ in range(2):
        (job,) = host.poll()
        host.jobs.end(job.root, DURATION)
    (job,) = host.poll()
    host.jobs.end(job.root, STOPPED)
    assert host.roots(600) == []


def test_what_was_cut_off_is_tried_again_later_each_time(host: Host) -> None:
    host.table.add(7, torch=True)
    waits = []
    for _ in range(9):
        (job,) = host.poll()
        host.jobs.fail(job.root)
        waits.append(
            next(second for second in range(2000) if host.roots(0 if second == 0 else 1) == [7])
        )
        host.jobs.end(job.root, DURATION)
    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600]


@pytest.mark.parametrize(
    ("ends", "seconds"), [(True, 1), (False, 5)], ids=["the slice ends", "it failed"]
)
def test_the_next_slice_begins_where_other_ranks_have_come_and_no_sooner(
    host: Host, ends: bool, seconds: int
) -> None:
    host.table.add(5, "mpirun", python=False)
    host.table.add(7, torch=True, parent=5)
    (job,) = host.poll()
    host.table.remove(7)
    host.table.add(8, torch=True, parent=5)
    if ends:
        assert host.roots(1) == []
        host.jobs.end(job.root, DURATION)
    else:
        host.jobs.fail(job.root)
    assert [host.roots(1) for _ in range(seconds)] == [[]] * (seconds - 1) + [[5]]


def test_the_job_of_another_user_is_left_to_that_users_supervisor_first(host: Host) -> None:
    host.table.add(7, torch=True, age_s=5.0, uid=UID + 1)
    assert host.roots() == []
    host.table.add(7, torch=True, age_s=8.0, uid=UID + 1)
    assert host.roots(3) == [7]


def test_a_pid_that_is_used_again_is_another_job(host: Host) -> None:
    host.table.add(7, torch=True)
    (job,) = host.poll()
    host.table.remove(7)
    host.jobs.end(job.root, "target-exited")
    host.poll(1)
    host.table.add(7, torch=True)
    assert host.roots(1) == [7]


def test_users_take_turns_where_there_is_not_room_for_all_and_nobody_has_more_than_one_may(
    host: Host,
) -> None:
    for pid in (7, 8, 9):
        host.table.add(pid, torch=True)
    host.table.add(20, torch=True, uid=UID + 1)
    assert host.roots(room=2) == [7, 20]
    assert host.jobs.is_any_waiting
    host.jobs.configuration = Configuration(rule=TORCH.rule, most_per_user=2)
    assert host.roots(60) == [8]
    assert not host.jobs.is_any_waiting  # whose place another could give up would not help
    assert host.roots(60) == []
    host.jobs.end(host.table.programs[7].identity, STOPPED)
    assert host.roots(60) == [9]


def test_a_job_that_was_let_go_as_it_is_quiet_comes_back_when_it_computes(host: Host) -> None:
    host.table.add(7, torch=True)
    (job,) = host.poll()
    for _ in range(10):
        host.table.cpu[7] = host.table.cpu.get(7, 0.0) + 0.1  # a kernel that listens
        host.poll(QUIET_S / 8)
    assert host.jobs.quietest() == job.root
    host.jobs.end(job.root, QUIET)
    assert [host.roots(60) for _ in range(3)] == [[]] * 3
    host.table.cpu[7] += 50.0
    assert host.roots(60) == [7]
    assert host.jobs.quietest() is None


ROOT = Identity(7, 70)


def test_a_job_is_quiet_from_the_last_look_on_that_found_it_busy() -> None:
    table, clock = FakeTable(), StoppedClock()
    activity = Activity(table, clock)
    assert activity.quiet_s(ROOT) == 0
    activity.look([ROOT])
    for more_s, quiet_s in (
        (30.0, 0),
        (0.0, 60),
        (QUIET_BELOW_CORES * 59, 120),
        (QUIET_BELOW_CORES * 61, 0),
    ):
        table.cpu[7] = table.cpu.get(7, 0.0) + more_s
        clock.advance(60)
        for _ in range(2):  # the second time it was looked at lately
            activity.look([ROOT])
        assert activity.quiet_s(ROOT) == quiet_s
    table.cpu[7] = 1.0  # processes that end take their time with them, and make nobody busy
    clock.advance(60)
    activity.look([ROOT])
    assert activity.quiet_s(ROOT) == 60
    activity.look([])
    assert activity.quiet_s(ROOT) == 0
