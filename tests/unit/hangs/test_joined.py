"""The hangs of several nodes as one: the rank that all wait for, wherever it is."""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS
from profd.daemon.hangs.joined import join_hangs
from profd.daemon.store.records import Frame, HangFound, HangGroup, HangReport, Stand

REDUCE = Frame("all_reduce", "/v/site-packages/torch/distributed/distributed_c10d.py", 9)
STEP = Frame("step", "/srv/train.py", 40)
LOAD = Frame("load", "/srv/train.py", 21)
HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}


def hang(
    host: str,
    *groups: tuple[tuple[Frame, ...], int],
    since_s: int = 100,
    ended_s: int | None = None,
) -> HangFound:
    found = tuple(
        HangGroup(
            frames,
            (Stand(f"rank {rank}", 70, "main", rank, "MainThread", True, f"waits {rank}", "lock"),),
        )
        for frames, rank in groups
    )
    ended_ns = None if ended_s is None else ended_s * SECOND_NS
    report = HangReport("collective", found, (f"a fact of {host}",))
    return HangFound(
        (since_s + 30) * SECOND_NS, since_s * SECOND_NS, f"{host}: no progress", report, ended_ns
    )


WAITS, LOADS = (STEP, REDUCE), (STEP, LOAD)


def test_the_rank_that_stands_elsewhere_is_named_with_its_host_and_line() -> None:
    first, second = (
        hang("a", (WAITS, 0), (WAITS, 1)),
        hang("b", (WAITS, 2), (LOADS, 3), since_s=103),
    )
    (one,) = join_hangs([first, second], HOSTS)
    assert one.text == (
        "all nodes (collective): rank 3 (pid 70) stands in load (train.py:21): waits 3; "
        "3 of 4 ranks wait for that in all_reduce: rank 0 (pid 70) stands in all_reduce "
        "(train.py:40): waits 0; rank 3 is on b"
    )
    (behind,) = one.report.behind
    assert (behind.rank, behind.host, behind.place) == (3, "b", "load (train.py:21)")
    assert (one.since_ns, one.at_ns) == (103 * SECOND_NS, 133 * SECOND_NS)
    assert len(one.report.groups) == 4
    assert one.report.facts == (
        "a: no progress",
        "b: no progress",
        "a fact of a",
        "a fact of b",
    )


def test_hangs_of_other_times_or_of_the_same_ranks_stay_apart() -> None:
    earlier = hang("a", (WAITS, 0), since_s=10, ended_s=50)
    again = hang("b", (LOADS, 0))
    other = hang("b", (LOADS, 3))
    assert join_hangs([earlier, other], HOSTS) == [earlier, other]
    assert join_hangs([again, hang("a", (WAITS, 0))], HOSTS) == [again, hang("a", (WAITS, 0))]
    assert join_hangs([other], HOSTS) == [other]


def test_hangs_in_which_no_rank_is_behind_stay_as_they_are() -> None:
    both = [hang("a", (WAITS, 0)), hang("b", (WAITS, 2))]
    assert join_hangs(both, HOSTS) == both


def test_a_hang_of_all_nodes_ends_with_the_last_of_them() -> None:
    first, second = hang("a", (WAITS, 0), ended_s=140), hang("b", (LOADS, 3), ended_s=150)
    (one,) = join_hangs([first, second], HOSTS)
    assert one.ended_ns == 150 * SECOND_NS
    (one,) = join_hangs([first, hang("b", (LOADS, 3))], HOSTS)
    assert one.ended_ns is None
