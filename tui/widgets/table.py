"""A table of many rows that draws only those on the screen.

While the cursor is in the table its rows keep their places, however their numbers change, so that
nothing moves away from the reader. Without a cursor the rows follow their order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.style import Style
from textual import events
from textual.actions import SkipAction
from textual.geometry import Region, Size, Spacing
from textual.message import Message
from textual.scroll_view import ScrollView

from profd.daemon.render.plaintext import cut, visible
from profd.tui.cells import Run, fit_runs, styled, wrap_runs
from profd.tui.widgets.linewidget import LineWidget

Item = TypeVar("Item")
_TITLE_LINES = 1
GAP = 2
"""The cells between two columns."""


@dataclass(frozen=True)
class Column(Generic[Item]):
    """A column: ``cells`` wide, or with a ``share`` of what the others leave.

    Tables narrower than ``from_width`` lack it. ``cell`` returns its content for an item, in which
    the table makes all characters visible. ``shorten`` cuts a text that does not fit.
    """

    title: str
    cell: Callable[[Item], Run | list[Run]]
    cells: int = 0
    from_width: int = 0
    share: int = 0
    right: bool = False
    shorten: Callable[[str, int], str] = cut


class CursorMoved(Message):
    """The cursor went to another row, or out of the table."""


class Table(ScrollView, LineWidget, Generic[Item]):
    """The table; subclasses say what its columns are."""

    can_focus = True
    BINDINGS = [
        ("up,k", "move(-1)"),
        ("down,j", "move(1)"),
        ("pageup", "move_page(-1)"),
        ("pagedown", "move_page(1)"),
        ("home", "move(-1000000)"),
        ("end", "move(1000000)"),
        ("escape", "release"),
    ]
    empty_text = ""
    folded_text = "that are nothing to a tenth of a percent"
    most_whole = 100
    """A table of up to this many rows shows all of them: scrolling through it takes a moment."""
    sorted_by = ""
    """The title of the column that orders the rows."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._items: Sequence[Item] = []
        self.rows: Sequence[Item] = []
        self._held: list[Hashable] | None = None
        self._cursor = self._folded = 0
        self._needle = ""

    def columns(self) -> Sequence[Column[Item]]:
        raise NotImplementedError

    def key(self, item: Item) -> Hashable:
        """Return what identifies an item while its numbers change."""
        raise NotImplementedError

    def text(self, item: Item) -> str:
        """Return the text that a filter searches."""
        raise NotImplementedError

    def is_nothing(self, item: Item) -> bool:
        """Say whether an item says little: such rows are folded into one."""
        return False

    def orders(self) -> Sequence[str]:
        """Return the titles of the columns by which rows can be ordered."""
        return ()

    def ordered(self, items: Sequence[Item]) -> Sequence[Item]:
        return items

    @property
    def has_cursor(self) -> bool:
        return self._held is not None

    @property
    def current(self) -> Item | None:
        return (
            self.rows[self._cursor] if self.has_cursor and self._cursor < len(self.rows) else None
        )

    @property
    def meant(self) -> Item | None:
        """The row of which Enter shows more: that under the cursor, else the first."""
        return self.current or next(iter(self.rows), None)

    def show_rows(self, items: Sequence[Item]) -> None:
        """Show other items, in their order unless the cursor holds it."""
        self._items = self.ordered(items)
        self._arrange()

    def sort_next(self) -> None:
        orders = self.orders()
        self.sort_by(
            orders[
                (orders.index(self.sorted_by) + 1) % len(orders) if self.sorted_by in orders else 0
            ]
        )

    def sort_by(self, title: str) -> None:
        """Order by a column, if rows can be ordered by it.

        The cursor stays on its row, wherever that goes.
        """
        if title not in self.orders():
            return
        self.sorted_by = title
        if self._held is not None:
            self._held = self._keys(self.ordered(self._items))
        self.show_rows(self._items)
        if self._held is not None:
            self._move_to(self._cursor)

    def let_go(self) -> None:
        self._held, self._cursor = None, 0
        self.scroll_to(y=0, animate=False)

    def filter(self, needle: str) -> None:
        """Show only items whose text contains ``needle``, ignoring case."""
        self._needle = needle.casefold()
        self._arrange()

    def action_move(self, rows: int) -> None:
        """Move the cursor; the first move takes it into the table."""
        if not self.rows:
            return
        if self._held is None:
            self._held = self._keys(self.rows)
            rows += -1 if rows == 1 else 0
        self._move_to(min(max(self._cursor + rows, 0), len(self.rows) - 1))

    def action_move_page(self, pages: int) -> None:
        self.action_move(pages * max(self.size.height - _TITLE_LINES - 1, 1))

    def action_release(self) -> None:
        """Take the cursor out of the table, so that its rows follow their order again."""
        if self._held is None or self._needle:
            raise SkipAction  # the screen then handles escape, which first shows all rows again
        self.let_go()
        self._arrange()
        self.post_message(CursorMoved())

    def on_click(self, event: events.Click) -> None:
        row = int(event.y + self.scroll_offset.y) - _TITLE_LINES
        if event.y < _TITLE_LINES:
            end = 1
            for column, room in self._shown():
                end += room + GAP
                if event.x < end:
                    self.sort_by(column.title)
                    break
        elif row < len(self.rows):
            self._held = self._held or self._keys(self.rows)
            self._move_to(row)

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return a line: the titles at the top, however far the rows are scrolled."""
        index, columns = y - _TITLE_LINES + self.scroll_offset.y, self._shown()
        if y < _TITLE_LINES:
            titles = (
                f"{one.title} ▾" if one.title == self.sorted_by != "" else one.title
                for one, _ in columns
            )
            return self._row(columns, ((title, "faint") for title in titles), is_current=False)
        if index < len(self.rows):
            cells = [column.cell(self.rows[index]) for column, _ in columns]
            return self._row(columns, cells, is_current=self.has_cursor and index == self._cursor)
        if self._folded and index == len(self.rows):
            return [(f"  and {self._folded:,} more {self.folded_text}", "dim")]
        said = [(f"  {self._why_empty()}", "dim")] if not self.rows else []
        why = wrap_runs(said, width, most=3, indent=2)
        return why[y - 2] if _TITLE_LINES < y < 2 + len(why) else []

    def _why_empty(self) -> str:
        if self._needle and self._items:
            return f"Nothing here has “{self._needle}” in it."
        return self.empty_text

    def on_resize(self) -> None:
        self.virtual_size = Size(
            self.size.width, len(self.rows) + bool(self._folded) + _TITLE_LINES
        )

    def _keys(self, items: Sequence[Item]) -> list[Hashable]:
        return [self.key(item) for item in items]

    def _move_to(self, row: int) -> None:
        self._cursor = row
        below_titles = Region(0, _TITLE_LINES + row, 1, 1)
        self.scroll_to_region(below_titles, spacing=Spacing(_TITLE_LINES), animate=False)
        self.refresh()
        self.post_message(CursorMoved())

    def _arrange(self) -> None:
        """Show the items that match the filter, in the places that the cursor holds."""
        current = self.key(self.current) if self.current is not None else None
        rows = [
            item
            for item in self._items
            if not self._needle or self._needle in self.text(item).casefold()
        ]
        is_whole = self._needle or len(rows) <= self.most_whole
        shown = rows if is_whole else [item for item in rows if not self.is_nothing(item)]
        self._folded = len(rows) - len(shown)
        rows = shown
        if self._held is not None:
            place = {key: at for at, key in enumerate(self._held)}
            self._held += [key for key in self._keys(rows) if key not in place]
            rows.sort(key=lambda item: place.get(self.key(item), len(place)))
            keys = self._keys(rows)
            self._cursor = (
                keys.index(current) if current in keys else min(self._cursor, max(len(rows) - 1, 0))
            )
        self.rows = rows
        self.on_resize()
        self.redraw()

    def _shown(self) -> list[tuple[Column[Item], int]]:
        width = self.size.width
        columns = [column for column in self.columns() if width >= column.from_width]
        left = width - 1 - sum(column.cells + GAP for column in columns)
        shares = max(sum(column.share for column in columns), 1)
        return [
            (column, column.cells or max(left * column.share // shares, 0)) for column in columns
        ]

    def _row(
        self,
        columns: Sequence[tuple[Column[Item], int]],
        cells: Iterable[Run | list[Run]],
        *,
        is_current: bool,
    ) -> Sequence[Run]:
        background, ground = (
            self.style_of("cursor" if is_current else "plain"),
            self.style_of("plain").bgcolor,
        )
        # Take only the background of the cursor: the color of a cell keeps its meaning under it.
        over = Style()
        if is_current:
            over = Style(reverse=True) if self.app.no_color else Style(bgcolor=background.bgcolor)
        row: list[Run] = [(" ", background)]
        for (column, room), cell in zip(columns, cells, strict=True):
            runs = cell if isinstance(cell, list) else [cell]
            styles = ((visible(text), self.style_of(style)) for text, style in styled(runs))
            over_it = (
                (text, style + over if style.bgcolor == ground else style) for text, style in styles
            )
            row += fit_runs(
                over_it, room, right=column.right, blank=background, shorten=column.shorten
            )
            row.append((" " * GAP, background))
        return fit_runs(row, self.size.width, blank=background)
