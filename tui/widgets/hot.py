"""The user's lines, the hot functions, and the text shown if there are no samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter

from profd.daemon.analyze.confidence import is_hint, margin
from profd.daemon.analyze.profile import FunctionRow
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.analyze.steps import part_of_step_s
from profd.daemon.render.plaintext import BAR_CELLS, bar, visible
from profd.daemon.units import percent, step_time
from profd.tui.cells import Run, StyledRun, cut_name, cut_path
from profd.tui.snapshot import ALONE, Snapshot
from profd.tui.widgets.table import Column, Table


def without_samples(snapshot: Snapshot, of_whom: str) -> str:
    """Return why there are no samples of the threads that ``of_whom`` names."""
    errors = [event for event in snapshot.events if event.kind.style == "bad"]
    if snapshot.view.chosen is not None or snapshot.view.span_ns is not None:
        mains = (row for row in snapshot.process_rows if row.is_main)
        if not any(row.life.overlaps(snapshot.time) for row in mains):
            why = "no training process was there"
        elif snapshot.info.is_live and snapshot.time.to_ns >= snapshot.info.end_ns:
            why = "the newest are still being recorded"
        else:
            why = "nothing was recorded then"
        return f"No samples of {of_whom} between {snapshot.clock_times}: {why}."
    if snapshot.read_share < 1:
        return "Reading the run…"
    if errors:
        return f"No samples: {visible(errors[-1].text)}"
    if snapshot.info.is_live:
        return f"Waiting for the first samples of {of_whom}…"
    return f"No samples of {of_whom} were taken."


SELF, TOTAL, GPU = "self", "total", "GPU"
_LEAST_SHARE = 0.01


class HotTable(Table[FunctionRow]):
    """Functions by self time, by total, or by how busy the GPU was meanwhile.

    In the order of the GPU, the least busy is first.
    """

    sorted_by = SELF
    _has_gpu = False
    _largest = 1.0
    _drawn = staticmethod(attrgetter("self_share"))
    """What a bar shows."""

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.view.tab != self.id:
            return  # nobody counted while another tab was open
        self.empty_text = without_samples(snapshot, snapshot.scope_name)
        self._has_gpu = any(row.gpu_utilization is not None for row in snapshot.functions)
        self._largest = max(map(self._drawn, snapshot.functions), default=0.0) or 1.0
        self.show_rows(snapshot.functions)

    def orders(self) -> Sequence[str]:
        return [SELF, TOTAL, GPU] if self._has_gpu else [SELF, TOTAL]

    def ordered(self, items: Sequence[FunctionRow]) -> Sequence[FunctionRow]:
        return sorted(items, key=_ORDERS[self.sorted_by])

    def columns(self) -> Sequence[Column[FunctionRow]]:
        return [
            Column(SELF, _self, 7, right=True),
            Column("", self._bar, BAR_CELLS, 100),
            Column(TOTAL, _total, 7, 28, right=True),
            *([Column(GPU, _gpu, 5, 72, right=True)] if self._has_gpu else []),
            Column("function", _function, share=6, shorten=cut_name),
            Column("where", _where, from_width=56, share=6, shorten=cut_path),
            Column("line", _source, from_width=96, share=7),
        ]

    def key(self, item: FunctionRow) -> Hashable:
        return item.function, item.file

    def is_nothing(self, item: FunctionRow) -> bool:
        return not round(100 * item.total_share, 1)

    def text(self, item: FunctionRow) -> str:
        return f"{item.function} {item.module_path}:{item.line} {item.source or ''} {item.phase}"

    def _bar(self, item: FunctionRow) -> Run:
        return (bar(self._drawn(item) / self._largest), "bar")


class LineTable(HotTable):
    """The user's lines, by the time at them and below, with their phase and part of a step.

    The loop has its own shares: startup is apart, and shown in its place if asked for.
    """

    BINDINGS = [("enter", "choose")]
    sorted_by = TOTAL
    _per_s: float | None = None
    _drawn = staticmethod(attrgetter("total_share"))

    def show(self, snapshot: Snapshot) -> None:
        # Only main threads make steps, and only once they have started up.
        is_of_main = snapshot.view.scope == MAIN_THREADS
        self._per_s = snapshot.per_s if is_of_main and snapshot.apart != ALONE else None
        super().show(snapshot)
        if snapshot.samples:
            self.empty_text = "None of this time is at a line of yours: 2 has all functions."

    async def action_choose(self) -> None:
        if self.meant is not None:
            await self.run_action(f"screen.open_line({_where(self.meant)[0]!r})")

    def columns(self) -> Sequence[Column[FunctionRow]]:
        return [
            Column(TOTAL, _total, 7, right=True),
            Column("±", _margin, 4, 84, right=True),
            Column("", self._bar, BAR_CELLS, 110),
            *([Column("a step", self._of_step, 7, 40, right=True)] if self._per_s else []),
            Column(SELF, _self, 7, 96, right=True),
            *([Column(GPU, _gpu, 5, 72, right=True)] if self._has_gpu else []),
            Column("phase", self._phase, 14, 56),
            Column("your line", _where, share=4, shorten=cut_path),
            Column("", _source, from_width=64, share=7),
        ]

    def key(self, item: FunctionRow) -> Hashable:
        return item.phase, item.function, item.file, item.line

    def _of_step(self, item: FunctionRow) -> Run:
        seconds = part_of_step_s(item.total_share, 0.0, self._per_s)
        return "" if seconds is None else step_time(seconds)

    def _phase(self, item: FunctionRow) -> list[Run]:
        look = self.phase_looks[item.phase]
        return [(look.letter, look.cell), (f" {item.phase}", "dim")]


def _self(item: FunctionRow) -> StyledRun:
    return _share(item.self_share, item.self_error)


def _total(item: FunctionRow) -> StyledRun:
    return _share(item.total_share, item.total_error)


def _share(share: float, error: float) -> StyledRun:
    return (percent(share, 1), "faint" if is_hint(share, error) else "plain")


def _margin(item: FunctionRow) -> Run:
    """Return the margin of a share in percent; one that rounds to nothing does not matter."""
    points = round(100 * margin(item.total_error))
    return (str(points or ""), "faint")


def _gpu(item: FunctionRow) -> Run:
    return (percent(item.gpu_utilization), "plain" if counts(item) else "faint")


def _function(item: FunctionRow) -> Run:
    return (item.function, "dim" if item.is_library else "bright")


def _where(item: FunctionRow) -> StyledRun:
    place = f"{item.module_path}:{item.line}" if item.line else item.module_path
    return (place, "faint" if item.is_library else "plain")


def _source(item: FunctionRow) -> Run:
    return (item.source or "", "faint" if item.is_library else "plain")


def counts(item: FunctionRow) -> bool:
    """Say whether a function has enough time to judge it by what the GPU did meanwhile."""
    return item.total_share >= _LEAST_SHARE and not is_hint(item.total_share, item.total_error)


_ORDERS: dict[str, Callable[[FunctionRow], tuple[float, ...]]] = {
    SELF: lambda item: (-item.self_share, -item.total_share),
    TOTAL: lambda item: (-item.total_share, -item.self_share),
    # Functions with little time, or with unknown GPU utilization, come after all others.
    GPU: lambda row: (
        not counts(row) or row.gpu_utilization is None,
        row.gpu_utilization or 0.0,
        -row.total_share,
    ),
}
