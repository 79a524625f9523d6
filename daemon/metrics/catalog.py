"""Every metric by name, with its kind, unit and labels; docs/metrics.md explains each.

Knows no run and no protocol.

Labels hold what a run has few of: ranks, roles, GPUs, phases, rules. Never a PID, a path or a
function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec


class Metric(msgspec.Struct, frozen=True):
    """A metric for Prometheus and OpenTelemetry.

    ``name`` is Prometheus's, ``kind`` is counter or gauge, and ``unit`` is that of OpenTelemetry
    (UCUM).
    """

    name: str
    kind: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """A value of a metric, NaN if it is not known yet, with the values of its labels in order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


Samples = Callable[[], Iterable[Sample]]
"""What gives the values of all metrics now."""


def _counter(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", unit, text, ("run", *labels))


def _gauge(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", unit, text, ("run", *labels))


BUILD_INFO = Metric(
    "profd_build_info", "gauge", "1", "The version of profd; 1.", ("version", "python_version")
)
EXPORTER_CPU = Metric(
    "profd_exporter_cpu_seconds_total", "counter", "s", "CPU time of what answers this scrape."
)
EXPORTER_MEMORY = Metric(
    "profd_exporter_resident_memory_bytes", "gauge", "By", "Memory of what answers this scrape."
)

RUN_INFO = _gauge("profd_run_info", "1", "What is recorded; 1.", "name", "mode", "host")
RUN_STARTED = _gauge("profd_run_start_time_seconds", "s", "When the recording began, in Unix time.")
RUN_WRITTEN = _gauge(
    "profd_run_last_write_time_seconds", "s", "When the recorder last wrote, in Unix time."
)

STEPS = _counter(
    "profd_steps_total", "1", "Steps made, by the loop counter that is read from outside.", "rank"
)
STEP_RATE = _gauge(
    "profd_steps_per_second", "1/s", "Steps a second over the last counts of steps.", "rank"
)

PHASE_SECONDS = _counter(
    "profd_phase_seconds_total",
    "s",
    "Sampled time of training main threads, by what they did.",
    "rank",
    "phase",
)
GPU_IDLE_SECONDS = _counter(
    "profd_gpu_idle_seconds_total",
    "s",
    "The part of it for which the rank's GPUs were idle.",
    "rank",
    "phase",
)

GPU_UTILIZATION = _gauge(
    "profd_gpu_utilization_ratio", "1", "Share of the last 10 s with a kernel running.", "gpu"
)
GPU_BUSY_SECONDS = _counter(
    "profd_gpu_busy_seconds_total", "s", "Time with a kernel running.", "gpu"
)
GPU_MEMORY_USED = _gauge(
    "profd_gpu_memory_used_bytes", "By", "Memory of the GPU that is in use by anyone.", "gpu"
)
GPU_MEMORY_TOTAL = _gauge("profd_gpu_memory_total_bytes", "By", "Memory of the GPU.", "gpu")

PROCESSES = _gauge("profd_processes", "1", "Processes of the run that live.", "role")
PROCESS_MEMORY = _gauge(
    "profd_process_resident_memory_bytes",
    "By",
    "RSS of the run's processes, added up.",
    "rank",
    "role",
)
PROCESS_GPU_MEMORY = _gauge(
    "profd_process_gpu_memory_bytes",
    "By",
    "GPU memory of the run's processes, added up.",
    "rank",
    "role",
)
HOST_MEMORY_USED = _gauge(
    "profd_host_memory_used_bytes", "By", "Memory of the machine that is not available."
)
HOST_MEMORY_TOTAL = _gauge("profd_host_memory_total_bytes", "By", "Memory of the machine.")
CGROUP_MEMORY_USED = _gauge(
    "profd_cgroup_memory_working_set_bytes",
    "By",
    "Memory of the control group that is nearest to its limit.",
)
CGROUP_MEMORY_LIMIT = _gauge(
    "profd_cgroup_memory_limit_bytes", "By", "The limit of that control group."
)

FINDINGS = _gauge(
    "profd_findings", "1", "How many things were found to slow the training.", "severity"
)
FINDING = _gauge(
    "profd_finding", "1", "1 while this was found, 0 when it is gone.", "rule", "severity"
)
FINDINGS_LOOKED = _gauge(
    "profd_findings_look_time_seconds", "s", "When findings were last looked for, in Unix time."
)
HANGS = _counter("profd_hangs_total", "1", "Times without progress.")
HANGING = _gauge("profd_hanging", "1", "1 while the run makes no progress, else 0.")
RANK_BEHIND = _gauge(
    "profd_rank_behind", "1", "1 for a rank that the others wait for, while the run hangs.", "rank"
)

COVERAGE = _gauge(
    "profd_coverage_ratio", "1", "Share of the training processes' time that was sampled."
)
SAMPLES = _counter("profd_samples_total", "1", "Stacks read of all threads, torn ones too.")
TORN_SAMPLES = _counter("profd_torn_samples_total", "1", "Stacks that were dropped as impossible.")
TORN = _gauge(
    "profd_torn_ratio", "1", "The part of the stacks read that was dropped as impossible."
)

SELF_CPU = _counter(
    "profd_self_cpu_seconds_total", "s", "CPU time of the recorder with its samplers."
)
SELF_MEMORY = _gauge("profd_self_resident_memory_bytes", "By", "Memory of the recorder.")

METRICS: tuple[Metric, ...] = tuple(
    one for one in list(globals().values()) if isinstance(one, Metric)
)
"""All of them, in the order in which they stand here."""
