"""The system call that a thread waits in."""

from __future__ import annotations

from support.interpreters import standing

from profd.daemon.systemcalls import system_call


def test_a_program_that_waits_for_a_line_reads_its_standard_input() -> None:
    with standing() as program:
        call = system_call(program.pid, program.pid)
    assert call is not None
    assert call[:2] == ("read", 0)


def test_a_process_that_is_gone_is_in_no_system_call() -> None:
    with standing() as program:
        pass
    assert system_call(program.pid, program.pid) is None
