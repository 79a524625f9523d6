"""What the analyst says of a run: of its last part while it is live, of all of it at its end, and
how seldom.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sized
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from support.beginnings import beginning_of
from support.dashboard import train_backward
from support.findingruns import (
    CALL,
    ENCODE,
    HEALTHY,
    IMPORT,
    LOAD_IN_PROCESS,
    Spans,
    look,
    step,
    write_case,
)
from support.present import there
from support.synthetic import COMMAND, MAIN, MAIN_TID, LiveRun, live_run, recording
from support.training_stacks import DATA, DATA_WAIT
from support.waiting import DEADLINE_S

from profd.daemon import processes
from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.trend import LEAST_SPAN_S
from profd.daemon.api.wholerun import look_at_end
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings import analyst as analyzing
from profd.daemon.findings.analyst import (
    EVERY_S,
    FORGOTTEN_NS,
    RECENT_NS,
    SHARE,
    SHARE_OF_THE_RUN,
    UNREAD_S,
    Analyst,
    SessionOrders,
    is_over,
)
from profd.daemon.findings.catalog import find, findings_in
from profd.daemon.findings.finding import Finding, Measure
from profd.daemon.session import analyst
from profd.daemon.store.bound import MemoryBound
from profd.daemon.store.entities import Entities
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    FindingsTaken,
    Frame,
    Identity,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
)
from profd.daemon.store.rows import ProcessRow

pytestmark = pytest.mark.by_user  # it is a process of its own, and gives up its rights

SPINS = """
import sys
from profd.daemon.findings import analyst
def look(path):
    sys.stdout.write("looks\\n")
    sys.stdout.flush()
    while True: pass
