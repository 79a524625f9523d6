"""The process that looks for findings: started when it is needed, again where it died, and gone with the dashboard."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.findingruns import LOAD_IN_PROCESS, step, write_case
from support.waiting import DEADLINE_S, until

from profd.daemon.store.reader import RunReader
from profd.tui.reading.diagnosis import EVERY_S, Diagnosis
from profd.tui.reading.examination import Examination, command
from profd.tui.reading.questions import Answer, Question

DIES = [sys.executable, "-c", "input()"]
SPINS = """
import sys
from pathlib import Path
from profd.tui.reading import examiner
def look(path, question):
    sys.stdout.write("looks\\n")
    sys.stdout.flush()
    while True: pass
examiner.look = look
examiner.main()
"""


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 300)), seconds=60)


@contextlib.contextmanager
def examination(words: list[str]) -> Iterator[Examination]:
    with contextlib.closing(Examination(words)) as found:
        yield found


def answered(found: Examination) -> Answer:
    answers: list[Answer | None] = [None]

    def is_there() -> bool:
        answers.append(found.answer())
        return answers[-1] is not None

    until(is_there, "an answer")
    assert answers[-1] is not None
    return answers[-1]


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]


def test_it_answers_again_and_again_and_costs_something(run_file: Path) -> None:
    with examination(command(run_file)) as found:
        assert found.spent_s() == 0
        assert found.ask(Question(None))
        first = answered(found)
        assert [one.rule for one in first.findings] == ["input-bound-in-process"]
        assert 0 < first.spent_s <= found.spent_s()

        assert found.ask(Question(None))
        assert answered(found).findings == first.findings
        assert len(children()) == 1
        spent_s = found.spent_s()

    assert children() == []
    assert found.spent_s() >= spent_s


def test_a_file_that_cannot_be_read_is_an_answer(tmp_path: Path) -> None:
    with examination(command(tmp_path / "none.profd")) as found:
        assert found.ask(Question(None))
        answer = answered(found)
    assert "none.profd" in answer.error
    assert answer.remedy


def test_one_that_died_is_started_again_but_not_for_ever() -> None:
    with examination(DIES) as found:
        for _ in range(3):
            assert found.ask(Question(None))
            until(lambda: found.answer() is None and not found.is_there, "the process's end")
        assert not found.ask(Question(None))
        assert found.answer() is None


def test_one_that_was_killed_between_two_questions_is_started_again(run_file: Path) -> None:
    with examination(command(run_file)) as found:
        assert found.ask(Question(None))
        answered(found)
        (child,) = children()
        child.send_signal(signal.SIGKILL)
        # Its first thread may be gone while another still holds the pipe open: all of it has to have ended.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert found.ask(Question(None))
        assert answered(found).findings


def test_a_question_that_was_lost_with_its_process_is_asked_again_after_a_rest(run_file: Path) -> None:
    now_s = 0.0
    with RunReader(run_file) as reader, examination(command(run_file)) as found:
        diagnosis = Diagnosis(reader, found, lambda: now_s)
        assert found.ask(Question(None))
        answered(found)
        (child,) = children()
        child.suspend()
        diagnosis.renew()  # asks: the question lies in the pipe, and nobody takes it
        child.kill()
        until(lambda: diagnosis.renew() or not found.is_there, "the end of the process")
        assert not diagnosis.has_looked

        now_s += EVERY_S
        until(diagnosis.renew, "an answer")
        assert [one.rule for one in diagnosis.findings] == ["input-bound-in-process"]


def test_what_cannot_be_started_is_nobody_to_ask() -> None:
    with examination(["/does/not/exist"]) as found:
        assert not found.ask(Question(None))


def test_it_ends_with_whoever_asked_in_the_midst_of_a_look(run_file: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SPINS, os.fspath(run_file)], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"from_ns":null}\n')
        process.stdin.flush()
        assert process.stdout.readline() == b"looks\n"

        process.stdin.close()

        assert process.wait(DEADLINE_S) == 0
