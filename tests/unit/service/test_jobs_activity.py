"""How busy jobs are: by what their processes use of the CPU between looks."""

from __future__ import annotations

from support.clocks import StoppedClock
from support.hostfakes import FakeTable

from profd.daemon.service.jobs import QUIET_BELOW_CORES, Activity
from profd.daemon.store.records import Identity

ROOT = Identity(7, 70)


def test_a_job_is_quiet_from_the_last_look_on_that_found_it_busy() -> None:
    table, clock = FakeTable(), StoppedClock()
    activity = Activity(table, clock)
    assert activity.quiet_s(ROOT) == 0
    activity.look([ROOT])
    for more_s, quiet_s in ((30.0, 0), (0.0, 60), (QUIET_BELOW_CORES * 59, 120), (QUIET_BELOW_CORES * 61, 0)):
        table.cpu[7] = table.cpu.get(7, 0.0) + more_s
        clock.advance(60)
        activity.look([ROOT])
        assert activity.quiet_s(ROOT) == quiet_s


def test_processes_that_end_take_their_time_with_them_and_make_nobody_busy() -> None:
    table, clock = FakeTable(), StoppedClock()
    activity = Activity(table, clock)
    table.cpu[7] = 100.0
    activity.look([ROOT])
    table.cpu[7] = 1.0
    clock.advance(60)
    activity.look([ROOT])
    assert activity.quiet_s(ROOT) == 60


def test_who_is_no_longer_asked_about_is_forgotten() -> None:
    table, clock = FakeTable(), StoppedClock()
    activity = Activity(table, clock)
    activity.look([ROOT])
    clock.advance(60)
    activity.look([ROOT])
    activity.look([])
    assert activity.quiet_s(ROOT) == 0
