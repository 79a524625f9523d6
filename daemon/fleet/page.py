"""The answers as one HTML file in the look of the report, which needs nothing else."""

from __future__ import annotations

from pathlib import Path

from profd.daemon.fleet.answers import Fleet
from profd.daemon.fleet.wording import headline, tables, unit_of, verdict
from profd.daemon.render.htmlpage import render_page
from profd.daemon.render.outfile import write_whole
from profd.daemon.render.visible import visible

BAR_WIDTH = 160
_BARS = 16


def write_fleet_page(path: Path, fleet: Fleet) -> None:
    """Write the answers to ``path``, whole or not at all; raises OutputUnwritable."""
    write_whole(path, render_fleet_page(fleet).encode())


def render_fleet_page(fleet: Fleet) -> str:
    """Return the answers as HTML; the page holds them as data too."""
    return render_page(
        "fleet.html.j2",
        (),
        fleet,
        headline=headline(fleet),
        verdict=verdict(fleet),
        since=fleet.since,
        until=fleet.until,
        samples=f"{fleet.samples:,}",
        tables=tables(fleet),
        bars=_bars(fleet),
        bar_width=BAR_WIDTH,
    )


def _bars(fleet: Fleet) -> list[tuple[str, float, float]]:
    """Return of each phase how wide the bars of its hours and of those lost are."""
    unit = unit_of(fleet)
    most = max((unit.whole(one.hours) for one in fleet.phases), default=0.0) or 1.0
    return [
        (visible(one.phase), BAR_WIDTH * unit.whole(one.hours) / most, BAR_WIDTH * unit.lost(one.hours) / most)
        for one in fleet.phases[:_BARS]
    ]
