"""Kill -9 of profd hurts neither the target nor the file; kill -9 of the target is told in the run."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from sessions import begin_session, running
from watching import DEADLINE_S, recorded_until_ns, states_while_running, wait_until

from profd.daemon.clock import SECOND_NS
from profd.daemon.render.report import write_report
from profd.daemon.store.reader import RunReader
from profd.daemon.supervise.control import ControlClient


@pytest.mark.parametrize(("watched", "in_flight_s"), [(True, 2.0), (False, 5.0)])
def test_killing_the_session_loses_the_recording_in_flight_alone(
    tmp_path: Path, watched: bool, in_flight_s: float
) -> None:
    with running("counting.py", tmp_path / "numbers") as target:
        session = begin_session(target.pid)
        client = ControlClient(session.control_socket)
        if watched:
            client.watch()
        started_ns = time.time_ns()
        wait_until(
            lambda: recorded_until_ns(session.run_file) > started_ns + 7 * SECOND_NS, "recording for seven seconds"
        )
        os.kill(session.pid, signal.SIGKILL)
        killed_ns = time.time_ns()
        wait_until(lambda: not session.is_running(), "the end of the session")
        client.close()

        assert killed_ns - recorded_until_ns(session.run_file) <= in_flight_s * SECOND_NS
        assert states_while_running(target, 1.0).isdisjoint("Tt")
        before = (tmp_path / "numbers").read_text().splitlines()
        wait_until(lambda: len((tmp_path / "numbers").read_text().splitlines()) > len(before), "counting on")
        with RunReader(session.run_file) as reader:
            assert reader.info.state == "interrupted"
            assert sum(interval.samples for interval in reader.intervals()) > 300
        # What py-spy was left behind ends by itself; nothing else is there to end it.
        wait_until(lambda: not py_spies_on(target.pid), "the end of the last py-spy")


def is_killed(pid: int) -> bool:
    """Kill a process; False where it has just ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def test_killing_py_spy_costs_a_recording_and_nothing_else(tmp_path: Path) -> None:
    with running("counting.py", tmp_path / "numbers") as target:
        session = begin_session(target.pid)
        wait_until(lambda: recorded_until_ns(session.run_file) > 0, "a first recording")
        wait_until(lambda: any(is_killed(pid) for pid in py_spies_on(target.pid)), "a py-spy to kill")
        killed_ns = time.time_ns()
        wait_until(lambda: recorded_until_ns(session.run_file) > killed_ns, "a recording after the kill")
        with RunReader(session.run_file) as reader:
            assert "loss" in {event.kind for event in reader.events()}
        ControlClient(session.control_socket).stop()
        assert session.wait_closed(DEADLINE_S)
        assert target.poll() is None


def test_killing_the_target_ends_the_run_and_names_the_signal(tmp_path: Path) -> None:
    with running("counting.py", tmp_path / "numbers") as target:
        session = begin_session(target.pid)
        wait_until(lambda: recorded_until_ns(session.run_file) > 0, "a first recording")
        target.kill()
        assert session.wait_closed(DEADLINE_S)
        with RunReader(session.run_file) as reader:
            assert (reader.info.state, reader.info.why_ended) == ("ended", "target-exited")
            assert reader.info.exit_signal == signal.SIGKILL
            assert any("SIGKILL" in event.text for event in reader.events())
            write_report(reader, tmp_path / "report.html")
        assert "SIGKILL" in (tmp_path / "report.html").read_text()


def py_spies_on(pid: int) -> list[int]:
    """Return the PIDs of the py-spy processes that read a process."""
    words = f"--pid\0{pid}\0".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(b"py-spy\0") and words in command:
                found.append(int(folder.name))
    return found
