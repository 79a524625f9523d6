"""Rules on the input of a training: DataLoaders, their workers, and shared memory."""

from __future__ import annotations

import math

import msgspec

from profd.daemon.analyze.phases import COPY, DATA_LOAD, DATA_WAIT
from profd.daemon.analyze.selection import Selection
from profd.daemon.findings.bounds import bound, ceiling, usable_cores
from profd.daemon.findings.context import SATURATED, FindingContext, Loaders, Share, take_loaders
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING, Evidence, Finding, Measure, at, at_most, severity_of
from profd.daemon.units import percent, plural, size


def load_in_process(case: FindingContext) -> Finding | None:
    """Return the finding where loading in the main thread surely takes a part of the steps."""
    share = case.share(DATA_LOAD)
    severity = severity_of(share.low, case.profile.total_samples)
    if severity is None:
        return None
    line = case.line(DATA_LOAD)
    gain = bound(case, share, ceiling(case))
    workers = _workers(share.value, usable_cores(case))
    return Finding(
        rule="input-bound-in-process",
        severity=severity,
        label="input-bound",
        title=f"input-bound: the main thread loads data {percent(share.value)} of the time{at(line)}: "
        f"loading in {workers} brings {at_most(gain)}",
        cause="A DataLoader with num_workers=0 prepares each batch between two steps, in the thread that trains: "
        "neither CPU nor GPU work on the model meanwhile.",
        remedy=f"Give the DataLoader{at(line)} num_workers={workers.split()[0]} (and persistent_workers=True), "
        "so that batches are ready when a step ends.",
        gain_bound=gain,
        evidence=case.evidence(share.measure(DATA_LOAD), phase=DATA_LOAD, line=line, series=("cpu_cores",)),
        page="input-bound-in-process",
    )


