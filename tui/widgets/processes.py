"""The processes as a tree, and what happened in the run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from profd.daemon.naming import process_title, signal_name
from profd.daemon.render.plaintext import visible
from profd.daemon.store.rows import EventRow
from profd.daemon.units import clock, elapsed, percent, rate, size
from profd.tui.cells import Run, cut_path
from profd.tui.snapshot import ProcessState, Snapshot
from profd.tui.widgets.table import Column, Table

_NUMBERS: dict[str, Callable[[ProcessState], str]] = {
    "pid": lambda item: str(item.row.pid),
    "CPU": lambda item: percent(item.cpu_cores) if item.cpu_cores is not None else "",
    "RSS": lambda item: size(item.rss_bytes) if item.rss_bytes is not None else "",
    "GPU mem": lambda item: size(item.gpu_memory_bytes) if item.gpu_memory_bytes is not None else "",
    "threads": lambda item: f"{item.threads:.0f}" if item.threads is not None else "",
    "steps": lambda item: rate(item.steps_per_s) if item.steps_per_s is not None else "",
}
"""What stands in the columns of numbers; of a process that has ended the last that is known."""


class ProcessTable(Table[ProcessState]):
    """The process tree."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "its functions", show=False)]
    empty_text = "No process was seen yet."
    _is_live = True
    _has_gpu = _has_steps = False

    def show_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.view.tab != self.id:
            return  # while another tab was open nobody looked at them
        self._is_live = snapshot.info.state == "live"
        self._has_gpu = any(one.gpu_memory_bytes is not None for one in snapshot.processes)
        self._has_steps = any(one.steps_per_s is not None for one in snapshot.processes)
        self.show(snapshot.processes)

    async def action_choose(self) -> None:
        if self.current is not None:
            await self.run_action(f"screen.open_process({self.current.row.id})")

    def columns(self) -> Sequence[Column]:
        return (
            Column("process", 22),
            Column("pid", 8, right=True, from_width=40),
            Column("CPU", 7, right=True),
            Column("RSS", 8, right=True, from_width=48),
            *((Column("GPU mem", 8, right=True, from_width=64),) if self._has_gpu else ()),
            Column("threads", 7, right=True, from_width=96),
            *((Column("steps", 8, right=True, from_width=80),) if self._has_steps else ()),
            Column("phase", 22, from_width=140),
            Column("function now" if self._is_live else "function, mostly", share=1, from_width=34),
            Column("where", share=1, from_width=100),
        )

    def key(self, item: ProcessState) -> Hashable:
        return item.row.id

    def text(self, item: ProcessState) -> str:
        return f"{name(item)} {item.row.pid} {' '.join(item.row.command)} {item.function} {item.where}"

    def cell(self, item: ProcessState, column: Column, room: int) -> Sequence[Run]:
        row, is_running = item.row, item.row.ended_ns is None
        if column.title == "process":
            branch = "  " * (item.depth - 1) + "└ " if item.depth else ""
            style = "faint" if not is_running and self._is_live else "bright" if row.role == "main" else "plain"
            runs = [self.run(branch, "faint"), self.run(name(item), style)]
            if row.exit_signal is not None and not is_running:
                runs.append(self.run(f" {signal_name(row.exit_signal)}", "bad"))
            elif not is_running:
                runs.append(
                    self.run(f" ended with {row.exit_code}", "bad") if row.exit_code else self.run(" ended", "faint")
                )
            return runs
        if column.title == "where":
            return [self.run(cut_path(visible(item.where), room), "dim")]
        if column.title.startswith("function"):
            function = self.run(visible(item.function), "plain" if is_running else "dim")
            if item.phase is None:
                return [function]
            look = self.phase_look(item.phase)
            return [Run(look.letter, look.cell), self.run(" "), function]
        text = (item.phase or "") if column.title == "phase" else _NUMBERS[column.title](item)
        return [self.run(text, "plain" if is_running else "faint")]


def name(item: ProcessState) -> str:
    role = process_title(item.row.role, item.row.ordinal)
    return f"rank {item.row.rank} · {role}" if item.row.rank is not None else role


_STYLES = {"error": "bad", "loss": "warn", "wall-jump": "warn", "started": "good"}


class EventTable(Table[EventRow]):
    """The events."""

    empty_text = "Nothing has happened yet."
    _started_ns = 0
    _pids: dict[int, int] = {}

    def show_snapshot(self, snapshot: Snapshot) -> None:
        self._started_ns = snapshot.info.started_ns
        self._pids = {row.id: row.pid for row in snapshot.process_rows}
        self.show(snapshot.events[::-1])

    def columns(self) -> Sequence[Column]:
        return (
            Column("at", 8),
            Column("after", 10, from_width=60),
            Column("event", 10, from_width=30),
            Column("pid", 8, right=True, from_width=70),
            Column("what", share=1),
        )

    def key(self, item: EventRow) -> Hashable:
        return item.id

    def text(self, item: EventRow) -> str:
        return f"{item.kind} {item.text}"

    def cell(self, item: EventRow, column: Column, room: int) -> Sequence[Run]:
        if column.title == "event":
            return [self.run(visible(item.kind), _STYLES.get(item.kind, "dim"))]
        if column.title == "what":
            return [self.run(visible(item.text))]
        value = {
            "at": clock(item.at_ns),
            "after": elapsed(item.at_ns - self._started_ns),
            "pid": str(self._pids.get(item.process or 0, "")),
        }[column.title]
        return [self.run(value, "dim")]
