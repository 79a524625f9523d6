"""An NVIDIA driver whose GPUs are a scenario file: NVML's C library built from ``nvml/``, for the real pynvml.

Times of a scenario are seconds from its start. With ``set_now`` a test says which time it is; else it is the time of
the wall clock.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pynvml
import pytest

from profd.daemon.clock import SECOND_NS
from support.clocks import StoppedClock
from support.folders import TESTS
from support.waiting import until

SOURCE = TESTS / "nvml"
LIBRARY = "libnvidia-ml.so.1"
_FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wno-format-truncation", "-Werror", "-fPIC", "-shared")


def build(folder: Path, *flags: str) -> Path:
    """Compile the library into a folder and return its path."""
    library = folder / LIBRARY
    sources = sorted(str(path) for path in SOURCE.glob("*.c"))
    # No soname: dlopen would take the library for the system's in everything that runs later in this process.
    subprocess.run(["cc", *_FLAGS, *flags, "-o", str(library), *sources, "-lpthread"], check=True)
    return library


class FakeDriver:
    """A library, and the scenario file that it answers from."""

    def __init__(self, library: Path, folder: Path, start_ns: int = StoppedClock().at_ns) -> None:
        """Begin a scenario at a time of the wall clock."""
        self.library = library
        self.scenario = folder / "scenario.csv"
        self.calls_file = folder / "calls"
        self.scenario.write_text("at_s,device,name,key,value\n")
        self._seen_calls = 0
        self.add("start_unix_s", f"{start_ns / SECOND_NS:.6f}")

    def add(self, name: str, value: object, device: str = "", key: object = "", at_s: float = 0) -> None:
        """Add a row: from ``at_s`` on this is the value. An empty one takes the value back."""
        with self.scenario.open("a") as file:
            file.write(f"{at_s},{device},{name},{key},{value}\n")

    def add_gpu(self, device: str = "gpu0", **values: object) -> None:
        """Add a GPU, or a MIG instance, with these values from the start."""
        values = {"model": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{device}", **values}
        for name, value in values.items():
            self.add(name, value, device)

    def set_now(self, at_s: float) -> None:
        """Say which time it is."""
        self.add("now_s", at_s)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process gets this driver."""
        return {
            "FAKE_NVML_SCENARIO": str(self.scenario),
            "FAKE_NVML_CALLS": str(self.calls_file),
            "LD_LIBRARY_PATH": str(self.library.parent),
        }

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give this process the driver."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(self.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def calls(self) -> list[str]:
        """Return the functions that were called since this was last asked, each with its device."""
        text = self.calls_file.read_text() if self.calls_file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        new, self._seen_calls = whole[self._seen_calls :], len(whole)
        return [line.strip() for line in new.splitlines()]

    def wait_for_call(self, function: str) -> None:
        """Wait until a function is called."""
        until(lambda: any(call.startswith(function) for call in self.calls()), f"a call of {function}")
