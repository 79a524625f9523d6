"""Which group of causes a hang belongs to, by who stands where and who died."""

from __future__ import annotations

import pytest

from profd.daemon.hangs.cause import Death, ends_by_itself, find_cause
from profd.daemon.hangs.look import Counters, Look, Standing
from profd.daemon.hangs.waits import Wait
from profd.daemon.store.records import Frame, Identity
from profd.daemon.tree.tree import Member

LOOP = Frame("<module>", "/srv/train.py", 40)
GET = Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)


def standing(number: int, kind: str, *below: Frame) -> Standing:
    identity = Identity(100 + number, 1)
    member = Member(identity, None, ("python", "train.py"), "main", number, None, "3.11.7", 1)
    return Standing(member, "MainThread", True, (LOOP, *below), Wait(kind, "a wait"))


def look(*rows: Standing) -> Look:
    return Look(1000, rows, Counters(0, 0), 0)


@pytest.mark.parametrize(
    ("code", "number", "group"),
    [(None, 9, "dead worker"), (3, None, "dead worker"), (None, None, "dead worker"), (0, None, "queue")],
    ids=["killed", "failed", "nobody knows", "ended well"],
)
def test_who_waits_for_a_queue_misses_a_worker_that_died(code: int | None, number: int | None, group: str) -> None:
    cause = find_cause(look(standing(0, "read", GET)), [Death(900, "worker 2 (pid 7)", code, number)])
    assert cause.group == group
    assert ("worker 2 (pid 7)" in cause.text) == (group == "dead worker")


def test_a_hang_ends_by_itself_only_where_all_who_train_sleep() -> None:
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
