"""The living part of a run file: what a look takes in, and what it refuses."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.synthetic import write_run

from profd.daemon.errors import RunUnreadable
from profd.daemon.store.tail import RunTail
from profd.daemon.store.tailfile import StackTime


def test_a_look_knows_the_stacks_that_were_written(tmp_path: Path) -> None:
    tail = RunTail(write_run(tmp_path / "a.profd", seconds=3), ("rss_bytes",))
    with tail.look():
        deepest = max(tail.stacks)
        assert tail.frames_of(deepest)[-1].id == tail.stacks[deepest].frame


@pytest.mark.parametrize("parent", ["id", "id + 1", "1000000"])
def test_stacks_that_go_in_a_circle_are_damage(tmp_path: Path, parent: str) -> None:
    path = write_run(tmp_path / "a.profd", seconds=3)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE stack SET parent = {parent} WHERE id = 2")
    with pytest.raises(RunUnreadable, match="stack 2 is damaged"), RunTail(path, ()).look():
        pass


def test_rows_that_name_no_stack_of_the_file_are_damage(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.profd", seconds=3)
    tail = RunTail(path, ())
    with tail.look():
        assert tail.known([StackTime(1, max(tail.stacks), 5)])
        with pytest.raises(RunUnreadable, match="there is no stack 4096"):
            tail.known([StackTime(1, 4096, 5)])
