"""The processes as a tree, and what happened in the run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from profd.daemon.naming import process_title, signal_name
from profd.daemon.render.plaintext import visible
from profd.daemon.store.rows import EventRow
from profd.daemon.units import clock, elapsed, percent, rate, size
from profd.tui.cells import Run, cut_path
from profd.tui.snapshot import ProcessState, Snapshot
from profd.tui.widgets.table import Column, Table

_PHASE_CELLS = 22
_NUMBERS: dict[str, Callable[[ProcessState], str]] = {
    "pid": lambda item: str(item.row.pid),
    "CPU": lambda item: percent(item.cpu_cores) if item.cpu_cores is not None else "",
    "RSS": lambda item: size(item.rss_bytes) if item.rss_bytes is not None else "",
    "GPU mem": lambda item: size(item.gpu_memory_bytes) if item.gpu_memory_bytes is not None else "",
    "threads": lambda item: f"{item.threads:.0f}" if item.threads is not None else "",
    "steps": lambda item: rate(item.steps_per_s) if item.steps_per_s is not None else "",
}
"""What stands in the columns of numbers; of a process that has ended the last that is known."""


class ProcessChosen(Message):
    """The functions of one process are asked for; ``process`` is the id of its row."""

    def __init__(self, process: int) -> None:
        super().__init__()
        self.process = process


class ProcessTable(Table[ProcessState]):
    """The process tree."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "its functions", show=False)]
    empty_text = "No process was seen yet."
    _is_live = True
    _has_gpu = _has_steps = False

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the processes of a snapshot."""
        if snapshot.view.tab != self.id:
            return  # while another tab was open nobody looked at them
        self._is_live = snapshot.info.state == "live"
        self._has_gpu = any(one.gpu_memory_bytes is not None for one in snapshot.processes)
        self._has_steps = any(one.steps_per_s is not None for one in snapshot.processes)
        self.show(snapshot.processes)

    def action_choose(self) -> None:
        """Ask for the functions of the process under the cursor."""
        if self.current is not None:
            self.post_message(ProcessChosen(self.current.row.id))

    def columns(self) -> Sequence[Column]:
        """Return the columns."""
        return (
            Column("process", 22),
            Column("pid", 8, right=True, from_width=40),
            Column("CPU", 7, right=True),
            Column("RSS", 8, right=True, from_width=48),
            *((Column("GPU mem", 8, right=True, from_width=64),) if self._has_gpu else ()),
            Column("threads", 7, right=True, from_width=96),
            *((Column("steps", 8, right=True, from_width=80),) if self._has_steps else ()),
            Column("phase", _PHASE_CELLS, from_width=140),
            Column("function now" if self._is_live else "function, mostly", share=1, from_width=34),
            Column("where", share=1, from_width=100),
        )

    def key(self, item: ProcessState) -> Hashable:
        """Return the id of its row."""
        return item.row.id

    def text(self, item: ProcessState) -> str:
        """Return its name, PID, command and place."""
        return f"{name(item)} {item.row.pid} {' '.join(item.row.command)} {item.function} {item.where}"

    def cell(self, item: ProcessState, column: Column, room: int) -> Sequence[Run]:
        """Return what stands in a column."""
        is_running = item.row.ended_ns is None
        if column.title == "process":
            return self._title(item)
        if column.title == "where":
            return [self.run(cut_path(visible(item.where), room), "dim")]
        if column.title.startswith("function"):
            return self._place(item)
        if column.title == "phase":
            return [self.run(item.phase or "", "plain" if is_running else "faint")]
        return [self.run(_NUMBERS[column.title](item), "plain" if is_running else "faint")]

    def _title(self, item: ProcessState) -> list[Run]:
        branch = "  " * (item.depth - 1) + "└ " if item.depth else ""
        is_running = item.row.ended_ns is None
        ink = "faint" if not is_running and self._is_live else "bright" if item.row.role == "main" else "plain"
        return [self.run(branch, "faint"), self.run(name(item), ink), *self._ending(item)]

    def _ending(self, item: ProcessState) -> list[Run]:
        if item.row.ended_ns is None:
            return []
        if item.row.exit_signal is not None:
            return [self.run(f" {signal_name(item.row.exit_signal)}", "bad")]
        if item.row.exit_code:
            return [self.run(f" ended with {item.row.exit_code}", "bad")]
        return [self.run(" ended", "faint")]

    def _place(self, item: ProcessState) -> list[Run]:
        runs = []
        if item.phase is not None:
            look = self.phase_look(item.phase)
            runs = [Run(look.letter, look.cell), self.run(" ")]
        return [*runs, self.run(visible(item.function), "plain" if item.row.ended_ns is None else "dim")]


def name(item: ProcessState) -> str:
    """Return what a process is: its rank and role, which worker it is."""
    role = process_title(item.row.role, item.row.ordinal)
    return f"rank {item.row.rank} · {role}" if item.row.rank is not None else role


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
