"""Starting a session, with made-up programs in its place: what each first word becomes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest
from support.beginnings import beginning_of
from support.synthetic import identity_of
from support.waiting import DEADLINE_S

from profd.daemon import paths
from profd.daemon.errors import (
    MissingTool,
    OutputUnwritable,
    ProfdError,
    SessionFailed,
)
from profd.daemon.session import session
from profd.daemon.store.records import Identity

OPTIONS = session.SessionOptions(
    run_id="20261120-120000-cifar-3fa9",
    name="cifar",
    run_file=Path("/runs/caf\u00e9.profd"),
    mode="attached",
    pid=4242,
    start_ticks=1000,
    command=("python", "train.py"),
    duration_s=2.5,
)
READY = session.encode(session.Ready(Path("/runs/a.profd"), Path("/run/a.sock"))).decode()
READIES = """import json, os, signal, sys
def ready(run_file):
    print(json.dumps({'type': 'Ready', 'run_file': run_file, 'control_socket': '/a'}), flush=True)
"""
Start = Callable[[str], session.RunningSession]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts a program in the place of the session's."""

    def install_program(program: str) -> None:
        executable = tmp_path / "python"
        executable.write_text(f"#!{sys.executable} -SE\n{READIES}{program}\n")
        executable.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(executable))

    return install_program


@pytest.fixture
def start(install: Callable[[str], None]) -> Start:
    """Return a function that starts a session which is this program."""

    def start_program(program: str) -> session.RunningSession:
        install(program)
        return session.start_session(OPTIONS)

    return start_program


@pytest.fixture
def no_child_is_left() -> Callable[[], bool]:
    """Return a function that says whether all children have been waited for, but those that were
    there before.
    """
    before = set(psutil.Process().children())
    return lambda: set(psutil.Process().children()) <= before


def test_options_reach_the_session_as_they_are() -> None:
    assert session.decode_options(session.encode(OPTIONS)) == OPTIONS


def test_a_session_offers_itself_to_the_oom_killer_before_it_holds_anything() -> None:
    """py-spy, and all else that it starts, inherits that."""
    begun = beginning_of(
        "session.__main__", "processes.volunteer", "session.recorder.Recorder", given=encoded()
    )
    assert begun == ["volunteer()", "Recorder"]


def encoded() -> bytes:
    return session.encode(OPTIONS)


def test_a_session_that_is_ready_is_returned_and_waited_for(start: Start) -> None:
    running = start(f"sys.stdin.read(); print({READY!r}, flush=True); os.close(1); signal.pause()")
    assert (running.run_file, running.control_socket) == (
        Path("/runs/a.profd"),
        Path("/run/a.sock"),
    )
    assert running.is_running()
    assert not running.wait_closed(0)
    os.kill(running.pid, signal.SIGKILL)
    assert not running.wait_closed(60)
    assert not running.is_running()


def test_a_session_stands_apart_in_the_same_home(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROFD_HOME", "mine")
    running = start(
        "sys.stdin.read()\n"
        "apart = os.getsid(0) == os.getpid() and os.getcwd() == '/' and sys.argv[1] == '-I'\n"
        "ready(os.environ['PROFD_HOME'] if apart else 'not apart')"
    )
    assert running.wait_closed(60)
    assert running.run_file == tmp_path / "mine"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (
            session.StartFailed("OutputUnwritable", "cannot write", "choose another"),
            OutputUnwritable,
        ),
        (session.StartFailed("MissingTool", "no py-spy", "install it"), MissingTool),
        (session.StartFailed("Unheard", "of", ""), SessionFailed),
        (session.StartFailed("annotations", "of", ""), SessionFailed),
        (session.StartFailed("ExitCode", "of", ""), SessionFailed),
    ],
)
def test_a_session_that_fails_raises_its_own_error(
    start: Start, word: session.StartFailed, expected: type[ProfdError]
) -> None:
    with pytest.raises(expected) as failure:
        start(f"sys.stdin.read(); print({session.encode(word).decode()!r})")
    assert type(failure.value) is expected
    assert word.what in failure.value.what


