"""What the known programs of the benchmarks say of themselves."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from findings.gallery import GALLERY, NOTHING, PLANTED, Outcome, Pair, confusion, outcome, row
from findings.ranks import HEALTHY, Verdict, judge
from support.jobruns import FORWARD, LOAD, Rank, write_job
from truth.phaseclock import PhaseClock
from truth.phases import Judged, Shares, read_diary, read_passes, shares_table, steps_made
from truth.programs import Diary, Program, known_programs, read_program

from profd.daemon.analyze.steps import Steps
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.findings.finding import INFO, WARNING
from profd.daemon.store.reader import RunReader

TURNS = Program(Path("x.py"), {"main": frozenset({"a", "b"}), "a": frozenset()}, ("a", "b", ""))
# 10 ms in a, 20 in b, 5 elsewhere, and again.
TIMES = [at_ms * MILLISECOND_NS for at_ms in (0, 10, 30, 35, 45, 65, 70)]


def shares(from_ms: float, to_ms: float, *, tracks: int = 1) -> dict[str, float]:
    return Diary([TIMES] * tracks, TURNS).shares(
        int(from_ms * MILLISECOND_NS), int(to_ms * MILLISECOND_NS)
    )


def test_shares_are_those_of_the_time_in_phases_within_a_range() -> None:
    assert shares(0, 70) == pytest.approx({"a": 1 / 3, "b": 2 / 3})
    assert shares(0, 70, tracks=4) == shares(0, 70)
    assert shares(5, 15) == pytest.approx({"a": 0.5, "b": 0.5})
    assert shares(12, 38) == pytest.approx({"a": 3 / 21, "b": 18 / 21})
    assert shares(65, 80) == {"a": 1.0, "b": 0.0}


def test_a_stack_shows_its_phase_and_is_impossible_where_the_program_does_not_call_so() -> None:
    assert TURNS.phase_of(("<module>", "main", "b", "c")) == "b"
    assert TURNS.phase_of(("<module>", "main")) is None
    for stack in ("<module> main a", "<module> main b anything"):
        assert not TURNS.is_impossible(tuple(stack.split()))
    for stack in ("<module> main a b", "<module> main main", "main a", ""):
        assert TURNS.is_impossible(tuple(stack.split()))


@pytest.mark.parametrize("name", known_programs())
def test_every_known_program_declares_what_is_known(name: str) -> None:
    program = read_program(name)
    assert len(program.phases) >= 2
    assert set(program.phases) <= {
        callee for callees in program.calls.values() for callee in callees
    } | set(program.calls)


def clock_of_seconds() -> PhaseClock:
    """Return a clock that starts at 0 and is a second later at each change."""
    return PhaseClock(0, itertools.count(SECOND_NS, SECOND_NS).__next__)


def diary_of(clock: PhaseClock) -> list[str]:
    return [
        f"{int(line.split()[0]) // SECOND_NS} {line.split(' ', 1)[1]}"
        for line in clock.diary().splitlines()
    ]


@pytest.mark.parametrize(
    ("nested", "written"),
    [
        # A schedule that is made, and says so.
        (
            [("optimizer", "logging"), ("forward",)],
            "startup optimizer logging optimizer startup forward other",
        ),
        (
            [("evaluation", "forward", "data wait", "loss")],
            "startup evaluation data_wait evaluation other",
        ),
        (
            [("forward",), ("optimizer", "", "forward")],
            "startup forward other optimizer other forward other optimizer other",
        ),
        (
            [("backward", "startup, import", "optimizer")],
            "startup backward startup backward startup",
        ),
    ],
    ids=[
        "training ends it",
        "the first in order counts",
        "a loop within an optimizer",
        "an import is startup",
    ],
)
def test_what_a_clock_writes_of_phases_in_each_other(
    nested: list[tuple[str, ...]], written: str
) -> None:
    clock = clock_of_seconds()
    for phases in nested:
        with contextlib.ExitStack() as stack:
            for phase in phases:
                stack.enter_context(clock.phase(phase) if phase else clock.apart())
    said = [line.split(" ", 1)[1].split(",")[0].replace(" ", "_") for line in diary_of(clock)]
    assert " ".join(said[:-1]) == written


def test_wrapped_function_is_in_its_phase_and_returns_what_it_did() -> None:
    clock = clock_of_seconds()
    owner = SimpleNamespace(twice=lambda number: 2 * number)
    clock.wrap(owner, "twice", "forward")
    assert owner.twice(21) == 42
    assert diary_of(clock) == ["0 startup, import", "1 forward", "2 other", "3 other"]


def test_diary_is_read_as_shares_of_the_time_after_startup(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    # A backward pass that is interrupted is one.
    step = ("forward", "loss", "backward", "compile", "backward", "optimizer")
    diary.write_text(
        "".join(
            f"{at} {phase}\n" for at, phase in enumerate(("data wait", *step, "evaluation", *step))
        )
    )
    assert read_passes(diary) == [3, 10]
    changes = ((0, "startup, import"), (2, "forward"), (5, "data wait"), (6, "other"), (6, "other"))
    diary.write_text("".join(f"{at * SECOND_NS} {phase}\n" for at, phase in changes))
    shares = read_diary(diary)
    assert (shares.startup_s, shares["forward"], shares["data wait"], shares["loss"]) == (
        2.0,
        0.75,
        0.25,
        0.0,
    )
    one, other = (
        Shares.of({"forward": 3.0, "loss": 1.0}),
        Shares.of({"forward": 2.0, "backward": 2.0}),
    )
    assert one.distance(other) == pytest.approx(0.5)
    assert one.distance(one) == 0
    assert steps_made("epoch 3: loss 0.1\nsteps 120 seconds 9.25\n") == 120


@pytest.mark.parametrize(
    ("of_unchanged", "of_timed", "is_right"),
    [
        ({"forward": 9.1, "other": 0.9}, {"forward": 9.6, "other": 0.4}, True),
        ({"forward": 8.9, "other": 1.1}, {"forward": 9.6, "other": 0.4}, False),
        ({"forward": 9.1, "other": 0.9}, {"forward": 9.4, "backward": 0.6}, False),
    ],
)
def test_little_other_and_a_small_distance_are_right(
    of_unchanged: dict[str, float], of_timed: dict[str, float], is_right: bool
) -> None:
    judged = Judged(
        Shares.of(of_unchanged),
        Shares.of(of_timed),
        Shares.of({"forward": 1.0}),
        Steps(),
        10,
        Steps(),
        5.0,
    )
    assert judged.is_right == is_right
    assert shares_table({"loop": judged})[-1].endswith("| right |" if is_right else "| **wrong** |")


LOADING = Outcome("input-bound-in-process", 2.0, 10.0, 0.4)
EVIDENCE = {"measures": [{"value": 0.15, "unit": "share"}, {"value": 2.0, "unit": "share"}]}


def test_the_gain_is_held_against_the_bound_and_what_is_mistaken_is_counted() -> None:
    assert sorted(PLANTED) == sorted(file.stem for file in GALLERY.glob("[!_]*.py"))
    within, beyond, hardly = (Outcome(NOTHING, None, per_s) for per_s in (18.0, 21.0, 9.0))
    assert row("load_in_process", [Pair(LOADING, within)]).endswith(
        "| 1 of 1 | 1 of 1 | 1.80 | 2.00 | 1 of 1 | 1 of 1 | 0.93 |"
    )
    assert row("load_in_process", [Pair(LOADING, beyond)]).endswith(
        "| 2.10 | 2.00 | 0 of 1 | 1 of 1 | 0.79 |"
    )
    assert row("load_in_process", [Pair(LOADING, hardly)]).endswith(
        "| 0.90 | 2.00 | 1 of 1 | 0 of 1 | 1.85 |"
    )
    wrong, healthy = Outcome("hot-function", 1.5, 10.0), Outcome(NOTHING, None, 18.0)
    lines = confusion({"load_in_process": [Pair(LOADING, healthy), Pair(wrong, healthy)]})
    assert lines[0] == "| planted | input-bound-in-process | hot-function | nothing |"
    assert lines[2] == "| input-bound-in-process | 1 | 1 |  |"
    assert lines[3] == "| (healthy twins) |  |  | 2 |"


def test_what_is_only_worth_knowing_is_no_diagnosis() -> None:
    info = {"rule": "a", "severity": INFO, "gain_bound": 1.1, "evidence": EVIDENCE}
    warned = {"rule": "b", "severity": WARNING, "gain_bound": 1.2, "evidence": EVIDENCE}
    counted = {**warned, "evidence": {"measures": [{"value": 3.0, "unit": "cores"}]}}
    assert outcome([info], 3.0) == Outcome(NOTHING, None, 3.0)
    assert outcome([info, warned], 3.0) == Outcome("b", 1.2, 3.0, 0.15)
    assert outcome([counted], 3.0) == Outcome("b", 1.2, 3.0)


USUAL, LATE = Rank((LOAD, 100), (FORWARD, 100)), Rank((LOAD, 300), (FORWARD, 100))
MISSED = Verdict(None, "", 0.0, float("inf"), was_wrong=True)


def verdict_on(path: Path, kind: str, *ranks: Rank) -> Verdict:
    with RunReader(write_job(path, *ranks)) as reader:
        return judge(reader, kind)


def test_the_slow_rank_is_right_from_when_it_is_sure(tmp_path: Path) -> None:
    found = verdict_on(tmp_path / "a.profd", "data", USUAL, USUAL, LATE, USUAL)
    assert (found.rank, found.function, found.was_wrong) == (2, "Photos.__getitem__", False)
    assert found.after_s == 10


def test_another_rank_or_any_of_a_healthy_job_is_wrong(tmp_path: Path) -> None:
    assert verdict_on(tmp_path / "a.profd", "data", LATE, USUAL, USUAL).was_wrong
    assert verdict_on(tmp_path / "b.profd", HEALTHY, USUAL, USUAL, LATE).was_wrong
    assert verdict_on(tmp_path / "c.profd", HEALTHY, USUAL, USUAL, USUAL) == MISSED._replace(
        was_wrong=False
    )
