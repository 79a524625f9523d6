"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

import pytest

from profd.daemon.collect.gpu.devices import Gpu
from profd.daemon.collect.gpu.nvml import Handle
from profd.daemon.collect.gpu.visibledevices import visible_gpus


def gpu(index: int, uuid: str, model: str = "H100", parent: Gpu | None = None, instance: int | None = None) -> Gpu:
    name = f"gpu{index}" if parent is None else f"gpu{index}-mig{instance}"
    return Gpu(
        Handle(None),
        name=name,
        index=index,
        uuid=uuid,
        model=model,
        minor=index,
        parent=parent,
        instance=instance,
    )


WHOLE = [gpu(0, "GPU-8f6a-00"), gpu(1, "GPU-8f6b-11"), gpu(2, "GPU-c0de-22")]
PARTS = [
    gpu(2, "MIG-1111", parent=WHOLE[2], instance=9),
    gpu(2, "MIG-2222", parent=WHOLE[2], instance=11),
]
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