def _workers(share: float, cores: float | None) -> str:
    """Return how many workers keep up with steps that do not load any more, but none without a core to spare."""
    needed = -(-share // (1 - min(share, 0.99)))
    count = max(int(min(needed, max((cores or needed) - 1, 1))), 1)
    return "1 worker" if count == 1 else f"{count} workers"


_NO_CORES = 1.1
_MOSTLY_WAITING = 0.25


def saturated_workers(case: FindingContext) -> Finding | None:
    """Return the finding where the wait is sure and the workers are busy all the time."""
    share = case.share(DATA_WAIT)
    severity = severity_of(share.low, case.profile.total_samples)
    loaders = take_loaders(case) if severity else None
    if severity is None or loaders is None or loaders.busy.value < SATURATED:
        return None
    limit = ceiling(case)
    has_cores = limit is None or limit >= _NO_CORES
    gain = bound(case, share, limit if has_cores else None)
    waits = f"the main thread waits {percent(share.value)} for its data{at(case.line(DATA_WAIT))}"
    busy = f"{_who(loaders)} {percent(loaders.busy.value)} busy"
    return Finding(
        rule="input-bound-saturated",
        severity=severity,
        label="input-bound",
        title=f"input-bound: {waits}; {busy}: {_what_helps(share, loaders, has_cores)} {at_most(gain)}",
        cause=_cause(loaders, has_cores),
        remedy=_remedy(case, share, loaders, has_cores),
        gain_bound=gain,
        evidence=_evidence(case, share, loaders),
        page="input-bound-saturated",
    )


def needed_workers(share: Share, loaders: Loaders) -> int:
    """Return how many workers make batches as fast as steps are that do not wait for them."""
    return max(math.ceil(loaders.at_once * loaders.busy.value / (1 - min(share.value, 0.99))), loaders.at_once + 1)


def _who(loaders: Loaders) -> str:
    if loaders.at_once == 1:
        return "its only worker is"
    return "both workers are" if loaders.at_once == 2 else f"all {loaders.at_once} workers are"


def _what_helps(share: Share, loaders: Loaders, has_cores: bool) -> str:
    if not has_cores:
        return "no core is left for more, cheaper loading brings"
    more = needed_workers(share, loaders) - loaders.at_once
    return f"{more} more {'brings' if more == 1 else 'bring'}"


def _cause(loaders: Loaders, has_cores: bool) -> str:
    workers = plural(loaders.at_once, "worker")
    cause = f"{workers} cannot make batches as fast as the model takes them{at(loaders.line)}."
    if loaders.cores is not None and loaders.cores < _MOSTLY_WAITING * loaders.busy.value:
        return f"{cause} It takes {loaders.cores:.2f} of a core each: mostly they wait, for storage or network."
    return cause if has_cores else f"{cause} All cores are in use already."


def _remedy(case: FindingContext, share: Share, loaders: Loaders, has_cores: bool) -> str:
    cheaper = f"make loading cheaper{at(loaders.line)}: decode once and store the result, transform whole batches"
    if not has_cores:
        return f"{cheaper.capitalize()}; more workers would only share the cores that there are."
    return (
        f"Set num_workers={needed_workers(share, loaders)} in the DataLoader{at(case.line(DATA_WAIT))}, or {cheaper}."
    )


def _evidence(case: FindingContext, share: Share, loaders: Loaders) -> Evidence:
    return case.evidence(
        share.measure(DATA_WAIT),
        loaders.busy.measure("workers busy"),
        phase=DATA_WAIT,
        line=case.line(DATA_WAIT),
        series=("cpu_cores",),
    )


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


def idle_workers(case: FindingContext) -> Finding | None:
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


def _way(case: FindingContext, share: Share, loaders: Loaders) -> _Way:
    """Return the likeliest cause of a wait that is none for workers."""
    if loaders.started >= _RESTARTED * loaders.at_once:
        return _STARTS
    if _pinning(case) >= _MOST:
        return _PINNING
    handed = case.share_of(case.profile, lambda stack: _takes_a_batch(case, stack))
    return _TRANSFER if handed.value >= _MOST * share.value else _BURSTS


def _pinning(case: FindingContext) -> float:
    """Return the share of its time for which the busiest pinning thread copied."""
    names = {row.name for row in case.reader.threads.values() if _PIN_THREAD in row.name}
    shares = [0.0]
    for name in names:
        selection = Selection(case.from_ns, case.to_ns, case.selection.processes, case.selection.rank, thread=name)
        profile = case.profile_on(selection)
        shares.append(case.share_of(profile, lambda stack: case.phases.of_stack(stack) == COPY).value)
    return max(shares)


def _takes_a_batch(case: FindingContext, stack: int) -> bool:
    if case.phases.of_stack(stack) != DATA_WAIT:
        return False
    leaf = case.reader.frames[case.reader.stacks[stack].frame].function
    return not any(name in leaf for name in _EMPTY_HANDED)


_USED, _TOTAL = "shm_used_bytes", "shm_total_bytes"
_NEARLY_FULL, _FULL = 0.8, 0.95


def shared_memory(case: FindingContext) -> Finding | None:
    """Return the finding where a training with workers was seen to have filled /dev/shm nearly."""
    used, total = case.values(_USED), case.values(_TOTAL)
    if not case.workers or not used or not total or max(used) < _NEARLY_FULL * total[-1]:
        return None
    part = max(used) / total[-1]
    return Finding(
        rule="shared-memory",
        severity=CRITICAL if part >= _FULL else WARNING,
        label="shared memory nearly full",
        title=f"shared memory nearly full: {percent(part)} of the {size(total[-1])} of /dev/shm were in use",
        cause="Workers leave their batches in /dev/shm. A worker that finds no room there is ended by a bus error.",
        remedy="Give it more (docker run --shm-size=8g, an emptyDir of medium Memory in Kubernetes), or use fewer "
        "workers, a smaller prefetch_factor, smaller types.",
        gain_bound=None,
        evidence=case.evidence(Measure("of /dev/shm in use", part), series=(_USED, _TOTAL)),
        page="shared-memory",
    )
