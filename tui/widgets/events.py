"""What happened in the run: processes that came and went, losses, errors, notes; the newest first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from profd.daemon.render.visible import visible
from profd.daemon.store.rows import EventRow
from profd.daemon.units import clock, elapsed
from profd.tui.drawing.cells import Run
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.table import Column, Table

_INKS = {"error": "bad", "loss": "warn", "wall-jump": "warn", "started": "good"}


class EventTable(Table[EventRow]):
    """The events."""

    empty_text = "Nothing has happened yet."
    _started_ns = 0
    _pids: dict[int, int] = {}

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the events of a snapshot."""
        self._started_ns = snapshot.info.started_ns
        self._pids = {row.id: row.pid for row in snapshot.process_rows}
        self.show(snapshot.events[::-1])

    def columns(self) -> Sequence[Column]:
        """Return the columns."""
        return (
            Column("at", 8),
            Column("after", 10, from_width=60),
            Column("event", 10, from_width=30),
            Column("pid", 8, right=True, from_width=70),
            Column("what", share=1),
        )

    def key(self, item: EventRow) -> Hashable:
        """Return the id of its row."""
        return item.id

    def text(self, item: EventRow) -> str:
        """Return its kind and text."""
        return f"{item.kind} {item.text}"

    def cell(self, item: EventRow, column: Column, room: int) -> Sequence[Run]:
        """Return what stands in a column."""
        if column.title == "event":
            return [self.run(visible(item.kind), _INKS.get(item.kind, "dim"))]
        if column.title == "what":
            return [self.run(visible(item.text))]
        value = {
            "at": clock(item.at_ns),
            "after": elapsed(item.at_ns - self._started_ns),
            "pid": str(self._pids.get(item.process or 0, "")),
        }[column.title]
        return [self.run(value, "dim")]
