"""Which processes use a GPU, with how much memory and time, and how PIDs of NVML map to those of the run.

NVML names processes by their PIDs on the host. Outside of containers these are ours. Inside of one they may be numbers
that mean nothing here, or, worse, another process; then a process is matched only where nothing else is possible.
Knows /proc and devices; asks NVML nothing.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from profd.daemon import processes
from profd.daemon.clock import MICROSECOND_NS, SECOND_NS, Clock
from profd.daemon.gpu.devices import VARIABLES, Gpu, visible_gpus
from profd.daemon.gpu.nvml import Answer, Nvml
from profd.daemon.store.records import Identity

# Since driver R470 a process is told with its MIG instance; the functions of R450 fill the same structure.
_LISTS = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
)


def memory_by_pid(nvml: Nvml, gpu: Gpu) -> dict[int, int | None] | None:
    """Return the bytes that each process holds on a device; None for a process of which NVML does not tell.

    None for all where NVML names no processes. One that both computes and draws is listed twice, with the same bytes.
    """
    found: dict[int, int | None] = {}
    answers = [_running(nvml, gpu, functions) for functions in _LISTS]
    if all(answer is None for answer in answers):
        return None
    for process in (process for answer in answers for process in answer or ()):
        known = found.get(process.pid)
        used = process.usedGpuMemory
        found[process.pid] = known if used is None else max(int(used), known or 0)
    return found


def _running(nvml: Nvml, gpu: Gpu, functions: tuple[str, ...]) -> Answer:
    for function in functions:
        answer = nvml.ask(gpu.handle, function)
        if answer is not None or (function, ()) not in gpu.handle.lacking:
            return answer
    return None


class ProcessUtilization:
    """The share of a device's time that each process keeps its SMs busy, since the last reading."""

    def __init__(self, clock: Clock, since_ns: int) -> None:
        self._clock = clock
        self._last_us = self._wall_us(since_ns)

    def read(self, nvml: Nvml, gpu: Gpu) -> dict[int, float]:
        """Return mean shares of the samples that the driver took of each process; who was idle may be missing."""
        now_us = self._wall_us(self._clock.now_ns())
        # A wall clock that was set back would make everything old.
        since_us, self._last_us = min(self._last_us, now_us), now_us
        samples = nvml.ask(gpu.handle, "nvmlDeviceGetProcessUtilization", then=(since_us,)) or ()
        percents: defaultdict[int, list[int]] = defaultdict(list)
        for sample in samples:
            # The driver gives rows of zeros where it has none, and now and then more than there can be.
            if sample.timeStamp > since_us and sample.pid and sample.smUtil <= 100:
                percents[sample.pid].append(sample.smUtil)
        return {pid: sum(values) / len(values) / 100 for pid, values in percents.items()}

    def _wall_us(self, at_ns: int) -> int:
        """Return a time of the run's clock as the driver counts it: microseconds of the wall clock as it goes."""
        return (at_ns + self._clock.wall_jump_ns()) // MICROSECOND_NS


_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
_LOOK_AGAIN_NS = 10 * SECOND_NS
_COMPUTING = ("/dev/nvidia-uvm", "/dev/dxg")
"""What a process has open that uses CUDA; NVML alone opens neither, and WSL has the second."""


class ProcessTraces(Protocol):
    """What /proc says of processes and their GPUs."""

    def sees_host_pids(self) -> bool:
        """Say whether PIDs here are those of the host."""
        ...

    def namespace_pids(self, pid: int) -> frozenset[int]:
        """Return the PIDs that a process has in its namespaces, as far as they can be seen from here."""
        ...

    def open_devices(self, pid: int) -> frozenset[str]:
        """Return the device files that a process has open; empty where we may not look."""
        ...

    def environment(self, pid: int) -> dict[str, str]:
        """Return those variables of a process that say which GPUs it sees."""
        ...


