"""When each process of the host is looked at, on a clock that a test moves."""

from __future__ import annotations

import itertools

from support.clocks import StoppedClock
from support.hostfakes import FakeTable

from profd.daemon.service.processes import ProcessScanner


def looks_of(table: FakeTable, scanner: ProcessScanner, clock: StoppedClock, seconds: int) -> list[int]:
    """Return at which of the following seconds anybody was looked at."""
    found = []
    for second in range(seconds):
        table.looks.clear()
        scanner.poll()
        if table.looks:
            found.append(second)
        clock.advance(1)
    return found


def test_a_process_is_looked_at_the_less_often_the_older_it_grows() -> None:
    table, clock = FakeTable(), StoppedClock()
    table.add(7)
    seconds = looks_of(table, ProcessScanner(table, clock), clock, 600)
    assert seconds[:6] == [0, 1, 2, 3, 5, 8]
    assert max(later - sooner for sooner, later in itertools.pairwise(seconds)) == 60
    assert len(seconds) < 25


def test_a_process_that_is_old_already_is_looked_at_seldom_from_the_start() -> None:
    table, clock = FakeTable(), StoppedClock()
    table.add(7)
    table.ages[7] = 5000.0
    assert looks_of(table, ProcessScanner(table, clock), clock, 300) == [0, 60, 120, 180, 240]


def test_new_processes_are_found_at_the_next_look() -> None:
    table, clock = FakeTable(), StoppedClock()
    scanner = ProcessScanner(table, clock)
    assert scanner.poll() == []
    table.add(7)
    assert [subject.identity.pid for subject in scanner.poll()] == [7]


def test_only_python_is_told() -> None:
    table = FakeTable()
    table.add(7, "bash", python=False)
    assert ProcessScanner(table, StoppedClock()).poll() == []


def test_who_is_settled_is_looked_at_again_only_when_asked_for() -> None:
    table, clock = FakeTable(), StoppedClock()
    table.add(7)
    scanner = ProcessScanner(table, clock)
    scanner.poll()
    scanner.settle(7)
    assert looks_of(table, scanner, clock, 300) == []
    scanner.look_again(7, 5.0)
    assert looks_of(table, scanner, clock, 6) == [5]


def test_a_pid_that_is_used_again_is_looked_at_as_new() -> None:
    table, clock = FakeTable(), StoppedClock()
    table.add(7)
    scanner = ProcessScanner(table, clock)
    scanner.poll()
    scanner.settle(7)
    table.remove(7)
    scanner.poll()
    table.add(7)
    assert len(scanner.poll()) == 1
