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

from profd.daemon.analyze.selection import Selection
from profd.daemon.render.visible import visible
from profd.daemon.store.rows import RunInfo
from profd.tui.exhibits import FlameGrown, OperatorsRead
from profd.tui.feed import Feed, OutputDrawn, SnapshotTaken
from profd.tui.samples import selection
from profd.tui.screens.acting import Acting
from profd.tui.screens.scrubbing import Scrubbing
from profd.tui.snapshot import Snapshot
from profd.tui.terminal import Terminal
from profd.tui.view import OutputView, Scope, ScopeKind, View
from profd.tui.widgets.events import EventTable
from profd.tui.widgets.findings import FindingChosen, FindingsPane
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import Header, ending
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.keys import KeyLine
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane, TypingChanged
from profd.tui.widgets.table import CursorMoved
from profd.tui.widgets.tabs import TABS, TabChosen, TabLine
from profd.tui.widgets.timeline import Scrubbed, StripsResized, Timeline
from profd.tui.widgets.tree import ProcessChosen, ProcessTable
from profd.tui.widgets.verdict import VerdictLine

Pane = HotTable | FlameView | ProcessTable | OperatorTable | FindingsPane | EventTable
"""What can be open below the tabs, beside the script's output."""


class PanesResized(Message):
    """There is other room for the tables, and for the script's output."""


class Panes(ContentSwitcher):
    """The tables and the output, of which one is shown."""

    def on_resize(self, event: events.Resize) -> None:
        """Say that there is other room."""
        self.post_message(PanesResized())


class Dashboard(Scrubbing, Acting):
    """The screen."""

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (9, "-low"), (14, "-short"), (34, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"open('{tab}')", name, show=False) for n, (tab, name) in enumerate(TABS, start=1)),
        Binding("slash", "filter", "filter", show=False),
        Binding("o", "sort", "order"),
        Binding("t", "scope", "threads"),
        Binding("p", "pause", "pause"),
        Binding("r", "report", "report"),
        Binding("enter", "type", "type to the script", show=False),
        Binding("pageup", "page_output(-1)", "scroll the output", show=False),
        Binding("pagedown", "page_output(1)", "scroll the output", show=False),
        Binding("escape", "close_filter", "clear the filter", show=False),
    ]

    def __init__(self, run_file: Path, feed: Feed, terminal: Terminal | None) -> None:
        super().__init__()
        self._run_file = run_file
        self._feed = feed
        self._terminal = terminal
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
            yield FlameView(id="flame")
            yield ProcessTable(id="processes")
            yield OperatorTable(id="torch")
            yield FindingsPane(id="findings")
            yield EventTable(id="events")
            yield OutputPane(self._terminal, id="output")
        yield Input(id="filter", placeholder="show only what has this in it", compact=True)
        yield KeyLine()

    def on_mount(self) -> None:
        """Begin in the first table."""
        self.query_one(HotTable).focus()
        self._feed.look(self._view)

    @property
    def _tab(self) -> str:
        return self.query_one(Panes).current or TABS[0][0]

    @property
    def _pane(self) -> Pane | None:
        pane = self.query_one(f"#{self._tab}")
        return pane if isinstance(pane, Pane) else None

    @property
    def info(self) -> RunInfo | None:
        """The run as it was last seen; None before."""
        return self._snapshot.info if self._snapshot is not None else None

    @property
    def run_file(self) -> Path:
        """The file that is shown."""
        return self._run_file

    @property
    def selection(self) -> Selection:
        """What is looked at."""
        chosen = self._view.chosen
        return msgspec.structs.replace(
            selection(self._view.scope),
            from_ns=chosen.from_ns if chosen else None,
            to_ns=chosen.to_ns if chosen else None,
        )

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

    @on(FlameGrown)
    def _show_flame(self, message: FlameGrown) -> None:
        self.query_one(FlameView).show(message.tree)

    @on(OperatorsRead)
    def _show_operators(self, message: OperatorsRead) -> None:
        self.query_one(OperatorTable).show_window(message.shown)
        self._note()

    @on(FindingChosen)
    def _show_proof(self, message: FindingChosen) -> None:
        """Look at the range of a finding, and at the stacks with its line."""
        evidence = message.finding.evidence
        processes = evidence.selection.processes or frozenset()
        scope = Scope(ScopeKind.PROCESS, min(processes)) if len(processes) == 1 else Scope()
        self._look(msgspec.structs.replace(self._view, scope=scope))
        self.choose_range(evidence.from_ns, evidence.to_ns)
        self.action_open("flame")
        if evidence.line is not None:
            self._search_for(f"{evidence.line.module_path}:{evidence.line.line}")

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
        pane, note = self._pane, ""
        if isinstance(pane, OperatorTable) and pane.shown is not None:
            note = pane.about
        elif isinstance(pane, FlameView) and pane.walk.zoomed is not None:
            note = f"zoomed to {visible(pane.walk.zoomed.title)} · ⌫ goes back"
        elif not isinstance(pane, FlameView) and pane is not None and pane.has_cursor and self._is_live():
            note = "rows hold their places · esc lets them go"
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
        if self._pane is not None:
            self._pane.filter(event.value)

    @on(Input.Submitted, "#filter")
    def _keep_filter(self, event: Input.Submitted) -> None:
        self.query_one(Input).set_class(bool(event.value), "-open")
        self._focus_pane()

    def action_open(self, tab: str) -> None:
        """Open a tab; keys go to its table."""
        self._clear_filter()
        self.query_one(Panes).current = tab
        self._focus_pane()
        self._feed.open(tab)
        self._look_at_output(msgspec.structs.replace(self._output_view, is_shown=tab == "output"))
        self._show_table()
        self._note()

    def action_filter(self) -> None:
        """Ask for what the rows shall have in them."""
        if self._pane is not None:
            line = self.query_one(Input)
            line.add_class("-open")
            self.set_focus(line)

    def action_close_filter(self) -> None:
        """Show all rows again, and give keys back to them; without a filter go back to what is live."""
        if not self.query_one(Input).has_class("-open"):
            self.action_live()
        self._clear_filter()
        self._focus_pane()

    def action_sort(self) -> None:
        """Order the rows by the next of the columns that rows can be ordered by."""
        if isinstance(self._pane, HotTable | OperatorTable):
            self._pane.sort_next()

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
        if self._pane is not None:
            self._pane.filter("")

    def _search_for(self, text: str) -> None:
        """Filter by a text as though it had been typed."""
        line = self.query_one(Input)
        line.value = text
        line.add_class("-open")

    def _focus_pane(self) -> None:
        """Give keys to what is open; to the script's output only when somebody types."""
        pane = self._pane
        self.set_focus(pane.table if isinstance(pane, FindingsPane) else pane)

    def _look(self, view: View) -> None:
        self._view = view
        self._feed.look(view)

    def _look_at_output(self, view: OutputView) -> None:
        self._output_view = view
        self._feed.look_at_output(view)

    def _show_table(self) -> None:
        if self._pane is not None and self._snapshot is not None:
            self._pane.show_snapshot(self._snapshot)

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
