"""Writes the run files of a job's nodes into one, which everything that reads a run reads like any other.

Whose clock is ahead by how much is told, not found out here.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.noderows import NODES, JoinedNode
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, FrameDescription, Identity, Record, RecordingTaken, RunEnded, RunStarted
from profd.daemon.store.replay import Replay
from profd.daemon.store.tables import Tables

_AT_ONCE_NS = 60 * SECOND_NS


def join_runs(readers: Sequence[RunReader], nodes: Sequence[JoinedNode], name: str, path: Path) -> None:
    """Write the runs of a job's nodes, in the order of their numbers, to a new file ``path``.

    All must be held at one moment. Raises OutputUnwritable, and RunUnreadable where one turns out to be damaged.
    """
    replays = [
        Replay(reader, node.number, node.host, node.offset_ns) for reader, node in zip(readers, nodes, strict=True)
    ]
    connection = database.create(path)
    try:
        tables = Tables(connection, _Descriptions(readers))
        tables.begin(_started(readers, replays, name))
        _set_nodes(connection, nodes)
        for batch in _batches(replays):
            tables.commit(batch)
        tables.commit([_ended(readers, replays)])
        tables.finish()
    except sqlite3.Error as error:
        connection.close()
        raise database.unwritable(path, error) from error


class _Descriptions:
    """What the files tell of frames; of one that several have, the first one's word counts."""

    def __init__(self, readers: Sequence[RunReader]) -> None:
        self._known: dict[Frame, FrameDescription] = {}
        for row in (row for reader in readers for row in reader.frames.values()):
            frame = Frame(row.function, row.file, row.line)
            self._known.setdefault(frame, FrameDescription(row.module_path, row.is_library, row.source))

    def __call__(self, frame: Frame) -> FrameDescription:
        return self._known[frame]


def _batches(replays: Sequence[Replay]) -> Iterator[list[Record]]:
    """Yield the records of all nodes, a minute at a time: sums are made as time goes on."""
    yield [record for replay in replays for record in (*replay.processes(), *replay.devices())]
    once = sorted((record for replay in replays for record in (*replay.ends(), *replay.occasions())), key=_time_of)
    from_ns, end_ns = min(replay.started_ns for replay in replays), max(replay.end_ns for replay in replays)
    for at_ns in range(from_ns - _AT_ONCE_NS, end_ns + _AT_ONCE_NS, _AT_ONCE_NS):
        to_ns = at_ns + _AT_ONCE_NS
        batch = [record for replay in replays for record in replay.readings(at_ns, to_ns)]
        batch += [record for replay in replays for record in replay.samples(at_ns, to_ns)]
        yield sorted(batch, key=_time_of)
    # What names processes comes after all that is known of them: those that ended are forgotten.
    yield once


def _time_of(record: Record) -> int:
    return record.end_ns if isinstance(record, RecordingTaken) else record.at_ns


def _started(readers: Sequence[RunReader], replays: Sequence[Replay], name: str) -> RunStarted:
    """Return the start of the job: the first node's words, for all of them."""
    info = readers[0].info
    return RunStarted(
        id=name,
        name=info.name,
        mode=info.mode,
        target=Identity(info.pid, info.start_ticks),
        command=info.command,
        cwd=info.cwd,
        host=f"{len(readers)} nodes",
        user=info.user,
        started_ns=min(replay.started_ns for replay in replays),
        recorder=Identity(info.recorder.pid, 0),
        versions=info.versions,
        options=info.options,
    )


def _ended(readers: Sequence[RunReader], replays: Sequence[Replay]) -> RunEnded:
    """Return the end of the job: as the first node ended that did not end well, else as all did."""
    infos = [reader.info for reader in readers]
    badly = [info for info in infos if info.exit_code or info.exit_signal]
    info = (badly or infos)[0]
    at_ns = max(replay.end_ns for replay in replays)
    return RunEnded(at_ns, info.why_ended or "stopped", info.exit_code, info.exit_signal)


def _set_nodes(connection: sqlite3.Connection, nodes: Sequence[JoinedNode]) -> None:
    told = msgspec.json.encode(list(nodes)).decode()
    with contextlib.closing(connection.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (NODES, told))):
        pass
