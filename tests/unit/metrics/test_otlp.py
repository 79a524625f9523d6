"""What an OpenTelemetry receiver gets: the same metrics, by the protocol's own messages."""

from __future__ import annotations

import gzip
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from support.synthetic import PHASE_SHARES, live_run

from profd.daemon.metrics.otlp import Sender, metrics_url
from profd.daemon.metrics.runs import Runs

Received = queue.SimpleQueue[tuple[str, ExportMetricsServiceRequest]]


class Receiver:
    def __init__(self) -> None:
        received: Received = queue.SimpleQueue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                plain = (
                    gzip.decompress(body)
                    if self.headers.get("Content-Encoding") == "gzip"
                    else body
                )
                received.put((self.path, ExportMetricsServiceRequest.FromString(plain)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.received = received
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def metrics_of(request: ExportMetricsServiceRequest) -> dict[str, Metric]:
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "profd"
    return {metric.name: metric for metric in scope.metrics}


def labels_of(attributes: object) -> dict[str, str]:
    return {one.key: one.value.string_value for one in attributes}  # type: ignore[attr-defined]


def test_the_receiver_gets_counters_and_gauges_with_their_labels(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        Sender(receiver.url, Runs(lambda: (run.path,)).samples).close()
        assert caplog.messages == []  # what is not known is not sent, nor is the SDK asked to
        receiver.close()  # one that is away hurts nobody
        Sender(receiver.url, Runs(lambda: (run.path,)).samples).close()
    path, request = receiver.received.get(timeout=30)
    found = metrics_of(request)
    assert path == "/v1/metrics"
    seconds = found["profd_phase_seconds"]
    assert seconds.unit == "s"
    assert seconds.sum.is_monotonic
    assert seconds.sum.aggregation_temporality == 2  # cumulative
    by_phase = {
        labels_of(point.attributes)["phase"]: point.as_double for point in seconds.sum.data_points
    }
    assert {phase: share for phase, share in by_phase.items() if share} == pytest.approx(
        {phase: 20 * share for phase, share in PHASE_SHARES.items()}
    )
    (memory,) = found["profd_host_memory_used_bytes"].gauge.data_points
    assert (memory.as_double, set(labels_of(memory.attributes))) == (9e9, {"run"})


def test_metrics_are_sent_again_and_again(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    with live_run(tmp_path / "a.profd", seconds=3) as run:
        sender = Sender(receiver.url, Runs(lambda: (run.path,)).samples)
        for _ in range(3):
            assert "profd_run_info" in metrics_of(receiver.received.get(timeout=30)[1])
        sender.close()


def test_an_endpoint_without_a_path_is_the_base_of_the_protocols() -> None:
    for endpoint in ("http://localhost:4318", "http://localhost:4318/"):
        assert metrics_url(endpoint) == "http://localhost:4318/v1/metrics"
    assert metrics_url("https://collector/otlp/v1/metrics") == "https://collector/otlp/v1/metrics"
