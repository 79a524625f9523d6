"""Keep the cost of profd within its budget by adjusting the sampling rate."""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.stacks.chain import Allowance
from profd.daemon.stacks.pyspy import read_cost_s


class Spending(NamedTuple):
    """CPU seconds that were spent, and the seconds in which that happened.

    ``own_s`` are those of profd's own process.
    """

    cpu_s: float
    over_s: float
    own_s: float = 0.0

    @property
    def cores(self) -> float:
        return self.cpu_s / self.over_s if self.over_s else 0.0


class CostMeter:
    """Measures CPU and memory of this process and of all that it started.

    Use it in the thread that starts and reaps them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        stat = processes.read_stat(os.getpid())
        self._last_ns = clock.now_ns() - int((stat.age_s if stat else 0.0) * SECOND_NS)
        self._last_cpu_s = self._last_own_s = 0.0
        self._children: list[int] = []

    def take(self) -> Spending:
        now_ns, own_s = self._clock.now_ns(), time.process_time()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        # The main thread starts them all, and psutil would read the whole machine.
        self._children = processes.children(os.getpid(), of_all_threads=False)
        cpu_s = sum(stat.cpu_s for stat in processes.read_stats(self._children))
        cpu_s += own_s + ended.ru_utime + ended.ru_stime
        # A living child is counted in clock ticks, an ended one exactly: the sum may go back by one
        # tick.
        cpu_s = max(cpu_s, self._last_cpu_s)
        over_s = (now_ns - self._last_ns) / SECOND_NS
        spending = Spending(cpu_s - self._last_cpu_s, over_s, own_s - self._last_own_s)
        self._last_ns = now_ns
        self._last_cpu_s = cpu_s
        self._last_own_s = own_s
        return spending

    def rss_bytes(self) -> int:
        """Return the memory of this process and of its children, as listed at the last reading."""
        pids = os.getpid(), *self._children
        return sum(stat.rss_bytes for stat in processes.read_stats(pids))


MINUTE_S = 60.0
# One a second, over some recordings: starting and reading one comes at once.
_READINGS = round(4 * RECORDING.length_s)
_AIM = 0.94
_ROOM = 0.90  # share of the allowance: a lower cost has room for a higher rate
# this much room shows after this few readings, which cover two recordings
_MUCH_ROOM, _FEWEST = 0.7, _READINGS // 2 + 1
_SHORTEST_S = 0.5  # the cost of a shorter time says nothing: a tick of CPU time is 10 ms
_MOST_RISE, _SMALL_RISE = 4.0, 1.15
_BESIDE = 1 / 3  # share of a minute's CPU that all but sampling gets at most
_USUAL_S = 0.05
"""A look at a usual process takes less, and is never refused."""
_SPENT_WITHIN_S = 10.0  # a grant is spent within this time, and counts as unspent until then
_KEPT_READINGS = 3
"""CPU is kept this many readings for a refused request; whoever still needs it asks again."""


class Ledger:
    """The CPU time of the last minute, reading by reading.

    The readings cover ``held_s`` seconds: a minute and a part of a reading, once there are so many.
    """

    def __init__(self) -> None:
        self._entries: deque[Spending] = deque()
        self.held_s = 0.0

    def add(self, spending: Spending) -> None:
        self._entries.append(spending)
        self.held_s += spending.over_s
        while self.held_s - self._entries[0].over_s >= MINUTE_S:
            self.held_s -= self._entries.popleft().over_s

    def spent_s(self, last_s: float) -> float:
        """Return the CPU seconds of the last ``last_s`` seconds.

        Nothing was spent before the first reading.
        """
        spent_s, left_s = 0.0, last_s
        for entry in reversed(self._entries):
            if entry.over_s >= left_s:
                return spent_s + (entry.cpu_s * left_s / entry.over_s if entry.over_s else 0.0)
            spent_s += entry.cpu_s
            left_s -= entry.over_s
        return spent_s

    def allowance(self, budget_cores: float) -> float:
        """Return the cores that may be taken from now on within the budget.

        No minute then exceeds the budget, whenever it ends.
        """
        whole_s = MINUTE_S * budget_cores
        cores = (
            (whole_s - self.spent_s(MINUTE_S - ahead_s)) / ahead_s
            for ahead_s in (5.0, 10.0, 20.0, 40.0, 60.0)
        )
        return max(min(cores), 0.0)

    def own_cores(self) -> float:
        """Return the cores that this process takes at least for most of the time.

        Occasional work and the start do not count. Too few readings say nothing, and give 0.
        """
        own = sorted(entry.own_s / entry.over_s for entry in self._entries if entry.over_s)
        return own[len(own) // 4] if len(own) >= _FEWEST else 0.0

    def left_s(self, whole_s: float) -> float:
        """Return the CPU seconds that may be taken at once if no minute is to exceed ``whole_s``.

        What this process will use as usual is reserved.
        """
        own_cores = self.own_cores()
        ahead = (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, MINUTE_S)
        left = (
            whole_s - self.spent_s(MINUTE_S - ahead_s) - own_cores * ahead_s for ahead_s in ahead
        )
        return max(min(left), 0.0)


class Governor:
    """Lowers the sampling rate while profd costs more than its budget.

    It raises the rate again when there is room.

    The control law: every reading (about a second's cost) goes into a ledger of the last minute,
    including start-up. From the ledger follows the *allowance*: the cores that may be taken from
    now on so that no minute exceeds the budget. The *forecast* is the mean of the readings since
    the rate last changed, eighteen at most. The first reading after a lowering belongs in part to
    the rate before, and is left out; a reading of less than half a second is added to the next one.
    If the forecast exceeds the allowance, the rate is lowered in proportion, to 94 % of the
    allowance. The fewer the readings, the further the forecast has to exceed it (three times as
    high with one, 70 % with three): one costly second moves nothing, but the governor reacts at
    once to a target that costs ten times the estimate. If eighteen readings are below 90 % of the
    allowance, or ten below 70 %, the rate is raised, in the latter case not quite as far, and
    fourfold at most: cost grows by no more than the rate does, as part of it is fixed.

    After a lowering the governor waits before it raises. It waits ten seconds at first, since the
    reason was most likely the imports, which are deep, costly to read and soon over. If a raise has
    to be taken back within a minute, it waits for 24 seconds, and twice as long each further time,
    up to four minutes: workers that come and go with every epoch shall not move the rate each time.
    A raise by 15 % or less does not wait: it is taken back before it can exceed the budget by a
    fifth.

    Only the rate of the main processes is set. Those that take turns get a part of that rate, and a
    part of the time that shrinks with it (``turn_share``), so that they give way twice as fast.
    Giving up their turns first would gain next to nothing: at a fifth of the rate and half of the
    time, one at a time, all of them together take a tenth of what a main process takes.

    All other costly work asks first (``grant``), and gets a third of a minute's CPU at most. While
    recordings pause, that CPU has to be left over, and is kept for whoever has asked.
    """

    def __init__(
        self, rate_hz: int, budget_cores: float, threads: int = 1, spent_s: float = 0.0
    ) -> None:
        """Sample at ``rate_hz`` at most.

        The first rate is lower if the budget might not bear it for so many threads. ``spent_s`` was
        spent on the run before there was a session.
        """
        self.highest_hz = rate_hz
        self.is_held = False  # then the rate does not rise
        self.is_promised = False  # then what is left belongs to a recording that is under way
        self._budget_cores = budget_cores
        self._ledger, self._beside = Ledger(), Ledger()
        self._ledger.add(Spending(spent_s, 0.0))
        self._granted_s = self._kept_s = 0.0
        self._kept_readings = 0
        self._readings: deque[float] = deque(maxlen=_READINGS)
        self._unread = Spending(0.0, 0.0)
        # The cost of starting has to be paid, but says nothing of the cost of recording.
        self._is_settling = True
        self._raise_wait_s = 10.0
        self._since_lowering_s = self._since_rise_s = MINUTE_S
        self.mean_hz = self._within_bounds(budget_cores / read_cost_s(threads))
        self._owed_hz = 0.0
        self._borne: dict[int, float] = {}
        """The rates that the budget has borne, by the rate that was aimed at."""

    @property
    def rate_hz(self) -> int:
        """The sampling rate, rounded down: py-spy takes whole numbers."""
        return int(self.mean_hz)

    def next_hz(self) -> int:
        """Return the rate of the next recording.

        Whole numbers alternate, since at 3 Hz one more is a third of the cost.
        """
        self._owed_hz += self.mean_hz
        rate_hz = int(self._owed_hz)
        self._owed_hz -= rate_hz
        return rate_hz

    @property
    def turn_share(self) -> float:
        """The share of the time in which one of the processes that take turns is recorded.

        It is half at the highest rate.
        """
        return 0.5 * self.mean_hz / self.highest_hz

    @property
    def is_beyond_budget(self) -> bool:
        """Whether profd costs more than its budget even at the lowest rate.

        Then there is nothing left to lower.
        """
        if self.is_held:  # pauses keep it within the budget
            return False
        is_lowest = self.mean_hz == self._lowest_hz and len(self._readings) == _READINGS
        return is_lowest and sum(self._readings) > self._budget_cores * _READINGS

    def allowance(self, chains: int) -> Allowance:
        """Return the allowance of each of the chains; unlimited while a lower rate is possible.

        At the lowest rate recordings have to pause for as long as recording would make a minute
        exceed the budget.
        """
        if self.mean_hz > self._lowest_hz:
            return Allowance()
        usual_cores = max(self._minute_s / MINUTE_S - self._ledger.own_cores(), 0.0)
        early_s = usual_cores * max(MINUTE_S - self._ledger.held_s, 0.0)
        parts = (
            self._ledger.allowance(self._budget_cores),
            self._left_s(),
            usual_cores * MINUTE_S,
            self._kept_s,
            early_s,
        )
        return Allowance(*(part / max(chains, 1) for part in parts))

    @property
    def _minute_s(self) -> float:
        return _AIM * MINUTE_S * self._budget_cores

    def _left_s(self) -> float:
        granted_s = self._granted_s + self._beside.spent_s(_SPENT_WITHIN_S)
        return max(self._ledger.left_s(self._minute_s) - granted_s, 0.0)

    def grant(self, cpu_s: float) -> bool:
        """Return whether work other than sampling may take this much CPU now; if so, count it."""
        beside_s = self._beside.spent_s(MINUTE_S) + self._granted_s
        is_usual = cpu_s <= _USUAL_S
        if beside_s and not is_usual and beside_s + cpu_s > _BESIDE * self._minute_s:
            return False
        left_s = 0.0 if self.is_promised else self._left_s()
        if self.is_held and not is_usual and cpu_s > left_s:
            self._kept_s = cpu_s
            self._kept_readings = _KEPT_READINGS
            return False
        self._granted_s += cpu_s
        self._kept_s = 0.0
        return True

    def aim(self, rate_hz: int) -> None:
        """Sample at ``rate_hz`` at most from now on.

        The rate is at once as near to it as the budget allows: as it was when it was last aimed
        there, else by what a sample costs now.
        """
        self._borne[self.highest_hz] = self.mean_hz
        room_hz = self._borne.get(rate_hz, float(rate_hz))
        if any(self._readings) and rate_hz not in self._borne:
            cores_per_hz = sum(self._readings) / len(self._readings) / self.mean_hz
            room_hz = _AIM * self._ledger.allowance(self._budget_cores) / cores_per_hz
        self.highest_hz = rate_hz
        self.mean_hz = self._within_bounds(room_hz)
        self._readings.clear()

    def expect(self, threads: int) -> None:
        """Lower the rate at once to what the budget bears for so many new threads."""
        self.mean_hz = self._within_bounds(
            min(self.mean_hz, self._budget_cores / read_cost_s(threads))
        )
        self._since_lowering_s = 0.0
        self._is_settling = True
        self._readings.clear()

    def aim_at_budget(self, budget_cores: float) -> None:
        self._budget_cores = budget_cores

    def take(self, spending: Spending, *, for_window: bool = False) -> bool:
        """Take what was spent since the last call; return True if the rate changed.

        ``for_window`` says that a window was read meanwhile. Somebody asked for it, and it may cost
        as much as half a minute of samples: it counts as a usual reading, so that it does not leave
        the run without samples.
        """
        if for_window and self._readings:
            usual = sum(self._readings) / len(self._readings)
            spending = Spending(min(spending.cpu_s, usual * spending.over_s), spending.over_s)
        self._ledger.add(spending)
        self._beside.add(Spending(self._granted_s, spending.over_s))
        self._granted_s, self._kept_readings = 0.0, self._kept_readings - 1
        self._kept_s = self._kept_s if self._kept_readings > 0 else 0.0
        self._since_lowering_s += spending.over_s
        self._since_rise_s += spending.over_s
        if self._is_settling:
            self._is_settling = False
            return False
        self._unread = Spending(
            self._unread.cpu_s + spending.cpu_s, self._unread.over_s + spending.over_s
        )
        if self._unread.over_s < _SHORTEST_S:
            return False
        self._readings.append(self._unread.cores)
        self._unread = Spending(0.0, 0.0)
        wanted_hz = self._wanted_hz()
        if wanted_hz == self.mean_hz:
            return False
        if wanted_hz < self.mean_hz:
            if self._since_rise_s < MINUTE_S:  # takes a raise back: the next raise waits longer
                self._raise_wait_s = min(max(2 * self._raise_wait_s, 24.0), 240.0)
            self._since_lowering_s = 0.0
            self._is_settling = True  # the next reading belongs in part to the rate before
        elif wanted_hz > _SMALL_RISE * self.mean_hz:
            self._since_rise_s = 0.0
        self.mean_hz = wanted_hz
        self._readings.clear()
        return True

    def _wanted_hz(self) -> float:
        forecast = sum(self._readings) / len(self._readings)
        allowance = self._ledger.allowance(self._budget_cores)
        margin = 1 + 2.5 * (1 / len(self._readings) - 1 / _READINGS)
        factor = _AIM * allowance / forecast if forecast else _MOST_RISE
        if forecast > margin * allowance:
            return self._within_bounds(self.mean_hz * factor)
        room, part = (_ROOM, 1.0) if len(self._readings) == _READINGS else (_MUCH_ROOM, 0.85)
        rise = min(factor * part, _MOST_RISE)
        is_calm = self._since_lowering_s >= self._raise_wait_s or rise <= _SMALL_RISE
        if (
            is_calm
            and not self.is_held
            and len(self._readings) >= _FEWEST
            and forecast < room * allowance
        ):
            return self._within_bounds(self.mean_hz * rise)
        return self.mean_hz

    @property
    def _lowest_hz(self) -> int:
        return min(self.highest_hz, RECORDING.lowest_rate_hz)

    def _within_bounds(self, rate_hz: float) -> float:
        return max(min(rate_hz, self.highest_hz), self._lowest_hz)
