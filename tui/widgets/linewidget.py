"""Widgets that draw themselves line by line from styled runs of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    def style_of(self, style: Style | str) -> Style:
        """Return a style; a named one on the background of this widget.

        The style sheet is applied to the class here. Textual does so for component classes, but
        computes them anew, used or not, whenever a style of the widget may have changed: that took
        a third of the time to open the dashboard.
        """
        if isinstance(style, Style):
            return style
        known: dict[tuple[str, str], Style] = self.__dict__.setdefault("_named_styles", {})
        asked = (style, self.app.theme)
        if asked not in known:
            node = DOMNode(classes=f"style--{style}")
            node._attach(self)
            self.app.stylesheet.apply(node, animate=False)
            known[asked] = node.rich_style
        return known[asked]

    def strip_of(self, runs: Iterable[Run]) -> Strip:
        """Return runs as a line of this widget, cut or filled with blanks."""
        width = self.size.width
        fitted = fit_runs(runs, width)
        return Strip([Segment(text, self.style_of(style)) for text, style in fitted], width)

    def phase_look(self, name: str) -> PhaseLook:
        return phase_look(name, self._color_system)

    def idle_look(self, share: float) -> PhaseLook:
        return idle_look(round(10 * share), self._color_system)

    @property
    def _color_system(self) -> str | None:
        return None if self.app.no_color else self.app.console.color_system


class LineWidget(StyledWidget):
    """A widget that redraws only the lines that have changed.

    Most of a dashboard's cost comes after a line was made; making it once more, to compare, is
    cheap.
    """

    snapshot: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.on_resize()
        self.redraw()

    def on_resize(self) -> None:
        """Fit what is shown into the size of this widget."""

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return line ``y``; anything beyond ``width`` cells is cut."""
        raise NotImplementedError

    def make_line(self, y: int) -> Strip:
        return self.strip_of(self.draw(y, self.size.width))

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
