"""The script's own output, as its terminal shows it.

For a launched script the pane is that terminal, once it is focused.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from profd.tui.terminal import Picture, Terminal, key_bytes
from profd.tui.widgets.linewidget import StyledWidget

_ATTACHED = "The script was there before profd: it writes to a terminal of its own."


@dataclass
class TypingChanged(Message):
    """Somebody began to type to the script, or stopped."""

    is_typing: bool


class OutputPane(ScrollView, StyledWidget):
    """The pane; while it is focused and has a terminal, all keys but escape go to the script.

    With a terminal only ``start_typing`` focuses it, so that tabbing through the dashboard types to
    no script.
    """

    can_focus = True
    BINDINGS = [Binding("escape", "leave", priority=True)]
    mode = reactive("")
    """The mode of the run; empty before it is known."""

    def __init__(self, terminal: Terminal | None, *, id: str) -> None:
        super().__init__(id=id)
        self._terminal = terminal
        self.picture = Picture((), None)
        self.can_focus = terminal is None

    @property
    def is_typing(self) -> bool:
        return self.has_focus and self._has_terminal

    @property
    def _has_terminal(self) -> bool:
        return self._terminal is not None and self._terminal.is_open

    def show(self, picture: Picture) -> None:
        """Show another picture; a view of its end stays at its end."""
        was_at_end = self.is_vertical_scroll_end
        self.picture = picture
        self.virtual_size = Size(self.size.width, len(picture.lines))
        if was_at_end:
            # Forced, because nothing scrolls without the scrollbar, which comes with the next
            # layout.
            self.scroll_end(animate=False, force=True)
        self.refresh()

    def send(self, data: bytes) -> None:
        if self._terminal is not None and not self._terminal.write(data):
            self.notify("the script does not read its input", severity="warning", markup=False)

    def start_typing(self) -> None:
        if self._has_terminal:
            self.can_focus = True
            self.screen.set_focus(self)

    def on_click(self) -> None:
        self.start_typing()

    def on_key(self, event: events.Key) -> None:
        if self.is_typing:
            event.stop()
            event.prevent_default()
            self.send(key_bytes(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        if self.is_typing:
            event.stop()
            self.send(event.text.replace("\n", "\r").encode(errors="replace"))

    def on_focus(self) -> None:
        self.refresh()
        self.post_message(TypingChanged(is_typing=self._has_terminal))

    def on_blur(self) -> None:
        self.can_focus = self._terminal is None
        self.refresh()
        self.post_message(TypingChanged(is_typing=False))

    def action_leave(self) -> None:
        self.screen.set_focus(None)

    def render_line(self, y: int) -> Strip:
        width, lines, plain = self.size.width, self.picture.lines, self.style_of("plain")
        index = y + self.scroll_offset.y
        if index >= len(lines):
            is_alone = y == 1 and self.mode and not any(lines)
            text = _ATTACHED if self.mode == "attached" else "Nothing was written here."
            return self.strip_of([(f"  {text}" if is_alone else "", "dim")], width)
        segments = [Segment(text, plain + style) for text, style in lines[index]]
        strip = Strip(segments).adjust_cell_length(width, plain)
        cursor = self.picture.cursor
        if self.is_typing and cursor is not None and cursor[1] == index and cursor[0] < width:
            before, under, after = strip.divide([cursor[0], cursor[0] + 1, strip.cell_length])
            return Strip.join([before, under.apply_style(Style(reverse=True)), after])
        return strip
