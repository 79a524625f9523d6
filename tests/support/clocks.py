"""A clock that stands still until a test moves it."""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS, Clock


class StoppedClock(Clock):
    """Tells the time that it was set to."""

    def __init__(self, at_ns: int = 1_795_176_000 * SECOND_NS) -> None:
        self.at_ns = at_ns
        self.jump_ns = 0
        self.slept_ns = 0

    def now_ns(self) -> int:
        return self.at_ns

    def wall_jump_ns(self) -> int:
        return self.jump_ns

    def suspended_ns(self) -> int:
        return self.slept_ns

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        self.at_ns += int(seconds * SECOND_NS)
