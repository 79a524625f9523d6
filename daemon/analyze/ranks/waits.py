"""In which stacks a rank waits for the others, or may.

A wait inside backward has no frame of its own: autograd runs there in C++, the reducer of DistributedDataParallel with
it, so computing and waiting look alike. On a GPU whoever asks for a value waits for its kernels, those that exchange
data among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from profd.daemon.analyze.phases import BACKWARD, COLLECTIVE, COPY, SYNCHRONIZE, PhaseIndex
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

_WAITS_FOR_THE_GPU = frozenset({SYNCHRONIZE, COPY})
# Where ranks begin to exchange data, or do; not what runs when these modules are imported.
_EXCHANGES = re.compile(
    r"torch/nn/parallel/distributed[.]py (\w+[.])?(__init__|forward|_\w+)"
    r"|torch/distributed/distributed_c10d[.]py (init_process_group|_new_process_group_helper|all_\w+|reduce\w*"
    r"|broadcast\w*|barrier|gather|scatter)"
    r"|torch/distributed/(fsdp|_composable)/.* (\w+[.])?(__init__|forward|_?pre_\w+|_?post_\w+)"
    r"|(horovod|deepspeed)/.* (init|initialize|forward|step|allreduce\w*)"
)
_ENGINE = "torch/autograd/"


class WaitIndex:
    """Which stacks of a run are work of a rank's own, and which may be waits for others."""

    def __init__(self, reader: RunReader, phases: PhaseIndex) -> None:
        self._reader = reader
        self._phases = phases
        self.has_gpu = bool(reader.devices())
        self._may_wait: dict[int, bool] = {}

    def may_wait(self, stack: int) -> bool:
        """Say whether a rank may be waiting for others in a stack; all else it does by itself."""
        known = self._may_wait.get(stack)
        if known is None:
            known = self._may_wait[stack] = self._decide(stack)
        return known

    def is_backward(self, stack: int) -> bool:
        """Say whether a stack is one of autograd's own, where work and waits look alike."""
        return self.may_wait(stack) and self._phases.of_stack(stack) == BACKWARD

    def _decide(self, stack: int) -> bool:
        phase = self._phases.of_stack(stack)
        if phase == BACKWARD:
            return _is_in_engine(self._reader.frames_of(stack))
        return phase == COLLECTIVE or (self.has_gpu and phase in _WAITS_FOR_THE_GPU)


def _is_in_engine(frames: Sequence[FrameRow]) -> bool:
    """Say whether a stack of backward ends in autograd itself, and not in Python that it calls."""
    in_engine = [frame.module_path.startswith(_ENGINE) for frame in frames]
    return in_engine[-1] or not any(in_engine)


def exchange(reader: RunReader) -> bool:
    """Say whether the processes of a run are ranks that exchange data: others wait for nobody."""
    return any(_EXCHANGES.fullmatch(f"{frame.module_path} {frame.function}") for frame in reader.frames.values())
