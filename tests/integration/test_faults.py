"""Disks that fill, folders that vanish, processes that are stopped or many: the recording ends in
words or goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.launches import state
from support.pyspy.standin import StandIn
from support.sessions import (
    begin_session,
    counts_on,
    finished,
    give_line,
    hand_over,
    hurry_until,
    running,
    seen,
)
from support.waiting import until

from profd.daemon import paths, processes
from profd.daemon.events import EventKind
from profd.daemon.session.session import RunningSession
from profd.daemon.store.reader import RunReader

MANY = 500
SMALL_DISK = 16 << 20


class Scene(NamedTuple):
    """A target that counts into a file, and a session that records it."""

    target: int
    numbers: Path
    session: RunningSession

    def goes_on(self) -> None:
        """Check that the target was not left stopped, and that it counts on."""
        counts_on(self.target, self.numbers)

    @property
    def log_file(self) -> Path:
        """Where the session says what it has to say."""
        return paths.runtime_folder() / f"{self.session.run_file.stem}.log"

    def log(self) -> str:
        return self.log_file.read_text()


@pytest.fixture
def scene(tmp_path: Path, py_spy: StandIn) -> Iterator[Scene]:
    numbers = tmp_path / "numbers"
    with running("counting.py", numbers) as target:
        session = begin_session(target.pid)
        hand_over(session.run_file)
        yield Scene(target.pid, numbers, session)


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a disk of sixteen megabytes that is profd's home."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", folder], check=True
    )
    monkeypatch.setenv("PROFD_HOME", os.fspath(folder))
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_takes_no_more_to_the_end_cuts_the_run_off_and_is_said(scene: Scene) -> None:
    resource.prlimit(scene.session.pid, resource.RLIMIT_FSIZE, (1 << 14, resource.RLIM_INFINITY))
    until(lambda: "could not be written" in scene.log(), "the session to meet it")
    scene.session.end()
    until(lambda: not scene.session.is_running(), "the end of the session")
    assert "is cut off" in scene.log()
    assert "make room" in scene.log()
    assert "Traceback" not in scene.log()
    scene.goes_on()
    with RunReader(scene.session.run_file) as reader:
        assert reader.info.state == "interrupted"
        assert reader.recordings()


@pytest.mark.requires("root")  # which can mount a disk
@pytest.mark.usefixtures("py_spy")
def test_a_disk_that_others_fill_pauses_the_recording_until_there_is_room(small_disk: Path) -> None:
    with running("counting.py", numbers := small_disk.with_name("numbers")) as target:
        scene = Scene(target.pid, numbers, begin_session(target.pid))
        hand_over(scene.session.run_file)

        with scene.log_file.open("a") as log:
            log.write(
                "The disk is filled.\n"
            )  # it lies there too: what has a page already finds room for more lines
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(SMALL_DISK))
        # It may see that there is no room before a write fails, and write that where the file has
        # room for a line.
        until(
            lambda: "could not be written" in scene.log() or seen(scene.session, pauses),
            "the session to meet it",
        )
        assert "Traceback" not in scene.log()
        scene.goes_on()
        filler.unlink()
        hand_over(scene.session.run_file)
        with finished(scene.session) as reader:
            assert reader.info.state == "ended"


def test_a_target_that_is_stopped_stays_so_and_is_recorded_when_it_goes_on(scene: Scene) -> None:
    os.kill(scene.target, signal.SIGSTOP)
    until(lambda: state(scene.target) == "T", "the stop")
    hand_over(scene.session.run_file, 2)  # the first of them began before
    assert state(scene.target) == "T"  # it is not ours to wake
    os.kill(scene.target, signal.SIGCONT)
    scene.goes_on()
    hand_over(scene.session.run_file, 2)
    with finished(scene.session) as reader:
        assert reader.info.state == "ended"
        assert not [event.text for event in reader.events() if event.kind == EventKind.ERROR]


def test_a_session_that_is_stopped_leaves_the_target_alone_and_goes_on_later(
    scene: Scene, py_spy: StandIn
) -> None:
    os.kill(scene.session.pid, signal.SIGSTOP)
    until(lambda: state(scene.session.pid) == "T", "the stop")
    in_flight = py_spy.events("sampling", target=scene.target)[-1]
    with contextlib.suppress(ProcessLookupError):
        os.kill(
            in_flight.pid, signal.SIGINT
        )  # as the end of its duration has it, ten seconds later
    until(
        lambda: py_spy.events("wrote", target=scene.target)[-1].number == in_flight.number,
        "the end of py-spy",
    )
    scene.goes_on()
    os.kill(scene.session.pid, signal.SIGCONT)
    hand_over(scene.session.run_file, 2)
    with finished(scene.session) as reader:
        assert reader.info.state == "ended"


@pytest.mark.usefixtures("py_spy")
def test_many_processes_are_all_recorded_and_may_all_change_their_program(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    with running("counting.py", numbers, str(MANY)) as target:
        session = begin_session(target.pid)
        scene = Scene(target.pid, numbers, session)
        until(
            lambda: seen(session, lambda reader: len(reader.processes)) > MANY,
            "a look at all of them",
        )
        scene.goes_on()
        give_line(target)
        until(lambda: seen(session, became) == MANY, "their becoming another program")
        scene.goes_on()
        with finished(scene.session) as reader:
            assert len(reader.processes) == MANY + 1
            assert not [event.text for event in reader.events() if event.kind in ("error", "loss")]


def pauses(reader: RunReader) -> bool:
    return any("samples and readings pause" in event.text for event in reader.events())


def became(reader: RunReader) -> int:
    """Return how many events say that a process became another program."""
    return sum(event.kind == EventKind.EXEC for event in reader.events())


def test_long_lived_processes_are_sampled_while_others_come_and_go(py_spy: StandIn) -> None:
    with running("churning.py") as program:
        stay = processes.children(program.pid)
        session = begin_session(program.pid)
        hand_over(session.run_file)
        came = [next_child(program, session) for _ in range(8)]
        hurry_until(
            session.run_file,
            lambda: all(py_spy.events("wrote", target=pid) for pid in stay),
            "a recording of each that stays",
        )
        with finished(session) as reader:
            known = {process.pid: process for process in reader.processes.values()}
            recorded = {row.process for row in reader.recordings()}
            assert [
                event.text for event in reader.events() if event.kind in ("error", "loss")
            ] == []
    assert len(stay) == 2
    assert {known[pid].id for pid in (program.pid, *stay)} <= recorded
    assert [pid for pid in came[:-1] if known[pid].ended_ns is None] == []
    assert has_no_gap(py_spy, program.pid)


def has_no_gap(py_spy: StandIn, pid: int) -> bool:
    """Say whether each recording of a process sampled before the one before it was ended."""
    order = [(one.event, one.number) for one in py_spy.events(target=pid)]
    numbers = [number for event, number in order if event == "sampling"]
    pairs = list(itertools.pairwise(numbers))
    return pairs != [] and all(
        order.index(("sampling", b)) < order.index(("ending", a)) for a, b in pairs
    )


def next_child(program: subprocess.Popen[str], session: RunningSession) -> int:
    """Have the next child come and the last one go, and wait until the session knows of both."""
    assert program.stdout is not None
    give_line(program)
    pid = int(program.stdout.readline())
    until(
        lambda: pid in seen(session, lambda reader: [row.pid for row in reader.processes.values()]),
        f"a look at {pid}",
    )
    return pid
