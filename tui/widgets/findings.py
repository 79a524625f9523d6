"""The findings: what holds the training back, the strongest first.

Beside the list is the evidence for one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text
from textual import on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from profd.daemon.findings.finding import CRITICAL, INFO, Finding
from profd.daemon.render.plaintext import visible
from profd.daemon.units import clock
from profd.tui.cells import Run
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.linewidget import StyledWidget
from profd.tui.widgets.table import Column, CursorMoved, Table

_MARKS = {INFO: ("·", "dim"), CRITICAL: ("▲", "bad")}
_NONE, _NONE_YET = "Nothing was found.", "Nothing was found yet."
_NOT_LOOKED = "Nothing looks for findings: the process that does has ended."


@dataclass
class FindingChosen(Message):
    """The evidence for a finding is requested."""

    finding: Finding


class FindingTable(Table[Finding]):
    """The list of findings."""

    BINDINGS = [("enter", "choose")]
    empty_text = _NONE_YET

    def action_choose(self) -> None:
        if self.meant is not None:
            self.post_message(FindingChosen(self.meant))

    def action_move_page(self, pages: int) -> None:
        """Leave the keys of pages to the evidence, which is longer than this list."""
        raise SkipAction

    def columns(self) -> Sequence[Column[Finding]]:
        return (
            Column("", lambda item: _MARKS.get(item.severity, ("▲", "warn")), 1),
            Column("finding", _finding, share=1),
            Column("at most", lambda item: (item.at_most, "bright"), 7, 34, right=True),
        )

    def key(self, item: Finding) -> Hashable:
        return item.rule, item.evidence.line.frame if item.evidence.line else 0

    def text(self, item: Finding) -> str:
        return f"{item.title} {item.cause} {item.remedy}"


def _finding(item: Finding) -> list[Run]:
    return [(f"{item.label}  ", "bright"), item.sentence]


class EvidencePane(VerticalScroll, StyledWidget):
    """The evidence for a finding, and what to do about it."""

    can_focus = False
    finding: Finding | None = None

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def show(self, finding: Finding | None) -> None:
        self.finding = finding
        self.query_one(Static).update(Group(*self._parts(finding)) if finding else "")

    def _parts(self, finding: Finding) -> Iterator[RenderableType]:
        evidence = finding.evidence
        yield from (self._text(finding.title, "bright"), Text(), self._text(finding.cause), Text())
        measures = Grid.grid(padding=(0, 2, 0, 0))  # a long text goes on below itself
        measures.add_column(min_width=10, justify="right")
        for measure in evidence.measures:
            basis = "".join(f"  {text}" for text in measure.basis)
            measures.add_row(
                self._text(measure.shown, "bright"),
                Text.assemble(self._text(measure.name), self._text(basis, "dim")),
            )
        yield measures
        yield self._text(f"between {clock(evidence.from_ns)}–{clock(evidence.to_ns)}", "dim")  # noqa: RUF001
        if evidence.line is not None:
            yield Text()
            yield self._text(
                f"{evidence.line.module_path}:{evidence.line.line}  in {evidence.line.function}",
                "accent",
            )
            yield self._text(f"    {evidence.line.source or ''}")
        yield from (Text(), self._text(finding.remedy, "accent"))

    def _text(self, text: str, style: str = "plain") -> Text:
        return Text(visible(text), style=self.style_of(style))


class FindingsPane(Horizontal):
    """The list, and the evidence beside it."""

    def compose(self) -> ComposeResult:
        yield FindingTable(id="finding-list")
        yield EvidencePane(id="evidence")

    @property
    def table(self) -> FindingTable:
        return self.query_one(FindingTable)

    @property
    def has_cursor(self) -> bool:
        return self.table.has_cursor

    def show(self, snapshot: Snapshot) -> None:
        is_done = snapshot.is_diagnosed and not snapshot.info.is_live
        self.table.empty_text = (
            _NOT_LOOKED if snapshot.is_undiagnosable else _NONE if is_done else _NONE_YET
        )
        self.table.show_rows(snapshot.findings)
        self._show_evidence()

    def filter(self, needle: str) -> None:
        self.table.filter(needle)
        self._show_evidence()

    @on(CursorMoved)
    def _show_evidence(self) -> None:
        evidence = self.query_one(EvidencePane)
        if evidence.finding != self.table.meant:
            evidence.show(self.table.meant)
