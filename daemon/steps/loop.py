"""Finds the loop of a training's steps, by sampled stacks and by the source of the loops in them.

It is the innermost one around the backward pass or the optimizer's step: the user's, or that of a library that trains
for the user. A program without either steps through a loop whose names say so. Pure.
"""

from __future__ import annotations

import functools
import re
from collections import Counter as Tally
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.stacks.source import is_library
from profd.daemon.steps.declared import Declared, Function, Loop
from profd.daemon.store.records import Frame

_BACKWARD = re.compile(r"/torch/(_tensor|autograd/(__init__|graph))\.py$")
_OPTIMIZER = re.compile(r"/torch/optim/(?!lr_scheduler|swa_utils)|/keras/src/optimizers/base_|/fastai/optimizer\.py$")
_STEP = re.compile(r"(^|_)(global_)?(steps?|iters?|iteration|batch|batches|idx|it|updates?)(_|\d|$)", re.IGNORECASE)
_NO_STEP = re.compile(
    r"size|epoch|layer|group|attempt|retry|retries|max|total|num_(?!iter)|(^|[._])(eval|valid|test|predict)",
    re.IGNORECASE,
)
# A stack that is read while the program goes on may be of two moments: one alone does not count.
_LEAST_SIGHTS = 2
# After this many stacks in the backward pass, and none in the optimizer, the optimizer is never seen.
_LEAST_WITHOUT_OPTIMIZER = 20


class Place(msgspec.Struct, frozen=True):
    """A loop of a function, as it is on a stack: ``name`` is the function's in py-spy's words."""

    file: str
    name: str
    function: Function
    loop: Loop

    @property
    def key(self) -> tuple[str, int]:
        return self.file, self.loop.first_line


class StepLoop(msgspec.Struct, frozen=True):
    """The loop of the steps, the loops around it with the outermost first, and that of micro-batches inside it.

    ``lines`` are those of its function below which the training was seen, and not an evaluation.
    """

    place: Place
    around: tuple[Place, ...] = ()
    micro: Place | None = None
    lines: frozenset[int] = frozenset()


Stack = Sequence[Frame]
"""A stack of a main thread, the outermost frame first."""
_Chain = tuple[Place, ...]


def find_loop(stacks: Sequence[Stack], declared: Declared) -> StepLoop | None:
    backward: Tally[_Chain] = Tally()
    optimizer: Tally[_Chain] = Tally()
    others: Tally[_Chain] = Tally()
    for stack in stacks:
        if any(frame.file == "<frozen importlib._bootstrap>" for frame in stack):
            continue
        at = next((depth for depth, frame in enumerate(stack) if trains(frame)), None)
        if at is not None:
            chain = tuple(_places(stack[:at], declared))
            (backward if _BACKWARD.search(stack[at].file) else optimizer)[chain] += 1
            continue
        own = [frame for frame in stack if not is_library(frame.file)]
        chain = tuple(_places(own, declared))
        if updating := _updating(chain):
            optimizer[chain[:updating]] += 1
        elif own and not any(_NO_STEP.search(frame.function) for frame in own):
            others[chain] += 1
    if not backward and not optimizer:
        # A program of torch that is in neither evaluates: its training comes later.
        uses_torch = any("/torch/" in frame.file for stack in stacks for frame in stack)
        return None if uses_torch or others.total() < 10 else _by_names(others)
    inner, outer = (tally.most_common(1)[0][0] if tally else () for tally in (backward, optimizer))
    # The optimizer's step is in one of the loops around the backward pass; where it is never seen, in the innermost.
    is_plain = bool(optimizer) or len(inner) < 2 or _updating(inner)
    if (backward + optimizer).most_common(1)[0][1] < (_LEAST_SIGHTS if is_plain else _LEAST_WITHOUT_OPTIMIZER):
        return None
    chain = inner or outer
    length = len(chain)
    if not outer:
        length = _updating(chain) or length
    elif same := _within_a_library(inner, outer):
        chain, length = chain[:same], same
    elif [place.key for place in outer] == [place.key for place in inner[: len(outer)]]:
        length = len(outer)
    micro = chain[-1] if length < len(chain) else None
    if not chain:
        return None
    place, training = chain[length - 1], (stack for stack in stacks if any(map(trains, stack)))
    seen = (frame for stack in training for frame in stack if (frame.file, frame.function) == (place.file, place.name))
    return StepLoop(place, chain[: length - 1], micro, frozenset(frame.line for frame in seen))


def training_loops(stack: Stack, declared: Declared) -> frozenset[tuple[str, int]] | None:
    """Return the keys of the loops around the training on a stack; None where it shows no training."""
    at = next((depth for depth, frame in enumerate(stack) if trains(frame)), None)
    return None if at is None else frozenset(place.key for place in _places(stack[:at], declared))


@functools.lru_cache(4096)
def trains(frame: Frame) -> bool:
    """Say whether a frame is of the backward pass or of an optimizer's step."""
    name = frame.function.rpartition(".")[2]
    if _BACKWARD.search(frame.file):
        return name in ("backward", "grad", "_engine_run_backward")
    return bool(_OPTIMIZER.search(frame.file)) and name in ("step", "wrapper", "apply")


def _places(frames: Sequence[Frame], declared: Declared) -> Iterator[Place]:
    for frame in frames:
        if frame.function.endswith(("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<lambda>")):
            continue  # a part of the function that it stands in, whose frame is beside
        function = declared.function_at(frame.file, frame.function, frame.line)
        yield from (Place(frame.file, frame.function, function, loop) for loop in function.around(frame.line))


def _within_a_library(inner: _Chain, outer: _Chain) -> int:
    """Return how many loops two chains begin with alike, where they part in a library that a loop of the user's calls.

    Pyro's backward pass is in a loop over particles, its optimizer's step in one over parameters.
    """
    same = 0
    for one, other in zip(inner, outer, strict=False):
        if one.key != other.key:
            break
        same += 1
    parts = same and same < min(len(inner), len(outer)) and not is_library(inner[same - 1].file)
    return same if parts and all(is_library(place.file) for place in (inner[same], outer[same])) else 0


def _updating(chain: _Chain) -> int:
    """Return how many loops there are down to the innermost one with the optimizer's step; 0 where none has it."""
    return max((number for number, place in enumerate(chain, 1) if place.loop.updates), default=0)


def _by_names(chains: Tally[_Chain]) -> StepLoop | None:
    """Return the outermost loop on nearly all stacks whose names say that its rounds are steps."""
    seen: Tally[tuple[str, int]] = Tally()
    for chain, samples in chains.items():
        seen.update({place.key: samples for place in chain})
    for chain, _ in chains.most_common():
        for number, place in enumerate(chain):
            names = {*place.loop.given, *(counter.name for counter in place.loop.counters)}
            says_step = any(_STEP.search(name) and not _NO_STEP.search(name) for name in names)
            if seen[place.key] >= 0.6 * chains.total() and says_step:
                return StepLoop(place, chain[:number])
    return None
