"""The wrapper around NVML, and what is kept in mind of its answers: for ever, for a minute, or not
at all.
"""

from __future__ import annotations

import sys

import pytest
from support.clocks import StoppedClock
from support.gpusim import SimulatedDriver

from profd.daemon.gpu import nvml
from profd.daemon.gpu.devices import GpuNames
from profd.daemon.gpu.nvml import Nvml, Unavailable
from profd.daemon.gpu.nvmlsource import NvmlSource
from profd.daemon.gpu.questions import Questions

POWER = "nvmlDeviceGetPowerUsage"
INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, DRIVER_NOT_LOADED, GPU_IS_LOST = (
    2,
    3,
    4,
    10,
    9,
    15,
)


class Asker:
    """Asks the power of GPUs."""

    def __init__(self) -> None:
        self.clock = StoppedClock()
        self.source = NvmlSource(self.clock, GpuNames())
        assert self.source.open()
        self.gpus = self.source.gpus()
        self.questions = [Questions(self.source, gpu, self.clock) for gpu in self.gpus]

    def power(self, index: int = 0, series: str = "gpu_power_watts") -> float | None:
        return self.questions[index].ask(self.source.gauge, series)


@pytest.fixture
def asker(driver: SimulatedDriver) -> Asker:
    driver.add_gpu(power_watts=212)
    return Asker()


def test_what_a_device_lacks_is_none_and_not_asked_again(
    asker: Asker, driver: SimulatedDriver
) -> None:
    driver.add("error", NOT_SUPPORTED, "gpu0", POWER)
    driver.calls()
    assert asker.power() is None
    asker.clock.advance(3600)
    assert asker.power() is None
    assert driver.calls() == [f"{POWER} gpu0"]


@pytest.mark.parametrize("error", [INVALID_ARGUMENT, NO_PERMISSION])
def test_what_is_refused_is_asked_again_each_minute(
    asker: Asker, driver: SimulatedDriver, error: int
) -> None:
    driver.add("error", error, "gpu0", POWER)
    assert asker.power() is None
    driver.add("error", "", "gpu0", POWER)
    asker.clock.advance(59)
    assert asker.power() is None
    asker.clock.advance(1)
    assert asker.power() == 212


def test_an_answer_comes_through_and_quantities_of_one_question_are_remembered_apart(
    asker: Asker, driver: SimulatedDriver
) -> None:
    assert asker.power() == 212
    assert asker.source.calling is None
    driver.add("memory_clock_hz", 2.6e9, "gpu0")
    assert asker.power(series="gpu_sm_clock_hz") is None
    assert asker.power(series="gpu_memory_clock_hz") == 2.6e9


def test_passing_error_is_asked_again(asker: Asker, driver: SimulatedDriver) -> None:
    driver.add("error", TIMEOUT, "gpu0", POWER)
    assert asker.power() is None
    assert "timeout" in str(asker.questions[0].why_not(asker.source.gauge, "gpu_power_watts"))
    driver.add("error", "", "gpu0", POWER)
    assert asker.power() == 212


def test_function_that_the_driver_or_its_module_does_not_have_is_none(asker: Asker) -> None:
    assert asker.source.ask("nvmlDeviceGetFanSpeed", asker.gpus[0].handle) is None
    assert asker.source.ask("nvmlDeviceGetFortune", asker.gpus[0].handle) is None


def test_lost_device_is_left_alone_and_the_driver_stays(driver: SimulatedDriver) -> None:
    driver.add_gpu(power_watts=212)
    driver.add_gpu("gpu1", power_watts=90)
    asker = Asker()
    driver.add("lost", 1, "gpu0")
    driver.calls()
    assert [asker.power() for _ in range(3)] == [None] * 3
    assert driver.calls() == [f"{POWER} gpu0"]
    assert [one.lost for one in asker.questions] == [f"{POWER}: GPU is lost", ""]
    assert asker.source.failure is None
    assert asker.power(1) == 90
    assert [gpu.name for gpu in asker.source.gpus()] == ["gpu1"]


