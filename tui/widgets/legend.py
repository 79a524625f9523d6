"""What stands right of the lanes: the phases with their shares."""

from __future__ import annotations

from collections.abc import Sequence

from profd.daemon.analyze.phases import phase_named
from profd.daemon.render.cells import fit, width
from profd.daemon.units import percent
from profd.tui.drawing.cells import Run
from profd.tui.snapshot import PhaseShare
from profd.tui.widgets.drawn import Lines


def tall_legend(widget: Lines, shares: Sequence[PhaseShare], part: int, parts: int) -> list[Run]:
    """Return a line of the legend beside a tall lane: it is read down the first column, then the second."""
    runs: list[Run] = []
    for share in shares[part::parts][:2]:
        look = widget.phase_look(share.phase)
        name = share.phase if len(share.phase) <= 12 else phase_named(share.phase).short
        runs += [Run(look.letter, look.cell), widget.run(f" {fit(name, 12)}", "dim")]
        runs += [widget.run(f"{percent(share.share):>5}"), widget.run("   ")]
    return runs


def short_legend(widget: Lines, shares: Sequence[PhaseShare], cells: int) -> list[Run]:
    """Return as many phases as fit beside each other, the largest first."""
    runs: list[Run] = []
    for share in shares:
        look = widget.phase_look(share.phase)
        item = [
            Run(look.letter, look.cell),
            widget.run(f" {phase_named(share.phase).short} ", "dim"),
            widget.run(percent(share.share).removesuffix(" %")),
            widget.run("  "),
        ]
        cells -= sum(width(run.text) for run in item)
        if cells < 0:
            break
        runs += item
    return runs
