"""The keys that move in time, and what they ask of the timeline. What is shown of that time is no matter of theirs."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.screen import Screen

from profd.tui.screens.dialogs import GotoScreen
from profd.tui.widgets.timeline import Timeline

FAR = 10


class Scrubbing(Screen[None]):
    """A screen with a timeline."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,comma", "scrub(-1)", "earlier", show=False),
        Binding("right,full_stop", "scrub(1)", "later", show=False),
        Binding("shift+left,less_than_sign", f"scrub(-{FAR})", "much earlier", show=False),
        Binding("shift+right,greater_than_sign", f"scrub({FAR})", "much later", show=False),
        Binding("left_square_bracket", "begin_range", "begin a range", show=False),
        Binding("right_square_bracket", "end_range", "end a range", show=False),
        Binding("g", "goto", "go to a time", show=False),
        Binding("z", "zoom(1)", "less time", show=False),
        Binding("Z", "zoom(-1)", "more time", show=False),
    ]

    @property
    def timeline(self) -> Timeline:
        """The timeline."""
        return self.query_one(Timeline)

    def action_scrub(self, columns: int) -> None:
        """Move the cursor."""
        self.timeline.move(lambda scrub, ruler, run: scrub.moved(columns, ruler, run))

    def action_begin_range(self) -> None:
        """Let the range begin at the cursor."""
        self.timeline.move(lambda scrub, ruler, run: (scrub if scrub.cursor else scrub.moved(0, ruler, run)).begun())

    def action_end_range(self) -> None:
        """Let the range end at the cursor."""
        self.timeline.move(lambda scrub, ruler, run: (scrub if scrub.cursor else scrub.moved(0, ruler, run)).finished())

    def action_zoom(self, steps: int) -> None:
        """Show less time, or more."""
        self.timeline.move(lambda scrub, ruler, run: scrub.zoomed(steps, ruler, run))

    def action_live(self) -> None:
        """Give up cursor and range, and go on with the run."""
        self.timeline.move(lambda scrub, ruler, run: scrub.released())

    def choose_range(self, from_ns: int, to_ns: int) -> None:
        """Choose a range, as though it had been marked with the keys."""
        self.timeline.move(lambda scrub, ruler, run: replace(scrub, cursor=None, from_ns=from_ns, to_ns=to_ns))

    def action_goto(self) -> None:
        """Ask for a time, and go there."""
        if self.timeline.snapshot is not None:
            self.app.push_screen(GotoScreen(self.timeline.snapshot.info), self._go)

    def _go(self, at_ns: int | None) -> None:
        if at_ns is not None:
            self.timeline.move(lambda scrub, ruler, run: scrub.at(at_ns, ruler, run))
