"""The script's own output, as its terminal shows it; for a launched script it is that terminal, once it is focused."""

from __future__ import annotations

import functools
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from profd.tui.cells import fit_runs
from profd.tui.terminal import Picture, Terminal, TextStyle, key_bytes
from profd.tui.widgets.drawn import Drawn

_EMPTY = Picture((), None, is_cut=False)


class TypingChanged(Message):
    """Somebody began to type to the script, or stopped."""

    def __init__(self, *, is_typing: bool) -> None:
        super().__init__()
        self.is_typing = is_typing


class OutputPane(ScrollView, Drawn):
    """The pane; while it is focused and has a terminal, all keys but escape go to the script.

    With a terminal it can be focused by ``start_typing`` alone: who tabs through the dashboard types to no script.
    """

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back to profd", show=False, priority=True)]

    def __init__(self, terminal: Terminal | None, *, id: str) -> None:
        super().__init__(id=id)
        self._terminal = terminal
        self._picture = _EMPTY
        self._mode = ""
        self.can_focus = terminal is None

    @property
    def is_typing(self) -> bool:
        """Whether keys go to the script now."""
        return self.has_focus and self._has_terminal

    @property
    def _has_terminal(self) -> bool:
        return self._terminal is not None and self._terminal.is_open

    @property
    def picture(self) -> Picture:
        """What is shown."""
        return self._picture

    def show(self, picture: Picture) -> None:
        """Show another picture; who looks at its end goes on looking at its end."""
        was_at_end = self.scroll_offset.y >= self.max_scroll_y
        self._picture = picture
        self.virtual_size = Size(self.size.width, len(picture.lines))
        if was_at_end:
            # By force: the scrollbar, without which nothing scrolls, comes with the next layout.
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)
        self.refresh()

    def set_mode(self, mode: str) -> None:
        """Say how the run was made: ``launched`` or ``attached``."""
        self._mode = mode
        self.refresh()

    def send(self, data: bytes) -> None:
        """Hand bytes to the script, and say where it does not take them."""
        if self._terminal is not None and not self._terminal.write(data):
            self.notify("the script does not read its input", severity="warning", markup=False)

    def start_typing(self) -> None:
        """Let keys go to the script from now on."""
        if self._has_terminal:
            self.can_focus = True
            self.screen.set_focus(self)

    def on_click(self) -> None:
        """Begin to type where the script can be typed to."""
        self.start_typing()

    def on_key(self, event: events.Key) -> None:
        """Hand a key to the script."""
        if self.is_typing:
            event.stop()
            event.prevent_default()
            self.send(key_bytes(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        """Hand what was pasted to the script."""
        if self.is_typing:
            event.stop()
            self.send(event.text.replace("\n", "\r").encode(errors="replace"))

    def on_focus(self) -> None:
        """Say that typing begins."""
        self.refresh()
        self.post_message(TypingChanged(is_typing=self._has_terminal))

    def on_blur(self) -> None:
        """Say that typing ends."""
        self.can_focus = self._terminal is None
        self.refresh()
        self.post_message(TypingChanged(is_typing=False))

    def action_leave(self) -> None:
        """Stop typing to the script."""
        self.screen.set_focus(None)

    def render_line(self, y: int) -> Strip:
        """Return a line of the picture."""
        width, lines = self.size.width, self._picture.lines
        index = y + self.scroll_offset.y
        plain = self.ink("plain")
        if index >= len(lines):
            text = self._without_output() if y == 1 and not any(lines) else ""
            return Strip(fit_runs([self.run(f"  {text}", "dim")], width, blank=plain), width)
        segments = [Segment(run.text, plain + _style(run.ink)) for run in lines[index]]
        strip = Strip(segments).adjust_cell_length(width, plain)
        cursor = self._picture.cursor
        if self.is_typing and cursor is not None and cursor[1] == index and cursor[0] < width:
            return _with_cursor(strip, cursor[0])
        return strip

    def _without_output(self) -> str:
        if self._mode == "attached":
            return "The script was there before profd: it writes to a terminal of its own."
        return "Nothing was written here." if self._mode else ""


def _with_cursor(strip: Strip, column: int) -> Strip:
    before, under, after = strip.divide([column, column + 1, strip.cell_length])
    return Strip.join([before, under.apply_style(Style(reverse=True)), after])


@functools.lru_cache(maxsize=1024)
def _style(ink: TextStyle) -> Style:
    return Style(
        color=None if ink.color == "default" else ink.color,
        bgcolor=None if ink.background == "default" else ink.background,
        bold=ink.bold or None,
        italic=ink.italic or None,
        underline=ink.underline or None,
        strike=ink.strike or None,
        reverse=ink.reverse or None,
    )
