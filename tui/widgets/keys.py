"""The last line: the keys that people use most; a click on one is as good as the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from textual import events

from profd.daemon.render.cells import width
from profd.tui.drawing.cells import Run
from profd.tui.widgets.drawn import Lines


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
