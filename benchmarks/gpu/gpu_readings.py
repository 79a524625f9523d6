"""Part A of a day with a GPU: what the driver answers, how true readings are, and what profd costs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu.gpu_commands import (
    PROFD,
    PROGRAMS,
    Assumed,
    Collected,
    Pace,
    Values,
    cuda,
    profiled,
    said,
    until_it_steps,
)
from gpu.gpu_cost import SETTLING_S

from profd.daemon.analyze.idletime import IdleTime
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.stepfunction import UTILIZATION, step_function

RECORDER = Path(__file__).with_name("gpu_recorder.py")
ALTERNATIONS = 5


def facts(_: Pace) -> Iterator[Values | Assumed]:
    """Say what machine this is."""
    status = Path("/proc/self/status").read_text()
    yield {
        "kernel": platform.release(),
        "python": sys.version,
        "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
        "nspid": [line for line in status.splitlines() if line.startswith("NSpid")],
        "devices": [str(one) for one in Path("/dev").glob("nvidia*")],
    }
    yield {"doctor": said([sys.executable, "-m", "profd", "doctor"], 90)}
    yield {"nvidia_smi": said(["nvidia-smi", "-q"], 60)}
    yield {"torch": said([sys.executable, "-m", "torch.utils.collect_env"], 90)}


def recorder(pace: Pace) -> Iterator[Values | Assumed]:
    """Record raw answers of NVML: without a context, beside an idle one, beside work, by an old
    pynvml, as nobody.

    An old pynvml lies in the folder of the results, since the machine may have no network.
    """
    folder = Path(os.environ.get("GPU_SESSION_FOLDER", "."))
    older = folder / "pynvml-12.560"

    def record(name: str, seconds: float = 20, **environment: str) -> Values:
        path = folder / f"nvml-raw-{name}.jsonl.gz"
        words = [
            sys.executable,
            str(RECORDER),
            str(path),
            "--seconds",
            str(pace.seconds(seconds, 2)),
        ]
        text = said(words, 60, **environment)
        return {
            "recorded": name,
            "bytes": path.stat().st_size if path.exists() else None,
            "told": text,
        }

    yield record("without-a-context")
    with beside("context"):
        yield record("beside-an-idle-context")
    if older.exists():
        before = {"PYTHONPATH": f"{older}:{os.environ.get('PYTHONPATH', '')}"}
        yield record("pynvml-12.560", 10, **before)
        doctor = said([sys.executable, "-m", "profd", "doctor"], 90, **before)
        yield {"doctor by pynvml 12.560": doctor}
    else:
        yield {"skipped": f"{older} is not there"}
    with beside("gaps", "--gap", "100", "--log", str(folder / "gaps.jsonl")):
        yield record("beside-gaps", 10)
    if os.geteuid() == 0:  # GPM may be for administrators
        path = Path(tempfile.mkdtemp(), "nvml-raw-as-nobody.jsonl.gz")
        path.parent.chmod(0o777)
        yield {
            "as nobody": said(
                [sys.executable, str(RECORDER), str(path), "--seconds", "2"], 60, user=65534
            )
        }


@contextlib.contextmanager
def beside(*words: str) -> Iterator[None]:
    """Have a training run meanwhile."""
    running = subprocess.Popen(
        [sys.executable, str(PROGRAMS), *words, "--seconds", "120"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(4)  # until it has its context
        yield
    finally:
        running.terminate()
        running.wait()


def idle_reading(pace: Pace) -> Iterator[Values | Assumed]:
    """Read a GPU that nobody uses, and say what that costs."""
    with Collected() as collected:
        time.sleep(pace.seconds(SETTLING_S, 1))
        begun_s, spent_s = time.monotonic(), time.process_time()
        time.sleep(pace.seconds(20, 3))
        cores = (time.process_time() - spent_s) / (time.monotonic() - begun_s)
    found = collected.summary()
    yield {**found, "cores": cores}
    yield Assumed(
        "the collector takes at most 0.5 % of a core (docs/gpu.md)", cores <= 0.005, cores
    )
    read = collected.series(UTILIZATION)
    yield Assumed(
        "an idle GPU has readings of utilization",
        bool(read),
        {name: len(one) for name, one in read.items()},
    )


def truth(pace: Pace) -> Iterator[Values | Assumed]:
    """Hold readings against kernels of known lengths: the idle share, and what of it lies in each
    phase.
    """
    torch = cuda()
    if torch is None:
        yield {"skipped": "no CUDA"}
        return
    per_ms = sleep_rate(torch)
    for gap_ms, duty in pace.each(
        itertools.product((100, 5, 400, 20, 200, 50, 1000), (0.3, 0.5, 0.8))
    ):
        loop_s = gap_ms / (1 - duty) / 1000
        yield from known_gaps(
            torch, per_ms, gap_ms, duty, pace.seconds(max(3.5, 5 * loop_s), 2 * loop_s)
        )


EDGE_S = 0.5
"""So long kernels run before and after what is measured: a reading at its edge is of both."""


def known_gaps(
    torch: Any,  # noqa: ANN401
    per_ms: float,
    gap_ms: float,
    duty: float,
    seconds: float,
) -> Iterator[Values | Assumed]:
    """Run kernels with gaps.

    What ran when is known by the host's clock around a synchronization.
    """
    busy_ms = gap_ms * duty / (1 - duty)
    rows: list[IntervalRow] = []
    edge_ns = int(EDGE_S * SECOND_NS)
    with Collected() as collected:
        time.sleep(1.5)
        begun_ns = before_ns = collected.clock.now_ns()
        while before_ns < begun_ns + seconds * SECOND_NS + 2 * edge_ns:
            time.sleep(gap_ms / 1000)
            started_ns = collected.clock.now_ns()
            torch.cuda._sleep(int(busy_ms * per_ms))
            torch.cuda.synchronize()
            ended_ns = collected.clock.now_ns()
            for phase, from_ns, to_ns in ((1, before_ns, started_ns), (2, started_ns, ended_ns)):
                rows.append(
                    IntervalRow(
                        from_ns, to_ns - from_ns, 1, phase, max((to_ns - from_ns) // 1_000_000, 1)
                    )
                )
            before_ns = ended_ns
        time.sleep(1.2)
    ends_ns = [row.end_ns for row in rows if row.stack == 2]
    from_ns = next(end_ns for end_ns in ends_ns if end_ns >= begun_ns + edge_ns)
    to_ns = next(end_ns for end_ns in reversed(ends_ns) if end_ns <= before_ns - edge_ns)
    inner = [row for row in rows if from_ns <= row.start_ns < to_ns]  # whole loops
    idle = sum(row.duration_ns for row in inner if row.stack == 1) / (to_ns - from_ns)
    case = f"gaps of {gap_ms} ms at {duty:.0%}"
    for device, points in collected.series(UTILIZATION).items():
        function = step_function(points)
        mean, known_ns = function.mean(from_ns, to_ns)
        spread = IdleTime[int]()
        spread.add(function, inner, lambda phase: phase)
        shares = {
            phase: (one.low, one.high, one.estimate) for phase, one in spread.shares().items()
        }
        yield {"case": case, "device": device, "idle": idle, "told": 1 - mean, "known": known_ns / (to_ns - from_ns),
               "period_s": (function.period_ns or 0) / SECOND_NS, "waiting": shares.get(1)}  # fmt: skip
        if known_ns:
            yield Assumed(f"{case}: the idle share is right within 2 points", abs(1 - mean - idle) < 0.02,
                          [idle, 1 - mean])  # fmt: skip
            low, high, _ = shares.get(1, (0.0, 0.0, None))
            yield Assumed(f"{case}: the bounds hold what lies in the wait, which is all of it", low <= 1 <= high + 0.03,
                          [low, high])  # fmt: skip


def shapes_of_work(pace: Pace) -> Iterator[Values | Assumed]:
    """Say what readings make of tiny kernels back to back, of copies only, and of two streams."""
    torch = cuda()
    if torch is None:
        yield {"skipped": "no CUDA"}
        return
    small, host = (
        torch.ones(64, device="cuda"),
        torch.empty(1 << 28, dtype=torch.uint8).pin_memory(),
    )
    large, other = torch.empty(1 << 28, dtype=torch.uint8, device="cuda"), torch.cuda.Stream()

    def two_streams() -> None:
        torch.cuda._sleep(2_000_000)
        with torch.cuda.stream(other):
            torch.cuda._sleep(2_000_000)

    for name, work in (
        ("tiny kernels", lambda: small.add_(1)),
        ("copies", lambda: large.copy_(host, non_blocking=True)),
        ("two streams", two_streams),
    ):
        with Collected() as collected:
            until, copied = time.monotonic() + pace.seconds(6, 3), 0
            begun = time.monotonic()
            while time.monotonic() < until:
                for _ in range(20):
                    work()
                copied += 20 * large.nbytes
                torch.cuda.synchronize()
            rate = copied / (time.monotonic() - begun)
        found = collected.summary()
        yield {"work": name, "bytes_per_s": rate if name == "copies" else None, **found}
        received = collected.series("gpu_pcie_received_bytes_per_s")
        for device, points in received.items() if name == "copies" else ():
            median = statistics.median(point.value for point in points)
            yield Assumed(
                f"copies to {device} have the measured rate within 15 %",
                abs(median / rate - 1) < 0.15,
                [rate, median],
            )


COUNTERS = ((197, "sent"), (198, "received"))
"""NVML's fields for bytes over PCIe: 32 bits."""


