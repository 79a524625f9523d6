"""Which rank a process is, by its environment."""

from __future__ import annotations

import pytest

from profd.daemon.store.records import Placement
from profd.daemon.tree.roles import VARIABLES, in_words, placement_of

TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "GROUP_RANK": "1", "WORLD_SIZE": "8"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "8"}
MPICH = {"PMI_RANK": "5", "MPI_LOCALRANKID": "1", "PMI_SIZE": "8"}
SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_NTASKS": "8"}
MEETING = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
RUN_ID = {"TORCHELASTIC_RUN_ID": "nightly"}
SLURM_STEP = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2"}
AGENT_OF_SLURM = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_NTASKS": "2"}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (TORCHRUN, Placement(5, 1, 1, 8)),
        (OPEN_MPI, Placement(5, 1, None, 8)),
        (MPICH, Placement(5, 1, None, 8)),
        (SLURM, Placement(5, 1, 1, 8)),
        (TORCHRUN | AGENT_OF_SLURM, Placement(5, 1, 1, 8)),
        (OPEN_MPI | AGENT_OF_SLURM, Placement(5, 1, None, 8)),
        (MPICH | AGENT_OF_SLURM, Placement(5, 1, None, 8)),
        ({"RANK": "3"}, Placement(3)),
        ({"RANK": "3", "WORLD_SIZE": "4 "}, Placement(3)),
        ({"RANK": "", "PMI_RANK": "2"}, Placement(2)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "8"}, None),
        ({"RANK": "-1"}, None),
        ({"RANK": "²"}, None),
        ({"RANK": "1\n"}, None),
        ({"RANK": "9" * 5000}, None),
        ({}, None),
    ],
)
def test_place_is_what_the_nearest_launcher_wrote(environment: dict[str, str], place: Placement | None) -> None:
    assert placement_of(environment) == place


def test_nothing_else_of_an_environment_is_asked_for() -> None:
    assert {*TORCHRUN, *OPEN_MPI, *MPICH, *SLURM, *MEETING, *RUN_ID, *SLURM_STEP} == VARIABLES


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        (MEETING, "10.0.0.1:29500"),
        (MEETING | {"TORCHELASTIC_RUN_ID": "none"}, "10.0.0.1:29500"),
        (MEETING | RUN_ID, "nightly"),
        (SLURM_STEP, "4711.2"),
        (SLURM_STEP | MEETING, "10.0.0.1:29500"),
        (SLURM_STEP | RUN_ID, "nightly"),
        ({"SLURM_JOB_ID": "4711"}, "4711"),
        ({"MASTER_ADDR": "10.0.0.1"}, None),
        ({"TORCHELASTIC_RUN_ID": "a b"}, None),
        ({"TORCHELASTIC_RUN_ID": "x" * 5000}, None),
        ({}, None),
    ],
)
def test_job_is_what_all_its_ranks_are_told_alike(environment: dict[str, str], job: str | None) -> None:
    place = placement_of(TORCHRUN | environment)

    assert place is not None
    assert place.job == job


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Placement(5, 1, 1, 8), "rank 5 of 8, local rank 1 on node 1"),
        (Placement(5, 1, None, 8), "rank 5 of 8, local rank 1"),
        (Placement(3), "rank 3"),
    ],
)
def test_a_place_is_said_as_far_as_it_is_known(place: Placement, words: str) -> None:
    assert in_words(place) == words
