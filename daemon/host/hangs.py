"""How many hangs a live run has told so far: a look of a millisecond, however long the run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from profd.daemon.store import database


def count_hangs(run_file: Path) -> int:
    """Return the number of hangs in a run file; raises RunUnreadable."""
    with database.reading(run_file), contextlib.closing(database.open_readonly(run_file)) as connection:
        return int(connection.execute("SELECT count(*) FROM hang").fetchone()[0])
