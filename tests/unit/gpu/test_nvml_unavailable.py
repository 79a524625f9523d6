"""Why there are no GPU counters: each cause with its own remedy."""

from __future__ import annotations

import pytest

from profd.daemon.gpu import nvml
from profd.daemon.gpu.nvml import Unavailable


def explain(code: int, *, container: bool = False, driver: bool = False, gpu: bool = False) -> Unavailable:
    """Explain an error on a machine with or without driver and GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml, "has_driver", lambda: driver)
        patch.setattr(nvml, "has_gpu", lambda: gpu)
        return nvml.explain(code, "some error", in_container=container)


@pytest.mark.parametrize("container", [False, True])
def test_machine_without_anything_of_nvidia_lacks_nothing(container: bool) -> None:
    found = explain(nvml.LIBRARY_NOT_FOUND, container=container)
    assert (found.what, found.is_plain) == ("no NVIDIA driver here", True)


def test_container_that_was_started_without_the_runtime() -> None:
    found = explain(nvml.LIBRARY_NOT_FOUND, container=True, driver=True, gpu=True)
    assert "this container has no libnvidia-ml.so.1" in found.what
    assert "--gpus all" in found.remedy
    assert "utility" in found.remedy


def test_host_with_a_driver_but_without_its_library() -> None:
    found = explain(nvml.LIBRARY_NOT_FOUND, driver=True, gpu=True)
    assert "libnvidia-ml.so.1 is not found" in found.what
    assert "ldconfig" in found.remedy


def test_gpu_without_a_driver() -> None:
    found = explain(nvml.LIBRARY_NOT_FOUND, gpu=True)
    assert found.what == "an NVIDIA GPU is here, but no driver"
    assert found.remedy == "install the NVIDIA driver"
    assert not found.is_plain


def test_kernel_module_that_is_not_loaded() -> None:
    assert "modprobe" in explain(nvml.DRIVER_NOT_LOADED, gpu=True).remedy
    assert "--gpus all" in explain(nvml.DRIVER_NOT_LOADED, container=True, gpu=True).remedy
    assert explain(nvml.DRIVER_NOT_LOADED).is_plain


@pytest.mark.parametrize(
    ("code", "word"),
    [(nvml.NO_PERMISSION, "group"), (nvml.VERSION_MISMATCH, "reboot"), (nvml.NO_MODULE, "pip install nvidia-ml-py")],
)
def test_other_causes_have_their_remedies(code: int, word: str) -> None:
    assert word in explain(code).remedy
    assert not explain(code).is_plain


def test_what_nobody_knows_is_told_in_the_words_of_nvml() -> None:
    assert explain(999).what == "NVML fails (some error)"
