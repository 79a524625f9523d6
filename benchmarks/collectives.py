"""Measures whether a stopped job has its rank, process, operation and line named, and a healthy job no alarm.

    python benchmarks/collectives.py [--part PART] [--jobs N] [--quick]

Parts: ``gloo`` (real jobs of 2 to 4 ranks, by their stacks alone, 12 minutes), ``simulated`` (2 to 64 ranks on a clock
of their own, whose RAS service is the stand-in of ``tests/support/ras.py``, asked by profd's client over TCP),
``healthy`` (real, 8 minutes), ``client`` (cost, and broken answers), ``servers`` (real), ``stragglers`` (recorded).
Each writes a section of ``docs/measurements.md``, and ends with 1 where something was not so.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import load
from measurements import write_section
from support import jobruns, jobsim
from support.findingruns import diagnose
from support.jobsim import JobSim
from support.ras import OPERATIONS, RasServer, answer_in_json, answer_in_text, job_of
from support.sessions import begin_session

from profd.daemon.clock import SECOND_NS
from profd.daemon.collectives.client import Address, NoAnswer, ask
from profd.daemon.collectives.desync import compare
from profd.daemon.collectives.status import BadAnswer, parse
from profd.daemon.findings.ranks import straggler
from profd.daemon.hangs.waits import Wait
from profd.daemon.session.session import RunningSession
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, HangReport

WITHIN_S = 45.0
GLOO_KINDS = ("mismatch", "checkpoint", "debugger", "loader", "killed", "skipped")
GLOO_SIZES = (2, 3, 4)
KINDS = ("mismatch", "checkpoint", "debugger", "loader", "killed", "link", "skipped")
SIZES = (2, 4, 8, 16, 32, 64)
HEALTHY_GLOO = ("compile", "evaluation", "uneven", "slow-start", "checkpointing", "none")
LONG_S = 50.0
"""How long a slow part of a healthy gloo job takes."""


class Told(NamedTuple):
    """What was said of a planted stop; ``wrong`` says what of it is not so, or is empty."""

    kind: str
    size: int
    after_s: float | None
    wrong: str
    text: str

    @property
    def is_right(self) -> bool:
        """Whether it was told in time, and nothing of it wrong."""
        return self.after_s is not None and self.after_s <= WITHIN_S and not self.wrong


# --- real jobs ------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A gloo job that runs: the shell that started the ranks, and what they print."""

    process: subprocess.Popen[str]
    folder: Path


@contextmanager
def gloo_job(kind: str, size: int, planted: int, seconds: float) -> Iterator[Job]:
    """Run a job; its ranks are children of a shell that keeps their standard input open."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        os.mkfifo(f"{name}/pipe")
        os.mkfifo(f"{name}/stdin")
        words = " ".join(load.command("desync", kind, planted, seconds, name))
        ranks = [f"RANK={rank} {words} <&3 2>{name}/{rank}.err &" for rank in range(size)]
        script = f"exec 3<>{name}/stdin; {' '.join(ranks)} wait"
        own = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **own}
        process = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment
        )
        try:
            yield Job(process, Path(name))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def stop_gloo(case: tuple[str, int]) -> Told:
    """Have a real job stop, and see what is said of it."""
    kind, size = case
    planted = size - 1
    with gloo_job(kind, size, planted, 0) as job:
        load.wait_ready(job.process)
        session = begin_session(job.process.pid, hang_after_s=30.0)
        assert job.process.stdout is not None
        stopped_ns = next(int(line.split()[1]) for line in job.process.stdout if line.startswith("stops "))
        pids = {rank.rank: rank.pid for rank in read_ranks(session) if rank.rank is not None}
        found = wait_for_hang(session, 70)
        session.end()
        session.wait_closed(60)
        if found is None:
            return Told(kind, size, None, "nothing was told", "")
        at_ns, text, report = found
    return Told(kind, size, (at_ns - stopped_ns) / SECOND_NS, judge(kind, size, planted, report, text, pids), text)


def read_ranks(session: RunningSession) -> list[jobsim.Named]:
    """Return the ranks that a run has."""
    with RunReader(session.run_file) as reader:
        return [jobsim.Named(row.rank, row.pid) for row in reader.processes.values() if row.role == "main"]


def wait_for_hang(session: RunningSession, within_s: float) -> tuple[int, str, HangReport] | None:
    """Return when a hang was told, and what was said; None where nothing was."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        with RunReader(session.run_file) as reader:
            if found := reader.hangs():
                return found[0].at_ns, found[0].text, found[0].report
        time.sleep(0.5)
    return None


