"""Whom a hang is laid to where a training waits for its workers: to the queue, or to the worker that is stuck."""

from __future__ import annotations

import pytest

from profd.daemon.hangs.cause import find_cause
from profd.daemon.hangs.look import Counters, Look, Standing
from profd.daemon.hangs.waits import Wait
from profd.daemon.store.records import Frame, Identity
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member

LIB = "/usr/lib/python3.11/"
TORCH = LIB + "site-packages/torch/utils/data/"
MAIN = (
    Frame("<module>", "/srv/train.py", 40),
    Frame("_MultiProcessingDataLoaderIter.__next__", TORCH + "dataloader.py", 630),
)
LOOP = (Frame("<module>", "/srv/train.py", 40), Frame("_worker_loop", TORCH + "_utils/worker.py", 349))
IDLE = (*LOOP, Frame("Queue.get", LIB + "multiprocessing/queues.py", 113))
READING = (*LOOP, Frame("Images.__getitem__", "/srv/data.py", 12), Frame("open", LIB + "gzip.py", 1))


def standing(pid: int, role: str, stack: tuple[Frame, ...], wait: Wait) -> Standing:
    ordinal = None if role == roles.MAIN else pid - 100
    member = Member(Identity(pid, 1), None, ("python", "train.py"), role, None, ordinal, "3.11.7", 1)
    return Standing(member, "MainThread", True, stack, wait)


def look(worker_role: str, worker: tuple[Frame, ...], wait: Wait) -> Look:
    """Return what is seen of a training that waits for one worker."""
    rows = (standing(100, roles.MAIN, MAIN, Wait("read", "reads a pipe")), standing(101, worker_role, worker, wait))
    return Look(1000, rows, Counters(0, 0), 0)


@pytest.mark.parametrize("role", [roles.WORKER, roles.HELPER], ids=["known as a worker", "known by its stack alone"])
def test_a_worker_whose_file_does_not_answer_is_the_cause_and_not_its_queue(role: str) -> None:
    cause = find_cause(look(role, READING, Wait("read", "opens /mnt/sample")), [])
    assert cause.group == "blocked read"
    assert "__next__" in cause.text
    assert "opens /mnt/sample" in cause.text


def test_a_worker_that_waits_for_work_is_not_the_cause() -> None:
    cause = find_cause(look(roles.WORKER, IDLE, Wait("read", "reads a pipe")), [])
    assert cause.group == "queue"
    assert "worker" not in cause.text
