"""Sends metrics to an OpenTelemetry collector by the official SDK.

The instruments are the same, and are read when it is time to send.

How often, with which headers and for which service is what OpenTelemetry's own environment
variables say.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from profd.daemon import VERSION
from profd.daemon.metrics.catalog import METRICS, Metric, Samples


class Sender:
    """Sends at intervals until it is closed."""

    def __init__(self, endpoint: str, samples: Samples) -> None:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=metrics_url(endpoint)))
        service = Resource.create(
            {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "profd"}
        )
        self._provider = MeterProvider(
            metric_readers=[reader], resource=service, shutdown_on_exit=False
        )
        meter = self._provider.get_meter("profd", VERSION)
        for metric in METRICS:
            is_counter = metric.kind == "counter"
            create = (
                meter.create_observable_counter if is_counter else meter.create_observable_gauge
            )
            observe = functools.partial(_observed, metric, samples)
            # Counters have no suffix here: receivers for Prometheus add it.
            create(metric.name.removesuffix("_total"), [observe], metric.unit, metric.help)

    def close(self) -> None:
        """Send once more, and end."""
        self._provider.shutdown(3000)


def metrics_url(endpoint: str) -> str:
    """Return the URL for metrics: without a path it is the base of OpenTelemetry's paths."""
    return endpoint if urlsplit(endpoint).path.strip("/") else f"{endpoint.rstrip('/')}/v1/metrics"


def _observed(metric: Metric, samples: Samples, _: CallbackOptions) -> Iterator[Observation]:
    for sample in samples():
        if sample.metric is metric and math.isfinite(sample.value):
            yield Observation(
                float(sample.value), dict(zip(metric.labels, sample.labels, strict=True))
            )
