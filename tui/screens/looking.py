"""What is looked at: which threads, which time, and whether the view is held. The feed is told of every change."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.binding import Binding, BindingType

from profd.daemon.analyze.selection import Selection
from profd.daemon.store.rows import RunInfo
from profd.tui.feed import Feed
from profd.tui.samples import selection
from profd.tui.screens.scrubbing import Scrubbing
from profd.tui.snapshot import Snapshot
from profd.tui.view import Scope, ScopeKind, View
from profd.tui.widgets.header import Header
from profd.tui.widgets.processes import ProcessTable
from profd.tui.widgets.timeline import Scrubbed, StripsResized

_FOLLOWING = {ScopeKind.MAIN: ScopeKind.ALL, ScopeKind.ALL: ScopeKind.PROCESS, ScopeKind.PROCESS: ScopeKind.MAIN}


class Looking(Scrubbing):
    """A screen that a feed answers; whoever makes it gives it the feed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "scope", "threads"),
        Binding("l", "lines", "functions or lines"),
        Binding("p", "pause", "pause"),
    ]

    _feed: Feed
    _view = View()
    _snapshot: Snapshot | None = None
    _is_paused = False

    @property
    def info(self) -> RunInfo | None:
        """The run as it was last seen; None before."""
        return self._snapshot.info if self._snapshot is not None else None

    @property
    def selection(self) -> Selection:
        """What is looked at."""
        chosen = self._view.chosen
        return replace(
            selection(self._view.scope),
            from_ns=chosen.from_ns if chosen else None,
            to_ns=chosen.to_ns if chosen else None,
        )

    @on(StripsResized)
    def _resize_strips(self, message: StripsResized) -> None:
        self._look(replace(self._view, columns=message.columns))

    @on(Scrubbed)
    def _look_at_time(self, message: Scrubbed) -> None:
        scrub = message.scrub
        view = replace(self._view, span_ns=scrub.span_ns, end_ns=scrub.end_ns, chosen=scrub.chosen)
        self._look(view)

    def action_scope(self) -> None:
        """Count main threads, then all threads, then one process."""
        kind = _FOLLOWING[self._view.scope.kind]
        process = self._process_meant() if kind is ScopeKind.PROCESS else None
        if kind is ScopeKind.PROCESS and process is None:
            kind = ScopeKind.MAIN
        self._look(replace(self._view, scope=Scope(kind, process)))

    def action_lines(self) -> None:
        """Count by lines instead of functions, or by functions again."""
        self._look(replace(self._view, by_line=not self._view.by_line))

    def action_pause(self) -> None:
        """Hold the view, or go on."""
        self._is_paused = not self._is_paused
        self._feed.pause(is_paused=self._is_paused)
        self.query_one(Header).set_paused(is_paused=self._is_paused)

    def _look(self, view: View) -> None:
        self._view = view
        self._feed.look(view)

    def _process_meant(self) -> int | None:
        """Return the process under the cursor of the tree, else the first one."""
        current = self.query_one(ProcessTable).current
        if current is not None:
            return current.row.id
        rows = self._snapshot.process_rows if self._snapshot is not None else ()
        return min(rows, key=lambda row: (row.role != "main", row.id)).id if rows else None

    def _is_live(self) -> bool:
        return self._snapshot is not None and self._snapshot.info.state == "live"
