"""Rules on the input of a training: DataLoaders, their workers, and shared memory."""

from __future__ import annotations

import math

from profd.daemon.analyze.phases import COPY, DATA_LOAD, DATA_WAIT
from profd.daemon.analyze.selection import Selection
from profd.daemon.findings.bounds import bound, ceiling, usable_cores
from profd.daemon.findings.context import SATURATED, FindingContext, Loaders, Share
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING, Finding, Measure, at, speeds_up
from profd.daemon.findings.sharerule import ShareRule
from profd.daemon.units import percent, plural, size

_IN_PROCESS = ShareRule(
    rule="input-bound-in-process",
    label="input-bound",
    phase=DATA_LOAD,
    title="the main thread loads data {share} of the time{at}: loading in {workers} {speeds_up}",
    cause="A DataLoader with num_workers=0 prepares each batch between two steps, in the thread that trains: "
    "neither CPU nor GPU work on the model meanwhile.",
    remedy="Give the DataLoader{at} num_workers={number} (and persistent_workers=True), so that batches are ready when "
    "a step ends.",
    series=("cpu_cores",),
)


def load_in_process(context: FindingContext) -> Finding | None:
    share = context.share(DATA_LOAD)
    if context.severity(share.low) is None:  # spares the look at the cores
        return None
    # As many as keep up with steps that do not load any more, but none without a core to spare.
    needed = -(-share.value // (1 - min(share.value, 0.99)))
    workers = max(int(min(needed, max((usable_cores(context) or needed) - 1, 1))), 1)
    words = plural(workers, "worker")
    return _IN_PROCESS.of(context, share, limit=ceiling(context), workers=words, number=str(workers))


_NO_CORES = 1.1
_MOSTLY_WAITING = 0.25


def saturated_workers(context: FindingContext) -> Finding | None:
    share = context.share(DATA_WAIT)
    severity = context.severity(share.low)
    loaders = context.loaders if severity else None
    if severity is None or loaders is None or loaders.busy.value < SATURATED:
        return None
    limit = ceiling(context)
    has_cores = limit is None or limit >= _NO_CORES
    gain, line = bound(context, share, limit if has_cores else None), context.line(DATA_WAIT)
    count = loaders.at_once
    who = {1: "its only worker is", 2: "both workers are"}.get(count, f"all {count} workers are")
    # As many as make batches as fast as steps are that do not wait for them.
    needed = max(math.ceil(count * loaders.busy.value / (1 - min(share.value, 0.99))), count + 1)
    cause = f"{plural(count, 'worker')} cannot make batches as fast as the model takes them{at(loaders.line)}."
    if loaders.cores is not None and loaders.cores < _MOSTLY_WAITING * loaders.busy.value:
        cause += f" It takes {loaders.cores:.2f} of a core each: mostly they wait, for storage or network."
    elif not has_cores:
        cause += " All cores are in use already."
    cheaper = f"ake loading cheaper{at(loaders.line)}: decode once and store the result, transform whole batches"
    if has_cores:
        fix = f"adding {needed - count}"
        remedy = f"Set num_workers={needed} in the DataLoader{at(line)}, or m{cheaper}."
    else:
        fix = "no core is left for more, loading at less cost"
        remedy = f"M{cheaper}; more workers would only share the cores that there are."
    return context.finding(
        share.measure(DATA_WAIT),
        loaders.busy.measure("workers busy"),
        rule="input-bound-saturated",
        severity=severity,
        label="input-bound",
        title=f"the main thread waits {percent(share.value)} for its data{at(line)}; "
        f"{who} {percent(loaders.busy.value)} busy: {fix} {speeds_up(gain)}",
        cause=cause,
        remedy=remedy,
        gain=gain,
        phase=DATA_WAIT,
        line=line,
        series=("cpu_cores",),
    )


_RESTARTED = 3
_MOST = 0.5
# What the main thread waits in for a batch that is not there yet; in any other function of the wait it has one.
_EMPTY_HANDED = ("select.", "poll", "_poll", "wait", "get", "_get_data", "_try_get_data", "acquire", "__init__")
_PIN_THREAD = "_pin_memory_loop"

# What may be slow between the workers and the main thread, and what to do about it.
_STARTS = (
    "Workers are started anew for every epoch, and the first batches of each have to be waited for.",
    "Set persistent_workers=True in the DataLoader{at}, so that its workers outlive an epoch.",
)
_PINNING = (
    "One thread copies all batches into pinned memory, and does nothing else: it is what the main thread waits for.",
    "Make batches smaller to copy in the DataLoader{at}: bytes instead of floats, converted on the GPU; "
    "or do without pin_memory.",
)
_TRANSFER = (
    "Batches are ready, but taking them from the workers takes its time: they are large, or made of many objects.",
    "Return few tensors instead of many Python objects from the dataset of the DataLoader{at}, and smaller types.",
)
_BURSTS = (
    "Workers make batches fast enough on average, but not when they are needed: some take much longer than others.",
    "Raise prefetch_factor of the DataLoader{at}, and see why some samples take so long.",
)


def idle_workers(context: FindingContext) -> Finding | None:
    share = context.share(DATA_WAIT)
    severity = context.severity(share.low)
    loaders = context.loaders if severity else None
    if severity is None or loaders is None or loaders.busy.high >= SATURATED:
        return None
    line, gain = context.line(DATA_WAIT), bound(context, share)
    cause, remedy = _likeliest_cause(context, share, loaders)
    return context.finding(
        share.measure(DATA_WAIT),
        loaders.busy.measure("workers busy"),
        rule="input-bound-idle",
        # On crowded cores, workers and main thread wait for one another's and for others' turns.
        severity=severity if gain is not None else INFO,
        label="input-bound",
        title=f"the main thread waits {percent(share.value)} for its data{at(line)}, its workers are "
        f"{percent(loaders.busy.value)} busy: not waiting {speeds_up(gain)}",
        cause=cause,
        remedy=remedy.format(at=at(line)),
        gain=gain,
        phase=DATA_WAIT,
        line=line,
    )


def _likeliest_cause(context: FindingContext, share: Share, loaders: Loaders) -> tuple[str, str]:
    if loaders.started >= _RESTARTED * loaders.at_once:
        return _STARTS
    for name in {row.name for row in context.reader.threads.values() if _PIN_THREAD in row.name}:
        thread = Selection(context.from_ns, context.to_ns, context.whole.processes, context.whole.rank, thread=name)
        pinning = context.profile_on(thread)
        if context.share_of(pinning, lambda stack: context.phases.of_stack(stack) == COPY).value >= _MOST:
            return _PINNING

    def takes_a_batch(stack: int) -> bool:
        leaf = context.leaf(stack).function
        return context.phases.of_stack(stack) == DATA_WAIT and not any(name in leaf for name in _EMPTY_HANDED)

    return _TRANSFER if context.share_of(context.profile, takes_a_batch).value >= _MOST * share.value else _BURSTS


_USED, _TOTAL = "shm_used_bytes", "shm_total_bytes"
_NEARLY_FULL, _FULL = 0.8, 0.95


def shared_memory(context: FindingContext) -> Finding | None:
    used, total = context.values(_USED), context.values(_TOTAL)
    if not context.workers or not used or not total or max(used) < _NEARLY_FULL * total[-1]:
        return None
    part = max(used) / total[-1]
    return context.finding(
        Measure("of /dev/shm in use", part),
        rule="shared-memory",
        severity=CRITICAL if part >= _FULL else WARNING,
        label="shared memory nearly full",
        title=f"{percent(part)} of the {size(total[-1])} of /dev/shm were in use",
        cause="Workers leave their batches in /dev/shm. A worker that finds no room there is ended by a bus error.",
        remedy="Give it more (docker run --shm-size=8g, an emptyDir of medium Memory in Kubernetes), or use fewer "
        "workers, a smaller prefetch_factor, smaller types.",
        series=(_USED, _TOTAL),
    )
