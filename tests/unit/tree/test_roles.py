"""What a process is there for, from its words and its stacks."""

from __future__ import annotations

import pytest
from support.present import there
from support.training_stacks import CONV, DEFORM, PIN_MEMORY

from profd.daemon.store.records import Frame, Placement
from profd.daemon.tree import roles
from profd.daemon.tree.roles import (
    HELPER,
    LAUNCHER,
    MAIN,
    VARIABLES,
    in_words,
    placement_of,
    role_of,
)

PYTHON = "/opt/venv/bin/python3"
TRAIN = (PYTHON, "train.py", "--epochs", "2")


@pytest.mark.parametrize(
    "words",
    [
        (PYTHON, "/opt/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"),
        (PYTHON, "torchrun", "train.py"),
        (PYTHON, "-u", "/opt/venv/bin/accelerate", "launch", "train.py"),
        (PYTHON, "/opt/venv/bin/deepspeed", "train.py"),
        (PYTHON, "-m", "torch.distributed.run", "train.py"),
        (PYTHON, "-X", "dev", "-W", "ignore", "-m", "torch.distributed.launch", "train.py"),
        (PYTHON, "-m", "accelerate.commands.launch", "train.py"),
    ],
)
def test_launchers_start_others(words: tuple[str, ...]) -> None:
    assert roles.role_of(words, True, None) == roles.LAUNCHER


@pytest.mark.parametrize(
    "words",
    [
        TRAIN,
        (PYTHON, "train.py", "--output", "/runs/accelerate", "--mode", "torchrun"),
        (PYTHON, "train.py", "-m", "torch.distributed.run"),
        (PYTHON, "-m", "accelerated_training"),
        (PYTHON, "-X", "torchrun", "train.py"),
        (PYTHON, "-c", "import train"),
        (PYTHON, "-c", "torchrun"),
        (PYTHON, "-m"),
        (PYTHON, "-X"),
        (PYTHON,),
        (),
    ],
)
@pytest.mark.parametrize("parent", [None, roles.LAUNCHER])
def test_what_a_launcher_starts_trains(words: tuple[str, ...], parent: str | None) -> None:
    assert roles.role_of(words, True, parent) == roles.MAIN


@pytest.mark.parametrize("parent", [None, roles.LAUNCHER, roles.MAIN, roles.WORKER, roles.HELPER])
def test_a_shell_on_the_way_launches_and_what_the_training_starts_helps(parent: str | None) -> None:
    is_outside = parent in (None, roles.LAUNCHER)
    assert roles.role_of(("bash", "train.sh"), False, parent) == (
        roles.LAUNCHER if is_outside else roles.HELPER
    )
    assert roles.role_of(TRAIN, True, parent) == (roles.MAIN if is_outside else roles.HELPER)


def test_trackers_of_multiprocessing_only_wait() -> None:
    assert roles.only_waits(
        (PYTHON, "-c", "from multiprocessing.resource_tracker import main;main(20)")
    )
    assert roles.only_waits(
        (PYTHON, "-c", "from multiprocessing.semaphore_tracker import main;main(4)")
    )
    assert not roles.only_waits(
        (PYTHON, "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9)")
    )
    assert not roles.only_waits(TRAIN)


HELPERS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "torch._inductor.compile_worker.__main__",
)


@pytest.mark.parametrize("module", HELPERS)
def test_helpers_of_the_library_train_only_where_profd_was_attached_to_one(module: str) -> None:
    words = (PYTHON, "-c", f"from {module} import main;main(5)")
    for parent, role in (
        (roles.LAUNCHER, roles.HELPER),
        (roles.MAIN, roles.HELPER),
        (None, roles.MAIN),
    ):
        assert roles.role_of(words, True, parent) == role


def test_the_loop_of_a_data_loader_alone_makes_a_worker() -> None:
    assert roles.is_worker([CONV, DEFORM])
    assert not roles.is_worker([CONV, PIN_MEMORY])
    assert not roles.is_worker([])
    assert not roles.is_worker([()])
    assert not roles.is_worker([[Frame("worker", "/home/ada/train.py", 3)]])
    assert roles.is_worker([[Frame("worker", "/usr/lib/python3.11/multiprocessing/pool.py", 125)]])


