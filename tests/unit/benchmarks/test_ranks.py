from __future__ import annotations

from pathlib import Path

from ranks import HEALTHY, Told, told
from support.jobruns import FORWARD, LOAD, Rank, write_job

from profd.daemon.store.reader import RunReader

USUAL, LATE = Rank((LOAD, 100), (FORWARD, 100)), Rank((LOAD, 300), (FORWARD, 100))
MISSED = Told(None, "", 0.0, float("inf"), was_wrong=True)


def told_of(path: Path, kind: str, *ranks: Rank) -> Told:
    with RunReader(write_job(path, *ranks)) as reader:
        return told(reader, kind)


def test_the_slow_rank_is_right_from_when_it_is_sure(tmp_path: Path) -> None:
    found = told_of(tmp_path / "a.profd", "data", USUAL, USUAL, LATE, USUAL)

    assert (found.rank, found.function, found.was_wrong) == (2, "Photos.__getitem__", False)
    assert found.after_s == 10


def test_another_rank_or_any_of_a_healthy_job_is_wrong(tmp_path: Path) -> None:
    assert told_of(tmp_path / "a.profd", "data", LATE, USUAL, USUAL).was_wrong
    assert told_of(tmp_path / "b.profd", HEALTHY, USUAL, USUAL, LATE).was_wrong
    assert told_of(tmp_path / "c.profd", HEALTHY, USUAL, USUAL, USUAL) == MISSED._replace(was_wrong=False)
