"""What stands right of the lanes: the phases with their shares."""

from __future__ import annotations

from collections.abc import Sequence

from profd.daemon.render.cells import fit, width
from profd.daemon.units import percent
from profd.tui.drawing.cells import Run
from profd.tui.snapshot import PhaseShare
from profd.tui.widgets.drawn import Lines

SHORT_NAMES = {
    "data wait": "data",
    "data load in process": "load",
    "host-to-device copy": "h2d",
    "forward": "fwd",
    "backward": "bwd",
    "optimizer": "opt",
    "synchronize": "sync",
    "collective": "coll",
    "checkpoint": "save",
    "evaluation": "eval",
    "logging": "log",
    "compile": "jit",
    "startup, import": "import",
    "waiting": "wait",
}


def tall_legend(widget: Lines, shares: Sequence[PhaseShare], part: int, parts: int) -> list[Run]:
    """Return a line of the legend beside a tall lane: it is read down the first column, then the second."""
    runs: list[Run] = []
    for share in shares[part::parts][:2]:
        look = widget.phase_look(share.phase)
        name = share.phase if len(share.phase) <= 12 else SHORT_NAMES.get(share.phase, share.phase)
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
            widget.run(f" {SHORT_NAMES.get(share.phase, share.phase)} ", "dim"),
            widget.run(percent(share.share).removesuffix(" %")),
            widget.run("  "),
        ]
        cells -= sum(width(run.text) for run in item)
        if cells < 0:
            break
        runs += item
    return runs