OPERATION = {"mismatch": ("all_reduce", "broadcast", "all_gather"), "skipped": ("barrier", "all_reduce")}
PLACE = {
    "checkpoint": "save",
    "debugger": "desync.py",
    "loader": "desync.py",
    "killed": "",
    "mismatch": "",
    "skipped": "",
}


def judge(kind: str, size: int, planted: int, report: HangReport, text: str, pids: dict[int, int]) -> str:
    """Return what is wrong with a report of a real job; empty where all is right.

    Where two ranks wait in different collectives nobody can say which of them is wrong: then both are named.
    """
    named = {one.rank for one in report.behind}
    may_be = {0, 1} if size == 2 and kind in ("mismatch", "skipped") else {planted}
    if not named or named != may_be:
        return f"named {sorted(named, key=str)}, not {sorted(may_be)}"
    mine = next(one for one in report.behind if one.rank == planted)
    if mine.pid != pids[planted]:
        return f"pid {mine.pid}, not {pids[planted]}"
    if kind == "killed":
        # Its parent took its status, and may have done so before profd could read it.
        is_said = "SIGKILL" in mine.state or "ended" in mine.state
        return "" if is_said and "desync.py" in text else f"no end or no line: {mine.state}"
    if mine.operation not in OPERATION.get(kind, ("all_reduce",)):
        return f"operation {mine.operation}"
    return "" if "desync.py:" in mine.place and PLACE[kind] in mine.place else f"place {mine.place}"


def go_on_gloo(case: tuple[int, str]) -> list[str]:
    """Run a real job with a slow part, and return the alarms."""
    number, kind = case
    size = 2 + number % 3
    with gloo_job(kind, size, number % size, LONG_S) as job:
        session = begin_session(job.process.pid, hang_after_s=30.0)
        code = job.process.wait(400)
        session.wait_closed(60)
        if code != 0 or any(path.stat().st_size for path in job.folder.glob("*.err") if b"Error" in path.read_bytes()):
            sys.exit(f"{kind}: the job failed: {[path.read_text()[-300:] for path in job.folder.glob('*.err')]}")
        with RunReader(session.run_file) as reader:
            return [hang.text for hang in reader.hangs()]


# --- simulated jobs -------------------------------------------------------------------------------------------------


def stop_now(job: JobSim, kind: str, planted: int, chance: random.Random) -> None:
    """Have a job stop: the ranks wait as on GPUs, and the planted one does not come."""
    mine = job.ranks[planted]
    for rank in job.ranks:
        rank.wait_for_others()
    job.world.launch("AllReduce", but=[planted])
    if kind == "mismatch":
        job.world.ranks[planted].launch(chance.choice(OPERATIONS[:4]))
    elif kind == "checkpoint":
        mine.do(jobsim.SAVE, Wait("write", "writes /mnt/ckpt, uninterruptible (state D) in nfs_wait_bit_killable"), 0)
    elif kind == "debugger":
        mine.do(jobsim.DEBUGGER, Wait("terminal", "reads the terminal /dev/pts/1"), 0)
    elif kind == "loader":
        mine.do(jobsim.QUEUE, Wait("read", "reads a pipe; no process that we see holds its writing end"), 0.01)
    elif kind == "killed":
        job.kill(planted)
    elif kind == "link":
        job.world.ranks[planted].answers = False
    elif kind == "skipped":
        for rank in job.ranks:
            rank.do(jobsim.BARRIER)
        mine.do((jobsim.ROOT, Frame("wait_for_file", jobsim.TRAIN, 58)), Wait("lock", "a lock of /srv/x.lock"), 0)


async def stop_simulated(kind: str, size: int, seed: int) -> Told:
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
            return Told(kind, size, None, f"nothing was told: {job.notes()}", "")
        wrong, behind = "", found[0].report.behind
        if [one.rank for one in behind] != [planted] and not (kind == "mismatch" and size == 2):
            wrong = f"named {[one.rank for one in behind]}, not {planted}"
        else:
            mine = next(one for one in behind if one.rank == planted)
            wrong = "" if mine.pid == 1000 + planted and mine.operation else f"{mine}"
            wrong = wrong or ("" if "train.py:" in (found[0].text if kind == "killed" else mine.place) else "no line")
        return Told(kind, size, (found[0].at_ns - stopped_ns) / SECOND_NS, wrong, found[0].text)


