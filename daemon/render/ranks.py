"""The ranks and nodes of a job, as lines of text and as tables of the report.

What is known of them once for the whole training; what a reader selects changes the charts and not these.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import markupsafe
import msgspec

from profd.daemon.analyze.job import RankPart, RankSummary
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render.htmlpage import render_part
from profd.daemon.render.plaintext import cut, fit, visible, width
from profd.daemon.render.summary import Summary
from profd.daemon.store.merge import JoinedNode
from profd.daemon.units import UNKNOWN, percent, rate, step_time

LEAST_SURPLUS = 0.02
"""Less than this is the noise of sampling, and not worth a place."""
_RANKS = 16
_NODES = 32
_NODE_CELLS = 20


def rank_lines(ranks: Sequence[RankSummary], columns: int) -> Iterator[str]:
    """Yield the table of the ranks; nothing where there are none. Of many those that wait least are shown."""
    if not ranks:
        return
    node_cells = _node_cells(ranks)
    node = fit("node", node_cells) if node_cells else ""
    yield f"     rank  {node}   steps  own work   waits  longer than the others at"
    shown = wait_least(ranks, _RANKS)
    for row in shown:
        steps = UNKNOWN if row.steps_per_s is None else rate(row.steps_per_s)
        host = fit(row.host, node_cells) if node_cells else ""
        yield cut(
            f"  {'▲' if row.is_late else ' '} {row.rank:>5}  {host}{steps:>8}  "
            f"{percent(row.own_share):>8}  {percent(row.waiting_share):>6}  {_part(row.slowest)}",
            columns,
        )
    if len(ranks) > len(shown):
        yield f"  and {len(ranks) - len(shown)} more that wait longer"


def wait_least(ranks: Sequence[RankSummary], most: int) -> list[RankSummary]:
    """Return those ranks, at most so many, that wait least for the others, in order."""
    by_wait = sorted(ranks, key=lambda row: (row.waiting_share is None, row.waiting_share or 0.0))
    return sorted(by_wait[:most], key=lambda row: row.rank)


def _node_cells(ranks: Sequence[RankSummary]) -> int:
    """Return how many cells the column of nodes takes; none where there is one node."""
    hosts = {row.host for row in ranks}
    return min(max(map(width, hosts)), _NODE_CELLS) + 2 if len(hosts) > 1 else 0


def _part(part: RankPart | None) -> str:
    if part is None or part.surplus < LEAST_SURPLUS:
        return ""
    return f"+{percent(part.surplus)} {part.function}  {part.module_path}:{part.line}  {part.phase}"


def node_lines(nodes: Sequence[JoinedNode]) -> Iterator[str]:
    """Yield the table of the nodes; nothing where there are none."""
    if not nodes:
        return
    cells = max(width(visible(node.host)) for node in nodes)
    yield f"  {fit('node', cells)}  {'clock':>20}  run"
    for node in nodes[:_NODES]:
        yield f"  {fit(node.host, cells)}  {clock(node):>20}  {visible(node.run)}  {told_by(node)}"
    if len(nodes) > _NODES:
        yield f"  and {len(nodes) - _NODES} more"


def clock(node: JoinedNode) -> str:
    """Return by how much a node's clock is ahead: ``+1,500 ms ± 2.1``."""
    if node.number == 0:
        return "0"
    if node.error_ns is None:
        return "not known"
    return f"{node.offset_ns / MILLISECOND_NS:+,.1f} ms ± {node.error_ns / MILLISECOND_NS:,.1f}"


def told_by(node: JoinedNode) -> str:
    """Return how the offset of a clock is known."""
    if node.number == 0:
        return "the clock that all times are in"
    if node.error_ns is None:
        return "nothing tells how far its clock is off: taken as it is"
    return f"by {node.source}" + (f", {node.matched:,} of them" if node.matched else "")


_TABLE_RANKS = 256


class RankRow(msgspec.Struct, frozen=True):
    """A rank in words; ``late`` is its surplus over the others, ``place`` where most of that went by."""

    rank: str
    node: str
    own: str
    waiting: str
    late: str
    is_late: bool
    function: str
    place: str
    source: str


class NodeRow(msgspec.Struct, frozen=True):
    """A node in words."""

    node: str
    run: str
    clock: str
    told_by: str


def rank_tables(summary: Summary) -> markupsafe.Markup:
    """Return the tables as HTML; empty where the run is no job of ranks."""
    rows, nodes = rank_rows(summary.ranks), node_rows(summary.nodes)
    left_out = max(len(summary.ranks) - len(rows), 0)
    return render_part("ranks.html.j2", ranks=rows, nodes=nodes, left_out=left_out)


def rank_rows(ranks: Sequence[RankSummary]) -> list[RankRow]:
    """Return the rows of the ranks; of very many, those that wait least."""
    paces = [row.steps_per_s for row in ranks if row.steps_per_s]
    step_s = 1 / statistics.median(paces) if paces else None
    return [_rank_row(row, step_s) for row in wait_least(ranks, _TABLE_RANKS)]


def node_rows(nodes: Sequence[JoinedNode]) -> list[NodeRow]:
    """Return the rows of the nodes."""
    return [NodeRow(visible(node.host), visible(node.run), clock(node), visible(told_by(node))) for node in nodes]


def _rank_row(row: RankSummary, step_s: float | None) -> RankRow:
    part = row.slowest if row.slowest is not None and row.slowest.surplus >= LEAST_SURPLUS else None
    return RankRow(
        rank=str(row.rank),
        node=visible(row.host),
        own=_of_step(row.own_share, step_s),
        waiting=_of_step(row.waiting_share, step_s),
        late=percent(part.surplus) if part else "",
        is_late=row.is_late,
        function=visible(part.function) if part else "",
        place=_place(part) if part else "",
        source=visible(part.source or "") if part else "",
    )


def _of_step(share: float | None, step_s: float | None) -> str:
    """Return a share of a step, as time too where it is known how long one takes."""
    if share is None:
        return UNKNOWN
    return percent(share) if step_s is None else f"{step_time(share * step_s)} ({percent(share)})"


def _place(part: RankPart) -> str:
    return visible(f"{part.module_path}:{part.line}")
