"""Parts B and C of a day with a GPU: windows beside torch's own tables, and findings beside what
was planted.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from gpu import gpu_commands as commands
from gpu.gpu_commands import PROFD, PROGRAMS, Assumed, Pace, Values, profiled, program, said
from support.folders import BENCHMARKS

from profd.daemon.windows.reduction import reduce

SUMMARY_S = 15
"""For so long at most a summary is made."""


def tables(pace: Pace) -> Iterator[Values | Assumed]:
    """Compare profd's reduction of a trace with torch's own table of the same steps."""
    for name in pace.each(
        ("gpu-bound", "transformer", "launch-bound", "planes+", "foreach+", "graph")
    ):
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
            off = {
                one: [torchs[one], own[one]] for one in torchs if abs(torchs[one] - own[one]) > 1
            }
            gpus = [(one.busy_ns, one.idle_ns, one.host_ns) for one in reduction.gpus]
            yield {
                "program": name,
                "rows": len(torchs),
                "off": off,
                "gpus": gpus,
                "bytes": trace.stat().st_size,
            }
            yield Assumed(f"{name}: CUDA columns are torch's to the microsecond", not off, len(off))


def windows(pace: Pace) -> Iterator[Values | Assumed]:
    """Take windows from outside: what they hold, and how long steps are before, in and after them."""
    half = Pace(pace.scale, pace.left_s / 2)
    for name, own in (("gpu-bound", half), ("launch-bound", pace)):
        with tempfile.TemporaryDirectory() as home:
            log = Path(home, "steps.jsonl")
            words = [
                sys.executable,
                str(PROGRAMS),
                name,
                "--seconds",
                str(own.seconds(50, 12)),
                "--log",
                str(log),
            ]
            run = subprocess.Popen(
                [*PROFD, "run", "--headless", "--quiet", "--torch-window", "--", *words],
                env={**os.environ, "PROFD_HOME": home}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            commands.until_it_steps(log, run, own)
            time.sleep(own.seconds(6, 2))
            for asked in own.each((["--steps", "5"], ["--seconds", "0.5"])):
                begun = time.monotonic()
                text = said(
                    [*PROFD, "window", "latest", *asked, "--limit", "12"], 60, PROFD_HOME=home
                )
                yield {
                    "program": name,
                    "words": asked,
                    "took_s": time.monotonic() - begun,
                    "told": text,
                }
                time.sleep(own.seconds(5, 1))
            try:
                output, _ = run.communicate(timeout=max(own.left_s - SUMMARY_S, 1))
            except subprocess.TimeoutExpired:
                run.terminate()
                output, _ = run.communicate()
            yield {"program": name, "said": commands.last_line(output)}
            found = commands.summary(home)
            commands.keep_run(home, f"window-{name}")
            yield {
                "program": name,
                "windows": found.get("last_window"),
                "steps": found.get("steps"),
            }
            yield Assumed(
                f"{name}: a window was taken", bool(found.get("last_window")), found.get("losses")
            )


def in_process(_: Pace) -> Iterator[Values | Assumed]:
    """Compare a training with the same one in which profd's part takes a window, without gdb."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("launch-bound", "--steps", "100", "--seconds", "60")
        bare, own = program(*words), program(*words, "--window", str(Path(folder, "window")))
        trace = Path(folder, "window", "trace.json")
        yield {
            "bare": bare,
            "with_window": own,
            "bytes": trace.stat().st_size if trace.exists() else None,
        }
        yield Assumed(
            "profd's part in the process writes a window", trace.exists(), own.get("failed")
        )
    same = bool(own.get("became")) and bare.get("became") == own.get("became")
    yield Assumed(
        "a window changes no bit of the model", same, [bare.get("became"), own.get("became")]
    )
    memory = own.get("memory", [[], []])
    lost = [before - after for before, after in zip(*memory, strict=True)]
    yield Assumed(
        "after a window each GPU has its memory back but for 64 MB",
        all(one < 1 << 26 for one in lost),
        lost,
    )


CLIENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "a client of CUPTI": (("--cupti",), ("--steps", "5")),
    "a script that profiles itself": (("--own-profile",), ("--steps", "5")),
    "1,000 steps": ((), ("--steps", "1000")),
}
"""Options of the training, and of the window."""


