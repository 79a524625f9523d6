"""What profd says on a machine with a GPU, beside what is true there: ``python benchmarks/gpu_session.py A|B|C``.

A are facts of the driver and the truth of readings, B windows, C findings; each within nine minutes on one GPU, without
the network. Each step is a process of its own with its own time limit, and what it says is appended to ``--out`` as a
line of JSON when it ends. Nothing is asserted: a device may answer as it likes. At the end stands what differs from
what the simulator of the tests and the documents assume. ``--scale 0.1`` shortens all, to try it without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from profd.daemon.analyze.idletime import IdleTime
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.collector import GpuCollector
from profd.daemon.store.records import EventHappened, PointsTaken, Record
from profd.daemon.store.rows import IntervalRow, PointRow
from profd.daemon.store.stepfunction import UTILIZATION, step_function
from profd.daemon.windows.reduction import reduce

HERE = Path(__file__).parent
PROGRAMS = HERE / "gpu_programs.py"
RECORDER = HERE / "gpu_recorder.py"
PART_S = 530
"""For so long a part goes on at most: a machine may be lent for minutes."""
Values = dict[str, Any]


class Assumed(NamedTuple):
    """Something that the simulator or a document takes for granted, and whether it was so here."""

    what: str
    holds: bool
    seen: object


class Step(NamedTuple):
    """A step: what it does gets the scale of times, and yields values and what was assumed."""

    part: str
    name: str
    limit_s: float
    do: Callable[[float], Iterator[Values | Assumed]]


def said(words: list[str], limit_s: float, *, user: int | None = None, **environment: str) -> str:
    """Return what a command says, and how it ended where it failed; no command may take the step down."""
    try:
        ended = subprocess.run(
            words, capture_output=True, text=True, timeout=limit_s, env={**os.environ, **environment}, user=user
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{words[0]}: {error}"
    return ended.stdout if ended.returncode == 0 else f"{ended.stdout}{ended.stderr}exit {ended.returncode}"


def program(*words: str, limit_s: float = 120) -> Values:
    """Run a training bare, and return what its last line says."""
    return last_line(said([sys.executable, str(PROGRAMS), *words], limit_s))


def last_line(text: str) -> Values:
    """Return the JSON in the last line of an output, or its end where there is none."""
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(text.splitlines()[-1])
        return found if isinstance(found, dict) else {"said": found}
    return {"failed": text[-600:]}


class Profiled(NamedTuple):
    """What a training under profd said, and its summary."""

    said: Values
    summary: Values


def profiled(*words: str, options: tuple[str, ...] = (), limit_s: float = 120) -> Profiled:
    """Run a training under profd, and return its last line and the summary."""
    with tempfile.TemporaryDirectory() as home:
        profd = [sys.executable, "-m", "profd"]
        run = [*profd, "run", "--headless", "--quiet", *options, "--", sys.executable, str(PROGRAMS), *words]
        output = said(run, limit_s, PROFD_HOME=home)
        told = said([*profd, "summary", "latest", "--json"], 60, PROFD_HOME=home)
    with contextlib.suppress(ValueError):
        return Profiled(last_line(output), json.loads(told))
    return Profiled(last_line(output), {"failed": told[-600:]})


class Collected:
    """The real collector in this process, with all that it hands over."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.clock = Clock()
        self._collector = GpuCollector(self.clock, self.records.append, everything=True)

    def __enter__(self) -> Collected:
        self._collector.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._collector.close(5)

    def series(self, name: str) -> dict[str, list[PointRow]]:
        """Return the readings of a series by device."""
        found: defaultdict[str, list[PointRow]] = defaultdict(list)
        for taken in self.records:
            for point in taken.points if isinstance(taken, PointsTaken) else ():
                if point.name == name and point.device is not None:
                    found[point.device].append(PointRow(taken.at_ns, point.value))
        return found

    def summary(self) -> Values:
        """Return events, and by series how many readings there are, how far apart, and their mean."""
        names = {point.name for taken in self.records if isinstance(taken, PointsTaken) for point in taken.points}
        found: Values = {"events": [one.text for one in self.records if isinstance(one, EventHappened)]}
        for name in sorted(names):
            for device, points in self.series(name).items():
                apart = [after.at_ns - before.at_ns for before, after in itertools.pairwise(points)]
                period_s = statistics.median(apart) / SECOND_NS if apart else None
                found[f"{name} {device}"] = [len(points), period_s, statistics.fmean(one.value for one in points)]
        return found


