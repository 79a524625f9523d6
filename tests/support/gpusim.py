"""A simulated NVIDIA driver: its GPUs are a scenario file, which NVML's C library of ``nvml/``
answers from.

So the real pynvml and all of profd above it are on the way. Times of a scenario are seconds from
its start. With ``set_now`` a test says which time it is; else it is the time of the wall clock.
What the driver does and where that is known from stands in ``nvml/README.md``: nothing of it was
taken from profd.
"""

from __future__ import annotations

import bisect
import ctypes
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pynvml
import pytest

from profd.daemon.clock import SECOND_NS
from support.clocks import StoppedClock
from support.folders import TESTS
from support.waiting import until

SOURCE = TESTS / "nvml"
LIBRARY = "libnvidia-ml.so.1"
_FLAGS = (
    "-std=gnu11",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Wno-format-truncation",
    "-Werror",
    "-fPIC",
    "-shared",
)


def build(folder: Path, *flags: str) -> Path:
    """Compile the library into a folder and return its path."""
    library = folder / LIBRARY
    sources = sorted(str(path) for path in SOURCE.glob("*.c"))
    # No soname: dlopen would take the library for the system's in everything that runs later in
    # this process.
    subprocess.run(
        ["cc", *_FLAGS, *flags, "-o", str(library), *sources, "-lpthread", "-lm"], check=True
    )
    return library


class Timeline:
    """When kernels run on a GPU: the truth that readings are held against."""

    def __init__(self, kernels: Iterable[tuple[float, float]]) -> None:
        """Take the kernels in order of time, each from when to when, in seconds."""
        self.kernels = [(start_s, end_s) for start_s, end_s in kernels if end_s > start_s]
        self._starts = [start_s for start_s, _ in self.kernels]
        self._before = [0.0]
        for start_s, end_s in self.kernels:
            self._before.append(self._before[-1] + end_s - start_s)

    @classmethod
    def steps(cls, seconds: float, kernel_s: float, gap_s: float) -> Timeline:
        """Return one kernel a step, then a gap: what a loop does that waits for data in each step."""
        count = int(seconds / (kernel_s + gap_s)) + 1
        begins = (number * (kernel_s + gap_s) for number in range(count))
        return cls(
            (begin_s, min(begin_s + kernel_s, seconds)) for begin_s in begins if begin_s < seconds
        )

    def busy_share(self, from_s: float, to_s: float) -> float:
        """Return the share of a range in which a kernel ran."""
        return (self._busy_s(to_s) - self._busy_s(from_s)) / (to_s - from_s)

    def _busy_s(self, at_s: float) -> float:
        begun = bisect.bisect_right(self._starts, at_s)
        if not begun:
            return 0.0
        start_s, end_s = self.kernels[begun - 1]
        return self._before[begun - 1] + min(at_s, end_s) - start_s


class SimulatedDriver:
    """A library, and the scenario file that it answers from."""

    def __init__(self, library: Path, folder: Path, start_ns: int = StoppedClock().at_ns) -> None:
        """Begin a scenario at a time of the wall clock."""
        self.library = library
        self.scenario = folder / "scenario.csv"
        self.calls_file = folder / "calls"
        self.scenario.write_text("at_s,device,name,key,value\n")
        self._seen_calls = 0
        self.add("start_unix_s", f"{start_ns / SECOND_NS:.6f}")

    def add(
        self, name: str, value: object, device: str = "", key: object = "", at_s: float = 0
    ) -> None:
        """Add a row: from ``at_s`` on this is the value. An empty one takes the value back."""
        with self.scenario.open("a") as file:
            file.write(f"{at_s},{device},{name},{key},{value}\n")

    def add_gpu(self, device: str = "gpu0", **values: object) -> None:
        """Add a GPU, or a MIG instance, with these values from the start."""
        values = {"model": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{device}", **values}
        for name, value in values.items():
            self.add(name, value, device)

    def run(self, timeline: Timeline, device: str = "gpu0") -> None:
        with self.scenario.open("a") as file:
            file.write(f"0,{device},utilization_share,,0\n")
            for start_s, end_s in timeline.kernels:
                file.write(
                    f"{start_s:.6f},{device},utilization_share,,1\n{end_s:.6f},{device},utilization_share,,0\n"
                )

    def set_now(self, at_s: float) -> None:
        """Say which time it is, to the library in this process."""
        library = ctypes.CDLL(str(self.library))
        library.fake_nvml_set_now(ctypes.c_double(at_s))

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process gets this driver."""
        return {
            "FAKE_NVML_SCENARIO": str(self.scenario),
            "FAKE_NVML_CALLS": str(self.calls_file),
            "LD_LIBRARY_PATH": str(self.library.parent),
        }

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(self.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        self.set_now(-1)

    def calls(self) -> list[str]:
        """Return the functions that were called since this was last asked, each with its device."""
        text = self.calls_file.read_text() if self.calls_file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        new, self._seen_calls = whole[self._seen_calls :], len(whole)
        return [line.strip() for line in new.splitlines()]

    def wait_for_call(self, function: str) -> None:
        """Wait until a function is called."""
        until(
            lambda: any(call.startswith(function) for call in self.calls()), f"a call of {function}"
        )
