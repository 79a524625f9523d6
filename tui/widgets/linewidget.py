"""Widgets that draw themselves line by line from styled runs of text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from rich.segment import Segment
from rich.style import Style
from textual.dom import DOMNode
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from profd.tui.cells import Run, fit_runs
from profd.tui.colors import PhaseLook, idle_look, phase_look
from profd.tui.snapshot import Snapshot


class StyledWidget(Widget):
    """A widget with the named styles of the style sheet: ``plain``, ``dim``, ``bad`` and so on."""

    def style_of(self, name: str) -> Style:
        """Return a named style on the background of this widget.

        The style sheet is applied to the class here. Textual does so for component classes, but
        computes them anew, used or not, whenever a style of the widget may have changed: that took
        a third of the time to open the dashboard.
        """
        known: dict[tuple[str, str], Style] = self.__dict__.setdefault("_named_styles", {})
        asked = (name, self.app.theme)
        if asked not in known:
            node = DOMNode(classes=f"style--{name}")
            node._attach(self)
            self.app.stylesheet.apply(node, animate=False)
            known[asked] = node.rich_style
        return known[asked]

    def run(self, text: str, style: str = "plain") -> Run:
        return Run(text, self.style_of(style))

    def phase_look(self, name: str) -> PhaseLook:
        return phase_look(name, None if self.app.no_color else self.app.console.color_system)

    def idle_look(self, share: float) -> PhaseLook:
        return idle_look(
            round(10 * share), None if self.app.no_color else self.app.console.color_system
        )


class LineWidget(StyledWidget):
    """A widget that redraws only the lines that have changed.

    Most of a dashboard's cost comes after a line was made; making it once more, to compare, is
    cheap.
    """

    snapshot: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.redraw()

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return line ``y``; anything beyond ``width`` cells is cut."""
        raise NotImplementedError

    def make_line(self, y: int) -> Strip:
        width = self.size.width
        runs = fit_runs(self.draw(y, width), width, blank=self.style_of("plain"))
        return Strip([Segment(*run) for run in runs], width)

    def render_line(self, y: int) -> Strip:
        line = self._on_screen[y] = self.make_line(y)
        return line

    def redraw(self) -> None:
        changed = [
            y for y in range(self.size.height) if self._on_screen.get(y) != self.make_line(y)
        ]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    @cached_property
    def _on_screen(self) -> dict[int, Strip]:
        return {}
