"""A window as JSON: numbers of a window that was planted in a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.rankrun import RANKS, WINDOW_MS, write_run
from support.synthetic import STARTED_NS

from profd.daemon.analyze.operators import IssuingLine
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render import operators
from profd.daemon.render.operators import Window, describe
from profd.daemon.store.reader import RunReader


def described(path: Path, field: str = "self_cpu_ns") -> Window:
    with RunReader(write_run(path)) as reader:
        return describe(reader, reader.windows()[0], field)


def test_the_window_has_its_process_its_time_and_its_steps(tmp_path: Path) -> None:
    window = described(tmp_path / "a.profd")
    assert (window.source, window.pid, window.rank, window.steps) == ("kineto", RANKS[0].pid, 0, 1)
    assert (window.start_ns, window.end_ns) == tuple(STARTED_NS + at_ms * MILLISECOND_NS for at_ms in WINDOW_MS)
    assert (window.device_busy_ns, window.device_idle_ns, window.device_overlap_ns) == (150_000_000, 50_000_000, 0)


def test_operators_stand_apart_by_shape_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    by_cpu = described(tmp_path / "a.profd").operators
    assert [(row.name, row.self_cpu_us) for row in by_cpu] == [
        *(("aten::conv2d", 2500.0), ("aten::conv2d", 1500.0)),
        *(("aten::addmm", 400.0), ("implicit_gemm", 0.0)),
    ]
    by_cuda = described(tmp_path / "b.profd", "self_cuda_ns").operators
    assert [row.self_cuda_us for row in by_cuda] == [15_100.0, 9_000.0, 6_000.0, 100.0]


def test_an_operator_has_all_its_fields_in_microseconds_and_bytes(tmp_path: Path) -> None:
    first = msgspec.to_builtins(described(tmp_path / "a.profd").operators[0])
    assert first == {
        "name": "aten::conv2d", "device": "cpu", "calls": 6, "self_cpu_us": 2500.0, "cpu_total_us": 5000.0,
        "self_cuda_us": 6000.0, "cuda_total_us": 12000.0, "self_cpu_bytes": 0, "cpu_bytes": 0,
        "self_cuda_bytes": 2048, "cuda_bytes": 4096, "flops": 0, "input_shapes": "[[8, 64, 16, 16]]", "lines": (),
    }  # fmt: skip


def test_lines_issue_operators_and_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = IssuingLine("/home/ada/train.py", "train.py", 61, 5)
    monkeypatch.setattr(operators, "issuing_lines", lambda *_: {"aten::addmm": (line,), "implicit_gemm": (line,)})
    lines = {row.name: row.lines for row in described(tmp_path / "a.profd").operators}
    assert lines == {"aten::conv2d": (), "aten::addmm": (line,), "implicit_gemm": ()}
