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
from profd.tui.snapshot import Snapshot
from profd.tui.tabcontent import WindowOperators
from profd.tui.widgets.table import Column, Table

SORTS = {
    "self_cpu_ns": "Self CPU",
    "cpu_total_ns": "CPU total",
    "self_cuda_ns": "Self CUDA",
    "cuda_total_ns": "CUDA total",
    "calls": "# of Calls",
    "name": "Name",
}
"""What rows can be ordered by: a field and the column that shows it."""
_NAME_CELLS = 26
_GAP = 2


class OperatorTable(Table[OperatorTotals]):
    """The operators."""

    empty_text = "No torch.profiler window was taken yet: w takes one, of a run launched with --torch-window."
    shown: WindowOperators | None = None
    sorted_by = "self_cpu_ns"
    _sums = Sums(0, 0)
    _columns: Sequence[Column] = ()
    _torch: dict[str, TorchColumn] = {}

    def show_window(self, shown: WindowOperators | None) -> None:
        """Show the operators of a window."""
        self.shown = shown
        self._sums = sums_of(shown.operators if shown else ())
        self._torch = {column.head: column for column in columns_of(shown.operators if shown else ())}
        self._columns = self._fitted(shown.operators if shown else ())
        self.show(sort_rows(shown.operators if shown else (), self.sorted_by))

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Do nothing: windows are read by themselves."""

    def sort_next(self) -> None:
        """Order by the next column that there is."""
        fields = [field for field, head in SORTS.items() if head in self._torch] or list(SORTS)
        after = fields.index(self.sorted_by) + 1 if self.sorted_by in fields else 0
        self.sort_by(SORTS[fields[after % len(fields)]])

    def sort_by(self, title: str) -> None:
        """Order by a column; one that rows cannot be ordered by changes nothing."""
        for field, head in SORTS.items():
            if head == title:
                self.sorted_by = field
                self.reorder(sort_rows(self._items, field))

    @property
    def about(self) -> str:
        """Which window it is, in a few words."""
        if self.shown is None:
            return ""
        process, window = self.shown.process, self.shown.window
        who = f"pid {process.pid}" if process.rank is None else f"rank {process.rank}"
        length = step_time((window.end_ns - window.start_ns) / SECOND_NS)
        return f"{who} · {length} · {plural(self.shown.steps, 'step')} · {window.source}"

    def columns(self) -> Sequence[Column]:
        """Return the columns."""
        return self._columns or (Column("Name", share=1),)

    def heading(self, column: Column) -> str:
        """Return the title of a column, marked where it orders the rows."""
        return f"{column.title} ▾" if column.title == SORTS[self.sorted_by] else column.title

    def key(self, item: OperatorTotals) -> Hashable:
        """Return what tells operators apart."""
        return item.name, item.device, item.is_annotation

    def text(self, item: OperatorTotals) -> str:
        """Return its name."""
        return item.name

    def cell(self, item: OperatorTotals, column: Column, room: int) -> Sequence[Run]:
        """Return what stands in a column."""
        if column.title == "Name":
            return [self.run(cut(visible(item.name), room), "bright" if item.device == "cpu" else "accent")]
        ink = "plain" if column.title == SORTS[self.sorted_by] else "dim"
        return [self.run(self._torch[column.title].cell(item, self._sums), ink)]

    def _fitted(self, operators: Sequence[OperatorTotals]) -> Sequence[Column]:
        """Return columns as wide as what stands in them; where the table is narrow, the last ones are left out."""
        columns, taken = [Column("Name", share=1)], 1 + _NAME_CELLS + _GAP
        for head, column in list(self._torch.items())[1:]:
            cells = max([width(head) + 2, *(width(column.cell(row, self._sums)) for row in operators)])
            taken += cells + _GAP
            columns.append(Column(head, cells, right=True, from_width=taken))
        return columns
