"""Native stacks of waiting threads, beside those that gdb sees afterwards; of running programs,
beside what they can have called; and what a read costs and leaves in the target.

Run on a quiet machine, as root: ``python benchmarks/run.py native [--quick] [--only NAME]``; about
45 minutes. Needs gdb and gcc. Writes its section of ``docs/measurements.md``, unless quick.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from common import load
from common.measurements import write_section
from common.paired import distinguish, effect
from trust.nativescenes import SCENES, Scene

from profd.daemon import processes, program
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.native.images import Images
from profd.daemon.native.stacks import NativeStacks, Still, still
from profd.daemon.native.walk import Walk

SETTLE_S, TRIES = 0.8, 4
READS, QUICK_READS = 2_000, 100
METHOD = (
    "`benchmarks/trust/native.py`. Waiting: {scenes} programs whose threads wait each in another "
    "situation, under each Python that is here and has what they import. profd reads the native "
    "stack of each thread, then gdb stops the process. A thread counts if the kernel says that it "
    "did not run until gdb came. Whole: profd came to the beginning of the thread. Wrong: frames "
    "from the first that is not gdb's. Without rbp: frames that go by rbp, and whose caller was "
    "found while that was not known. Running: threads of a C program that calls one of 64 chains "
    "of functions at a time, each with its own, waits at its end for up to 1 ms, and computes "
    "before the next; a read is right if its frames are one of those chains, or the end of one. "
    "Cost: profd's reader as a process, from its start on, five times, the median and the highest "
    "peak of memory (RSS). Left: state and tracer of all threads, polled without a pause while the "
    "reader runs 20 times, and resident file pages before and after. Slowed: a torch loop takes so "
    "many steps again and again while profd's reader reads it each second, while it reads another "
    "process of the same program that waits (sham), and once more so (null control), in changing "
    "order; in brackets 95 % intervals of the mean ratio to the sham."
)


class Counts(NamedTuple):
    """What became of threads that wait; ``gone_on`` ran before gdb came."""

    threads: int = 0
    gone_on: int = 0
    whole: int = 0
    frames: int = 0
    wrong: int = 0
    searched: int = 0
    beyond: int = 0

    def __add__(self, other: object) -> Counts:
        assert isinstance(other, Counts)
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


def pythons() -> dict[str, str]:
    """Return the Pythons of this machine by what they are called."""
    found = {"of this environment": sys.executable}
    for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")):
        version = path.parts[-3].removesuffix(".0")
        if int(version.split(".")[1]) >= 8 and str(path) != os.path.realpath(sys.executable):
            found[version] = str(path)
    for path in sorted(Path("/usr/bin").glob("python3.??")):
        found[f"Debian's {path.name.removeprefix('python')}"] = str(path)
    return found


def has(python: str, module: str) -> bool:
    words = [
        python,
        "-c",
        f"import importlib.util as u, sys; sys.exit(not u.find_spec({module!r}))",
    ]
    return not module or subprocess.run(words, check=False).returncode == 0


@contextlib.contextmanager
def running(words: Sequence[str]) -> Iterator[int]:
    """Run a program up to its first line, and some time on; it ends with all that it started."""
    null = subprocess.DEVNULL
    process = subprocess.Popen(
        words, stdin=null, stdout=subprocess.PIPE, stderr=null, start_new_session=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(SETTLE_S)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


GDB = """
import gdb
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, counters = gdb.newest_frame(), []
    while frame is not None:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME): counters.append(frame.pc())
        try: frame = frame.older()
        except gdb.error: frame = None
    print('THREAD', thread.ptid[1], *counters)
