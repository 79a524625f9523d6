"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

import pytest
from support.hostgpus import PARTS, WHOLE, gpu

from profd.daemon.gpu.devices import visible_gpus

GPUS = [*WHOLE, *PARTS]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("0", ["gpu0"]),
        ("2,0", ["gpu2", "gpu0"]),
        (" 1 , 2", ["gpu1", "gpu2"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["gpu0"]),
        ("0,7,1", ["gpu0"]),
        ("NoDevFiles", []),
        ("1,1", []),
        ("GPU-c0de", ["gpu2"]),
        ("GPU-8f6a-00,GPU-c0de-22", ["gpu0", "gpu2"]),
        ("GPU-8f6", []),
        ("MIG-2222", ["gpu2-mig11"]),
        ("MIG-GPU-c0de-22/9/0", ["gpu2-mig9"]),
    ],
    ids=lambda value: repr(value) if isinstance(value, str) else "",
)
def test_words_mean_what_cuda_takes_them_for(words: str, names: list[str]) -> None:
    found = visible_gpus({"CUDA_VISIBLE_DEVICES": words}, GPUS)
    assert found is not None
    assert [one.name for one in found] == names


def test_unset_variable_hides_nothing() -> None:
    assert visible_gpus({}, GPUS) is None


def test_numbers_of_unlike_gpus_are_in_an_order_that_is_not_ours() -> None:
    mixed = [gpu(0, "GPU-a", "T4"), gpu(1, "GPU-b", "H100")]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}, mixed) is None
    in_order = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_gpus(in_order, mixed) == (mixed[0],)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-b"}, mixed) == (mixed[1],)
