"""The line above the tables, and the line of keys.

The first has the tabs, and the samples on which the shares of the open one are based.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from textual import events

from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.units import plural
from profd.tui.cells import Run, cells_of
from profd.tui.keys import KEYS, TABS, Key
from profd.tui.widgets.linewidget import LineWidget

_NAMES_FROM = 74
_SPACED_FROM = 150


class TabLine(LineWidget):
    """The tabs, and at the right the basis of the open one, if there is room.

    Threads that somebody has chosen are named in a line of its own where it lacks the room.
    """

    tab: str = TABS[0][0]
    note: str = ""
    _lines = 1

    def open(self, tab: str, note: str) -> None:
        self.tab, self.note = tab, note
        self.on_resize()
        self.refresh()

    def on_resize(self) -> None:
        basis = self._basis()
        is_chosen = self.snapshot is not None and self.snapshot.view.scope != MAIN_THREADS
        room = self.size.width - sum(map(cells_of, self._tabs())) - 2
        wanted = 1 + (is_chosen and len(basis) > 1 and cells_of(basis[1]) > room)
        if wanted != self._lines:  # setting a height causes another layout
            self._lines = self.styles.height = wanted

    def draw(self, y: int, width: int) -> Sequence[Run]:
        tabs = [] if y else [run for runs in self._tabs() for run in runs]
        left = width - cells_of(tabs) - 2
        runs = next((runs for runs in self._beside(y) if cells_of(runs) <= left), [])
        return [*tabs, " " * (left - cells_of(runs) + 1), *runs]

    def _beside(self, y: int) -> list[list[Run]]:
        """Return what may stand at the right of a line, the longest first."""
        if y or not self.note:
            return self._basis() if y == self._lines - 1 else []
        # Only the first parts if there is no room for all.
        notes = accumulate(self.note.split(" · "), "{} · {}".format)
        said: list[list[Run]] = [[(note, "accent")] for note in notes]
        return said[::-1]

    async def on_click(self, event: events.Click) -> None:
        if (number := clicked(event.x, self._tabs())) is not None:
            await self.run_action(f"screen.open('{TABS[number][0]}')")

    def _tabs(self) -> list[list[Run]]:
        width, shown = self.size.width, list[list[Run]]()
        events, findings = (
            (self.snapshot.events, self.snapshot.findings) if self.snapshot else ((), ())
        )
        has_errors = any(event.kind.style == "bad" for event in events)
        gap = "" if width < _SPACED_FROM else "  "
        for number, (tab, name, *_) in enumerate(TABS, start=1):
            is_open = tab == self.tab
            count = (
                f" {chr(ord('①') + min(len(findings), 20) - 1)}"
                if tab == "findings" and findings
                else ""
            )
            text = f" {name}{count}" if width >= _NAMES_FROM or is_open else ""
            style = "bad" if tab == "events" and has_errors else "bright" if is_open else "dim"
            shown.append(
                [
                    (f" {number}", "accent" if is_open else "faint"),
                    (text, style),
                    gap,
                ]
            )
        return shown

    def _basis(self) -> list[list[Run]]:
        snapshot = self.snapshot
        if snapshot is None:
            return []
        if self.tab == "processes" and snapshot.left_out:
            return [[(f"{snapshot.left_out:,} that ended earlier are not shown", "dim")]]
        if self.tab == "events":
            return [[(plural(len(snapshot.events), "event"), "dim")]]
        if self.tab not in ("lines", "hot", "flame"):
            return []
        view = snapshot.view
        name = view.name if view.chosen is None else snapshot.clock_times
        parts: list[Run] = [
            (snapshot.scope_name, "dim"),
            (name, "dim" if view.is_everything else "accent"),
            (plural(snapshot.samples, "sample"), "plain"),
            (snapshot.apart, "dim"),
        ]
        # Without room the samples stay longest; the timeline has the range, too.
        choices = [parts, parts[:1] + parts[2:], parts[2:], parts[2:3]]
        return [
            [run for part in few if part[0] for run in ((" · ", "faint"), part)][1:]
            for few in choices
        ]


_GAP = "  "


class KeyLine(LineWidget):
    """The keys of the open view for which there is room, each with a word for what it does."""

    def draw(self, y: int, width: int) -> Sequence[Run]:
        return [" ", *(run for key in self._shown() for run in self._runs(key))][:-1]

    def on_click(self, event: events.Click) -> None:
        shown = self._shown()
        if (number := clicked(event.x - 1, map(self._runs, shown))) is not None:
            self.app.simulate_key(shown[number].names.partition(",")[0])

    def _shown(self) -> list[Key]:
        snapshot = self.snapshot
        if snapshot is None:
            return [key for key in KEYS if key.action == "app.quit"]
        tab, is_live = snapshot.view.tab, snapshot.info.is_live
        shown = [key for key in KEYS if key.word and key.acts(tab, is_live=is_live)]
        while (
            len(shown) > 1
            and 1 + sum(cells_of(self._runs(key)) for key in shown) - len(_GAP) > self.size.width
        ):
            shown.remove(max(shown, key=lambda key: key.rank))
        return shown

    def _runs(self, key: Key) -> list[Run]:
        return [
            (key.shown or key.names, "accent"),
            (f" {key.word}", "dim"),
            _GAP,
        ]


def clicked(x: int, parts: Iterable[Sequence[Run]]) -> int | None:
    """Return the number of the part of a line that has cell ``x``; None if none has."""
    ends = accumulate(map(cells_of, parts))
    return next((number for number, end in enumerate(ends) if x < end), None)