"""


def backtraces(pid: int) -> dict[int, list[int]]:
    """Return the program counters of all threads of a process, as gdb sees them."""
    words = ["gdb", "-q", "-nx", "-batch", "-p", str(pid), "-ex", f"python exec({GDB!r})"]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    rows = (line.split()[1:] for line in said.splitlines() if line.startswith("THREAD"))
    return {int(os_tid): list(map(int, counters)) for os_tid, *counters in rows}


def compare(pid: int, ends: Counter[str], errors: list[str]) -> Counts:
    """Compare the threads of a process with gdb."""
    walks: dict[int, tuple[Walk | None, Still | None]] = {}
    with contextlib.closing(NativeStacks(pid, Images())) as stacks:
        for os_tid in processes.thread_ids(pid).values():
            before = still(pid, os_tid)
            try:
                walks[os_tid] = stacks.walk(os_tid), before
            except Unreadable as error:
                ends[str(error)] += 1
        stood = {os_tid: still(pid, os_tid) == seen for os_tid, (_, seen) in walks.items()}
        reference = backtraces(pid)
        counts = Counts()
        for os_tid, (walk, _) in walks.items():
            truth = reference.get(os_tid, [])
            if walk is None or not stood[os_tid] or not truth:
                counts += Counts(gone_on=1)
                continue
            own = [frame.counter for frame in walk.frames]
            same = next(
                (at for at, (a, b) in enumerate(zip(own, truth, strict=False)) if a != b), None
            )
            wrong = 0 if same is None else len(own) - same
            beyond = max(len(own) - len(truth), 0) if same is None else 0
            if wrong:
                errors.append(f"{pid}/{os_tid}: {list(map(hex, own))} {list(map(hex, truth))}")
            if walk.end:
                ends[walk.end] += 1
            counts += Counts(1, 0, not walk.end, len(own) - beyond, wrong, walk.without_rbp, beyond)
        return counts


def waiting(only: str, quick: bool, of: str) -> tuple[list[str], Counter[str], Counts, list[str]]:
    """Return the table of what waits, why walks ended, the sums, and what was wrong."""
    ends, errors, total, situations = Counter[str](), list[str](), Counts(), set[str]()
    rows = []
    for label, python in pythons().items():
        if of not in label:
            continue
        sums, done = Counts(), 0
        for scene in SCENES[:: 6 if quick else 1]:
            if only in scene.name and has(python, scene.needs):
                found = of_scene(scene, python, ends, errors)
                print(
                    label,
                    scene.name,
                    found,
                    dict(ends) if found.whole < found.threads else "",
                    flush=True,
                )
                sums, done = sums + found, done + 1
                situations.add(scene.name)
        total += sums
        rows.append(f"| {label} ({version(python)}) | {done} | {row(sums)} |")
    rows.append(f"| all | {len(situations)} | {row(total)} |")
    return rows, ends, total, errors


def version(python: str) -> str:
    words = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def row(found: Counts) -> str:
    whole = f"{found.whole} ({100 * found.whole / max(found.threads, 1):.1f} %)"
    cells = (
        found.threads,
        whole,
        found.frames,
        found.wrong,
        found.searched,
        found.beyond,
        found.gone_on,
    )
    return " | ".join(map(str, cells))


def of_scene(scene: Scene, python: str, ends: Counter[str], errors: list[str]) -> Counts:
    with running([python, "-c", scene.program]) as pid:
        counts = Counts()
        for one in (pid, *processes.descendants(pid)):
            if processes.python_version(one) is not None:
                with contextlib.suppress(Unreadable):
                    counts += compare(one, ends, errors)
        return counts


CHAINS = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <alloca.h>
#include <unistd.h>
#define KEEP __attribute__((noinline, noclone))
KEEP void leaf(unsigned r) {{ struct timespec t = {{0, r % 1000000}}; nanosleep(&t, 0); }}
{functions}
static void *go(void *at) {{
    unsigned r = (unsigned)(unsigned long)at * 2654435761u + 1;
    for (;;) {{ r = r * 1664525u + 1013904223u; n_(r >> 4); for (volatile unsigned n = r % 20000; n; n--) {{}} }}
    return 0;
}}
int main(void) {{
    pthread_t t;
    for (unsigned long n = 0; n < 8; n++) pthread_create(&t, 0, go, (void *)n);
    puts("ready"); fflush(stdout); pause(); return 0;
}}
"""


def chains(depth: int = 6) -> str:
    """Return a C program with a function for each node of a binary tree, ``n_`` and ``n_0110``."""
    functions = []
    for length in range(depth, -1, -1):
        for number in range(1 << length):
            path = format(number, f"0{length}b") if length else ""
            # each is called both directly and by a pointer
            deeper = (
                f"void (*volatile p)(unsigned) = r & {1 << length} ? n_{path}1 : n_{path}0; "
                f"if (r & {1 << length + 8}) p(r); "
                f"else if (r & {1 << length}) n_{path}1(r); else n_{path}0(r);"
            )
            body = "leaf(r);" if length == depth else deeper
            # every other function goes by rbp, as it takes a part of the stack of any size
            room = "volatile char *a = alloca(r % 200 + 1); a[0] = 1; " if number % 2 else ""
            functions.append(
                f'KEEP void n_{path}(unsigned r) {{ {room}{body} __asm__ volatile("" ::: "memory"); }}'
            )
    return CHAINS.format(functions="\n".join(functions))


