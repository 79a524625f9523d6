"""Access to NVML, the library of the NVIDIA driver, and why it cannot be used on this machine.

A question without an answer raises ``NoDriverAnswer``: a missing function, a device without a
feature, a lost GPU, a driver that went away. ``Nvml.failure`` says that it was the last of these.
"""

from __future__ import annotations

import ctypes
import enum
import sys
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from profd.daemon import processes
from profd.daemon.clock import Clock
from profd.daemon.gpu.answers import DriverCall, NoDriverAnswer, Why
from profd.daemon.installation import install_command

Answer: TypeAlias = Any
"""What NVML's module takes and gives: numbers, text, C structures; it has no types of its own."""

_GONE = ("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND", "LIB_RM_VERSION_MISMATCH")
_WHY = {
    Why.LACKING: (
        "NOT_SUPPORTED",
        "FUNCTION_NOT_FOUND",
        "CORRUPTED_INFOROM",
        "VGPU_ECC_NOT_SUPPORTED",
        "ARGUMENT_VERSION_MISMATCH",
        "DEPRECATED",
    ),
    Why.REFUSED: ("INVALID_ARGUMENT", "NO_PERMISSION"),
    Why.EMPTY: ("NOT_FOUND",),
    Why.LOST: ("GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND"),
}


class Failure(enum.IntEnum):
    """Codes of ``Nvml.failure``: NVML's own, and one for Python without the module for it."""

    LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED, NO_PERMISSION, VERSION_MISMATCH = 12, 9, 4, 18
    NO_MODULE = -1


class Nvml:
    """NVML, once it is open. It belongs to one thread; others may read ``calling`` only.

    ``failure`` is the code of the error that makes all of it unusable, and ``failure_text`` NVML's
    words for it; both are empty while it works.
    """

    def __init__(self, clock: Clock) -> None:
        self.calling: DriverCall | None = None
        self.failure: int | None = None
        self.failure_text = ""
        self.module: Answer = None
        self._clock = clock
        self._is_open = False

    def open(self) -> bool:
        """Load the library and initialize it; False if that fails."""
        self.failure, self.failure_text = None, ""
        try:
            # Here and not above: a machine without a driver, and `--help`, need none of its 8,000
            # lines.
            if "pynvml" not in sys.modules:
                ctypes.CDLL(_LIBRARY)
            import pynvml
        except (OSError, ImportError) as error:
            self.failure = (
                Failure.NO_MODULE if isinstance(error, ImportError) else Failure.LIBRARY_NOT_FOUND
            )
            self.failure_text = str(error)
            return False
        self.module = pynvml
        self._why = {
            getattr(pynvml, f"NVML_ERROR_{name}", None): why
            for why, names in _WHY.items()
            for name in names
        }
        self._gone = {getattr(pynvml, f"NVML_ERROR_{name}", None) for name in _GONE}
        self._mismatch = getattr(pynvml, "NVMLLibraryMismatchError", AttributeError)
        self.calling = DriverCall("nvmlInit", self._clock.now_ns())
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._fail(error)
        finally:
            self.calling = None
        self._is_open = self.failure is None
        return self._is_open

    def close(self) -> None:
        """Let the library go. The process keeps it loaded, as NVML's module does."""
        if self._is_open:
            self._is_open = False
            self.ask("nvmlShutdown")

    def call(self, function: str, *arguments: Answer) -> Answer:
        """Return the answer of a function of NVML, or raise ``NoDriverAnswer``."""
        if self.failure is not None:
            raise NoDriverAnswer(Why.FAILED, self.failure_text)
        self.calling = DriverCall(function, self._clock.now_ns())
        try:
            return getattr(self.module, function)(*arguments)
        except self.module.NVMLError as error:
            if error.value in self._gone:
                self._fail(error)
            raise NoDriverAnswer(
                self._why.get(error.value, Why.FAILED), f"{function}: {_words(error)}"
            ) from None
        except (self._mismatch, AttributeError):
            # The driver, or NVML's module, is older than the question.
            raise NoDriverAnswer(Why.LACKING, f"{function}: the driver does not have it") from None
        finally:
            self.calling = None

    def ask(self, function: str, *arguments: Answer) -> Answer:
        """Return the answer of a function of NVML; None if there is none."""
        try:
            return self.call(function, *arguments)
        except NoDriverAnswer:
            return None

    def _fail(self, error: Answer) -> None:
        self.failure, self.failure_text = int(error.value), _words(error)


