"""Says what a process of the tree is there for, from its command, its place and what its stacks show. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from profd.daemon.naming import is_launcher
from profd.daemon.store.records import Frame

MAIN, WORKER, HELPER, LAUNCHER = "main", "worker", "helper", "launcher"

_HELPER_COMMAND = re.compile(
    r"multiprocessing[.](resource_tracker|semaphore_tracker|forkserver)|_inductor.compile_worker"
)
_OPTIONS_WITH_A_WORD = ("-X", "-W", "--check-hash-based-pycs")
# (function without its class, end of the file's path): the loop that a worker process stands in all its life.
_WORKER_LOOPS = (
    ("_worker_loop", "torch/utils/data/_utils/worker.py"),
    ("worker", "multiprocessing/pool.py"),
    ("_process_worker", "concurrent/futures/process.py"),
)


def role_of(command: Sequence[str], is_python: bool, parent_role: str | None) -> str:
    """Return the role of a process as far as its command and its parent's role tell.

    ``parent_role`` is None for the root of the tree. A Python below a training process starts as a helper: only its
    stacks can say that it is a worker (see ``is_worker``).
    """
    if not is_python:
        return LAUNCHER if parent_role in (None, LAUNCHER) else HELPER
    if _HELPER_COMMAND.search(" ".join(command)):
        return HELPER
    if is_launcher(_program(command)):
        return LAUNCHER
    return MAIN if parent_role in (None, LAUNCHER) else HELPER


def is_worker(stacks: Collection[Sequence[Frame]]) -> bool:
    """Say whether stacks are those of a worker process."""
    return any(
        frame.function.rpartition(".")[2] == function and frame.file.endswith(file)
        for stack in stacks
        for frame in stack
        for function, file in _WORKER_LOOPS
    )


def _program(command: Sequence[str]) -> str:
    """Return the script or the module that a command line of Python names; empty where it names none."""
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word == "-c" or not word.startswith("-"):
            return "" if word == "-c" else word
        if word in _OPTIONS_WITH_A_WORD:
            next(words, None)
    return ""


def next_ordinal(taken: Collection[int | None]) -> int:
    """Return the lowest number from 1 that no living sibling has: an epoch's new workers take those of the last."""
    number = 1
    while number in taken:
        number += 1
    return number
