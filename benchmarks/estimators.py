"""Which estimate of a share is best, from what a chrometrace recording of py-spy shows: simulated.

A recording shows when each stack was first seen and how many samples were taken in all; samples
that repeat the stack before them are unseen. Simulates programs with known shares and samples them
at Poisson intervals. Prints bias and standard deviation of five estimates of one share, in points
of a percent. Prints also the total variation, mean and largest, between each estimate of the whole
distribution and two others: the truth, and the counts of a second recorder. Run: ``python
benchmarks/estimators.py``, about a minute.

count    the share of samples, which only a format without times would give
time     intervals weighted by their length
spread   one sample for each interval, the unseen ones spread over all intervals by their length
surplus  one sample for each interval, the unseen ones to the stacks whose time says that they had more than was seen
shrunk   one sample for each interval, the unseen ones by how often each stack repeats: what its own intervals say,
         drawn towards what those of all stacks say (nonparametric empirical Bayes over the mean length of an interval)
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

SECONDS, RATE_HZ, RUNS = 20.0, 100.0, 150
LIMIT = 0.08
Shares = dict[int, float]
Runs = list[tuple[int, float]]


def fast(_: float) -> int:
    """Step far shorter than the distance of samples: 39, 26, 20 and forty rare stacks."""
    return random.choices(range(43), weights=[39, 26, 20] + [15 / 40] * 40)[0]


def slow(at_s: float) -> int:
    """Step of 200 ms in three parts of 50, 30 and 20 percent."""
    return 0 if at_s % 0.2 < 0.1 else 1 if at_s % 0.2 < 0.16 else 2


def layered(at_s: float) -> int:
    """Step far shorter than the distance of samples, as of a small torch loop: three heavy stacks,
    120 rare ones.
    """
    return random.choices(range(123), weights=[30, 30, 22] + [18 / 120] * 120)[0]


def waiting(at_s: float) -> int:
    """Step of 50 ms: one stack for 60 percent, then twenty in quick succession."""
    return 0 if at_s % 0.05 < 0.03 else random.randrange(1, 21)


PROGRAMS: dict[Callable[[float], int], float] = {fast: 0.39, layered: 0.3, slow: 0.5, waiting: 0.6}
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
    rate, shown = (
        len(seen) / sum(length for _, length in runs),
        sums([(stack, 1.0) for stack, _ in runs]),
    )
    return mixed(
        runs, len(seen), {s: max(rate * time - shown[s], 0.0) for s, time in sums(runs).items()}
    )


MEAN_LENGTHS = (
    0.9,
    0.95,
    1.0,
    1.05,
    1.1,
    1.2,
    1.4,
    1.6,
    1.9,
    2.4,
    3.2,
    4.5,
    7.0,
    12.0,
    25.0,
    60.0,
    200.0,
)
"""What the mean interval of a stack may be, in distances of samples; below 1 only by chance."""


def by_shrunk(runs: Runs, seen: Sequence[int]) -> Shares:
    """Give what is unseen to stacks by how likely each is to repeat."""
    rate, shown = (
        len(seen) / sum(length for _, length in runs),
        sums([(stack, 1.0) for stack, _ in runs]),
    )
    times = {stack: rate * time for stack, time in sums(runs).items()}
    likely = {stack: likelihoods(shown[stack], times[stack]) for stack in shown}
    prior = [1.0] * len(MEAN_LENGTHS)
    for _ in range(25):
        posteriors = {
            stack: normalized(
                dict(enumerate(map(math.prod, zip(prior, likely[stack], strict=True))))
            )
            for stack in shown
        }
        prior = [
            sum(posterior[i] for posterior in posteriors.values()) + 1e-3
            for i in range(len(MEAN_LENGTHS))
        ]
    lengths = {
        s: sum(p * MEAN_LENGTHS[i] for i, p in posterior.items())
        for s, posterior in posteriors.items()
    }
    return normalized({stack: shown[stack] * lengths[stack] for stack in shown})


def likelihoods(intervals: float, time: float) -> list[float]:
    """Return how likely it is by each mean length that so many intervals take that time, up to a
    factor.
    """
    logs = [-intervals * math.log(mean) - time / mean for mean in MEAN_LENGTHS]
    return [math.exp(log - max(logs)) for log in logs]


def mixed(runs: Runs, total: int, weights: Shares) -> Shares:
    """One sample for each interval, the rest by weight."""
    whole = sum(weights.values()) or 1.0
    shown = sums([(stack, 1.0) for stack, _ in runs])
    return normalized(
        {s: count + (total - len(runs)) * weights[s] / whole for s, count in shown.items()}
    )


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


def distance(one: Shares, other: Shares) -> float:
    """Return the total variation of two distributions, 0 to 1."""
    return (
        sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys()) / 2
    )


def main() -> None:
    """Print the table."""
    random.seed(1)
    print(f"over {SECONDS:.0f} s at {RATE_HZ:.0f} Hz, {RUNS} runs each")
    for program, truth in PROGRAMS.items():
        samples = [sample(program) for _ in range(RUNS)]
        beside = [by_count(*sample(program)) for _ in range(RUNS)]
        print(f"{program.__name__}, stack 0 true {100 * truth:.0f} %")
        for estimate in (by_count, by_time, by_spread, by_surplus, by_shrunk):
            found = [estimate(*one) for one in samples]
            errors = [100 * (shares.get(0, 0.0) - truth) for shares in found]
            apart = [distance(*pair) for pair in zip(found, beside, strict=True)]
            share = f"{statistics.mean(errors):+6.2f} ± {statistics.stdev(errors):.2f}"
            above = f"above {LIMIT} in {sum(one > LIMIT for one in apart)}"
            name = estimate.__name__.removeprefix("by_")
            print(
                f"  {name:8s} {share}   to a second recorder {statistics.mean(apart):.3f}, {above}"
            )


if __name__ == "__main__":
    main()
