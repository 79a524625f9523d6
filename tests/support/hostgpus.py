"""A host's GPUs, and the MIG instances of one of them."""

from __future__ import annotations

from profd.daemon.gpu.devices import Gpu


def gpu(index: int, uuid: str, model: str = "H100", parent: Gpu | None = None, instance: int | None = None) -> Gpu:
    name = f"gpu{index}" if parent is None else f"gpu{index}-mig{instance}"
    return Gpu(
        handle=None, name=name, index=index, uuid=uuid, model=model, minor=index, parent=parent, instance=instance
    )


WHOLE = [gpu(0, "GPU-8f6a-00"), gpu(1, "GPU-8f6b-11"), gpu(2, "GPU-c0de-22")]
PARTS = [gpu(2, "MIG-1111", parent=WHOLE[2], instance=9), gpu(2, "MIG-2222", parent=WHOLE[2], instance=11)]