def running_reads(count: int) -> list[str]:
    """Read threads of a running program, and return the rows of the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "chains.c"
        source.write_text(chains())
        for options in ("-O2 -fno-ipa-icf", "-O1 -fno-omit-frame-pointer", "-O0"):
            binary = str(Path(folder) / "chains")
            subprocess.run(["gcc", *options.split(), "-pthread", "-o", binary, source], check=True)
            with (
                running([binary]) as pid,
                contextlib.closing(NativeStacks(pid, Images())) as stacks,
            ):
                rows.append(f"| `{options}` | {of_chains(pid, stacks, count)} |")
    return rows


def of_chains(pid: int, stacks: NativeStacks, count: int) -> str:
    refused = right = whole = wrong = 0
    os_tids = sorted(set(processes.thread_ids(pid).values()) - {pid})
    for number in range(count):
        walk = stacks.walk(os_tids[number % len(os_tids)])
        if walk is None:
            refused += 1
            continue
        names = stacks.code.names({frame.within for frame in walk.frames})
        called = [names[frame.within].name for frame in walk.frames]
        if is_chain(called, is_whole=not walk.end):
            right, whole = right + 1, whole + (not walk.end)
        else:
            wrong += 1
            print("WRONG", called, walk.end)
    return f"{count} | {refused} | {right} | {whole} | {wrong}"


def is_chain(called: Sequence[str], *, is_whole: bool) -> bool:
    """Return whether functions, the innermost first, are one chain, or the end of one."""
    text = " ".join(
        re.sub(r"^(__GI_+|_+)", "", name) if "sleep" in name else name for name in called
    )
    match = re.fullmatch(
        r"(?:\w*sleep ?)*(leaf ?)?((?:n_[01]* ?)*)((?:go|start_thread|clone3?|\w*) ?)*", text
    )
    if match is None:
        return False
    paths = [name[2:] for name in match[2].split()]
    is_path = all(a[:-1] == b for a, b in itertools.pairwise(paths))
    if match[1] and paths:
        is_path &= len(paths[0]) == 6
    return is_path and (not is_whole or (paths[-1:] == [""] and "go" in called))


def cost(label: str, words: Sequence[str]) -> str:
    """Return a row: threads, seconds and memory of profd's reader for a program that waits."""
    with running(words) as pid:
        time.sleep(2)
        threads = len(processes.thread_ids(pid))
        took = [read_once(pid) for _ in range(5)]
        seconds = sorted(one[0] for one in took)
        left = left_by(pid)
    most_mb = max(one[2] for one in took) / 1e6
    cpu_s = sorted(one[1] for one in took)[2]
    return f"| {label} | {threads} | {seconds[2]:.2f} | {cpu_s:.2f} | {most_mb:.0f} | {left} |"


def read_once(pid: int) -> tuple[float, float, int]:
    """Return the seconds, CPU seconds and most memory of profd's reader, in a process of its own."""
    began_s = time.perf_counter()
    words = program.words("profd.daemon.native.reader", str(pid))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    took_s = time.perf_counter() - began_s
    return took_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def left_by(pid: int, reads: int = 20) -> str:
    """Return what was seen of a process while it was read: polls, odd ones, pages."""
    odd, polls, is_done = 0, 0, threading.Event()

    def poll() -> None:
        nonlocal odd, polls
        while not is_done.is_set():
            for os_tid in os.listdir(f"/proc/{pid}/task"):
                status = processes.status(pid, int(os_tid))
                odd += status.get("TracerPid") != "0" or status.get("State", "t")[0] in "tT"
                polls += 1

    before = processes.status(pid)["RssFile"]
    thread = threading.Thread(target=poll)
    thread.start()
    for _ in range(reads):
        read_once(pid)
    is_done.set()
    thread.join()
    after = processes.status(pid)["RssFile"]
    return f"{odd} of {polls:,} | {before} | {after}"


