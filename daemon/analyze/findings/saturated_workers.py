"""Rule: the main thread waits for batches, and the workers that make them have no reserve."""

from __future__ import annotations

import math

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.cores import ceiling
from profd.daemon.analyze.findings.finding import Evidence, Finding
from profd.daemon.analyze.findings.loaders import SATURATED, Loaders, take_loaders
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import DATA_WAIT
from profd.daemon.units import percent, plural

_NO_CORES = 1.1
_MOSTLY_WAITING = 0.25


def find(case: Case) -> Finding | None:
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


def _remedy(case: Case, share: Share, loaders: Loaders, has_cores: bool) -> str:
    cheaper = f"make loading cheaper{at(loaders.line)}: decode once and store the result, transform whole batches"
    if not has_cores:
        return f"{cheaper.capitalize()}; more workers would only share the cores that there are."
    return (
        f"Set num_workers={needed_workers(share, loaders)} in the DataLoader{at(case.line(DATA_WAIT))}, or {cheaper}."
    )


def _evidence(case: Case, share: Share, loaders: Loaders) -> Evidence:
    return case.evidence(
        share.measure(DATA_WAIT),
        loaders.busy.measure("workers busy"),
        phase=DATA_WAIT,
        line=case.line(DATA_WAIT),
        series=("cpu_cores",),
    )
