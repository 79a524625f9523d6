"""What processes and threads are called where they are shown."""

from __future__ import annotations

from profd.daemon import naming
from profd.daemon.render.visible import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow


def process_title(row: ProcessRow, host: str | None = None) -> str:
    """Return what a process is called: ``main``, ``rank 0``, ``worker 1``, ``helper``, with a host given."""
    title = naming.process_title(row.role, row.ordinal, row.rank)
    return title if host is None else f"{title} {visible(host)}"


def thread_title(reader: RunReader, thread: int) -> str:
    """Return what a thread is called with its process: ``rank 0 (4242) · MainThread``."""
    row = reader.threads[thread]
    process = reader.processes[row.process]
    return f"{process_title(process)} ({process.pid}) · {visible(row.name)}"
