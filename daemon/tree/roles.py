"""Tell what a process of the tree is for (main, worker, helper), and its rank in the job."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence

from profd.daemon.frameworks.frames import any_means
from profd.daemon.naming import is_launcher, is_profd, starts_script
from profd.daemon.store.records import Frame, Placement

MAIN, WORKER, HELPER, LAUNCHER = "main", "worker", "helper", "launcher"

_TRACKER = re.compile(r"multiprocessing[.](resource|semaphore)_tracker")
_HELPER = re.compile(rf"{_TRACKER.pattern}|multiprocessing[.]forkserver|_inductor.compile_worker")


def role_of(command: Sequence[str], is_python: bool, parent_role: str | None) -> str:
    """Return the role of a process by its command and its parent's role.

    ``parent_role`` is None for the root of the tree. A Python below a training process starts as a
    helper: only its stacks can show that it is a worker (see ``is_worker``), or that it trains
    (``is_training``).
    """
    if not is_python:
        return LAUNCHER if parent_role in (None, LAUNCHER) else HELPER
    # What a forkserver starts has its command line: a process that profd was attached to is no
    # helper.
    if parent_role is not None and _HELPER.search(" ".join(command)):
        return HELPER
    if is_launcher(_program(command)) or (
        starts_script(command) and parent_role in (None, LAUNCHER)
    ):
        return LAUNCHER
    if parent_role is not None and is_profd(command):
        return HELPER
    return MAIN if parent_role in (None, LAUNCHER) else HELPER


def only_waits(command: Sequence[str]) -> bool:
    """Return whether a process of multiprocessing only waits for others to end."""
    return _TRACKER.search(" ".join(command)) is not None


def is_worker(stacks: Collection[Sequence[Frame]]) -> bool:
    """Return whether the stacks are those of a worker process."""
    return any(any_means(stack, "worker loop") for stack in stacks)


def starts_workers(stacks: Collection[Sequence[Frame]]) -> bool:
    """Return whether the stacks show a DataLoader that starts the processes of its workers."""
    return any(
        any_means(stack[-1:], "child process") and any_means(stack, "starts workers")
        for stack in stacks
    )


def is_training(stacks: Collection[Sequence[Frame]]) -> bool:
    """Return whether the stacks show a backward pass of a framework."""
    return any(any_means(stack, "backward") for stack in stacks)


def is_spawned_rank(stacks: Collection[Sequence[Frame]]) -> bool:
    """Return whether the stacks show a rank that ``torch.multiprocessing.spawn`` started.

    Such a process is one of a group.
    """
    return any(any_means(stack, "spawned") and any_means(stack, "of a rank") for stack in stacks)


def _program(command: Sequence[str]) -> str:
    """Return the script or the module that a command line of Python names.

    Returns an empty text if it names none.
    """
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word == "-c" or not word.startswith("-"):
            return "" if word == "-c" else word
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(words, None)
    return ""


def next_ordinal(taken: Collection[int | None]) -> int:
    """Return the lowest number from 1 that no living sibling has.

    The new workers of an epoch take the numbers of those of the last epoch.
    """
    return next(number for number in itertools.count(1) if number not in taken)


# Each launcher's variables for rank, local rank, node and world size; an empty name means that it
# sets none. The launcher nearest to the process comes first: torchrun or mpirun within a Slurm job
# gives each node's agent a number of Slurm's, and all ranks of the node inherit it.
_LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS"),
)

_JOB_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
)
_WORD = re.compile(r"[!-~]{1,128}")

VARIABLES = frozenset({name for names in (*_LAUNCHERS, _JOB_VARIABLES) for name in names if name})
"""All variables that are read of an environment."""


def placement_of(environment: Mapping[str, str]) -> Placement | None:
    """Return the placement from the variables of the nearest launcher, or None if there is none."""
    for names in _LAUNCHERS:
        rank, local_rank, node, world_size = (
            int(word) if re.fullmatch(r"[0-9]{1,6}", word := environment.get(name, "")) else None
            for name in names
        )
        if rank is not None:
            return Placement(rank, local_rank, node, world_size, _job(environment))
    return None


def in_words(place: Placement) -> str:
    """Return the place of a process in its job: ``rank 5 of 8, local rank 1 on node 1``."""
    words = f"rank {place.rank}" + ("" if place.world_size is None else f" of {place.world_size}")
    words += "" if place.local_rank is None else f", local rank {place.local_rank}"
    return words if place.node is None else f"{words} on node {place.node}"


def _job(environment: Mapping[str, str]) -> str | None:
    """Return an id that all ranks of a job have in common, and no other process.

    Returns None if the variables do not say.

    Several training runs may be in one Slurm job, so the job's number comes last.
    """
    run_id, address, port, job, step = (
        word if _WORD.fullmatch(word := environment.get(name, "")) else None
        for name in _JOB_VARIABLES
    )
    if run_id not in (None, "none"):  # torchrun writes "none" if no id was given
        return run_id
    if address is not None and port is not None:
        return f"{address}:{port}"
    return f"{job}.{step}" if job is not None and step is not None else job