@pytest.mark.parametrize(
    "program",
    [
        "sys.exit('no memory left')",
        "sys.stdin.read(); os._exit(1)",
        "os.close(0); os.close(1); signal.pause()",
        "sys.stdin.read(); print('Traceback (most recent call last):')",
        "sys.stdin.read(); os.write(1, b'\\xff')",
        "os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_a_session_that_says_nothing_of_use_is_an_error_with_its_log(
    start: Start,
    no_child_is_left: Callable[[], bool],
    program: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "_FAREWELL_TIMEOUT_S", 0.01)
    with pytest.raises(SessionFailed) as failure:
        start(program)
    log = paths.runtime_folder() / f"{OPTIONS.run_id}.log"
    assert failure.value.remedy == f"see {log}"
    assert ("no memory left" in program) == (log.read_text() == "no memory left\n")
    assert no_child_is_left()


def test_one_started_ahead_is_used_or_ends(
    install: Callable[[str], None], no_child_is_left: Callable[[], bool]
) -> None:
    install(f"sys.stdin.read(); print({READY!r}, flush=True)")
    done: list[str] = []
    with session.StartingSession() as starting:
        running = session.start_session(
            OPTIONS, starting=starting, meanwhile=lambda: done.append("meanwhile")
        )
        assert running.pid == starting.process.pid
    assert done == ["meanwhile"]
    assert running.wait_closed(60)
    with pytest.raises(MissingTool), session.StartingSession() as starting:
        raise MissingTool("there is none", "install it")
    assert no_child_is_left()
    assert [path.name for path in paths.runtime_folder().glob("*.log")] == [f"{OPTIONS.run_id}.log"]


# A process of its own, which has one thread: it prints what it forks, and the error of that.
STARTER = """
import msgspec, os, pathlib, signal, sys
from profd.daemon import processes
from profd.daemon.errors import ProfdError
from profd.daemon.session import session

read_end, write_end = os.pipe()
with session.start_ahead() as starting:
    os.close(write_end)
    is_let_go = os.read(read_end, 1) == b""
    forked, own = (processes.read_stat(pid) for pid in (starting.process.pid, os.getpid()))
    ignored = int(processes.status(forked.pid)["SigIgn"], 16) >> (signal.SIGPIPE - 1) & 1
    print(is_let_go, forked.image == own.image, session.is_session(forked.pid), bool(ignored))
    options = session.decode_options(sys.stdin.buffer.read())
    try:
        session.start_session(options, starting=starting)
    except ProfdError as error:
        print(type(error).__name__)
print(starting.process.wait() > 0)
"""


def test_one_started_ahead_is_a_fork_that_goes_on_as_the_session(tmp_path: Path) -> None:
    with subprocess.Popen("true") as target:
        gone = identity_of(target.pid)
    options = msgspec.structs.replace(
        OPTIONS, pid=gone.pid, start_ticks=gone.start_ticks, run_file=tmp_path / "a.profd"
    )
    words = [sys.executable, "-c", STARTER]
    said = subprocess.run(words, input=session.encode(options), stdout=subprocess.PIPE, check=True)
    assert said.stdout.decode().split() == [*4 * ["True"], "NoSuchProcess", "True"]


def test_a_starter_keeps_its_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a script leaves behind is known by it, and a relative folder is not the session's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROFD_HOME", "here")
    with session.start_ahead() as starting:
        assert starting is not None
        given = Path(f"/proc/{starting.process.pid}/environ").read_bytes().split(b"\0")
        assert os.fsencode(f"PROFD_HOME={tmp_path / 'here'}") in given
    assert os.environ["PROFD_HOME"] == "here"


def test_what_cannot_be_started_ahead_is_an_error_where_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("LD_DEBUG", "")  # with that it is no fork
    with session.start_ahead() as starting:
        assert starting is None
    with pytest.raises(SessionFailed, match=r"no session can be started: .*No such file"):
        session.start_session(OPTIONS)


def test_a_mute_one_is_killed(
    start: Start, no_child_is_left: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_READY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(session, "_FAREWELL_TIMEOUT_S", 0.01)
    with pytest.raises(SessionFailed, match="in time"):
        start("signal.pause()")
    assert no_child_is_left()


def test_command_words_that_are_no_text_are_made_so(install: Callable[[str], None]) -> None:
    install("ready(json.load(sys.stdin)['command'][1])")
    running = session.start_session(
        msgspec.structs.replace(OPTIONS, command=("python", "caf\udce9.py"))
    )
    assert running.run_file == Path("caf\ufffd.py")
    assert running.wait_closed(60)


def test_the_end_of_the_link_is_handed_on_and_stays_open_here(
    install: Callable[[str], None],
) -> None:
    install(
        "options = json.load(sys.stdin)\n"
        "ready(os.readlink(f'/proc/self/fd/{options[\"channel_fd\"]}').partition(':')[0])"
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        running = session.start_session(OPTIONS, channel=theirs)
        assert running.run_file == Path("socket")
        assert running.wait_closed(60)
        os.fstat(theirs.fileno())


def test_a_stopped_session_is_let_go_on_to_close(install: Callable[[str], None]) -> None:
    install("ready('/a'); os.close(1); os.kill(os.getpid(), signal.SIGSTOP)")
    running = session.start_session(OPTIONS)
    os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WNOWAIT)
    assert running.wait_closed(DEADLINE_S)


@pytest.fixture
def waiting(install: Callable[[str], None]) -> session.RunningSession:
    """Start what says that it records, and waits for a signal."""
    install("ready('/a'); os.close(1); signal.pause()")
    return session.start_session(OPTIONS)


def test_a_stopped_session_can_be_ended_by_its_identity(waiting: session.RunningSession) -> None:
    os.kill(waiting.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, waiting.pid, os.WSTOPPED | os.WNOWAIT)
    with contextlib.closing(session.end_session(identity_of(waiting.pid))) as watch:
        assert select.select([watch], [], [], DEADLINE_S)[0]
    assert not waiting.wait_closed(DEADLINE_S)  # by the signal, as it has no handler here


def test_another_process_with_its_pid_is_no_session_any_more(
    waiting: session.RunningSession,
) -> None:
    with pytest.raises(ProcessLookupError):
        session.end_session(Identity(waiting.pid, identity_of(waiting.pid).start_ticks - 1))
    assert waiting.is_running()
    waiting.end()
    waiting.wait_closed(DEADLINE_S)


def test_what_is_no_session_is_not_ended() -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        with pytest.raises(SessionFailed, match="is no session of profd's"):
            session.end_session(identity_of(other.pid))
        assert other.poll() is None
        other.kill()


# The recorder says how it finds its process: the signals that are held back, and whether py-spy can
# be reaped.
_PROGRAM = """
import signal, sys
from pathlib import Path
from profd.daemon.session import __main__ as session
from profd.daemon.session.session import Ready

class Recorder:
    has_begun = True

    def __init__(self, options, clock):
        pass

    async def run(self, announce):
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        print(sorted(held_back), signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, file=sys.stderr)
        announce(Ready(Path("/run"), Path("/socket")))

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
session.Recorder = Recorder
sys.exit(session.main())
"""
_OPTIONS = (
    '{"run_id": "a", "name": "a", "run_file": "/a", "mode": "attached", "pid": 1, '
    '"start_ticks": '
    '1, "command": ["a"]}'
)


def test_signals_that_its_launcher_holds_back_reach_it_and_its_py_spy() -> None:
    """Else no recording can be ended early, and nobody can say what py-spy cost."""
    words = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(words, input=_OPTIONS, capture_output=True, text=True, check=True)
    assert done.stderr == "[] True\n"
    assert '"/socket"' in done.stdout
