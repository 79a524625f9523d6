"""Programs that answer, and such that are late: ``unit/stacks/test_dump.py`` has what hangs."""

from __future__ import annotations

import os
import sys

import pytest

from profd.daemon import boundedprograms
from profd.daemon.boundedprograms import ProgramLate, answer_of


def program(text: str) -> list[str]:
    return [sys.executable, "-I", "-c", text]


def test_an_answer_has_what_the_program_wrote_and_how_it_ended() -> None:
    text = "import sys; print(1); print(2, file=sys.stderr); sys.exit(3)"
    assert answer_of(program(text), os.environ, 60, "test") == (3, b"1\n", b"2\n")


def test_what_a_late_program_has_said_is_kept() -> None:
    text = "import time; print('first', flush=True); time.sleep(3600)"
    seconds = 0.5
    while True:  # until it has come as far as its first line
        with pytest.raises(ProgramLate, match="did not answer within") as late:
            answer_of(program(text), os.environ, seconds, "late")
        boundedprograms._hanging["late"].wait()
        if late.value.said:
            break
        seconds *= 2
    assert late.value.said == b"first\n"
