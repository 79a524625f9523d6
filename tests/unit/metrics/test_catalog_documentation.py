"""The page, the dashboard and the alerts name the metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from support.folders import ROOT

from profd.daemon.metrics.catalog import METRICS

PAGE = (ROOT / "docs" / "metrics.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((ROOT / "packaging" / "grafana" / "profd.json").read_text())
RULES = (ROOT / "packaging" / "prometheus" / "profd.rules.yml").read_text()
NAMES = {metric.name for metric in METRICS}


def queries() -> Iterator[str]:
    """Yield the queries of the dashboard's panels, and of its variables."""
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield DASHBOARD["templating"]["list"][1]["query"]["query"]


def named(text: str) -> set[str]:
    return set(re.findall(r"\bprofd_\w+", text))


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    rows = re.findall(r"^\| `(profd_\w+)` \| (\w+) \|([^|]*)\|", PAGE, re.MULTILINE)
    documented = {(name, kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in rows}
    assert documented == {
        (metric.name, metric.kind, tuple(label for label in metric.labels if label != "run"))
        for metric in METRICS
    }


def test_names_have_units_counters_end_in_total_and_labels_bounds() -> None:
    assert {metric.name for metric in METRICS if metric.name.endswith("_total")} == {
        metric.name for metric in METRICS if metric.kind == "counter"
    }
    units = {"s": "seconds", "By": "bytes", "By/s": "bytes_per_second", "1/s": "per_second"}
    for metric in METRICS:
        assert metric.name.removesuffix("_total").endswith(units.get(metric.unit, "")), metric.name
    allowed = {"run", "rank", "role", "gpu", "phase", "rule", "severity", "memory"}
    of_a_run = {"name", "mode", "host", "version", "python_version"}
    for metric in METRICS:
        assert set(metric.labels) <= allowed | (
            of_a_run if metric.name.endswith("_info") else set()
        ), metric.name


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_there_are() -> None:
    every = list(queries())
    assert all(named(query) for query in every)
    assert named(" ".join(every)) <= NAMES
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in DASHBOARD["panels"]]
    cells = [
        (x + right, y + down) for x, y, w, h in places for right in range(w) for down in range(h)
    ]
    assert len(cells) == len(set(cells))
    assert max(x + w for x, _, w, _ in places) == 24
    assert named(RULES) <= NAMES
    assert len(re.findall(r"^ +- alert:", RULES, re.MULTILINE)) == 10