class RealTraces:
    """The /proc of this machine."""

    def sees_host_pids(self) -> bool:
        """Say whether this process lives in the first PID namespace; NVML's PIDs are of that one."""
        return processes.link(os.getpid(), "ns/pid") == _FIRST_PID_NAMESPACE

    def namespace_pids(self, pid: int) -> frozenset[int]:
        """Return the line ``NSpid`` of a process's status; empty where it is gone."""
        return frozenset(map(int, processes.status(pid).get("NSpid", "").split()))

    def open_devices(self, pid: int) -> frozenset[str]:
        """Return the device files that a process has open; empty where we may not look."""
        try:
            targets = [processes.link(pid, f"fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            return frozenset()
        return frozenset(target for target in targets if target.startswith("/dev/"))

    def environment(self, pid: int) -> dict[str, str]:
        """Return the variables that a process was started with."""
        return processes.environment(pid, VARIABLES)


class GpuUsers:
    """The processes of a run as users of GPUs. Which devices one has open is looked at again every ten seconds."""

    def __init__(self, clock: Clock, traces: ProcessTraces | None = None) -> None:
        self._clock = clock
        self._traces = traces or RealTraces()
        self._sees_host = self._traces.sees_host_pids()
        self._numbers_mean_us = False
        self._users: dict[Identity, _User] = {}

    def take(self, identities: Iterable[Identity]) -> None:
        """Take in who belongs to the run now."""
        self._users = {identity: self._users.get(identity) or _User(identity) for identity in identities}

    def identify(self, pids: Mapping[Gpu, Collection[int]], gpus: Sequence[Gpu]) -> dict[int, Identity]:
        """Return who of the run is meant by the PIDs that NVML names for each GPU; who cannot be sure is left out."""
        named = {pid for some in pids.values() for pid in some}
        if self._sees_host:
            by_pid = {identity.pid: identity for identity in self._users}
            return {pid: by_pid[pid] for pid in named if pid in by_pid}
        found = {pid: user for pid in named if (user := self._by_number(pid)) is not None}
        unknown = named - found.keys()
        # Where NVML's numbers are those of our processes, or of others that we see, there is nothing to guess.
        self._numbers_mean_us |= bool(found) or any(self._computes(self._traces.open_devices(pid)) for pid in unknown)
        return found if self._numbers_mean_us else self._by_exclusion(pids, gpus)

    def may_use(self, gpu: Gpu, gpus: Sequence[Gpu], *, tells_pids: bool) -> bool:
        """Say whether the run has to be taken for a user of a GPU though NVML does not name it: in a container.

        ``tells_pids`` is False where NVML names no processes at all.
        """
        if tells_pids and (self._sees_host or self._numbers_mean_us):
            return False
        return any(self._may_compute_on(user, gpu, gpus) for user in self._users.values())

    def _by_number(self, host_pid: int) -> Identity | None:
        """Return the process that has this PID here, or in a namespace of its own, if it computes on GPUs at all.

        That it does keeps a number of the host's from being taken for whoever has it here by chance.
        """
        named = [user for user in self._users.values() if host_pid in self._pids_of(user)]
        computing = [user.identity for user in named if self._computes(self._devices_of(user))]
        return computing[0] if len(computing) == 1 else None

    def _by_exclusion(self, pids: Mapping[Gpu, Collection[int]], gpus: Sequence[Gpu]) -> dict[int, Identity]:
        """Match a number with the only process that can be meant by it, where that can be meant by no other number."""
        candidates: defaultdict[int, set[Identity]] = defaultdict(lambda: set(self._users))
        for gpu, numbers in pids.items():
            able = {user.identity for user in self._users.values() if self._may_compute_on(user, gpu, gpus)}
            for number in numbers:
                candidates[number] &= able
        claims = Counter(identity for able in candidates.values() for identity in able)
        return {
            number: identity
            for number, able in candidates.items()
            for identity in able
            if len(able) == 1 and claims[identity] == 1
        }

    def _may_compute_on(self, user: _User, gpu: Gpu, gpus: Sequence[Gpu]) -> bool:
        devices = self._devices_of(user)
        if not self._computes(devices):
            return False
        if gpu.minor is not None and "/dev/nvidiactl" in devices and f"/dev/nvidia{gpu.minor}" not in devices:
            return False
        if user.environment is None:
            user.environment = self._traces.environment(user.identity.pid)
        visible = visible_gpus(user.environment, gpus)
        return visible is None or gpu in visible or any(one.parent is gpu for one in visible)

    @staticmethod
    def _computes(devices: frozenset[str]) -> bool:
        return not devices.isdisjoint(_COMPUTING)

    def _devices_of(self, user: _User) -> frozenset[str]:
        now_ns = self._clock.now_ns()
        if now_ns >= user.look_again_ns:
            user.devices = self._traces.open_devices(user.identity.pid)
            user.look_again_ns = now_ns + _LOOK_AGAIN_NS
        return user.devices

    def _pids_of(self, user: _User) -> frozenset[int]:
        if user.pids is None:
            user.pids = self._traces.namespace_pids(user.identity.pid) | {user.identity.pid}
        return user.pids


class _User:
    """What /proc said of a process of the run."""

    __slots__ = ("devices", "environment", "identity", "look_again_ns", "pids")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.devices: frozenset[str] = frozenset()
        self.look_again_ns = 0
        self.environment: dict[str, str] | None = None
        self.pids: frozenset[int] | None = None
