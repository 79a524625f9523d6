"""Which rank is behind, by two answers of RAS."""

from __future__ import annotations

from support.ras import FakeCommunicator, FakeRank, answer_in_json, job_of

from profd.daemon.collectives.desync import DesyncVerdict, Progress, compare
from profd.daemon.collectives.status import Status, parse


def status(*communicators: FakeCommunicator) -> Status:
    return parse(answer_in_json(list(communicators)))


def frozen(*communicators: FakeCommunicator) -> DesyncVerdict:
    return compare(status(*communicators), status(*communicators))


def test_standing_counts_that_differ_name_the_rank_behind() -> None:
    world = job_of(8)
    world.launch()
    world.launch(but=[3])
    verdict = frozen(world)
    (one,) = verdict.behind
    assert (verdict.progress, one.rank, one.pid, one.launched, verdict.waiting) == (
        Progress.BEHIND,
        3,
        1003,
        1,
        7,
    )
    assert one.operation == "AllReduce"


def test_another_operation_is_a_mismatch() -> None:
    world = job_of(4)
    world.launch("AllReduce", but=[2])
    world.ranks[2].launch("Broadcast")
    verdict = frozen(world)
    (one,) = verdict.behind
    assert (verdict.progress, one.rank, one.operation, one.instead) == (
        Progress.MISMATCH,
        2,
        "AllReduce",
        "Broadcast",
    )
    two = job_of(2)  # it is unknown which one is right
    two.ranks[0].launch("AllReduce")
    two.ranks[1].launch("Broadcast")
    both = [(one.rank, one.instead) for one in frozen(two).behind]
    assert both == [(0, "AllReduce"), (1, "Broadcast")]


def test_counts_that_go_on_are_progress_whatever_else() -> None:
    world = job_of(4)
    world.launch(but=[1])
    before = status(world)
    world.ranks[0].launch("Reduce")
    assert compare(before, status(world)).progress is Progress.GOES_ON


def test_equal_counts_that_stand_are_the_gpu_or_the_network() -> None:
    world = job_of(4)
    world.launch()
    assert frozen(world).progress is Progress.ALIKE


def test_a_process_that_is_lost_comes_before_all_else() -> None:
    world = job_of(4)
    world.launch(but=[1])
    world.ranks[3].answers = False
    verdict = frozen(world)
    assert (verdict.progress, [one.rank for one in verdict.behind], verdict.waiting) == (
        Progress.LOST,
        [3],
        3,
    )


def test_a_rank_that_waits_in_another_communicator_is_not_behind() -> None:
    """Tensor and data parallel: 0 and 1 share a group, 0 and 2 another.

    1 is late, 0 waits for it, and 2 for 0.
    """
    world = job_of(3)
    tensor = FakeCommunicator([FakeRank(0, 1000), FakeRank(1, 1001)], hash=5)
    data = FakeCommunicator([FakeRank(0, 1000), FakeRank(1, 1002)], hash=6)
    tensor.launch(but=[1])
    data.launch(but=[0])
    verdict = frozen(world, tensor, data)
    assert [(one.rank, one.pid) for one in verdict.behind] == [(1, 1001)]
