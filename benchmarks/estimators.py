"""Which estimate of a share is best, from what a chrometrace recording of py-spy shows: simulated.

A recording shows when each stack was first seen and how many samples were taken in all; samples that repeat the stack
before them are unseen. Simulates programs with known shares, samples them at Poisson intervals, and prints bias and
standard deviation of four estimates in points of a percent. Run: ``python benchmarks/estimators.py``.

count    the share of samples, which only a format without times would give
time     intervals weighted by their length
spread   one sample for each interval, the unseen ones spread over all intervals by their length
surplus  one sample for each interval, the unseen ones to the stacks whose time says that they had more than was seen
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

SECONDS, RATE_HZ, RUNS = 20.0, 100.0, 150
Shares = dict[int, float]
Runs = list[tuple[int, float]]


def fast(_: float) -> int:
    """Step far shorter than the distance of samples: 39, 26, 20 and forty rare stacks."""
    return random.choices(range(43), weights=[39, 26, 20] + [15 / 40] * 40)[0]


def slow(at_s: float) -> int:
    """Step of 200 ms in three parts of 50, 30 and 20 percent."""
    return 0 if at_s % 0.2 < 0.1 else 1 if at_s % 0.2 < 0.16 else 2


def waiting(at_s: float) -> int:
    """Step of 50 ms: one stack for 60 percent, then twenty in quick succession."""
    return 0 if at_s % 0.05 < 0.03 else random.randrange(1, 21)


PROGRAMS: dict[Callable[[float], int], float] = {fast: 0.39, slow: 0.5, waiting: 0.6}
"""Each with the true share of its stack 0."""


def sample(program: Callable[[float], int]) -> tuple[Runs, list[int]]:
    """Return the runs of equal stacks as (stack, seconds), and the samples themselves."""
    at_s, times, seen = 0.0, [], []
    while (at_s := at_s + random.expovariate(RATE_HZ)) < SECONDS:
        times.append(at_s)
        seen.append(program(at_s))
    starts = [i for i in range(len(seen)) if i == 0 or seen[i] != seen[i - 1]]
    ends = [times[i] for i in starts[1:]] + [times[-1]]
    return [(seen[i], end - times[i]) for i, end in zip(starts, ends, strict=True)], seen


def by_count(_: Runs, seen: Sequence[int]) -> Shares:
    """Weight samples alike."""
    return normalized({stack: float(seen.count(stack)) for stack in set(seen)})


def by_time(runs: Runs, _: Sequence[int]) -> Shares:
    """Weight intervals by length."""
    return normalized(sums(runs))


def by_spread(runs: Runs, seen: Sequence[int]) -> Shares:
    """Spread what is unseen over all intervals by length."""
    return mixed(runs, len(seen), sums(runs))


def by_surplus(runs: Runs, seen: Sequence[int]) -> Shares:
    """Give what is unseen to stacks whose time is longer than what was seen of them."""
    rate, shown = len(seen) / sum(length for _, length in runs), sums([(stack, 1.0) for stack, _ in runs])
    return mixed(runs, len(seen), {s: max(rate * time - shown[s], 0.0) for s, time in sums(runs).items()})


def mixed(runs: Runs, total: int, weights: Shares) -> Shares:
    """One sample for each interval, the rest by weight."""
    whole = sum(weights.values()) or 1.0
    shown = sums([(stack, 1.0) for stack, _ in runs])
    return normalized({s: count + (total - len(runs)) * weights[s] / whole for s, count in shown.items()})


def sums(pairs: Runs) -> Shares:
    """Add up the second parts by the first."""
    added: defaultdict[int, float] = defaultdict(float)
    for key, value in pairs:
        added[key] += value
    return dict(added)


def normalized(weights: Shares) -> Shares:
    """Divide by the sum."""
    whole = sum(weights.values())
    return {key: value / whole for key, value in weights.items()}


def main() -> None:
    """Print the table."""
    random.seed(1)
    print(f"share of stack 0 over {SECONDS:.0f} s at {RATE_HZ:.0f} Hz, {RUNS} runs each: bias ± standard deviation")
    for program, truth in PROGRAMS.items():
        samples = [sample(program) for _ in range(RUNS)]
        cells = []
        for estimate in (by_count, by_time, by_spread, by_surplus):
            errors = [100 * (estimate(*one).get(0, 0.0) - truth) for one in samples]
            name = estimate.__name__.removeprefix("by_")
            cells.append(f"{name} {statistics.mean(errors):+6.2f} ± {statistics.stdev(errors):.2f}")
        print(f"{program.__name__:8s} {100 * truth:.0f} %   " + "   ".join(cells))


if __name__ == "__main__":
    main()
