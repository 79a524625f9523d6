"""Disks that fill, folders that vanish, processes that are stopped or many: the recording ends in words or goes on."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from sessions import begin_session, running
from watching import DEADLINE_S, recorded_until_ns, states_while_running, wait_until

from profd.daemon import paths, processes
from profd.daemon.store.reader import RunReader
from profd.daemon.supervise.control import ControlClient
from profd.daemon.supervise.session import RunningSession

MANY = 500
SMALL_DISK = 4 << 20


class Scene(NamedTuple):
    """A target that counts into a file, and a session that records it."""

    target: int
    numbers: Path
    session: RunningSession

    def goes_on(self) -> None:
        """Check that the target was not left stopped, and that it counts on."""
        before = self.numbers.stat().st_size
        wait_until(lambda: self.numbers.stat().st_size > before, "counting on")
        stat = processes.read_stat(self.target)
        assert stat is not None
        assert stat.state not in "Tt"

    def log(self) -> str:
        """Return what the session said on stderr."""
        return (paths.runtime_folder() / f"{self.session.run_file.stem}.log").read_text()

    def end(self) -> RunReader:
        """End the recording as a user does and return the run."""
        ControlClient(self.session.control_socket).stop()
        assert self.session.wait_closed(DEADLINE_S)
        return RunReader(self.session.run_file)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    numbers = tmp_path / "numbers"
    with running("counting.py", numbers) as target:
        session = begin_session(target.pid)
        wait_until(lambda: recorded_until_ns(session.run_file) > 0, "a first recording")
        yield Scene(target.pid, numbers, session)


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a disk of four megabytes that is profd's home."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", folder], check=True)
    monkeypatch.setenv("PROFD_HOME", os.fspath(folder))
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_ends_the_recording_and_is_said(scene: Scene) -> None:
    # No file of the session may grow any more: the kernel refuses it as it does on a full disk.
    resource.prlimit(scene.session.pid, resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
    wait_until(lambda: not scene.session.is_running(), "the end of the session")
    assert "is cut off" in scene.log()
    assert "make room" in scene.log()
    assert "Traceback" not in scene.log()
    scene.goes_on()
    with RunReader(scene.session.run_file) as reader:
        assert reader.info.state == "interrupted"
        assert reader.recordings()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_a_disk_that_others_fill_ends_the_recording_and_what_was_recorded_is_kept(small_disk: Path) -> None:
    with running("counting.py", numbers := small_disk.with_name("numbers")) as target:
        scene = Scene(target.pid, numbers, begin_session(target.pid))
        wait_until(lambda: recorded_until_ns(scene.session.run_file) > 0, "a first recording")

        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(SMALL_DISK))
        wait_until(lambda: not scene.session.is_running(), "the end of the session")
        assert "Traceback" not in scene.log()
        scene.goes_on()
        with RunReader(scene.session.run_file) as reader:
            assert reader.info.state == "interrupted"
            assert reader.recordings()


def test_a_folder_that_vanishes_ends_the_recording_and_is_said(scene: Scene) -> None:
    shutil.rmtree(scene.session.run_file.parent)
    wait_until(lambda: not scene.session.is_running(), "the end of the session")
    assert f"{scene.session.run_file} was removed" in scene.log()
    assert "Traceback" not in scene.log()
    scene.goes_on()


def test_a_target_that_is_stopped_stays_so_and_is_recorded_when_it_goes_on(scene: Scene) -> None:
    os.kill(scene.target, signal.SIGSTOP)
    wait_until(lambda: state_of(scene.target) == "T", "the stop")
    stopped_ns = time.time_ns()
    wait_until(lambda: recorded_until_ns(scene.session.run_file) > stopped_ns, "a recording of the stopped target")
    assert state_of(scene.target) == "T"  # it is not ours to wake
    os.kill(scene.target, signal.SIGCONT)
    scene.goes_on()
    awake_ns = time.time_ns()
    wait_until(lambda: recorded_until_ns(scene.session.run_file) > awake_ns, "a recording after the stop")
    with scene.end() as reader:
        assert reader.info.state == "ended"
        assert not [event.text for event in reader.events() if event.kind == "error"]


def test_a_session_that_is_stopped_leaves_the_target_alone_and_goes_on_later(scene: Scene) -> None:
    os.kill(scene.session.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(scene.session.pid) == "T", "the stop")
    with running("counting.py", scene.numbers.with_name("other")) as clock:
        assert states_while_running(clock, 6.0).isdisjoint("Tt")
        scene.goes_on()
    os.kill(scene.session.pid, signal.SIGCONT)
    awake_ns = time.time_ns()
    wait_until(lambda: recorded_until_ns(scene.session.run_file) > awake_ns, "a recording after the stop")
    with scene.end() as reader:
        assert reader.info.state == "ended"


def test_many_processes_are_all_told_and_may_all_become_another_program(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    with running("family.py", numbers, str(MANY)) as target:
        session = begin_session(target.pid)
        scene = Scene(target.pid, numbers, session)
        wait_until(lambda: processes_of(session) > MANY, "a look at all of them")
        scene.goes_on()
        assert target.stdin is not None
        target.stdin.write("go on\n")
        target.stdin.flush()
        wait_until(lambda: became(session) == MANY, "their becoming another program")
        scene.goes_on()
        with scene.end() as reader:
            assert len(reader.processes) == MANY + 1
            assert not [event.text for event in reader.events() if event.kind in ("error", "loss")]


def state_of(pid: int) -> str:
    stat = processes.read_stat(pid)
    return stat.state if stat else "gone"


def processes_of(session: RunningSession) -> int:
    with RunReader(session.run_file) as reader:
        return len(reader.processes)


def became(session: RunningSession) -> int:
    """Return how often a process is told to have become another program."""
    with RunReader(session.run_file) as reader:
        return sum(event.kind == "exec" for event in reader.events())
