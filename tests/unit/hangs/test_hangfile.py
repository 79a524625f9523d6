"""The text of a hang: what it has, and what it never has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.ras import FakeCommunicator, FakeRank, answer_in_json
from support.synthetic import identity_of

from profd.daemon.collectives.ras import Answer
from profd.daemon.collectives.status import parse
from profd.daemon.hangs.hangfile import VARIABLES, write_hang
from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.waits import Wait
from profd.daemon.store.records import Frame, HangFound, HangReport, Identity
from profd.daemon.tree.tree import Member

STACK = (
    Frame("<module>", "/srv/train.py", 40),
    Frame("Queue.get", "/usr/lib/python3.11/queue.py", 171),
)


def look_at(identity: Identity, *, wait: str = "a lock") -> Look:
    member = Member(identity, None, ("python",), "main", 3, None, "3.11", 1)
    row = StackState(member, "MainThread", True, STACK, Wait("lock", wait), native=("f (libn.so)",))
    status = parse(answer_in_json([FakeCommunicator([FakeRank(0, identity.pid)])]))
    return Look(0, (row,), job=Answer(status, {("10.0.0.1", identity.pid): identity.pid}))


def written(folder: Path, look: Look, text: str = "no progress for 30 s") -> str:
    hang = HangFound(0, 0, text, HangReport("lock", look.groups(), ("a fact",)))
    path = write_hang(folder / "run.profd", hang, look, {"GPUs": {"gpu0": [90.0]}})
    assert path == folder / "run.hang.md"
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text()


def test_it_says_who_waits_for_whom_and_what_else_is_known(tmp_path: Path) -> None:
    text = written(tmp_path, look_at(identity_of()))
    assert text.startswith("# no progress for 30 s\n\na fact\n\n## Who waits for whom\n")
    for part in (
        "- rank 3 stands in Queue.get (train.py:40): a lock",
        f'"rank 3 (pid {os.getpid()})"',
        '"Python": "3.',
        '"State": ',
        "90.0",
        '"f (libn.so)"',
        '"AllReduce": 0',
    ):
        assert part in text, part


def test_of_an_environment_it_has_what_is_listed_alone(tmp_path: Path) -> None:
    environment = {"NCCL_DEBUG": "INFO", "API_KEY": "hunter2", "NCCL_SECRET": "hunter2"}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        text = written(tmp_path, look_at(identity_of(child.pid)))
        child.communicate(b"\n")
    assert '"NCCL_DEBUG": "INFO"' in text
    assert "hunter2" not in text
    assert not [name for name in VARIABLES if "KEY" in name or "TOKEN" in name]


def test_what_a_run_calls_itself_cannot_speak_to_a_terminal(tmp_path: Path) -> None:
    text = written(tmp_path, look_at(identity_of(), wait="\x1b[2J"), text="\x1b]0;x\x07")
    assert all(one.isprintable() or one == "\n" for one in text)
