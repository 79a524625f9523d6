from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from phaseclock import PhaseClock
from phases import Judged, Shares, read_diary, read_passes, shares_table, steps_made

from profd.daemon.analyze.steps import Steps
from profd.daemon.clock import SECOND_NS


def clock_of_seconds() -> PhaseClock:
    """Return a clock that starts at 0 and is a second later at each change."""
    return PhaseClock(0, itertools.count(SECOND_NS, SECOND_NS).__next__)


def diary_of(clock: PhaseClock) -> list[str]:
    return [f"{int(line.split()[0]) // SECOND_NS} {line.split(' ', 1)[1]}" for line in clock.diary().splitlines()]


@pytest.mark.parametrize(
    ("nested", "told"),
    [
        # A schedule that is made, and says so.
        ([("optimizer", "logging"), ("forward",)], "startup optimizer logging optimizer startup forward other"),
        ([("evaluation", "forward", "data wait", "loss")], "startup evaluation data_wait evaluation other"),
        (
            [("forward",), ("optimizer", "", "forward")],
            "startup forward other optimizer other forward other optimizer other",
        ),
        ([("backward", "startup, import", "optimizer")], "startup backward startup backward startup"),
    ],
    ids=["training ends it", "the first in order counts", "a loop within an optimizer", "an import is startup"],
)
def test_what_a_clock_writes_of_phases_in_each_other(nested: list[tuple[str, ...]], told: str) -> None:
    clock = clock_of_seconds()
    for phases in nested:
        with contextlib.ExitStack() as stack:
            for phase in phases:
                stack.enter_context(clock.phase(phase) if phase else clock.apart())
    said = [line.split(" ", 1)[1].split(",")[0].replace(" ", "_") for line in diary_of(clock)]
    assert " ".join(said[:-1]) == told


def test_wrapped_function_is_in_its_phase_and_returns_what_it_did() -> None:
    clock = clock_of_seconds()
    owner = SimpleNamespace(twice=lambda number: 2 * number)
    clock.wrap(owner, "twice", "forward")
    assert owner.twice(21) == 42
    assert diary_of(clock) == ["0 startup, import", "1 forward", "2 other", "3 other"]


def test_diary_is_read_as_shares_of_the_time_after_startup(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    diary.write_text(
        "0 startup, import\n2000000000 forward\n5000000000 data wait\n6000000000 other\n6000000000 other\n"
    )

    shares = read_diary(diary)

    assert (shares.startup_s, shares["forward"], shares["data wait"], shares["loss"]) == (2.0, 0.75, 0.25, 0.0)


def test_distance_is_the_share_that_is_elsewhere() -> None:
    one, other = Shares.of({"forward": 3.0, "loss": 1.0}), Shares.of({"forward": 2.0, "backward": 2.0})

    assert one.distance(other) == pytest.approx(0.5)
    assert one.distance(one) == 0
    assert steps_made("epoch 3: loss 0.1\nsteps 120 seconds 9.25\n") == 120


@pytest.mark.parametrize(
    ("told", "of_timed", "is_right"),
    [
        ({"forward": 9.1, "other": 0.9}, {"forward": 9.6, "other": 0.4}, True),
        ({"forward": 8.9, "other": 1.1}, {"forward": 9.6, "other": 0.4}, False),
        ({"forward": 9.1, "other": 0.9}, {"forward": 9.4, "backward": 0.6}, False),
    ],
)
def test_little_other_and_a_small_distance_are_right(
    told: dict[str, float], of_timed: dict[str, float], is_right: bool
) -> None:
    judged = Judged(Shares.of(told), Shares.of(of_timed), Shares.of({"forward": 1.0}), Steps(), 10, Steps(), 5.0)

    assert judged.is_right == is_right
    assert shares_table({"loop": judged})[-1].endswith("| right |" if is_right else "| **wrong** |")


def test_a_backward_pass_that_is_interrupted_is_one(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    step = ("forward", "loss", "backward", "compile", "backward", "optimizer")
    diary.write_text("".join(f"{at} {phase}\n" for at, phase in enumerate(("data wait", *step, "evaluation", *step))))

    assert read_passes(diary) == [3, 10]
