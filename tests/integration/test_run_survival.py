"""Nothing that happens to profd changes the script: not its output, not its exit code, not its
life.

A launch that fails leaves nothing behind.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import launches
from support.waiting import DEADLINE_S

from profd.daemon import processes, scheduling
from profd.daemon.paths import list_runs

pytestmark = pytest.mark.usefixtures("py_spy")


def test_session_that_does_not_start_changes_nothing(profd_home: Path) -> None:
    (profd_home / "run").touch()  # where its folder of sockets should be
    done = launches.run(*launches.PYTHON, "print('out'); raise SystemExit(3)")
    assert (done.stdout, done.returncode) == (b"out\n", 3)
    assert done.stderr.startswith(b"profd: nothing is recorded: ")
    assert done.stderr.count(b"\n") == 1


def test_nothing_is_left_running() -> None:
    launched = launches.start(*launches.PYTHON, launches.WAITING)
    script_pid = launches.read_ready(launched)
    launches.session_pid(launched.pid)
    started = list(processes.descendants(launched.pid))
    assert script_pid in started
    launches.finish(launched)
    assert not [processes.command_line(pid) for pid in started if launches.is_alive(pid)]


@pytest.mark.skipif(
    not processes.read("/proc/self/autogroup"), reason="this kernel does not group sessions"
)
def test_the_session_gives_way_and_the_script_does_not() -> None:
    launched = launches.start(*launches.PYTHON, launches.WAITING)
    script_pid = launches.read_ready(launched)
    session, script = (
        (processes.read(f"/proc/{pid}/autogroup") or b"").split()[-1]
        for pid in (launches.session_pid(launched.pid), script_pid)
    )
    launches.finish(launched)
    assert int(session) == scheduling.NICENESS
    assert script == (processes.read("/proc/self/autogroup") or b"").split()[-1]


HANGING = """
import os, sys, threading
from pathlib import Path
from profd.daemon.launch.launch import Plan, launch

def wait_closed(timeout_s):
    os.write(2, b"closing\\n")  # no lock of a stream is held as Python ends
    threading.Event().wait()

command = (sys.executable, "-c", "raise SystemExit(3)")
sys.exit(launch(Plan(command, lambda script, link: (Path("/none"), wait_closed), farewell=None, narrate=print)))
"""
"""What ``profd run`` does, with a session that never closes its file."""


def test_second_interrupt_does_not_wait_for_the_session() -> None:
    """The script is over.

    Whoever interrupts now wants the prompt back, and the script's exit code.
    """
    with subprocess.Popen([sys.executable, "-c", HANGING], stderr=subprocess.PIPE) as launched:
        assert launched.stderr is not None
        assert launched.stderr.readline() == b"closing\n"
        launched.send_signal(signal.SIGINT)
        assert launched.wait(DEADLINE_S) == 3


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("raise ValueError('no')", 1),
    ],
)
def test_exit_code_is_the_scripts(code: str, expected: int) -> None:
    assert launches.run("--", *launches.PYTHON, code).returncode == expected


def test_options_of_the_command_are_its_own() -> None:
    done = launches.run(
        *launches.PYTHON, "import sys; print(sys.argv[1:])", "--name", "x", "--", "-o"
    )
    assert done.stdout == b"['--name', 'x', '--', '-o']\n"


@pytest.mark.parametrize(
    ("command", "mode", "code", "said"),
    [
        ("./absent", None, 127, "./absent"),
        ("./plain", 0o644, 126, "./plain"),
        ("./job", 0o755, 126, "#!"),  # it names no interpreter
        ("./train.py", 0o755, 126, "`profd run -- python ./train.py`"),
        ("./train.py", 0o644, 126, "`profd run -- python ./train.py`"),
        ("train.py", 0o644, 127, "`profd run -- python train.py`"),
        ("job", 0o755, 127, "`profd run -- ./job`"),
        ("no-such-command-on-the-path", None, 127, "no-such-command-on-the-path"),
    ],
)
def test_command_that_cannot_be_executed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    mode: int | None,
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if mode is not None:
        Path(command).write_text("print('hello')\n")
        Path(command).chmod(mode)
    done = launches.run("--", command)
    assert (done.returncode, done.stderr.count(b"\n")) == (code, 1)
    assert said.encode() in done.stderr
    assert not list_runs()


def test_what_profd_refuses_is_its_own_error_before_the_script_starts(tmp_path: Path) -> None:
    started = ("touch", str(tmp_path / "started"))
    (tmp_path / "there.profd").touch()
    for output in ("missing/run.profd", "there.profd"):
        assert launches.run("-o", str(tmp_path / output), *started).returncode == 73
    assert launches.run("--no-such-option", *started).returncode == 2
    assert launches.run().returncode == 2
    assert not (tmp_path / "started").exists()


def test_an_empty_name_has_a_reason_and_an_odd_environment_is_passed_on() -> None:
    done = launches.run("--", "")
    assert (done.returncode, done.stderr) == (
        127,
        b"profd: the command's name is empty: name the command after `--`\n",
    )
    words = [
        "env",
        "=x=y",
        launches.PROFD,
        "run",
        "--headless",
        "--quiet",
        "--",
        "cat",
        "/proc/self/environ",
    ]
    assert b"\0=x=y\0" in b"\0" + subprocess.run(words, capture_output=True, check=True).stdout


LIMITED = """
import os, sys
from pathlib import Path
import psutil
from profd.daemon.errors import SessionFailed
from profd.daemon.launch.launch import Plan, launch

most, launcher = int(sys.argv[1]), psutil.Process()
fork = os.fork
def limited():
    if len(launcher.children(recursive=True)) >= most:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = limited
def start_session(script, channel):
    raise SessionFailed("none")
def narrate(line):
    print(line, file=sys.stderr, flush=True)
sys.exit(launch(Plan((sys.executable, "-c", "raise SystemExit(7)"), start_session, None, narrate)))
"""
"""What ``profd run`` does if it can have so many processes at a time, and no more."""


@pytest.mark.parametrize(
    ("most", "said"), [(0, "nothing left to start it with"), (1, "none"), (2, "none"), (3, "none")]
)
def test_the_script_runs_whatever_cannot_be_started(most: int, said: str) -> None:
    words = [sys.executable, "-c", LIMITED, str(most)]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=DEADLINE_S, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (7, "")
    assert said in done.stderr


LEAVING = """
for n in 1 2 3 4 5; do ( ( sleep 0.1 ) & ); done
sleep 0.5
grep -l '^State:.Z' /proc/[0-9]*/status
exit 7
"""
"""Says which processes nobody waits for."""
OF_ITS_OWN = 'mount --make-private /proc && mount -t proc proc /proc && exec "$@"'
"""Gives a namespace of processes its /proc, also below a root that is no mount, as of chroot."""


@pytest.mark.requires("root", "unshare")
def test_the_first_process_of_a_container_waits_for_what_is_left_behind() -> None:
    words = [
        *("unshare", "-pfm", "--propagation", "unchanged", "--kill-child"),
        *("sh", "-c", OF_ITS_OWN, "sh"),
        launches.PROFD,
        "run",
        "--headless",
        "--quiet",
    ]
    done = subprocess.run([*words, "sh", "-c", LEAVING], capture_output=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (7, b"")
