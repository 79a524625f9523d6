"""GPUs in the run file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import synthetic
from support.synthetic import MAIN, STARTED_NS, main_process, write_records

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import DeviceRow, PlacementRow, WindowRow

SECOND = records.DeviceSeen(STARTED_NS + 1, "gpu1", 1, "NVIDIA A100", "GPU-b")
FIRST = records.DeviceSeen(STARTED_NS + 2, "gpu0", 0, "NVIDIA H100", "GPU-a", 80 << 30)


def test_devices_come_in_order_and_once_and_have_series_of_their_own(tmp_path: Path) -> None:
    process = records.Point("gpu_process_memory_bytes", 5.0, records.Identity(7, 1), device="gpu0")
    points = records.PointsTaken(
        STARTED_NS + 3, (records.Point("gpu_memory_used_bytes", 9.0, device="gpu0"), process)
    )
    with RunReader(write_records(tmp_path / "run.profd", [SECOND, FIRST, FIRST, points])) as reader:
        assert reader.devices() == [
            DeviceRow("gpu0", 0, "NVIDIA H100", "GPU-a", 80 << 30),
            DeviceRow("gpu1", 1, "NVIDIA A100", "GPU-b", None),
        ]
        series = {(row.name, row.process, row.device) for row in reader.list_series()}
    assert series == {
        ("gpu_memory_used_bytes", None, "gpu0"),
        ("gpu_process_memory_bytes", 1, "gpu0"),
    }


FOUND = records.HangFound(
    STARTED_NS + 40 * SECOND_NS,
    STARTED_NS,
    "no progress for 40 s",
    records.HangReport("collective", ()),
)


def test_a_hang_is_read_back_as_written(tmp_path: Path) -> None:
    ended = records.HangEnded(FOUND.at_ns + SECOND_NS, FOUND.at_ns)
    with RunReader(write_records(tmp_path / "run.profd", [main_process(), FOUND, ended])) as reader:
        (hang,) = reader.hangs()
    assert (hang.at_ns, hang.since_ns, hang.ended_ns) == (FOUND.at_ns, FOUND.since_ns, ended.at_ns)
    assert (hang.report.cause, hang.text, hang.report) == ("collective", FOUND.text, FOUND.report)


@pytest.mark.parametrize(
    ("change", "read", "meant"),
    [
        ("UPDATE window SET process = 99", lambda run: run.windows(), "names a process"),
        ("UPDATE recording SET process = 99", lambda run: run.recordings(), "names a process"),
        ("UPDATE series SET process = 99", lambda run: run.list_series(), "names a process"),
        (
            "UPDATE recording SET process = 99",
            lambda run: run.recordings_after(0, 9),
            "names a process",
        ),
        ("UPDATE window SET trace = 7", lambda run: run.window_trace(1), "Expected"),
        (
            f"UPDATE interval SET duration_ns = {1 << 62}",
            lambda run: list(run.intervals()),
            "Expected",
        ),
        ("UPDATE hang SET report = '{\"cause\": 3}'", lambda run: run.hangs(), "Expected"),
        ("UPDATE placement SET node = 'x'", lambda run: run.placements(), "Expected"),
    ],
)
def test_a_damaged_row_is_said(
    tmp_path: Path, change: str, read: Callable[[RunReader], object], meant: str
) -> None:
    path = tmp_path / "a.profd"
    window = records.WindowTaken(
        synthetic.MAIN, synthetic.STARTED_NS, "kineto", synthetic.STARTED_NS
    )
    placed = replace(main_process(), placement=records.Placement(5, 1))
    synthetic.write_run(path, seconds=3, also=[window, FOUND, placed])
    with RunReader(path) as run:
        read(run)
    with sqlite3.connect(path) as connection:
        assert connection.execute(change).rowcount > 0
    connection.close()
    with RunReader(path) as run, pytest.raises(RunUnreadable, match=meant):
        read(run)


def test_the_newest_place_of_each_rank_is_kept(tmp_path: Path) -> None:
    # An agent that became the rank: its environment was another one before.
    found = [
        replace(main_process(), placement=placement)
        for placement in (records.Placement(5), records.Placement(5, 1, 0, 8))
    ]
    with RunReader(write_records(tmp_path / "a.profd", found)) as reader:
        (main,) = reader.processes
        assert reader.placements() == {main: PlacementRow(main, 1, 0, 8)}


ADD = records.OperatorTotals(
    "aten::add", "cpu", False, "[[2, 3], []]", 4, 10, 20, 30, 40, -1, -2, 5, 6
)
STEP = records.OperatorTotals("ProfilerStep*", "cpu", True, "[]", 1, 1, 2, 0, 0, 0, 0, 0, 0)
TAKEN = records.WindowTaken(
    MAIN,
    at_ns=STARTED_NS + 9,
    source="kineto",
    asked_ns=STARTED_NS + 1,
    start_ns=STARTED_NS + 2,
    end_ns=STARTED_NS + 8,
    steps=(
        records.WindowStep(STARTED_NS + 2, STARTED_NS + 4),
        records.WindowStep(STARTED_NS + 4, STARTED_NS + 7),
    ),
    gpus=(
        records.WindowGpu(0, busy_ns=3, idle_ns=2, overlap_ns=1, host_ns=2),
        records.WindowGpu(3, 1, 0, 0, 0),
    ),
    gaps=(records.HostGap(0, STARTED_NS + 3, STARTED_NS + 5, 4242),),
    waits=(records.WindowWait("cudaMalloc", STARTED_NS + 3, STARTED_NS + 4, 4242),),
    operators=(ADD, STEP),
    trace_bytes=1000,
    trace=b"packed",
)
FAILED = records.WindowTaken(
    MAIN, at_ns=STARTED_NS + SECOND_NS, source="kineto", asked_ns=STARTED_NS + 99, error="it ended"
)


def test_window_comes_out_as_it_was_taken(tmp_path: Path) -> None:
    with RunReader(write_records(tmp_path / "run.profd", [main_process(), TAKEN])) as reader:
        (process,) = reader.processes
        taken = WindowRow(
            1, process, "kineto", TAKEN.asked_ns, "", TAKEN.start_ns, TAKEN.end_ns, 4, 2, 1, 1000, 6
        )
        assert reader.windows() == [taken]
        assert reader.window_steps(1) == list(TAKEN.steps)
        assert reader.operators(1) == list(TAKEN.operators)
        assert reader.operators(1)[1].is_annotation is True
        assert reader.window_gpus(1) == list(TAKEN.gpus)
        assert reader.host_gaps(1) == list(TAKEN.gaps)
        assert reader.window_waits(1) == list(TAKEN.waits)
        assert reader.window_trace(1) == b"packed"


def test_windows_are_found_by_when_they_were_asked_for_and_one_that_failed_says_why(
    tmp_path: Path,
) -> None:
    with RunReader(
        write_records(tmp_path / "run.profd", [TAKEN, main_process(), FAILED])
    ) as reader:
        assert [window.id for window in reader.windows()] == [1, 2]
        # The process was seen after its first window.
        assert {reader.processes[window.process].role for window in reader.windows()} == {"main"}
        (window,) = reader.windows(FAILED.asked_ns)
        assert (window.error, window.kept_bytes, window.device_busy_ns) == ("it ended", None, None)
        assert (reader.operators(window.id), reader.window_steps(window.id)) == ([], [])
        assert reader.window_trace(window.id) is None
