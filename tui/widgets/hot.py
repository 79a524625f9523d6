"""The hot functions or lines of the view, and the text shown if there are no samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

from profd.daemon.analyze.confidence import is_hint
from profd.daemon.analyze.profile import FunctionRow
from profd.daemon.render.plaintext import bar, visible
from profd.daemon.units import percent
from profd.tui.cells import Run, cut_name, cut_path
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.table import Column, Table


def without_samples(snapshot: Snapshot, of_whom: str) -> str:
    """Return why there are no samples of the threads that ``of_whom`` names."""
    errors = [event for event in snapshot.events if event.kind.style == "bad"]
    if snapshot.view.chosen is not None or snapshot.view.span_ns is not None:
        mains = (row for row in snapshot.process_rows if row.role == "main")
        if not any(row.life.overlaps(snapshot.time) for row in mains):
            why = "no training process was there"
        elif snapshot.info.is_live and snapshot.time.to_ns >= snapshot.info.end_ns:
            why = "the newest are still being recorded"
        else:
            why = "nothing was recorded then"
        return f"No samples of {of_whom} between {snapshot.clock_times}: {why}."
    if snapshot.read_share < 1:
        return "Reading the run…"
    if errors:
        return f"No samples: {visible(errors[-1].text)}"
    if snapshot.info.is_live:
        return f"Waiting for the first samples of {of_whom}…"
    return f"No samples of {of_whom} were taken."


SELF, TOTAL, GPU = "self", "total", "GPU"
_BAR_CELLS = 8
_LEAST_SHARE = 0.01


class HotTable(Table[FunctionRow]):
    """Functions or lines by self time, by total, or by how busy the GPU was meanwhile.

    In the order of the GPU, the least busy is first.
    """

    sorted_by = SELF
    is_by_line = False
    _has_gpu = False
    _largest = 1.0

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.view.tab != self.id:
            return  # nobody counted while another tab was open
        self.empty_text = without_samples(snapshot, snapshot.scope_name)
        self._has_gpu = any(row.gpu_utilization is not None for row in snapshot.functions)
        if snapshot.view.by_line != self.is_by_line:
            self.is_by_line = snapshot.view.by_line
            self.let_go()
        self._largest = max((row.self_share for row in snapshot.functions), default=0.0) or 1.0
        self.show_rows(snapshot.functions)

    def orders(self) -> Sequence[str]:
        return [SELF, TOTAL, GPU] if self._has_gpu else [SELF, TOTAL]

    def ordered(self, items: Sequence[FunctionRow]) -> Sequence[FunctionRow]:
        return sorted(items, key=_ORDERS[self.sorted_by])

    def columns(self) -> Sequence[Column[FunctionRow]]:
        function = partial(Column, "function", _function, shorten=cut_name)
        where = partial(Column, "where", _where, shorten=cut_path)
        line = partial(Column, "line", _source)
        order, shares = (
            ((where, line, function), (6, 8, 5))
            if self.is_by_line
            else ((function, where, line), (6, 6, 7))
        )
        return [
            Column(SELF, lambda item: _share(item.self_share, item.self_error), 7, right=True),
            Column(
                "",
                lambda item: (bar(item.self_share / self._largest, _BAR_CELLS), "bar"),
                _BAR_CELLS,
                100,
            ),
            Column(
                TOTAL, lambda item: _share(item.total_share, item.total_error), 7, 28, right=True
            ),
            *([Column(GPU, _gpu, 5, 72, right=True)] if self._has_gpu else []),
            *(
                column(from_width=cells, share=share)
                for column, cells, share in zip(order, (0, 56, 96), shares, strict=True)
            ),
        ]

    def key(self, item: FunctionRow) -> Hashable:
        return item.function, item.file, item.line if self.is_by_line else 0

    def is_nothing(self, item: FunctionRow) -> bool:
        return not round(100 * item.total_share, 1)

    def text(self, item: FunctionRow) -> str:
        return f"{item.function} {item.module_path}:{item.line} {item.source or ''}"


def _share(share: float, error: float) -> Run:
    return (percent(share, 1), "faint" if is_hint(share, error) else "plain")


def _gpu(item: FunctionRow) -> Run:
    return (percent(item.gpu_utilization), "plain" if counts(item) else "faint")


def _function(item: FunctionRow) -> Run:
    return (item.function, "dim" if item.is_library else "bright")


def _where(item: FunctionRow) -> Run:
    place = f"{item.module_path}:{item.line}" if item.line else item.module_path
    return (place, "faint" if item.is_library else "plain")


def _source(item: FunctionRow) -> Run:
    return (item.source or "", "faint" if item.is_library else "plain")


def counts(item: FunctionRow) -> bool:
    """Say whether a function has enough time to judge it by what the GPU did meanwhile."""
    return item.total_share >= _LEAST_SHARE and not is_hint(item.total_share, item.total_error)


_ORDERS: dict[str, Callable[[FunctionRow], tuple[float, ...]]] = {
    SELF: lambda item: (-item.self_share, -item.total_share),
    TOTAL: lambda item: (-item.total_share, -item.self_share),
    # Functions with little time, or with unknown GPU utilization, come after all others.
    GPU: lambda row: (
        not counts(row) or row.gpu_utilization is None,
        row.gpu_utilization or 0.0,
        -row.total_share,
    ),
}
