"""Which rank is behind in a hang: by simulated jobs whose RAS is asked over TCP, and by the stacks
alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import jobsim
from support.jobsim import JobSim
from support.present import there

from profd.daemon.collectives.desync import DesyncVerdict, Progress
from profd.daemon.hangs.cause import Cause, Death
from profd.daemon.hangs.desync import find_desync
from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.waits import Wait
from profd.daemon.store.records import Frame, HangFound, Identity
from profd.daemon.tree.tree import Member

DISTRIBUTED = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
WRAPPER = Frame("wrapper", "/usr/lib/python3/site-packages/torch/distributed/c10d_logger.py", 81)


async def trained(job: JobSim, seconds: int = 20) -> None:
    await job.pass_s(seconds, lambda _: job.train())
    for rank in job.ranks:
        rank.wait_for_others()


async def stood(job: JobSim, seconds: int = 45) -> HangFound | None:
    await job.pass_s(seconds)
    return next(iter(job.hangs()), None)


async def test_a_rank_that_stands_behind_is_named_with_its_line_and_what_others_wait_in() -> None:
    with JobSim(8) as job:
        await trained(job)
        job.world.launch(but=[3])
        job.ranks[3].do(jobsim.DEBUGGER, Wait("terminal", "reads the terminal /dev/pts/1"), 0)
        hang = there(await stood(job))
        (one,) = hang.report.behind
        assert (one.rank, one.pid, one.operation) == (3, 1003, "AllReduce")
        assert one.place == "Pdb.interaction (train.py:43)"
        assert "has not come to AllReduce 41, in which 7 others wait" in hang.text
        assert hang.report.cause == "collective"


async def test_one_that_computes_may_come_and_one_whose_counts_go_on_does_not_hang() -> None:
    with JobSim(4) as job:
        await trained(job)
        job.world.launch(but=[1])
        job.ranks[1].do(jobsim.COMPILE[0])
        assert await stood(job, 100) is None
    with JobSim(4, steps_known=False) as job:
        await job.settle()
        await trained(job)
        await job.pass_s(200, lambda _: job.world.launch())
        assert job.server.asked > 5
        assert job.hangs() == []


async def test_equal_counts_are_the_gpu_or_the_network_where_gpus_are_full() -> None:
    with JobSim(4) as job:
        await trained(job)
        job.gpu = 0.0
        assert await stood(job) is None
    with JobSim(4) as job:
        await trained(job)
        assert "all 4 ranks have launched the same collectives" in there(await stood(job)).text


async def test_what_ras_says_at_the_second_look_alone_is_compared_with_the_next() -> None:
    with JobSim(4, steps_known=False) as job:
        await trained(job, 1)
        job.clock.advance(592)  # RAS may be asked ten minutes after the job's begin
        job.world.launch(but=[2])
        for rank in job.ranks:
            rank.do(jobsim.ITEM, jobsim.LOCK, cores=0)
        hang = there(await stood(job, 60))
        assert [one.rank for one in hang.report.behind] == [2]


async def test_a_killed_rank_is_named_by_how_it_ended() -> None:
    with JobSim(4) as job:
        await trained(job)
        job.kill(2)
        (one,) = there(await stood(job)).report.behind
        assert (one.rank, one.pid) == (2, 1002)
        assert "SIGKILL" in one.state


async def test_what_a_rank_of_another_host_does_is_not_known_so_that_takes_longer() -> None:
    with JobSim(4) as job:
        del job.ranks[3]  # of another host, where it computes for a while
        job.world.ranks[3].host = "10.0.0.2"
        await trained(job)
        job.world.launch(but=[3])
        assert await stood(job, 100) is None
        hang = there(await stood(job, 60))
        assert "rank 3 (pid 1003 on 10.0.0.2) has not come to AllReduce 41" in hang.text


def begins(job: JobSim) -> None:
    for rank in job.ranks:
        rank.do(jobsim.INIT)


@pytest.mark.parametrize("each", [begins, JobSim.train], ids=["makes communicators", "trains"])
async def test_ras_is_not_asked_where_an_answer_may_harm_or_is_not_needed(
    each: Callable[[JobSim], object],
) -> None:
    with JobSim(4) as job:
        await job.pass_s(100, lambda _: each(job))
        assert (job.server.asked, job.hangs()) == (0, [])


async def test_where_ras_gives_no_answer_the_processes_are_not_looked_at_again_and_again() -> None:
    with JobSim(4) as job:
        job.server.answer = lambda: b"nothing"
        await trained(job)
        await job.pass_s(110)
        assert job.server.asked == 2  # and where it stands for long
        assert any("NCCL's counts are not known: NCCL's RAS" in note for note in job.notes())


# --- by the stacks alone
# --------------------------------------------------------------------------------------------


def rank(number: int, line: int, *below: Frame, kind: str = "lock") -> StackState:
    member = Member(
        Identity(100 + number, 1), None, ("python", "train.py"), "main", number, None, "3.11.7", 1
    )
    return StackState(
        member,
        "MainThread",
        True,
        (Frame("step", "/srv/train.py", line), *below),
        Wait(kind, f"a {kind}"),
    )


def waits_in(number: int, operation: str, line: int = 40) -> StackState:
    return rank(number, line, WRAPPER, Frame(operation, DISTRIBUTED, 3000))


def found(*rows: StackState, deaths: tuple[Death, ...] = ()) -> Cause | None:
    return find_desync(Look(0, rows), deaths, DesyncVerdict(Progress.UNKNOWN))


def named(cause: Cause | None) -> list[tuple[int | None, str]]:
    return [(one.rank, one.operation) for one in cause.behind] if cause else []


def test_by_stacks_the_rank_that_is_elsewhere_is_behind() -> None:
    rows = [waits_in(0, "all_reduce"), waits_in(1, "all_reduce"), rank(2, 50, kind="read")]
    cause = there(found(*rows))
    assert named(cause) == [(2, "all_reduce")]
    where = "rank 2 (pid 102) stands in step (train.py:50): a read"
    assert f"{where}; 2 of 3 ranks wait for that in all_reduce" in cause.text


DIED = Death(5, "rank 1 (pid 101)", None, 9, 1, 101)
BARRIERS = {number: waits_in(number, "barrier") for number in range(3)}
BEHIND: dict[str, tuple[list[StackState], tuple[Death, ...], list[tuple[int, str]]]] = {
    "in another operation": (
        [BARRIERS[0], waits_in(1, "all_reduce"), BARRIERS[2]],
        (),
        [(1, "all_reduce")],
    ),
    "at another line": (
        [BARRIERS[0], waits_in(1, "barrier", 44), BARRIERS[2]],
        (),
        [(1, "barrier")],
    ),
    "none of two is odd": (
        [BARRIERS[0], waits_in(1, "all_reduce")],
        (),
        [(0, "barrier"), (1, "all_reduce")],
    ),
    "dead and not started anew": ([BARRIERS[0], BARRIERS[2]], (DIED,), [(1, "barrier")]),
    "dead, but started anew": ([BARRIERS[0], BARRIERS[1]], (DIED,), []),
    "nobody: all wait alike": ([BARRIERS[0], BARRIERS[1]], (), []),
    "nobody: none waits for another": ([rank(0, 40), rank(1, 50)], (), []),
}


@pytest.mark.parametrize(("rows", "deaths", "behind"), BEHIND.values(), ids=BEHIND)
def test_by_stacks_the_rank_that_differs_is_behind(
    rows: list[StackState], deaths: tuple[Death, ...], behind: list[tuple[int, str]]
) -> None:
    cause = found(*rows, deaths=deaths)
    assert named(cause) == behind
    assert (cause is None) == (not behind)


def test_by_stacks_a_rank_that_died_is_missed_wherever_the_others_wait() -> None:
    nobody_knows = Death(5, "rank 1 (pid 101)", None, None, 1, 101)
    cause = there(found(rank(0, 40, kind="read"), rank(2, 40, kind="read"), deaths=(nobody_knows,)))
    assert (cause.group, named(cause)) == ("dead worker", [(1, "")])
    ended_well = Death(5, "rank 1 (pid 101)", 0, None, 1, 101)
    assert found(rank(0, 40), rank(2, 40), deaths=(ended_well,)) is None
