"""Simulated jobs of 2 to 64 ranks that stop or go on, and what profd says of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from gloojobs import Stop
from support import jobsim
from support.jobsim import JobSim
from support.ras import OPERATIONS

from profd.daemon.clock import SECOND_NS
from profd.daemon.hangs.waits import Wait
from profd.daemon.store.records import Frame


def stop_now(job: JobSim, kind: str, planted: int, chance: random.Random) -> None:
    """Have a job stop: the ranks wait as on GPUs, and the planted one does not come."""
    mine = job.ranks[planted]
    for rank in job.ranks:
        rank.wait_for_others()
    job.world.launch("AllReduce", but=[planted])
    if kind == "mismatch":
        job.world.ranks[planted].launch(chance.choice(OPERATIONS[:4]))
    elif kind == "checkpoint":
        mine.do(
            jobsim.SAVE,
            Wait("write", "writes /mnt/ckpt, uninterruptible (state D) in nfs_wait_bit_killable"),
            0,
        )
    elif kind == "debugger":
        mine.do(jobsim.DEBUGGER, Wait("terminal", "reads the terminal /dev/pts/1"), 0)
    elif kind == "loader":
        mine.do(
            jobsim.QUEUE,
            Wait("read", "reads a pipe; no process that we see holds its writing end"),
            0.01,
        )
    elif kind == "killed":
        job.kill(planted)
    elif kind == "link":
        job.world.ranks[planted].answers = False
    elif kind == "skipped":
        for rank in job.ranks:
            rank.do(jobsim.BARRIER)
        mine.do(
            (jobsim.ROOT, Frame("wait_for_file", jobsim.TRAIN, 58)),
            Wait("lock", "a lock of /srv/x.lock"),
            0,
        )


async def stop_simulated(kind: str, size: int, seed: int) -> Stop:
    """Have a simulated job stop after a while, and see what is said of it."""
    chance = random.Random(seed)
    planted, version = chance.randrange(size), "2.29.2" if seed % 3 == 0 else "2.30.7"
    with JobSim(size, steps_known=kind != "debugger" or seed % 2 == 0, version=version) as job:
        await job.pass_s(15, lambda _: job.train(chance.choice((1, 2, 5))))
        if not job.steps_known:
            await job.settle()
        stopped_ns = job.clock.now_ns()
        stop_now(job, kind, planted, chance)
        await job.pass_s(60)
        found = job.hangs()
        if not found:
            return Stop(kind, size, None, f"no hang was found: {job.notes()}", "")
        wrong, behind = "", found[0].report.behind
        if [one.rank for one in behind] != [planted] and not (kind == "mismatch" and size == 2):
            wrong = f"named {[one.rank for one in behind]}, not {planted}"
        else:
            mine = next(one for one in behind if one.rank == planted)
            wrong = "" if mine.pid == 1000 + planted and mine.operation else f"{mine}"
            wrong = wrong or (
                ""
                if "train.py:" in (found[0].text if kind == "killed" else mine.place)
                else "no line"
            )
        return Stop(kind, size, (found[0].at_ns - stopped_ns) / SECOND_NS, wrong, found[0].text)


Healthy = Callable[[JobSim, random.Random], Callable[[int], object]]


def _compile(job: JobSim, chance: random.Random) -> Callable[[int], object]:
    """Compile on some ranks: the stack changes.

    The others wait in a collective that they have launched.
    """
    some = [rank for rank in job.ranks if chance.random() < 0.5] or job.ranks[:1]
    job.world.launch(but=[job.ranks.index(rank) for rank in some])

    def each(second: int) -> None:
        for rank in job.ranks:
            rank.wait_for_others()
        for rank in some:
            rank.do(jobsim.COMPILE[second % len(jobsim.COMPILE)])

    return each


def _one_call(job: JobSim, chance: random.Random) -> Callable[[int], object]:
    """Compile in one call on one rank, which shows one stack and a core at work."""
    mine = chance.randrange(job.size)
    job.world.launch(but=[mine])

    def each(_: int) -> None:
        for rank in job.ranks:
            rank.wait_for_others()
        job.ranks[mine].do(jobsim.COMPILE[0])

    return each


def _evaluate(job: JobSim, _: random.Random) -> Callable[[int], object]:
    """Evaluate on rank 0 alone."""
    job.world.launch(but=[0])

    def each(second: int) -> None:
        for rank in job.ranks:
            rank.do(jobsim.BARRIER)
        job.ranks[0].do(jobsim.EVALUATE[second % len(jobsim.EVALUATE)])

    return each


def _save(job: JobSim, _: random.Random) -> Callable[[int], object]:
    """Save a checkpoint on rank 0: one stack, hardly a core, but bytes."""
    job.world.launch(but=[0])

    def each(_second: int) -> None:
        for rank in job.ranks:
            rank.do(jobsim.BARRIER)
        job.ranks[0].do(jobsim.SAVE, Wait("write", "writes /mnt/ckpt"), 0.02, 100 << 20)

    return each


def _uneven(job: JobSim, chance: random.Random) -> Callable[[int], object]:
    """Have batches of different size: ranks wait up to 20 s, then go on."""
    late = chance.randrange(job.size)

    def each(second: int) -> None:
        if second % 20 == 0:
            job.world.launch(but=[late])
        for rank in job.ranks:
            rank.wait_for_others()
        job.ranks[late].do(jobsim.FORWARD)
        if second % 20 == 19:
            job.world.ranks[late].launch()
            job.steps += 1

    return each


def _graph(job: JobSim, _: random.Random) -> Callable[[int], object]:
    """Train from one line: every sample shows the same stack, the counts go on. No step is seen."""

    def each(_second: int) -> None:
        for rank in job.ranks:
            rank.wait_for_others()
        job.world.launch()

    return each


def _restart(job: JobSim, _: random.Random) -> Callable[[int], object]:
    """Restart as torchrun does: the processes are new, import, and make their communicator for a
    minute.
    """
    for rank in job.ranks:
        identity = rank.member.identity
        job.begin_anew(rank, type(identity)(identity.pid + 1000, 2))
    for one in job.world.ranks:
        one.pid, one.counts, one.init_state = one.pid + 1000, dict.fromkeys(OPERATIONS, 0), 7

    def each(second: int) -> None:
        for rank in job.ranks:
            rank.do(jobsim.COMPILE[second % 50] if second < 10 else jobsim.INIT)

    return each


def _start(job: JobSim, _: random.Random) -> Callable[[int], object]:
    """Make communicators for long, all ranks in one call, before anything is counted."""

    def each(_second: int) -> None:
        for one in job.world.ranks:
            one.init_state = 7
        for rank in job.ranks:
            rank.do(jobsim.INIT)

    return each


HEALTHY: dict[str, Healthy] = {
    "compilation on some ranks": _compile,
    "compilation in one call": _one_call,
    "evaluation on rank 0": _evaluate,
    "checkpoint on rank 0": _save,
    "uneven batches": _uneven,
    "one line, counts go on": _graph,
    "elastic restart": _restart,
    "slow start": _start,
}


async def go_on_simulated(kind: str, size: int, seed: int) -> tuple[list[str], int]:
    """Run a healthy simulated job, and return its alarms, and how often RAS was asked."""
    chance = random.Random(seed)
    with JobSim(size, steps_known=kind not in ("one line, counts go on", "slow start")) as job:
        if kind == "one line, counts go on":  # then RAS may be asked after ten minutes
            await job.settle()
        elif kind != "slow start":
            await job.pass_s(15, lambda _: job.train(1))
        each = HEALTHY[kind](job, chance)
        await job.pass_s(chance.randrange(60, 110), each)
        for one in job.world.ranks:
            one.init_state = 0
        most = max((one.counts["AllReduce"] for one in job.world.ranks), default=0)
        for one in job.world.ranks:
            one.counts["AllReduce"] = most
        await job.pass_s(15, lambda _: job.train(1))
        return [hang.text for hang in job.hangs()], job.server.asked
