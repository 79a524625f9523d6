"""What /proc says of the processes of a run and their GPUs, and the GPUs of a host, one of them cut
up.
"""

from __future__ import annotations

from profd.daemon.gpu.devices import GpuDevice
from profd.daemon.gpu.users import ProcessTraces

CUDA = frozenset({"/dev/nvidiactl", "/dev/nvidia-uvm"})


class FakeTraces(ProcessTraces):
    """Processes with the devices that a test gave them.

    On the host unless it is said that PIDs are a container's.
    """

    def __init__(self, *, on_host: bool = True) -> None:
        self._on_host = on_host
        self.devices: dict[int, frozenset[str]] = {}
        self.environments: dict[int, dict[str, str]] = {}

    def sees_host_pids(self) -> bool:
        return self._on_host

    def open_devices(self, pid: int) -> frozenset[str]:
        return self.devices.get(pid, frozenset())

    def environment(self, pid: int) -> dict[str, str]:
        return self.environments.get(pid, {})

    def compute(self, pid: int, *minors: int, visible: str | None = None) -> None:
        """Let a process use CUDA, with the device files of these GPUs open."""
        self.devices[pid] = CUDA | {f"/dev/nvidia{minor}" for minor in minors}
        if visible is not None:
            self.environments[pid] = {"CUDA_VISIBLE_DEVICES": visible}


def gpu(
    index: int,
    uuid: str,
    model: str = "H100",
    parent: GpuDevice | None = None,
    instance: int | None = None,
) -> GpuDevice:
    name = f"gpu{index}" if parent is None else f"gpu{index}-mig{instance}"
    return GpuDevice(
        handle=None,
        name=name,
        index=index,
        uuid=uuid,
        model=model,
        minor=index,
        parent=parent,
        instance=instance,
    )


WHOLE = [gpu(0, "GPU-8f6a-00"), gpu(1, "GPU-8f6b-11"), gpu(2, "GPU-c0de-22")]
PARTS = [
    gpu(2, "MIG-1111", parent=WHOLE[2], instance=9),
    gpu(2, "MIG-2222", parent=WHOLE[2], instance=11),
]