Healthy = Callable[[JobSim, random.Random], Callable[[int], object]]


def _compile(job: JobSim, chance: random.Random) -> Callable[[int], object]:
    """Compile on some ranks: the stack changes; the others wait in a collective that they have launched."""
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
    """Restart as torchrun does: the processes are new, import, and make their communicator for a minute."""
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


# --- the client -----------------------------------------------------------------------------------------------------


def client_cost(size: int = 64, asks: int = 100) -> float:
    """Return the CPU seconds that one question takes, of this process alone, at a job of ``size`` ranks."""
    with subprocess.Popen(
        [sys.executable, __file__, "--serve", str(size)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        address = Address("127.0.0.1", int(server.stdout.readline()))
        before_s, status = time.process_time(), None
        for _ in range(asks):
            found = ask(address)
            compare(status, found)
            status = found
        used_s = time.process_time() - before_s
        server.kill()
    return used_s / asks


def fuzz(answers: int, seed: int = 1) -> tuple[int, int, float]:
    """Parse broken answers; return how many were taken, how many refused, and the longest seconds one took.

    Any other exception than BadAnswer ends the benchmark with its traceback.
    """
    chance = random.Random(seed)
    job = job_of(16, per_host=8)
    for _ in range(7):
        job.launch()
    job.launch("AllGather", but=[3])
    job.ranks[5].answers = False
    whole = [answer_in_json([job, job_of(8)]), answer_in_text([job], "2.27.7"), answer_in_text([job], "2.24.3")]
    taken = refused = 0
    longest_s, before = 0.0, parse(whole[0])
    for _ in range(answers):
        broken = mutate(chance, chance.choice(whole))
        begun_s = time.perf_counter()
        try:
            compare(before, parse(broken))
            taken += 1
        except BadAnswer:
            refused += 1
        longest_s = max(longest_s, time.perf_counter() - begun_s)
    return taken, refused, longest_s


def mutate(chance: random.Random, data: bytes) -> bytes:
    """Return an answer with something broken: bytes, lines, numbers, its end, or all."""
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at]
            case 2:
                data = data[:at] + chance.randbytes(chance.randrange(40)) + data[at:]
            case 3:
                lines = data.split(b"\n")
                chance.shuffle(lines)
                data = b"\n".join(lines)
            case 4:
                digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57] or [0]
                place = chance.choice(digits)
                data = (
                    data[:place]
                    + chance.choice((b"-1", b"99999999999999999999", b"1e9", b"", b"null"))
                    + data[place + 1 :]
                )
            case 5:
                data = data[:at] + data[at // 2 : at] + data[at:]
            case _:
                word = chance.choice(
                    (b'"rank"', b'"pid"', b"Rank", b"ranks have", b"true", b"{", b"[", b"Communicators...")
                )
                data = data.replace(word, chance.choice((b"", b'"x"', word * 2)), 3)
        data = data or b"\n"
    return data


def fuzz_wire(answers: int, seed: int = 2) -> tuple[int, int, float]:
    """Ask a server over TCP that gives broken answers; return as ``fuzz`` does."""
    chance = random.Random(seed)
    whole = answer_in_json([job_of(16)])
    taken = refused = 0
    longest_s = 0.0
    with RasServer([]) as server:
        server.answer = lambda: mutate(chance, whole)
        for _ in range(answers):
            begun_s = time.perf_counter()
            try:
                ask(Address("127.0.0.1", server.port))
                taken += 1
            except NoAnswer:
                refused += 1
            longest_s = max(longest_s, time.perf_counter() - begun_s)
    return taken, refused, longest_s


# --- servers --------------------------------------------------------------------------------------------------------


def serve(metrics: bool, idle_s: float) -> tuple[list[str], float | None, str]:
    """Run the server idle, then wedge its engine; return the alarms while idle, and after how long that was told."""
    process = subprocess.Popen(load.command("serving"), stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        load.wait_ready(process)
        session = begin_session(process.pid, hang_after_s=30.0, server_metrics=port if metrics else None)
        get(port, "/generate")
        time.sleep(idle_s)
        with RunReader(session.run_file) as reader:
            alarms = [hang.text for hang in reader.hangs()]
        wedged_ns = time.time_ns()
        with suppress(TimeoutError):
            get(port, "/wedge", within_s=0.5)
        found = wait_for_hang(session, 75) if metrics else None
        session.end()
        session.wait_closed(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return alarms, (found[0] - wedged_ns) / SECOND_NS if found else None, found[1] if found else ""


def get(port: int, path: str, within_s: float = 30.0) -> None:
    """Ask the server for a page."""
    with socket.create_connection(("127.0.0.1", port), within_s) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        while connection.recv(4096):
            pass


def part_servers(jobs: int, *, quick: bool) -> tuple[list[str], bool]:
    """Run a real server idle, with and without its metrics, and wedge it."""
    idle_s = 45.0 if quick else 150.0
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda metrics: serve(metrics, idle_s), (False, True, True)))
    alarms = [text for one, _, _ in found for text in one]
    told = [after_s for _, after_s, _ in found[1:]]
    print(found, flush=True)
    lines = [
        f"An asyncio server with its own engine, idle for {idle_s:g} s: {len(found)} runs, alarms: {len(alarms)}. "
        f"With one request at which the engine waits for ever, `--server-metrics` given: told after "
        f"{', '.join('never' if after_s is None else f'{after_s:.0f} s' for after_s in told)}."
    ]
    return lines, not alarms and all(after_s is not None and after_s <= 60 for after_s in told)


# --- stragglers -----------------------------------------------------------------------------------------------------


def part_stragglers(_: int, *, quick: bool) -> tuple[list[str], bool]:
    """Have ranks of recorded jobs be slow in backward, on GPUs or not, by the readings alone; and none."""
    chance, named, wrong, blamed = random.Random(4), 0, 0, 0
    runs = 4 if quick else 20
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2 * runs):
            size, has_gpu, is_healthy = chance.choice((2, 3, 4, 8)), number % 2 == 0, number >= runs
            slow = None if is_healthy else chance.randrange(size)
            surplus = chance.uniform(0.15, 0.4)
            ranks = [straggling(chance, surplus if rank == slow else 0.0, has_gpu=has_gpu) for rank in range(size)]
            devices = [jobruns.gpu_seen(rank) for rank in range(size)] if has_gpu else []
            found = diagnose(
                jobruns.write_job(Path(folder) / f"{number}.profd", *ranks, seconds=60, more=devices), straggler
            )
            rank = found.evidence.selection.rank if found else None
            named += slow is not None and rank == slow
            wrong += slow is not None and rank is not None and rank != slow
            blamed += is_healthy and rank is not None
    lines = [
        f"Recorded jobs of 2 to 8 ranks (readings made up: CPU time, or the GPUs' multiprocessors at work), one rank "
        f"slow in backward by 15 to 40 % of a step: named in {named} of {runs}, another in {wrong}. Healthy: {runs}, "
        f"with a rank named: {blamed}."
    ]
    return lines, named == runs and not wrong and not blamed


