"""The hot functions or lines of the view, and what stands there where there are no samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from profd.daemon.analyze.confidence import is_hint
from profd.daemon.analyze.functions import FunctionRow
from profd.daemon.render.plaintext import visible
from profd.daemon.units import percent, time_range
from profd.tui.cells import Run, cut_name, cut_path
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.table import Column, Table


def without_samples(snapshot: Snapshot, of_whom: str) -> str:
    """Return why there is nothing to say of threads, which ``of_whom`` names."""
    errors = [event for event in snapshot.events if event.kind == "error"]
    if snapshot.view.chosen is not None or snapshot.view.span_ns is not None:
        times = "–".join(time_range(snapshot.from_ns, snapshot.to_ns))  # noqa: RUF001
        return f"No samples of {of_whom} between {times}: {_why_none(snapshot)}."
    if snapshot.read_share < 1:
        return "Reading the run…"
    if errors:
        return f"No samples: {visible(errors[-1].text)}"
    if snapshot.info.state == "live":
        return f"Waiting for the first samples of {of_whom}…"
    return f"No samples of {of_whom} were taken."


def _why_none(snapshot: Snapshot) -> str:
    """Return why a part of a run has none: nobody lived then, or nobody was read."""
    living = [row for row in snapshot.process_rows if row.role == "main"]
    if not any(row.seen_ns < snapshot.to_ns and (row.ended_ns or snapshot.to_ns) > snapshot.from_ns for row in living):
        return "no training process was there"
    if snapshot.info.state == "live" and snapshot.to_ns >= snapshot.info.end_ns:
        return "the newest are still being recorded"
    return "nothing was recorded then"


SELF, TOTAL, GPU = "self", "total", "GPU"
_BAR_CELLS = 8
_LEAST_SHARE = 0.01
_OF_FUNCTIONS = (
    Column("function", share=6),
    Column("where", share=6, from_width=56),
    Column("line", share=7, from_width=96),
)
_OF_LINES = (
    Column("where", share=6),
    Column("line", share=8, from_width=56),
    Column("function", share=5, from_width=96),
)
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class HotTable(Table[FunctionRow]):
    """Functions or lines by self time, by total, or by how busy the GPU was meanwhile, the least busy first."""

    sorted_by = SELF
    is_by_line = False
    _has_gpu = False
    _largest = 1.0

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the functions or lines of a snapshot."""
        if snapshot.view.tab != self.id:
            return  # while another tab was open nobody counted
        self.empty_text = without_samples(snapshot, snapshot.scope_name)
        self._has_gpu = any(row.gpu_utilization is not None for row in snapshot.functions)
        if snapshot.view.by_line != self.is_by_line:
            self.is_by_line = snapshot.view.by_line
            self.let_go()
        self._largest = max((row.self_share for row in snapshot.functions), default=0.0) or 1.0
        self.show(self._sorted(snapshot.functions))

    def sort_next(self) -> None:
        """Order by the next column that there is."""
        orders = self._orders()
        after = orders.index(self.sorted_by) + 1 if self.sorted_by in orders else 0
        self.sort_by(orders[after % len(orders)])

    def sort_by(self, title: str) -> None:
        """Order by a column; one that rows cannot be ordered by changes nothing."""
        if title in self._orders():
            self.sorted_by = title
            self.reorder(self._sorted(self._items))

    def columns(self) -> Sequence[Column]:
        """Return the columns."""
        return (
            Column(SELF, 7, right=True),
            Column("", _BAR_CELLS, from_width=100),
            Column(TOTAL, 7, right=True, from_width=28),
            *((Column(GPU, 5, right=True, from_width=72),) if self._has_gpu else ()),
            *(_OF_LINES if self.is_by_line else _OF_FUNCTIONS),
        )

    def heading(self, column: Column) -> str:
        """Return the title of a column, marked where it orders the rows."""
        return f"{column.title} ▾" if column.title == self.sorted_by else column.title

    def key(self, item: FunctionRow) -> Hashable:
        """Return the function's name and file, and the line where rows are lines."""
        return item.function, item.file, item.line if self.is_by_line else 0

    def text(self, item: FunctionRow) -> str:
        """Return the function, its place and its line."""
        return f"{item.function} {item.module_path}:{item.line} {item.source or ''}"

    def cell(self, item: FunctionRow, column: Column, room: int) -> Sequence[Run]:
        """Return what stands in a column."""
        return self._shares(item, column.title) or self._words(item, column.title, room)

    def _shares(self, item: FunctionRow, title: str) -> list[Run]:
        """Return what stands in a column of numbers; nothing where it is none."""
        if title == SELF:
            return [self._share(item.self_share, item.self_error)]
        if title == TOTAL:
            return [self._share(item.total_share, item.total_error)]
        if title == GPU:
            return [self.run(percent(item.gpu_utilization), "plain" if counts(item) else "faint")]
        return [self.run(bar(item.self_share / self._largest), "bar")] if not title else []

    def _words(self, item: FunctionRow, title: str, room: int) -> list[Run]:
        if title == "function":
            return [self.run(cut_name(visible(item.function), room), "dim" if item.is_library else "bright")]
        if title == "where":
            return self._place(item, room)
        return [self.run(visible(item.source or ""), "faint" if item.is_library else "plain")]

    def _orders(self) -> list[str]:
        return [SELF, TOTAL, GPU] if self._has_gpu else [SELF, TOTAL]

    def _place(self, item: FunctionRow, room: int) -> list[Run]:
        place = visible(f"{item.module_path}:{item.line}" if item.line else item.module_path)
        return [self.run(cut_path(place, room), "faint" if item.is_library else "plain")]

    def _share(self, share: float, error: float) -> Run:
        return self.run(percent(share, 1), "faint" if is_hint(share, error) else "plain")

    def _sorted(self, functions: Sequence[FunctionRow]) -> Sequence[FunctionRow]:
        return sorted(functions, key=_KEYS[self.sorted_by])


def counts(item: FunctionRow) -> bool:
    """Say whether a function has enough time for what the GPU did meanwhile to say something of it."""
    return item.total_share >= _LEAST_SHARE and not is_hint(item.total_share, item.total_error)


def _by_utilization(item: FunctionRow) -> tuple[bool, float, float]:
    """Order by how busy the GPU was, those that hardly count or of which that is not known behind all others."""
    known = item.gpu_utilization
    return not counts(item) or known is None, known or 0.0, -item.total_share


_KEYS: dict[str, Callable[[FunctionRow], tuple[float, ...]]] = {
    SELF: lambda item: (-item.self_share, -item.total_share),
    TOTAL: lambda item: (-item.total_share, -item.self_share),
    GPU: _by_utilization,
}


def bar(share: float) -> str:
    """Return a bar whose full length stands for 1."""
    eighths = round(share * _BAR_CELLS * 8)
    full, rest = divmod(min(max(eighths, 0), _BAR_CELLS * 8), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")