def facts(_: float) -> Iterator[Values | Assumed]:
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


def recorder(scale: float) -> Iterator[Values | Assumed]:
    """Record raw answers of NVML: without a context, beside one, and as another user."""
    folder, seconds = Path(os.environ.get("GPU_SESSION_FOLDER", ".")), str(max(20 * scale, 2))

    def record(name: str) -> Values:
        path = folder / f"nvml-raw-{name}.jsonl.gz"
        told = said([sys.executable, str(RECORDER), str(path), "--seconds", seconds], 60)
        return {"recorded": name, "bytes": path.stat().st_size if path.exists() else None, "told": told}

    yield record("without-a-context")
    words = [sys.executable, str(PROGRAMS), "gaps", "--gap", "100", "--seconds", str(40 * scale + 5)]
    beside = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield record("beside-gaps")
    if os.geteuid() == 0:  # GPM may be for administrators
        path = Path(tempfile.mkdtemp(), "nvml-raw-as-nobody.jsonl.gz")
        path.parent.chmod(0o777)
        yield {"as nobody": said([sys.executable, str(RECORDER), str(path), "--seconds", "2"], 60, user=65534)}
    beside.terminate()
    beside.wait()


def idle_reading(scale: float) -> Iterator[Values | Assumed]:
    """Read a GPU that nobody uses, and say what that costs."""
    begun_s, spent_s = time.monotonic(), time.process_time()
    with Collected() as collected:
        time.sleep(max(20 * scale, 3))
    cores = (time.process_time() - spent_s) / (time.monotonic() - begun_s)
    found = collected.summary()
    yield {**found, "cores": cores}
    yield Assumed("the collector takes at most 0.5 % of a core (docs/gpu.md)", cores <= 0.005, cores)
    read = collected.series(UTILIZATION)
    yield Assumed("an idle GPU has readings of utilization", bool(read), {name: len(one) for name, one in read.items()})


def truth(scale: float) -> Iterator[Values | Assumed]:
    """Hold readings against kernels of known lengths: the idle share, and what of it lies in each phase."""
    torch = cuda()
    if torch is None:
        yield {"skipped": "no CUDA"}
        return
    per_ms = sleep_rate(torch)
    for gap_ms in (5, 20, 50, 100, 200, 400, 1000):
        for duty in (0.3, 0.5, 0.8):
            yield from known_gaps(torch, per_ms, gap_ms, duty, max(3.5, 5 * gap_ms / 1000) * max(scale, 0.3))


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


def shapes_of_work(scale: float) -> Iterator[Values | Assumed]:
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
            until, copied = time.monotonic() + max(6 * scale, 3), 0
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


def memory(_: float) -> Iterator[Values | Assumed]:
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


def cost(scale: float) -> Iterator[Values | Assumed]:
    """Say what profd costs a launch-bound and a GPU-bound loop, in turns with and without it."""
    for name in ("launch-bound", "gpu-bound"):
        seconds, ratios = str(max(5 * scale, 2)), []
        for _ in range(max(round(3 * scale), 1)):
            bare = program(name, "--seconds", seconds)
            with_it = profiled(name, "--seconds", seconds)
            yield {"program": name, "bare": bare, "profiled": with_it.said}
            if bare.get("median_s") and with_it.said.get("median_s"):
                ratios.append(with_it.said["median_s"] / bare["median_s"])
        if ratios:
            ratio = statistics.median(ratios)
            yield Assumed(f"profd costs a {name} loop at most 2 %", ratio < 1.02, ratio)


def gap_runs(scale: float) -> Iterator[Values | Assumed]:
    """Profile loops with gaps of 1 s, 0.3 s and 40 ms, and keep the idle time that profd states."""
    for gap in (1000, 300, 40):
        ran = profiled("gaps", "--gap", str(gap), "--busy", str(gap), "--seconds", str(max(20 * scale, 5)))
        idle = ran.summary.get("gpu_idle")
        yield {"gap_ms": gap, "said": ran.said, "gpu_idle": idle, "gpus": ran.summary.get("gpus"),
               "phases": ran.summary.get("phases"), "failed": ran.summary.get("failed")}  # fmt: skip
        if idle is not None and ran.said.get("cuda"):
            yield Assumed(f"a loop with {gap} ms of {2 * gap} ms idle is idle for about half of the time by profd",
                          abs(idle["share"] - 0.5) < 0.07, idle["share"])  # fmt: skip


