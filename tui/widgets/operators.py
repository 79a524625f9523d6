"""The operators of a torch.profiler window, in the columns of ``key_averages().table()``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from profd.daemon.clock import SECOND_NS
from profd.daemon.render.operators import Column as TorchColumn
from profd.daemon.render.operators import Sums, columns_of, sort_rows, sums_of
from profd.daemon.render.plaintext import cut, visible, width
from profd.daemon.store.records import OperatorTotals
from profd.daemon.units import plural, step_time
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
"""What rows can be ordered by: a column and the field that it shows."""
_NAME_CELLS = 26
_GAP = 2


class OperatorTable(Table[OperatorTotals]):
    """The operators."""

    empty_text = "No torch.profiler window was taken yet: w takes one, of a run launched with --torch-window."
    sorted_by = "Self CPU"
    shown: WindowOperators | None = None
    _sums = Sums(0, 0)
    _columns: Sequence[Column] = (Column("Name", share=1),)
    _torch: dict[str, TorchColumn] = {}

    def show_window(self, shown: WindowOperators | None) -> None:
        operators = shown.operators if shown else ()
        self.shown = shown
        self._sums = sums_of(operators)
        self._torch = {column.head: column for column in columns_of(operators)}
        # Columns are as wide as what stands in them; where the table is narrow, the last ones are left out.
        columns, taken = [Column("Name", share=1)], 1 + _NAME_CELLS + _GAP
        for head, column in list(self._torch.items())[1:]:
            cells = max([width(head) + 2, *(width(column.cell(row, self._sums)) for row in operators)])
            taken += cells + _GAP
            columns.append(Column(head, cells, right=True, from_width=taken))
        self._columns = columns
        self.show(operators)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Do nothing: the operators of a window are read separately."""

    @property
    def about(self) -> str:
        if self.shown is None:
            return ""
        process, window = self.shown.process, self.shown.window
        title = f"pid {process.pid}" if process.rank is None else f"rank {process.rank}"
        length = step_time((window.end_ns - window.start_ns) / SECOND_NS)
        return f"{title} · {length} · {plural(self.shown.steps, 'step')} · {window.source}"

    def orders(self) -> Sequence[str]:
        return [title for title in SORTS if title in self._torch] or list(SORTS)

    def ordered(self, items: Sequence[OperatorTotals]) -> Sequence[OperatorTotals]:
        return sort_rows(items, SORTS[self.sorted_by])

    def columns(self) -> Sequence[Column]:
        return self._columns

    def key(self, item: OperatorTotals) -> Hashable:
        return item.name, item.device, item.is_annotation

    def text(self, item: OperatorTotals) -> str:
        return item.name

    def cell(self, item: OperatorTotals, column: Column, room: int) -> Sequence[Run]:
        if column.title == "Name":
            return [self.run(cut(visible(item.name), room), "bright" if item.device == "cpu" else "accent")]
        style = "plain" if column.title == self.sorted_by else "dim"
        return [self.run(self._torch[column.title].cell(item, self._sums), style)]
