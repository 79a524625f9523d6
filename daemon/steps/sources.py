"""Finds what counts the steps of a running program: variables, read from outside.

Either how often the optimizer of torch's has changed a tensor, or the variable that the loop counts
by, as its source declares it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter as Tally
from collections.abc import Iterator

import msgspec

from profd.daemon.events import OPTIMIZER_STEPS
from profd.daemon.interpreter import integers
from profd.daemon.interpreter.frames import Code, PythonFrame, open_interpreter
from profd.daemon.interpreter.integers import (
    Global,
    Local,
    Moved,
    Variable,
    local_of,
)
from profd.daemon.interpreter.lines import Lines
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.interpreter.objects import Held, Missing, object_at
from profd.daemon.interpreter.tensors import TensorVersion, first_of_list
from profd.daemon.steps.declared import Counter, Declared
from profd.daemon.steps.loop import LoopPlace, StepLoop, trains
from profd.daemon.store import records

_OPTIMIZERS = re.compile(r"(?:^|/)(torch/optim/\w+\.py)$")


class Source(msgspec.Struct, frozen=True):
    """A variable that counts the rounds of a loop: by ``stride`` from ``start`` on.

    ``name`` is for the user. ``is_added``, ``is_late`` and ``of_updates`` are those of the declared
    counter.
    """

    name: str
    variable: Variable
    stride: int = 1
    start: int = 0
    is_added: bool = False
    is_late: bool = False
    of_updates: bool = False


class Program:
    """The leading thread of a running program, and its sources. Everything raises Unreadable."""

    def __init__(self, pid: int, declared: Declared) -> None:
        """Open it; raises Unreadable if it is no Python that can be read."""
        self._python = open_interpreter(pid)
        self._reader = integers.IntegerReader(self._python, self._python.main_thread())
        self._leader: int | None = None
        self._lines = Lines(self._python)
        self._declared = declared
        self.close = self._python.memory.close

    def follow(self, leader: int | None) -> None:
        """Read of the thread with this id of Python's from now on; None stands for the main one.

        Nothing changes as long as the id is the same: the loop may be in another thread by now.
        """
        if leader != self._leader:
            python = self._python
            self._reader.thread = python.thread(leader) if leader else python.main_thread()
            self._leader = leader

    def stack(self) -> list[records.Frame]:
        """Return the frames of the leading thread, the outermost first.

        Those inside of the one that trains have no lines.
        """
        found: list[records.Frame] = []
        is_inside = False
        for frame in reversed(self._python.stack(self._reader.thread)):
            line = 0 if is_inside else self._lines.line_of(frame)
            if line is None:
                raise Unreadable("a frame has ended meanwhile")
            found.append(
                records.Frame(frame.code.name, self._declared.absolute(frame.code.file), line)
            )
            is_inside = is_inside or trains(found[-1])
        return found

    def optimizer_steps(self) -> Source | None:
        """Return what counts the steps of the optimizer of torch's that is at work now.

        That is the first of the tensors of steps, which an optimizer with a state has. SGD has
        none: it changes each of its parameters once a step. They are arguments of the functions
        that a step calls, the innermost ones. These may be over at any moment: a tensor is none by
        chance.
        """
        for address, at in itertools.islice(self._python.frames(self._reader.thread), 4):
            code = self._python.code(at)
            file, is_plain = _OPTIMIZERS.search(code.file), code.file.endswith("/sgd.py")
            name = "params" if is_plain else "state_steps"
            is_early = not is_plain and "self" in code.variables  # nothing shows what is scaled
            if file is None or name not in code.variables or is_early:
                continue
            tensor = first_of_list(self._python, self._argument(address, code, name))
            variable = TensorVersion(tensor.address, tensor.type)
            self._reader.read(variable)
            # A fused one also takes the step back if gradients are not finite.
            is_scaled = False
            if not is_plain and "found_inf" in code.variables:
                with contextlib.suppress(Missing):  # None may look like what was freed
                    given = self._argument(address, code, "found_inf")
                    is_scaled = given.type_name != "NoneType"
            return Source(
                f"{OPTIMIZER_STEPS} ({file[1]})",
                variable,
                1 + is_scaled,
                is_added=True,
                is_late=True,
                of_updates=True,
            )
        return None

    def _argument(self, frame: int, code: Code, name: str) -> Held:
        place = frame + self._python.offsets.values + 8 * code.variables.index(name)
        return object_at(self._python, self._python.untagged(self._python.memory.word(place)))

    def sources_of(self, loop: StepLoop) -> list[Source]:
        """Return what counts the rounds of a loop now, the most reliable first."""
        stack = self._python.stack(self._reader.thread)
        frame, place = _frame_of(stack, loop.place), loop.place
        if frame is None or _is_other(stack, loop):
            return []
        if not place.has_line(self._lines.line_of(frame)):
            return []
        return [one for one in self._counters(frame, place) if self._shows(one)]

    def _shows(self, source: Source) -> bool:
        try:
            self._reader.read(source.variable)
        except Missing as error:
            return isinstance(error, Moved)
        return True

    def round_of(self, source: Source) -> int | None:
        """Return the round, from 0, of a source, None if it shows none.

        Raises Moved if it is too fast.
        """
        try:
            return (self._reader.read(source.variable) - source.start) // source.stride
        except Moved:
            raise
        except Missing:
            return None

    def number_of(self, place: LoopPlace, name: str) -> int | None:
        """Return the value of a variable in a loop's function; None if it has none now."""
        frame = _frame_of(self._python.stack(self._reader.thread), place)
        return None if frame is None else self.value(_variable(frame, name))

    def value(self, variable: Variable) -> int | None:
        """Return the value of a variable; None if it has none, or it cannot be read now."""
        try:
            return self._reader.read(variable)
        except Missing:
            return None

    def _counters(self, frame: PythonFrame, place: LoopPlace) -> Iterator[Source]:
        """Yield what the loop counts by: counters of updates first, then those it adds to."""
        for one in sorted(place.loop.counters, key=_rank):
            stride = (
                one.stride if isinstance(one.stride, int) else self.number_of(place, one.stride)
            )
            if stride and stride > 0:
                where = f"{self._declared.path_of(place.file)}:{place.loop.first_line}"
                name = f"loop counter `{one.name}` in {place.name} ({where})"
                kind = one.is_added, one.is_late, one.of_updates
                yield Source(name, _variable(frame, one.name), stride, one.start or 0, *kind)


def _rank(counter: Counter) -> tuple[bool, ...]:
    """Return the key that sorts counters, the best first."""
    return not counter.of_updates, not counter.is_added, counter.stride != 1


def _variable(frame: PythonFrame, name: str) -> Local | Global:
    return local_of(frame, name) or Global(frame.globals, name)


def _is_other(stack: list[PythonFrame], loop: StepLoop) -> bool:
    """Say whether a loop's functions are on a stack more often than for training.

    The loop then evaluates by them, too.
    """
    places = (*loop.around, loop.place)
    seen = Tally(place.key for place in places)
    return any(len(_frames_of(stack, place)) > seen[place.key] for place in places)


def _frame_of(stack: list[PythonFrame], place: LoopPlace) -> PythonFrame | None:
    """Return the innermost frame of a loop's function."""
    return next(iter(_frames_of(stack, place)), None)


def _frames_of(stack: list[PythonFrame], place: LoopPlace) -> list[PythonFrame]:
    lines = range(place.function.first_line - 1, place.loop.first_line + 1)
    return [
        frame
        for frame in stack
        if frame.code.name == place.name
        and place.file.endswith(frame.code.file.removeprefix("./"))
        and (frame.code.first_line in lines or place.name == "<module>")
    ]
