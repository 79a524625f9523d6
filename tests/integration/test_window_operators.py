"""The operators of a trace against torch's own ``key_averages()`` of the same profile, for three
kinds of model.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.folders import PROGRAMS
from support.kinetotraces import by_name
from support.waiting import DEADLINE_S

from profd.daemon.windows.operators import Operators, Totals, sum_up
from profd.daemon.windows.spans import Spans
from profd.daemon.windows.trace import TraceReader

TIMES = ("self_cpu_ns", "cpu_total_ns", "self_cuda_ns", "cuda_total_ns")
COUNTS = ("calls", "self_cpu_bytes", "cpu_bytes", "self_cuda_bytes", "cuda_bytes")
MODELS = ("residual", "mlp", "transformer")


class Row(msgspec.Struct, frozen=True):
    """A row of torch's table, as ``programs/profiled.py`` writes it."""

    name: str
    device: str
    is_annotation: bool
    input_shapes: str
    calls: int
    self_cpu_us: float
    cpu_total_us: float
    self_cuda_us: float
    cuda_total_us: float
    self_cpu_bytes: int
    cpu_bytes: int
    self_cuda_bytes: int
    cuda_bytes: int


class Tables(msgspec.Struct, frozen=True):
    """torch's two tables of one profile."""

    by_name: list[Row]
    by_shape: list[Row]


@pytest.mark.requires("torch")
def test_every_operator_has_the_numbers_of_torch(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, PROGRAMS / "profiled.py", tmp_path],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=2 * DEADLINE_S,
    )
    for model in MODELS:
        tables = msgspec.json.decode((tmp_path / f"{model}.tables.json").read_bytes(), type=Tables)
        text = (tmp_path / f"{model}.trace.json").read_bytes()
        operators = sum_up(Spans(TraceReader([text])))
        compare(by_name(operators), tables.by_name)
        compare(operators, tables.by_shape)


def compare(operators: Operators, table: list[Row]) -> None:
    """Fail where a row differs from torch's, is missing, or is one too many.

    Times are compared to the nanosecond.
    """
    ours = {
        (key.name, key.device, key.is_annotation, key.input_shapes): sums
        for key, sums in operators.items()
    }
    theirs = {
        (row.name, row.device, row.is_annotation, row.input_shapes): totals_of(row) for row in table
    }
    assert len(theirs) == len(table) > 30
    assert ours == theirs


def totals_of(row: Row) -> Totals:
    times = {field: round(getattr(row, field.replace("_ns", "_us")) * 1000) for field in TIMES}
    return Totals(**times, **{field: getattr(row, field) for field in COUNTS})
