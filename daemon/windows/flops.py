"""Input shapes of operators, and an estimate of their floating point operations by torch's own formulas.

torch computes them for its tables and does not write them to a trace; the formulas are those of
``torch/csrc/profiler/util.cpp``. A multiply-add is two operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import msgspec

from profd.daemon.windows.trace import HostSpan

Dims = Sequence[object]
"""The inputs' shapes as a trace has them: a list of sizes each, empty for what is no tensor."""
Concrete = Sequence[object]
"""The values as text of the inputs that are no tensors."""


def estimate(name: str, dims: Dims, concrete: Concrete) -> int:
    """Return the operations of one call of an operator; 0 where torch has no formula, or the shapes fit none."""
    formula = _FORMULAS.get(name)
    if formula is None:
        return 0
    try:
        return formula(dims, concrete)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return 0


def _mm(dims: Dims, concrete: Concrete) -> int:
    first = _sizes(dims[0])
    return 2 * prod(first) // first[-1] * prod(_sizes(dims[1]))


def _bmm(dims: Dims, concrete: Concrete) -> int:
    return _mm(dims, concrete) // _sizes(dims[0])[0]


def _elementwise(dims: Dims, concrete: Concrete) -> int:
    return prod(_sizes(dims[0]))


def _conv2d(dims: Dims, concrete: Concrete) -> int:
    batch, channels_in, height, width = _sizes(dims[0])
    channels_out, _, kernel_height, kernel_width = _sizes(dims[1])
    stride, padding, dilation = (_pair(concrete[position]) for position in (3, 4, 5))
    groups = int(str(concrete[6]))
    height_out = _reach(height, kernel_height, stride[0], padding[0], dilation[0])
    width_out = _reach(width, kernel_width, stride[1], padding[1], dilation[1])
    macs = batch * height_out * width_out * kernel_height * kernel_width * channels_in * channels_out
    return 2 * macs // groups


def _reach(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return how many places a kernel takes along one side of an image."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _pair(text: object) -> tuple[int, int]:
    """Return two sizes from text such as ``[2, 2]``; one stands for both."""
    sizes = msgspec.json.decode(str(text), type=list[int])
    return sizes[0], sizes[-1]


def _sizes(shape: object) -> list[int]:
    return msgspec.convert(shape, list[int])


_FORMULAS: dict[str, Callable[[Dims, Concrete], int]] = {
    "aten::conv2d": _conv2d,
    "aten::mm": _mm,
    "aten::addmm": lambda dims, concrete: _mm(dims[1:], concrete),
    "aten::mul": _elementwise,
    "aten::add": _elementwise,
    "aten::bmm": _bmm,
    "aten::baddbmm": lambda dims, concrete: _bmm(dims[1:], concrete),
}


NO_SHAPES = "[]"


class Inputs(msgspec.Struct, frozen=True):
    """The shapes of an operator's inputs as torch prints them, and the operations of one call with them."""

    shapes: str
    flops: int


class InputTable:
    """The inputs of calls. Few shapes have many calls, so each distinct text is decoded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes, bytes], Inputs] = {}

    def inputs_of(self, span: HostSpan) -> Inputs:
        """Return the inputs of a call; none where its shapes were not recorded."""
        if span.event is None or not (dims := bytes(span.event.args.input_dims)):
            return Inputs(NO_SHAPES, 0)
        concrete = bytes(span.event.args.concrete_inputs)
        key = (span.name if span.name in _FORMULAS else "", dims, concrete)
        known = self._known.get(key)
        if known is None:
            shapes = _decode_list(dims)
            # torch's tables show no shape of a list of tensors.
            plain = [[] if isinstance(one, list) and one and isinstance(one[0], list) else one for one in shapes]
            known = Inputs(str(plain), estimate(span.name, shapes, _decode_list(concrete)))
            self._known[key] = known
        return known


def _decode_list(text: bytes) -> list[object]:
    try:
        return msgspec.json.decode(text, type=list[object]) if text else []
    except msgspec.DecodeError:  # of another version of torch, which writes something else here
        return []
