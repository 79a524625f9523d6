"""The ranks of a job and its nodes as tables of the report: who works, who waits, and where the late one is.

What is known of them once for the whole training; what a reader selects changes the charts and not these.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import markupsafe
import msgspec

from profd.daemon.analyze.ranks.table import RankPart, RankSummary
from profd.daemon.analyze.summary import Summary
from profd.daemon.render.htmlpage import render_part
from profd.daemon.render.ranklines import LEAST_SURPLUS, clock, told_by, wait_least
from profd.daemon.render.visible import visible
from profd.daemon.store.noderows import JoinedNode
from profd.daemon.units import UNKNOWN, percent, step_time

_RANKS = 256


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
    return [_rank_row(row, step_s) for row in wait_least(ranks, _RANKS)]


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
