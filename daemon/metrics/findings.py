"""What slows the training now, as the rows of the run file say: nothing is looked for here."""

from __future__ import annotations

import math
from collections.abc import Iterator

from profd.daemon.analyze.findings.finding import SEVERITIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.catalog import FINDING, FINDINGS, FINDINGS_LOOKED, Sample
from profd.daemon.metrics.look import Look
from profd.daemon.store.findings import rules_found


class Findings:
    """The rules that found something."""

    def take(self, look: Look) -> Iterator[Sample]:
        """Tell which of them hold; one that was found once has a series from then on."""
        found, looked_ns = rules_found(look.reader), look.reader.info.analyzed_ns
        for severity in SEVERITIES:
            held = sum(one.holds for one in found if one.severity == severity)
            yield Sample(FINDINGS, (look.run, severity), held)
        for one in found:
            yield Sample(FINDING, (look.run, one.rule, one.severity), one.holds)
        yield Sample(FINDINGS_LOOKED, (look.run,), math.nan if looked_ns is None else looked_ns / SECOND_NS)
