"""Part A of a day with a GPU: what the driver answers, how true readings are, and what profd costs."""

from __future__ import annotations

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

from gpu_commands import PROFD, PROGRAMS, Assumed, Collected, Pace, Values, cuda, profiled, said, until_it_steps

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
    """Record raw answers of NVML: without a context, beside one, and as another user."""
    folder, seconds = Path(os.environ.get("GPU_SESSION_FOLDER", ".")), str(pace.seconds(20, 2))

    def record(name: str) -> Values:
        path = folder / f"nvml-raw-{name}.jsonl.gz"
        told = said([sys.executable, str(RECORDER), str(path), "--seconds", seconds], 60)
        return {"recorded": name, "bytes": path.stat().st_size if path.exists() else None, "told": told}

    yield record("without-a-context")
    words = [sys.executable, str(PROGRAMS), "gaps", "--gap", "100", "--seconds", str(2 * pace.seconds(20, 2) + 5)]
    beside = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield record("beside-gaps")
    if os.geteuid() == 0:  # GPM may be for administrators
        path = Path(tempfile.mkdtemp(), "nvml-raw-as-nobody.jsonl.gz")
        path.parent.chmod(0o777)
        yield {"as nobody": said([sys.executable, str(RECORDER), str(path), "--seconds", "2"], 60, user=65534)}
    beside.terminate()
    beside.wait()


def idle_reading(pace: Pace) -> Iterator[Values | Assumed]:
    """Read a GPU that nobody uses, and say what that costs."""
    begun_s, spent_s = time.monotonic(), time.process_time()
    with Collected() as collected:
        time.sleep(pace.seconds(20, 3))
    cores = (time.process_time() - spent_s) / (time.monotonic() - begun_s)
    found = collected.summary()
    yield {**found, "cores": cores}
    yield Assumed("the collector takes at most 0.5 % of a core (docs/gpu.md)", cores <= 0.005, cores)
    read = collected.series(UTILIZATION)
    yield Assumed("an idle GPU has readings of utilization", bool(read), {name: len(one) for name, one in read.items()})


def truth(pace: Pace) -> Iterator[Values | Assumed]:
    """Hold readings against kernels of known lengths: the idle share, and what of it lies in each phase."""
    torch = cuda()
    if torch is None:
        yield {"skipped": "no CUDA"}
        return
    per_ms = sleep_rate(torch)
    for gap_ms, duty in pace.each(itertools.product((5, 20, 50, 100, 200, 400, 1000), (0.3, 0.5, 0.8))):
        seconds = max(3.5, 5 * gap_ms / 1000)
        yield from known_gaps(torch, per_ms, gap_ms, duty, pace.seconds(seconds, 0.3 * seconds))


