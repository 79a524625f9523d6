"""Widgets that draw themselves line by line, out of runs of text in the inks of the theme."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from profd.tui.drawing.cells import Run, fit_runs
from profd.tui.drawing.colors import PhaseLook, idle_look, phase_look

INKS = {
    f"ink--{name}" for name in ("plain", "bright", "dim", "faint", "accent", "good", "warn", "bad", "bar", "cursor")
}
"""Styles by what they are for, set in one place of the style sheet."""


class Drawn(Widget):
    """A widget that has the inks.

    Textual looks for component classes along the first bases alone: where this is the second, they are named again.
    """

    COMPONENT_CLASSES = INKS

    def ink(self, name: str) -> Style:
        """Return the style of an ink, on the background of this widget."""
        return self.get_component_rich_style(f"ink--{name}")

    def run(self, text: str, ink: str = "plain") -> Run:
        """Return text in an ink."""
        return Run(text, self.ink(ink))

    def phase_look(self, name: str) -> PhaseLook:
        """Return how a phase looks on this terminal."""
        return phase_look(name, self.app.console.color_system, is_monochrome=self.app.no_color)

    def idle_look(self, share: float) -> PhaseLook:
        """Return how a GPU looks on this terminal that was idle for a share of the time."""
        return idle_look(round(10 * share), self.app.console.color_system, is_monochrome=self.app.no_color)


class Lines(Drawn):
    """A widget of a few lines."""

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return line ``y``, in at most ``width`` cells."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        """Return line ``y`` as Textual wants it."""
        width = self.size.width
        return Strip(fit_runs(self.draw(y, width), width, blank=self.ink("plain")), width)
