"""The dashboard: one run, live or finished. Asks the feed for what is looked at, and hands snapshots to the widgets."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from profd.daemon.render.plaintext import visible
from profd.tui.feed import Feed, SnapshotTaken
from profd.tui.screens.acting import Acting
from profd.tui.screens.filtering import Filtering, FilterLine
from profd.tui.screens.listening import Listening
from profd.tui.screens.looking import Looking
from profd.tui.screens.panes import Pane, Panes
from profd.tui.snapshot import Snapshot
from profd.tui.tabcontent import FlameGrown, OperatorsRead
from profd.tui.terminal import Terminal
from profd.tui.view import Scope, ScopeKind
from profd.tui.widgets.drawn import KeyLine
from profd.tui.widgets.findings import FindingChosen, FindingsPane
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import Header, VerdictLine, ending
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.processes import EventTable, ProcessChosen, ProcessTable
from profd.tui.widgets.table import CursorMoved
from profd.tui.widgets.tabs import TABS, TabChosen, TabLine
from profd.tui.widgets.timeline import Timeline


class Dashboard(Looking, Filtering, Listening, Acting):
    """The screen."""

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (9, "-low"), (14, "-short"), (34, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"open('{tab}')", name, show=False) for n, (tab, name) in enumerate(TABS, start=1)),
        Binding("o", "sort", "order"),
        Binding("escape", "close_filter", "clear the filter", show=False),
    ]

    def __init__(self, run_file: Path, feed: Feed, terminal: Terminal | None) -> None:
        super().__init__()
        self._run_file = run_file
        self._feed = feed
        self._terminal = terminal

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
        yield FilterLine()
        yield KeyLine()

    def on_mount(self) -> None:
        """Begin in the first table."""
        self.query_one(HotTable).focus()
        self._feed.look(self._view)

    @property
    def _tab(self) -> str:
        return self.query_one(Panes).current or TABS[0][0]

    @property
    def pane(self) -> Pane | None:
        """What is open below the tabs; None where it is the script's output."""
        pane = self.query_one(f"#{self._tab}")
        return pane if isinstance(pane, Pane) else None

    @property
    def run_file(self) -> Path:
        """The file that is shown."""
        return self._run_file

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

    @on(FlameGrown)
    def _show_flame(self, message: FlameGrown) -> None:
        self.query_one(FlameView).show(message.tree)

    @on(OperatorsRead)
    def _show_operators(self, message: OperatorsRead) -> None:
        self.query_one(OperatorTable).show_window(message.shown)
        self.note()

    @on(FindingChosen)
    def _show_proof(self, message: FindingChosen) -> None:
        """Look at the range of a finding, and at the stacks with its line."""
        evidence = message.finding.evidence
        processes = evidence.selection.processes or frozenset()
        scope = Scope(ScopeKind.PROCESS, min(processes)) if len(processes) == 1 else Scope()
        self._look(replace(self._view, scope=scope))
        self.choose_range(evidence.from_ns, evidence.to_ns)
        self.action_open("flame")
        if evidence.line is not None:
            self.search_for(f"{evidence.line.module_path}:{evidence.line.line}")

    @on(CursorMoved)
    def note(self) -> None:
        """Say in the line above the table what its keys do just now."""
        pane, note = self.pane, ""
        if isinstance(pane, OperatorTable) and pane.shown is not None:
            note = pane.about
        elif isinstance(pane, FlameView) and pane.walk.zoomed is not None:
            note = f"zoomed to {visible(pane.walk.zoomed.title)} · ⌫ goes back"
        elif not isinstance(pane, FlameView) and pane is not None and pane.has_cursor and self._is_live():
            note = "rows hold their places · esc lets them go"
        elif self._tab == "output":
            note = self.output_note
        self.query_one(TabLine).open(self._tab, note)

    @on(TabChosen)
    def _open_clicked(self, message: TabChosen) -> None:
        self.action_open(message.tab)

    @on(ProcessChosen)
    def _look_at_process(self, message: ProcessChosen) -> None:
        self._look(replace(self._view, scope=Scope(ScopeKind.PROCESS, message.process)))
        self.action_open("hot")

    def action_open(self, tab: str) -> None:
        """Open a tab; keys go to its table."""
        self.clear_filter()
        self.query_one(Panes).current = tab
        self.focus_pane()
        self._look(replace(self._view, tab=tab))
        self._look_at_output(replace(self._output_view, is_shown=tab == "output"))
        self._show_table()
        self.note()

    def action_close_filter(self) -> None:
        """Show all rows again, and give keys back to them; without a filter go back to what is live."""
        if not self.is_filtering:
            self.action_live()
        self.clear_filter()
        self.focus_pane()

    def action_sort(self) -> None:
        """Order the rows by the next of the columns that rows can be ordered by."""
        if isinstance(self.pane, HotTable | OperatorTable):
            self.pane.sort_next()

    def _show_table(self) -> None:
        if self.pane is not None and self._snapshot is not None:
            self.pane.show_snapshot(self._snapshot)

    def _say_ended(self, snapshot: Snapshot) -> None:
        if snapshot.info.state == "interrupted":
            self.notify("profd's recorder was ended; all it wrote is kept", severity="error", markup=False)
        else:
            self.notify(f"the run has come to its end: {ending(snapshot.info)}", markup=False)
