"""Memory, GPUs and operators of two runs: what was planted is found with its number, and unrest is
none.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import msgspec
import pytest
from cost.longrun import STARTED_NS, describe, run_started
from support.present import there
from support.readingruns import write_run
from support.stepruns import diff_of

from profd.cli.main import run_command_line
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.blocks import CpuContention, Mean
from profd.daemon.compare.diff import Diff
from profd.daemon.compare.readings import Pair, Reading, judged, peak_of
from profd.daemon.errors import ExitCode
from profd.daemon.render.difftext import diff_text, verdict
from profd.daemon.store import database
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.store.tables import Tables
from profd.daemon.timerange import TimeRange


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write a run, and one whose GPU idles more, whose memory peaks higher and one of whose
    operators takes longer.
    """
    folder = tmp_path_factory.mktemp("runs")
    return write_run(folder / "a.profd", 1), write_run(
        folder / "b.profd", 2, idle=0.5, peak_bytes=2.5e9, conv_ms=4.0
    )


def changed(diff: Diff) -> dict[tuple[str, str], Reading]:
    return {(one.name, one.measure): one for one in diff.readings}


def test_planted_differences_are_found_with_their_bounds(
    planted: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    diff = diff_of(*planted)
    found = changed(diff)
    idle, peak, conv = (
        found["GPU 0", "idle share"],
        found["main", "RSS, peak"],
        found["aten::conv2d", "self CPU"],
    )
    assert len(found) == 4
    assert found["GPU 0", "utilization"].difference == pytest.approx(-0.24, abs=0.08)
    assert 0.1 < there(idle.low) < 0.3 < there(idle.high)
    assert peak.difference == pytest.approx(0.5e9, rel=0.01)
    assert peak.low is None
    assert conv.difference == pytest.approx(1e-3, rel=0.15)  # by the step
    assert {one.name for one in diff.operators} == {"aten::conv2d", "aten::addmm"}  # no annotation
    assert run_command_line(["diff", *map(str, planted), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["gpus"][1]["measure"], answer["gpus"][1]["is_significant"]) == (
        "idle share",
        True,
    )
    assert {one["name"] for one in answer["memory"]} == {"main", "worker"}
    assert answer["operators"]
    assert verdict(diff).startswith("▲ times are alike, but not all else: GPU 0, utilization: ")
    text = diff_text(diff, 100)
    assert all(title in text for title in ("GPUs", "Memory, by role", "aten::conv2d"))
    assert "aten::addmm" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_small_difference_or_one_that_few_readings_or_windows_tell_is_none(
    tmp_path: Path, planted: tuple[Path, Path]
) -> None:
    assert not changed(diff_of(planted[0], write_run(tmp_path / "a.profd", 3, peak_bytes=2.05e9)))
    assert not changed(diff_of(planted[0], write_run(tmp_path / "b.profd", 2, spike_bytes=1e9)))
    one, other = (write_run(tmp_path / f"{n}.profd", n, windows=2, conv_ms=3.0 + n) for n in (0, 1))
    assert not changed(diff_of(one, other))
    assert {each.low for each in diff_of(one, other).operators} == {None}


def test_growth_is_found_with_its_rate(tmp_path: Path) -> None:
    steady, leaking = (
        write_run(tmp_path / f"{n}.profd", n, growth_bytes_per_s=n * 3e6 + 1) for n in (0, 1)
    )
    growth = changed(diff_of(steady, leaking))["main", "RSS, growth"]
    assert growth.difference == pytest.approx(3e6, rel=0.1)
    assert there(growth.low) > 2e6


def test_a_role_that_only_one_run_has_is_compared_with_nothing(tmp_path: Path) -> None:
    alone = write_run(tmp_path / "a.profd", 1, workers=0)
    diff = diff_of(alone, write_run(tmp_path / "b.profd", 2, workers=2))
    workers = changed(diff)["worker", "RSS, peak"]
    assert (workers.base, workers.new) == (0.0, 5e8)
    # A process of a few seconds is none of it.
    diff = diff_of(alone, write_run(tmp_path / "c.profd", 2, worker_life_s=5))
    assert not changed(diff)
    assert {one.name for one in diff.memory} == {"main"}


def test_runs_of_one_script_do_not_differ(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{seed}.profd", seed) for seed in range(4)]
    diffs = [diff_of(one, other) for one, other in zip(runs[::2], runs[1::2], strict=True)]
    assert not any(diff.readings or diff.significant for diff in diffs)


@pytest.mark.parametrize("every", [1, 25, 90])
def test_a_peak_is_the_most_of_two_readings_in_a_row_however_long_the_time(
    tmp_path: Path, every: int
) -> None:
    tables = Tables(database.create(tmp_path / "run.profd"), describe)
    tables.begin(run_started())
    chance = random.Random(1)
    seconds = [
        one for one in range(0, 2000, every) if not 300 < one < 420 and one % 60 not in (59, 1)
    ]
    values = {one: chance.choice([one, 5000.0, chance.random() * one]) for one in seconds}
    for one, value in values.items():
        at_ns = STARTED_NS + one * SECOND_NS
        tables.commit([PointsTaken(at_ns, (Point("rss_bytes", value),))])
    with RunReader(tmp_path / "run.profd") as reader:
        series = reader.list_series()[0].id
        for begin, end in [(0, 2000), (30, 1990), (301, 421), (119, 900), (60, 720), (1200, 1230)]:
            time = (
                TimeRange(STARTED_NS)
                .moved(begin * SECOND_NS)
                .within(TimeRange(0, STARTED_NS + end * SECOND_NS))
            )
            inside = [value for one, value in values.items() if begin <= one < end]
            pairs = map(min, itertools.pairwise(inside))
            assert peak_of(reader, series, time, 0.0) == max(pairs, default=0.0)
        assert peak_of(reader, series, time, 1e9) == 1e9
    tables.close()


def test_chance_makes_a_change_as_seldom_as_asked_for() -> None:
    def pair(difference: float) -> Pair:
        return Pair(
            "gpu", "GPU 0", "idle share", "share", Mean(0.0, 0.6), Mean(difference, 0.8), 11, 0.0
        )

    # 2.201 standard errors for one number at 5 %, 2.593 for two at once.
    assert [judged([pair(value)], 0.05)[0].is_significant for value in (2.19, 2.21)] == [
        False,
        True,
    ]
    assert judged([pair(2.58), pair(2.61)], 0.05)[0].is_significant is False
    assert judged([pair(2.58), pair(2.61)], 0.05)[1].is_significant is True


@pytest.mark.parametrize(
    ("lacking", "is_said"), [((0.01, 0.015), False), ((0.1, 0.3), True), ((0.3, 0.1), True)]
)
def test_a_shortage_of_cpu_is_reported(
    tmp_path: Path, lacking: tuple[float, float], is_said: bool
) -> None:
    diff = diff_of(write_run(tmp_path / "a.profd", 1), write_run(tmp_path / "b.profd", 2))
    base, new = (
        msgspec.structs.replace(side, company=CpuContention(0.0, share))
        for side, share in zip((diff.base, diff.new), lacking, strict=True)
    )
    text = " ".join(diff_text(msgspec.structs.replace(diff, base=base, new=new), 100).split())
    assert ("longer, which the bounds allow for" in text) is is_said


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("gpu:GPU 0, idle share>+20%", ExitCode.BEYOND_LIMIT),
        ("gpu:GPU 0, utilization>+20%", ExitCode.OK),
        ("memory:main>+10%", ExitCode.BEYOND_LIMIT),
        ("memory:main>+30%", ExitCode.OK),
        ("operator:aten::addmm>+10%", ExitCode.OK),
    ],
)
def test_limits_reach_them(limit: str, code: int, planted: tuple[Path, Path]) -> None:
    assert run_command_line(["diff", *map(str, planted), "--fail-on", limit]) == code
