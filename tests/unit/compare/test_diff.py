"""Two runs compared: known differences are found, and unrest is none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.present import there
from support.stepruns import PLAIN_MS, STEPS, Lengths, diff_of, write_steps
from support.synthetic import BACKWARD, TRAIN

from profd.cli.main import run_command_line
from profd.daemon.compare import diff as diff_module
from profd.daemon.compare.blocks import MOST_BLOCKS, Blocks, Mean, mean_of
from profd.daemon.compare.diff import parse_limit, take_compared, take_diff
from profd.daemon.errors import ExitCode, UsageError
from profd.daemon.render.difftext import diff_text, verdict
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from profd.daemon.timerange import TimeRange


@pytest.fixture(scope="module")
def plain_and_slower(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write a run, and one whose backward pass takes a fifth longer."""
    folder = tmp_path_factory.mktemp("runs")
    return write_steps(folder / "a.profd", 1), write_steps(folder / "b.profd", 2, slower=1.2)


def test_a_slower_function_is_named_first(plain_and_slower: tuple[Path, Path]) -> None:
    diff = diff_of(*plain_and_slower)
    assert diff.unit == "s/step"
    first = diff.leaves[0]
    assert (first.name, first.is_significant) == (BACKWARD[-1].function, True)
    assert first.difference == pytest.approx(0.020, abs=0.003)
    assert first.low < 0.020 < first.high
    assert [change.name for change in diff.leaves if change.is_significant] == [
        BACKWARD[-1].function
    ]
    changed = there(diff.first)
    assert (changed.kind, changed.name) == ("line", "loss.backward()")
    assert there(diff.step_time).relative == pytest.approx(0.1, abs=0.02)
    assert max(map(len, diff_text(diff, 100).splitlines())) <= 100
    with RunReader(plain_and_slower[0]) as base, RunReader(plain_and_slower[1]) as new:
        assert take_diff(take_compared(base), take_compared(new), least=0.2).significant == []


@pytest.mark.parametrize(
    ("counted_every", "unit", "expected"),
    [
        (
            STEPS,
            "share",
            {"a": -0.055, "b": 0.111, "c": -0.055},
        ),  # without steps shares are compared
        (120, "s/step", {"b": 0.060}),  # blocks are too short for a count each
    ],
)
def test_what_is_compared_where_steps_are_seldom_counted(
    tmp_path: Path, counted_every: int, unit: str, expected: dict[str, float]
) -> None:
    one, other = (
        write_steps(
            tmp_path / f"{number}.profd", number, slower, PLAIN_MS, counted_every=counted_every
        )
        for number, slower in enumerate((1.0, 1.6))
    )
    diff = diff_of(one, other)
    assert (diff.unit, diff.step_time is None) == (unit, unit == "share")
    changes = {change.name: change.difference for change in diff.leaves if change.is_significant}
    assert changes == pytest.approx(expected, abs=0.01)


def test_a_function_counts_separately_for_each_caller(tmp_path: Path) -> None:
    main = Frame("main", TRAIN, 1)
    stacks = [
        (main, Frame(name, TRAIN, line), Frame("work", TRAIN, 40))
        for line, name in enumerate("abc", 8)
    ]
    lengths: Lengths = dict.fromkeys(stacks, 100.0)
    one, other = (
        write_steps(tmp_path / f"{n}.profd", n, slower, lengths)
        for n, slower in enumerate((1.0, 1.2))
    )
    first = there(diff_of(one, other).first)
    assert first.name == "b → work"
    assert first.difference == pytest.approx(0.020, abs=0.004)


