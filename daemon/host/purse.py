"""What all sessions of the host together have spent of their budget, and so what each may spend from now on. Pure.

Sessions hold themselves to the part that they are given. What they cannot know is what others spent before them: ten
short jobs, one after the other, are ten starts in one minute.
"""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.collect.cost import Spending
from profd.daemon.collect.governor import MINUTE_S, Ledger

START_S = 0.8
"""CPU seconds that it takes to begin a recording, until its session has measured itself: interpreter and py-spy."""


class Purse:
    """The ledger of the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ns = clock.now_ns()
        self._ledger = Ledger()

    def take(self, cpu_s: float) -> None:
        """Take in the CPU seconds that were spent since the last call."""
        now_ns = self._clock.now_ns()
        self._ledger.add(Spending(cpu_s, max(now_ns - self._last_ns, 1) / SECOND_NS))
        self._last_ns = now_ns

    def starts(self, budget_percent: float) -> int:
        """Return how many recordings may begin now without the minute passing the budget."""
        return max(int((MINUTE_S * budget_percent / 100 - self._ledger.spent_s(MINUTE_S)) / START_S), 0)

    def part(self, budget_percent: float, least_percent: float, sessions: int) -> float:
        """Return what each of so many sessions may cost from now on, in percent of a core."""
        allowed = min(100 * self._ledger.allowance(budget_percent / 100), budget_percent)
        return max(allowed / max(sessions, 1), min(least_percent, budget_percent))
