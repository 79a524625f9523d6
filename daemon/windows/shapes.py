"""Turns what a trace says of an operator's inputs into the text of their shapes and an estimate of its operations.

Calls of few shapes are many, so each distinct text is decoded once.
"""

from __future__ import annotations

import msgspec

from profd.daemon.windows import flops
from profd.daemon.windows.spans import HostSpan

NO_SHAPES = "[]"


class Inputs(msgspec.Struct, frozen=True):
    """The shapes of an operator's inputs as torch prints them, and the operations of one call with them."""

    shapes: str
    flops: int


_NONE = Inputs(NO_SHAPES, 0)


class InputTable:
    """What is known of inputs, by what the trace says of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes, bytes], Inputs] = {}

    def inputs_of(self, span: HostSpan) -> Inputs:
        """Return the inputs of a call; none where its shapes were not recorded."""
        if span.event is None or not (dims := bytes(span.event.args.input_dims)):
            return _NONE
        concrete = bytes(span.event.args.concrete_inputs)
        key = (span.name if flops.has_formula(span.name) else "", dims, concrete)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _describe(span.name, dims, concrete)
        return known


def _describe(name: str, dims: bytes, concrete: bytes) -> Inputs:
    shapes = _decode_list(dims)
    return Inputs(str([_plain(shape) for shape in shapes]), flops.estimate(name, shapes, _decode_list(concrete)))


def _plain(shape: object) -> object:
    """Return a shape as torch's tables show it: a list of tensors has none."""
    return [] if isinstance(shape, list) and shape and isinstance(shape[0], list) else shape


def _decode_list(text: bytes) -> list[object]:
    try:
        return msgspec.json.decode(text, type=list[object]) if text else []
    except msgspec.DecodeError:  # of another version of torch, which writes something else here
        return []
