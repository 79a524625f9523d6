"""Which processes use a GPU, with how much memory and time; maps NVML's PIDs to those of the run.

NVML names processes by their PIDs on the host. Outside of containers these are ours. Inside of one
they may be numbers that mean nothing here, or, worse, another process; then a process is matched
only if nothing else is possible.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.devices import VARIABLES, GpuDevice, visible_gpus
from profd.daemon.gpu.questions import Questions
from profd.daemon.store.records import Identity

_LISTS = ("compute", "graphics", "mps")


def memory_by_pid(questions: Questions) -> dict[int, int | None] | None:
    """Return the bytes that each process holds on a device, None if the driver names no processes.

    The bytes are None if the driver does not tell them. A process that both computes and draws, or
    is a client of MPS, is listed twice, with the same bytes.
    """
    answers = [questions.ask(questions.source.processes, kind) for kind in _LISTS]
    if answers[0] is None:
        return None
    found: dict[int, int | None] = {}
    for answer in answers:
        for pid, used in (answer or {}).items():
            known = found.get(pid)
            found[pid] = known if used is None else max(used, known or 0)
    return found


_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
_COMPUTING = ("/dev/nvidia-uvm", "/dev/dxg")
"""What a process has open that uses CUDA; NVML alone opens neither, and WSL has the second."""


class ProcessTraces:
    """The facts in /proc about processes and their GPUs."""

    def sees_host_pids(self) -> bool:
        """Say whether this process lives in the first PID namespace.

        NVML's PIDs are of that one.
        """
        return processes.link(os.getpid(), "ns/pid") == _FIRST_PID_NAMESPACE

    def open_devices(self, pid: int) -> frozenset[str]:
        return frozenset(path for path in processes.open_files(pid) if path.startswith("/dev/"))

    def environment(self, pid: int) -> dict[str, str]:
        return processes.environment(pid, VARIABLES)


class _User(msgspec.Struct, eq=False):
    """A process of the run, with the facts that were read from /proc."""

    identity: Identity
    devices: frozenset[str] = frozenset()
    look_again_ns: int = 0
    environment: dict[str, str] | None = None


def _computes(devices: frozenset[str]) -> bool:
    return not devices.isdisjoint(_COMPUTING)


class GpuUsers:
    """The processes of a run as users of GPUs.

    Which devices one has open is read again every ten seconds.
    """

    def __init__(self, clock: Clock, traces: ProcessTraces | None = None) -> None:
        self._clock = clock
        self._traces = traces or ProcessTraces()
        self._sees_host = self._traces.sees_host_pids()
        self._numbers_mean_us = False
        """Whether the driver translates PIDs into this container's, as since R535."""
        self._users: dict[Identity, _User] = {}
        self._gpus: Sequence[GpuDevice] = ()

    def take(self, identities: Iterable[Identity], gpus: Sequence[GpuDevice]) -> None:
        """Take the processes of the run, and the devices that there are."""
        self._gpus = gpus
        self._users = {
            identity: self._users.get(identity) or _User(identity) for identity in identities
        }

    def identify(self, pids: Mapping[GpuDevice, Collection[int]]) -> dict[int, Identity]:
        """Match the PIDs that NVML names for each GPU with processes of the run.

        What is not certain is left out.
        """
        named = {pid for some in pids.values() for pid in some}
        by_pid = {identity.pid: identity for identity in self._users if identity.pid in named}
        if self._sees_host:
            return by_pid
        # One that uses no GPU has the same number here by chance.
        users = self._users
        found = {pid: one for pid, one in by_pid.items() if _computes(self._devices_of(users[one]))}
        unknown = named - found.keys()
        # If NVML's numbers are those of our processes, or of others that we see, there is
        # nothing to guess.
        if found or any(_computes(self._traces.open_devices(pid)) for pid in unknown):
            self._numbers_mean_us = True
        return found if self._numbers_mean_us else self._by_exclusion(pids)

    def may_use(self, gpu: GpuDevice, *, tells_pids: bool) -> bool:
        """Say whether the run counts as a user of a GPU though NVML does not name it.

        That is so in a container. ``tells_pids`` is False if NVML names no processes at all.
        """
        if tells_pids and (self._sees_host or self._numbers_mean_us):
            return False
        return any(self._may_compute_on(user, gpu) for user in self._users.values())

    def _by_exclusion(self, pids: Mapping[GpuDevice, Collection[int]]) -> dict[int, Identity]:
        """Match a number with the only process that can be meant by it.

        Do so only if that process can be meant by no other number.
        """
        candidates: defaultdict[int, set[Identity]] = defaultdict(lambda: set(self._users))
        for gpu, numbers in pids.items():
            users = self._users.values()
            able = {user.identity for user in users if self._may_compute_on(user, gpu)}
            for number in numbers:
                candidates[number] &= able
        claims = Counter(identity for able in candidates.values() for identity in able)
        lone = ((number, next(iter(able))) for number, able in candidates.items() if len(able) == 1)
        return {number: identity for number, identity in lone if claims[identity] == 1}

    def _may_compute_on(self, user: _User, gpu: GpuDevice) -> bool:
        devices = self._devices_of(user)
        if not _computes(devices):
            return False
        names_gpus = gpu.minor is not None and "/dev/nvidiactl" in devices
        if names_gpus and f"/dev/nvidia{gpu.minor}" not in devices:
            return False
        if user.environment is None:
            user.environment = self._traces.environment(user.identity.pid)
        visible = visible_gpus(user.environment, self._gpus)
        return visible is None or gpu in visible or any(one.parent is gpu for one in visible)

    def _devices_of(self, user: _User) -> frozenset[str]:
        now_ns = self._clock.now_ns()
        if now_ns >= user.look_again_ns:
            user.devices = self._traces.open_devices(user.identity.pid)
            user.look_again_ns = now_ns + 10 * SECOND_NS
        return user.devices
