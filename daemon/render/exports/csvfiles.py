"""Tidy tables as CSV files, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io

from profd.daemon.analyze.selection import Selection
from profd.daemon.render.exports.tidytables import TABLES, TidyTable, Value
from profd.daemon.render.visible import visible
from profd.daemon.store.reader import RunReader

_STARTS_FORMULA = ("=", "+", "-", "@")


def csv_files(reader: RunReader, selection: Selection) -> dict[str, bytes]:
    """Return the tables of a selection by file name; UTF-8, a header line, an empty cell for what is not known."""
    return {f"{name}.csv": _csv(table, reader, selection) for name, table in TABLES.items()}


def _csv(table: TidyTable, reader: RunReader, selection: Selection) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_cell(value) for value in row] for row in table.rows(reader, selection))
    return text.getvalue().encode()


def _cell(value: Value) -> Value:
    """Return a value as a cell that no spreadsheet takes for a formula."""
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(_STARTS_FORMULA) else shown
