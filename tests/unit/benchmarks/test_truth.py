"""What the known programs of the benchmarks say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from truth import Diary, Program, known_programs, read_program

from profd.daemon.clock import MILLISECOND_NS

TURNS = Program(Path("x.py"), {"main": frozenset({"a", "b"}), "a": frozenset()}, ("a", "b", ""))
# 10 ms in a, 20 in b, 5 elsewhere, and again.
TIMES = [at_ms * MILLISECOND_NS for at_ms in (0, 10, 30, 35, 45, 65, 70)]


def shares(from_ms: float, to_ms: float, *, tracks: int = 1) -> dict[str, float]:
    return Diary([TIMES] * tracks, TURNS).shares(int(from_ms * MILLISECOND_NS), int(to_ms * MILLISECOND_NS))


def test_shares_are_those_of_the_time_in_phases_within_a_range() -> None:
    assert shares(0, 70) == pytest.approx({"a": 1 / 3, "b": 2 / 3})
    assert shares(0, 70, tracks=4) == shares(0, 70)
    assert shares(5, 15) == pytest.approx({"a": 0.5, "b": 0.5})
    assert shares(12, 38) == pytest.approx({"a": 3 / 21, "b": 18 / 21})
    assert shares(65, 80) == {"a": 1.0, "b": 0.0}


def test_a_stack_shows_its_phase() -> None:
    assert TURNS.phase_of(("<module>", "main", "b", "c")) == "b"
    assert TURNS.phase_of(("<module>", "main")) is None


@pytest.mark.parametrize(
    ("stack", "is_impossible"),
    [
        (("<module>", "main", "a"), False),
        (("<module>", "main", "b", "anything"), False),
        (("<module>", "main", "a", "b"), True),
        (("<module>", "main", "main"), True),
        (("main", "a"), True),
        ((), True),
    ],
)
def test_what_a_program_does_not_call_is_impossible(stack: tuple[str, ...], is_impossible: bool) -> None:
    assert TURNS.is_impossible(stack) is is_impossible


@pytest.mark.parametrize("name", known_programs())
def test_every_known_program_declares_what_is_known(name: str) -> None:
    program = read_program(name)
    assert len(program.phases) >= 2
    assert set(program.phases) <= {callee for callees in program.calls.values() for callee in callees} | set(
        program.calls
    )
