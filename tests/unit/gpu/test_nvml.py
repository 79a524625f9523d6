"""The wrapper around NVML: what has no answer is None, and is remembered where it stays so."""

from __future__ import annotations

import sys

import pytest
from support.clocks import StoppedClock
from support.fakedriver import FakeDriver

from profd.daemon.gpu import nvml as module
from profd.daemon.gpu.devices import GpuNames, list_gpus
from profd.daemon.gpu.nvml import Nvml

POWER = "nvmlDeviceGetPowerUsage"
NOT_SUPPORTED, TIMEOUT, DRIVER_NOT_LOADED, GPU_IS_LOST = 3, 10, 9, 15


@pytest.fixture
def nvml(driver: FakeDriver) -> Nvml:
    driver.add_gpu(power_watts=212)
    opened = Nvml(StoppedClock())
    assert opened.open()
    return opened


def test_answer_comes_through(nvml: Nvml) -> None:
    (gpu,) = list_gpus(nvml, GpuNames())
    assert nvml.ask(gpu.handle, POWER) == 212_000
    assert nvml.calling is None


def test_what_a_device_lacks_is_none_and_not_asked_again(nvml: Nvml, driver: FakeDriver) -> None:
    (gpu,) = list_gpus(nvml, GpuNames())
    driver.add("error", NOT_SUPPORTED, "gpu0", POWER)
    driver.calls()
    assert [nvml.ask(gpu.handle, POWER) for _ in range(3)] == [None] * 3
    assert driver.calls() == [f"{POWER} gpu0"]


def test_quantities_of_one_function_are_remembered_apart(nvml: Nvml, driver: FakeDriver) -> None:
    driver.add("memory_clock_hz", 2.6e9, "gpu0")
    (gpu,) = list_gpus(nvml, GpuNames())
    assert nvml.ask(gpu.handle, "nvmlDeviceGetClockInfo", 1) is None
    assert nvml.ask(gpu.handle, "nvmlDeviceGetClockInfo", 2) == 2600


def test_passing_error_is_asked_again(nvml: Nvml, driver: FakeDriver) -> None:
    (gpu,) = list_gpus(nvml, GpuNames())
    driver.add("error", TIMEOUT, "gpu0", POWER)
    assert nvml.ask(gpu.handle, POWER) is None
    driver.add("error", "", "gpu0", POWER)
    assert nvml.ask(gpu.handle, POWER) == 212_000


def test_function_that_the_driver_does_not_export_is_none(nvml: Nvml) -> None:
    (gpu,) = list_gpus(nvml, GpuNames())
    assert nvml.ask(gpu.handle, "nvmlDeviceGetFanSpeed") is None
    assert ("nvmlDeviceGetFanSpeed", ()) in gpu.handle.lacking


def test_function_that_the_module_does_not_know_is_none(nvml: Nvml) -> None:
    (gpu,) = list_gpus(nvml, GpuNames())
    assert nvml.ask(gpu.handle, "nvmlDeviceGetFortune") is None


def test_lost_device_is_left_alone_and_the_driver_stays(nvml: Nvml, driver: FakeDriver) -> None:
    driver.add_gpu("gpu1", power_watts=90)
    nvml.close()
    assert nvml.open()
    one, other = list_gpus(nvml, GpuNames())
    driver.add("lost", 1, "gpu0")
    driver.calls()
    assert [nvml.ask(one.handle, POWER) for _ in range(3)] == [None] * 3
    assert driver.calls() == [f"{POWER} gpu0"]
    assert (one.handle.lost, nvml.failure) == ("GPU is lost", None)
    assert nvml.ask(other.handle, POWER) == 90_000


def test_device_that_is_lost_while_it_is_named_is_not_listed(nvml: Nvml, driver: FakeDriver) -> None:
    driver.add("error", GPU_IS_LOST, "gpu0", "nvmlDeviceGetUUID")
    assert list_gpus(nvml, GpuNames()) == []


def test_driver_that_goes_is_a_failure_and_asked_nothing_more(nvml: Nvml, driver: FakeDriver) -> None:
    (gpu,) = list_gpus(nvml, GpuNames())
    driver.add("driver_error", DRIVER_NOT_LOADED)
    driver.calls()
    assert [nvml.ask(gpu.handle, POWER) for _ in range(3)] == [None] * 3
    assert nvml.ask_driver("nvmlDeviceGetCount") is None
    assert driver.calls() == [f"{POWER} gpu0"]
    assert (nvml.failure, nvml.failure_text) == (DRIVER_NOT_LOADED, "driver not loaded")


def test_driver_that_comes_back_is_opened_again(nvml: Nvml, driver: FakeDriver) -> None:
    driver.add("driver_error", DRIVER_NOT_LOADED)
    assert nvml.ask_driver("nvmlDeviceGetCount") is None
    nvml.close()
    assert not nvml.open()
    driver.add("driver_error", "")
    assert nvml.open()
    assert nvml.ask_driver("nvmlDeviceGetCount") == 1


def test_missing_module_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml = Nvml(StoppedClock())
    assert not nvml.open()
    assert nvml.failure == module.NO_MODULE
