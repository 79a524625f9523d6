"""Asks for a choice or a line of text, on a sheet over the dashboard; what becomes of the answer is not its matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option


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