def known_gaps(torch: Any, per_ms: float, gap_ms: float, duty: float, seconds: float) -> Iterator[Values | Assumed]:  # noqa: ANN401
    """Run kernels with gaps; what ran when is known by the host's clock around a synchronization."""
    busy_ms = gap_ms * duty / (1 - duty)
    rows: list[IntervalRow] = []
    busy_ns = 0.0
    with Collected() as collected:
        time.sleep(1.5)
        begun_ns = before_ns = collected.clock.now_ns()
        while before_ns < begun_ns + seconds * SECOND_NS:
            time.sleep(gap_ms / 1000)
            started_ns = collected.clock.now_ns()
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            torch.cuda._sleep(int(busy_ms * per_ms))
            last.record()
            torch.cuda.synchronize()
            ended_ns = collected.clock.now_ns()
            busy_ns += first.elapsed_time(last) * 1e6
            for phase, from_ns, to_ns in ((1, before_ns, started_ns), (2, started_ns, ended_ns)):
                rows.append(IntervalRow(from_ns, to_ns - from_ns, 1, phase, max((to_ns - from_ns) // 1_000_000, 1)))
            before_ns = ended_ns
        time.sleep(1.2)
    idle = 1 - busy_ns / (before_ns - begun_ns)
    case = f"gaps of {gap_ms} ms at {duty:.0%}"
    for name in (UTILIZATION, "gpu_graphics_active_share"):
        for device, points in collected.series(name).items():
            function = step_function(points)
            mean, known_ns = function.mean(begun_ns, before_ns)
            spread = IdleTime[int]()
            spread.add(function, rows, lambda phase: phase)
            shares = {phase: (one.low, one.high, one.estimate) for phase, one in spread.shares().items()}
            yield {"case": case, "series": name, "device": device, "idle": idle, "told": 1 - mean,
                   "known": known_ns / (before_ns - begun_ns), "period_s": (function.period_ns or 0) / SECOND_NS,
                   "waiting": shares.get(1)}  # fmt: skip
            if known_ns:
                yield Assumed(f"{case}: the idle share by {name} is right within 2 points", abs(1 - mean - idle) < 0.02,
                              [idle, 1 - mean])  # fmt: skip


def shapes_of_work(pace: Pace) -> Iterator[Values | Assumed]:
    """Say what readings make of tiny kernels back to back, of copies only, and of two streams."""
    torch = cuda()
    if torch is None:
        yield {"skipped": "no CUDA"}
        return
    small, host = torch.ones(64, device="cuda"), torch.empty(1 << 28, dtype=torch.uint8).pin_memory()
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
            told = statistics.median(point.value for point in points)
            yield Assumed(
                f"copies to {device} have the measured rate within 15 %", abs(told / rate - 1) < 0.15, [rate, told]
            )


def memory(_: Pace) -> Iterator[Values | Assumed]:
    """Compare the memory by torch, nvidia-smi and the collector."""
    torch = cuda()
    kept = torch.empty(2 << 30, dtype=torch.uint8, device="cuda") if torch else None
    with Collected() as collected:
        time.sleep(4)
    query = ["nvidia-smi", "--query-gpu=memory.used,memory.reserved,memory.total", "--format=csv,noheader,nounits"]
    apps = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    told = {name: value for name, value in collected.summary().items() if "memory" in name or name == "events"}
    yield {"smi": said(query, 60), "apps": said(apps, 60), "pid": os.getpid(), "told": told}
    if torch is not None and kept is not None:
        free, whole = torch.cuda.mem_get_info()
        used = [one[-1].value for one in collected.series("gpu_memory_used_bytes").values()]
        yield {"mem_get_info": [free, whole], "used": used}
        yield Assumed("used memory is that of mem_get_info within 1 GB",
                      any(abs(one - (whole - free)) < 1e9 for one in used), [used, whole - free])  # fmt: skip


def cost(pace: Pace) -> Iterator[Values | Assumed]:
    """Say what profd costs a launch-bound and a GPU-bound loop, which it attaches to again and again."""
    half = Pace(pace.scale, pace.left_s / 2)
    for name, own in (("launch-bound", half), ("gpu-bound", pace)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "steps.jsonl")
            words = [sys.executable, str(PROGRAMS), name, "--seconds", str(own.left_s), "--log", str(path)]
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


def alternation(pid: int, path: Path, folder: str, seconds: float) -> tuple[list[float], list[float]]:
    """Return the lengths of steps for some seconds without profd, then for as many with it attached."""
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
    rows = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    bare, with_it = (
        [took for at, took in rows if from_s <= at - took and at <= to_s]
        for from_s, to_s in itertools.pairwise(edges_s)
    )
    return bare, with_it


def gap_runs(pace: Pace) -> Iterator[Values | Assumed]:
    """Profile loops with gaps of 1 s, 0.3 s and 40 ms, and keep the idle time that profd states."""
    for gap in pace.each((1000, 300, 40)):
        ran = profiled("gaps", "--gap", str(gap), "--busy", str(gap), "--seconds", str(pace.seconds(15, 5)))
        idle = ran.summary.get("gpu_idle")
        yield {"gap_ms": gap, "said": ran.said, "gpu_idle": idle, "gpus": ran.summary.get("gpus"),
               "phases": ran.summary.get("phases"), "failed": ran.summary.get("failed")}  # fmt: skip
        if idle is not None and ran.said.get("cuda"):
            yield Assumed(f"a loop with {gap} ms of {2 * gap} ms idle is idle for about half of the time by profd",
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
