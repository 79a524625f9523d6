"""The torch.profiler windows of a run file: what was taken, its steps, its operators, its trace."""

from __future__ import annotations

import msgspec

from profd.daemon.store.entities import Entities
from profd.daemon.store.rows import OperatorRow, WindowRow, WindowStepRow
from profd.daemon.store.runfile import columns_of


class _TraceRow(msgspec.Struct, frozen=True):
    trace: bytes | None


class WindowReader(Entities):
    """An open run file with its windows."""

    def windows(self, asked_ns: int = 0) -> list[WindowRow]:
        """Return the torch.profiler windows that were asked for at this time or later, in the order of writing.

        None from a file that is older than their table.
        """
        if not self.has_table("window"):
            return []
        columns = ", ".join(WindowRow.__struct_fields__[:-1])
        sql = f"SELECT {columns}, length(trace) FROM window WHERE asked_ns >= ? ORDER BY id"
        rows = [WindowRow(*row) for row in self.select(WindowRow, sql, asked_ns)]
        self.check_known(processes={row.process for row in rows})
        return rows

    def window_steps(self, window: int) -> list[WindowStepRow]:
        """Return the whole steps within a window, in order of time."""
        sql = "SELECT start_ns, end_ns FROM window_step WHERE window = ? ORDER BY start_ns"
        return [WindowStepRow(*row) for row in self.select(WindowStepRow, sql, window)]

    def operators(self, window: int) -> list[OperatorRow]:
        """Return the operators of a window by input shape, and its kernels."""
        sql = f"SELECT {columns_of(OperatorRow)} FROM operator WHERE window = ? ORDER BY rowid"
        return [OperatorRow(row[0], row[1], bool(row[2]), *row[3:]) for row in self.select(OperatorRow, sql, window)]

    def window_trace(self, window: int) -> bytes | None:
        """Return the trace of a window, gzipped; None where it was not kept."""
        rows = self.select(_TraceRow, "SELECT trace FROM window WHERE id = ?", window)
        return rows[0][0] if rows else None