def clients(pace: Pace) -> Iterator[Values | Assumed]:
    """Take a window beside another profiler, and one of as many steps as there may be."""
    for name in pace.each(CLIENTS):
        own, asked = CLIENTS[name]
        with tempfile.TemporaryDirectory() as home:
            log = Path(home, "steps.jsonl")
            training = [
                sys.executable,
                str(PROGRAMS),
                "tiny",
                "--seconds",
                "60",
                "--log",
                str(log),
                *own,
            ]
            run = subprocess.Popen(
                [*PROFD, "run", "--headless", "--quiet", "--torch-window", "--", *training],
                env={**os.environ, "PROFD_HOME": home}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            commands.until_it_steps(log, run, pace)
            time.sleep(2)
            begun = time.monotonic()
            text = said(
                [*PROFD, "window", "latest", *asked, "--limit", "8"],
                min(pace.left_s - 10, 60),
                PROFD_HOME=home,
            )
            yield {"beside": name, "took_s": time.monotonic() - begun, "told": text[-3000:]}
            run.terminate()
            output, _ = run.communicate()
            yield {
                "beside": name,
                "said": commands.last_line(output),
                "window": commands.summary(home).get("last_window"),
            }
            if "--own-profile" in own:
                yield Assumed(
                    f"{name} gets no window, and profd says why",
                    "a trace of its own" in text,
                    text[-300:],
                )
            elif own and "launches" in text:
                yield Assumed(f"{name}: a window without kernels says that another profiler "
                              "holds CUPTI",
                              "another profiler" in text or "cuda" in text.lower(), text[-600:])  # fmt: skip


def every(pace: Pace) -> Iterator[Values | Assumed]:
    """Take windows by themselves each ten seconds, the shortest time that profd takes."""
    seconds = pace.seconds(35, 15)
    with tempfile.TemporaryDirectory() as home:
        run = [*PROFD, "run", "--headless", "--quiet", "--torch-window=every=10s,steps=3", "--"]
        ran = said(
            [*run, sys.executable, str(PROGRAMS), "item", "--seconds", str(seconds)],
            90,
            PROFD_HOME=home,
        )
        path = next(Path(home).rglob("*.profd"), None)
        rows = []
        if path is not None:
            sql = "SELECT start_ns, end_ns, trace_bytes, error FROM window ORDER BY start_ns"
            rows = sqlite3.connect(path).execute(sql).fetchall()
        yield {"said": commands.last_line(ran), "windows": rows, "seconds": seconds}
        taken = [row for row in rows if not row[3]]
        yield Assumed(
            "windows each 10 s come so often, but for one",
            len(taken) >= int(seconds / 10) - 1,
            len(taken),
        )


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


def findings(pace: Pace) -> Iterator[Values | Assumed]:
    """Train with each planted cause and without it, and say what is found."""
    twins = [f"{name}+" for name in PLANTED if name != "memory"]
    for name in pace.each([*PLANTED, "hidden+", "full-power+", *twins]):
        of_windows = name.rstrip("+") in _OF_WINDOWS
        options = ("--torch-window=every=10s,steps=3",) if of_windows else ()
        ran = profiled(name, "--seconds", str(pace.seconds(15, 5)), options=options, limit_s=100)
        found = [
            {"rule": one["rule"], "severity": one["severity"], "title": one["title"]}
            for one in ran.summary.get("findings", ())
        ]
        idle = ran.summary.get("gpu_idle") or {}
        yield {"program": name, "said": ran.said, "findings": found, "idle": idle.get("share"),
               "failed": ran.summary.get("failed")}  # fmt: skip
        grave = sorted({one["rule"] for one in found if one["severity"] != "info"})
        if name.endswith("+"):
            yield Assumed(f"{name} is healthy", not grave, grave)
        else:
            rules = {one["rule"] for one in found}
            yield Assumed(
                f"{name} has one of {PLANTED[name]}", bool(rules & {*PLANTED[name]}), sorted(rules)
            )


def classic(pace: Pace) -> Iterator[Values | Assumed]:
    """Name the improvements of ResNet-18 one after the other."""
    words = [
        sys.executable,
        str(BENCHMARKS / "run.py"),
        "--print-only",
        "classic",
        "--gpu",
        "--images",
        str(int(pace.seconds(9600, 640))),
    ]
    yield {"table": said(words, pace.left_s - 2)}
