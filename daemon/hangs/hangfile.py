"""Write what is known of a hang to a text of its own, for whoever was not there.

It stands beside the run file, and has what that has not: the states of processes and control
groups, versions, and environment variables from a list. Only the last hang of a run is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.controlgroups import groups_of, hierarchies
from profd.daemon.hangs.cause import sentence_of
from profd.daemon.hangs.knownhangs import versions_of
from profd.daemon.hangs.look import Look, name_of_member
from profd.daemon.paths import HANG_SUFFIX, replacing
from profd.daemon.store.records import HangFound

_SWITCHES = """
    RANK LOCAL_RANK GROUP_RANK WORLD_SIZE CUDA_VISIBLE_DEVICES CUDA_LAUNCH_BLOCKING
    CUDA_DEVICE_MAX_CONNECTIONS CUDA_MODULE_LOADING NCCL_DEBUG NCCL_ALGO NCCL_PROTO NCCL_P2P_DISABLE
    NCCL_P2P_LEVEL NCCL_SHM_DISABLE NCCL_IB_DISABLE NCCL_IB_TIMEOUT NCCL_NVLS_ENABLE
    NCCL_SOCKET_IFNAME NCCL_RAS_ENABLE NCCL_LAUNCH_ORDER_IMPLICIT GLOO_SOCKET_IFNAME
    TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_USE_COMM_NONBLOCKING
    TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC TORCH_NCCL_TRACE_BUFFER_SIZE TORCH_FR_BUFFER_SIZE
    TORCH_DISTRIBUTED_DEBUG OMP_NUM_THREADS OMP_WAIT_POLICY MKL_NUM_THREADS KMP_BLOCKTIME
    MALLOC_ARENA_MAX
"""
VARIABLES = frozenset(_SWITCHES.split())
"""All that is kept of an environment: ranks, and switches of NCCL, torch, CUDA and OpenMP."""
_OF_GROUP = ("memory.current", "memory.max", "pids.current", "cpu.max")


def write_hang(path: Path, hang: HangFound, look: Look, beside: Mapping[str, object]) -> Path:
    """Write a hang beside the run file ``path``, and return where; raises OSError. Blocks.

    ``beside`` has what else is known, by its titles.
    """
    members = {row.member.identity.pid: row.member for row in look.standing}
    parts = {
        "Processes": {
            f"{name_of_member(one)} (pid {pid})": _state(pid) for pid, one in members.items()
        },
        **beside,
        "NCCL's RAS": look.job and look.job.status,
        "Stacks, from the root to the leaf": hang.report.groups,
    }
    lines = [f"# {hang.text}", *hang.report.facts, "## Who waits for whom"]
    lines += [f"- {sentence_of(row)}" for row in look.standing if row.is_main]
    for title, value in parts.items():
        text = msgspec.json.format(msgspec.json.encode(value)).decode()
        lines.append(f"## {title}\n\n```json\n{text}\n```")
    text = "\n\n".join(lines)
    with replacing(path.with_suffix(HANG_SUFFIX)) as file:
        file.write(
            "".join(one if one.isprintable() or one == "\n" else "?" for one in text).encode()
        )
    return path.with_suffix(HANG_SUFFIX)


def _state(pid: int) -> dict[str, object]:
    """Return what is known of a process and of its control group."""
    folder = next((one.folder for one in groups_of(pid, "", hierarchies())), "")
    return {
        "versions": versions_of(pid),
        "environment": processes.environment(pid, VARIABLES),
        "status": processes.status(pid),
        "control group": {one: processes.read_text(f"{folder}/{one}") for one in _OF_GROUP},
    }
