"""Finds the running training processes that profd could be attached to.

Looks at /proc alone and reads no byte of anyone's memory; whether an attach will work in the end is ``diagnosis``'s
to say.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.secrets import mask_command

TORCH_LIBRARY = "/libtorch"
"""Stands in the maps of a process that has PyTorch loaded."""


class Attachable(msgspec.Struct, frozen=True):
    """A Python process of this user; ``uses_torch`` where it has PyTorch loaded. Secrets in ``command`` are masked."""

    pid: int
    python: str
    uses_torch: bool
    age_s: float
    command: tuple[str, ...]


def find_attachable() -> list[Attachable]:
    """Return the processes worth attaching to: those with PyTorch first, then the youngest first.

    A process below another one is left out, as workers are, unless it alone of the two has PyTorch loaded.
    """
    found = {process.pid: process for process in map(_look_at, _own_pids()) if process is not None}
    worth = [process for process in found.values() if not _is_covered(process, found)]
    return sorted(worth, key=lambda process: (not process.uses_torch, process.age_s))


def _own_pids() -> list[int]:
    """Return the PIDs of this user's processes, all users' for root; this process is not among them."""
    uid = os.geteuid()
    return [pid for pid in processes.pids() if pid != os.getpid() and (uid == 0 or processes.owner_uid(pid) == uid)]


def _look_at(pid: int) -> Attachable | None:
    """Return what is to be said of a process; None where it is no Python, profd's own, or gone."""
    version = processes.python_version(pid)
    stat = processes.read_stat(pid)
    words = processes.command_line(pid)
    if version is None or stat is None or not stat.is_running or is_profd(words):
        return None
    return Attachable(
        pid=pid,
        python=version,
        uses_torch=_has_torch(pid),
        age_s=stat.age_s,
        command=mask_command(words),
    )


def is_profd(words: tuple[str, ...]) -> bool:
    """Say whether a command is profd itself: its command line or its recorder."""
    if any(Path(word).name == "profd" for word in words[:2]):
        return True
    return any(flag == "-m" and module.split(".")[0] == "profd" for flag, module in itertools.pairwise(words))


def _has_torch(pid: int) -> bool:
    """Say whether a process has a library of PyTorch's mapped."""
    return TORCH_LIBRARY in processes.maps(pid)


def _is_covered(process: Attachable, found: dict[int, Attachable]) -> bool:
    """Say whether attaching to the parent of a process shows it as well, and is what is meant."""
    stat = processes.read_stat(process.pid)
    parent = found.get(stat.ppid) if stat else None
    return parent is not None and (parent.uses_torch or not process.uses_torch)
