"""Which group of causes a hang belongs to, by the stacks of its processes and by those that died."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profd.daemon.hangs.cause import (
    Cause,
    Death,
    ends_by_itself,
    find_cause,
    place_of,
    with_stuck_workers,
)
from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.waits import Wait
from profd.daemon.store.records import Frame, Identity
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member

LOOP = Frame("<module>", "/srv/train.py", 40)
GET = Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)


def standing(number: int, kind: str, *below: Frame, text: str = "a wait") -> StackState:
    identity = Identity(100 + number, 1)
    member = Member(identity, None, ("python", "train.py"), "main", number, None, "3.11.7", 1)
    return StackState(member, "MainThread", True, (LOOP, *below), Wait(kind, text))


def look(*rows: StackState) -> Look:
    return Look(1000, rows)


@pytest.mark.parametrize(
    ("code", "number", "peers", "group"),
    [
        (None, 9, (8,), "dead worker"),
        (3, None, None, "dead worker"),
        (None, None, None, "queue"),
        (None, None, (8,), "queue"),
        (None, None, (), "dead worker"),
        (0, None, (), "queue"),
    ],
    ids=[
        "killed",
        "failed",
        "nobody knows",
        "nobody knows, and another can write",
        "nobody knows, and no other can write",
        "ended well",
    ],
)
def test_a_wait_for_a_queue_names_a_worker_of_whose_death_there_is_evidence(
    code: int | None, number: int | None, peers: tuple[int, ...] | None, group: str
) -> None:
    main = standing(0, "read", GET)
    main = main._replace(wait=main.wait._replace(peers=peers))
    deaths = [Death(900, "worker 2 (pid 7)", code, number)]
    cause = find_cause(look(main), deaths)
    assert cause.group == group
    assert ("worker 2 (pid 7)" in cause.text) == (group == "dead worker")
    assert [one.state for one in cause.behind] == [
        one.in_words() for one in deaths if group == "dead worker"
    ]


WORKS = Frame("_worker_loop", "/v/site-packages/torch/utils/data/_utils/worker.py", 351)


def test_a_wait_for_a_queue_is_one_for_the_stuck_workers_of_its_rank() -> None:
    stuck = standing(2, "sleep", Frame("load", "/srv/train.py", 21))
    of_rank = [
        row._replace(member=replace(row.member, role=roles.WORKER, rank=rank))
        for row, rank in ((stuck, 0), (standing(3, "lock", WORKS, GET), 0), (stuck, 1))
    ]
    waits, other = standing(0, "lock", GET), standing(4, "sleep")
    thread = waits._replace(is_main=False)
    seen = with_stuck_workers(look(waits, thread, other, *of_rank))
    assert [row.wait.peers for row in seen.standing] == [(102,), *[None] * 5]
    assert seen.standing[0].wait.text == waits.wait.text


BOOTSTRAP = Frame("Process._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)
JOIN = Frame("Process.join", "/usr/lib/python3.11/multiprocessing/process.py", 149)
FEED = Frame("Queue._feed", "/usr/lib/python3.11/multiprocessing/queues.py", 266)
SEND = Frame("Connection._send", "/usr/lib/python3.11/multiprocessing/connection.py", 384)


@pytest.mark.parametrize(
    ("readers", "says"), [((100,), True), ((100, 9), False), (None, False)],
    ids=["its parent alone reads", "another may read", "unknown"],
)  # fmt: skip
def test_a_child_that_is_joined_before_its_queue_is_read_is_told_so(
    readers: tuple[int, ...] | None, says: bool
) -> None:
    parent = standing(0, "child", JOIN)._replace(wait=Wait("child", "waits", peers=(101,)))
    child = standing(1, "lock", BOOTSTRAP, Frame("join", "/usr/lib/python3.11/threading.py", 1119))
    child.member.role, child.member.parent = "helper", parent.member.identity
    feeder = child._replace(
        thread="QueueFeederThread",
        is_main=False,
        stack=(FEED, SEND),
        wait=Wait("write", "writes a pipe", peers=readers),
    )
    died = Death(900, "helper 7 (pid 7)", None, None)
    cause = find_cause(look(parent, child, feeder), [died])
    assert ("before it has read what that writes" in cause.text) == says
    assert cause.group != "dead worker"


def test_the_place_of_a_forked_child_is_no_line_of_its_parent() -> None:
    start = Frame("launch", "/srv/train.py", 12)
    forked = (LOOP, start, BOOTSTRAP, Frame("_exit_function", "/usr/lib/python3.11/util.py", 360))
    assert place_of(standing(1, "lock", *forked[1:])) == "_exit_function (util.py:360)"
    own = Frame("work", "/srv/train.py", 30)
    assert place_of(standing(1, "lock", *forked[1:3], own, GET)) == "Queue.get (train.py:30)"


def test_a_hang_ends_by_itself_only_where_all_training_processes_sleep() -> None:
    assert ends_by_itself(look(standing(0, "sleep"), standing(1, "flush")))
    assert not ends_by_itself(look(standing(0, "sleep"), standing(1, "lock")))
    parent = standing(0, "child")
    for kind in ("sleep", "lock"):
        child = standing(1, kind)
        child.member.role, child.member.parent = "helper", parent.member.identity
        assert ends_by_itself(look(parent, child)) == (kind == "sleep")
    cause = find_cause(look(standing(0, "lock"), standing(1, "lock"), standing(2, "read")), [])
    assert cause.group == "lock"
    assert cause.text.startswith("2 of 3 processes wait so: ")


TORCH = "/usr/lib/python3.11/site-packages/torch/utils/data/"
WORKER_LOOP = Frame("_worker_loop", TORCH + "_utils/worker.py", 349)
READING = (
    Frame("Images.__getitem__", "/srv/data.py", 12),
    Frame("open", "/usr/lib/python3.11/gzip.py", 1),
)


def cause_beside(role: str, text: str, *below: Frame) -> Cause:
    """Return the cause of a hang of a training that waits for one worker, which reads."""
    main = standing(
        0, "read", Frame("_MultiProcessingDataLoaderIter.__next__", TORCH + "dataloader.py", 630)
    )
    worker = standing(1, "read", WORKER_LOOP, *below, text=text)
    worker.member.role = role
    return find_cause(look(main, worker), [])


@pytest.mark.parametrize(
    "role", [roles.WORKER, roles.HELPER], ids=["known as a worker", "known by its stack alone"]
)
def test_a_worker_whose_file_does_not_answer_is_the_cause_and_not_its_queue(role: str) -> None:
    cause = cause_beside(role, "opens /mnt/sample", *READING)
    assert cause.group == "blocked read"
    assert "__next__" in cause.text
    assert "opens /mnt/sample" in cause.text


def test_a_worker_that_waits_for_work_is_not_the_cause() -> None:
    cause = cause_beside(roles.WORKER, "reads a pipe", GET)
    assert cause.group == "queue"
    assert "worker" not in cause.text
