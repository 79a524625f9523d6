"""What the doctor says of GPUs."""

from __future__ import annotations

import pynvml
import pytest
from support.fakedriver import FakeDriver
from support.fakesystem import FakeSystem

from profd.cli.doctor import Check, Verdict, check_gpus
from profd.daemon.gpu import nvml


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem({})


def test_gpus_are_named_with_their_driver(driver: FakeDriver, system: FakeSystem) -> None:
    driver.add("driver_version", "560.35")
    driver.add_gpu("gpu0")
    driver.add_gpu("gpu1", model="NVIDIA A100-SXM4-40GB")
    found = "2: NVIDIA H100 80GB HBM3, NVIDIA A100-SXM4-40GB; driver 560.35, without GPM metrics"
    assert check_gpus(system) == Check("GPUs", Verdict.PASSED, found)


def test_gpm_metrics_are_told(driver: FakeDriver, system: FakeSystem) -> None:
    driver.add_gpu()
    driver.add("gpm", 5, "gpu0", 5)
    assert check_gpus(system).found.endswith(", with GPM metrics")


def test_driver_without_a_gpu_is_a_note(driver: FakeDriver, system: FakeSystem) -> None:
    check = check_gpus(system)
    assert (check.verdict, check.found) == (Verdict.NOTE, "a driver, but no GPU that may be used")


def test_driver_and_library_of_different_versions(driver: FakeDriver, system: FakeSystem) -> None:
    driver.add("driver_error", 18)
    check = check_gpus(system)
    assert check.verdict is Verdict.NOTE
    assert "different versions" in check.found
    assert "reboot" in check.remedy


def test_machine_without_a_driver(system: FakeSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr(nvml, "has_driver", lambda: False)
    monkeypatch.setattr(nvml, "has_gpu", lambda: False)
    check = check_gpus(system)
    assert (check.verdict, check.found) == (Verdict.NOTE, "no NVIDIA driver here")
    assert "all else works without it" in check.remedy
