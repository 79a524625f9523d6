"""Sets the clock of a run file forward or back: every time in it, as if its host's clock had been
wrong all along.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

_COLUMNS = {
    "process": ("seen_ns", "ended_ns"),
    "recording": ("start_ns", "end_ns"),
    "interval": ("start_ns",),
    "point": ("at_ns",),
    "point_minute": ("last_ns",),
    "summed_process": ("from_ns", "to_ns"),
    "stack_minute": ("until_ns",),
    "stack_hour": ("until_ns",),
    "event": ("at_ns",),
    "finding": ("from_ns", "seen_ns", "to_ns"),
    "hang": ("at_ns", "since_ns", "ended_ns"),
    "window": ("asked_ns", "start_ns", "end_ns"),
    "window_step": ("start_ns", "end_ns"),
    "host_gap": ("start_ns", "end_ns"),
    "window_wait": ("start_ns", "end_ns"),
    "output": ("at_ns",),
}
_META = ("started_ns", "written_ns", "analyzed_ns", "analysis_lost_ns", "ended_ns")


def shift_clock(path: Path, by_ns: int) -> None:
    """Move all times of an ended run by so many nanoseconds."""
    with sqlite3.connect(path) as connection:
        for table, columns in _COLUMNS.items():
            # Times are keys: were they moved one by one, one could meet another that is not moved
            # yet.
            connection.execute(f"CREATE TEMP TABLE moved AS SELECT * FROM {table}")
            connection.execute(f"DELETE FROM {table}")
            connection.execute(
                "UPDATE moved SET " + ", ".join(f"{name} = {name} + {by_ns}" for name in columns)
            )
            connection.execute(f"INSERT INTO {table} SELECT * FROM moved")
            connection.execute("DROP TABLE moved")
        marks = ", ".join("?" * len(_META))
        connection.execute(
            f"UPDATE meta SET value = value + {by_ns} WHERE name IN ({marks})", _META
        )
    connection.close()
