"""A made-up profd whose cost follows its rate as the real one's does: recordings, turns, readings
of steps, start-up.

Figures are those of a two-core machine that is busy, or worse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from profd.daemon.recordingconfig import RECORDING
from profd.daemon.session.budget import MINUTE_S, Governor, Spending

ATTACH_S = 0.015
RECORDING_S = 4.0


def no_workers(second: int) -> int:
    return 0


def as_usual(second: int) -> float:
    return 1.0


@dataclass
class Spendthrift:
    """One main process and so many workers as ``workers`` says.

    Each gives the main process a thread.

    ``cores_per_hz`` is what a thread of the main process costs for each sample a second;
    ``dearness`` multiplies all that recordings cost.
    """

    cores_per_hz: float = 0.0004
    own_cores: float = 0.006
    start_s: float = 0.3
    search_s: float = 0.02
    noise: float = 0.2
    workers: Callable[[int], int] = no_workers
    dearness: Callable[[int], float] = as_usual
    seed: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def spends(self, second: int, rate_hz: int, turn_share: float) -> float:
        """Return the CPU seconds of one second.

        The first one is the start, with nothing recorded yet.
        """
        if second == 0:
            return self.start_s
        workers = self.workers(second)
        main_s = self.cores_per_hz * rate_hz * (1 + workers)
        turns_s = (
            turn_share * (self.cores_per_hz * rate_hz / 5 + ATTACH_S / RECORDING_S)
            if workers
            else 0.0
        )
        attach_s = ATTACH_S if second % round(RECORDING_S) == 0 else 0.0
        steps_s = 2 * self.search_s if second < 10 else self.search_s if second % 5 == 0 else 0.0
        recordings_s = (main_s + turns_s + attach_s) * self.dearness(second)
        others_s = self.own_cores + 0.0003 * workers + steps_s
        return recordings_s * self._random.lognormvariate(0, self.noise) + others_s


RUNS: dict[str, Callable[[int], Spendthrift]] = {
    "plain": lambda seed: Spendthrift(seed=seed),
    "noisy": lambda seed: Spendthrift(noise=0.6, seed=seed),
    "deep stacks": lambda seed: Spendthrift(cores_per_hz=0.004, seed=seed),
    "a core at 100 Hz": lambda seed: Spendthrift(cores_per_hz=0.01, seed=seed),
    "workers arrive": lambda seed: Spendthrift(
        workers=lambda second: min(max(second - 60, 0) // 2, 16), seed=seed
    ),
    "workers from the start": lambda seed: Spendthrift(
        workers=lambda second: 16 * (second >= 5), seed=seed
    ),
    "workers late": lambda seed: Spendthrift(workers=lambda second: 16 * (second > 150), seed=seed),
    "workers of epochs": lambda seed: Spendthrift(
        workers=lambda second: 16 * (second // 40 % 2), seed=seed
    ),
    "a dear minute": lambda seed: Spendthrift(
        dearness=lambda second: 3 if 120 <= second < 180 else 1, seed=seed
    ),
    "a very dear minute": lambda seed: Spendthrift(
        dearness=lambda second: 10 if 120 <= second < 180 else 1, seed=seed
    ),
    "dear steps": lambda seed: Spendthrift(search_s=0.05, seed=seed),
}


@dataclass
class Life:
    """What a governed run cost in each second, and at which rates."""

    spent_s: list[float] = field(default_factory=list)
    rates_hz: list[int] = field(default_factory=list)

    def dearest_minute(self) -> float:
        """Return the most cores that were taken over any whole minute."""
        minute = round(MINUTE_S)
        ends = range(minute, len(self.spent_s) + 1)
        return max(sum(self.spent_s[end - minute : end]) for end in ends) / MINUTE_S

    def changes(self) -> int:
        return sum(
            one != other for one, other in zip(self.rates_hz, self.rates_hz[1:], strict=False)
        )


def live(governor: Governor, spendthrift: Spendthrift, seconds: int = 300) -> Life:
    """Let a run spend and be governed.

    A raise counts from the next recording on, what is lowered a second later.
    """
    life = Life()
    in_flight = [(governor.rate_hz, governor.turn_share)] * 2
    for second in range(seconds):
        spent_s = spendthrift.spends(second, *in_flight[0])
        life.spent_s.append(spent_s)
        life.rates_hz.append(governor.rate_hz)
        governor.take(Spending(spent_s, 1.0))
        is_due = second % round(RECORDING_S) == 0 or governor.rate_hz < in_flight[1][0]
        in_flight = [
            in_flight[1],
            (governor.next_hz(), governor.turn_share) if is_due else in_flight[1],
        ]
    return life


def has_to_govern(budget: float, spendthrift: Spendthrift) -> bool:
    """Say whether there is a choice: where the lowest rate alone is near the budget, there is none."""
    return (
        live(Governor(RECORDING.lowest_rate_hz, budget), spendthrift).dearest_minute()
        <= 0.85 * budget
    )