def copies(pace: Pace) -> Iterator[Values | Assumed]:
    """Copy 1 GB and 20 GB to the GPU: what NVML's counters, its measurement of 20 ms, and the
    collector make of it.
    """
    torch = cuda()
    import pynvml
    from torch import empty, uint8

    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        for gigabytes in pace.each((1, 20)):
            host, block = (
                empty(1 << 28, dtype=uint8),
                empty(1 << 28, dtype=uint8, device="cuda" if torch else "cpu"),
            )
            host = host.pin_memory() if torch else host
            with Collected() as collected:
                time.sleep(2.5)
                before, begun = counters(pynvml, handle), time.monotonic()
                for number in range(4 * gigabytes):
                    block.copy_(host, non_blocking=True)
                    if number == 2:
                        measured = [
                            ask_pynvml(pynvml.nvmlDeviceGetPcieThroughput, handle, way)
                            for way in (0, 1)
                        ]
                if torch:
                    torch.cuda.synchronize()
                took, after = time.monotonic() - begun, counters(pynvml, handle)
                time.sleep(2.5)
            copied = gigabytes << 30
            counted = {
                name: (after[name] - before[name]) % (1 << 32)
                for name in before.keys() & after.keys()
            }
            read = {name: [one.value for one in points]
                    for way in ("sent", "received")
                    for name, points in collected.series(f"gpu_pcie_{way}_bytes_per_s").items()}  # fmt: skip
            yield {"bytes": copied, "took_s": took, "counted_modulo": counted, "modulo": copied % (1 << 32),
                   "measured_kb_per_s": measured, "told": read}  # fmt: skip
            if torch and "received" in counted:
                off = (counted["received"] - copied) % (1 << 32) / copied
                yield Assumed(f"the counter has at most 12 % more than the {gigabytes} GB, "
                              "modulo 2^32",
                              off < 0.12, off)  # fmt: skip


