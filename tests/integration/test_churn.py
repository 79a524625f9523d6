"""Processes that come and go keep nobody else from being sampled.

How much is covered while many do so every second is measured by ``benchmarks/churn.py``.
"""

from __future__ import annotations

import itertools
import subprocess

from support.pyspy.standin import StandIn
from support.sessions import begin_session, finished, give_line, hand_over, hurry_until, running, seen
from support.waiting import until

from profd.daemon import processes
from profd.daemon.session.session import RunningSession

CHILDREN = 8


def test_who_stays_is_sampled_while_others_come_and_go(py_spy: StandIn) -> None:
    with running("churning.py") as program:
        stay = processes.children(program.pid)
        session = begin_session(program.pid)
        hand_over(session.run_file)
        came = [next_child(program, session) for _ in range(CHILDREN)]
        hurry_until(
            session.run_file,
            lambda: all(py_spy.events("wrote", target=pid) for pid in stay),
            "a recording of each that stays",
        )
        with finished(session) as reader:
            known = {process.pid: process for process in reader.processes.values()}
            recorded = {row.process for row in reader.recordings()}
            assert [event.text for event in reader.events() if event.kind in ("error", "loss")] == []
    assert len(stay) == 2
    assert {known[pid].id for pid in (program.pid, *stay)} <= recorded
    assert [pid for pid in came[:-1] if known[pid].ended_ns is None] == []
    assert has_no_gap(py_spy, program.pid)


def has_no_gap(py_spy: StandIn, pid: int) -> bool:
    """Say whether each recording of a process sampled before the one before it was ended."""
    order = [(one.event, one.number) for one in py_spy.events(target=pid)]
    numbers = [number for event, number in order if event == "sampling"]
    pairs = list(itertools.pairwise(numbers))
    return pairs != [] and all(order.index(("sampling", b)) < order.index(("ending", a)) for a, b in pairs)


def next_child(program: subprocess.Popen[str], session: RunningSession) -> int:
    """Have the next child come and the last one go, and wait until the session knows of both."""
    assert program.stdout is not None
    give_line(program)
    pid = int(program.stdout.readline())
    until(
        lambda: pid in seen(session, lambda reader: [row.pid for row in reader.processes.values()]), f"a look at {pid}"
    )
    return pid
