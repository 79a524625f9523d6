"""The answers as plain text, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from profd.daemon.fleet.answers import Fleet
from profd.daemon.fleet.wording import Table, headline, tables, verdict
from profd.daemon.render.cells import fit, width

ROWS = 12
_CELLS = 48
_COLUMNS = 100


def fleet_text(fleet: Fleet) -> str:
    """Return the answers as text; of long tables the first rows. No newline at the end."""
    lines = [headline(fleet), f"{fleet.since} to {fleet.until}"]
    if said := verdict(fleet):
        lines += ["", said]
    for table in tables(fleet):
        lines += ["", *_section(table)]
    return "\n".join(line.rstrip() for line in lines)


def _section(table: Table) -> Iterator[str]:
    yield table.title
    if not table.rows:
        yield f"  {table.nothing or 'Nothing.'}"
        return
    yield from textwrap.wrap(table.note, _COLUMNS, initial_indent="  ", subsequent_indent="  ")
    shown = [table.heads, *table.rows[:ROWS]]
    widths = [min(max(width(row[column]) for row in shown), _CELLS) for column in range(len(table.heads))]
    for row in shown:
        yield "  " + "  ".join(
            _cell(text, cells, head in table.numbers)
            for text, cells, head in zip(row, widths, table.heads, strict=True)
        )
    if len(table.rows) > ROWS:
        yield f"  and {len(table.rows) - ROWS} more"


def _cell(text: str, cells: int, is_number: bool) -> str:
    return " " * max(cells - width(text), 0) + fit(text, min(cells, width(text))) if is_number else fit(text, cells)
