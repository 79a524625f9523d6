"""The places of ranks in their job, in the run file."""

from __future__ import annotations

from pathlib import Path

from support.synthetic import COMMAND, MAIN, STARTED_NS, write_records

from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity, Placement, ProcessSeen
from profd.daemon.store.rows import PlacementRow

WORKER = Identity(4300, 1100)


def seen(identity: Identity, parent: Identity | None = None, placement: Placement | None = None) -> ProcessSeen:
    return ProcessSeen(identity, parent, COMMAND, "main", 5, None, "3.11.7", STARTED_NS, placement)


def write(path: Path, *many: ProcessSeen) -> Path:
    return write_records(path, many)


def test_the_newest_place_of_each_rank_is_kept(tmp_path: Path) -> None:
    # An agent that became the rank: its environment was another one before.
    first, second = Placement(5), Placement(5, 1, 0, 8)
    path = write(tmp_path / "a.profd", seen(MAIN, placement=first), seen(MAIN, placement=second), seen(WORKER, MAIN))

    with RunReader(path) as reader:
        (main,) = (row.id for row in reader.processes.values() if row.pid == MAIN.pid)
        assert reader.placements() == {main: PlacementRow(main, 1, 0, 8)}
