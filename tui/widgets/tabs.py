"""The line above the tables: which one is open, and on what its shares rest."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from profd.daemon.render.plaintext import width
from profd.daemon.units import plural, time_range
from profd.tui.cells import Run
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.drawn import Lines

TABS = (
    ("hot", "Hot"),
    ("flame", "Flame"),
    ("processes", "Processes"),
    ("torch", "Torch"),
    ("findings", "Findings"),
    ("events", "Events"),
    ("output", "Output"),
)
"""The tabs by the number keys from 1: id and name."""


_NAMES_FROM = 66
_ROOMY_FROM = 150


class TabChosen(Message):
    """A tab was clicked on."""

    def __init__(self, tab: str) -> None:
        super().__init__()
        self.tab = tab


class TabLine(Lines):
    """The line."""

    snapshot: Snapshot | None = None
    tab: str = TABS[0][0]
    note: str = ""

    def show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot."""
        self.snapshot = snapshot
        self.redraw()

    def open(self, tab: str, note: str = "") -> None:
        """Mark the open tab, with a note on what its keys do."""
        self.tab, self.note = tab, note
        self.refresh()

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return the tabs, and at the right what the open one rests on, where there is room."""
        tabs = self._tabs()
        left = width - _cells(tabs) - 2
        runs = next((runs for runs in self._basis() if _cells(runs) <= left), [])
        return [*tabs, self.run(" " * (left - _cells(runs) + 1)), *runs]

    def on_click(self, event: events.Click) -> None:
        """Open the tab that was clicked on."""
        end = 0
        for (tab, _), runs in zip(TABS, self._tab_runs(), strict=True):
            end += _cells(runs)
            if event.x < end:
                self.post_message(TabChosen(tab))
                break

    def _tabs(self) -> list[Run]:
        return [run for runs in self._tab_runs() for run in runs]

    def _tab_runs(self) -> list[list[Run]]:
        is_narrow = self.size.width < _NAMES_FROM
        return [
            [
                self.run(f" {number}", "accent" if tab == self.tab else "faint"),
                self.run("" if is_narrow and tab != self.tab else f" {name}{self._count(tab)}", self._name_ink(tab)),
                self.run("" if is_narrow else " " if self.size.width < _ROOMY_FROM else "  "),
            ]
            for number, (tab, name) in enumerate(TABS, start=1)
        ]

    def _count(self, tab: str) -> str:
        """Return how many findings there are, in one character."""
        if tab != "findings" or self.snapshot is None:
            return ""
        count = len(self.snapshot.findings)
        return f" {chr(ord('①') + min(count, 20) - 1)}" if count else ""

    def _name_ink(self, tab: str) -> str:
        has_errors = self.snapshot is not None and any(event.kind == "error" for event in self.snapshot.events)
        if tab == "events" and has_errors:
            return "bad"
        return "bright" if tab == self.tab else "dim"

    def _basis(self) -> list[list[Run]]:
        """Return what to say at the right, the longest first."""
        if self.note:
            return [[self.run(self.note, "accent")]]
        if self.snapshot is None:
            return []
        if self.tab in ("hot", "flame"):
            return self._samples(self.snapshot)
        if self.tab == "processes":
            left_out = self.snapshot.left_out
            return [[self.run(f"{left_out:,} that ended earlier are not shown", "dim")]] if left_out else []
        return [[self.run(plural(len(self.snapshot.events), "event"), "dim")]] if self.tab == "events" else []

    def _samples(self, snapshot: Snapshot) -> list[list[Run]]:
        scope, dot = self.run(snapshot.scope_name, "dim"), self.run(" · ", "faint")
        times = "–".join(time_range(snapshot.from_ns, snapshot.to_ns))  # noqa: RUF001
        samples = [dot, self.run(plural(snapshot.samples, "sample"))]
        if snapshot.view.chosen is not None:
            chosen = self.run(times, "accent")
            return [[scope, dot, chosen, *samples], [chosen, *samples], samples[1:]]
        name = self.run(snapshot.view.name, "dim" if snapshot.view.is_everything else "accent")
        return [
            [scope, dot, name, self.run(f" {times}", "faint"), *samples],
            [scope, dot, name, *samples],
            *([[scope, *samples]] if snapshot.view.is_everything else []),
            [name, *samples],
            samples[1:],
            [self.run(f"{snapshot.samples / 1000:.0f}k samples")],
        ]


def _cells(runs: Sequence[Run]) -> int:
    return sum(width(run.text) for run in runs)