def test_time_that_moves_between_the_lines_of_a_function_is_no_change(tmp_path: Path) -> None:
    main = Frame("main", TRAIN, 1)
    lines = [
        (main, Frame("work", TRAIN, 40)),
        (main, Frame("work", TRAIN, 41)),
        (main, Frame("other", TRAIN, 50)),
    ]
    even, first, second = (
        write_steps(
            tmp_path / f"{seed}.profd", seed, lengths_ms=dict(zip(lines, (*ms, 100.0), strict=True))
        )
        for seed, ms in enumerate(((70.0, 70.0), (130.0, 70.0), (70.0, 130.0)))
    )
    diff = diff_of(first, second)
    assert max(abs(line.relative) for line in diff.lines) > 0.15
    assert not diff.significant
    # One that is slower makes its function slower.
    assert [line.line for line in diff_of(even, second).lines if line.is_significant] == [41]


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("step_time>+5%", ExitCode.BEYOND_LIMIT),
        ("step_time>+15%", ExitCode.OK),
        ("step_time<-5%", ExitCode.OK),
        ("phase:backward>+10%", ExitCode.BEYOND_LIMIT),
        (f"function:{BACKWARD[-1].function}>+10%", ExitCode.BEYOND_LIMIT),
        ("function:unknown>+10%", ExitCode.OK),
        ("speed>5", ExitCode.USAGE),
    ],
)
def test_limits_give_ci_an_exit_code(
    limit: str, code: int, plain_and_slower: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["diff", *map(str, plain_and_slower), "--fail-on", limit]) == code
    said = capsys.readouterr().err
    assert code == ExitCode.USAGE or said == (f"profd: beyond the limit {limit}\n" if code else "")


def test_limit_words_and_neighbors_that_are_alike_widen_the_error() -> None:
    limit = parse_limit("phase:data wait > +10 %")
    assert (limit.kind, limit.name, limit.relation, limit.bound) == ("phase", "data wait", ">", 0.1)
    with pytest.raises(UsageError):
        parse_limit("step_time+5%")
    uneven, drifting = [1.0, 2.0] * 6, [1.0] * 6 + [2.0] * 6
    assert mean_of(drifting).error > 2 * mean_of(uneven).error
    assert mean_of(uneven).value == 1.5


def blocks_of(share_of_b: float, step_s: float) -> Blocks:
    """Return blocks in which three functions share out the time, each known to within 0.01, and
    steps are even.
    """
    shares = {"a → work": 0.5, "b → work": share_of_b, "c → work": 0.5 - share_of_b}
    off = 0.01 * math.sqrt(MOST_BLOCKS - 1)
    return Blocks(
        count=MOST_BLOCKS,
        shares={
            ("function", name, TRAIN, 0): [
                share + off * (-1) ** number for number in range(MOST_BLOCKS)
            ]
            for name, share in shares.items()
        },
        step_s=Mean(step_s, step_s / 1000),
        paces=[step_s] * MOST_BLOCKS,
        time=TimeRange(0, 10**9),
        functions={},
    )


@pytest.mark.parametrize(
    ("step_s", "b", "likeliest", "said"),
    [
        # 2.3 standard errors more: not sure among all, but sure enough where something changed
        (0.120, 0.333, "b → work", "a step takes 20.0 % longer: most likely b → work"),
        (
            0.120,
            0.315,
            None,
            "a step takes 20.0 % longer: no part differs surely",
        ),  # 1.1: all parts alike
        (0.120, 0.267, "c → work", "a step takes 20.0 % longer: most likely c → work"),
        (0.110, 0.333, None, "no sure change: a step takes 10.0 % longer, no part differs surely"),
    ],
)
def test_a_sure_change_is_laid_to_the_function_that_leans_most(
    step_s: float,
    b: float,
    likeliest: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides = iter((blocks_of(0.300, 0.100), blocks_of(b, step_s)))
    monkeypatch.setattr(diff_module, "take_blocks", lambda *_: next(sides))
    run = write_steps(tmp_path / "a.profd", 1)
    diff = diff_of(run, run)
    assert there(diff.step_time).is_significant == (step_s == 0.120)
    assert diff.significant == []
    assert (diff.likeliest.name if diff.likeliest else None) == likeliest
    assert said in verdict(diff)
    assert (likeliest in diff_text(diff, 100)) if likeliest else ("→" not in diff_text(diff, 100))
