"""What RAS says, in JSON and in text, and that broken answers are refused."""

from __future__ import annotations

import json

import pytest
from support.ras import FakeCommunicator, answer_in_json, answer_in_text, job_of

from profd.daemon.collectives.status import DEAD, INIT, BadAnswer, parse

# From docs/userguide/source/troubleshooting/ras.rst of NCCL 2.30.7, put together and cut to what is
# read.
FROM_THE_MANUAL = b"""NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE,MISMATCH

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  29 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 (NVML 4) managed by process 483074 on node 172.16.64.210
"""


def job() -> FakeCommunicator:
    world = job_of(8, per_host=4)
    for _ in range(5):
        world.launch()
    world.launch("Broadcast", but=[6])
    return world


def test_json_has_the_counts_of_each_rank() -> None:
    world = job()
    world.ranks[2].answers, world.ranks[2].is_dead, world.ranks[3].init_state = False, True, 7
    status = parse(answer_in_json([world]))
    (one,) = status.communicators
    by_rank = {rank.rank: rank for rank in one.ranks}
    assert (status.version, status.has_counts, one.size, len(one.ranks)) == ("2.30.7", True, 8, 8)
    assert (by_rank[2].state, by_rank[3].state) == (DEAD, INIT)
    assert (by_rank[6].counts["Broadcast"], by_rank[7].counts["AllReduce"], by_rank[7].host) == (
        0,
        5,
        "10.0.0.2",
    )


def test_ranks_of_the_job_are_those_of_the_communicator_of_all() -> None:
    world, half = job(), FakeCommunicator(job_of(8).ranks[4:], hash=7)
    for number, rank in enumerate(half.ranks):
        rank.rank, rank.host = number, "10.0.0.2"
    ranks = parse(answer_in_json([half, world])).world_ranks()
    assert ranks["10.0.0.2", 1006] == 6
    assert len(ranks) == 8
    assert parse(answer_in_json([half])).world_ranks()["10.0.0.2", 1006] == 2


@pytest.mark.parametrize("version", ["2.24.3", "2.27.7"])
def test_text_has_the_ranks_that_differ(version: str) -> None:
    (one,) = parse(answer_in_text([job()], version)).communicators
    operation = "collective" if version == "2.24.3" else "Broadcast"
    assert [(rank.rank, rank.pid) for rank in one.ranks if rank.pid] == [(6, 1006)]
    counts = {rank.rank: rank.counts[operation] for rank in one.ranks}
    assert len(counts) == one.size == 8
    assert (counts[6] + 1, counts[0]) == (counts[5], counts[7])


def test_text_of_ncclras_as_its_manual_shows_it() -> None:
    status = parse(FROM_THE_MANUAL)
    (one,) = status.communicators
    by_rank = {rank.rank: rank for rank in one.ranks}
    assert (one.size, len(by_rank), by_rank[1].counts, by_rank[1].pid) == (
        32,
        32,
        {"AllReduce": 6650},
        0,
    )
    assert by_rank[21].state == DEAD
    assert (by_rank[2].counts, by_rank[2].pid) == ({"AllReduce": 6649}, 483074)


def test_text_that_finds_nothing_says_nothing_of_counts() -> None:
    status = parse(answer_in_text([job_of(4)]))
    assert (status.has_counts, status.communicators) == (False, ())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"hello",
        b"{",
        b'{"nccl_version": "2.30.7"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        answer_in_json([job_of(2)]).replace(b'"size": 2', b'"size": 1'),
        answer_in_json([job_of(2)]).replace(b'"rank": 1', b'"rank": 0'),
        answer_in_json([job_of(2)]).replace(b'"rank": 1', b'"rank": -1'),
        answer_in_json([job_of(2)]).replace(b'"pid": 1001', b'"pid": 1e99'),
    ],
)
def test_what_cannot_be_is_refused(answer: bytes) -> None:
    with pytest.raises(BadAnswer):
        parse(answer)


def test_a_process_that_nccl_has_lost_has_no_pid() -> None:
    answer = json.loads(answer_in_json([job_of(2)]))
    answer["communicators"][0]["ranks"][1].update(pid=-1, host="unknown", status=None)
    (one,) = parse(json.dumps(answer).encode()).communicators
    assert one.ranks[1].pid == 0
