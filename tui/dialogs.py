"""Dialogs over the dashboard.

They are choices, text, a time to go to, help, stacks, leaving, and a run that cannot be read.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from profd.daemon.errors import ProfdError, UsageError
from profd.daemon.render.plaintext import visible
from profd.daemon.units import plural
from profd.tui.keys import HELP

if TYPE_CHECKING:
    from profd.daemon.tree.tree import DumpedProcess, MergedStack


class Choice(NamedTuple):
    """An answer: its id, its words, and the keys that give it at once."""

    id: str
    words: str
    keys: tuple[str, ...] = ()


Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer | None], Generic[Answer]):
    """A question or a sheet over the dashboard; its result is None if it is closed."""

    BINDINGS = [("escape,ctrl+c", "dismiss")]


class ChoiceScreen(Dialog[str]):
    """A question with answers to choose from; its result is the id of one.

    Enter gives the answer number ``first``, unless the cursor went to another one.
    """

    def __init__(self, title: str, text: str, choices: Sequence[Choice], first: int = 0) -> None:
        super().__init__()
        self._title, self._text, self._choices, self._first = title, text, choices, first

    def compose(self) -> ComposeResult:
        with Vertical(classes="question") as sheet:
            sheet.border_title, sheet.border_subtitle = self._title, "esc goes back"
            if self._text:
                yield Static(self._text, markup=False)
            yield OptionList(
                *(
                    Option("  ".join([*one.keys[:1], one.words]), id=one.id)
                    for one in self._choices
                ),
                markup=False,
            )

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = self._first
        for choice in self._choices:
            if choice.keys:
                self._bindings.bind(",".join(choice.keys), f"dismiss('{choice.id}')")

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)


class LineScreen(Dialog[Answer]):
    """A line to fill in; its result is what ``parse`` makes of it, which may raise UsageError."""

    def __init__(self, title: str, hint: str, parse: Callable[[str], Answer]) -> None:
        super().__init__()
        self._title, self._hint, self._parse = title, hint, parse

    def compose(self) -> ComposeResult:
        with Vertical(classes="question") as sheet:
            sheet.border_title, sheet.border_subtitle = self._title, "⏎ · esc goes back"
            yield Input(placeholder=self._hint, compact=True)
            yield Static(classes="failure", markup=False)

    @on(Input.Submitted)
    def _answer(self, event: Input.Submitted) -> None:
        try:
            self.dismiss(self._parse(event.value.strip()))
        except UsageError as error:
            self.query_one(Static).update(str(error))


class Leaving(Enum):
    """What happens to the recording."""

    END = "end"
    KEEP = "keep"


STOP = "stop"
STOPPING = {
    signal.SIGINT: "stop the script by SIGINT, as its terminal does (or Ctrl-C again)",
    signal.SIGTERM: "stop the script by SIGTERM, as SIGINT has not ended it",
    signal.SIGKILL: "kill the script: what it has not saved is lost",
}
"""The signals that stop a script, one each time that somebody asks, and what each is called."""
TWICE_S = 2.0
"""A second Ctrl-C within this time stops the script; a later one is no answer to the question."""


class LeavingScreen(ChoiceScreen):
    """The question on leaving; ``q`` opens it, and also leaves, by a harmless choice.

    With ``stopping`` the script can be stopped, by that signal. Ctrl-C then proposes this, and
    pressed twice does it, except for SIGKILL.
    """

    BINDINGS = [("ctrl+c", "interrupt")]

    def __init__(
        self,
        stopping: signal.Signals | None = None,
        *,
        by_interrupt: bool = False,
    ) -> None:
        background = "leave it running and keep recording: `profd view` comes back"
        keep = Choice(Leaving.KEEP.value, background, ("k", "q"))
        end = Choice(Leaving.END.value, "leave it running and end the recording", ("e",))
        stop = [] if stopping is None else [Choice(STOP, STOPPING[stopping], ("s",))]
        self._stops_at_once = stopping in (signal.SIGINT, signal.SIGTERM)
        first = 0 if by_interrupt and self._stops_at_once else len(stop)
        super().__init__("Leave", "", [*stop, keep, end], first)
        self._interrupted_s = monotonic() if by_interrupt else -math.inf

    def action_interrupt(self) -> None:
        before_s, self._interrupted_s = self._interrupted_s, monotonic()
        if self._stops_at_once and self._interrupted_s - before_s <= TWICE_S:
            self.dismiss(STOP)


class SheetScreen(Dialog[None]):
    """Text to read; any of the usual keys closes it."""

    BINDINGS = [("q,enter,space", "dismiss")]

    def __init__(self, title: str, text: RenderableType) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="sheet") as sheet:
            sheet.border_title, sheet.border_subtitle = self._title, "esc closes"
            yield Static(self._text, markup=False)


class HelpScreen(SheetScreen):
    """What each key does."""

    BINDINGS = [("question_mark,f1", "dismiss")]

    def __init__(self) -> None:
        table = Table.grid(padding=(0, 2))
        for keys, meaning in HELP:
            table.add_row(Text(keys, style="bold", no_wrap=True), Text(meaning))
        super().__init__("Keys", table)


class StacksScreen(SheetScreen):
    """The stacks of all threads at one moment."""

    BINDINGS = [("d", "dismiss")]

    def __init__(self, dumped: Sequence[DumpedProcess], stacks: Sequence[MergedStack]) -> None:
        unread = (
            f"pid {process.pid} cannot be read: {process.error}"
            for process in dumped
            if process.error
        )
        lines = [Text(visible(text), style="italic") for text in unread]
        for stack in stacks:
            lines.append(Text(visible(", ".join(stack.owners)), style="bold"))
            lines += (Text(visible(f"    {frame}")) for frame in stack.native)
            for frame in stack.frames:
                place = (visible(frame.place), "dim")
                lines.append(Text.assemble(visible(f"    {frame.name}  "), place))
            lines.append(Text())
        threads = sum(len(stack.owners) for stack in stacks)
        super().__init__(
            f"{plural(threads, 'thread')} in {plural(len(stacks), 'stack')}", Text("\n").join(lines)
        )


class FailureScreen(Screen[None]):
    """What failed and why, and what to do about it."""

    def __init__(self, error: ProfdError) -> None:
        super().__init__()
        self.error = error

    def compose(self) -> ComposeResult:
        text = Text(visible(self.error.what), style="bold")
        if self.error.remedy:
            text.append(f"\n\n{visible(self.error.remedy)}", style="not bold")
        text.append("\n\nThe recording goes on: only the view has ended.", style="not bold dim")
        with Vertical(id="failure") as box:
            box.border_title = "The run cannot be shown"
            yield Static(text, markup=False)
        yield Footer(compact=True, show_command_palette=False)