def straggling(chance: random.Random, surplus: float, *, has_gpu: bool) -> jobruns.Rank:
    """Return a rank that works longer in backward by a share of a step; its readings vary as real ones do."""
    forward = 100 + chance.randrange(-8, 9)
    base = 0.42 if has_gpu else 0.35
    values = [min(max(base + surplus + chance.gauss(0, 0.05), 0.0), 1.0) for _ in range(60)]
    work = ((jobruns.LOAD, 100), (jobruns.FORWARD, forward))
    if has_gpu:
        return jobruns.Rank(*work, cores=1.0, active=values)
    return jobruns.Rank(*work, cores=statistics.fmean(values))


# --- parts ----------------------------------------------------------------------------------------------------------


def table(told: Sequence[Told]) -> list[str]:
    """Return the rows on planted stops."""
    lines = ["| planted | jobs | told right in time | after s, median | slowest |", "|---|---:|---:|---:|---:|"]
    for kind in dict.fromkeys(one.kind for one in told):
        mine = [one for one in told if one.kind == kind]
        after_s = [one.after_s for one in mine if one.after_s is not None] or [float("nan")]
        right = sum(one.is_right for one in mine)
        lines.append(f"| {kind} | {len(mine)} | {right} | {statistics.median(after_s):.1f} | {max(after_s):.1f} |")
    return lines


