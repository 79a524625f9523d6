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
        lives = [(row.seen_ns, row.ended_ns or snapshot.to_ns) for row in snapshot.process_rows if row.role == "main"]
        if not any(seen_ns < snapshot.to_ns and ended_ns > snapshot.from_ns for seen_ns, ended_ns in lives):
            why = "no training process was there"
        elif snapshot.info.state == "live" and snapshot.to_ns >= snapshot.info.end_ns:
            why = "the newest are still being recorded"
        else:
            why = "nothing was recorded then"
        return f"No samples of {of_whom} between {times}: {why}."
    if snapshot.read_share < 1:
        return "Reading the run…"
    if errors:
        return f"No samples: {visible(errors[-1].text)}"
    if snapshot.info.state == "live":
        return f"Waiting for the first samples of {of_whom}…"
    return f"No samples of {of_whom} were taken."


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
        if snapshot.view.tab != self.id:
            return  # while another tab was open nobody counted
        self.empty_text = without_samples(snapshot, snapshot.scope_name)
        self._has_gpu = any(row.gpu_utilization is not None for row in snapshot.functions)
        if snapshot.view.by_line != self.is_by_line:
            self.is_by_line = snapshot.view.by_line
            self.let_go()
        self._largest = max((row.self_share for row in snapshot.functions), default=0.0) or 1.0
        self.show(snapshot.functions)

    def orders(self) -> Sequence[str]:
        return [SELF, TOTAL, GPU] if self._has_gpu else [SELF, TOTAL]

    def ordered(self, items: Sequence[FunctionRow]) -> Sequence[FunctionRow]:
        return sorted(items, key=_ORDERS[self.sorted_by])

    def columns(self) -> Sequence[Column]:
        return (
            Column(SELF, 7, right=True),
            Column("", _BAR_CELLS, from_width=100),
            Column(TOTAL, 7, right=True, from_width=28),
            *((Column(GPU, 5, right=True, from_width=72),) if self._has_gpu else ()),
            *(_OF_LINES if self.is_by_line else _OF_FUNCTIONS),
        )

    def key(self, item: FunctionRow) -> Hashable:
        return item.function, item.file, item.line if self.is_by_line else 0

    def text(self, item: FunctionRow) -> str:
        return f"{item.function} {item.module_path}:{item.line} {item.source or ''}"

    def cell(self, item: FunctionRow, column: Column, room: int) -> Sequence[Run]:
        if column.title == SELF:
            return [self._share(item.self_share, item.self_error)]
        if column.title == TOTAL:
            return [self._share(item.total_share, item.total_error)]
        if column.title == GPU:
            return [self.run(percent(item.gpu_utilization), "plain" if counts(item) else "faint")]
        if not column.title:
            return [self.run(bar(item.self_share / self._largest), "bar")]
        if column.title == "function":
            return [self.run(cut_name(visible(item.function), room), "dim" if item.is_library else "bright")]
        style = "faint" if item.is_library else "plain"
        if column.title == "where":
            place = f"{item.module_path}:{item.line}" if item.line else item.module_path
            return [self.run(cut_path(visible(place), room), style)]
        return [self.run(visible(item.source or ""), style)]

    def _share(self, share: float, error: float) -> Run:
        return self.run(percent(share, 1), "faint" if is_hint(share, error) else "plain")


def counts(item: FunctionRow) -> bool:
    """Say whether a function has enough time for what the GPU did meanwhile to say something of it."""
    return item.total_share >= _LEAST_SHARE and not is_hint(item.total_share, item.total_error)


_ORDERS: dict[str, Callable[[FunctionRow], tuple[float, ...]]] = {
    SELF: lambda item: (-item.self_share, -item.total_share),
    TOTAL: lambda item: (-item.total_share, -item.self_share),
    # Functions that hardly count, or whose GPU utilization is unknown, come behind all others.
    GPU: lambda item: (
        not counts(item) or item.gpu_utilization is None,
        item.gpu_utilization or 0.0,
        -item.total_share,
    ),
}


def bar(share: float) -> str:
    eighths = round(share * _BAR_CELLS * 8)
    full, rest = divmod(min(max(eighths, 0), _BAR_CELLS * 8), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")
