"""What a question to NCCL RAS costs profd, and what it makes of broken answers."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from support.ras import RasServer, answer_in_json, job_of

from profd.daemon.collectives.client import Address, NoAnswer, ask
from profd.daemon.collectives.desync import compare
from profd.daemon.collectives.status import BadAnswer, parse


def client_cost(size: int = 64, asks: int = 100) -> float:
    """Return the CPU seconds that one question takes, of this process alone, at a job of ``size``
    ranks.
    """
    words = [sys.executable, str(Path(__file__).with_name("collectives.py")), "--serve", str(size)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
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
    """Parse broken answers.

    Return how many were taken, how many refused, and the longest seconds one took.

    Any other exception than BadAnswer ends the benchmark with its traceback.
    """
    chance = random.Random(seed)
    job = job_of(16, per_host=8)
    for _ in range(7):
        job.launch()
    job.launch("AllGather", but=[3])
    job.ranks[5].answers = False
    whole = answer_in_json([job, job_of(8)])
    taken = refused = 0
    longest_s, before = 0.0, parse(whole)
    for _ in range(answers):
        broken = mutate(chance, whole)
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
                    (
                        b'"rank"',
                        b'"pid"',
                        b"true",
                        b"{",
                        b"[",
                    )
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
