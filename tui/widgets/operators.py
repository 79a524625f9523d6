"""The operators of a torch.profiler window, in the columns of ``key_averages().table()``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from profd.daemon.render.operators import (
    OperatorColumn,
    Sums,
    columns_of,
    sort_rows,
    sums_of,
    usual_order,
)
from profd.daemon.render.plaintext import width
from profd.daemon.store.records import OperatorTotals
from profd.daemon.units import percent, plural, step_time
from profd.tui.cells import Run
from profd.tui.feed import WindowOperators
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.table import GAP, Column, Table

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


class OperatorTable(Table[OperatorTotals]):
    """The operators."""

    empty_text = (
        "No torch.profiler window was taken yet: w takes one of a live run, best of one launched "
        "with --torch-window."
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
        columns, taken = [Column("Name", _operator, share=1)], 1 + _NAME_CELLS + GAP
        for column in columns_of(operators)[1:]:
            texts = (column.cell(row, sums) for row in operators)
            cells = max([width(column.head) + 2, *map(width, texts)])
            taken += cells + GAP
            cell = partial(self._cell, column, sums)
            columns.append(Column(column.head, cell, cells, taken, right=True))
        self._columns = columns
        self.show_rows(operators)

    def _cell(self, column: OperatorColumn, sums: Sums, item: OperatorTotals) -> Run:
        return (column.cell(item, sums), "plain" if column.head == self.sorted_by else "dim")

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
    return (item.name, "bright" if item.device == "cpu" else "accent")
