"""The dashboard: one run, live or finished. Asks the feed for what is looked at, and hands snapshots to the widgets."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import ContentSwitcher, Input

from profd.tui.feed import Feed, OutputDrawn, SnapshotTaken
from profd.tui.reporting import ReportFailed, ReportWritten, write_report_of
from profd.tui.screens.scrubbing import Scrubbing
from profd.tui.snapshot import Snapshot
from profd.tui.terminal import Terminal
from profd.tui.view import OutputView, Scope, ScopeKind, View
from profd.tui.widgets.events import EventTable
from profd.tui.widgets.header import Header, ending
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.keys import KeyLine
from profd.tui.widgets.output import OutputPane, TypingChanged
from profd.tui.widgets.table import CursorMoved
from profd.tui.widgets.tabs import TABS, TabChosen, TabLine
from profd.tui.widgets.timeline import Scrubbed, StripsResized, Timeline
from profd.tui.widgets.tree import ProcessChosen, ProcessTable
from profd.tui.widgets.verdict import VerdictLine


class PanesResized(Message):
    """There is other room for the tables, and for the script's output."""


class Panes(ContentSwitcher):
    """The tables and the output, of which one is shown."""

    def on_resize(self, event: events.Resize) -> None:
        """Say that there is other room."""
        self.post_message(PanesResized())


