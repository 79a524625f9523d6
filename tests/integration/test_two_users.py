"""Two real users: root, and one whose processes claim what they like.

Root reads, tells, believes nothing by that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.plainuser import NOBODY, as_plain_user, process_of_plain_user, sleeping
from support.pyspy.standin import StandIn
from support.sessions import begin_session, control_of, finished, hand_over, ready
from support.traces import ROOT
from support.waiting import DEADLINE_S, until

from profd.daemon import processes
from profd.daemon.service.scanner import HostProcesses
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame

LINE = "weights = decrypt(blob)"
CLAIM = """
import os, sys
os.execv("/bin/sh", ["py-spy", "record", "--nonblocking", "--pid", sys.argv[1]])
"""
TELL = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
try:
    connection.sendall(b'{"command": "mark", "note": "by another user"}\\n')
    print("answered" if connection.recv(1000) else "hung up")
except ConnectionError:
    print("hung up")
"""
pytestmark = pytest.mark.requires("root", "setpriv")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that other users may look into.

    Those of pytest are closed anew whenever it starts anywhere.
    """
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def by_another(program: str, *words: str) -> list[str]:
    """Return the command that runs a program as the other user."""
    return [*as_plain_user(), sys.executable, "-c", program, *words]


def test_root_keeps_no_line_that_the_user_could_not_read(
    py_spy: StandIn, open_folder: Path
) -> None:
    """By any way there: by its name, by a link, by a name with a pipe behind it, which nobody waits
    for.
    """
    secret, own = open_folder / "secret.py", open_folder / "own.py"
    for path, mode in ((secret, 0o600), (own, 0o644)):
        path.write_text(f"{LINE}\n")
        path.chmod(mode)
    os.chown(own, NOBODY, NOBODY)
    (open_folder / "link.py").symlink_to(secret)
    os.mkfifo(open_folder / "pipe.py", 0o666)
    names = [
        *map(str, (secret, open_folder / "link.py", open_folder / "pipe.py", own)),
        f"{open_folder}/../{open_folder.name}/own.py",
    ]
    py_spy.stands_in((ROOT, *(Frame(f"f{n}", name, 1) for n, name in enumerate(names))))
    with ready(by_another("print('ready', flush=True); input()")) as process:
        session = begin_session(process.pid)
        hand_over(session.run_file)
        with RunReader(session.run_file) as reader:
            kept = {Path(frame.file).name: frame.source for frame in reader.frames.values()}
    assert session.wait_closed(60)
    assert (kept["secret.py"], kept["link.py"], kept["pipe.py"], kept["own.py"]) == (
        None,
        None,
        None,
        LINE,
    )


def test_another_users_claim_to_record_a_process_of_roots_is_not_believed(
    open_folder: Path,
) -> None:
    (open_folder / "record").write_text(
        "read line\n"
    )  # what the shell runs, which calls itself py-spy
    with sleeping() as target, process_of_plain_user() as theirs:
        for pid, is_believed in ((target, False), (theirs, True)):
            words = by_another(CLAIM, str(pid))
            with subprocess.Popen(words, stdin=subprocess.PIPE, cwd=open_folder) as claimant:
                claim = until(lambda of=claimant.pid: claim_of(of), "its claim")  # type: ignore[misc]
                assert claim[-2:] == ("--pid", str(pid))
                recorded = HostProcesses().recorded()
                claimant.kill()
            assert (pid in recorded) == is_believed


def claim_of(pid: int) -> tuple[str, ...]:
    words = processes.command_line(pid)
    return words if words[:1] == ("py-spy",) else ()


def test_another_user_is_hung_up_on_by_a_session_of_roots(
    py_spy: StandIn, profd_home: Path
) -> None:
    with sleeping() as target:
        session = begin_session(target)
        # As if folder and socket were open to all: the session itself checks the user of a client.
        for path in (profd_home, session.control_socket.parent, session.control_socket):
            path.chmod(0o777)
        words = by_another(TELL, str(session.control_socket))
        done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
        assert (done.stdout, done.stderr) == ("hung up\n", "")
        assert control_of(session.control_socket).hello().run_id
        with finished(session) as reader:
            assert "by another user" not in {event.text for event in reader.events()}
