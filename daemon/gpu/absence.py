"""Says why there are no GPU counters on this machine, and what to do about it.

Knows NVML's errors and where a driver leaves its traces; asks NVML nothing itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from profd.daemon.gpu import nvml

_NVIDIA_VENDOR = "0x10de"
_LIBRARY = "libnvidia-ml.so.1"
_RUN_CONTAINER = "start the container with the NVIDIA runtime (`docker run --gpus all`)"


class Absence(msgspec.Struct, frozen=True):
    """Why NVML cannot be used, and the remedy. ``is_plain``: nothing of NVIDIA's is here, so nothing is amiss."""

    what: str
    remedy: str
    is_plain: bool = False


class GpuEnvironment(Protocol):
    """What of a driver and of a GPU is to be seen without NVML."""

    def has_driver(self) -> bool:
        """Say whether the driver's kernel module is loaded."""
        ...

    def has_gpu(self) -> bool:
        """Say whether a GPU of NVIDIA is on the PCI bus."""
        ...


class RealSurroundings:
    """The machine that profd runs on."""

    def has_driver(self) -> bool:
        """Say whether the driver's kernel module is loaded; a container sees that of its host."""
        return Path("/proc/driver/nvidia/version").exists()

    def has_gpu(self) -> bool:
        """Say whether a GPU of NVIDIA (class 03, display) is on the PCI bus."""
        return any(
            _first_line(device / "vendor") == _NVIDIA_VENDOR and _first_line(device / "class").startswith("0x03")
            for device in Path("/sys/bus/pci/devices").glob("*")
        )


def explain(code: int, text: str, *, in_container: bool, around: GpuEnvironment | None = None) -> Absence:
    """Explain the failure of ``Nvml``: its code, and NVML's words for it."""
    around = around or RealSurroundings()
    if code == nvml.NO_MODULE:
        return Absence(f"the Python module pynvml is missing ({text})", "pip install nvidia-ml-py")
    if code == nvml.LIBRARY_NOT_FOUND:
        return _without_library(in_container, around)
    if code == nvml.DRIVER_NOT_LOADED:
        return _without_module(in_container, around)
    if code == nvml.VERSION_MISMATCH:
        return Absence(
            "the NVIDIA kernel module and its libraries are of different versions, as after an update of the driver",
            "reboot, or reload the kernel module; in a container, update the driver of the host",
        )
    if code == nvml.NO_PERMISSION:
        remedy = "join the group that owns /dev/nvidiactl (`ls -l /dev/nvidia*`), often video or render"
        return Absence("you may not use the NVIDIA driver", remedy)
    return Absence(f"NVML fails ({text})", "see whether `nvidia-smi` works")


def _without_library(in_container: bool, around: GpuEnvironment) -> Absence:
    """Explain a missing library: in a container it comes from the host, where the runtime is told to bring it."""
    if around.has_driver() and in_container:
        return Absence(
            f"the driver is loaded, but this container has no {_LIBRARY}",
            f"{_RUN_CONTAINER}, with `utility` in NVIDIA_DRIVER_CAPABILITIES",
        )
    if around.has_driver():
        remedy = "install the driver's libraries (libnvidia-compute, nvidia-utils), then run ldconfig"
        return Absence(f"the driver is loaded, but {_LIBRARY} is not found", remedy)
    if around.has_gpu():
        remedy = f"{_RUN_CONTAINER}" if in_container else "install the NVIDIA driver"
        return Absence("an NVIDIA GPU is here, but no driver", remedy)
    return Absence("no NVIDIA driver here", "GPU counters need the NVIDIA driver; all else works without it", True)


def _without_module(in_container: bool, around: GpuEnvironment) -> Absence:
    if in_container:
        return Absence("this container has the NVIDIA libraries, but no GPU was given to it", _RUN_CONTAINER)
    if around.has_gpu():
        remedy = "sudo modprobe nvidia; after an update of kernel or driver, reboot"
        return Absence("the NVIDIA libraries are here, but the kernel module is not loaded", remedy)
    remedy = "GPU counters need a GPU of NVIDIA; all else works without it"
    return Absence("the NVIDIA libraries are here, but no GPU", remedy, True)


def _first_line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