def tables(_: float) -> Iterator[Values | Assumed]:
    """Compare profd's reduction of a trace with torch's own table of the same steps."""
    for name in ("gpu-bound", "launch-bound", "planes+", "foreach+", "graph"):
        with tempfile.TemporaryDirectory() as folder:
            ran = program(name, "--seconds", "2", "--profile", folder, limit_s=90)
            trace, table = Path(folder, "trace.json"), Path(folder, "table.json")
            if not table.exists():
                yield {"program": name, "failed": ran}
                continue
            own: defaultdict[str, float] = defaultdict(float)
            packed = io.BytesIO(gzip.compress(trace.read_bytes()))
            reduction = reduce(packed, begins_with_step=False)
            for row in reduction.operators:
                own[row.name] += row.self_cuda_ns / 1000
            torchs: defaultdict[str, float] = defaultdict(float)
            for line in json.loads(table.read_text()):
                torchs[line["name"]] += line["self_device_us"]
            off = {one: [torchs[one], own[one]] for one in torchs if abs(torchs[one] - own[one]) > 1}
            gpus = [(one.busy_ns, one.idle_ns, one.host_ns) for one in reduction.gpus]
            yield {"program": name, "rows": len(torchs), "off": off, "gpus": gpus, "bytes": trace.stat().st_size}
            yield Assumed(f"{name}: CUDA columns are torch's to the microsecond", not off, len(off))


