"""Nothing that happens to profd changes the script: not its output, not its exit code, not its life."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import launching

from profd.daemon import processes
from profd.daemon.paths import list_runs
from profd.daemon.store.reader import RunReader


def test_killed_session_changes_nothing() -> None:
    launched = launching.start(*launching.PYTHON, launching.WAITING)
    launching.read_ready(launched)
    os.kill(launching.session_pid(launched.pid), signal.SIGKILL)
    out, err, code = launching.finish(launched)
    assert (out, code) == (b"done\n", 3)
    assert b"broke off" in err
    assert b"Traceback" not in err


def test_session_that_does_not_start_changes_nothing(profd_home: Path) -> None:
    (profd_home / "run").touch()  # where its folder of sockets should be
    done = launching.run(*launching.PYTHON, "print('out'); raise SystemExit(3)")
    assert (done.stdout, done.returncode) == (b"out\n", 3)
    assert done.stderr.startswith(b"profd: nothing is recorded: ")
    assert done.stderr.count(b"\n") == 1


def test_script_outlives_a_killed_launcher() -> None:
    launched = launching.start(*launching.PYTHON, launching.WAITING)
    script_pid = launching.read_ready(launched)
    session_pid = launching.session_pid(launched.pid)
    launched.kill()
    out, _, _ = launching.finish(launched)
    assert out == b"done\n"
    launching.until(lambda: not launching.is_alive(script_pid), "the script's end")
    launching.until(lambda: not launching.is_alive(session_pid), "the session's end")
    with RunReader(list_runs()[0]) as reader:
        assert reader.info.why_ended == "target-exited"


def test_exit_code_is_recorded() -> None:
    launched = launching.start(*launching.PYTHON, launching.WAITING)
    launching.read_ready(launched)
    launching.session_pid(launched.pid)
    launching.finish(launched)
    with RunReader(list_runs()[0]) as reader:
        assert reader.info.exit_code == 3


def test_nothing_is_left_running() -> None:
    launched = launching.start(*launching.PYTHON, launching.WAITING)
    script_pid = launching.read_ready(launched)
    launching.session_pid(launched.pid)
    started = launching.descendants(launched.pid)
    assert script_pid in started
    launching.finish(launched)
    assert not [launching.words_of(pid) for pid in started if launching.is_alive(pid)]


def test_second_interrupt_does_not_wait_for_the_session() -> None:
    """The script is over; whoever interrupts now wants the prompt back, and the script's exit code."""
    launched = launching.start(*launching.PYTHON, launching.WAITING)
    script_pid = launching.read_ready(launched)
    session_pid = launching.session_pid(launched.pid)
    os.kill(session_pid, signal.SIGSTOP)
    try:
        assert launched.stdin is not None
        launched.stdin.write(b"\n")
        launched.stdin.flush()
        launching.until(lambda: processes.read_stat(script_pid) is None, "the script waited for")
        os.kill(launched.pid, signal.SIGINT)
        assert launched.wait(launching.DEADLINE_S / 6) == 3
    finally:
        os.kill(session_pid, signal.SIGCONT)
    launched.communicate()
