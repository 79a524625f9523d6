"""A run as tidy tables in CSV or Parquet files, one row per observation.

Docs/file-format.md describes their columns.
"""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import selected_intervals
from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import MissingTool
from profd.daemon.installation import install_extra
from profd.daemon.render.plaintext import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow

if TYPE_CHECKING:
    import pyarrow

Value = str | int | float | None
Values = tuple[Value, ...]
"""A row, in the order of the columns."""
Rows = Callable[[RunReader, Selection], Iterator[Values]]


def columns(text: str) -> Mapping[str, type]:
    """Return the columns of a table, given as ``name type`` with commas between them."""
    types = {kind.__name__: kind for kind in (int, float, str, bool)}
    return {name: types[kind] for name, kind in (column.split() for column in text.split(", "))}


def _samples(reader: RunReader, selection: Selection) -> Iterator[Values]:
    """Yield the selected intervals: from a time on, a thread stood in a stack."""
    phases = PhaseIndex(reader)

    @functools.cache
    def leaf(stack: int) -> Values:
        frames = reader.frames_of(stack)
        path = ";".join(frame.label for frame in frames)
        return phases.of_stack(stack), frames[-1].function, frames[-1].file, frames[-1].line, path

    for interval in selected_intervals(reader, selection, selection.threads(reader), phases):
        thread = reader.threads[interval.thread]
        process = reader.processes[thread.process]
        seen = interval.start_ns, interval.duration_ns, interval.samples
        place = process.pid, process.role, process.rank, thread.name, thread.os_tid
        yield (*seen, *place, *leaf(interval.stack))


def series_rows(reader: RunReader, selection: Selection, *names: str) -> Iterator[Values]:
    """Yield the readings of the series of these names, or of all, in the selection's range of time.

    They are those of its processes, devices and the host.
    """
    for series in reader.list_series(*names):
        process = reader.processes.get(series.process or 0)
        if process is None or selection.takes_process(process):
            rank = None if process is None else process.rank
            of = series.name, _pid(process), rank, series.os_tid, series.device
            for point in reader.points(series.id, selection.time):
                yield (point.at_ns, *of, point.value)


def _processes(reader: RunReader, selection: Selection) -> Iterator[Values]:
    for row in filter(selection.takes_process, reader.processes.values()):
        parent = reader.processes.get(row.parent or 0)
        yield (
            row.pid,
            _pid(parent),
            row.role,
            row.rank,
            row.ordinal,
            row.python,
            " ".join(row.command),
            row.seen_ns,
            row.ended_ns,
            row.exit_code,
            row.exit_signal,
        )


def _events(reader: RunReader, selection: Selection) -> Iterator[Values]:
    for event in reader.events():
        if selection.time.holds(event.at_ns):
            process = reader.processes.get(event.process or 0)
            yield event.at_ns, event.kind, _pid(process), event.text


def _pid(process: ProcessRow | None) -> int | None:
    return None if process is None else process.pid


TABLES: Mapping[str, tuple[Mapping[str, type], Rows]] = {
    "samples": (
        columns(
            "start_ns int, duration_ns int, samples int, pid int, role str, rank int, thread str, "
            "os_tid int, phase str, function str, file str, line int, stack str"
        ),
        _samples,
    ),
    "series": (
        columns("at_ns int, name str, pid int, rank int, os_tid int, device str, value float"),
        series_rows,
    ),
    "processes": (
        columns(
            "pid int, parent_pid int, role str, rank int, worker int, python str, command str, "
            "seen_ns int, ended_ns int, exit_code int, exit_signal int"
        ),
        _processes,
    ),
    "events": (columns("at_ns int, kind str, pid int, text str"), _events),
}
"""The type of each column, and the rows as tuples in the order of the columns."""
_STARTS_FORMULA = ("=", "+", "-", "@")


def csv_files(reader: RunReader, selection: Selection) -> dict[str, bytes]:
    """Return the tables of a selection by file name.

    They are UTF-8 with a header line; a cell is empty if its value is not known.
    """
    files = {}
    for name, (columns, rows) in TABLES.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for row in rows(reader, selection):
            writer.writerow(map(_cell, row))
        files[f"{name}.csv"] = text.getvalue().encode()
    return files


def _cell(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    text = visible(value)
    # With a quote in front, no spreadsheet takes a cell for a formula.
    return f"'{text}" if text.startswith(_STARTS_FORMULA) else text


def parquet_files(reader: RunReader, selection: Selection) -> dict[str, bytes]:
    """Return the tables of a selection by file name.

    Raises MissingTool if pyarrow is not installed.
    """
    files = {}
    for name, (columns, rows) in TABLES.items():
        content = io.BytesIO()
        file = ParquetFile(parquet_schema(columns, "parquet"), content)
        for row in rows(reader, selection):
            file.add(row)
        file.close()
        files[f"{name}.parquet"] = content.getvalue()
    return files


class ParquetFile:
    """A Parquet file of one table that is being written to ``target``.

    It holds ``batch`` rows in memory at a time.
    """

    def __init__(
        self, schema: pyarrow.Schema, target: Path | io.BytesIO, batch: int = 65_536
    ) -> None:
        """Begin the file; pyarrow is installed, as there is a schema."""
        from pyarrow import parquet

        self.rows, self._schema, self._batch_rows = 0, schema, batch
        # If a dictionary exceeds the limit, pyarrow drops it for the whole column; stacks are long.
        self._writer = parquet.ParquetWriter(
            target, schema, compression="zstd", dictionary_pagesize_limit=1 << 26
        )
        self._batch: list[Values] = []

    def add(self, values: Values) -> None:
        self._batch.append(values)
        self.rows += 1
        if len(self._batch) >= self._batch_rows:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows, and end the file."""
        if self._batch:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow

        columns = dict(zip(self._schema.names, zip(*self._batch, strict=True), strict=True))
        self._writer.write_table(pyarrow.Table.from_pydict(columns, schema=self._schema))
        self._batch.clear()


def parquet_schema(
    columns: Mapping[str, type], extra: str, metadata: dict[str, str] | None = None
) -> pyarrow.Schema:
    """Return the schema of a table.

    Raises MissingTool if pyarrow, part of profd's ``extra``, is not installed.
    """
    pa = arrow(extra)
    types = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    return pa.schema([(column, types[kind]) for column, kind in columns.items()], metadata=metadata)


def arrow(extra: str) -> ModuleType:
    """Return pyarrow; raises MissingTool if it, part of profd's ``extra``, is not installed."""
    try:
        import pyarrow
    except ImportError:
        what = "Arrow and Parquet need pyarrow, not installed here"
        raise MissingTool(what, install_extra(extra)) from None
    return pyarrow  # type: ignore[no-any-return]
