"""The operators of a torch.profiler window, in the columns of ``key_averages().table()``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from profd.daemon.render.operators import columns_of, sort_rows, sums_of, usual_order
from profd.daemon.render.plaintext import visible, width
from profd.daemon.store.records import OperatorTotals
from profd.daemon.units import percent, plural, step_time
from profd.tui.cells import Run
from profd.tui.feed import WindowOperators
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.table import Column, Table

SORTS = {
    "Self CPU": "self_cpu_ns",
    "CPU total": "cpu_total_ns",
    "Self CUDA": "self_cuda_ns",
    "CUDA total": "cuda_total_ns",
    "# of Calls": "calls",
    "Name": "name",
}
"""The possible orders of rows: a column and the field that it shows."""
_NAME_CELLS = 26
_GAP = 2


class OperatorTable(Table[OperatorTotals]):
    """The operators."""

    empty_text = (
        "No torch.profiler window was taken yet: w takes one, of a run launched with "
        "--torch-window."
    )
    sorted_by = "Self CPU"
    shown: WindowOperators | None = None
    _columns: Sequence[Column[OperatorTotals]] = ()

    def show_window(self, shown: WindowOperators | None) -> None:
        operators = shown.operators if shown else ()
        is_first, sums = self.shown is None, sums_of(operators)
        if is_first:
            self.sorted_by = next(
                title for title, field in SORTS.items() if field == usual_order(operators)
            )
        self.shown = shown
        # Columns are as wide as their contents; in a narrow table the last ones are left out.
        columns, taken = [Column("Name", _operator, share=1)], 1 + _NAME_CELLS + _GAP
        for head, text, _ in columns_of(operators)[1:]:

            def cell(
                item: OperatorTotals, head: str = head, text: Callable[..., str] = text
            ) -> Run:
                return (text(item, sums), "plain" if head == self.sorted_by else "dim")

            cells = max([width(head) + 2, *(width(text(row, sums)) for row in operators)])
            taken += cells + _GAP
            columns.append(Column(head, cell, cells, taken, right=True))
        self._columns = columns
        self.show_rows(operators)

    def show(self, snapshot: Snapshot) -> None:
        """Do nothing: the operators of a window are read separately."""

    @property
    def about(self) -> str:
        if self.shown is None:
            return ""
        process, window = self.shown.process, self.shown.window
        title = f"pid {process.pid}" if process.rank is None else f"rank {process.rank}"
        length = step_time(window.time.length_s)
        shares = (
            (one.gpu, percent(one.share(one.idle_ns)), percent(one.share(one.host_ns)))
            for one in self.shown.gpus
        )
        idle = (f" · GPU {gpu} idle {idle}, host {host}" for gpu, idle, host in shares)
        return (
            f"{title} · {length} · {plural(self.shown.steps, 'step')}{''.join(idle)} · "
            f"{window.source}"
        )

    def orders(self) -> Sequence[str]:
        return [column.title for column in self._columns if column.title in SORTS] or list(SORTS)

    def ordered(self, items: Sequence[OperatorTotals]) -> Sequence[OperatorTotals]:
        return sort_rows(items, SORTS[self.sorted_by])

    def columns(self) -> Sequence[Column[OperatorTotals]]:
        return self._columns or (Column("Name", _operator, share=1),)

    def key(self, item: OperatorTotals) -> Hashable:
        return item.name, item.device, item.is_annotation

    def text(self, item: OperatorTotals) -> str:
        return item.name


def _operator(item: OperatorTotals) -> Run:
    return (visible(item.name), "bright" if item.device == "cpu" else "accent")
