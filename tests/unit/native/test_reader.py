"""The process that reads native stacks: what comes of it if it ends early, is late, or lacks room."""

from __future__ import annotations

import json
import os
import resource

import msgspec
import pytest
from support.interpreters import standing

from profd.daemon.boundedprograms import ProgramLate
from profd.daemon.native import reader
from profd.daemon.native.reader import native_stacks
from profd.daemon.native.stacks import NativeProcess

READ = NativeProcess(7)
LINE = msgspec.json.encode(READ) + b"\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="native stacks: x86-64 alone")
def test_each_process_is_read_or_has_a_reason() -> None:
    with standing() as program:
        found = native_stacks([program.pid, 2**22 + 1])
    assert [thread.has_python for thread in found[program.pid].threads] == [True]
    assert found[2**22 + 1].error


def test_what_was_read_before_the_reader_ended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = [
        (1, LINE + LINE[:9], b"Traceback\nValueError: bad\n"),
        ProgramLate("did not answer within 10 s", LINE),
        OSError(2, "No such file"),
    ]

    def answer_of(*_: object) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(reader, "answer_of", answer_of)
    whys = []
    for is_read in (True, True, False):
        found = native_stacks([7, 8])
        assert (found[7] == READ) is is_read
        whys.append(found[8].error.partition("reader ")[2])
    assert whys == [
        "ended with 1 (ValueError: bad)",
        "did not answer within 10 s",
        "cannot be started (No such file)",
    ]


def test_a_process_that_takes_too_much_memory_does_not_end_the_reader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = []

    def read_process(pid: int, _: object) -> NativeProcess:
        if pid == 1:
            raise MemoryError
        return NativeProcess(pid)

    monkeypatch.setattr(reader, "read_process", read_process)
    monkeypatch.setattr(resource, "setrlimit", lambda what, limit: limits.append((what, *limit)))
    reader.main(["1", "2"])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert "too much memory" in first["error"]
    assert (second["pid"], second["error"]) == (2, "")
    assert limits == [(resource.RLIMIT_AS, reader._MOST_BYTES, reader._MOST_BYTES)]
