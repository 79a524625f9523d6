"""The table of a window's operators: its columns, its order, its sums."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.rankrun import RANKS, WINDOW_MS, write_run
from support.synthetic import STARTED_NS

from profd.daemon.analyze.operators import IssuingLine, by_name
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render import operators
from profd.daemon.render.operators import describe, operator_table, sort_rows
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals

MM = OperatorTotals("aten::mm", "cpu", False, "[[2, 3], [3, 5]]", 2, 3_000, 4_000, 0, 0, 0, 0, 0, 0)
WIDE_MM = msgspec.structs.replace(MM, input_shapes="[[4, 3], [3, 5]]", calls=1)
STEP = OperatorTotals("ProfilerStep*", "cpu", True, "[]", 1, 1_000, 2_500_000_000, 0, 0, 0, 0, 0, 0)
KERNEL = OperatorTotals("sgemm", "cuda", False, "[]", 4, 0, 0, 1_500_000, 1_500_000, 0, 0, 0, 0)
GPU_STEP = OperatorTotals(
    "ProfilerStep*", "cuda", True, "[]", 1, 0, 0, 9_000_000, 9_000_000, 0, 0, 0, 0
)


def words(table: str, line: int) -> list[str]:
    return [word.strip() for word in table.splitlines()[line].split("  ") if word.strip()]


def test_columns_are_those_of_torch_and_last_the_lines_that_issued_operators() -> None:
    host = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    assert words(operator_table([STEP]), 0) == [*host, "# of Calls"]
    assert words(operator_table([MM]), 0) == [*host, "# of Calls", "Input Shapes"]
    device = ["Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"]
    assert words(operator_table([KERNEL]), 0) == [*host, *device, "# of Calls"]
    with_memory = msgspec.structs.replace(STEP, cpu_bytes=1, self_cuda_bytes=1)
    memory = ["CPU Mem", "Self CPU Mem", "CUDA Mem", "Self CUDA Mem"]
    assert words(operator_table([with_memory]), 0) == [*host, *memory, "# of Calls"]
    line = IssuingLine("/home/u/train.py", "train.py", 61, 34)
    table = operator_table([MM, STEP, KERNEL], issuers={"aten::mm": (line,), "sgemm": (line,)})
    assert words(table, 0)[-1] == "From (samples)"
    assert [words(table, row)[-1] == "train.py:61 (34)" for row in (2, 3, 4)] == [
        True,
        False,
        False,
    ]
    assert "From" not in operator_table([MM], issuers={})


@pytest.mark.parametrize("room", [80, 100, 120, 140, 200])
def test_a_table_without_room_lacks_whole_columns_and_says_which(room: int) -> None:
    rows = [WIDE_MM, MM, msgspec.structs.replace(KERNEL, cpu_bytes=1)]
    every, table = words(operator_table(rows), 0), operator_table(rows, room=room)
    heads, last = words(table, 0), table.splitlines()[-1]
    assert all(len(line) <= room for line in table.splitlines()[:-1])
    assert {"Name", "Self CPU", "Self CUDA", "# of Calls", "Input Shapes"} <= {*heads}
    left_out = last.removeprefix("No room for ").partition(":")[0].split(", ")
    assert {*heads, *left_out} == {*every} if len(heads) < len(every) else "Self CUDA" in last


def test_times_memory_and_shares_are_written_as_torch_does() -> None:
    table = operator_table([MM, STEP])
    assert words(table, 2) == [
        "aten::mm", "75.00%", "3.000us", "100.00%", "4.000us", "2.000us", "2", "[[2, 3], [3, 5]]",
    ]  # fmt: skip
    assert words(table, 3)[:6] == [
        "ProfilerStep*",
        "25.00%",
        "1.000us",
        "62500000.00%",
        "2.500s",
        "2.500s",
    ]
    assert table.splitlines()[-1] == "Self CPU time total: 4.000us"
    table = operator_table([KERNEL, GPU_STEP])
    # No share of no time: nothing stands there.
    assert words(table, 2)[:5] == ["sgemm", "0.000us", "0.000us", "0.000us", "1.500ms"]
    assert words(table, 2)[4:7] == ["1.500ms", "100.00%", "1.500ms"]
    assert table.splitlines()[-1] == "Self CUDA time total: 1.500ms"
    sizes = [
        msgspec.structs.replace(STEP, cpu_bytes=size) for size in (-2048, 1536, 3 << 20, 5 << 30, 7)
    ]
    table = operator_table(sizes)
    assert [words(table, line)[6] for line in range(2, 7)] == [
        "-2.00 KB",
        "1.50 KB",
        "3.00 MB",
        "5.00 GB",
        "7 B",
    ]


def test_rows_of_one_name_are_summed_but_not_over_devices() -> None:
    merged = by_name([MM, WIDE_MM, STEP, GPU_STEP])
    assert [(row.name, row.device, row.calls, row.self_cpu_ns) for row in merged] == [
        ("aten::mm", "cpu", 3, 6_000),
        ("ProfilerStep*", "cpu", 1, 1_000),
        ("ProfilerStep*", "cuda", 1, 0),
    ]
    assert {row.input_shapes for row in merged} == {""}


def test_rows_are_sorted_by_any_field_and_long_tables_and_names_are_cut() -> None:
    for field, names in (
        ("calls", ["sgemm", "aten::mm", "ProfilerStep*"]),
        ("cpu_total_ns", ["ProfilerStep*", "aten::mm", "sgemm"]),
        ("name", ["ProfilerStep*", "aten::mm", "sgemm"]),
    ):
        assert [row.name for row in sort_rows([MM, STEP, KERNEL], field)] == names, field
    lines = operator_table([MM, STEP], limit=1).splitlines()
    assert (len(lines), lines[-1]) == (4, "Self CPU time total: 4.000us")
    row = msgspec.structs.replace(STEP, name="a\x1b[2J" + "b" * 100)
    line = operator_table([row]).splitlines()[2]
    assert "\x1b" not in line
    assert "..." in line


def test_a_window_has_its_time_and_operators_with_all_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunReader(write_run(tmp_path / "a.profd")) as reader:
        window = describe(reader, reader.windows()[0], "self_cpu_ns")
        line = IssuingLine("/home/ada/train.py", "train.py", 61, 5)
        issued = {"aten::addmm": (line,), "implicit_gemm": (line,)}
        monkeypatch.setattr(operators, "issuing_lines", lambda *_: issued)
        lines = {
            row["name"]: row["lines"]
            for row in describe(reader, reader.windows()[0], "self_cpu_ns")["operators"]
        }
    assert lines == {"aten::conv2d": (), "aten::addmm": (line,), "implicit_gemm": ()}  # no kernels
    assert (window["source"], window["pid"], window["rank"], window["steps"]) == (
        "kineto",
        RANKS[0].pid,
        0,
        1,
    )
    assert (window["start_ns"], window["end_ns"]) == tuple(
        STARTED_NS + at_ms * MILLISECOND_NS for at_ms in WINDOW_MS
    )
    times_ns = [window[f"device_{kind}_ns"] for kind in ("busy", "idle", "overlap")]
    assert times_ns == [150_000_000, 50_000_000, 0]
    assert window["operators"][0] == {
        "name": "aten::conv2d", "device": "cpu", "calls": 6, "self_cpu_us": 2500.0, "cpu_total_us": 5000.0,
        "self_cuda_us": 6000.0, "cuda_total_us": 12000.0, "self_cpu_bytes": 0, "cpu_bytes": 0,
        "self_cuda_bytes": 2048, "cuda_bytes": 4096, "input_shapes": "[[8, 64, 16, 16]]", "lines": (),
    }  # fmt: skip
