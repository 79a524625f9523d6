"""Dialogs over the dashboard: choices, text, a time to go to, help, stacks, leaving, and a run that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from profd.daemon.analyze.selection import parse_time
from profd.daemon.errors import ProfdError, UsageError
from profd.daemon.render.plaintext import visible
from profd.daemon.store.rows import RunInfo
from profd.daemon.units import plural

if TYPE_CHECKING:
    from profd.daemon.tree.treedump import DumpedProcess, MergedStack


class Choice(NamedTuple):
    """An answer: what it stands for, the words for it, and the keys that give it at once."""

    id: str
    words: str
    keys: tuple[str, ...] = ()


class ChoiceScreen(ModalScreen[str | None]):
    """A question with answers to choose from; it gives back the id of one, None where it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close", show=False)]

    def __init__(self, title: str, text: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title, self._text, self.choices = title, text, tuple(choices)

    def compose(self) -> ComposeResult:
        """Make the sheet."""
        with Vertical(classes="question") as sheet:
            sheet.border_title = self._title
            sheet.border_subtitle = "esc goes back"
            if self._text:
                yield Static(self._text, markup=False)
            yield OptionList(*(Option(self._words(choice), id=choice.id) for choice in self.choices), markup=False)

    def on_mount(self) -> None:
        """Let the keys of the answers give them."""
        for choice in self.choices:
            for key in choice.keys:
                self._bindings.bind(key, f"choose('{choice.id}')", choice.words, show=False)

    def action_choose(self, answer: str) -> None:
        """Give an answer."""
        self.dismiss(answer)

    def action_close(self) -> None:
        """Give none."""
        self.dismiss(None)

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def _words(self, choice: Choice) -> str:
        return f"{choice.keys[0]}  {choice.words}" if choice.keys else choice.words


class LineScreen(ModalScreen[str | None]):
    """A question that is answered by a line of text; it gives back None where it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close", show=False)]

    def __init__(self, title: str, placeholder: str) -> None:
        super().__init__()
        self._title, self._placeholder = title, placeholder

    def compose(self) -> ComposeResult:
        """Make the sheet."""
        with Vertical(classes="question") as sheet:
            sheet.border_title = self._title
            sheet.border_subtitle = "⏎ · esc goes back"
            yield Input(placeholder=self._placeholder, compact=True)

    def action_close(self) -> None:
        """Give no answer."""
        self.dismiss(None)

    @on(Input.Submitted)
    def _answer(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class GotoScreen(ModalScreen[int | None]):
    """The line; it gives back a time of the run's clock, None where there is none to go to."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close", show=False)]

    def __init__(self, info: RunInfo) -> None:
        super().__init__()
        self._info = info

    def compose(self) -> ComposeResult:
        """Make the line."""
        yield Static(id="goto-error", markup=False)
        yield Input(id="goto", placeholder="go to: seconds from the start, or HH:MM:SS", compact=True)

    def action_close(self) -> None:
        """Go nowhere."""
        self.dismiss(None)

    @on(Input.Submitted)
    def _go(self, event: Input.Submitted) -> None:
        try:
            self.dismiss(parse_time(event.value.strip(), self._info))
        except UsageError as error:
            self.query_one("#goto-error", Static).update(str(error))


class Leaving(Enum):
    """What is to become of the recording."""

    END = "end"
    KEEP = "keep"


_CHOICES = (
    Choice(Leaving.KEEP.value, "keep recording in the background: `profd view` comes back to it", ("k", "q", "b")),
    Choice(Leaving.END.value, "end the recording; the script runs on", ("e",)),
)


class LeavingScreen(ChoiceScreen):
    """The question. The key that led here leaves, and what harms nothing is what it stands for."""

    def __init__(self) -> None:
        super().__init__("Leave", "", _CHOICES)


KEYS = (
    ("1 … 7", "hot functions, flame graph, processes, torch operators, findings, events, the script's output"),
    ("↑ ↓ home end", "move the cursor, pgup and pgdn by a page; rows keep their places while it is in the table"),
    ("esc", "take the cursor out, clear the filter, stop typing to the script; then back to live"),
    ("/", "show only what has a word in it"),
    ("o", "order by the next column; a click on a column's title orders by that one"),
    ("l", "hot lines instead of hot functions, and back"),
    ("t", "count main threads, all threads, or one process"),
    ("⏎", "in 3: the functions of a process; in 5: the stacks that prove a finding; in 7: type to the script"),
    ("2: ↑ ↓ ← →", "walk through the flame graph; ⏎ zooms, ⌫ goes back, i inverts, f folds libraries, c colors"),
    ("← →", "move the cursor in time, with shift by ten columns (or , . < >); the mouse does, too"),
    ("[ ]", "let the range begin, or end, at the cursor; dragging the mouse does both"),
    ("g", "go to a time: seconds from the start, or HH:MM:SS"),
    ("z Z", "show less time, or more: the last 30 s to the whole run"),
    ("p", "hold the view; the recording goes on"),
    ("w", "take a torch.profiler window; 4 shows its operators"),
    ("d", "the stacks of all threads now"),
    ("m", "mark this moment, with a note"),
    ("+ -", "sample more often, or less; the budget holds"),
    ("s", "stop profiling; the script runs on"),
    ("e", "export what is looked at: collapsed, speedscope, pprof, Perfetto, …"),
    ("r", "write the report, an HTML file, into the current folder"),
    ("ctrl+p", "all commands, and the colors"),
)
LEAVING = (
    ("b", "leave, and let the recording go on in the background"),
    ("ctrl+z", "give the shell the terminal; fg comes back, and the script goes on meanwhile"),
    ("q", "leave; of a recording it asks whether to go on or to end"),
)


class HelpScreen(ModalScreen[None]):
    """The sheet; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,space", "close", "close", show=False)
    ]

    def compose(self) -> ComposeResult:
        """Make the sheet."""
        table = Table.grid(padding=(0, 2))
        for keys, meaning in (*KEYS, *LEAVING):
            table.add_row(Text(keys, style="bold", no_wrap=True), Text(meaning))
        with VerticalScroll(id="sheet") as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "esc closes"
            yield Static(table)

    def action_close(self) -> None:
        """Close the sheet."""
        self.dismiss()


class FailureScreen(Screen[None]):
    """What failed and why, and what to do about it."""

    def __init__(self, error: ProfdError) -> None:
        super().__init__()
        self.error = error

    def compose(self) -> ComposeResult:
        """Make the screen."""
        text = Text(visible(self.error.what), style="bold")
        if self.error.remedy:
            text.append(f"\n\n{visible(self.error.remedy)}", style="not bold")
        text.append("\n\nWhat is recorded is not touched by this: only the view has ended.", style="not bold dim")
        with Vertical(id="failure") as box:
            box.border_title = "The run cannot be shown"
            yield Static(text, markup=False)
        yield Footer(compact=True, show_command_palette=False)


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
