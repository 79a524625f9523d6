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
    assert explain(nvml.DRIVER_NOT_LOADED).is_plain


@pytest.mark.parametrize(
    ("code", "here", "what", "remedy"),
    [
        (nvml.LIBRARY_NOT_FOUND, "container driver gpu", "this container has no libnvidia-ml.so.1", "--gpus all"),
        (nvml.LIBRARY_NOT_FOUND, "container driver gpu", "", "utility"),
        (nvml.LIBRARY_NOT_FOUND, "driver gpu", "libnvidia-ml.so.1 is not found", "ldconfig"),
        (nvml.LIBRARY_NOT_FOUND, "gpu", "an NVIDIA GPU is here, but no driver", "install the NVIDIA driver"),
        (nvml.DRIVER_NOT_LOADED, "gpu", "", "modprobe"),
        (nvml.DRIVER_NOT_LOADED, "container gpu", "", "--gpus all"),
        (nvml.NO_PERMISSION, "", "", "group"),
        (nvml.VERSION_MISMATCH, "", "", "reboot"),
        (nvml.NO_MODULE, "", "", "pip install nvidia-ml-py"),
        (999, "", "NVML fails (some error)", ""),
    ],
)
def test_each_cause_has_its_remedy(code: int, here: str, what: str, remedy: str) -> None:
    found = explain(code, **dict.fromkeys(here.split(), True))
    assert what in found.what
    assert remedy in found.remedy
    assert not found.is_plain