def test_device_that_is_lost_while_it_is_named_is_not_listed(
    asker: Asker, driver: SimulatedDriver
) -> None:
    driver.add("error", GPU_IS_LOST, "gpu0", "nvmlDeviceGetUUID")
    assert asker.source.gpus() == []


def test_driver_that_goes_is_a_failure_asked_nothing_more_and_opened_when_it_is_back(
    asker: Asker, driver: SimulatedDriver
) -> None:
    driver.add("driver_error", DRIVER_NOT_LOADED)
    driver.calls()
    assert [asker.power() for _ in range(3)] == [None] * 3
    assert asker.source.gpus() == []
    assert driver.calls() == [f"{POWER} gpu0"]
    assert (asker.source.failure, asker.source.failure_text) == (
        DRIVER_NOT_LOADED,
        "driver not loaded",
    )
    asker.source.close()
    assert not asker.source.open()
    driver.add("driver_error", "")
    assert asker.source.open()
    assert len(asker.source.gpus()) == 1


def test_a_missing_module_is_a_failure_and_without_the_drivers_library_it_is_not_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> object:
        raise OSError(name)

    asked = Nvml(StoppedClock())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (asked.open(), asked.failure) == (False, nvml.Failure.NO_MODULE)
    monkeypatch.delitem(sys.modules, "pynvml")
    monkeypatch.setattr("ctypes.CDLL", missing)
    asked = Nvml(StoppedClock())
    assert (asked.open(), asked.failure) == (False, nvml.Failure.LIBRARY_NOT_FOUND)
    assert "pynvml" not in sys.modules


def explain(
    code: int, *, container: bool = False, driver: bool = False, gpu: bool = False
) -> Unavailable:
    """Explain an error on a machine with or without driver and GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml, "has_driver", lambda: driver)
        patch.setattr(nvml, "has_gpu", lambda: gpu)
        return nvml.explain(code, "some error", in_container=container)


def test_machine_without_anything_of_nvidia_lacks_nothing() -> None:
    for container in (False, True):
        found = explain(nvml.Failure.LIBRARY_NOT_FOUND, container=container)
        assert (found.what, found.is_plain) == ("no NVIDIA driver here", True)
    assert explain(nvml.Failure.DRIVER_NOT_LOADED).is_plain


@pytest.mark.parametrize(
    ("code", "here", "what", "remedy"),
    [
        (
            nvml.Failure.LIBRARY_NOT_FOUND,
            "container driver gpu",
            "this container has no libnvidia-ml.so.1",
            "--gpus all",
        ),
        (nvml.Failure.LIBRARY_NOT_FOUND, "container driver gpu", "", "utility"),
        (
            nvml.Failure.LIBRARY_NOT_FOUND,
            "driver gpu",
            "libnvidia-ml.so.1 is not found",
            "ldconfig",
        ),
        (
            nvml.Failure.LIBRARY_NOT_FOUND,
            "gpu",
            "an NVIDIA GPU is here, but no driver",
            "install the NVIDIA driver",
        ),
        (nvml.Failure.DRIVER_NOT_LOADED, "gpu", "", "modprobe"),
        (nvml.Failure.DRIVER_NOT_LOADED, "container gpu", "", "--gpus all"),
        (nvml.Failure.NO_PERMISSION, "", "", "group"),
        (nvml.Failure.VERSION_MISMATCH, "", "", "reboot"),
        (nvml.Failure.NO_MODULE, "", "", "pip install nvidia-ml-py"),
        (999, "", "NVML fails (some error)", ""),
    ],
)
def test_each_cause_has_its_remedy(code: int, here: str, what: str, remedy: str) -> None:
    found = explain(code, **dict.fromkeys(here.split(), True))
    assert what in found.what
    assert remedy in found.remedy
    assert not found.is_plain
