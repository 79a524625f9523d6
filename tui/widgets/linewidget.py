"""Widgets that draw themselves line by line from styled runs of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.dom import DOMNode
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from profd.tui.cells import Run, fit_runs
from profd.tui.colors import PhaseLook, idle_look, phase_looks
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

    def strip_of(self, runs: Iterable[Run], width: int) -> Strip:
        """Return runs as a line, cut or filled with blanks."""
        fitted = fit_runs(runs, width)
        return Strip([Segment(text, self.style_of(style)) for text, style in fitted], width)

    @property
    def phase_looks(self) -> Mapping[str, PhaseLook]:
        return phase_looks(self._color_system)

    def idle_look(self, share: float) -> PhaseLook:
        return idle_look(round(10 * share), self._color_system)

    @property
    def _color_system(self) -> str | None:
        return None if self.app.no_color else self.app.console.color_system


class LineWidget(StyledWidget):
    """A widget that makes a line once it may have changed, and draws it only if it has.

    Most of a dashboard's cost is to make lines and to draw them.
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
        width = self.size.width
        return self.strip_of(self.draw(y, width), width)

    def render_line(self, y: int) -> Strip:
        made = self._made.pop(y, None)
        line = self._on_screen[y] = made or self.make_line(y)
        return line

    def redraw(self) -> None:
        width, height = self.size
        lines = ((y, self.make_line(y)) for y in range(height))
        changed = {y: line for y, line in lines if line != self._on_screen.get(y)}
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))
            self._made.update(changed)

    def refresh(self, *regions: Region, **how: Any) -> Any:  # noqa: ANN401  as in Textual
        """Draw again; what was made before may be of another state, style or size."""
        self._made.clear()
        return super().refresh(*regions, **how)

    @cached_property
    def _on_screen(self) -> dict[int, Strip]:
        return {}

    @cached_property
    def _made(self) -> dict[int, Strip]:
        """Lines that were made, and are to be drawn."""
        return {}
