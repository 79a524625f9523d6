"""What RAS says, and that broken answers are refused."""

from __future__ import annotations

import json

import pytest
from support.ras import FakeCommunicator, answer_in_json, job_of

from profd.daemon.collectives.status import CHANGING, DEAD, BadAnswer, parse


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
    assert (one.size, len(one.ranks)) == (8, 8)
    assert (by_rank[2].state, by_rank[3].state) == (DEAD, CHANGING)
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
