"""Tidy tables as Parquet files, by pyarrow: the reference implementation, which profd's extra ``parquet`` installs."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING

from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import MissingTool
from profd.daemon.render.exports.tidytables import TABLES, TidyTable
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    import pyarrow

_BATCH = 65_536
"""Rows that are held in memory at a time."""


def parquet_files(reader: RunReader, selection: Selection) -> dict[str, bytes]:
    """Return the tables of a selection by file name; raises MissingTool where pyarrow is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise MissingTool("Parquet needs pyarrow, not installed here", "pip install 'profd[parquet]'") from None
    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    return {
        f"{name}.parquet": _parquet(
            table, pyarrow.schema([(column, types[kind]) for column, kind in table.columns.items()]), reader, selection
        )
        for name, table in TABLES.items()
    }


def _parquet(table: TidyTable, schema: pyarrow.Schema, reader: RunReader, selection: Selection) -> bytes:
    import pyarrow
    from pyarrow import parquet

    content = io.BytesIO()
    with parquet.ParquetWriter(content, schema, compression="zstd") as writer:
        rows = table.rows(reader, selection)
        while batch := list(itertools.islice(rows, _BATCH)):
            columns = dict(zip(schema.names, zip(*batch, strict=True), strict=True))
            writer.write_table(pyarrow.Table.from_pydict(columns, schema=schema))
    return content.getvalue()
