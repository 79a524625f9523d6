"""What torch says when a GPU's memory is full, as its allocator words it since torch 1.4.

Source: c10/cuda/CUDACachingAllocator.cpp and c10/xpu/XPUCachingAllocator.cpp, and messages in
public reports.
"""

from __future__ import annotations

import re

from profd.daemon.units import size

_SIZE = r"([\d.]+) (bytes|[KMGT]iB)"
_FULL = re.compile(rf"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate {_SIZE}")
_GPU = re.compile(r"\bGPU \d+")
_WHOLE = re.compile(rf"capac\w+ of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"{_SIZE} (?:is )?free")
_TENSORS = re.compile(rf"{_SIZE} (?:is allocated by PyTorch|already allocated)")
_SPARE = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)")
# Without a line of its own, a process is named by its PID itself.
_OTHER = re.compile(rf"Process (\d+) has {_SIZE} memory in use(?=.*\bthis process has)")
_UNITS = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
_REMEDY = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins pieces"


def full_memory(text: str) -> str | None:
    """Return what a message says of a GPU whose memory is full; None if it says no such thing.

    That is who holds how much, whether the GPU could ever hold what was asked for, and whether
    torch holds as much unused.
    """
    if (asked := _bytes(_FULL, text)) is None:
        return None
    whole, tensors, spare = (_bytes(one, text) or 0.0 for one in (_WHOLE, _TENSORS, _SPARE))
    if reserved := _bytes(_RESERVED, text):
        spare = reserved - tensors
    others = _OTHER.findall(text)
    held = sum(float(number) * 2.0 ** _UNITS[unit] for _, number, unit in others)
    gpu, free = _GPU.search(text), _bytes(_FREE, text)
    said = [f"{gpu[0] if gpu else 'a GPU'} is full: {size(asked)} asked for; {size(free)} free"]
    if 0 < whole < asked:
        said.append(f"it has only {size(whole)}")
    if tensors:
        said.append(f"tensors hold {size(tensors)}")
    if others:
        said.append(f"other processes hold {size(held)}: {' and '.join(pid for pid, *_ in others)}")
    if asked <= spare:
        said.append(f"{size(spare)} that torch holds unused have no piece that fits: {_REMEDY}")
    return "; ".join(said)


def _bytes(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    if found is None:
        return None
    number, unit = filter(None, found.groups())
    return float(number) * 2.0 ** _UNITS[unit]
