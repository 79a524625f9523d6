"""Finds the loop of a training's steps, by sampled stacks and by the source of the loops in them.

It is the innermost loop around the backward pass or the optimizer's step: the user's, or that of a
library that trains for the user. In a program without either it is a loop whose names say so. Pure.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.frameworks.frames import any_means, means
from profd.daemon.stacks.source import is_library, own_frames
from profd.daemon.steps.declared import Declared, Function, Loop
from profd.daemon.store.records import Frame

_STEP = re.compile(
    r"(^|_)(global_)?(steps?|iters?|iteration|batch|batches|idx|it|updates?)(_|\d|$)", re.IGNORECASE
)
_NO_STEP = re.compile(
    r"size|epoch|layer|group|attempt|retry|retries|max|total|num_(?!iter)"
    r"|(^|[._])(eval|valid|test|predict)",
    re.IGNORECASE,
)


class LoopPlace(msgspec.Struct, frozen=True):
    """A loop of a function on a stack: ``name`` is that of the function, in py-spy's words."""

    file: str
    name: str
    function: Function
    loop: Loop

    @property
    def key(self) -> tuple[str, int]:
        return self.file, self.loop.first_line

    def has_line(self, line: int | None) -> bool:
        return line is not None and self.loop.first_line <= line <= self.loop.last_line


class StepLoop(msgspec.Struct, frozen=True):
    """The loop of the steps, the loops ``around`` it, and that of micro-batches inside it.

    The outermost loop comes first.
    """

    place: LoopPlace
    around: tuple[LoopPlace, ...] = ()
    micro: LoopPlace | None = None

    def is_around(self, stack: Stack) -> bool:
        """Say whether a stack is in this loop, or in one around it."""
        return any(
            (frame.file, frame.function) == (place.file, place.name) and place.has_line(frame.line)
            for place in (*self.around, self.place)
            for frame in stack
        )


Stack = Sequence[Frame]
"""A stack of a main thread, the outermost frame first."""
_Chain = tuple[LoopPlace, ...]
_BACKWARD_PASS, _UPDATE, _OTHER = "backward pass", "update", "other"


class Sight(msgspec.Struct, frozen=True):
    """What one stack shows: the ``part`` of a step, and the ``chain`` of the loops around it.

    The part is the backward pass, an update of the model, or other code of the user's own; it is
    None for all else, whose chain is not needed. The outermost loop comes first. ``keys`` are those
    of the chain; ``trains``: a frame of the stack trains.
    """

    stack: Stack
    part: str | None
    chain: _Chain
    keys: tuple[tuple[str, int], ...]
    trains: bool


def sight_of(stack: Stack, declared: Declared) -> Sight:
    at = next((depth for depth, frame in enumerate(stack) if trains(frame)), None)
    part, chain = _shown(stack, at, declared)
    return Sight(stack, part, chain, tuple(place.key for place in chain), at is not None)


def _shown(stack: Stack, training: int | None, declared: Declared) -> tuple[str | None, _Chain]:
    """Return the part of a step that a stack is in, and the loops around it.

    The frame at ``training`` trains; it is None if no frame does.
    """
    if any(frame.file == "<frozen importlib._bootstrap>" for frame in stack):
        return None, ()
    if training is not None:
        part = _BACKWARD_PASS if means(stack[training], "backward") else _UPDATE
        return part, tuple(_places(stack[:training], declared))
    own = own_frames(stack)
    chain = tuple(_places(own, declared))
    if updating := _updating(chain):
        return _UPDATE, chain[:updating]
    is_other = own and not any_means(own, "named like an evaluation")
    return _OTHER if is_other else None, chain


class Sights:
    """What the last stacks of a program showed.

    Those of the training are kept apart from others, as they may be few.
    """

    def __init__(self) -> None:
        self._training, self._others = deque[Sight](maxlen=30), deque[Sight](maxlen=30)
        self._were_of_training: deque[bool] = deque(maxlen=40)

    def take(self, sight: Sight) -> None:
        (self._training if sight.trains else self._others).append(sight)
        self._were_of_training.append(sight.trains)

    def clear(self) -> None:
        for kept in (self._training, self._others, self._were_of_training):
            kept.clear()

    def loop(self) -> StepLoop | None:
        """Return the loop of the steps that these stacks show."""
        return find_loop([*self._training, *self._others])

    def without_training(self) -> int:
        """Return how many last stacks, 40 at most, were not of the training; 0 if any one was."""
        return 0 if any(self._were_of_training) else len(self._were_of_training)