analyst.main(look)
"""


class Meter:
    """A clock, and the CPU time that every question costs."""

    def __init__(self, cost_s: float) -> None:
        self.now_s = 100.0
        self._cost_s = cost_s
        self._spent_s = 0.0

    def now(self) -> float:
        return self.now_s

    def spent(self) -> float:
        self._spent_s += self._cost_s
        return self._spent_s


def rules(taken: FindingsTaken) -> list[str]:
    return [one.rule for one in taken.findings]


def lines(out: bytes) -> list[FindingsTaken]:
    return [msgspec.json.decode(line, type=FindingsTaken) for line in out.splitlines()]


def test_it_comes_before_its_session_when_memory_ends_and_has_no_rights_before_it_reads_a_run(
    tmp_path: Path,
) -> None:
    steps = ("processes.volunteer", "rights.drop", "store.reader.RunReader")
    begun = beginning_of("api.wholerun", *steps, words=(str(tmp_path / "a.profd"),))
    assert [begun[0], begun[1].partition("(")[0], begun[2]] == [
        "volunteer(100,)",
        "drop",
        "RunReader",
    ]


def test_a_finding_comes_with_its_cause_and_goes_after_its_end(tmp_path: Path) -> None:
    recent_s = RECENT_NS // SECOND_NS
    with live_run(tmp_path / "a.profd", seconds=0, workers=2) as run, RunReader(run.path) as reader:
        found = Analyst(reader)

        def seen() -> list[str]:
            run.advance(0)
            return rules(found.look())

        train_backward(run, 20)
        assert "input-bound-saturated" not in seen()
        run.advance(20)  # it waits for data for more than half of each of these steps
        assert "input-bound-saturated" in seen()
        train_backward(run, recent_s // 2)
        assert "input-bound-saturated" in seen()
        train_backward(run, recent_s // 2 + 1)
        assert "input-bound-saturated" not in seen()


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([step((LOAD_IN_PROCESS, 300))] * 60 + [HEALTHY] * 60, ["input-bound-in-process"]),
        ([((IMPORT, 500),)], []),
    ],
    ids=["what was slow a minute before the end counts too", "no training"],
)
def test_an_ended_run_is_looked_at_as_a_whole(
    tmp_path: Path, steps: list[Spans], found: list[str]
) -> None:
    taken = look(write_case(tmp_path / "a.profd", *steps, seconds=120))
    assert rules(taken) == found
    assert taken.made_by


@pytest.mark.parametrize(("cost_s", "rest_s"), [(0.001, EVERY_S), (0.5, 0.5 / SHARE - 0.5)])
def test_a_dear_look_puts_off_the_next_but_the_first_none(
    tmp_path: Path, cost_s: float, rest_s: float
) -> None:
    meter = Meter(cost_s)
    with live_run(tmp_path / "a.profd", seconds=20) as run, RunReader(run.path) as reader:
        looking = Analyst(reader, meter.now, meter.spent)
        looking.look()
        assert looking.rest_s == EVERY_S
        looking.look()
        assert looking.rest_s == pytest.approx(rest_s)


def test_what_looks_at_all_of_the_run_rests_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter, looks = Meter(0.1), 0

    def rule(case: object) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(analyzing, "OF_THE_RUN", (rule,))
    with live_run(tmp_path / "a.profd", seconds=20) as run, RunReader(run.path) as reader:
        looking = Analyst(reader, meter.now, meter.spent)
        for ahead_s in (0.0, 0.1 / SHARE_OF_THE_RUN - 1, 2):
            meter.now_s += ahead_s
            looking.look()
    assert looks == 2


def test_memory_that_grows_is_found_in_a_live_run_and_still_is_at_the_next_look(
    tmp_path: Path,
) -> None:
    with live_run(tmp_path / "a.profd", seconds=70) as run, RunReader(run.path) as reader:
        looking = Analyst(reader, lambda: 0.0)
        assert "memory-growth" in rules(looking.look())
        assert "memory-growth" in rules(looking.look())


def test_a_steady_run_is_described_in_the_same_words_until_its_evidence_moves(
    tmp_path: Path,
) -> None:
    """Ten minutes of steps that snapshot for a third of the time, one longer than the other; then
    more and less of it by turns, and at two lines, as beside other work; then half of it.
    """
    drawn, said = random.Random(7), list[Finding]()
    with live_run(tmp_path / "a.profd", seconds=0, workers=0) as run, RunReader(run.path) as reader:
        looking = Analyst(reader)

        def train(seconds: int, share: float, stack: tuple[Frame, ...] = ENCODE) -> None:
            for second in range(seconds):
                start_ns = run.started_ns + run.seconds * SECOND_NS
                steps = [step((stack, round(500 * share * drawn.uniform(0.4, 1.6))))] * 2
                spans = tuple(span for one in steps for span in one)
                thread = (MAIN_TID, "MainThread", True, spans)
                assert run.writer.put(recording(MAIN, start_ns, (thread,)))
                run.seconds += 1
                if not second % 8:
                    run.advance(0)
                    found = looking.look().findings
                    said.extend(msgspec.json.decode(one.report, type=Finding) for one in found)

        train(600, 1 / 3)
        steady, measured = said[15:], {one.measured for one in said}
        changes = sum(one.title != other.title for one, other in pairwise(steady))
        assert (changes <= 1, len(measured) > 50) == (True, True)
        other = (*CALL, Frame("snapshot", DATA, 13), *ENCODE[-2:])
        for share in (0.2, 0.5) * 4:
            train(32, share)
        for stack in (other, ENCODE) * 4:
            train(16, 1 / 3, stack)
        assert max(one.measured for one in said) > 0.4
        assert {one.title for one in said[75:]} == {steady[-1].title}
        train(100, 1 / 3, other)
        assert there(said[-1].evidence.line).line == 13
        train(100, 1 / 2, other)
        assert [one.rule for one in said] == ["overhead"] * len(said)
        assert said[-1].title != steady[-1].title
        assert said[-1].measured == pytest.approx(1 / 2, abs=0.1)


@pytest.mark.parametrize(
    ("now", "agrees"),
    [
        (Measure("a", 0.35, low=0.3, high=0.4), True),
        (Measure("a", 0.25, low=0.2, high=0.3), True),
        (Measure("a", 0.45, low=0.41, high=0.5), False),
        (Measure("a", 0.35, low=0.33, high=0.37), False),  # the same, but much surer
        (Measure("a", 0.36), True),
        (Measure("a", 0.43), False),
    ],
)
def test_a_number_agrees_with_what_was_told_if_it_may_be_the_same(
    now: Measure, agrees: bool
) -> None:
    assert now.agrees(Measure("a", 0.35, low=0.3, high=0.4)) == agrees


def test_each_look_is_a_line_and_the_one_at_all_of_the_run_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rests, trims, bounds = io.BytesIO(), list[float](), list[int](), list[int]()
    monkeypatch.setattr(processes, "trim_heap", lambda: trims.append(len(rests)))
    renew = MemoryBound.renew

    def renewed(bound: MemoryBound) -> None:
        bounds.append(len(rests))
        renew(bound)

    monkeypatch.setattr(MemoryBound, "renew", renewed)
    with live_run(tmp_path / "a.profd", seconds=20) as run:

        def rest(seconds: float) -> bool:
            rests.append(seconds)
            if len(rests) == 3:
                run.end()
            return len(rests) == 3

        analyzing.watch(run.path, out, rest, look_at_end)
    said = lines(out.getvalue())
    assert [rules(one) for one in said] == [["input-bound-saturated"]] * 4
    assert [one.made_by is None for one in said] == [True, True, True, False]
    assert (said[0].findings[0].title.split(":")[0], said[0].at_ns) == (
        "input-bound",
        run.started_ns + 20 * SECOND_NS,
    )
    assert min(rests) >= EVERY_S
    assert trims == [0, 1, 2]  # before each rest
    assert bounds == [0, 0, 1, 2, 3]  # at first, and by the size that the run has at each look


def test_a_run_of_ever_new_stacks_is_looked_at_without_holding_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profd.daemon.analyze.phases.MOST_STACKS", 30)
    path, held = tmp_path / "a.profd", list[int]()
    with live_run(path, seconds=0, workers=0) as run, RunReader(path, Entities(is_over)) as reader:
        found = Analyst(reader)
        for number in range(6):
            train_backward(run, RECENT_NS // SECOND_NS + 1)
            new = tuple(
                (Frame(f"f{number}_{depth}", "/work/new.py", depth + 1),) for depth in range(20)
            )
            at_ns = run.started_ns + run.seconds * SECOND_NS - 1
            threads = [(MAIN_TID, "MainThread", True, tuple((frames, 1) for frames in new))]
            run.writer.put(recording(MAIN, at_ns, threads))
            run.advance(1)
            taken = found.look()
            held.append(len(reader.stacks))
        with RunReader(path) as whole:
            recent = Selection(from_ns=whole.info.end_ns - RECENT_NS, main_threads=True)
            whole_found = find(whole, recent, PhaseIndex(whole), analyzing._OF_THE_MOMENT)
            assert max(held) < len(whole.stacks)
    assert held[0] == held[1] == held[-1]
    assert rules(taken) == [one.rule for one in whole_found]


def pass_workers(run: LiveRun, first: int, count: int) -> None:
    """Have workers come, be sampled and read, and go, each after a second."""
    for number in range(first, first + count):
        own, at_ns = (
            Identity(9000 + number, 9000 + number),
            run.started_ns + run.seconds * SECOND_NS,
        )
        run.writer.put(ProcessSeen(own, MAIN, COMMAND, "worker", None, number, "3.11.7", at_ns))
        run.writer.put(
            recording(own, at_ns, ((own.pid, "MainThread", True, ((DATA_WAIT, 1000),)),))
        )
        run.writer.put(
            PointsTaken(
                at_ns + 1, (Point("rss_bytes", 3e8, own), Point("cpu_cores", 1.0, own, own.pid))
            )
        )
        run.writer.put(ProcessEnded(own, at_ns + SECOND_NS))


def test_workers_that_ended_leave_nothing_behind_and_count_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[RunReader] = []
    held: list[tuple[int, ...]] = []
    workers: list[int] = []

    def look_at(reader: RunReader) -> Analyst:
        readers.append(reader)
        return Analyst(reader)

    def find_in(reader: RunReader, selection: Selection, phases: PhaseIndex) -> tuple[Finding, ...]:
        workers.append(len([row for row in reader.processes.values() if row.role == "worker"]))
        return findings_in(reader, selection, phases)

    def rest(_: float) -> bool:
        (reader,) = readers
        assert reader.value(int, "PRAGMA cache_size") == -400
        tables: tuple[Sized, ...] = (reader.processes, reader.threads, reader.list_series())
        held.append((*(len(table) for table in tables), len(take_lives(reader).covers)))
        if len(held) == 3:
            run.end()
            return True
        pass_workers(run, first=5 * len(held), count=5)
        run.advance(FORGOTTEN_NS // SECOND_NS + 2)
        return False

    monkeypatch.setattr(analyzing, "Analyst", look_at)
    monkeypatch.setattr(analyzing, "findings_in", find_in)
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        analyzing.watch(run.path, io.BytesIO(), rest, look_at_end)
    assert held[0] == held[1] == held[2]
    assert workers == [2 + 10]


LONG_AGO_S, LONG_S = -FORGOTTEN_NS / SECOND_NS - 1, LEAST_SPAN_S


@pytest.mark.parametrize(
    ("role", "lived_s", "ended_s", "is_forgotten"),
    [
        ("worker", 1, LONG_AGO_S, True),
        ("helper", 1, LONG_AGO_S, True),
        ("worker", 1, None, False),
        ("worker", 1, -RECENT_NS / SECOND_NS, False),
        (
            "worker",
            LONG_S,
            LONG_AGO_S,
            False,
        ),  # it may have grown, and that counts as long as the run goes on
        ("main", 1, LONG_AGO_S, False),
    ],
)
def test_what_a_rule_may_ask_for_is_kept(
    role: str, lived_s: float, ended_s: float | None, is_forgotten: bool
) -> None:
    now_ns = 10**18
    ended_ns = None if ended_s is None else now_ns + round(ended_s * SECOND_NS)
    seen_ns = (ended_ns or now_ns) - round(lived_s * SECOND_NS)
    row = ProcessRow(1, 2, 3, None, (), role, None, None, None, seen_ns, ended_ns, None, None)
    assert is_over(row, now_ns) == is_forgotten


class Waits(contextlib.nullcontext[None]):
    """A condition that is never met while it is waited for: notes for how long it would be."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s: list[float] = []

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> None:
        self.waited_s += [] if predicate() else [timeout]

    def notify(self) -> None:
        pass