def test_a_process_of_multiprocessing_below_a_loaders_start_shows_that_it_starts_workers() -> None:
    start = Frame("DataLoader._get_iterator", "/venv/torch/utils/data/dataloader.py", 435)
    launch = Frame("Popen._launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 66)
    begin = Frame("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)
    assert roles.starts_workers([CONV, (*CONV[:3], start, launch)])
    # A spawned rank whose loader has no workers, and a process that the script starts.
    assert not roles.starts_workers([(launch, begin, *CONV[:3], start)])
    assert not roles.starts_workers([(*CONV[:3], launch), (*CONV[:3], start)])


def test_a_spawned_process_is_a_rank_where_it_trains_with_others() -> None:
    spawned = Frame("_wrap", "/venv/torch/multiprocessing/spawn.py", 95)
    for in_group in (
        Frame("DistributedDataParallel.forward", "/venv/torch/nn/parallel/distributed.py", 1700),
        Frame("forward", "/venv/torch/distributed/fsdp/fully_sharded_data_parallel.py", 860),
        Frame("wrapper", "/venv/torch/distributed/c10d_logger.py", 81),
    ):
        assert roles.is_spawned_rank(
            [CONV, (spawned, Frame("train", "/home/ada/train.py", 3), in_group)]
        )
        assert not roles.is_spawned_rank([(spawned, *CONV), (in_group, *CONV)])
    assert not roles.is_spawned_rank([(spawned, *CONV)])


def test_ordinals_of_the_dead_are_given_again_and_little_of_an_environment_is_asked_for() -> None:
    assert roles.next_ordinal([]) == 1
    assert roles.next_ordinal([None, 1, 3]) == 2
    assert roles.next_ordinal([1, 2]) == 3
    assert {*TORCHRUN, *OPEN_MPI, *MPICH, *SLURM, *MEETING, *RUN_ID, *SLURM_STEP} == VARIABLES


TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "GROUP_RANK": "1", "WORLD_SIZE": "8"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "8",
}
MPICH = {"PMI_RANK": "5", "MPI_LOCALRANKID": "1", "PMI_SIZE": "8"}
SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_NTASKS": "8"}
MEETING = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
RUN_ID = {"TORCHELASTIC_RUN_ID": "nightly"}
SLURM_STEP = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2"}
AGENT_OF_SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "2",
}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        *(
            (TORCHRUN, Placement(5, 1, 1, 8)),
            (OPEN_MPI, Placement(5, 1, None, 8)),
            (MPICH, Placement(5, 1, None, 8)),
        ),
        *((SLURM, Placement(5, 1, 1, 8)), (TORCHRUN | AGENT_OF_SLURM, Placement(5, 1, 1, 8))),
        *(
            (OPEN_MPI | AGENT_OF_SLURM, Placement(5, 1, None, 8)),
            (MPICH | AGENT_OF_SLURM, Placement(5, 1, None, 8)),
        ),
        *(({"RANK": "3"}, Placement(3)), ({"RANK": "3", "WORLD_SIZE": "4 "}, Placement(3))),
        *(
            ({"RANK": "", "PMI_RANK": "2"}, Placement(2)),
            ({"LOCAL_RANK": "1", "WORLD_SIZE": "8"}, None),
        ),
        *(
            ({"RANK": "-1"}, None),
            ({"RANK": "²"}, None),
            ({"RANK": "1\n"}, None),
            ({"RANK": "9" * 5000}, None),
        ),
        ({}, None),
    ],
)
def test_place_is_what_the_nearest_launcher_wrote(
    environment: dict[str, str], place: Placement | None
) -> None:
    assert placement_of(environment) == place


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
def test_the_job_is_the_value_that_all_its_ranks_share(
    environment: dict[str, str], job: str | None
) -> None:
    assert there(placement_of(TORCHRUN | environment)).job == job


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


def test_a_profd_within_a_run_is_no_training_and_what_it_starts_is() -> None:
    inner = ("python", "/venv/bin/profd", "run", "--", "python", "train.py")
    assert [role_of(inner, True, above) for above in (None, LAUNCHER, MAIN)] == [
        LAUNCHER,
        LAUNCHER,
        HELPER,
    ]
    for words in (
        ("python", "-m", "profd.daemon.session"),
        ("python", "-I", "/venv/lib/profd/daemon/asuser.py", "3"),
    ):
        assert [role_of(words, True, above) for above in (LAUNCHER, HELPER)] == [HELPER, HELPER]
    assert role_of(("python", "train.py"), True, LAUNCHER) == MAIN
    assert role_of(("python", "/venv/bin/profd", "view", "latest"), True, None) == MAIN
