"""The processes as a tree, and what happened in the run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from profd.daemon.events import EventKind
from profd.daemon.naming import exit_words, process_title, signal_name
from profd.daemon.render.plaintext import visible
from profd.daemon.store.rows import EventRow
from profd.daemon.units import clock, elapsed, percent, rate, size
from profd.tui.cells import Run, cut_path
from profd.tui.dialogs import SheetScreen
from profd.tui.snapshot import ProcessState, Snapshot
from profd.tui.widgets.table import Column, Table


class ProcessTable(Table[ProcessState]):
    """The process tree; a process that has ended shows its last known numbers."""

    BINDINGS = [("enter", "choose")]
    empty_text = "No process was seen yet."
    _is_live = True
    _has_gpu = _has_steps = False
    folded_text = "in rows of many: ⏎ shows each"
    most_whole = 0
    _unfolded: frozenset[int | None] = frozenset()

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.view.tab != self.id:
            return  # nobody looked at them while another tab was open
        self._is_live = snapshot.info.is_live
        self._has_gpu = any(one.gpu_memory_bytes is not None for one in snapshot.processes)
        self._has_steps = any(one.steps_per_s is not None for one in snapshot.processes)
        self.show_rows(snapshot.processes)

    async def action_choose(self) -> None:
        if self.meant is not None and self.meant.group:
            self._unfolded ^= {self.meant.row.parent}
            self._arrange()
        elif self.meant is not None:
            await self.run_action(f"screen.open_process({self.meant.row.id})")

    def columns(self) -> Sequence[Column[ProcessState]]:
        def cell(text: Callable[[ProcessState], str | None]) -> Callable[[ProcessState], Run]:
            return lambda item: (
                text(item) or "",
                "plain" if item.row.ended_ns is None else "faint",
            )

        def known(text: Callable[[float], str], field: str) -> Callable[[ProcessState], Run]:
            return cell(
                lambda item: None if getattr(item, field) is None else text(getattr(item, field))
            )

        gpu_memory, steps = known(size, "gpu_memory_bytes"), known(rate, "steps_per_s")
        return (
            Column("process", self._process, 22),
            Column(
                "pid",
                cell(lambda item: "" if item.group else str(item.row.pid)),
                8,
                40,
                right=True,
            ),
            Column("CPU", known(percent, "cpu_cores"), 7, right=True),
            Column("RSS", known(size, "rss_bytes"), 8, 48, right=True),
            *([Column("GPU mem", gpu_memory, 8, 64, right=True)] if self._has_gpu else []),
            Column("threads", known("{:.0f}".format, "threads"), 7, 96, right=True),
            *([Column("steps", steps, 8, 80, right=True)] if self._has_steps else []),
            Column("phase", cell(lambda item: item.phase), 22, 140),
            Column(
                "function now" if self._is_live else "function, mostly",
                self._function,
                from_width=34,
                share=1,
            ),
            Column(
                "where",
                lambda item: (item.where, "dim"),
                from_width=100,
                share=1,
                shorten=cut_path,
            ),
        )

    def is_nothing(self, item: ProcessState) -> bool:
        return item.folded and item.row.parent not in self._unfolded

    def key(self, item: ProcessState) -> Hashable:
        return (item.row.parent, "workers") if item.group else item.row.id

    def text(self, item: ProcessState) -> str:
        return (
            f"{name(item)} {item.row.pid} {' '.join(item.row.command)} {item.function} {item.where}"
        )

    def _process(self, item: ProcessState) -> list[Run]:
        row = item.row
        style, end = "bright" if row.is_main else "plain", ""
        if row.ended_ns is not None:
            style = "faint" if self._is_live else style
            end = signal_name(row.exit_signal) or exit_words(row.exit_code or None, None)
        return [
            ("  " * (item.depth - 1) + "└ " if item.depth else "", "faint"),
            (name(item), style),
            (f" {end}" if end else "", "bad" if row.exit_signal or row.exit_code else "faint"),
        ]

    def _function(self, item: ProcessState) -> list[Run]:
        function: Run = (item.function, "plain" if item.row.ended_ns is None else "dim")
        look = self.phase_looks[item.phase] if item.phase is not None else None
        return [(look.letter, look.cell), " ", function] if look else [function]


def name(item: ProcessState) -> str:
    if item.group:
        return item.group
    # Only its stacks will tell a worker of a loader from another helper.
    is_unknown = item.row.role == "helper" and not item.function
    role = "process" if is_unknown else process_title(item.row.role, item.row.ordinal)
    return f"rank {item.row.rank} · {role}" if item.row.rank is not None else role


class EventTable(Table[EventRow]):
    """The events of the run; what profd did with its own rate is among them only if asked for."""

    BINDINGS = [("enter", "choose")]
    empty_text = "Nothing has happened yet."
    folded_text = "of profd's own rate: l shows them"
    most_whole = 0
    _has_details = False
    _started_ns = 0
    _pids: dict[int, int] = {}

    def show(self, snapshot: Snapshot) -> None:
        self._started_ns = snapshot.info.started_ns
        self._pids = {row.id: row.pid for row in snapshot.process_rows}
        self.show_rows(snapshot.events[::-1])

    def action_choose(self) -> None:
        """Show the whole text of an event, for which its row may lack the room."""
        if self.meant is not None:
            self.app.push_screen(SheetScreen(self.meant.kind, visible(self.meant.text)))

    def show_details(self) -> None:
        """Show what profd did with its own rate, too, or leave it out again."""
        self._has_details = not self._has_details
        self._arrange()

    def is_nothing(self, item: EventRow) -> bool:
        return item.kind is EventKind.RATE and not self._has_details

    def columns(self) -> Sequence[Column[EventRow]]:
        started_ns, pids = self._started_ns, self._pids
        return (
            Column("at", lambda item: (clock(item.at_ns), "dim"), 8),
            Column("after", lambda item: (elapsed(item.at_ns - started_ns), "dim"), 10, 60),
            Column("event", lambda item: (item.kind, item.kind.style), 10, 30),
            Column(
                "pid", lambda item: (str(pids.get(item.process or 0, "")), "dim"), 8, 70, right=True
            ),
            Column("what", lambda item: item.text, share=1),
        )

    def key(self, item: EventRow) -> Hashable:
        return item.id

    def text(self, item: EventRow) -> str:
        return f"{item.kind} {item.text}"
