"""Rule: the main thread waits for batches although the workers have time: what lies between them is slow."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.finding import INFO, Finding
from profd.daemon.analyze.findings.loaders import SATURATED, Loaders, take_loaders
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import COPY, DATA_WAIT
from profd.daemon.analyze.selection import Selection
from profd.daemon.units import percent

_RESTARTED = 3
_MOST = 0.5
# What the main thread waits in for a batch that is not there yet; in any other function of the wait it has one.
_EMPTY_HANDED = ("select.", "poll", "_poll", "wait", "get", "_get_data", "_try_get_data", "acquire", "__init__")
_PIN_THREAD = "_pin_memory_loop"


class _Way(msgspec.Struct, frozen=True):
    """What is slow between the workers and the main thread, and what to do about it."""

    cause: str
    remedy: str


_STARTS = _Way(
    "Workers are started anew for every epoch, and the first batches of each have to be waited for.",
    "Set persistent_workers=True in the DataLoader{at}, so that its workers outlive an epoch.",
)
_PINNING = _Way(
    "One thread copies all batches into pinned memory, and does nothing else: it is what the main thread waits for.",
    "Make batches smaller to copy in the DataLoader{at}: bytes instead of floats, converted on the GPU; "
    "or do without pin_memory.",
)
_TRANSFER = _Way(
    "Batches are ready, but taking them from the workers takes its time: they are large, or made of many objects.",
    "Return few tensors instead of many Python objects from the dataset of the DataLoader{at}, and smaller types.",
)
_BURSTS = _Way(
    "Workers make batches fast enough on average, but not when they are needed: some take much longer than others.",
    "Raise prefetch_factor of the DataLoader{at}, and see why some samples take so long.",
)


def find(case: Case) -> Finding | None:
    """Return the finding where the wait is sure and the workers surely have time."""
    share = case.share(DATA_WAIT)
    severity = severity_of(share.low, case.profile.total_samples)
    loaders = take_loaders(case) if severity else None
    if severity is None or loaders is None or loaders.busy.high >= SATURATED:
        return None
    line, gain = case.line(DATA_WAIT), bound(case, share)
    way = _way(case, share, loaders)
    return Finding(
        rule="input-bound-idle",
        # On crowded cores, workers and main thread wait for one another's and for others' turns.
        severity=severity if gain is not None else INFO,
        label="input-bound",
        title=f"input-bound: the main thread waits {percent(share.value)} for its data{at(line)}, its workers are "
        f"{percent(loaders.busy.value)} busy: no wait brings {at_most(gain)}",
        cause=way.cause,
        remedy=way.remedy.format(at=at(line)),
        gain_bound=gain,
        evidence=case.evidence(
            share.measure(DATA_WAIT), loaders.busy.measure("workers busy"), phase=DATA_WAIT, line=line
        ),
        page="input-bound-idle",
    )


def _way(case: Case, share: Share, loaders: Loaders) -> _Way:
    """Return the likeliest cause of a wait that is none for workers."""
    if loaders.started >= _RESTARTED * loaders.at_once:
        return _STARTS
    if _pinning(case) >= _MOST:
        return _PINNING
    handed = case.share_of(case.profile, lambda stack: _takes_a_batch(case, stack))
    return _TRANSFER if handed.value >= _MOST * share.value else _BURSTS


def _pinning(case: Case) -> float:
    """Return the share of its time for which the busiest pinning thread copied."""
    names = {row.name for row in case.reader.threads.values() if _PIN_THREAD in row.name}
    shares = [0.0]
    for name in names:
        selection = Selection(case.from_ns, case.to_ns, case.selection.processes, case.selection.rank, thread=name)
        profile = case.profile_on(selection)
        shares.append(case.share_of(profile, lambda stack: case.phases.of_stack(stack) == COPY).value)
    return max(shares)


def _takes_a_batch(case: Case, stack: int) -> bool:
    if case.phases.of_stack(stack) != DATA_WAIT:
        return False
    leaf = case.reader.frames[case.reader.stacks[stack].frame].function
    return not any(name in leaf for name in _EMPTY_HANDED)
