"""The processes as a tree, and what happened in the run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

from profd.daemon.naming import exit_words, process_title, signal_name
from profd.daemon.render.plaintext import visible
from profd.daemon.store.rows import EventRow
from profd.daemon.units import clock, elapsed, percent, rate, size
from profd.tui.cells import Run, cut_path
from profd.tui.snapshot import ProcessState, Snapshot
from profd.tui.widgets.table import NEVER, Column, Table


class ProcessTable(Table[ProcessState]):
    """The process tree; a process that has ended shows its last known numbers."""

    BINDINGS = [("enter", "choose")]
    empty_text = "No process was seen yet."
    _is_live = True
    _has_gpu = _has_steps = False

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.view.tab != self.id:
            return  # nobody looked at them while another tab was open
        self._is_live = snapshot.info.state == "live"
        self._has_gpu = any(one.gpu_memory_bytes is not None for one in snapshot.processes)
        self._has_steps = any(one.steps_per_s is not None for one in snapshot.processes)
        self.show_rows(snapshot.processes)

    async def action_choose(self) -> None:
        if self.current is not None:
            await self.run_action(f"screen.open_process({self.current.row.id})")

    def columns(self) -> Sequence[Column[ProcessState]]:
        def cell(text: Callable[[ProcessState], str | None]) -> Callable[[ProcessState, int], Run]:
            return lambda item, _: self.run(
                text(item) or "", "plain" if item.row.ended_ns is None else "faint"
            )

        def known(text: Callable[[float], str], field: str) -> Callable[[ProcessState, int], Run]:
            return cell(
                lambda item: None if getattr(item, field) is None else text(getattr(item, field))
            )

        return (
            Column("process", self._process, 22),
            Column("pid", cell(lambda item: str(item.row.pid)), 8, 40, right=True),
            Column("CPU", known(percent, "cpu_cores"), 7, right=True),
            Column("RSS", known(size, "rss_bytes"), 8, 48, right=True),
            Column(
                "GPU mem",
                known(size, "gpu_memory_bytes"),
                8,
                64 if self._has_gpu else NEVER,
                right=True,
            ),
            Column("threads", known("{:.0f}".format, "threads"), 7, 96, right=True),
            Column(
                "steps", known(rate, "steps_per_s"), 8, 80 if self._has_steps else NEVER, right=True
            ),
            Column("phase", cell(lambda item: item.phase), 22, 140),
            Column(
                "function now" if self._is_live else "function, mostly",
                self._function,
                0,
                34,
                share=1,
            ),
            Column(
                "where",
                lambda item, room: self.run(cut_path(visible(item.where), room), "dim"),
                0,
                100,
                share=1,
            ),
        )

    def key(self, item: ProcessState) -> Hashable:
        return item.row.id

    def text(self, item: ProcessState) -> str:
        return (
            f"{name(item)} {item.row.pid} {' '.join(item.row.command)} {item.function} {item.where}"
        )

    def _process(self, item: ProcessState, room: int) -> list[Run]:
        row, is_running = item.row, item.row.ended_ns is None
        style = (
            "faint"
            if not is_running and self._is_live
            else "bright"
            if row.role == "main"
            else "plain"
        )
        runs = [
            self.run("  " * (item.depth - 1) + "└ " if item.depth else "", "faint"),
            self.run(name(item), style),
        ]
        if is_running:
            return runs
        if row.exit_signal is not None:
            return [*runs, self.run(f" {signal_name(row.exit_signal)}", "bad")]
        words = exit_words(row.exit_code or None, None)
        return [*runs, self.run(f" {words}", "bad" if row.exit_code else "faint")]

    def _function(self, item: ProcessState, room: int) -> list[Run]:
        function = self.run(visible(item.function), "plain" if item.row.ended_ns is None else "dim")
        look = self.phase_look(item.phase) if item.phase is not None else None
        return [Run(look.letter, look.cell), self.run(" "), function] if look else [function]


def name(item: ProcessState) -> str:
    role = process_title(item.row.role, item.row.ordinal)
    return f"rank {item.row.rank} · {role}" if item.row.rank is not None else role


class EventTable(Table[EventRow]):
    """The events."""

    empty_text = "Nothing has happened yet."
    _started_ns = 0
    _pids: dict[int, int] = {}

    def show(self, snapshot: Snapshot) -> None:
        self._started_ns = snapshot.info.started_ns
        self._pids = {row.id: row.pid for row in snapshot.process_rows}
        self.show_rows(snapshot.events[::-1])

    def columns(self) -> Sequence[Column[EventRow]]:
        dim, pids = partial(self.run, style="dim"), self._pids
        return (
            Column("at", lambda item, _: dim(clock(item.at_ns)), 8),
            Column("after", lambda item, _: dim(elapsed(item.at_ns - self._started_ns)), 10, 60),
            Column(
                "event",
                lambda item, _: self.run(visible(item.kind), item.kind.style),
                10,
                30,
            ),
            Column(
                "pid", lambda item, _: dim(str(pids.get(item.process or 0, ""))), 8, 70, right=True
            ),
            Column("what", lambda item, _: self.run(visible(item.text)), share=1),
        )

    def key(self, item: EventRow) -> Hashable:
        return item.id

    def text(self, item: EventRow) -> str:
        return f"{item.kind} {item.text}"
