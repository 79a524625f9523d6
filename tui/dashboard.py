"""The dashboard: one run, live or finished.

The screen asks the feed for what the person looks at (``View``), and hands the snapshots to the
widgets. Actions that take long (``actions``) run in a thread, and post a message when they
are done.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input

from profd.daemon.analyze.selection import MAIN_THREADS, Selection, parse_time
from profd.daemon.errors import ProfdError
from profd.daemon.exports.formats import FORMATS
from profd.daemon.render.plaintext import visible
from profd.daemon.store.rows import RunInfo
from profd.tui import actions
from profd.tui.actions import ActionDone, ActionFailed, StacksDumped, WindowRefused
from profd.tui.dialogs import (
    STOPPING,
    Answer,
    Choice,
    ChoiceScreen,
    Dialog,
    LineScreen,
    StacksScreen,
)
from profd.tui.feed import Feed, FlameGrown, OperatorsRead, OutputDrawn, SnapshotTaken
from profd.tui.keys import BINDINGS, TABS
from profd.tui.snapshot import Snapshot
from profd.tui.terminal import Terminal
from profd.tui.widgets.findings import FindingChosen, FindingsPane
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import Header, VerdictLine, ended
from profd.tui.widgets.hot import HotTable, LineTable
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane, TypingChanged
from profd.tui.widgets.processes import EventTable, ProcessTable
from profd.tui.widgets.table import CursorMoved
from profd.tui.widgets.tabs import KeyLine, TabLine
from profd.tui.widgets.timeline import Move, Scrubbed, Timeline

Pane = HotTable | FlameView | ProcessTable | OperatorTable | FindingsPane | EventTable
"""What can be open below the tabs, beside the script's output."""
Action = Callable[[RunInfo], Message]

_LONG_S = 15