def windows(scale: float) -> Iterator[Values | Assumed]:
    """Take windows from outside: what they hold, and how long steps are before, in and after them."""
    with tempfile.TemporaryDirectory() as home:
        profd, environment = [sys.executable, "-m", "profd"], {**os.environ, "PROFD_HOME": home}
        for name in ("gpu-bound", "launch-bound"):
            run = subprocess.Popen(
                [*profd, "run", "--headless", "--quiet", "--torch-window", "--", sys.executable, str(PROGRAMS), name,
                 "--seconds", str(40 * scale + 10)],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            time.sleep(8 + 6 * scale)
            for words in (["--steps", "5"], ["--seconds", "0.5"]):
                begun = time.monotonic()
                told = said([*profd, "window", "latest", *words, "--limit", "12"], 60, PROFD_HOME=home)
                yield {"program": name, "words": words, "took_s": time.monotonic() - begun, "told": told}
                time.sleep(5 * scale)
            try:
                output, _ = run.communicate(timeout=60 * scale + 40)
            except subprocess.TimeoutExpired:
                run.kill()
                output, _ = run.communicate()
            yield {"program": name, "said": last_line(output)}
            summary = json.loads(said([*profd, "summary", "latest", "--json"], 60, PROFD_HOME=home))
            yield {"program": name, "windows": summary.get("last_window"), "steps": summary.get("steps")}
            yield Assumed(f"{name}: a window was taken", bool(summary.get("last_window")), summary.get("losses"))


# The rules by program: profd has to name one of them. A healthy twin has no finding above info.
PLANTED = {
    "in-process": ("input-bound-in-process",),
    "item": ("synchronization", "small-batches"),
    "unpinned": ("host-to-device-copies", "pcie-bound"),
    "tiny-batch": ("small-batches",),
    "fp32": ("precision",),
    "planes": ("memory-format",),
    "foreach": ("unfused-optimizer", "small-batches"),
    "memory": ("gpu-memory-limit",),
}
_OF_WINDOWS = ("fp32", "planes")


def findings(scale: float) -> Iterator[Values | Assumed]:
    """Train with each planted cause and without it, and say what is found."""
    for name in (*(f"{name}{twin}" for name in PLANTED for twin in ("", "+")), "hidden+", "full-power+"):
        if name == "memory+":
            continue
        of_windows = name.rstrip("+") in _OF_WINDOWS
        options = ("--torch-window=every=8s,steps=3",) if of_windows else ()
        ran = profiled(name, "--seconds", str(max(17 * scale, 5)), options=options, limit_s=100)
        told = [
            {"rule": one["rule"], "severity": one["severity"], "title": one["title"]}
            for one in ran.summary.get("findings", ())
        ]
        idle = ran.summary.get("gpu_idle") or {}
        yield {"program": name, "said": ran.said, "findings": told, "idle": idle.get("share"),
               "failed": ran.summary.get("failed")}  # fmt: skip
        grave = sorted({one["rule"] for one in told if one["severity"] != "info"})
        if name.endswith("+"):
            yield Assumed(f"{name} is healthy", not grave, grave)
        else:
            rules = {one["rule"] for one in told}
            yield Assumed(f"{name} has one of {PLANTED[name]}", bool(rules & {*PLANTED[name]}), sorted(rules))


def classic(scale: float) -> Iterator[Values | Assumed]:
    """Name the improvements of ResNet-18 one after the other."""
    images = str(int(max(9600 * scale, 640)))
    yield {"table": said([sys.executable, str(HERE / "classic.py"), "--gpu", "--dry-run", "--images", images], 110)}


STEPS = (
    Step("A", "facts", 90, facts),
    Step("A", "recorder", 100, recorder),
    Step("A", "idle", 40, idle_reading),
    Step("A", "truth", 190, truth),
    Step("A", "work", 50, shapes_of_work),
    Step("A", "memory", 40, memory),
    Step("A", "cost", 160, cost),
    Step("A", "gaps", 110, gap_runs),
    Step("B", "tables", 150, tables),
    Step("B", "windows", 300, windows),
    Step("C", "findings", 440, findings),
    Step("C", "classic", 100, classic),
)


def cuda() -> Any:  # noqa: ANN401
    """Return torch where it has a GPU, else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def sleep_rate(torch: Any) -> float:  # noqa: ANN401
    """Return how many cycles of a sleeping kernel are a millisecond."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        first.record()
        torch.cuda._sleep(100_000_000)
        last.record()
        torch.cuda.synchronize()
    return float(100_000_000 / first.elapsed_time(last))


def take(step: Step, scale: float, out: Path, left_s: float) -> list[Values]:
    """Take a step in a process of its own, append what it says as it comes, and return what was assumed.

    It gets its own time limit, or what is left of that of the part.
    """
    limit_s = max(min(step.limit_s, left_s), 1.0)
    print(f"{step.part} {step.name} …", flush=True)
    begun = time.monotonic()
    words = [sys.executable, __file__, step.part, "--step", step.name, "--scale", str(scale)]
    environment = {**os.environ, "GPU_SESSION_FOLDER": str(out.absolute().parent)}
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=environment
    )
    timer = threading.Timer(limit_s, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    found, other = [], []
    assert process.stdout is not None
    with out.open("a") as file:
        for line in process.stdout:
            try:
                values = json.loads(line)
            except ValueError:
                other.append(line)
                continue
            found.append(values)
            file.write(json.dumps({"part": step.part, "step": step.name, **values}) + "\n")
            file.flush()
        status = process.wait()
        timer.cancel()
        took = time.monotonic() - begun
        ended = "done" if status == 0 else "ran into its limit" if took >= limit_s else f"failed ({status})"
        last = {"part": step.part, "step": step.name, "ended": ended, "took_s": took, "output": "".join(other)[-3000:]}
        file.write(json.dumps(last) + "\n")
    print(f"  {ended}, {took:.0f} s", flush=True)
    return [one for one in found if "assumed" in one]


def main() -> None:
    """Take the steps of a part, and say what differs from what was assumed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["A", "B", "C"])
    parser.add_argument("--out", type=Path, default=Path("gpu-session.jsonl"))
    parser.add_argument("--scale", type=float, default=1.0, help="of all lengths of time; below 1 to try it")
    parser.add_argument("--step", help="this step alone, in this process")
    options = parser.parse_args()
    steps = [step for step in STEPS if step.part == options.part and options.step in {None, step.name}]
    if options.step:
        for said_now in steps[0].do(options.scale):
            assumed = isinstance(said_now, Assumed)
            values = dict(zip(("assumed", "holds", "seen"), said_now, strict=True)) if assumed else said_now
            print(json.dumps(values, default=str), flush=True)
        return
    end_s = time.monotonic() + PART_S
    assumed = [one for step in steps for one in take(step, options.scale, options.out, end_s - time.monotonic())]
    differs = [one for one in assumed if not one["holds"]]
    print(f"\n{len(assumed)} things were assumed, {len(differs)} differ here:")
    for one in differs:
        print(f"- {one['assumed']}: {one['seen']}")


if __name__ == "__main__":
    main()