class Dashboard(Scrubbing):
    """The screen."""

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (9, "-low"), (14, "-short"), (34, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"open('{tab}')", name, show=False) for n, (tab, name) in enumerate(TABS, start=1)),
        Binding("slash", "filter", "filter", show=False),
        Binding("s", "sort", "sort"),
        Binding("t", "scope", "threads"),
        Binding("p", "pause", "pause"),
        Binding("r", "report", "report"),
        Binding("enter", "type", "type to the script", show=False),
        Binding("pageup", "page_output(-1)", "scroll the output", show=False),
        Binding("pagedown", "page_output(1)", "scroll the output", show=False),
        Binding("escape", "close_filter", "clear the filter", show=False),
    ]

    def __init__(self, run_file: Path, feed: Feed, terminal: Terminal | None, *, may_end: bool) -> None:
        super().__init__()
        self._run_file = run_file
        self._feed = feed
        self._terminal = terminal
        self._may_end = may_end
        self._view = View()
        self._output_view = OutputView()
        self._snapshot: Snapshot | None = None
        self._is_paused = False

    def compose(self) -> ComposeResult:
        """Make the parts, from the top down."""
        yield Header()
        yield VerdictLine()
        yield Timeline()
        yield TabLine()
        with Panes(id="panes", initial=TABS[0][0]):
            yield HotTable(id="hot")
            yield ProcessTable(id="processes")
            yield EventTable(id="events")
            yield OutputPane(self._terminal, id="output")
        yield Input(id="filter", placeholder="show only what has this in it", compact=True)
        yield KeyLine(may_end=self._may_end)

    def on_mount(self) -> None:
        """Begin in the first table."""
        self.query_one(HotTable).focus()
        self._feed.look(self._view)

    @property
    def _tab(self) -> str:
        return self.query_one(Panes).current or TABS[0][0]

    @property
    def _table(self) -> HotTable | ProcessTable | EventTable | None:
        pane = self.query_one(f"#{self._tab}")
        return pane if isinstance(pane, HotTable | ProcessTable | EventTable) else None

    @on(SnapshotTaken)
    def _show(self, message: SnapshotTaken) -> None:
        before, self._snapshot = self._snapshot, message.snapshot
        self.query_one(Header).show(message.snapshot)
        self.query_one(VerdictLine).show(message.snapshot)
        self.query_one(Timeline).show(message.snapshot)
        self.query_one(TabLine).show(message.snapshot)
        self.query_one(OutputPane).set_mode(message.snapshot.info.mode)
        self._show_table()
        if before is not None and before.info.state == "live" != message.snapshot.info.state:
            self._say_ended(message.snapshot)

    @on(OutputDrawn)
    def _show_output(self, message: OutputDrawn) -> None:
        self.query_one(OutputPane).show(message.picture)

    @on(StripsResized)
    def _resize_strips(self, message: StripsResized) -> None:
        self._look(msgspec.structs.replace(self._view, columns=message.columns))

    @on(Scrubbed)
    def _look_at_time(self, message: Scrubbed) -> None:
        scrub = message.scrub
        view = msgspec.structs.replace(self._view, span_ns=scrub.span_ns, end_ns=scrub.end_ns, chosen=scrub.chosen)
        self._look(view)

    @on(PanesResized)
    def _resize_output(self) -> None:
        size = self.query_one(Panes).size
        columns, lines = max(size.width - 1, 1), max(size.height, 1)
        if self._terminal is not None:
            self._terminal.resize(columns, lines)
        self._look_at_output(msgspec.structs.replace(self._output_view, columns=columns, lines=lines))

    @on(TypingChanged)
    def _note_typing(self, message: TypingChanged) -> None:
        self._look_at_output(msgspec.structs.replace(self._output_view, is_typing=message.is_typing))
        self._note()

    @on(CursorMoved)
    def _note(self) -> None:
        """Say in the line above the table what its keys do just now."""
        table, note = self._table, ""
        if table is not None and table.has_cursor:
            note = "rows hold their places · esc lets them go" if self._is_live() else ""
        elif self._tab == "output" and self._terminal is not None and self._terminal.is_open:
            is_typing = self._output_view.is_typing
            note = "keys go to the script · esc comes back" if is_typing else "⏎ types to the script"
        self.query_one(TabLine).open(self._tab, note)

    @on(TabChosen)
    def _open_clicked(self, message: TabChosen) -> None:
        self.action_open(message.tab)

    @on(ProcessChosen)
    def _look_at_process(self, message: ProcessChosen) -> None:
        self._look(msgspec.structs.replace(self._view, scope=Scope(ScopeKind.PROCESS, message.process)))
        self.action_open("hot")

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        if self._table is not None:
            self._table.filter(event.value)

    @on(Input.Submitted, "#filter")
    def _keep_filter(self, event: Input.Submitted) -> None:
        self.query_one(Input).set_class(bool(event.value), "-open")
        if self._table is not None:
            self.set_focus(self._table)

    @on(ReportWritten)
    def _say_written(self, message: ReportWritten) -> None:
        self.notify(str(message.path), title="Report written", timeout=15, markup=False)

    @on(ReportFailed)
    def _say_failed(self, message: ReportFailed) -> None:
        self.notify(str(message.error), title="No report", severity="error", timeout=15, markup=False)

    def action_open(self, tab: str) -> None:
        """Open a tab; keys go to its table."""
        self._clear_filter()
        self.query_one(Panes).current = tab
        pane = self.query_one(f"#{tab}")
        self.set_focus(pane if pane.can_focus else None)
        self._look_at_output(msgspec.structs.replace(self._output_view, is_shown=tab == "output"))
        self._show_table()
        self._note()

    def action_filter(self) -> None:
        """Ask for what the rows shall have in them."""
        if self._table is not None:
            line = self.query_one(Input)
            line.add_class("-open")
            self.set_focus(line)

    def action_close_filter(self) -> None:
        """Show all rows again, and give keys back to them; without a filter go back to what is live."""
        if not self.query_one(Input).has_class("-open"):
            self.action_live()
        self._clear_filter()
        if self._table is not None:
            self.set_focus(self._table)

    def action_sort(self) -> None:
        """Order the functions by total time, or by self time again."""
        table = self.query_one(HotTable)
        table.sort_by_total(by_total=not table.by_total)

    def action_scope(self) -> None:
        """Count main threads, then all threads, then one process."""
        following = {ScopeKind.MAIN: ScopeKind.ALL, ScopeKind.ALL: ScopeKind.PROCESS, ScopeKind.PROCESS: ScopeKind.MAIN}
        kind = following[self._view.scope.kind]
        process = self._process_meant() if kind is ScopeKind.PROCESS else None
        if kind is ScopeKind.PROCESS and process is None:
            kind = ScopeKind.MAIN
        self._look(msgspec.structs.replace(self._view, scope=Scope(kind, process)))

    def action_pause(self) -> None:
        """Hold the view, or go on."""
        self._is_paused = not self._is_paused
        self._feed.pause(is_paused=self._is_paused)
        self.query_one(Header).set_paused(is_paused=self._is_paused)

    def action_report(self) -> None:
        """Write the report, in a thread."""
        self.notify("writing the report…", timeout=3, markup=False)
        self.run_worker(lambda: self.post_message(write_report_of(self._run_file)), thread=True, group="report")

    def action_type(self) -> None:
        """Begin to type to the script."""
        if self._tab == "output":
            self.query_one(OutputPane).start_typing()

    def action_page_output(self, pages: int) -> None:
        """Scroll the script's output, which has no focus as long as nobody types to the script."""
        pane = self.query_one(OutputPane)
        pane.scroll_to(y=pane.scroll_offset.y + pages * max(pane.size.height - 1, 1), animate=False)

    def _clear_filter(self) -> None:
        line = self.query_one(Input)
        line.value = ""
        line.remove_class("-open")
        if self._table is not None:
            self._table.filter("")

    def _look(self, view: View) -> None:
        self._view = view
        self._feed.look(view)

    def _look_at_output(self, view: OutputView) -> None:
        self._output_view = view
        self._feed.look_at_output(view)

    def _show_table(self) -> None:
        if self._table is not None and self._snapshot is not None:
            self._table.show_snapshot(self._snapshot)

    def _process_meant(self) -> int | None:
        """Return the process under the cursor of the tree, else the first one."""
        current = self.query_one(ProcessTable).current
        if current is not None:
            return current.row.id
        return self._snapshot.processes[0].row.id if self._snapshot and self._snapshot.processes else None

    def _is_live(self) -> bool:
        return self._snapshot is not None and self._snapshot.info.state == "live"

    def _say_ended(self, snapshot: Snapshot) -> None:
        if snapshot.info.state == "interrupted":
            self.notify("profd's recorder was ended; all it wrote is kept", severity="error", markup=False)
        else:
            self.notify(f"the run has come to its end: {ending(snapshot.info)}", markup=False)
