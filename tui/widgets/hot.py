"""The hot functions: where the samples of the view were, the user's own code bright among that of libraries."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from profd.daemon.analyze.certainty.confidence import is_hint
from profd.daemon.analyze.functions import FunctionRow
from profd.daemon.render.units import percent
from profd.daemon.render.visible import visible
from profd.tui.drawing.cells import Run, cut_name, cut_path
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.table import Column, Table

_BAR_CELLS = 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class HotTable(Table[FunctionRow]):
    """Functions by self time, or by total."""

    by_total = False
    _largest = 1.0
    empty_text = "No samples here yet."

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the functions of a snapshot."""
        self._largest = max(map(self._ordering, snapshot.functions), default=0.0) or 1.0
        self.show(self._sorted(snapshot.functions))

    def sort_next(self) -> None:
        """Order by total time, or by self time again."""
        self.by_total = not self.by_total
        self._largest = max(map(self._ordering, self._items), default=0.0) or 1.0
        self.show(self._sorted(self._items))

    def columns(self) -> Sequence[Column]:
        """Return the columns, the one that orders the rows marked."""
        own, total = ("self", "total ▾") if self.by_total else ("self ▾", "total")
        return (
            Column(own, 7, right=True),
            Column("", _BAR_CELLS, from_width=100),
            Column(total, 7, right=True, from_width=28),
            Column("function", share=6),
            Column("where", share=6, from_width=56),
            Column("line", share=7, from_width=96),
        )

    def key(self, item: FunctionRow) -> Hashable:
        """Return the function's name and file."""
        return item.function, item.file

    def text(self, item: FunctionRow) -> str:
        """Return the function, its place and its line."""
        return f"{item.function} {item.module_path}:{item.line} {item.source or ''}"

    def cell(self, item: FunctionRow, column: Column, room: int) -> Sequence[Run]:
        """Return what stands in a column."""
        name = column.title.removesuffix(" ▾")
        if name == "self":
            return [self._share(item.self_share, item.self_error)]
        if name == "total":
            return [self._share(item.total_share, item.total_error)]
        if not name:
            return [self.run(bar(self._ordering(item) / self._largest), "bar")]
        if name == "function":
            return [self.run(cut_name(visible(item.function), room), "dim" if item.is_library else "bright")]
        if name == "where":
            return self._place(item, room)
        return [self.run(visible(item.source or ""), "faint" if item.is_library else "plain")]

    def _ordering(self, item: FunctionRow) -> float:
        return item.total_share if self.by_total else item.self_share

    def _place(self, item: FunctionRow, room: int) -> list[Run]:
        place = visible(f"{item.module_path}:{item.line}" if item.line else item.module_path)
        return [self.run(cut_path(place, room), "faint" if item.is_library else "plain")]

    def _share(self, share: float, error: float) -> Run:
        return self.run(percent(share, 1), "faint" if is_hint(share, error) else "plain")

    def _sorted(self, functions: Sequence[FunctionRow]) -> Sequence[FunctionRow]:
        if not self.by_total:
            return sorted(functions, key=lambda row: (-row.self_share, -row.total_share))
        return sorted(functions, key=lambda row: (-row.total_share, -row.self_share))


def bar(share: float) -> str:
    """Return a bar whose full length stands for 1."""
    eighths = round(share * _BAR_CELLS * 8)
    full, rest = divmod(min(max(eighths, 0), _BAR_CELLS * 8), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")
