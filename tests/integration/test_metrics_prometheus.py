"""A real Prometheus scrapes profd, answers queries, and finds nothing wrong with names, rules and
dashboard.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.findingruns import look
from support.folders import ROOT
from support.metricvalues import put
from support.scrapes import exporting, is_answered, names, scrape
from support.synthetic import MAIN, PHASE_SHARES, LiveRun, live_run
from support.waiting import DEADLINE_S, until

from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.catalog import METRICS
from profd.daemon.store.records import HangFound, HangReport, Point, PointsTaken, RankBehind

RULES = ROOT / "packaging" / "prometheus" / "profd.rules.yml"
DASHBOARD = ROOT / "packaging" / "grafana" / "profd.json"
SECONDS = "sum by (phase) (profd_phase_seconds_total)"
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: profd
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """A Prometheus that scrapes one target each second."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **parameters: str) -> Any:  # noqa: ANN401  JSON of many forms
        """Return what its API answers."""
        text = scrape(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(text)
        assert answer["status"] == "success"
        return answer["data"]

    def query(self, expression: str, by: str) -> dict[str, float]:
        """Return the values of a query by one of their labels."""
        found = self.ask("query", query=expression)["result"]
        return {one["metric"][by]: float(one["value"][1]) for one in found}

    def value(self, expression: str) -> float | None:
        """Return the value of a query that has one, None where it has none."""
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None


@contextlib.contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run a Prometheus of its own, with profd's alerts."""
    configuration = CONFIGURATION.format(rules=RULES, target=urllib.parse.urlsplit(target).netloc)
    (folder / "prometheus.yml").write_text(configuration)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: is_answered(f"http://{address}/-/ready"), "Prometheus is ready")
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def promtool(*words: str, given: str = "") -> str:
    """Return what promtool says of something that is right."""
    done = subprocess.run(
        ["promtool", *words], input=given, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def full_run(path: Path) -> Iterator[LiveRun]:
    """Give a live run in which every metric has a value."""
    with live_run(path, seconds=70) as run:
        for second in range(70, 75):
            at_ns = run.started_ns + second * SECOND_NS
            points = [
                Point("gpu_utilization_share", 0.4, device="gpu0"),
                Point("gpu_memory_used_bytes", 3e9, device="gpu0"),
                Point("gpu_memory_total_bytes", 8e9, device="gpu0"),
                Point("gpu_process_memory_bytes", 2e9, MAIN, device="gpu0"),
                Point("cgroup_memory_limit_bytes", 8e9, MAIN, device="/job"),
                Point("cgroup_memory_working_set_bytes", 1e9, device="/job"),
                Point("step_count", 2.0 * second, MAIN),
            ]
            put(run, PointsTaken(at_ns, tuple(points)), at_ns)
        behind = RankBehind(1, 4243, "AllReduce")
        report = HangReport("collective", (), behind=(behind,))
        assert run.writer.put(HangFound(at_ns, run.started_ns, "rank 1 is behind", report))
        assert run.writer.put(look(run.path))
        run.advance(5)
        yield run


@pytest.mark.requires("promtool")
def test_the_alerts_are_rules() -> None:
    assert "10 rules found" in promtool("check", "rules", str(RULES))


@pytest.mark.requires("prometheus", "promtool")
def test_prometheus_has_what_the_run_has_and_finds_nothing_wrong(tmp_path: Path) -> None:
    with (
        full_run(tmp_path / "a.profd") as run,
        exporting(run.path) as url,
        prometheus(tmp_path, url) as server,
    ):
        until(lambda: server.value("profd_finding"), "a finding in Prometheus")
        text = scrape(url)
        assert names(text) == {metric.name for metric in METRICS}
        assert promtool("check", "metrics", given=text) == ""
        run.advance(10)
        until(lambda: server.value(f"sum({SECONDS})") == pytest.approx(85), "85 s in Prometheus")
        shares = server.query(
            f"{SECONDS} / ignoring (phase) group_left sum ({SECONDS}) > 0", by="phase"
        )
        assert shares == pytest.approx(PHASE_SHARES)
        for metric in METRICS:
            assert server.value(f"count({metric.name})"), metric.name
        for query in queries():
            server.ask("query", query=query)
        # Pending: it is for a quarter of an hour. Rules are evaluated now and then.
        until(lambda: "TrainingIsSlow" in alerts(server), "the alert of a slow training")


def alerts(server: Prometheus) -> set[str]:
    return {one["labels"]["alertname"] for one in server.ask("alerts")["alerts"]}


def queries() -> list[str]:
    """Return the queries of the dashboard as Grafana would ask them."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    return [query.replace("$__rate_interval", "1m").replace("$run", ".*") for query in asked]
