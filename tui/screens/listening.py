"""The script's own output: how much of it is shown, and typing to the script."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen

from profd.tui.feed import Feed, OutputDrawn
from profd.tui.screens.panes import Panes, PanesResized
from profd.tui.terminal import Terminal
from profd.tui.view import OutputView
from profd.tui.widgets.output import OutputPane, TypingChanged


class Listening(Screen[None]):
    """A screen with the script's output; whoever makes it gives it the feed, and the terminal of a launched script."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "type", "type to the script", show=False),
        Binding("pageup", "page_output(-1)", "scroll the output", show=False),
        Binding("pagedown", "page_output(1)", "scroll the output", show=False),
    ]

    _feed: Feed
    _terminal: Terminal | None
    _output_view = OutputView()

    def note(self) -> None:
        """Say what the keys of the open pane do just now."""
        raise NotImplementedError

    @property
    def output_note(self) -> str:
        """What the keys do while the output is open; empty where nothing can be typed."""
        if self._terminal is None or not self._terminal.is_open:
            return ""
        return "keys go to the script · esc comes back" if self._output_view.is_typing else "⏎ types to the script"

    @on(OutputDrawn)
    def _show_output(self, message: OutputDrawn) -> None:
        self.query_one(OutputPane).show(message.picture)

    @on(PanesResized)
    def _resize_output(self) -> None:
        size = self.query_one(Panes).size
        columns, lines = max(size.width - 1, 1), max(size.height, 1)
        if self._terminal is not None:
            self._terminal.resize(columns, lines)
        self._look_at_output(replace(self._output_view, columns=columns, lines=lines))

    @on(TypingChanged)
    def _note_typing(self, message: TypingChanged) -> None:
        self._look_at_output(replace(self._output_view, is_typing=message.is_typing))
        self.note()

    def action_type(self) -> None:
        """Begin to type to the script."""
        if self._output_view.is_shown:
            self.query_one(OutputPane).start_typing()

    def action_page_output(self, pages: int) -> None:
        """Scroll the script's output, which has no focus as long as nobody types to the script."""
        pane = self.query_one(OutputPane)
        pane.scroll_to(y=pane.scroll_offset.y + pages * max(pane.size.height - 1, 1), animate=False)

    def _look_at_output(self, view: OutputView) -> None:
        self._output_view = view
        self._feed.look_at_output(view)