KINDS = ("read", "sham", "null")
STEPS, QUICK_STEPS, ROUNDS, QUICK_ROUNDS = 1_500, 100, 20, 3
EACH_S = 1.0


def slowed(rounds: int, steps: int) -> list[str]:
    """Return the table of what reads each second cost a torch loop, against reads of another."""
    with load.running("steploop", 1) as target, load.running("steploop", 1) as sham:
        pids = {"read": target.pid, "sham": sham.pid, "null": sham.pid}
        taken = []
        for number in range(rounds):
            at = number % len(KINDS)
            turned = (*KINDS[at:], *KINDS[:at])
            taken.append({kind: steps_beside_reads(target, steps, pids[kind]) for kind in turned})
            print(f"round {number + 1}: {taken[-1]}", flush=True)
    rows = []
    for name, field in (("wall", 0), ("CPU", 1)):
        pairs, nulls = (
            [(one[kind][field], one["sham"][field]) for one in taken] for kind in ("read", "null")
        )
        cells = effect(pairs).as_ratio(), effect(nulls).as_ratio(), distinguish(pairs, nulls)
        rows.append(f"| {name} | {rounds} | {' | '.join(map(str, cells))} |")
    return rows


def steps_beside_reads(target: subprocess.Popen[str], steps: int, pid: int) -> tuple[float, float]:
    """Return the seconds and CPU seconds of so many steps while a process is read each second."""
    is_done = threading.Event()

    def read() -> None:
        while not is_done.is_set():
            read_once(pid)
            is_done.wait(EACH_S)

    thread = threading.Thread(target=read)
    thread.start()
    assert target.stdin is not None
    assert target.stdout is not None
    target.stdin.write(f"{steps}\n")
    target.stdin.flush()
    wall_s, cpu_s = map(float, target.stdout.readline().split())
    is_done.set()
    thread.join()
    return wall_s, cpu_s


COSTS = {
    "torch": "import torch\ntorch.set_num_threads(16)\n"
    "x = torch.ones(900, 900, requires_grad=True)\n(x @ x).sum().backward()\n"
    "for _ in range({more}): start(wait)\nready()\nwait()",
    "Python, 1,000 threads": "for _ in range(999): start(wait)\nready()\nwait()",
}


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some of the situations and reads")
    parser.add_argument("--only", default="", help="situations with this in their name alone")
    parser.add_argument("--python", default="", help="Pythons with this in their label alone")
    parser.add_argument("--part", choices=("waiting", "running", "cost", "slowed"), help="one part")
    options = parser.parse_args()
    lines: list[str] = []
    if options.part in (None, "waiting"):
        rows, ends, _, errors = waiting(options.only, options.quick, options.python)
        lines += [
            "| Python | situations | threads | whole | frames compared | wrong | without rbp | beyond gdb's last | went on |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
            "Walks that ended before: "
            + ("; ".join(f"{why}: {count}" for why, count in ends.most_common()) or "none"),
            "",
        ]
        print("\n".join(errors), file=sys.stderr)
    if options.part in (None, "running"):
        lines += [
            "| running program, built with | reads | refused: it ran | right | of these whole | wrong |",
            "|---|---:|---:|---:|---:|---:|",
            *running_reads(QUICK_READS if options.quick else READS),
            "",
        ]
    if options.part in (None, "cost"):
        head = SCENES[0].program.partition("start(time.sleep")[0]
        texts = {label: head + text.replace("{more}", "12") for label, text in COSTS.items()}
        lines += [
            "| target | threads | seconds | CPU seconds | MB | traced or stopped | RssFile before | after |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            *(cost(label, [sys.executable, "-c", text]) for label, text in texts.items()),
        ]
    if options.part in (None, "slowed"):
        plan = (QUICK_ROUNDS, QUICK_STEPS) if options.quick else (ROUNDS, STEPS)
        lines += [
            "",
            "| clock | rounds | read each second to sham | null control | the cost is |",
            "|---|---:|---|---|---|",
            *slowed(*plan),
        ]
    print("\n".join(lines))
    if not (options.quick or options.only or options.python or options.part):
        write_section("Native stacks of waiting threads", METHOD.format(scenes=len(SCENES)), lines)
