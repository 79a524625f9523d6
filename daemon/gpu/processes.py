"""Which processes use a GPU, with how much memory and time, and how the PIDs of NVML map to those of the run.

NVML names processes by their PIDs on the host. Outside of containers these are ours. Inside of one they may be numbers
that mean nothing here, or, worse, another process; then a process is matched only where nothing else is possible.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.clock import MICROSECOND_NS, SECOND_NS, Clock
from profd.daemon.gpu.devices import VARIABLES, Gpu, visible_gpus
from profd.daemon.gpu.nvml import Nvml
from profd.daemon.store.records import Identity

# Since driver R470 the lists name the MIG instance of a process; the functions of R450 fill the same structure.
_LISTS = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
)


def memory_by_pid(nvml: Nvml, gpu: Gpu) -> dict[int, int | None] | None:
    """Return the bytes that each process holds on a device; None for a process whose memory NVML does not report.

    None where NVML names no processes at all. One that both computes and draws is listed twice, with the same bytes.
    """
    found: dict[int, int | None] = {}
    names_processes = False
    for newer, older in _LISTS:
        answer = nvml.ask(gpu.handle, newer)
        if answer is None and (newer, ()) in gpu.handle.lacking:
            answer = nvml.ask(gpu.handle, older)
        names_processes |= answer is not None
        for process in answer or ():
            known = found.get(process.pid)
            used = process.usedGpuMemory
            found[process.pid] = known if used is None else max(int(used), known or 0)
    return found if names_processes else None


class ProcessUtilization:
    """The share of a device's time that each process keeps its SMs busy, since the last reading."""

    def __init__(self, clock: Clock, since_ns: int) -> None:
        self._clock = clock
        self._last_us = self._wall_us(since_ns)

    def read(self, nvml: Nvml, gpu: Gpu) -> dict[int, float]:
        """Return the mean share by PID over the driver's samples; an idle process may be missing."""
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


class ProcessTraces:
    """The facts in /proc about processes and their GPUs."""

    def sees_host_pids(self) -> bool:
        """Say whether this process lives in the first PID namespace; NVML's PIDs are of that one."""
        return processes.link(os.getpid(), "ns/pid") == _FIRST_PID_NAMESPACE

    def namespace_pids(self, pid: int) -> frozenset[int]:
        return frozenset(map(int, processes.status(pid).get("NSpid", "").split()))

    def open_devices(self, pid: int) -> frozenset[str]:
        try:
            targets = [processes.link(pid, f"fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            return frozenset()
        return frozenset(target for target in targets if target.startswith("/dev/"))

    def environment(self, pid: int) -> dict[str, str]:
        return processes.environment(pid, VARIABLES)


class _User(msgspec.Struct, eq=False):
    """A process of the run, with the facts that were read from /proc."""

    identity: Identity
    devices: frozenset[str] = frozenset()
    look_again_ns: int = 0
    environment: dict[str, str] | None = None
    pids: frozenset[int] | None = None


def _computes(devices: frozenset[str]) -> bool:
    return not devices.isdisjoint(_COMPUTING)


class GpuUsers:
    """The processes of a run as users of GPUs. Which devices one has open is read again every ten seconds."""

    def __init__(self, clock: Clock, traces: ProcessTraces | None = None) -> None:
        self._clock = clock
        self._traces = traces or ProcessTraces()
        self._sees_host = self._traces.sees_host_pids()
        self._numbers_mean_us = False
        self._users: dict[Identity, _User] = {}

    def take(self, identities: Iterable[Identity]) -> None:
        self._users = {identity: self._users.get(identity) or _User(identity) for identity in identities}

    def identify(self, pids: Mapping[Gpu, Collection[int]], gpus: Sequence[Gpu]) -> dict[int, Identity]:
        """Match the PIDs that NVML names for each GPU with processes of the run; what is not certain is left out."""
        named = {pid for some in pids.values() for pid in some}
        if self._sees_host:
            by_pid = {identity.pid: identity for identity in self._users}
            return {pid: by_pid[pid] for pid in named if pid in by_pid}
        found = {pid: user for pid in named if (user := self._by_number(pid)) is not None}
        unknown = named - found.keys()
        # Where NVML's numbers are those of our processes, or of others that we see, there is nothing to guess.
        self._numbers_mean_us |= bool(found) or any(_computes(self._traces.open_devices(pid)) for pid in unknown)
        return found if self._numbers_mean_us else self._by_exclusion(pids, gpus)

    def may_use(self, gpu: Gpu, gpus: Sequence[Gpu], *, tells_pids: bool) -> bool:
        """Say whether the run has to count as a user of a GPU though NVML does not name it: in a container.

        ``tells_pids`` is False where NVML names no processes at all.
        """
        if tells_pids and (self._sees_host or self._numbers_mean_us):
            return False
        return any(self._may_compute_on(user, gpu, gpus) for user in self._users.values())

    def _by_number(self, host_pid: int) -> Identity | None:
        """Return the process that has this PID here, or in a namespace of its own, if it computes on GPUs at all.

        So a PID of the host is not matched with a process that has the same number here by chance.
        """
        named = []
        for user in self._users.values():
            if user.pids is None:
                user.pids = self._traces.namespace_pids(user.identity.pid) | {user.identity.pid}
            if host_pid in user.pids:
                named.append(user)
        computing = [user.identity for user in named if _computes(self._devices_of(user))]
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
        if not _computes(devices):
            return False
        if gpu.minor is not None and "/dev/nvidiactl" in devices and f"/dev/nvidia{gpu.minor}" not in devices:
            return False
        if user.environment is None:
            user.environment = self._traces.environment(user.identity.pid)
        visible = visible_gpus(user.environment, gpus)
        return visible is None or gpu in visible or any(one.parent is gpu for one in visible)

    def _devices_of(self, user: _User) -> frozenset[str]:
        now_ns = self._clock.now_ns()
        if now_ns >= user.look_again_ns:
            user.devices = self._traces.open_devices(user.identity.pid)
            user.look_again_ns = now_ns + _LOOK_AGAIN_NS
        return user.devices
