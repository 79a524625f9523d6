"""The ranks and nodes of a job over the whole training, as lines of text and as tables of the report."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from profd.daemon.analyze.job import RankPart, RankSummary
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render.plaintext import cut, fit, visible, width
from profd.daemon.render.summary import Summary
from profd.daemon.store.merge import JoinedNode
from profd.daemon.units import UNKNOWN, percent, rate, step_time

LEAST_SURPLUS = 0.02
"""Less than this is the noise of sampling, and not worth a place."""
_NODES = 32


def rank_lines(ranks: Sequence[RankSummary], columns: int) -> Iterator[str]:
    """Yield the table of the ranks; nothing where there are none. Of many those that wait least are shown."""
    if not ranks:
        return
    hosts = {row.host for row in ranks}
    node_cells = min(max(map(width, hosts)), 20) + 2 if len(hosts) > 1 else 0
    yield f"     rank  {fit('node', node_cells)}   steps  own work   waits  longer than the others at"
    shown = _waiting_least(ranks, 16)
    for row in shown:
        steps = UNKNOWN if row.steps_per_s is None else rate(row.steps_per_s)
        part = _surplus(row)
        where = (
            f"+{percent(part.surplus)} {part.function}  {part.module_path}:{part.line}  {part.phase}" if part else ""
        )
        yield cut(
            f"  {'▲' if row.is_late else ' '} {row.rank:>5}  {fit(row.host, node_cells)}{steps:>8}  "
            f"{percent(row.own_share):>8}  {percent(row.waiting_share):>6}  {where}",
            columns,
        )
    if len(ranks) > len(shown):
        yield f"  and {len(ranks) - len(shown)} more that wait longer"


def _waiting_least(ranks: Sequence[RankSummary], most: int) -> list[RankSummary]:
    """Return those ranks, at most so many, that wait least for the others, in order."""
    by_wait = sorted(ranks, key=lambda row: (row.waiting_share is None, row.waiting_share or 0.0))
    return sorted(by_wait[:most], key=lambda row: row.rank)


def _surplus(row: RankSummary) -> RankPart | None:
    return row.slowest if row.slowest is not None and row.slowest.surplus >= LEAST_SURPLUS else None


def node_lines(nodes: Sequence[JoinedNode]) -> Iterator[str]:
    if not nodes:
        return
    cells = max(width(visible(node.host)) for node in nodes)
    yield f"  {fit('node', cells)}  {'clock':>20}  run"
    for node in nodes[:_NODES]:
        yield f"  {fit(node.host, cells)}  {clock(node):>20}  {visible(node.run)}  {known_by(node)}"
    if len(nodes) > _NODES:
        yield f"  and {len(nodes) - _NODES} more"


def clock(node: JoinedNode) -> str:
    """Return by how much a node's clock is ahead: ``+1,500 ms ± 2.1``."""
    if node.number == 0:
        return "0"
    if node.error_ns is None:
        return "not known"
    return f"{node.offset_ns / MILLISECOND_NS:+,.1f} ms ± {node.error_ns / MILLISECOND_NS:,.1f}"


def known_by(node: JoinedNode) -> str:
    if node.number == 0:
        return "the clock that all times are in"
    if node.error_ns is None:
        return "its clock error is unknown: times are taken as they are"
    return f"by {node.source}" + (f", {node.matched:,} of them" if node.matched else "")


def rank_tables(summary: Summary) -> dict[str, object]:
    """Return what the tables of ranks and of nodes show; no rows where the run is no job of ranks."""
    rates = [row.steps_per_s for row in summary.ranks if row.steps_per_s]
    step_s = 1 / statistics.median(rates) if rates else None

    def of_step(share: float | None) -> str:
        """Return a share of a step, as time too where the time of a step is known."""
        if share is None or step_s is None:
            return percent(share)
        return f"{step_time(share * step_s)} ({percent(share)})"

    shown = _waiting_least(summary.ranks, 256)
    ranks = [(row, of_step(row.own_share), of_step(row.waiting_share), _surplus(row)) for row in shown]
    nodes = [(node.host, node.run, clock(node), known_by(node)) for node in summary.nodes]
    return {"ranks": ranks, "nodes": nodes, "left_out": len(summary.ranks) - len(shown)}