def test_looks_are_seldom_while_nobody_reads_them_but_leave_no_moment_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders, waits = SessionOrders(), Waits()
    monkeypatch.setattr(orders, "_said", waits)
    assert not orders.rest(EVERY_S)
    assert waits.waited_s == [EVERY_S, UNREAD_S - EVERY_S]
    assert EVERY_S < UNREAD_S < RECENT_NS / SECOND_NS


@pytest.mark.parametrize(
    ("said", "is_ending", "waited_s"),
    [(b"r", False, [EVERY_S]), (b"\n", True, []), (b"r\n", True, [])],
)
def test_an_order_ends_the_rest_and_only_the_end_ends_all_of_it(
    monkeypatch: pytest.MonkeyPatch, said: bytes, is_ending: bool, waited_s: list[float]
) -> None:
    orders, waits = SessionOrders(), Waits()
    monkeypatch.setattr(orders, "_said", waits)
    read_end, write_end = os.pipe()
    os.write(write_end, said)
    os.close(write_end)
    orders.listen(read_end)
    os.close(read_end)
    assert orders.rest(EVERY_S) == is_ending
    assert waits.waited_s == waited_s
    waits.waited_s.clear()
    if not is_ending:  # it was for one look
        orders.rest(EVERY_S)
        assert waits.waited_s == [EVERY_S, UNREAD_S - EVERY_S]


def test_the_process_looks_at_once_at_a_run_that_has_ended(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 300)), seconds=60)
    with subprocess.Popen(
        analyst.command(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        (taken,) = lines(there(process.stdout).read())
        assert process.wait(DEADLINE_S) == 0
    assert rules(taken) == ["input-bound-in-process"]


def test_the_process_ends_with_its_stdin_in_the_midst_of_a_look(tmp_path: Path) -> None:
    pipe, path = subprocess.PIPE, write_case(tmp_path / "a.profd", HEALTHY)
    with subprocess.Popen(
        [sys.executable, "-c", SPINS, os.fspath(path)], stdin=pipe, stdout=pipe
    ) as process:
        try:
            assert there(process.stdout).readline() == b"looks\n"
            there(process.stdin).close()
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    words = analyst.command(tmp_path / "none.profd")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert b"none.profd" in there(process.stderr).read()
        assert process.wait(DEADLINE_S) != 0
