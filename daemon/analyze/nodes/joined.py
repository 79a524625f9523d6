"""A job of several nodes as one run: their files, clocks aligned, in one file that lasts as long as it is read."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from profd.daemon.analyze.nodes.clocks import take_offsets
from profd.daemon.analyze.nodes.jobs import FoundJob
from profd.daemon.errors import OutputUnwritable
from profd.daemon.paths import SUFFIX
from profd.daemon.store.joining import join_runs
from profd.daemon.store.noderows import JoinedNode
from profd.daemon.store.reader import RunReader


@contextlib.contextmanager
def open_job(job: FoundJob) -> Iterator[RunReader]:
    """Give a reader of all files of a job; of one that has a single file it is that file's.

    Raises RunUnreadable, and OutputUnwritable where there is no room for the joined file.
    """
    with contextlib.ExitStack() as open_files:
        if len(job.files) == 1:
            yield open_files.enter_context(RunReader(job.files[0].path))
            return
        # Not named by what stands in a file: one from elsewhere could say ../../anything.
        path = open_files.enter_context(_scratch()) / f"job{SUFFIX}"
        join_files(job, path)
        yield open_files.enter_context(RunReader(path))


def join_files(job: FoundJob, path: Path) -> None:
    """Write the files of a job to a new one, their clocks aligned; raises as ``open_job`` does."""
    with contextlib.ExitStack() as open_files:
        readers = [open_files.enter_context(RunReader(file.path)) for file in job.files]
        for reader in readers:
            open_files.enter_context(reader.one_moment())
        name = f"{job.name} on {len(readers)} nodes"
        join_runs(readers, _nodes(readers), name, path)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Give a folder of ours that is removed afterwards."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="profd-")
    except OSError as error:
        raise OutputUnwritable(
            f"cannot make a temporary folder ({error.strerror})", "set TMPDIR to a folder that you can write to"
        ) from error
    with folder as name:
        yield Path(name)


def _nodes(readers: Sequence[RunReader]) -> list[JoinedNode]:
    """Return the nodes by their hosts; several runs on one host are told apart by numbers."""
    hosts = [reader.info.host for reader in readers]
    several, seen = Counter(hosts), Counter[str]()
    found = []
    for number, (reader, offset) in enumerate(zip(readers, take_offsets(readers), strict=True)):
        host = hosts[number]
        seen[host] += 1
        found.append(
            JoinedNode(
                number=number,
                host=f"{host}/{seen[host]}" if several[host] > 1 else host,
                run=reader.info.id,
                offset_ns=offset.offset_ns,
                error_ns=offset.error_ns,
                source=offset.source,
                matched=offset.matched,
            )
        )
    return found