class Dashboard(Screen[None]):
    """The screen of one run."""

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (9, "-low"), (14, "-short"), (34, "-tall")]
    BINDINGS = BINDINGS

    def __init__(self, run_file: Path, feed: Feed, terminal: Terminal | None) -> None:
        super().__init__()
        self._run_file, self._feed, self._terminal = run_file, feed, terminal
        self._snapshot: Snapshot | None = None
        self._stopping = list(STOPPING)

    def compose(self) -> ComposeResult:
        yield Header()
        yield VerdictLine()
        yield Timeline()
        yield TabLine()
        with ContentSwitcher(id="panes", initial=TABS[0][0]):
            yield LineTable(id="lines")
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
        self.query_one(LineTable).focus()
        self.screen_layout_refresh_signal.subscribe(self, self._fit)

    @property
    def info(self) -> RunInfo | None:
        return self._snapshot.info if self._snapshot is not None else None

    @property
    def _pane(self) -> Pane | None:
        """The pane below the tabs; None if it is the script's output."""
        pane = self.query_one(f"#{self._feed.view.tab}")
        return pane if isinstance(pane, Pane) else None

    @on(SnapshotTaken)
    def _show(self, message: SnapshotTaken) -> None:
        was_live, self._snapshot = self._is_live(), message.snapshot
        info = message.snapshot.info
        for widget in (Header, VerdictLine, Timeline, TabLine, KeyLine):
            self.query_one(widget).show(message.snapshot)
        self.query_one(OutputPane).mode = info.mode
        self._show_table()
        self._fit()  # the signal leaves out the first layout
        if was_live and info.state == "interrupted":
            self.notify(
                "profd's recorder was ended; all it wrote is kept", severity="error", markup=False
            )
        elif was_live and not info.is_live:
            self.notify(f"the run has come to its end: {ended(info)}", markup=False)

    @on(FlameGrown)
    def _show_flame(self, message: FlameGrown) -> None:
        self.query_one(FlameView).show_tree(message.tree)

    @on(OperatorsRead)
    def _show_operators(self, message: OperatorsRead) -> None:
        self.query_one(OperatorTable).show_window(message.shown)
        self._update_note()

    def _show_table(self) -> None:
        if self._pane is not None and self._snapshot is not None:
            self._pane.show(self._snapshot)

    @on(CursorMoved)
    def _update_note(self) -> None:
        pane, note = self._pane, ""
        if isinstance(pane, OperatorTable):
            note = pane.about
        elif isinstance(pane, FlameView):
            if (zoomed := pane.cursor.zoomed) is not None:
                note = f"zoomed to {visible(zoomed.title)} · ⌫ goes back"
        elif pane is not None:
            if pane.has_cursor and self._is_live():
                note = "rows hold their places · esc lets them go"
        elif self._terminal is not None and self._terminal.is_open:
            is_typing = self._feed.output_view.is_typing
            note = (
                "keys go to the script · esc comes back" if is_typing else "⏎ types to the script"
            )
        self.query_one(TabLine).open(self._feed.view.tab, note)

    def _is_live(self) -> bool:
        return self._snapshot is not None and self._snapshot.info.is_live

    # --- tabs, rows and the filter

    def action_open(self, tab: str) -> None:
        self._clear_filter()
        self.query_one(ContentSwitcher).current = tab
        self._look(tab=tab)
        self._focus_pane()
        self._look_at_output(is_shown=tab == "output")
        self._show_table()
        self._update_note()

    def action_open_process(self, process: int) -> None:
        """Show the hot functions of one process; ``process`` is the id of its row."""
        self._look(scope=Selection(processes=frozenset({process})))
        self.action_open("hot")

    def action_open_line(self, place: str) -> None:
        """Show the stacks through a line of code; ``place`` is its file and number."""
        self.action_open("flame")
        self._open_filter().value = place

    @on(FindingChosen)
    def _look_at_evidence(self, message: FindingChosen) -> None:
        evidence = message.finding.evidence
        processes = evidence.selection.processes
        self._look(
            scope=Selection(processes=processes)
            if processes and len(processes) == 1
            else MAIN_THREADS
        )
        self.choose_range(evidence.from_ns, evidence.to_ns)
        if evidence.line is None:
            self.action_open("flame")
        else:
            self.action_open_line(f"{evidence.line.module_path}:{evidence.line.line}")

    def action_sort(self) -> None:
        if isinstance(self._pane, HotTable | OperatorTable):
            self._pane.sort_next()

    def action_filter(self) -> None:
        if self._pane is not None:
            self.set_focus(self._open_filter())

    def action_close_filter(self) -> None:
        """Show all rows again and return the focus to them; without a filter go back to live."""
        if not self.query_one("#filter").has_class("-open"):
            self.action_live()
        self._clear_filter()
        self._focus_pane()

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        if self._pane is not None:
            self._pane.filter(event.value)

    @on(Input.Submitted, "#filter")
    def _keep_filter(self, event: Input.Submitted) -> None:
        event.input.set_class(bool(event.value), "-open")
        self._focus_pane()

    def _open_filter(self) -> Input:
        return self.query_one("#filter", Input).add_class("-open")

    def _clear_filter(self) -> None:
        line = self.query_one("#filter", Input).remove_class("-open")
        line.value = ""
        if self._pane is not None:
            self._pane.filter("")

    def _focus_pane(self) -> None:
        """Focus the open pane; the script's output only once somebody types."""
        self.set_focus(self._pane.table if isinstance(self._pane, FindingsPane) else self._pane)

    # --- what is looked at: threads, time, and whether the view is held

    def action_scope(self) -> None:
        """Count other threads: from main threads on to workers, to all, and back."""
        scopes, now = [MAIN_THREADS, Selection(role="worker"), Selection()], self._feed.view.scope
        at = scopes.index(now) if now in scopes else -1
        self._look(scope=scopes[(at + 1) % len(scopes)])

    def action_lines(self) -> None:
        view = self._feed.view
        if view.tab == "lines":
            self._look(startup=not view.startup)
        elif isinstance(self._pane, EventTable):
            self._pane.show_details()

    def action_pause(self) -> None:
        header = self.query_one(Header)
        header.is_paused = not header.is_paused
        self._feed.pause(is_paused=header.is_paused)

    def _move(self, to: Move) -> None:
        self.query_one(Timeline).move(to)

    def action_time(self, method: str, *steps: int) -> None:
        """Look at another time, by a method of ``Scrub``."""
        self._move(lambda scrub, ruler, run: getattr(scrub, method)(*steps, ruler, run))

    def action_live(self) -> None:
        self._move(lambda scrub, ruler, run: scrub.released())

    def choose_range(self, from_ns: int, to_ns: int) -> None:
        self._move(
            lambda scrub, ruler, run: replace(scrub, cursor=None, from_ns=from_ns, to_ns=to_ns)
        )

    def action_goto(self) -> None:
        if self.info is not None:
            hint = "seconds from the start, or HH:MM:SS"
            self._ask(
                LineScreen("Go to a time", hint, partial(parse_time, info=self.info)),
                lambda at_ns: self._move(lambda scrub, ruler, run: scrub.at(at_ns, ruler, run)),
            )

    @on(Scrubbed)
    def _look_at_time(self, message: Scrubbed) -> None:
        self._look(
            span_ns=message.scrub.span_ns, end_ns=message.scrub.end_ns, chosen=message.scrub.chosen
        )

    def _look(self, **changes: object) -> None:
        self._feed.look(replace(self._feed.view, **changes))

    # --- the script's output

    def action_type(self) -> None:
        if self._feed.output_view.is_shown:
            self.query_one(OutputPane).start_typing()

    def action_page(self, pages: int) -> None:
        """Scroll what has no focus: evidence, or output as long as nobody types to the script."""
        pane = self.query_one("#evidence" if self._feed.view.tab == "findings" else "#output")
        pane.scroll_relative(y=pages * max(pane.size.height - 1, 1), animate=False)

    @on(OutputDrawn)
    def _show_output(self, message: OutputDrawn) -> None:
        self.query_one(OutputPane).show(message.picture)

    def _fit(self, screen: Screen[None] | None = None) -> None:
        """Tell the feed and the script how much room there is."""
        size, shown = self.query_one(ContentSwitcher).size, self._feed.output_view
        columns, lines = max(size.width - 1, 1), max(size.height, 1)
        if (columns, lines) != (shown.columns, shown.lines):
            if self._terminal is not None:
                self._terminal.resize(columns, lines)
            self._look_at_output(columns=columns, lines=lines)
        if self._feed.view.columns != (strip := self.query_one(Timeline).columns):
            self._look(columns=strip)

    @on(TypingChanged)
    def _note_typing(self, message: TypingChanged) -> None:
        self._look_at_output(is_typing=message.is_typing)
        self.query_one(KeyLine).visible = not message.is_typing  # no key and no click is its own
        self._update_note()

    def _look_at_output(self, **changes: object) -> None:
        self._feed.look_at_output(replace(self._feed.output_view, **changes))

    # --- actions: windows, dumps, marks, exports, and the end of a recording

    def action_window(self) -> None:
        self._run_of(actions.take_window, "No window")

    def action_dump(self) -> None:
        self._run_of(actions.dump, "No stacks")

    def action_mark(self) -> None:
        self._ask(
            LineScreen("Mark this moment", "a note, or nothing", str),
            lambda note: self._run_of(lambda info: actions.mark(info, note), "No mark"),
        )

    def action_report(self) -> None:
        self.notify("writing the report…", timeout=3, markup=False)
        self._run(lambda: actions.write_report_of(self._run_file), "No report")

    def action_export(self) -> None:
        def export(form: str) -> None:
            chosen, looked_at = self._feed.view.chosen, self._feed.view.scope
            if chosen is not None:
                looked_at = looked_at.during(chosen)
            self.notify("exporting…", timeout=3, markup=False)
            self._run(lambda: actions.export(self._run_file, form, looked_at), "Nothing exported")

        choices = [Choice(form, f"{form}: {each.what}") for form, each in FORMATS.items()]
        self._ask(ChoiceScreen("Export into the current folder", "", choices), export)

    @property
    def stopping(self) -> signal.Signals | None:
        """The signal that is next to stop the script; None if profd did not launch it."""
        return self._stopping[0] if self._terminal and self._terminal.is_open else None

    def stop_script(self) -> None:
        """Send the script the signal that is next; the last of them again and again."""
        if self._terminal is not None:
            send = partial(actions.signal_script, self._terminal, self._stopping[0])
            self._stopping = self._stopping[1:] or self._stopping
            self._run_of(send, "Not stopped")

    def _ask(self, screen: Dialog[Answer], then: Callable[[Answer], None]) -> None:
        """Open a dialog; ``then`` is called with the answer, if there is one."""
        self.app.push_screen(screen, lambda answer: None if answer is None else then(answer))

    def _run_of(self, action: Action, failed: str) -> None:
        if (info := self.info) is not None:
            self._run(lambda: action(info), failed)

    def _run(self, action: Callable[[], Message], failed: str) -> None:
        """Run an action in a thread.

        Its message is posted here, or its error under the title ``failed``.
        """

        def run() -> None:
            try:
                message = action()
            except ProfdError as error:
                message = ActionFailed(error, failed)
            self.post_message(message)

        self.run_worker(run, thread=True, group="action")

    @on(ActionDone)
    def _say_done(self, message: ActionDone) -> None:
        self.notify(message.text, title=message.title, timeout=_LONG_S, markup=False)

    @on(ActionFailed)
    def _say_failed(self, message: ActionFailed) -> None:
        self.notify(
            str(message.error), title=message.title, severity="error", timeout=_LONG_S, markup=False
        )

    @on(WindowRefused)
    def _ask_to_inject(self) -> None:
        text = (
            "The script was not launched with --torch-window. The profiler can be started inside "
            "of the running process: by Python itself from 3.14 on, else by gdb. That runs code "
            "of torch in the script."
        )
        choices = [
            Choice("inject", "start it in the process", ("y",)),
            Choice("leave", "leave it alone", ("n",)),
        ]
        inject = partial(actions.take_window, inject=True)
        self._ask(
            ChoiceScreen("Profiler not enabled at launch", text, choices),
            lambda answer: self._run_of(inject, "No window") if answer == "inject" else None,
        )

    @on(StacksDumped)
    def _show_stacks(self, message: StacksDumped) -> None:
        self.app.push_screen(StacksScreen(message.dumped, message.stacks))
