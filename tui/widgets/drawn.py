"""Widgets that draw themselves line by line from styled runs of text, and the line of keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.style import Style
from textual import events
from textual.dom import DOMNode
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from profd.daemon.render.plaintext import width
from profd.tui.cells import Run, fit_runs
from profd.tui.colors import PhaseLook, idle_look, phase_look


class Drawn(Widget):
    """A widget that has the inks: styles by what they are for, set in one place of the style sheet."""

    def ink(self, name: str) -> Style:
        """Return the style of an ink, on the background of this widget."""
        known = self.__dict__.setdefault("_inks", {})
        asked = (name, self.app.theme)
        if asked not in known:
            known[asked] = self._styled(f"ink--{name}")
        style: Style = known[asked]
        return style

    def _styled(self, name: str) -> Style:
        """Apply the style sheet to a class, as Textual does for component classes.

        Those it works out anew, used or not, whenever a style of the widget may have changed: that took a third of the
        time in which the dashboard opens.
        """
        node = DOMNode(classes=name)
        node._attach(self)
        self.app.stylesheet.apply(node, animate=False)
        return node.rich_style

    def run(self, text: str, ink: str = "plain") -> Run:
        """Return text in an ink."""
        return Run(text, self.ink(ink))

    def phase_look(self, name: str) -> PhaseLook:
        """Return how a phase looks on this terminal."""
        return phase_look(name, self.app.console.color_system, is_monochrome=self.app.no_color)

    def idle_look(self, share: float) -> PhaseLook:
        """Return how a GPU looks on this terminal that was idle for a share of the time."""
        return idle_look(round(10 * share), self.app.console.color_system, is_monochrome=self.app.no_color)


class Redrawn(Drawn):
    """A widget that has only those lines drawn on the terminal again that are others than before.

    Most of what a dashboard costs is what comes after a line was made: so making it once more, to compare, is cheap.
    """

    def make_line(self, y: int) -> Strip:
        """Return line ``y`` as it is now."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        """Return line ``y`` for the terminal."""
        line = self._on_screen[y] = self.make_line(y)
        return line

    def redraw(self) -> None:
        """Draw the lines that have changed."""
        width, lines = self.size.width, range(self.size.height)
        changed = [y for y in lines if y not in self._on_screen or self._on_screen[y] != self.make_line(y)]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    @property
    def _on_screen(self) -> dict[int, Strip]:
        """The lines as they were drawn last."""
        drawn: dict[int, Strip] = self.__dict__.setdefault("_drawn_lines", {})
        return drawn


class Lines(Redrawn):
    """A widget of a few lines."""

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return line ``y``, in at most ``width`` cells."""
        raise NotImplementedError

    def make_line(self, y: int) -> Strip:
        """Return line ``y`` as Textual wants it."""
        width = self.size.width
        return Strip(fit_runs(self.draw(y, width), width, blank=self.ink("plain")), width)


class Key(NamedTuple):
    """A key, what it does in a word, and the action that it stands for; the lowest ``rank`` stays the longest."""

    key: str
    word: str
    action: str
    rank: int


KEYS = (
    Key("/", "filter", "screen.filter", 5),
    Key("w", "window", "screen.window", 11),
    Key("d", "dump", "screen.dump", 13),
    Key("m", "mark", "screen.mark", 12),
    Key("e", "export", "screen.export", 14),
    Key("o", "order", "screen.sort", 6),
    Key("l", "lines", "screen.lines", 7),
    Key("t", "threads", "screen.scope", 4),
    Key("←→", "time", "screen.scrub(-1)", 3),
    Key("z", "zoom", "screen.zoom(1)", 9),
    Key("p", "pause", "screen.pause", 8),
    Key("r", "report", "screen.report", 2),
    Key("?", "help", "app.help", 1),
    Key("b", "background", "app.keep", 10),
    Key("q", "leave", "app.quit", 0),
)
_GAP = 2


class KeyLine(Lines):
    """The line."""

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return the keys that there is room for."""
        runs = [self.run(" ")]
        for key in self._shown():
            runs += [self.run(key.key, "accent"), self.run(f" {key.word}", "dim"), self.run(" " * _GAP)]
        return runs

    async def on_click(self, event: events.Click) -> None:
        """Do what the key does that was clicked on."""
        for key, end in zip(self._shown(), self._ends(), strict=True):
            if event.x < end:
                await self.run_action(key.action)
                return

    def _shown(self) -> list[Key]:
        shown = list(KEYS)
        while len(shown) > 1 and 1 + sum(map(_cells, shown)) - _GAP > self.size.width:
            shown.remove(max(shown, key=lambda key: key.rank))
        return shown

    def _ends(self) -> Iterator[int]:
        end = 1
        for key in self._shown():
            end += _cells(key)
            yield end


def _cells(key: Key) -> int:
    return width(key.key) + 1 + width(key.word) + _GAP