def find_loop(sights: Sequence[Sight]) -> StepLoop | None:
    backward, optimizer, others = (
        [sight for sight in sights if sight.part == part]
        for part in (_BACKWARD_PASS, _UPDATE, _OTHER)
    )
    if not backward and not optimizer:
        # A program of torch that is in neither evaluates: its training comes later.
        uses_torch = any(any_means(sight.stack, "torch") for sight in sights)
        return None if uses_torch or len(others) < 10 else _by_names(others)
    inner, outer = (next(iter(_chains(of_part)), ()) for of_part in (backward, optimizer))
    # A stack that is read while the program goes on may be of two moments: one alone does not
    # count. That the optimizer is never seen takes more stacks in the backward pass.
    is_plain = bool(optimizer) or len(inner) < 2 or _updating(inner)
    least = 2 if is_plain else 20
    if Tally(sight.keys for sight in (*backward, *optimizer)).most_common(1)[0][1] < least:
        return None
    chain, micro = _of_steps(inner, outer)
    return StepLoop(chain[-1], chain[:-1], micro) if chain else None


def _of_steps(inner: _Chain, outer: _Chain) -> tuple[_Chain, LoopPlace | None]:
    """Return the loops down to that of the steps, and that of micro-batches inside it, if any.

    ``inner`` are the loops around the backward pass, ``outer`` those around the optimizer's step.
    The latter is in one of the former, or, if it is never seen, in the innermost.
    """
    chain = inner or outer
    length = len(chain)
    if not outer:
        length = _updating(chain) or length
    elif same := _within_a_library(inner, outer):
        return chain[:same], None
    elif [place.key for place in outer] == [place.key for place in inner[: len(outer)]]:
        length = len(outer)
    return chain[:length], chain[-1] if length < len(chain) else None


def _chains(sights: Sequence[Sight]) -> list[_Chain]:
    """Return the different chains that stacks show, the most frequent first."""
    chains = {sight.keys: sight.chain for sight in sights}
    return [chains[keys] for keys, _ in Tally(sight.keys for sight in sights).most_common()]


def trains(frame: Frame) -> bool:
    """Say whether a frame is of the backward pass or of an optimizer's step."""
    return means(frame, "backward", "optimizer step")


def _places(frames: Sequence[Frame], declared: Declared) -> Iterator[LoopPlace]:
    for frame in frames:
        if frame.function.endswith(
            ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<lambda>")
        ):
            continue  # a part of the function around it, whose frame is beside
        function = declared.function_at(frame.file, frame.function, frame.line)
        yield from (
            LoopPlace(frame.file, frame.function, function, loop)
            for loop in function.around(frame.line)
        )


def _within_a_library(inner: _Chain, outer: _Chain) -> int:
    """Return how many first loops two chains share if they part in a library, else 0.

    A loop of the user's calls that library. Pyro's backward pass is in a loop over particles, its
    optimizer's step in one over parameters.
    """
    same = 0
    for one, other in zip(inner, outer, strict=False):
        if one.key != other.key:
            break
        same += 1
    if not same or same == min(len(inner), len(outer)) or is_library(inner[same - 1].file):
        return 0
    return same if is_library(inner[same].file) and is_library(outer[same].file) else 0


def _updating(chain: _Chain) -> int:
    """Return how many loops there are down to the innermost one with the optimizer's step, or 0.

    If a function has it beside its loops, they are inside a step: that of the loop that calls it.
    """
    return max(
        (
            number
            if place.loop.updates
            else place.function.updates
            and number - len(place.function.around(place.loop.first_line))
            for number, place in enumerate(chain, 1)
        ),
        default=0,
    )


def _by_names(sights: Sequence[Sight]) -> StepLoop | None:
    """Return the outermost loop on nearly all stacks whose names say that its rounds are steps."""
    seen = Tally(key for sight in sights for key in set(sight.keys))
    for chain in _chains(sights):
        for number, place in enumerate(chain):
            names = {*place.loop.given, *(counter.name for counter in place.loop.counters)}
            says_step = any(_STEP.search(name) and not _NO_STEP.search(name) for name in names)
            if seen[place.key] >= 0.6 * len(sights) and says_step:
                return StepLoop(place, chain[:number])
    return None
