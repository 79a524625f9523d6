"""Reads that may never end: one that does not is given up, and no other is made of its process meanwhile."""

from __future__ import annotations

import threading

import pytest
from support.waiting import until

from profd.daemon.service.processes import Reads


def test_what_is_read_is_returned() -> None:
    assert Reads().read(7, lambda: "maps", "") == "maps"


def test_what_is_raised_is_raised_here() -> None:
    def fail() -> str:
        raise PermissionError("not yours")

    with pytest.raises(PermissionError, match="not yours"):
        Reads().read(7, fail, "")


def test_a_read_that_does_not_end_is_given_up_and_not_made_again_before_it_does() -> None:
    reads, wakes, asked = Reads(deadline_s=0.05), threading.Event(), []

    def hang() -> str:
        asked.append(1)
        wakes.wait()
        return "late"

    assert [reads.read(7, hang, "none") for _ in range(5)] == ["none"] * 5
    assert len(asked) == 1
    reads._deadline_s = 60.0
    assert reads.read(8, lambda: "other", "none") == "other"  # nobody else waits for it
    wakes.set()
    until(lambda: reads.read(7, lambda: "again", "none") == "again", "it is read again")


def test_all_reads_are_made_by_one_thread() -> None:
    reads = Reads()
    assert len({reads.read(pid, threading.get_ident, 0) for pid in range(20)}) == 1
