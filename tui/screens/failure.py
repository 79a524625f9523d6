"""What stands in place of the dashboard when the run cannot be read any further."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Footer, Static

from profd.daemon.errors import ProfdError
from profd.daemon.render.visible import visible


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
