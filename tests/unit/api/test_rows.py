"""Rows as an Arrow table have the same fields and values."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.completerun import write_complete_run

import profd
from profd.daemon.api.rows import Rows
from profd.daemon.errors import MissingTool


class Odd(msgspec.Struct, frozen=True):
    """A row with a field of which Arrow knows nothing."""

    what: bytes


@pytest.fixture
def run(tmp_path: Path) -> Iterator[profd.Run]:
    with profd.open_run(write_complete_run(tmp_path / "a.profd")) as opened:
        yield opened


def tables_of(run: profd.Run) -> list[Rows[msgspec.Struct]]:
    found = run.findings, run.phases, run.processes, run.lines(), run.stacks(), run.metrics()
    return list(found)  # type: ignore[arg-type]


@pytest.mark.requires("pyarrow")
def test_each_table_is_one_of_arrow_with_the_same_values_also_without_rows(run: profd.Run) -> None:
    for table in tables_of(run):
        assert len(table) > 0, table
        arrow = table.arrow()
        assert arrow.column_names == list(table.kind.__struct_encode_fields__)
        assert arrow.to_pylist() == json.loads(msgspec.json.encode(list(table)))
        empty = table[:0]
        assert (len(empty), empty.kind) == (0, table.kind)
        assert empty.arrow().schema == arrow.schema
        assert not any(str(one.type) == "null" for one in arrow.schema)


@pytest.mark.requires("pyarrow")
def test_what_reads_arrow_streams_reads_a_table_as_it_is(run: profd.Run) -> None:
    import pyarrow as pa

    assert pa.table(run.stacks()) == run.stacks().arrow()
    with pytest.raises(TypeError, match="no type of Arrow's"):
        Rows(Odd, []).arrow()


def test_a_table_is_a_sequence_of_its_rows(run: profd.Run) -> None:
    table = run.phases
    assert repr(table) == f"<{len(table)} rows of PhaseShare>"
    assert [*table[1:3]] == [table[1], table[2]] == list(table)[1:3]
    assert table[-1] in table


def test_without_pyarrow_the_remedy_is_named(
    run: profd.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingTool, match="need pyarrow, not installed here"):
        run.phases.arrow()
