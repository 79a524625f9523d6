"""The stacks of the whole tree at one moment, on a sheet over the dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from profd.daemon.render.visible import visible
from profd.daemon.units import plural

if TYPE_CHECKING:
    from profd.daemon.supervise.treedump import DumpedProcess, MergedStack


class StacksScreen(ModalScreen[None]):
    """The sheet; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,d,enter,space", "close", "close", show=False)]

    def __init__(self, dumped: Sequence[DumpedProcess], stacks: Sequence[MergedStack]) -> None:
        super().__init__()
        self._dumped, self._stacks = dumped, stacks

    def compose(self) -> ComposeResult:
        """Make the sheet."""
        threads = sum(len(stack.owners) for stack in self._stacks)
        with VerticalScroll(classes="sheet") as sheet:
            sheet.border_title = f"{plural(threads, 'thread')} in {plural(len(self._stacks), 'stack')}"
            sheet.border_subtitle = "esc closes"
            yield Static(Text("\n").join(self._lines()), markup=False)

    def action_close(self) -> None:
        """Close the sheet."""
        self.dismiss()

    def _lines(self) -> Iterator[Text]:
        for process in self._dumped:
            if process.error:
                yield Text(visible(f"pid {process.pid} cannot be read: {process.error}"), style="italic")
        for stack in self._stacks:
            yield Text(visible(", ".join(stack.owners)), style="bold")
            for frame in stack.frames:
                place = "/".join(PurePath(frame.filename).parts[-2:])
                yield Text(visible(f"    {frame.name}  ")).append(visible(f"{place}:{frame.line}"), style="dim")
            yield Text()