def _words(error: Answer) -> str:
    words = str(error).rstrip(".").split()
    return " ".join(word if word.isupper() else word.lower() for word in words)


def number_of(kind: int, value: Answer) -> float:
    """Return the number in a union of NVML's, by its type.

    It is a double, an unsigned int (4 bytes), or one of 8 bytes.
    """
    number: float = value.dVal if kind == 0 else value.uiVal if kind == 1 else value.ullVal
    return number


_NVIDIA_VENDOR = "0x10de"
_LIBRARY = "libnvidia-ml.so.1"
_RUN_CONTAINER = "start the container with the NVIDIA runtime (`docker run --gpus all`)"


class Unavailable(NamedTuple):
    """Why NVML cannot be used, and the remedy.

    ``is_plain``: the machine has nothing of NVIDIA, nothing is amiss.
    """

    what: str
    remedy: str
    is_plain: bool = False


def has_driver() -> bool:
    """Say whether the driver's kernel module is loaded; a container sees that of its host."""
    return Path("/proc/driver/nvidia/version").exists()


def has_gpu() -> bool:
    """Say whether a GPU of NVIDIA (class 03, display) is on the PCI bus."""
    devices = Path("/sys/bus/pci/devices").glob("*")
    read = processes.read_text
    displays = (one for one in devices if read(f"{one}/class").startswith("0x03"))
    return any(read(f"{one}/vendor").strip() == _NVIDIA_VENDOR for one in displays)


def explain(code: int, text: str, *, in_container: bool) -> Unavailable:
    """Explain the failure of ``Nvml``: its code, and NVML's words for it."""
    if code == Failure.NO_MODULE:
        return Unavailable(
            f"the Python module pynvml is missing ({text})", install_command("nvidia-ml-py")
        )
    if code == Failure.LIBRARY_NOT_FOUND:
        if has_driver() and in_container:
            remedy = f"{_RUN_CONTAINER}, with `utility` in NVIDIA_DRIVER_CAPABILITIES"
            return Unavailable(
                f"the driver is loaded, but this container has no {_LIBRARY}", remedy
            )
        if has_driver():
            remedy = (
                "install the driver's libraries (libnvidia-compute, nvidia-utils), then run "
                "ldconfig"
            )
            return Unavailable(f"the driver is loaded, but {_LIBRARY} is not found", remedy)
        if has_gpu():
            remedy = _RUN_CONTAINER if in_container else "install the NVIDIA driver"
            return Unavailable("an NVIDIA GPU is here, but no driver", remedy)
        remedy = "GPU counters need the NVIDIA driver; all else works without it"
        return Unavailable("no NVIDIA driver here", remedy, is_plain=True)
    if code == Failure.DRIVER_NOT_LOADED:
        if in_container:
            return Unavailable(
                "this container has the NVIDIA libraries, but no GPU was given to it",
                _RUN_CONTAINER,
            )
        if has_gpu():
            remedy = "sudo modprobe nvidia; after an update of kernel or driver, reboot"
            return Unavailable(
                "the NVIDIA libraries are here, but the kernel module is not loaded", remedy
            )
        remedy = "GPU counters need a GPU of NVIDIA; all else works without it"
        return Unavailable("the NVIDIA libraries are here, but no GPU", remedy, is_plain=True)
    if code == Failure.VERSION_MISMATCH:
        what = (
            "the NVIDIA kernel module and its libraries are of different versions, as after an "
            "update of the driver"
        )
        return Unavailable(
            what,
            "reboot, or reload the kernel module; in a container, update the driver of the host",
        )
    if code == Failure.NO_PERMISSION:
        remedy = (
            "join the group that owns /dev/nvidiactl (`ls -l /dev/nvidia*`), often video or render"
        )
        return Unavailable("you may not use the NVIDIA driver", remedy)
    return Unavailable(f"NVML fails ({text})", "see whether `nvidia-smi` works")
