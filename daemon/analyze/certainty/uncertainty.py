"""How sure a share of time is, from how often its state was seen to begin and to end.

py-spy samples at Poisson moments, and what a sample sees is taken to last until the next one. The error of the time of
a state, divided by the mean distance of samples, is then a martingale that jumps by one at each change of the state
that is seen, and its variance is the number of those changes: whatever the rhythm of the program, and whether the state
lasts for microseconds or minutes (docs/decisions.md has the figures). One change more may be under way at the end.

Where reads fail all the time, what they would have shown is a guess, and the more of them fail in a row the less there
is to go by. That error does not get less with time, as all the guesses err alike.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Generic, TypeVar

from profd.daemon.analyze.certainty.changes import ChangesSeen, Moment, Reads

State = TypeVar("State")

_GUESSED = 1.5
"""By how much guesses are off where all reads fail: the standard error of the log odds of a share. It falls with the
square of the share of failed reads, and was found with the known program of restless code (docs/decisions.md)."""


class Doubt(Generic[State]):
    """How exactly the times of many states are known, among them states that hold at the same time.

    ``states`` tells in which of them a thread is while it stands in a stack: in none where the stack is not selected.
    """

    __slots__ = ("_known", "_open_ns2", "_own", "_reads", "_shared", "_states", "_whole")

    def __init__(self, states: Callable[[int], frozenset[State]]) -> None:
        self._states = states
        self._known: dict[int, frozenset[State]] = {}
        self._own: defaultdict[State, float] = defaultdict(float)
        self._shared: defaultdict[State, float] = defaultdict(float)
        self._whole = 0.0
        self._open_ns2 = 0.0
        self._reads = Reads()

    def add(self, seen: ChangesSeen) -> None:
        """Count changes of one process, with what they leave open."""
        self._open_ns2 = seen.open_ns2
        self._reads += seen.reads
        for moment, square in seen.squares.items():
            self._count(moment, square)

    def update(self, other: Doubt[State], weight: float) -> None:
        """Count what another one counted of another process, its times weighted."""
        square = weight**2
        self._open_ns2 += other._open_ns2 * square
        self._reads += other._reads.times(weight)
        self._whole += other._whole * square
        for own, others in ((self._own, other._own), (self._shared, other._shared)):
            for state, open_ns2 in others.items():
                own[state] += open_ns2 * square

    def standard_error(self, state: State, share: float, whole_ns: float) -> float:
        """Return the standard error of the share that a state has of ``whole_ns``; 1 where nothing is known."""
        if not whole_ns or not self._open_ns2:
            return 1.0
        own, shared = self._own.get(state, 0.0), self._shared.get(state, 0.0)
        changed = own - 2 * share * shared + share**2 * self._whole
        guessed = _GUESSED * self._reads.failed_share**2 * share * (1 - share)
        return min(math.hypot(math.sqrt(changed + self._open_ns2) / whole_ns, guessed), 1.0)

    def _count(self, moment: Moment, square: float) -> None:
        if len(moment) > 1:
            self._count_together(moment, square)
            return
        left, entered = map(self._states_of, moment[0])
        for state in left ^ entered:
            self._own[state] += square
        if bool(left) != bool(entered):
            self._whole += square
            for state in left ^ entered:
                self._shared[state] += square

    def _count_together(self, moment: Moment, square: float) -> None:
        """Count changes of several threads: by how many more or fewer are in a state after them."""
        net: Counter[State] = Counter()
        whole = 0
        for change in moment:
            left, entered = map(self._states_of, change)
            net.update(entered - left)
            net.subtract(left - entered)
            whole += bool(entered) - bool(left)
        self._whole += whole**2 * square
        for state, by in net.items():
            self._own[state] += by**2 * square
            self._shared[state] += by * whole * square

    def _states_of(self, stack: int) -> frozenset[State]:
        known = self._known.get(stack)
        if known is None:
            known = self._states(stack)
            if known:  # what is not selected now may be so later
                self._known[stack] = known
        return known
