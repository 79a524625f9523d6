"""The ranks of a job as lines of text: who works, who waits, and where the late one is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profd.daemon.analyze.ranks.table import RankPart, RankSummary
from profd.daemon.render.cells import cut, fit, width
from profd.daemon.units import UNKNOWN, percent, rate

_LEAST_SURPLUS = 0.02
"""Less than this is the noise of sampling, and not worth a place."""
_RANKS = 16
_NODE_CELLS = 20


def rank_lines(ranks: Sequence[RankSummary], columns: int) -> Iterator[str]:
    """Yield the table of the ranks; nothing where there are none. Of many those that wait least are shown."""
    if not ranks:
        return
    node_cells = _node_cells(ranks)
    node = fit("node", node_cells) if node_cells else ""
    yield f"     rank  {node}   steps  own work   waits  longer than the others at"
    shown = sorted(ranks, key=lambda row: (row.waiting_share is None, row.waiting_share or 0.0))[:_RANKS]
    for row in sorted(shown, key=lambda row: row.rank):
        steps = UNKNOWN if row.steps_per_s is None else rate(row.steps_per_s)
        host = fit(row.host, node_cells) if node_cells else ""
        yield cut(
            f"  {'▲' if row.is_late else ' '} {row.rank:>5}  {host}{steps:>8}  "
            f"{_share(row.own_share):>8}  {_share(row.waiting_share):>6}  {_part(row.slowest)}",
            columns,
        )
    if len(ranks) > len(shown):
        yield f"  and {len(ranks) - len(shown)} more that wait longer"


def _node_cells(ranks: Sequence[RankSummary]) -> int:
    """Return how many cells the column of nodes takes; none where there is one node."""
    hosts = {row.host for row in ranks}
    return min(max(map(width, hosts)), _NODE_CELLS) + 2 if len(hosts) > 1 else 0


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else percent(share)


def _part(part: RankPart | None) -> str:
    if part is None or part.surplus < _LEAST_SURPLUS:
        return ""
    return f"+{percent(part.surplus)} {part.function}  {part.module_path}:{part.line}  {part.phase}"
