"""Which group of causes a hang belongs to, by the stacks of its processes and by those that died."""

from __future__ import annotations

import pytest

from profd.daemon.hangs.cause import Cause, Death, ends_by_itself, find_cause
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
    ("code", "number", "group"),
    [
        (None, 9, "dead worker"),
        (3, None, "dead worker"),
        (None, None, "dead worker"),
        (0, None, "queue"),
    ],
    ids=["killed", "failed", "nobody knows", "ended well"],
)
def test_a_wait_for_a_queue_names_a_worker_that_died(
    code: int | None, number: int | None, group: str
) -> None:
    cause = find_cause(
        look(standing(0, "read", GET)), [Death(900, "worker 2 (pid 7)", code, number)]
    )
    assert cause.group == group
    assert ("worker 2 (pid 7)" in cause.text) == (group == "dead worker")


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
