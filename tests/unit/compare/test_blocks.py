"""Blocks of a run that is compared: how long a step is in all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.present import there
from support.stepruns import PLAIN_MS, Lengths, diff_of, write_steps
from support.synthetic import (
    DATA_WAIT,
    MAIN,
    MAIN_TID,
    STARTED_NS,
    main_process,
    recording,
    steps_counted,
    write_records,
)

from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.compare.blocks import (
    Blocks,
    CpuContention,
    Item,
    Mean,
    slowing,
    take_blocks,
    take_cpu_contention,
)
from profd.daemon.compare.diff import Diff
from profd.daemon.render.difftext import diff_text
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Record, RunEnded
from profd.daemon.timerange import TimeRange

SLOW, QUICK = 300, 100  # ms
LENGTHS_MS = [SLOW] * 100 + [QUICK] * 300
WAIT: Item = ("phase", "data wait", "", 0)


def write_two_paces(path: Path) -> Path:
    """Write a run whose steps take a third as long from the half of its time on."""
    ends_ms = [sum(LENGTHS_MS[: step + 1]) for step in range(len(LENGTHS_MS))]
    length_ns = ends_ms[-1] * MILLISECOND_NS
    thread = (MAIN_TID, "MainThread", True, [(DATA_WAIT, length_ms) for length_ms in LENGTHS_MS])
    found: list[Record] = [
        main_process(),
        recording(MAIN, STARTED_NS, (thread,), duration_ns=length_ns),
    ]
    found += [steps_counted(end_ms / 1000, step) for step, end_ms in enumerate(ends_ms[:-1], 1)]
    return write_records(path, [*found, RunEnded(STARTED_NS + length_ns, "target-exited", 0)])


def test_the_length_of_a_step_is_that_of_all_steps_and_not_of_all_blocks(tmp_path: Path) -> None:
    with RunReader(write_two_paces(tmp_path / "run.profd")) as reader:
        blocks = take_blocks(reader, Selection())
    assert blocks.paces
    assert there(blocks.step_s).value == pytest.approx(
        0.150, abs=0.002
    )  # of the blocks it is 0.200
    two = Blocks(2, {WAIT: [0.5, 0.5]}, Mean(0.15, 0.01), [0.3, 0.1], TimeRange(0, 1), {})
    assert two.mean(WAIT, by_step=True).value == pytest.approx(0.075)  # parts add up to it


ALONE = CpuContention(0.0, 0.0)
SECONDS = 120
PROFD_CORES = 0.05


def readings(others: float, own: float = 1.0) -> Iterator[records.Record]:
    """Yield what a machine of four cores tells while others keep some of them busy."""
    for second in range(SECONDS):
        points = [
            records.Point("host_cpu_share", (own + others + PROFD_CORES) / 4),
            records.Point("cpu_cores", own, MAIN),
            records.Point("profd_cpu_cores", PROFD_CORES),
            records.Point("host_cpu_pressure_share", 0.0),
            *(records.Point("host_core_cpu_share", 0.5, device=f"cpu{core}") for core in range(4)),
        ]
        yield records.PointsTaken(STARTED_NS + second * SECOND_NS, tuple(points))


def diff_in_company(
    folder: Path, others: tuple[float, float], factor: float = 1.0, slower: float = 1.0
) -> Diff:
    """Compare two runs: all of the second takes ``factor`` times as long, one function of it
    ``slower`` times.
    """
    paths = []
    folder.mkdir(exist_ok=True)
    for number, busy in enumerate(others):
        times = factor if number else 1.0
        lengths: Lengths = {stack: times * length for stack, length in PLAIN_MS.items()}
        path = folder / f"{number}.profd"
        beside = tuple(readings(busy))
        paths.append(write_steps(path, number, slower if number else 1.0, lengths, beside=beside))
    return diff_of(*paths)


def test_a_run_that_is_slower_as_a_whole_in_company_has_not_changed(tmp_path: Path) -> None:
    diff = diff_in_company(tmp_path, (0.0, 1.5), factor=1.25)
    base, new = there(diff.base.company), there(diff.new.company)
    # Others are what neither the run nor profd used, of the three cores beside its own.
    assert (base.others, new.others) == pytest.approx((0.0, 0.5), abs=0.01)
    assert not diff.significant
    step_time = there(diff.step_time)
    assert step_time.relative == pytest.approx(0.25, abs=0.02)
    assert not step_time.is_significant
    assert "of the other cores busy in the base and 50 % in the new run" in " ".join(
        diff_text(diff, 100).split()
    )
    # A run that is slower alone has a difference; a part that is slower is named in company too.
    diff = diff_in_company(tmp_path / "alone", (0.0, 0.0), factor=1.25)
    assert there(diff.step_time).is_significant
    assert "Others kept" not in diff_text(diff, 100)
    assert there(diff_in_company(tmp_path / "part", (0.0, 1.5), slower=1.6).first).name == "b"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (
            {"main_thread_core_wait_share": 0.15, "host_cpu_pressure_share": 0.9},
            0.15,
        ),  # the kernel counts it by thread
        ({"host_cpu_pressure_share": 0.25}, 0.25),  # nobody waited for longer
        ({}, 0.0),
    ],
)
def test_how_long_a_core_was_lacking(
    tmp_path: Path, named: dict[str, float], expected: float
) -> None:
    points = [
        records.Point(name, value, MAIN if name.startswith("main") else None)
        for name, value in named.items()
    ]
    known = [
        records.PointsTaken(
            STARTED_NS + second * SECOND_NS, (*points, records.Point("host_cpu_share", 0.5))
        )
        for second in range(60)
    ]
    cores = [
        records.PointsTaken(
            STARTED_NS, (records.Point("host_core_cpu_share", 0.5, device=f"cpu{core}"),)
        )
        for core in range(2)
    ]
    path = write_steps(tmp_path / "a.profd", 1, beside=[*known, *cores])
    with RunReader(path) as reader:
        part = Selection(from_ns=STARTED_NS, to_ns=STARTED_NS + 50 * SECOND_NS)
        company = there(take_cpu_contention(reader, part))
    assert company.lacking == pytest.approx(expected)


@pytest.mark.parametrize(
    ("base", "new", "longer"),
    [
        (ALONE, ALONE, 0.0),
        (None, CpuContention(1.0, 0.5), 0.0),
        (CpuContention(0.2, 0.0), CpuContention(0.4, 0.0), 0.2),
        (CpuContention(0.4, 0.0), CpuContention(0.4, 0.0), 0.1),
        (ALONE, CpuContention(0.0, 0.5), 1.25),
        (CpuContention(0.0, 0.5), CpuContention(0.0, 0.5), 0.25),
        (ALONE, CpuContention(0.0, 1.0), 123.75),
    ],
)
def test_what_company_may_add_to_a_step(
    base: CpuContention | None, new: CpuContention, longer: float
) -> None:
    assert slowing(base, new) == slowing(new, base) == pytest.approx(longer)