def show(one: Told) -> Told:
    """Print what was told of a stop."""
    print(f"{one.kind} {one.size}: {one.after_s or float('nan'):.1f} s {one.wrong or 'right'}: {one.text}", flush=True)
    return one


def part_gloo(jobs: int, *, quick: bool) -> tuple[list[str], bool]:
    """Plant stops in real jobs."""
    cases = [(kind, size) for kind in GLOO_KINDS for size in (GLOO_SIZES[:1] if quick else GLOO_SIZES)]
    with ThreadPoolExecutor(jobs) as pool:
        told = list(map(show, pool.map(stop_gloo, cases)))
    return table(told), all(one.is_right for one in told)


def part_healthy(jobs: int, *, quick: bool) -> tuple[list[str], bool]:
    """Run real jobs that are healthy."""
    cases = list(enumerate(HEALTHY_GLOO * (1 if quick else 2)))
    alarms = 0
    with ThreadPoolExecutor(jobs) as pool:
        for (_, kind), found in zip(cases, pool.map(go_on_gloo, cases), strict=True):
            print(f"{kind}: {'; '.join(found) or 'no alarm'}", flush=True)
            alarms += len(found)
    return [f"Healthy gloo jobs of 2 to 4 ranks, slow for {LONG_S:g} s: {len(cases)}, alarms: {alarms}."], alarms == 0


def part_simulated(_: int, *, quick: bool) -> tuple[list[str], bool]:
    """Plant stops in simulated jobs, and run healthy ones."""
    sizes = SIZES[:2] if quick else SIZES
    cases = [(kind, size, seed) for seed, kind in enumerate(KINDS) for size in sizes]
    told = [show(asyncio.run(stop_simulated(kind, size, seed + size))) for kind, size, seed in cases]
    alarms = asked = runs = 0
    for seed in range(16 if quick else 192):
        kind, size = list(HEALTHY)[seed % len(HEALTHY)], SIZES[seed // len(HEALTHY) % len(SIZES)]
        found, questions = asyncio.run(go_on_simulated(kind, size, seed))
        if found:
            print(f"healthy {kind} {size}: {found}", flush=True)
        alarms, asked, runs = alarms + len(found), asked + questions, runs + 1
    lines = [
        *table(told),
        "",
        f"Healthy simulated jobs: {runs}, alarms: {alarms}; RAS was asked {asked} times in them.",
    ]
    return lines, all(one.is_right for one in told) and not alarms


def part_client(_: int, *, quick: bool) -> tuple[list[str], bool]:
    """Measure the client's cost, and give it broken answers."""
    cost_s = client_cost()
    taken, refused, longest_s = fuzz(1_000 if quick else 100_000)
    wire_taken, wire_refused, wire_s = fuzz_wire(200 if quick else 5_000)
    share = cost_s / 10.0
    lines = [
        f"One question on a job of 64 ranks: {1e3 * cost_s:.2f} ms of CPU time. Every 10 s, as `--nccl-ras poll` asks: "
        f"{100 * share:.3f} % of a core; otherwise it is asked in a hang alone.",
        "",
        f"Broken answers parsed: {taken + refused}, no traceback; {taken} were taken as a status, the longest took "
        f"{1e3 * longest_s:.1f} ms. Over TCP: {wire_taken + wire_refused}, the longest {1e3 * wire_s:.1f} ms.",
    ]
    return lines, share <= 0.001


PARTS = {
    "gloo": part_gloo,
    "healthy": part_healthy,
    "simulated": part_simulated,
    "client": part_client,
    "servers": part_servers,
    "stragglers": part_stragglers,
}


def main() -> int:
    """Run the parts, and write their sections; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    parser.add_argument("--jobs", type=int, default=3, help="real jobs at once [3]")
    parser.add_argument("--quick", action="store_true", help="few of each, written nowhere")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        with RasServer([job_of(options.serve)]) as server:
            print(server.port, flush=True)
            signal.pause()
    is_right = True
    with tempfile.TemporaryDirectory() as home:
        os.environ["PROFD_HOME"] = home
        for name in options.part or PARTS:
            lines, held = PARTS[name](options.jobs, quick=options.quick)
            print("\n".join(lines), flush=True)
            is_right = is_right and held
            if not options.quick:
                write_section(f"Collectives: {name}", f"`benchmarks/collectives.py --part {name}`.", lines)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
