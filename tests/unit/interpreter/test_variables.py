"""The environment of a process as it is now, of a real program of each Python."""

from __future__ import annotations

import os

import pytest
from support.interpreters import VERSIONS, python, standing

from profd.daemon import processes
from profd.daemon.interpreter.variables import variables_now

PROGRAM = """
import os
os.environ.pop("GIVEN", None)
os.environ["RANK"] = "3"
os.environ["LONG"] = "x" * 9000
print("ready", flush=True)
input()
"""
NAMES = frozenset({"RANK", "GIVEN", "LONG", "KEPT"})


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_program_has_set_and_unset_is_seen(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "1")
    monkeypatch.setenv("KEPT", "2")
    with standing(PROGRAM, python(version)) as program:
        found = variables_now(program.pid, NAMES)
        assert {name: value for name, value in found.items() if name != "LONG"} == {"RANK": "3", "KEPT": "2"}
        assert set(found["LONG"]) == {"x"}
        assert processes.environment(program.pid, NAMES) == {"GIVEN": "1", "KEPT": "2"}


def test_a_process_that_is_gone_has_none() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    assert variables_now(child, NAMES) == {}