def counters(pynvml: Any, handle: Any) -> dict[str, int]:  # noqa: ANN401
    """Return the bytes that NVML has counted over PCIe."""
    fields = (
        ask_pynvml(pynvml.nvmlDeviceGetFieldValues, handle, [number for number, _ in COUNTERS])
        or []
    )
    named = zip((name for _, name in COUNTERS), fields, strict=False)
    return {name: int(field.value.uiVal) for name, field in named if field.nvmlReturn == 0}


def ask_pynvml(function: Any, *arguments: Any) -> Any:  # noqa: ANN401
    """Call a function of pynvml; the words of its error where it has no answer."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001  the result names the error, whatever it was
        return str(error)


def memory(_: Pace) -> Iterator[Values | Assumed]:
    """Compare the memory by torch, nvidia-smi and the collector."""
    torch = cuda()
    kept = torch.empty(2 << 30, dtype=torch.uint8, device="cuda") if torch else None
    with Collected() as collected:
        time.sleep(4)
    query = [
        "nvidia-smi",
        "--query-gpu=memory.used,memory.reserved,memory.total",
        "--format=csv,noheader,nounits",
    ]
    apps = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    found = {
        name: value
        for name, value in collected.summary().items()
        if "memory" in name or name == "events"
    }
    yield {"smi": said(query, 60), "apps": said(apps, 60), "pid": os.getpid(), "told": found}
    if torch is not None and kept is not None:
        free, whole = torch.cuda.mem_get_info()
        used = [one[-1].value for one in collected.series("gpu_memory_used_bytes").values()]
        yield {"mem_get_info": [free, whole], "used": used}
        yield Assumed("used memory is that of mem_get_info within 1 GB",
                      any(abs(one - (whole - free)) < 1e9 for one in used), [used, whole - free])  # fmt: skip


def cost(pace: Pace) -> Iterator[Values | Assumed]:
    """Say what profd costs a launch-bound and a GPU-bound loop, which it attaches to again and
    again.
    """
    half = Pace(pace.scale, pace.left_s / 2)
    for name, own in (("launch-bound", half), ("gpu-bound", pace)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "steps.jsonl")
            words = [
                sys.executable,
                str(PROGRAMS),
                name,
                "--seconds",
                str(own.left_s),
                "--log",
                str(path),
            ]
            loop = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until_it_steps(path, loop, own)
            ratios = []
            for _ in own.each(range(ALTERNATIONS)):
                bare, profiled_s = alternation(loop.pid, path, folder, own.seconds(5, 2))
                yield {"program": name, "bare_s": bare, "profiled_s": profiled_s}
                if bare and profiled_s:
                    ratios.append(statistics.median(profiled_s) / statistics.median(bare))
            loop.kill()
            loop.wait()
        if ratios:
            ratio = statistics.median(ratios)
            yield Assumed(f"profd costs a {name} loop at most 2 %", ratio < 1.02, ratios)


def alternation(
    pid: int, path: Path, folder: str, seconds: float
) -> tuple[list[float], list[float]]:
    """Return the lengths of steps for some seconds without profd, then for as many with it
    attached.
    """
    edges_s = [time.monotonic()]
    time.sleep(seconds)
    edges_s.append(time.monotonic())
    run = str(Path(folder, f"{edges_s[0]}.profd"))
    attached = subprocess.Popen(
        [*PROFD, "attach", "--headless", "-o", run, "--duration", str(seconds), str(pid)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    attached.wait()
    edges_s.append(time.monotonic())
    rows = [
        json.loads(line)
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]
    bare, with_it = (
        [took for at, took in rows if from_s <= at - took and at <= to_s]
        for from_s, to_s in itertools.pairwise(edges_s)
    )
    return bare, with_it


def gap_runs(pace: Pace) -> Iterator[Values | Assumed]:
    """Profile loops with gaps of 1 s, 0.3 s and 40 ms, and keep the idle time that profd states."""
    for gap in pace.each((1000, 300, 40)):
        ran = profiled(
            "gaps", "--gap", str(gap), "--busy", str(gap), "--seconds", str(pace.seconds(15, 5))
        )
        idle = ran.summary.get("gpu_idle")
        yield {"gap_ms": gap, "said": ran.said, "gpu_idle": idle, "gpus": ran.summary.get("gpus"),
               "phases": ran.summary.get("phases"), "failed": ran.summary.get("failed")}  # fmt: skip
        if idle is not None and ran.said.get("cuda"):
            yield Assumed(f"a loop with {gap} ms of {2 * gap} ms idle is idle for about half of "
                          "the time by profd",
                          abs(idle["share"] - 0.5) < 0.07, idle["share"])  # fmt: skip


def sleep_rate(torch: Any) -> float:  # noqa: ANN401
    """Return how many cycles of a sleeping kernel are a millisecond."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        first.record()
        torch.cuda._sleep(100_000_000)
        last.record()
        torch.cuda.synchronize()
    return float(100_000_000 / first.elapsed_time(last))
