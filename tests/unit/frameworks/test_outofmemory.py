"""What torch says of a full GPU, in messages of public reports, from torch 1.4 to 2.8."""

from __future__ import annotations

import pytest

from profd.daemon.frameworks.outofmemory import full_memory

OOM = "CUDA out of memory. Tried to allocate "
TRY = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF="
    "expandable_segments:True to avoid fragmentation."
)
IN_PIECES = (
    "that torch holds unused have no piece that fits: "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins pieces"
)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            f"torch.OutOfMemoryError: {OOM}22.00 MiB. GPU 0 has a total capacity of 23.65 GiB of "
            "which 11.06 MiB is free. Including non-PyTorch memory, this process has 23.60 GiB "
            "memory in use. Of the allocated memory 22.90 GiB is allocated by PyTorch, and 194.87 "
            f"MiB is reserved by PyTorch but unallocated.{TRY}",
            "GPU 0 is full: 23 MB asked for; 12 MB free; tensors hold 25 GB; 204 MB "
            f"{IN_PIECES}",
        ),
        (
            f"[rank1]: torch.OutOfMemoryError: {OOM}256.00 MiB. GPU 1 has a total capacity of 47.53 "
            "GiB of which 16.88 MiB is free. Process 3652628 has 47.51 GiB memory in use. Of the "
            "allocated memory 47.14 GiB is allocated by PyTorch, and 57.79 MiB is reserved by "
            f"PyTorch but unallocated.{TRY}",
            "GPU 1 is full: 268 MB asked for; 18 MB free; tensors hold 51 GB",
        ),
        (
            f"torch.cuda.OutOfMemoryError: {OOM}55.57 GiB. GPU 0 has a total capacty of 12.00 GiB "
            "of which 9.02 GiB is free. Of the allocated memory 984.52 MiB is allocated by PyTorch, "
            "and 463.48 MiB is reserved by PyTorch but unallocated.",
            "GPU 0 is full: 60 GB asked for; 9.7 GB free; it has only 13 GB; tensors "
            "hold 1.0 GB",
        ),
        (
            f"torch.cuda.OutOfMemoryError: {OOM}1.70 GiB. GPU 0 has a total capacty of 6.00 GiB of "
            "which 0 bytes is free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and "
            "2.30 GiB is reserved by PyTorch but unallocated.",
            "GPU 0 is full: 1.8 GB asked for; 0 B free; tensors hold 3.1 GB; 2.5 GB "
            f"{IN_PIECES}",
        ),
        (
            f"{OOM}5.96 GiB. GPU 0 has a total capacty of 23.69 GiB of which 5.25 GiB is free. "
            "Process 2006998 has 256.00 MiB memory in use. Including non-PyTorch memory, this "
            "process has 18.17 GiB memory in use. Of the allocated memory 17.88 GiB is allocated by "
            "PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
            "GPU 0 is full: 6.4 GB asked for; 5.6 GB free; tensors hold 19 GB; other "
            "processes hold 268 MB: 2006998",
        ),
        (
            f"{OOM}5.96 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.25 GiB is free. "
            "Process 71 has 12.00 GiB memory in use. Including non-PyTorch memory, this process "
            "has 10.17 GiB memory in use. Of the allocated memory 9.88 GiB is allocated by PyTorch, "
            "and 0 bytes is reserved by PyTorch but unallocated.",
            "GPU 0 is full: 6.4 GB asked for; 1.3 GB free; tensors hold 11 GB; other "
            "processes hold 13 GB: 71",
        ),
        (
            f"RuntimeError: {OOM}2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already "
            "allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)",
            "GPU 0 is full: 2.4 GB asked for; 3.3 GB free; tensors hold 820 MB",
        ),
        (
            f"RuntimeError: {OOM}12.50 MiB (GPU 3; 10.92 GiB total capacity; 8.57 MiB already "
            "allocated; 9.28 MiB free; 4.68 MiB cached)",
            "GPU 3 is full: 13 MB asked for; 9.7 MB free; tensors hold 9.0 MB",
        ),
        (f"RuntimeError: {OOM}2.00 GiB", "a GPU is full: 2.1 GB asked for; - free"),
        ("RuntimeError: CUDA error: out of memory", None),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes", None),
    ],
)  # fmt: skip
def test_who_holds_how_much_is_said(message: str, said: str | None) -> None:
    assert full_memory(message) == said
